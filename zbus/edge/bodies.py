"""Bodies that the broker itself reads: batches, JSON documents and forms.

Such a body has to be understood, so its content coding is undone and its character set is checked
before a dialect sees it. Where a body is a message's own, it is kept as it was sent, and nothing
here is called.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Protocol

from zbus.edge.connection import Connection, Plan
from zbus.edge.forms import check_charset
from zbus.edge.guard import Answer
from zbus.edge.status import retry_after
from zbus.wire.bodies.content_coding import UnknownCoding, coding_of, decode_in_steps
from zbus.wire.errors import WireError
from zbus.wire.heads.head import NO_LENGTH


def media_type_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Type and subtype of a body, in lower case."""
    return fields.get(b"content-type", b"").partition(b";")[0].strip().lower()


def decode_body(
    fields: Mapping[bytes, bytes], body: bytes, peer: Connection, bytes_max: int | None = None
) -> Generator[int, None, bytes]:
    """The plain body of a request with these fields, in steps; each tells its work. An empty body
    is empty, whatever its coding. Raises WireError: 400, 413, 415 or 503."""
    coding = coding_of(fields.get(b"content-encoding", b"")) if body else ""
    if not coding:
        return body
    limits, budget = peer.reader.bounds
    most = limits.body_bytes_max if bytes_max is None else min(limits.body_bytes_max, bytes_max)
    return (yield from decode_in_steps(coding, body, most, budget))


NO_LENGTH_ANSWER = Answer(411, f"411: {NO_LENGTH}")
"""To a request that needs a body and whose head is open-ended: it would be taken for empty."""


def refusal_of(error: WireError) -> Answer:
    """How a body that cannot be understood is refused. The connection goes on."""
    lines = b""
    if isinstance(error, UnknownCoding):
        lines = error.line
    elif error.status == 503:
        lines = retry_after(1)
    return Answer(error.status, f"{error.status}: {error.text}", lines)


class Refusing(Protocol):
    """A request as its dialect understands it (`zbus.edge.parsed_request.Asked`)."""

    def refuse(self, answer: Answer) -> Plan: ...


class ReadBody:
    """Plan that runs another one with a plain body, or refuses."""

    __slots__ = ("_asked", "_bytes_max", "_check", "_fields", "_plan")

    def __init__(
        self,
        asked: Refusing,
        plan: Plan,
        fields: Mapping[bytes, bytes],
        bytes_max: int | None,
        check: bool,
    ) -> None:
        self._asked = asked
        self._plan = plan
        self._fields = fields
        self._bytes_max = bytes_max
        self._check = check  # its character set

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        peer.begin(self._steps(peer, id, body))

    def _steps(self, peer: Connection, id: bytes, body: bytes) -> Iterator[int]:
        plan = self._plan
        try:
            if body and self._check:
                check_charset(self._fields.get(b"content-type", b""))
            body = yield from decode_body(self._fields, body, peer, self._bytes_max)
        except WireError as error:
            plan, body = self._asked.refuse(refusal_of(error)), b""
        plan.run(peer, id, body)


def reading_body(
    asked: Refusing,
    plan: Plan,
    fields: Mapping[bytes, bytes],
    bytes_max: int | None = None,
    *,
    text: bool = True,
) -> Plan:
    """The plan for a request whose body the broker reads: `plan` itself if nothing has to be done
    before. Decoded, a body has `bytes_max` bytes at most, and never more than any other body. What
    is no `text` may be in any character set."""
    check = text and b"charset" in fields.get(b"content-type", b"").lower()
    if check or b"content-encoding" in fields:
        return ReadBody(asked, plan, fields, bytes_max, check)
    return plan
