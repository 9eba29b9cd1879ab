"""What the parts of an endpoint share: the database, the time of the step, and what comes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from random import Random
from typing import Final

from zbus.semq.endpoint.events import Close, Effect, Frame, Transmit
from zbus.semq.endpoint.options import EndpointOptions
from zbus.semq.protocol.words import back_off_ms

_JITTER: Final = 0.2


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
