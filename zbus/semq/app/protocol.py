"""What an application and its endpoint say to each other, over the Unix socket of the endpoint.

    send   dst, savefwd, ack2, ordered,    a message; 200 with `record` and `mid` when it is durable
           reliable, app_key, expires,
           route, priority, user, encrypt
    take   user, wait_ms                   a message, for the caller: 200 with `row`, or 204
    done   row                             it is dealt with
    back   take                            a take is given up, or what came of it: 204
    watch                                  from now on `cmd: happened` tells of sent messages: 204
    stat, list, dead, retry, release       200 with JSON

Frames are those of `zbus.semq.program.frames`: a request, and an answer with its `id`. Fields are
called as between endpoints (specification, section 15). A message that was taken is its
connection's until it is done; when the connection ends, it is there again, and has `again` when it
is taken next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict

import attrs
import msgspec

from zbus.client.errors import ProtocolError, refusal
from zbus.documents import NOT_JSON
from zbus.semq.endpoint.events import Frame
from zbus.semq.protocol.words import Level, Mid, Stream, read_locator, read_number

Route = Literal["auto", "platform", "direct"]

SOCKET: Final = "semq.sock"
"""Where the endpoint listens for applications by default."""


@attrs.frozen(kw_only=True)
class Wishes:
    """What is wanted for a message that is sent."""

    level: int = 3
    """1: forwarded or forgotten. 2: stored while its destination is offline. 3: must arrive."""
    receipt: bool = False
    """The endpoint gets an Ack2 when the message is durable at its destination."""
    ordered: bool = False
    """Handed over after all that was sent to this destination before it. For level 3."""
    reliable: bool = True
    app_key: str = ""
    """Which business record it is about. It is never encrypted."""
    expires_ms: int = 0
    """Milliseconds since 1970 after which it is dead-lettered; 0: never. What has come before is
    handed over, however late."""
    route: Route = "auto"
    priority: int = 0
    """What has more goes first."""
    user: str = ""
    """Who of this node sends it."""
    encrypt: bool = False
    """So that only its destination can read the body."""


class WishArguments(TypedDict, total=False):
    """`Wishes` as keyword arguments."""

    level: int
    receipt: bool
    ordered: bool
    reliable: bool
    app_key: str
    expires_ms: int
    route: Route
    priority: int
    user: str
    encrypt: bool


@attrs.frozen
class Sent:
    """A message that the endpoint owes from here on."""

    record: int
    """Its number in the outbox: what `list` shows, and `retry` takes."""
    mid: str
    """What it is known by for ever, everywhere, and no other message is; empty at level 1."""


@attrs.frozen
class Happened:
    """Something became of a message: `sent`, `received` (it is durable at its destination), `dead`,
    or there is an `alarm`."""

    kind: str
    record: int
    text: str


@attrs.define(eq=False)
class Received:
    """What is known of a message that was taken."""

    row: int
    """Its number in the inbox: what `done` takes."""
    take: str
    """The id of the take that it answers."""
    fields: Mapping[str, str]
    """What came with it: the envelope, and fields of its sender's own."""
    body: bytes
    """The body; if there is a `fault`, as it came, encrypted."""

    @property
    def source(self) -> str:
        """The node or user that sent it."""
        return self.fields.get("src", "")

    @property
    def destination(self) -> str:
        return self.fields.get("dst", "")

    @property
    def app_key(self) -> str:
        return self.fields.get("app_key", "")

    @property
    def again(self) -> bool:
        """An application took it before, and left without `done`. It may have acted on it: whether
        `mid` is known to it shows that."""
        return self.fields.get("again") == "1"

    @property
    def fault(self) -> str:
        """Why it could not be decrypted; empty if there is nothing wrong."""
        return self.fields.get("fault", "")

    @property
    def level(self) -> int:
        return int(self.fields.get("savefwd") or Level.STORE)

    @property
    def mid(self) -> str:
        """What the message is known by for ever; empty at level 1. An application that stores it
        together with what it does sees each message exactly once."""
        fields = self.fields
        if not fields.get("lk0") or not fields.get("seq"):
            return ""
        lk0 = read_locator(fields["lk0"])
        stream = read_number("stream", fields.get("stream") or str(int(Stream.CONTIGUOUS)))
        seq = read_number("seq", fields["seq"])
        return Mid(lk0.store, fields.get("epoch", ""), stream, seq).of_record(lk0.record)

    @property
    def text(self) -> str:
        """The body as text, in UTF-8."""
        return self.body.decode()


def send_frame(destination: str, body: bytes | str, wishes: Wishes) -> Frame:
    """The request that sends a message."""
    fields = {"cmd": "send", "dst": destination, "savefwd": str(wishes.level)}
    given = {
        "ack2": "1" if wishes.receipt else "",
        "ordered": "1" if wishes.ordered else "",
        "reliable": "" if wishes.reliable else "0",
        "app_key": wishes.app_key,
        "expires": str(wishes.expires_ms or ""),
        "route": "" if wishes.route == "auto" else wishes.route,
        "priority": str(wishes.priority or ""),
        "user": wishes.user,
        "encrypt": "1" if wishes.encrypt else "",
    }
    fields |= {name: value for name, value in given.items() if value}
    return Frame(fields, body.encode() if isinstance(body, str) else body)


def take_frame(user: str, wait_s: float | None) -> Frame:
    """The request for a message."""
    fields = {"cmd": "take"}
    if user:
        fields["user"] = user
    if wait_s is not None:
        fields["wait_ms"] = str(round(1_000 * max(0.0, wait_s)))
    return Frame(fields)


def manage_frame(command: str, fields: Mapping[str, str]) -> Frame:
    """`stat`, `list`, `dead`, `retry`, `release`."""
    return Frame({**{name: value for name, value in fields.items() if value}, "cmd": command})


def checked(answer: Frame) -> Frame:
    """An answer that is no refusal. Raises Refused."""
    if answer.status >= 400:
        text = answer.body.decode("utf-8", "replace")
        raise refusal(answer.status, text, answer.fields)
    return answer


def as_sent(answer: Frame) -> Sent:
    fields = checked(answer).fields
    return Sent(_number(fields, "record"), fields.get("mid", ""))


def as_received(answer: Frame, take: str) -> Received | None:
    """None: there was nothing."""
    if checked(answer).status == 204:
        return None
    fields = {name: value for name, value in answer.fields.items() if name != "id"}
    return Received(_number(fields, "row"), take, fields, answer.body)


def as_document(answer: Frame) -> Any:  # noqa: ANN401 - whatever JSON has
    try:
        return msgspec.json.decode(checked(answer).body)
    except NOT_JSON:
        raise ProtocolError("the endpoint did not answer with JSON") from None


def as_happened(push: Frame) -> Happened:
    fields = push.fields
    return Happened(fields.get("kind", ""), _number(fields, "record"), push.body.decode())


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not text.isdecimal():
        raise ProtocolError(f"the endpoint did not answer with a {name}")
    return int(text)
