"""`why`: why a message is not with the consumers of a group, in a sentence and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from zbus.core.api import BrokerError, Cause, Why
from zbus.core.api import explain as ask
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.alarms import LACKING, lacks_dead_letter
from zbus.dialects.zbus.documents.info import shown_holder
from zbus.dialects.zbus.inspect.message_admin import Named
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.messages.pull_tickets import PEEK_BYTES
from zbus.dialects.zbus.replies import JSON, TEXT, NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import Connection
from zbus.protocol import documents


class Ask(GroupPlan):
    """Plan of the question."""

    __slots__ = ("json", "named")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        offset = params.number(b"offset")
        self.named = Named(params, [] if offset is None else [range(offset, offset + 1)])
        self.json = params.head.json or b"json" in params.fields.get(b"accept", b"")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        broker = self.dialect.broker
        reply = NativeReply(self.dialect, self.params, peer, id)
        found = self.find()
        if isinstance(found, BrokerError):
            reply.settle(found)
            return
        topic, group = found
        place = self.named.find(topic, broker.now_ms)
        if isinstance(place, BrokerError):
            reply.settle(place)
            return
        peer.held_bytes += PEEK_BYTES

        def answered(why: Why | BrokerError) -> None:
            peer.held_bytes -= PEEK_BYTES
            if isinstance(why, BrokerError):
                reply.settle(why)
                return
            holder = shown_holder(broker, why.group, why.holder)
            text = sentence(why, holder, lacks_dead_letter(why.group, broker))
            if why.cause is Cause.FINISHED and broker.elsewhere.has(group.options.dead_letter):
                target = group.options.dead_letter
                text += (
                    f" Its dead letters, which another process has, were not looked at: {target}."
                )
            if self.json:
                document = _document(why, holder, text)
                reply.respond(200, JSON, msgspec.json.encode(document))
            else:
                reply.respond(200, TEXT, text.encode() + b"\n")

        partition, ranges = place
        letters = broker.topics.get(group.options.dead_letter.lower())
        ask(group, partition, ranges[0].start, broker.now_ms, answered, letters)


def _document(why: Why, holder: str, text: str) -> documents.Why:
    letter = why.letter
    return documents.Why(
        text=text,
        state=why.cause.value,
        topic=why.group.topic.name,
        consume_group=why.group.name,
        partition=why.partition,
        offset=why.offset,
        id=why.id.decode("utf-8", "replace"),
        tag=why.tag.decode("utf-8", "replace"),
        key=why.key.decode("utf-8", "replace"),
        timestamp=why.stored_ms,
        expires=why.expires_ms,
        until=why.until_ms,
        attempts=why.attempts,
        holder=holder,
        ended=why.ended_ms,
        before=why.before,
        behind=why.behind if why.behind >= 0 else None,
        letter_topic=letter.topic.name if letter else "",
        letter_partition=letter.partition if letter else None,
        letter_offset=letter.offset if letter else None,
        reason=letter.reason if letter else "",
    )


def sentence(why: Why, holder: str = "", letterless: bool = False) -> str:
    """For people. `letterless`: its group lacks its dead-letter topic."""
    topic = why.group.topic
    place = f"offset {why.offset} of {topic.name}"
    if len(topic.partitions) > 1:
        place = f"offset {why.offset} of partition {why.partition} of {topic.name}"
    if why.cause is Cause.NOT_STORED:
        return f"There is no message at {place}: the log ends at {why.end}."
    if why.cause is Cause.FORGOTTEN:
        return (
            f"There is no message at {place} any more: the log begins at {why.first},"
            " since what was before was emptied, or not retained."
        )
    sentence_of_cause = _TOLD.get(why.cause)
    rest = _leased(why, holder) if sentence_of_cause is None else sentence_of_cause(why)
    if letterless and why.cause is Cause.DEAD and not why.ended_ms:
        rest += f", {LACKING}"
    return f"The message at {place}, stored {spelled_time(why.stored_ms)}, {rest}."


def spelled_time(time_ms: int) -> str:
    """Of epoch milliseconds."""
    try:
        time = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms after 1970"
    return f"{time:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03} UTC"


def _attempts(why: Why) -> str:
    return "1 attempt" if why.attempts == 1 else f"{why.attempts} attempts"


def _leased(why: Why, holder: str) -> str:
    by = f" by {holder}" if holder else " by a consumer that is gone" if why.holder else ""
    times = f", at attempt {why.attempts}" if why.attempts > 1 else ""
    return f"is leased in {why.group.name}{by} until {spelled_time(why.until_ms)}{times}"


def _ready(why: Why) -> str:
    group = why.group
    if why.before:
        count = "1 message" if why.before == 1 else f"{why.before} messages"
        return f"is ready in {group.name}: {count} before it, as far as that is known"
    if next(group.pulls(), None) is None:
        return f"is ready; no consumer of {group.name} is waiting"
    return f"is ready in {group.name} and is handed out next"


def _window_full(why: Why) -> str:
    group = why.group
    count = group.leased_count()
    window = group.options.window
    return f"is ready, but {group.name} has {count} unacknowledged messages and may have {window}"


def _finished(why: Why) -> str:
    group = why.group
    if why.group.topic.options.settled_ms:
        unknown = "and that was before the time for which the topic keeps how"
    else:
        unknown = "and how is not known, since the topic has no settled_ms"
    hints = []
    if why.stored_ms < group.options.created_ms:
        hints.append("it was stored before the group was declared")
    if group.match is not None and not group.match(why.tag):
        hints.append(f"its {_tag(why)} does not match the filter {group.options.filter}")
    if why.expires_ms:
        hints.append(f"it expires {spelled_time(why.expires_ms)}")
    return "; ".join([f"is finished in {group.name}, {unknown}", *hints])


def _tag(why: Why) -> str:
    return f"tag {why.tag.decode('utf-8', 'replace')}" if why.tag else "lack of a tag"


def _filtered(why: Why) -> str:
    group = why.group
    if why.ended_ms:
        tag, when = _tag(why), spelled_time(why.ended_ms)
        return f"was passed over by {group.name} at {when}: the filter did not match its {tag}"
    text = f"its {_tag(why)} does not match the filter {group.options.filter}"
    return f"will be passed over by {group.name}: {text}"


def _expired(why: Why) -> str:
    when, name = spelled_time(why.expires_ms), why.group.name
    if why.ended_ms:
        return f"expired at {when}, before it was finished in {name}"
    return f"expired at {when}, and {name} will pass over it"


def _done(why: Why) -> str:
    when, name = spelled_time(why.ended_ms), why.group.name
    if why.attempts:
        return f"was acknowledged in {name} at {when}, after {_attempts(why)}"
    return f"was handed out to {name} at {when}"


def _dead(why: Why) -> str:
    group = why.group
    letter = why.letter
    target = group.options.dead_letter if letter is None else letter.topic.name
    where = f" and put into {target}" if target else ""
    when = spelled_time(why.ended_ms)
    text = f"was given up by {group.name}{where} at {when}, after {_attempts(why)}"
    if not why.ended_ms:
        return f"was given up by {group.name} after {_attempts(why)}, and waits for {target}"
    if letter is None:
        return text
    place = f"offset {letter.offset}"
    if len(letter.topic.partitions) > 1:
        place += f" of partition {letter.partition}"
    return f"{text} ({letter.reason}): there it is {place}"


def _deleted(why: Why) -> str:
    return f"was deleted from {why.group.name} at {spelled_time(why.ended_ms)}"


def _delayed(why: Why) -> str:
    return f"is delayed in {why.group.name} until {spelled_time(why.until_ms)}"


def _key_busy(why: Why) -> str:
    key = why.key.decode("utf-8", "replace")
    return f"is ready in {why.group.name}, behind offset {why.behind}, which has the key {key}, too"


def _older_first(why: Why) -> str:
    text = "behind unfinished messages from before the topic got more partitions"
    return f"is ready in {why.group.name}, {text}"


def _paused(why: Why) -> str:
    return f"is ready, but {why.group.name} is paused"


_TOLD: dict[Cause, Callable[[Why], str]] = {
    Cause.DELAYED: _delayed,
    Cause.READY: _ready,
    Cause.PAUSED: _paused,
    Cause.KEY_BUSY: _key_busy,
    Cause.OLDER_FIRST: _older_first,
    Cause.WINDOW_FULL: _window_full,
    Cause.FINISHED: _finished,
    Cause.DONE: _done,
    Cause.DEAD: _dead,
    Cause.DELETED: _deleted,
    Cause.EXPIRED: _expired,
    Cause.FILTERED: _filtered,
}
