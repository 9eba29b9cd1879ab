"""What the parts of an endpoint share: options, the database, the time of the step, and what comes
of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from zbus.semq.endpoint.events import Close, Effect, Frame, Transmit
from zbus.semq.protocol.words import INTERVAL_MS, back_off_ms, read_node

_JITTER: Final = 0.2


def _node(instance: object, attribute: object, value: str) -> None:
    read_node(value)


@attrs.frozen(kw_only=True)
class EndpointOptions:
    """`node` is `<type>:<id>`; `stores` is into how many its messages are divided,
    by destination; `listen` is where other endpoints reach it, host:port each, and `fingerprint`
    that of its certificate there."""

    node: str = attrs.field(validator=_node)
    semq_id: int = 1
    stores: int = 1
    listen: tuple[str, ...] = ()
    fingerprint: str = ""
    direct: bool = True  # call others, if they can be reached
    interval_ms: int = INTERVAL_MS  # until it asks; the platform's, if that says one
    window: int = 100  # messages on one link that are not answered yet
    deliveries: int = 100  # messages that the platform sends before they are confirmed
    outbox_bytes_max: int = 1 << 30
    body_bytes_max: int = 16 << 20  # of what others send directly
    attempts_max: int = 0  # after this many a message is dead; 0: never
    alarm_ms: int = 3_600_000  # a message without progress for this long is reported


class Context:
    def __init__(
        self, database: sqlite3.Connection, options: EndpointOptions, random: Random, epoch: str
    ) -> None:
        self.database = database
        self.execute = database.execute
        self.options = options
        self.random = random
        self.epoch = epoch
        self.interval_ms = options.interval_ms
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.undo: list[Callable[[], object]] = []  # what is in memory, if the step fails
        self._closes: list[Effect] = []  # of links that a failed step has let go of

    def begin(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.effects, self.undo = self._closes, []
        self._closes = []

    def give_up(self) -> None:
        """The step has failed: nothing of it happened. But a link that was let go of is not taken
        up again, so the next step ends its connection."""
        for undo in reversed(self.undo):
            undo()
        self._closes = [effect for effect in self.effects if isinstance(effect, Close)]
        self.effects, self.undo = [], []

    def insert(self, table: str, values: dict[str, object], more: str = "") -> sqlite3.Cursor:
        """A row, with these values by column."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        query = f"INSERT INTO {table} ({names}) VALUES ({marks}) {more}"
        return self.execute(query, tuple(values.values()))

    def send_frame(
        self, link: int, fields: dict[str, str], body: bytes = b"", status: int = 0
    ) -> None:
        self.effects.append(Transmit(link, Frame(fields, body, status)))

    def backoff_ms(self, rounds: int) -> int:
        """Until the next question, after this many without an answer (section 8)."""
        wait_ms = back_off_ms(self.interval_ms, rounds)
        return int(wait_ms * (1 + _JITTER * (2 * self.random.random() - 1))) if rounds else wait_ms
