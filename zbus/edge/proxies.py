"""Which client a request is from, where a proxy sends it.

A connection of a proxy carries requests of many clients, and their heads say whose: `Forwarded`,
`X-Forwarded-For`, `X-Real-IP`, and `X-Forwarded-Proto`. Any client can write these, so they are
believed only from the networks of `trusted_proxies`. A proxy adds at the right, so of several
addresses the rightmost counts that is not of a trusted proxy itself. What cannot be read is
ignored, and so are fields that contradict each other: a proxy writes one of them, and passes on
what the client wrote into another.

The address of such a connection is that of the client of its latest request: in logs, in
`connections`, in `remote-addr` of messages. Without the option nothing of this is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import attrs

from zbus.edge.connection import Connection, Plan, Source
from zbus.edge.shape_plans import Filled, Slotted
from zbus.option import listed, option
from zbus.wire.heads.heads import Head
from zbus.wire.heads.shapes import Slots
from zbus.wire.networks import Address, parse_address, parse_networks
from zbus.wire.numbers import parse_number

UNIX = "unix"

_ADDRESS_LENGTH_MAX = 64
_PORT_MAX = 65_535
_OF_CLIENT = frozenset((b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-real-ip"))
_SECURE = frozenset(("https", "wss"))


@attrs.frozen(slots=False, kw_only=True)
class ProxyOptions:
    """Which proxies are believed about their clients."""

    trusted_proxies: str = option(
        "",
        "Networks of [proxies](../howto/behind-a-proxy.md) that say whose requests they pass on, "
        "with commas between: `127.0.0.1, 10.0.0.0/8`; `unix` is every Unix socket.",
        r"^(?:unix|[0-9A-Fa-f:., /])*\Z",
        "{!r} is not networks such as 10.0.0.0/8, or unix, with commas between",
    )


Given = TypeVar("Given", contravariant=True)  # what is known of the request: its id, or a match


class Runs(Protocol[Given]):
    """A plan of a head or of a shape."""

    def run(self, peer: Connection, id: Given, body: bytes) -> None: ...


class Hop(NamedTuple):
    """One address of a field, and what the same proxy says of the scheme."""

    address: Address
    port: int
    scheme: str


class Client(NamedTuple):
    """What a head says of the client; an empty address and None: nothing."""

    address: str
    secure: bool | None


class Proxies:
    """Those that are trusted."""

    def __init__(self, trusted: str) -> None:
        """The option. Raises ValueError."""
        items = listed(trusted)
        self._unix = UNIX in items
        self._networks = parse_networks(tuple(item for item in items if item != UNIX))
        self._any = bool(items)

    def wrap(self, head: Head, plan: Plan) -> Plan:
        """The plan of this head, to be run for its client."""
        return ForClient(self, self.client(head), plan) if self._any else plan

    def source(self, peer: Connection) -> Source:
        """Where a new connection comes from."""
        host = peer.address.rpartition(":")[0]
        if host == UNIX:
            return Source(peer.address, peer.secure, self._unix)
        address = _plain(parse_address(host))
        return Source(peer.address, peer.secure, address is not None and self._has(address))

    def client(self, head: Head) -> Client:
        """The client of this head, if a trusted proxy has sent it."""
        fields = head.fields
        found = [
            self._outermost(_forwarded_for(_text(fields.get(b"x-forwarded-for", b"")))),
            self._outermost(_forwarded(_text(fields.get(b"forwarded", b"")))),
            self._stranger(_read_hop(_text(fields.get(b"x-real-ip", b"")))),
        ]
        hops = [hop for hop in found if hop is not None]
        address = ""
        if len({hop.address for hop in hops}) == 1:
            address = f"{hops[0].address}:{max(hop.port for hop in hops)}"
        scheme = _text(fields.get(b"x-forwarded-proto", b"")).rpartition(",")[2].strip().lower()
        schemes = {scheme, *(hop.scheme for hop in hops)} - {""}
        return Client(address, schemes <= _SECURE if schemes else None)

    def _outermost(self, hops: list[Hop | None]) -> Hop | None:
        """The first from the right that is no trusted proxy; else the leftmost."""
        found = None
        for hop in reversed(hops):
            if hop is None:
                return None
            found = hop
            if not self._has(hop.address):
                break
        return found

    def _stranger(self, hop: Hop | None) -> Hop | None:
        return None if hop is None or self._has(hop.address) else hop

    def _has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


class ForClient(Generic[Given]):
    """A plan that is run for the client which the head names, if a trusted proxy sends it."""

    __slots__ = ("_client", "_proxies", "plan")

    def __init__(self, proxies: Proxies, client: Client, plan: Runs[Given]) -> None:
        self._proxies = proxies
        self._client = client
        self.plan = plan

    def slots(self) -> Slots | None:
        """What its plan says, but for the fields that name the client."""
        found = self.plan.slots() if isinstance(self.plan, Slotted) else None
        if found is None:
            return None
        lines = {name: slot for name, slot in found.lines.items() if name not in _OF_CLIENT}
        return found._replace(lines=lines)

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        """The plan of the shape, for the same client."""
        assert isinstance(self.plan, Slotted)
        return ForClient(self._proxies, self._client, self.plan.fill(names, unshaped))

    def run(self, peer: Connection, id: Given, body: bytes) -> None:
        source = peer.source
        if source is None:
            source = peer.source = self._proxies.source(peer)
        if source.trusted:
            client = self._client
            peer.move(client.address or source.address)
            peer.secure = source.secure if client.secure is None else client.secure
        self.plan.run(peer, id, body)


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _forwarded_for(value: str) -> list[Hop | None]:
    """The addresses of `X-Forwarded-For`; None is one that cannot be read."""
    return [_read_hop(item) for item in value.split(",")] if value else []


def _forwarded(value: str) -> list[Hop | None]:
    """The same of `Forwarded` (RFC 7239)."""
    hops = []
    for element in value.split(",") if value else ():
        pairs = {}
        for pair in element.split(";"):
            name, _, pair_value = pair.partition("=")
            pairs[name.strip().lower()] = pair_value.strip().strip('"')
        hops.append(_read_hop(pairs.get("for", ""), pairs.get("proto", "").lower()))
    return hops


def _read_hop(text: str, scheme: str = "") -> Hop | None:
    """`192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`."""
    host, port = text.strip(), ""
    if len(host) > _ADDRESS_LENGTH_MAX or "%" in host:  # a zone is of another machine
        return None
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    address = _plain(parse_address(host))
    if address is None:
        return None
    return Hop(address, parse_number(port.removeprefix(":").encode(), _PORT_MAX) or 0, scheme)


def _plain(address: Address | None) -> Address | None:
    """An address of IPv4 that is written as one of IPv6 is that of IPv4."""
    return getattr(address, "ipv4_mapped", None) or address
