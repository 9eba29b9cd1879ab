"""From a connection to an owned shard: find the stream, watch its owner, claim it when it is free.

Every broker of a cluster publishes a heartbeat, a plain message that is not stored. An owner that
is silent for `GONE_MS` is gone, for those that hear themselves. Heartbeats only decide when a claim
is tried: the stream decides who owns the shard (`zbus.storage.jetstream.ownership`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.settings import Shard, find_problems, make_settings
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError

BEAT_MS: Final = 500
GONE_MS: Final = 2_000
LOOK_MS: Final = 100
_ECHO_MS: Final = 1_000
"""Who does not hear itself within this time does not suspect others."""


class Presence:
    """Who is there: heartbeats of all brokers of a cluster, by their random ids."""

    def __init__(self) -> None:
        self._heard_ms: dict[str, int] = {}
        self.confirmed = 0
        """Sequence up to which an owner said that all is confirmed."""

    def hear(self, owner: Owner, now_ms: int) -> None:
        self.confirmed = max(self.confirmed, owner.sequence)
        if owner.left:
            self._heard_ms[owner.random] = now_ms - GONE_MS
        else:
            self._heard_ms[owner.random] = now_ms

    def silent_ms(self, random: str, now_ms: int) -> int:
        """For how long nothing was heard; one that was never heard begins to be watched now."""
        return now_ms - self._heard_ms.setdefault(random, now_ms)

    def forget(self, now_ms: int) -> None:
        """Those that are gone for long."""
        for random, heard_ms in list(self._heard_ms.items()):
            if now_ms - heard_ms > 60 * GONE_MS:
                del self._heard_ms[random]


class Standby:
    """See above. `done` gets the claim, or what stands in the way for good."""

    def __init__(
        self,
        client: NatsClient,
        stream: NatsStream,
        shard: Shard,
        node: str,
        address: str,
        timeout_ms: int,
        done: Callable[[Claimed | JournalError], None],
        copying: str = "",
    ) -> None:
        self._copying = copying
        self._client = client
        self._stream = stream
        self._shard = shard
        self.subjects = Subjects(shard.cluster)
        self._me = self._owned = Owner(0, node, address, os.urandom(8).hex())
        self._timeout_ms = timeout_ms
        self._done = done
        self._presence = Presence()
        self._claim: Claim | None = None
        self._begun_ms = stream.now_ms()
        self.config: dict[str, Any] = {}
        """Settings of the stream, once it was found."""
        self.owner: Owner | None = None
        """Who owns the shard, as far as this one knows."""
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why nothing is known of an owner."""
        return self._problem or ("" if self._claim is None else self._claim.problem)

    @staticmethod
    def stream_name(shard: Shard) -> str:
        return Subjects(shard.cluster).stream

    def leave(self) -> None:
        """The shard was given up: whoever waits for it need not wait longer."""
        left = msgspec.structs.replace(self._owned, left=True)
        self._client.publish(self.subjects.heartbeat(self._me.random), msgspec.json.encode(left))

    def confirm(self, sequence: int) -> None:
        """Let the others know how much is confirmed, so that none of them owns less."""
        self._beat(msgspec.structs.replace(self._owned, sequence=sequence))

    def start(self) -> None:
        self._client.subscribe(self.subjects.heartbeat("*"), self._heard)
        self._beat(self._me)
        self._find_stream()

    def _beat(self, owner: Owner) -> None:
        body = msgspec.json.encode(owner)
        self._client.beat(self.subjects.heartbeat(self._me.random), body, BEAT_MS)

    # -- the stream ---------------------------------------------------------------------------

    def _find_stream(self) -> None:
        self._stream.ask(f"STREAM.INFO.{self.subjects.stream}", {}, self._found_stream)

    def _found_stream(self, answer: Document | Unreachable) -> None:
        if isinstance(answer, Document) and answer.error is not None and answer.error.code == 404:
            question = make_settings(self._shard, self.subjects)
            self._stream.ask(f"STREAM.CREATE.{self.subjects.stream}", question, self._made_stream)
        else:
            self._made_stream(answer)

    def _made_stream(self, answer: Document | Unreachable) -> None:
        if isinstance(answer, Document) and answer.error is None:
            self.config = answer.config
            problems = find_problems(answer.config, self._shard, self.subjects)
            if problems:
                text = f"the stream {self.subjects.stream} does not fit: {'; '.join(problems)}"
                self._done(JournalError(text))
            else:
                self._problem = ""
                self._look()
            return
        if isinstance(answer, Unreachable):
            self._problem = answer.text
        elif answer.error is not None:
            self._problem = answer.error.description
        if self._stream.now_ms() - self._begun_ms >= self._timeout_ms:
            text = f"no stream {self.subjects.stream} within {self._timeout_ms} ms: {self.problem}"
            self._done(JournalError(text))
        else:
            self._stream.later(LOOK_MS, self._find_stream)

    # -- its owner ----------------------------------------------------------------------------

    def _heard(self, body: bytes) -> None:
        try:
            owner = msgspec.json.decode(body, type=Owner)
        except NOT_JSON:
            return
        self._presence.hear(owner, self._stream.now_ms())

    def _look(self) -> None:
        """Try to claim the shard when it looks free."""
        now_ms = self._stream.now_ms()
        self._presence.forget(now_ms)
        if self.owner is None or self._is_free(self.owner):
            self._claim = Claim(
                self._stream,
                self.subjects,
                self._me.node,
                self._me.address,
                self._is_free,
                self._claimed,
                self._copying,
                lambda: self._presence.confirmed,
            )
            self._claim.start()
        else:
            self._stream.later(LOOK_MS, self._look)

    def _is_free(self, owner: Owner | None) -> bool:
        if owner is None or owner.left:
            return True
        now_ms = self._stream.now_ms()
        silent_ms = self._presence.silent_ms(owner.random, now_ms)
        hears_itself = self._presence.silent_ms(self._me.random, now_ms) < _ECHO_MS
        return silent_ms >= GONE_MS and hears_itself

    def _claimed(self, answer: Claimed | Owner | JournalError | None) -> None:
        if isinstance(answer, JournalError):
            self._done(answer)
        elif isinstance(answer, Claimed):
            self._owned = answer.owner
            self._beat(answer.owner)
            self._done(answer)
        else:
            self.owner = answer
            self._stream.later(LOOK_MS, self._look)
