"""What a dialect makes of a head, and what the guard and the rights ask of it before it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zbus.edge.access import Needs
from zbus.edge.connection import Plan
from zbus.edge.guard import Answer
from zbus.edge.places import HowKnown, Place
from zbus.edge.websocket import Codec


class ParsedRequest(Protocol):
    """One head as a dialect understands it. Its plan is run only if the guard and the rights let it
    pass; nothing may have happened before that."""

    def changes(self) -> bool:
        """Whether it asks for more than looking, so no other site may have it sent."""

    def needs(self) -> Needs | None:
        """The rights that its sender needs; None = no token is needed."""

    def url_token(self) -> bytes:
        """The token in its URL; empty if there is none, or the URL is not meant for the broker."""

    def opens(self) -> Callable[[], Codec] | None:
        """If it is the handshake of a WebSocket: makes what reads the messages of one; None = there
        are no WebSockets at this path, and it is planned as any request."""

    def place(self) -> Place:
        """Where it is done, if there are several workers."""

    def replies(self) -> HowKnown:
        """How it is known which request a reply is for."""

    def plan(self) -> Plan:
        """How it is done. Never fails: a bad one is planned to be refused."""

    def plan_unread(self) -> Plan | None:
        """What is to be done though its body is too long to be read, for a request that waits for
        it; its sender is refused in any case."""

    def refuse(self, answer: Answer) -> Plan:
        """How to give this answer instead, in the dialect."""

    def forbid(self, why: str, known: bool) -> Plan:
        """How to tell its sender, in the dialect, that he may not; `why` if there is a reason
        beside that he may not, and whether his token is `known`, only not granted enough."""
