"""Events into an endpoint and effects out of it: all that is between its rules and the world.

    shell:  sockets, clock, threads ──events──► Endpoint.step ──effects──► shell
                                                    │
                                              one transaction

The endpoint (`zbus.semq.endpoint.endpoint`) does no IO but that of its database. A step takes what
has happened since the last one, changes the database in one transaction, and returns what is to be
done when that is durable. So nothing is ever said before it is true on the disk (specification,
section 10), and many messages that come together cost one sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from zbus.semq.protocol.words import Address


class Frame(NamedTuple):
    """One message of a link: a request, which has a `cmd`, or an answer, which has a status and the
    `id` of what it answers. What a platform sends on its own is a request with status 200."""

    fields: dict[str, str]  # lower-case names
    body: bytes = b""
    status: int = 0  # 0: a request

    @property
    def command(self) -> str:
        return self.fields.get("cmd", "")

    @property
    def text(self) -> str:
        """What a refusal says."""
        return self.body[:200].decode("utf-8", "replace")


ROUTES: Final = ("auto", "platform", "direct")
ORDERS: Final = ("stat", "list", "dead", "retry", "release")

# -- what happens -----------------------------------------------------------------------------


class Opened(NamedTuple):
    """A connection stands. `link` is a number of the shell's, and never comes again. Nothing was
    said on it yet."""

    link: int
    node: str  # the node that we called; empty if it called us
    direct: bool = False  # to another endpoint; else to the platform
    ticket: str = ""  # what the platform gave to show there (section 12), with its key
    key: str = ""
    certain: bool = False  # TLS with the fingerprint that the platform told: it is who was called


class Came(NamedTuple):
    """A frame came on a link."""

    link: int
    frame: Frame


class Closed(NamedTuple):
    """A link is no more."""

    link: int


class Unreachable(NamedTuple):
    """A direct connection that was wanted (`Connect`) could not be made."""

    node: str


class Submit(NamedTuple):
    """The application sends a message. Answered with `Submitted` when that is durable."""

    ask: int
    destination: Address
    body: bytes
    level: int = 3
    ack2: bool = False  # `receipt`: tell when it is durable at its destination
    ordered: bool = False
    reliable: bool = True
    app_key: str = ""
    expires_ms: int = 0
    route: str = "auto"  # of `ROUTES`
    priority: int = 0  # larger goes first
    user: str = ""  # of this node, who sends it
    sealed: Mapping[str, str] | None = None  # the body is encrypted: what the envelope says of that

    def source(self, own: str) -> str:
        """Who sends it, of this node."""
        return f"{own}/{self.user}" if self.user else own

    def fields(self, own: str) -> dict[str, str]:
        """What is said of it, beside its numbers; `own` is this node."""
        fields = {"src": self.source(own), "dst": str(self.destination)}
        fields |= {"savefwd": str(self.level), **(self.sealed or {})}
        fields |= {"app_key": self.app_key} if self.app_key else {}
        return fields | ({"expires": str(self.expires_ms)} if self.expires_ms else {})


class Take(NamedTuple):
    """The application wants a message that no one has taken. Answered with `Taken`."""

    ask: int
    user: str = ""  # whose mailbox; empty: what is for no user
    wait: bool = True  # for the next, if there is none
    holder: int = 0  # who takes it: what `Left` names


class Left(NamedTuple):
    """An application that took messages left, or takes no more: what is not done is ready again."""

    holder: int


class Done(NamedTuple):
    """The application has done with a message it took. Answered with `Reported`."""

    ask: int
    row: int


class Manage(NamedTuple):
    """One of `ORDERS` to this endpoint. Answered with `Reported`."""

    ask: int
    command: str
    fields: Mapping[str, str]


Event: TypeAlias = Opened | Came | Closed | Unreachable | Submit | Take | Left | Done | Manage


# -- what is to be done -----------------------------------------------------------------------


class Transmit(NamedTuple):
    """Send a frame. If the link is no more, it is lost, and that is no fault."""

    link: int
    frame: Frame


class Close(NamedTuple):
    """End a link, because of what was said on it."""

    link: int
    why: str


class Connect(NamedTuple):
    """Make a direct connection: `Opened` or `Unreachable` tells what came of it."""

    node: str
    addresses: tuple[str, ...]  # host:port
    fingerprint: str  # of its certificate; empty: without TLS
    ticket: str
    key: str


class Submitted(NamedTuple):
    """The message is owed from here on."""

    ask: int
    record: int
    mid: str  # empty at level 1


class Taken(NamedTuple):
    """A message for the application; `row` is what `Done` names. None: there is none."""

    ask: int
    row: int = 0
    frame: Frame | None = None
    again: bool = False  # an application had it before, and may have acted on it


class Reported(NamedTuple):
    """An answer of whatever else was asked."""

    ask: int
    document: object  # as JSON has it


class Refused(NamedTuple):
    """It was not done, and why."""

    ask: int
    status: int
    text: str


class Happened(NamedTuple):
    """The application may want to know: `sent`, `received` (Ack2), `dead`, `alarm`."""

    kind: str
    record: int
    text: str


Effect: TypeAlias = Transmit | Close | Connect | Submitted | Taken | Reported | Refused | Happened
