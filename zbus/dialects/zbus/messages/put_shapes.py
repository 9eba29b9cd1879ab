"""`produce` by shape: the values of a head become a message, and nothing is planned anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from zbus.core.api import DELAY_MS_MAX
from zbus.dialects.zbus.messages.put_tickets import NOT_RARE, PutPlan, Rare, due_after
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.request.slots import bounds_of, own_slots, slots_of
from zbus.dialects.zbus.request.stored import (
    ORIGIN_URL_BYTES_MAX,
    RequestLines,
    is_plain_key,
    origin_lines,
    without_secrets,
)
from zbus.edge.connection import Connection
from zbus.edge.shape_plans import Filled, Found, OfShape
from zbus.wire.heads.shapes import BLOCK, TARGET, Slots
from zbus.wire.target import decode_percent, encode_header_value

_LABELS = (b"id", b"tag", b"key", b"body", b"idempotency-key")
_NUMBERS = (
    b"partition",
    b"delay",
    b"deliver_at",
    b"ttl",
    b"max_attempts",
    b"expected_offset",
    b"timeout",
)
"""In the order of `Rare`; and one that means something to calls alone."""


def slots_of_put(params: Params, request_lines: RequestLines) -> Slots | None:
    """What may differ in a head that puts: the message, and lines of the application's own."""
    target = params.head.target
    if without_secrets(target) != target:
        return None
    names = request_lines.own_names(params.head.fields)
    urgent = (b"priority",) if b"priority" in names else ()
    found = slots_of(params, (*_LABELS, *_NUMBERS, *urgent))
    own = own_slots(params, names)
    block = request_lines.of_batch() if own else b""
    return Slots({**own, **found.lines}, found.query, bool(found.query), block)


class PutShape(OfShape):
    """The plan of a shape."""

    plan: PutPlan

    __slots__ = (
        "_budget_bytes",
        "_constants",
        "_decodes",
        "_delay_at",
        "_is_plain",
        "_lines",
        "_numbers",
        "_pick",
        "_pick_lines",
        "_rare",
        "_short_bytes",
        "_target_at",
        "_unshaped",
    )

    def __init__(self, plan: PutPlan, names: Sequence[bytes], unshaped: Filled) -> None:
        self.plan = plan
        self._unshaped = unshaped
        # What a head does not say stands behind what it says.
        self._constants = plan.id, plan.tag, plan.key, plan.body, plan.once
        places = [*names, *(b"" if label in names else label for label in _LABELS)]
        self._pick: Callable[[Any], Any] = itemgetter(*map(places.index, _LABELS))
        self._decodes = b"body" in names
        self._rare = plan.rare
        self._numbers = [
            (names.index(name), at, *bounds_of(plan.params, name))
            for at, name in enumerate(_NUMBERS)
            if name in names
        ]
        alone = Rare(delay_ms=plan.rare.delay_ms) if plan.rare is not None else None
        delayed = len(self._numbers) == 1 and b"delay" in names and plan.rare == alone
        self._delay_at = names.index(b"delay") if delayed else -1
        head, request_lines = plan.params.head, plan.request_lines
        own = [name for name in request_lines.own_names(head.fields) if name in names]
        self._target_at = names.index(TARGET) if TARGET in names else -1
        if BLOCK in names:  # as they are stored
            picked, own_lines = [names.index(BLOCK)], b"%b"
        else:
            picked, own_lines = [places.index(name) for name in own], request_lines.format(own)
        origin = origin_lines(head, ORIGIN_URL_BYTES_MAX)
        escaped, target = origin.replace(b"%", b"%%"), self._target_at >= 0
        if target:
            picked.append(self._target_at)
            origin = escaped = b"origin_method: %b\r\norigin_url: %%b\r\n" % head.method
        self._lines = own_lines + escaped if picked else request_lines.of_batch() + origin
        self._pick_lines: Callable[[Any], Any] | None = itemgetter(*picked) if picked else None
        labels_bytes = len(plan.tag) + len(plan.key) + len(plan.once)
        origin_bytes = len(origin % b"" if self._target_at >= 0 else origin)
        own_bytes = len(request_lines.of_batch())
        self._budget_bytes = request_lines.left_bytes + own_bytes + labels_bytes + origin_bytes
        # All that differs is in the head, so a short one cannot be over.
        short_bytes = self._budget_bytes - len(self._lines)
        self._short_bytes = min(short_bytes, ORIGIN_URL_BYTES_MAX) if target else short_bytes
        self._is_plain = not (plan.once or plan.idempotent or plan.tag or plan.key)

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        plan = self.plan
        topic = plan.broker.topics.get(plan.topic_key)
        if topic is None or topic.has_put_hooks or not topic.minimal_headers:
            self._unshaped.run(peer, found, body)
            return
        values = found.groups() + self._constants
        id, tag, key, text, once = self._pick(values)
        if plan.idempotent:
            if not is_plain_key(id):
                self._unshaped.run(peer, found, body)
                return
            once = encode_header_value(id)
        elif once:
            once = once.strip(b'"')
        rare, due_ms = self._rare, 0
        if self._numbers:
            if self._delay_at >= 0:  # that is all that it has, mostly
                rare, delay_ms = None, int(values[self._delay_at])
                if delay_ms > DELAY_MS_MAX:
                    self._unshaped.run(peer, found, body)
                    return
                due_ms = due_after(plan.broker, delay_ms)
            elif (rare := self._read_numbers(values)) is None:
                self._unshaped.run(peer, found, body)
                return
        pick = self._pick_lines
        lines = self._lines if pick is None else self._lines % pick(values)
        if found.end() - found.start() > self._short_bytes:
            target = values[self._target_at] if self._target_at >= 0 else b""
            used_bytes = len(lines) - len(target) + len(tag) + len(key) + len(once)
            if used_bytes > self._budget_bytes or len(target) > ORIGIN_URL_BYTES_MAX:
                self._unshaped.run(peer, found, body)
                return
        if pick is None:
            lines = plan.with_sender(peer, lines, True)
        elif (sender := peer.lines) is not None:
            lines += sender[1]
        else:
            lines += plan.sender_lines(peer, True)
        if self._decodes and (b"%" in text or b"+" in text):
            text = decode_percent(text.replace(b"+", b" "))
        body = body or text
        if rare is None:
            partitions = topic.partitions
            partition = partitions[0] if len(partitions) == 1 else topic.partition_for(key)
            if self._is_plain and not due_ms:
                plan.put_row(partition, peer, (id, lines, body))
            else:
                plan.put_row(partition, peer, (id, lines, body, tag, key, due_ms, 0, once, 0))
        else:
            plan.put(topic, peer, id, lines, body, tag, key, once, rare)

    def _read_numbers(self, values: Sequence[bytes]) -> Rare | None:
        """None = one is out of its bounds."""
        fields = [*(self._rare or NOT_RARE), 0]
        for place, at, least, most in self._numbers:
            number = int(values[place])  # 1 to 15 digits
            if not least <= number <= most:
                return None
            fields[at] = number
        return Rare._make(fields[:-1])
