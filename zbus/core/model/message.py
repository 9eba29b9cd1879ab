"""A message as every dialect sees it: bytes in named columns, never interpreted by the broker.

`headers` is a block of canonical header lines, each `name: value\\r\\n` with a lower-case name, so
that a dialect can hand it on with one copy. Dialects that need single headers split it themselves.

Tests: `tests/core/model/test_chunk.py`.
"""

from __future__ import annotations


class Message:
    """One message. Slotted and mutable only for speed; it never changes after it was put."""

    __slots__ = (
        "attempts_max",
        "body",
        "due_ms",
        "expires_ms",
        "headers",
        "id",
        "key",
        "once",
        "produced_ms",
        "tag",
    )

    def __init__(
        self,
        id: bytes,
        tag: bytes = b"",
        key: bytes = b"",
        headers: bytes = b"",
        body: bytes = b"",
        produced_ms: int = 0,
        due_ms: int = 0,
        expires_ms: int = 0,
        once: bytes = b"",
        attempts_max: int = 0,
    ) -> None:
        self.id = id  # the producer's, or one made by the broker; not necessarily unique
        self.tag = tag  # dot-separated words that filters match; empty = untagged
        self.key = key  # same key, same partition; empty = none
        self.headers = headers  # canonical header lines
        self.body = body
        self.produced_ms = produced_ms  # epoch; the tick's time, shared by its batch
        self.due_ms = due_ms  # epoch; not delivered before it; 0 = at once
        self.expires_ms = expires_ms  # epoch; not delivered from it on; 0 = never
        self.once = once  # the idempotency key that it was put with; empty = none
        self.attempts_max = attempts_max  # delivered that often, it is dead; 0 = as the group says

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable by slot, so never a key

    def __repr__(self) -> str:
        return f"Message(id={self.id!r}, tag={self.tag!r}, body={self.body[:32]!r})"
