"""A stream of JetStream over NATS: questions as JSON documents, and what their answers mean.

The documents are those of the NATS documentation, JetStream API reference; atomic batches: ADR-50,
direct gets of several messages: ADR-31 of nats-architecture-and-design.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.jetstream.client import ASK_S, REQUEST_S, NatsClient
from zbus.storage.jetstream.stream import (
    Got,
    Messages,
    Outcome,
    Outgoing,
    Published,
    Stored,
    StreamState,
    SubjectNames,
    Unreachable,
)
from zbus.storage.jetstream.wire import (
    Delivered,
    decode_headers,
    decode_number,
    encode_publish,
)

REPLICA_NS: Final = 2_000_000_000
"""A leader counts if a current replica was heard within this time: one that is cut off goes on
answering."""

_NO_STREAM: Final = 10059
_WRONG_SEQUENCE: Final = frozenset({10071, 10164})
_NO_ROOM: Final = frozenset({10023, 10047, 10077, 10110})
_REFUSED: Final = frozenset({10054, 10056})


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Replica(msgspec.Struct):
    name: str = ""
    current: bool = False
    offline: bool = False
    active: int = 0


class _Cluster(msgspec.Struct):
    leader: str = ""
    replicas: list[_Replica] = []


class _State(msgspec.Struct):
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class _Message(msgspec.Struct):
    subject: str = ""
    seq: int = 0
    hdrs: str = ""
    data: str = ""


class Document(msgspec.Struct):
    """An answer of the JetStream API: what of it is there."""

    error: _Error | None = None
    config: dict[str, Any] = {}
    state: _State | None = None
    cluster: _Cluster | None = None
    message: _Message | None = None
    seq: int = 0
    success: bool = False
    total: int = 0


class NatsStream:
    """`zbus.storage.jetstream.stream.Stream`. Raises nothing; what does not work is answered."""

    def __init__(self, client: NatsClient, name: str) -> None:
        self.client = client
        self._name = name

    @property
    def message_bytes_max(self) -> int:
        return self.client.message_bytes_max

    def publish(
        self, messages: Sequence[Outgoing], last: int, done: Callable[[Published], None]
    ) -> None:
        batch, pieces = os.urandom(12).hex(), []
        for number, message in enumerate(messages, 1):
            headers = dict(message.headers)
            if number == 1:
                headers["Nats-Expected-Last-Sequence"] = str(last)
            if len(messages) > 1:
                headers["Nats-Batch-Id"] = batch
                headers["Nats-Batch-Sequence"] = str(number)
            if number < len(messages):
                pieces += encode_publish(message.subject, "", message.body, headers)
        if len(messages) > 1:
            headers["Nats-Batch-Commit"] = "1"

        def take(answer: list[Delivered] | str) -> None:
            done(_published(_document(answer)))

        self.client.request(message.subject, message.body, take, headers=headers, before=pieces)

    def state(self, done: Callable[[StreamState | Unreachable], None]) -> None:
        def take(answer: Document | Unreachable) -> None:
            done(_state_of(answer))

        self.ask(f"STREAM.INFO.{self._name}", {}, take, limit_s=ASK_S)

    def get(self, which: int | str, done: Callable[[Got], None]) -> None:
        question = {"seq": which} if isinstance(which, int) else {"last_by_subj": which}
        self.ask(f"STREAM.MSG.GET.{self._name}", question, lambda answer: done(_one(answer)))

    def newest(self, subjects: Sequence[str], done: Callable[[Got], None]) -> None:
        self._direct({"multi_last": list(subjects), "batch": len(subjects)}, done)

    def read(
        self, subject: str, sequence: int, count: int, size: int, done: Callable[[Got], None]
    ) -> None:
        question = {"seq": max(1, sequence), "next_by_subj": subject, "batch": count}
        self._direct({**question, "max_bytes": size}, done)

    def subjects(self, pattern: str, done: Callable[[SubjectNames | Unreachable], None]) -> None:
        found: list[str] = []
        known: list[int] = []

        def ask() -> None:
            question = {"subjects_filter": pattern, "offset": len(found)}
            self.ask(f"STREAM.INFO.{self._name}", question, take)

        def take(answer: Document | Unreachable) -> None:
            if isinstance(answer, Unreachable) or answer.error or answer.state is None:
                done(_unreachable(answer))
                return
            page = list(answer.state.subjects or ())
            found.extend(page)
            known.append(answer.state.last_seq)
            if page and len(found) < answer.total:
                ask()
            else:
                done(SubjectNames(found, min(known)))

        ask()

    def purge(self, subject: str, before: int, done: Callable[[bool], None]) -> None:
        def take(answer: Document | Unreachable) -> None:
            done(isinstance(answer, Document) and answer.success)

        self.ask(f"STREAM.PURGE.{self._name}", {"filter": subject, "seq": before}, take)

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self.client.later(ms, call)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def close(self) -> None:
        self.client.close()

    def ask(
        self,
        command: str,
        question: Mapping[str, object],
        done: Callable[[Document | Unreachable], None],
        *,
        limit_s: float = REQUEST_S,
    ) -> None:
        """A question to the JetStream API, as `STREAM.INFO.<name>`."""

        def take(answer: list[Delivered] | str) -> None:
            done(_document(answer))

        body = msgspec.json.encode(question) if question else b""
        self.client.request(f"$JS.API.{command}", body, take, limit_s=limit_s)

    def _direct(self, question: Mapping[str, object], done: Callable[[Got], None]) -> None:
        def take(answer: list[Delivered] | str) -> None:
            done(_messages(answer))

        body = msgspec.json.encode(question)
        self.client.request(f"$JS.API.DIRECT.GET.{self._name}", body, take, several=True)


def _document(answer: list[Delivered] | str) -> Document | Unreachable:
    if isinstance(answer, str):
        return Unreachable(answer)
    (message,) = answer
    if message.status:
        return Unreachable(f"status {message.status} of the server: no leader, or no JetStream")
    try:
        return msgspec.json.decode(message.body, type=Document)
    except NOT_JSON as error:
        return Unreachable(f"the server answered something else: {error}")


def _unreachable(answer: Document | Unreachable) -> Unreachable:
    if isinstance(answer, Unreachable):
        return answer
    if answer.error is None:
        return Unreachable("an answer without content")
    return Unreachable(answer.error.description, answer.error.err_code == _NO_STREAM)


def _state_of(answer: Document | Unreachable) -> StreamState | Unreachable:
    if isinstance(answer, Unreachable) or answer.error or answer.state is None:
        return _unreachable(answer)
    state = answer.state
    cluster, replicas = answer.cluster, answer.config.get("num_replicas", 1)
    if replicas > 1:
        others = cluster.replicas if cluster is not None else []
        fresh = [one for one in others if one.current and 0 < one.active < REPLICA_NS]
        if cluster is None or not cluster.leader or len(fresh) < replicas // 2:
            return Unreachable("the stream's leader hears of no majority of the replicas")
    limit = answer.config.get("max_bytes", -1)
    return StreamState(state.last_seq, state.bytes, max(0, limit), state.first_seq)


def _one(answer: Document | Unreachable) -> Got:
    if isinstance(answer, Document) and answer.error and answer.error.code == 404:
        return Messages([])
    if isinstance(answer, Unreachable) or answer.error or answer.message is None:
        return _unreachable(answer)
    found = answer.message
    try:
        body, block = b64decode(found.data), b64decode(found.hdrs)
        headers = decode_headers(block)[1] if block else {}
    except ValueError as error:
        return Unreachable(str(error))
    return Messages([Stored(found.seq, found.subject, headers, body)])


def _messages(answer: list[Delivered] | str) -> Got:
    if isinstance(answer, str):
        return Unreachable(answer)
    *found, end = answer
    if end.status == 404 and not found:
        return Messages([])
    if end.status != 204:
        return Unreachable(f"status {end.status} of a direct get")
    messages = []
    for one in found:
        try:
            sequence, subject = one.headers["Nats-Sequence"], one.headers["Nats-Subject"]
            messages.append(Stored(decode_number(sequence), subject, one.headers, one.body))
        except (KeyError, ValueError):
            return Unreachable("a message without its place")
    try:
        return Messages(messages, decode_number(end.headers.get("Nats-UpTo-Sequence", "0")))
    except ValueError as error:
        return Unreachable(str(error))


def _published(answer: Document | Unreachable) -> Published:
    if isinstance(answer, Unreachable):
        return Published(0, Outcome.UNKNOWN, answer.text)
    error = answer.error
    if error is None:
        return Published(answer.seq)
    if error.err_code in _WRONG_SEQUENCE:
        return Published(0, Outcome.WRONG_SEQUENCE, error.description)
    if error.err_code in _NO_ROOM:
        return Published(0, Outcome.NO_ROOM, error.description)
    if error.err_code in _REFUSED:
        return Published(0, Outcome.REFUSED, error.description)
    return Published(0, Outcome.UNKNOWN, error.description)
