"""What becomes of a message whose lease ends without an acknowledgement.

A group may limit the attempts, and may want a pause before each further one (backoff): the first
pause is `backoff_ms`, and each after that is twice as long as the one before, up to a longest one.

    the lease ends by time, or its holder gives it back
        delivered `attempts_max` times     it is dead
        the holder says when, or where      as he says; *where* only if there is no pause
        the group has a backoff             delayed by the pause
        otherwise                           ready

A message may have a limit of its own, which takes the place of the group's. It is known when the
message is delivered, and until that lease ends; after a restart it is not. Then a message that the
group would give up is looked at before that, and what comes to its own limit earlier is ready, and
is dead-lettered when it is its turn again.

So no message is delivered more often than `attempts_max` times, whatever its consumers do. What
is dead is finished for its group and counted, unless the group has a dead-letter topic: then the
message stays leased to no client (`OpenLeases.settling`), and `RunQueue.dead` does the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.leases import SETTLE_MS
from zbus.core.cursor.state import GroupOptions
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal, dead_letter_unknown
from zbus.core.model.limits import DELAY_MS_MAX
from zbus.core.model.rate_limit import RATE_MAX
from zbus.core.topics.topic import Group, Pull, Session, Topic

ATTEMPTS_MAX: Final = 1_000_000

BACKOFF_MS_MAX: Final = 3_600_000
"""The longest pause, if the group names none and its first one is not longer."""

FRONT: Final = "front"
LOSSES: Final = ("keep", FRONT)
"""What a group may do with leases that are lost. Their holder is gone: it keeps them until their
time is over, or puts the messages in front. Their time is over: the messages go back to their own
places, or in front."""

EXPIRED: Final = "expired"
GIVEN_BACK: Final = "given back"
LOST: Final = "lost"  # its holder is gone
TRIED: Final = "attempts"  # which of these it was is not known any more
"""Why a message was not acknowledged when it was delivered for the last time."""

_DOUBLINGS_MAX: Final = DELAY_MS_MAX.bit_length()


def pause_ms(options: GroupOptions, attempts: int) -> int:
    """How long to wait after this many attempts, at least one; 0 = not at all."""
    first_ms = options.backoff_ms
    longest_ms = options.backoff_max_ms or max(BACKOFF_MS_MAX, first_ms)
    return min(longest_ms, first_ms << min(attempts - 1, _DOUBLINGS_MAX))


def problem(options: GroupOptions, lease: bool) -> str | None:
    """Why these options make no sense, as far as that is known without other topics. `lease`: the
    group has acknowledgements."""
    first_ms, longest_ms = options.backoff_ms, options.backoff_max_ms
    if not 0 <= options.attempts_max <= ATTEMPTS_MAX:
        return f"attempts: at most {ATTEMPTS_MAX}"
    if not (0 <= first_ms <= DELAY_MS_MAX and 0 <= longest_ms <= DELAY_MS_MAX):
        return f"backoff: a pause is at most ten years, {DELAY_MS_MAX} ms"
    if longest_ms and not first_ms:
        return "backoff: a longest pause needs a first one"
    if longest_ms and longest_ms < first_ms:
        return f"backoff: the longest pause, {longest_ms} ms, is shorter than the first, {first_ms}"
    if options.dead_letter and not options.attempts_max:
        return "dead letters: without a limit of attempts no message is ever dead"
    if options.on_loss not in LOSSES:
        return f"lost leases: one of {', '.join(LOSSES)}"
    if not 0 <= options.rate_per_s <= RATE_MAX:
        return f"rate: at most {RATE_MAX} messages a second"
    if options.push is not None and not options.push.endpoint:
        return "push: no endpoint is named"
    if lease:
        return None
    leasing = (
        (options.push is not None, "push"),
        (options.attempts_kept, "kept attempts"),
        (options.attempts_max, "attempts"),
        (options.backoff_ms, "backoff"),
        (options.on_loss != "keep", "lost leases"),
        (options.one_batch, "one batch"),
    )
    named = [name for value, name in leasing if value]
    return f"{', '.join(named)}: a group without acknowledgements has none" if named else None


def dead_letter_problem(
    topics: Mapping[str, Topic], name: str, dead_letter: str
) -> BrokerError | None:
    """Why the dead messages of a group of the topic `name` may not go to that topic."""
    target = topics.get(dead_letter.lower())
    if target is None and dead_letter.lower() != name.lower():
        return dead_letter_unknown(dead_letter)
    if target is not None and target.options.calls:
        text = f"dead letters: {target.name} is a topic of services"
        return BrokerError(Refusal.ILLEGAL, text)
    if target is not None and target.options.compact:
        text = f"dead letters: {target.name} is compact, and would keep one of each key"
        return BrokerError(Refusal.ILLEGAL, text)
    if not _lead_to(topics, dead_letter.lower(), name.lower()):
        return None
    text = f"dead letters of {name} would return to it through {dead_letter}"
    return BrokerError(Refusal.ILLEGAL, text)


def sends_letters(topics: Mapping[str, Topic], name: str) -> str | None:
    """Which group sends its dead messages to the topic of that name."""
    for topic in topics.values():
        for group in topic.groups.values():
            if group.options.dead_letter.lower() == name.lower():
                text = f"{name} has the dead letters of group {group.name} of {topic.name}"
                return f"{text}, and would keep one of each key"
    return None


def _lead_to(topics: Mapping[str, Topic], start: str, goal: str) -> bool:
    """Dead letters of the one topic get to the other; names in lower case."""
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        if here == goal:
            return True
        topic = topics.get(here)
        groups = topic.groups.values() if topic is not None else ()
        targets = {group.options.dead_letter.lower() for group in groups} - seen
        seen |= targets
        waiting += targets
    return False


def may_retry(group: Group, backlog: Backlog, at_once: bool) -> bool:
    """Whether `retry` may have something to say of any message; mostly it has not."""
    options, leased = group.options, backlog.leased
    pauses = options.backoff_ms and not at_once
    return bool(options.attempts_max or pauses or leased.limits or leased.unreported)


def retry(
    runs: RunQueue, group: Group, index: int, offset: int, reason: str, at_once: bool = False
) -> bool:
    """Its lease ends, and the group says what becomes of the message: it is dead, has to wait, or,
    if no client has seen it, is where it was. False if it may be delivered again now; it is leased
    still. `at_once`: there is no pause."""
    backlog, options = group.backlogs[index], group.options
    attempts = backlog.attempts.get(offset, 0)
    if not attempts:
        return False  # no client has had it: it was to be redriven
    leased = backlog.leased
    if leased.unreported and offset in leased.unreported:
        backlog.undo_lease(offset)
        return True
    limit = leased.limits.get(offset) or options.attempts_max
    if limit and attempts >= limit:
        if offset in leased.holders:
            _end(runs, group, index, offset, reason)
        else:  # delivered before a restart: whether it has a limit of its own is not known
            leased.set(offset, runs.tick.now_ms + SETTLE_MS)
            runs.schedule(group, index)
            look = partial(_looked, runs, group, backlog, index, offset, reason)
            group.topic.partitions[index].log.get(offset, look)
        return True
    if options.backoff_ms and not at_once:
        backlog.delay(offset, runs.tick.now_ms + pause_ms(options, attempts))
        return True
    return False


def expire(runs: RunQueue, group: Group, index: int, offsets: list[int]) -> None:
    """The time of these leases is over."""
    backlog = group.backlogs[index]
    # What is done about one may settle another.
    back = [o for o in offsets if o in backlog.leased and not retry(runs, group, index, o, EXPIRED)]
    backlog.tally.lost += len(back)
    if group.options.on_loss == FRONT:
        backlog.keep_order()
        for offset in back:
            if offset in backlog.leased:
                backlog.put_lost(offset)
    else:
        for offset in back:
            if offset in backlog.leased:
                backlog.put_back(offset)


def lose(group: Group, now_ms: int) -> None:
    """The group was read from storage, which does not know who holds its leases. If it wants them
    back when their holders are gone, they end now."""
    if group.options.on_loss == FRONT:
        for backlog in group.backlogs:
            backlog.keep_order()
            leased = backlog.leased
            for offset in [offset for offset in leased if offset not in leased.holders]:
                leased.set(offset, max(1, now_ms))


def _end(runs: RunQueue, group: Group, index: int, offset: int, reason: str) -> None:
    """It is leased, and dead."""
    if group.options.dead_letter:
        group.backlogs[index].leased.settle_later(offset)
        runs.dead(group, index, offset, reason)
    else:
        group.backlogs[index].give_up(offset)


def _looked(
    runs: RunQueue,
    group: Group,
    backlog: Backlog,
    index: int,
    offset: int,
    reason: str,
    found: tuple[Chunk, int] | BrokerError,
) -> None:
    """A message whose lease has ended was looked at: has it a limit of its own?"""
    topic, leased = group.topic, backlog.leased
    gone = topic.partitions[index].removed or group.gone
    known = offset in leased.settling or offset in leased.holders or offset not in leased
    if gone or known or group.backlogs[index] is not backlog:
        return
    if isinstance(found, BrokerError):
        if found.refusal is Refusal.OFFSET_UNKNOWN:  # the log has forgotten it
            _end(runs, group, index, offset, reason)
        # Else it stays leased a little longer, and is looked at again.
    elif (own_max := _own_max(*found)) > backlog.attempts[offset]:
        # It has more attempts: now that this is known, its lease ends as any other.
        leased.limits[offset], leased.holders[offset] = own_max, b""
        leased.set(offset, runs.tick.now_ms)
        runs.schedule(group, index)
    else:
        _end(runs, group, index, offset, reason)
    runs.changed(group, topic.partitions[index])


def _own_max(chunk: Chunk, at: int) -> int:
    return 0 if chunk.attempts is None else chunk.attempts[at]


def tried(backlog: Backlog, chunk: Chunk, at: int) -> bool:
    """Whether a message has been delivered as often as it says itself that it may be."""
    return 0 < _own_max(chunk, at) <= backlog.attempts.get(chunk.first + at, 0)


def bury(runs: RunQueue, group: Group, index: int, offset: int) -> None:
    """It is its turn, and it has been delivered as often as it may."""
    backlog = group.backlogs[index]
    if group.options.dead_letter:
        backlog.hold(offset, runs.tick.now_ms + SETTLE_MS)
        runs.dead(group, index, offset, TRIED)
    else:
        backlog.give_up(offset)


def keep_order(group: Group, pull: Pull) -> None:
    """What the pull is handed may come back to the front, with its session or by time."""
    if FRONT in (pull.wants.on_loss, group.options.on_loss):
        for backlog in group.backlogs:
            if backlog.returns is None:
                backlog.keep_order()


def hold(group: Group, pull: Pull) -> None:
    """The pull was handed leases: if they are wanted back when its session goes, that knows it."""
    if (pull.wants.on_loss or group.options.on_loss) == FRONT:
        session = pull.session
        session.held = session.held or {}
        session.held[group] = None


def give_back(runs: RunQueue, session: Session, group: Group, most: int) -> int:
    """The session is gone: at most that many of the messages of the group that it holds go back in
    front, in the order in which they were there. How many; 0 = it holds none."""
    count = 0
    if group.gone:
        return count
    for partition, backlog in zip(group.topic.partitions, group.backlogs, strict=True):
        if count >= most or partition.removed or partition.fenced is not None:
            continue
        for offset in backlog.leased.held_by(session.id, most - count):
            lose_one(runs, group, partition.index, offset)
            count += 1
            runs.tick.change(partition, group)
    if count:
        runs.activate(group)
    return count


def lose_one(runs: RunQueue, group: Group, index: int, offset: int) -> None:
    """Its holder is gone, who has seen it or not: it goes back in front, in its order."""
    if not retry(runs, group, index, offset, LOST, at_once=True):
        group.backlogs[index].put_lost(offset)
