"""Links of a SEMQ world: of a node to the broker, and of nodes with each other.

A node sees frames, as its shell shows them to it; the broker sees bytes. Whoever closes an end, or
loses it, does not see what comes out of the wire any more; the other end is told when the news has
come to it, if it ever does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.semq.wires import Wire, Wires
from zbus.semq.endpoint.events import Came, Closed, Event, Frame
from zbus.testing.simulation.network import Connection

if TYPE_CHECKING:
    from tests.simulation.semq_node import Node

STRAYS: Final = frozenset(
    f"semq_{word}" for word in ("send", "deliver", "ack", "reack", "inquiry", "inquiry_resp")
)
"""Frames that say by themselves what they are about, so that they may come out of any link."""

IDLE: Final = frozenset(("heartbeat", "semq_hello"))


def encode(frame: Frame, answers: bool) -> bytes:
    """The bytes of a frame; `answers`: of the side that was called, which answers and pushes."""
    first = f"HTTP/1.1 {frame.status or 200} OK" if answers else "POST /semq HTTP/1.1"
    lines = [first, *(f"{name}: {value}" for name, value in frame.fields.items())]
    lines += [f"content-length: {len(frame.body)}", "", ""]
    return "\r\n".join(lines).encode() + frame.body


def words(frame: Frame) -> str:
    """What a trace shows of a frame."""
    fields = dict(frame.fields)
    for name in ("content-length", "epoch", "session_key", "topic", "interval", "max_size"):
        fields.pop(name, None)
    command = fields.pop("cmd", f"answer {frame.status}")
    shown = " ".join(f"{name}={value[:40]}" for name, value in fields.items())
    return f"{command.removeprefix('semq_')} {shown} {frame.body[:8]!r}"


class Link:
    """A node's end. `transmit` and `close` are what the node does; it is told by events."""

    def __init__(self, node: Node, number: int, peer: str) -> None:
        self.node = node
        self.number = number
        self.peer = peer
        self.open = True
        self.silent = False

    def transmit(self, frame: Frame) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """This side ends it, or its process does."""
        raise NotImplementedError

    def reset(self) -> None:
        """The network ends it."""
        raise NotImplementedError

    def hush(self, both: bool) -> None:
        """From now on nothing comes through, and nobody is told of anything."""
        raise NotImplementedError

    def told(self, event: Event) -> None:
        """Something comes to the node's end."""
        if self.open:
            self.node.tell(event)

    def lost(self) -> None:
        """The node learns that the link is no more."""
        if self.open:
            self.open = False
            self.node.lost(self)


class PlatformLink(Link):
    """To the broker."""

    def __init__(self, node: Node, number: int, connection: Connection, wires: Wires) -> None:
        super().__init__(node, number, "0:1")
        self.connection = connection
        self.up: Wire = wires.wire(self._arrive)
        self.down: Wire = wires.wire(self._come)
        self.ended = False
        self.strayed: set[bytes] = set()

    def transmit(self, frame: Frame) -> None:
        stray = self.node.world.stray_up(self.node) if frame.command in STRAYS else None
        self.up.put(encode(frame, False), frame.command, stray)

    def _arrive(self, data: object) -> None:
        assert isinstance(data, bytes)
        if not self.silent:
            self.connection.send(data)

    def poll(self) -> bool:
        """What the broker has said goes on its way. Says whether there was anything."""
        if self.ended:
            return False
        replies = self.connection.replies()
        for reply in replies:
            frame = Frame(dict(reply.headers), reply.body, reply.status)
            self.node.world.judge.platform_says(self.node, frame)
            stray = self.node.world.stray_down(self.node) if frame.command in STRAYS else None
            self.down.put(frame, frame.command, stray)
        if not self.connection.alive:
            self.ended = True
            if not self.silent:
                self.down.last(self.lost)
        return bool(replies)

    def _come(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self.told(Came(self.number, frame))

    def close(self) -> None:
        self.open = False
        self.down.cut = True
        if not self.silent:
            self.up.last(self.connection.reset)

    def cut(self, data: bytes) -> None:
        """The network ends it in the middle of a frame."""
        self.connection.send(data)
        self.reset()

    def reset(self) -> None:
        self.up.cut = self.down.cut = True
        self.down.last(self.lost)
        self.up.last(self.connection.reset)

    def hush(self, both: bool) -> None:
        self.up.silent = True
        self.down.silent = self.silent = both or self.silent


class DirectLink(Link):
    """One end of a link between two nodes; `other` is the other one."""

    other: DirectLink

    def __init__(self, node: Node, number: int, peer: str, wires: Wires, caller: bool) -> None:
        super().__init__(node, number, peer)
        self.caller = caller
        self.out: Wire = wires.wire(self._arrive)

    def transmit(self, frame: Frame) -> None:
        sent = Frame(dict(frame.fields), frame.body, 0 if self.caller else frame.status or 200)
        known = frame.command in STRAYS
        stray = self.node.world.stray_direct(self.node.name, self.peer, self.caller)
        self.out.put(sent, frame.command, stray if known else None)

    def _arrive(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self.other.told(Came(self.other.number, frame))

    def close(self) -> None:
        self.open = False
        self.other.out.cut = True
        if not self.silent:
            self.out.last(self.other.lost)

    def reset(self) -> None:
        self.out.cut = self.other.out.cut = True
        self.out.last(self.other.lost)
        self.other.out.last(self.lost)

    def hush(self, both: bool) -> None:
        self.out.silent = self.silent = True
        if both:
            self.other.out.silent = self.other.silent = True


Stray = Callable[[object], None]


def closed(link: Link) -> Closed:
    """What a node is told of it."""
    return Closed(link.number)
