"""Hooks by which a tracer sees the requests of a client. Nothing here imports a library for that:
`zbus.client.tracing` does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zbus.client.messages import Delivery


class Span(Protocol):
    """A request under way."""

    def end(self, error: Exception | None) -> None:
        """It was answered, or never will be."""


class Tracing(Protocol):
    """Makes spans."""

    def begin(self, operation: str, topic: str, carried: bool) -> tuple[bytes, Span]:
        """A request begins: header lines that tell who comes after of it, and its span. `carried`:
        it carries such lines already."""

    def serve(self, call: Delivery) -> AbstractContextManager[object]:
        """A call is answered within this."""
