"""Where this machine may connect to, when another client says where: public addresses, and those
networks that the operator names.

Otherwise a client that may declare a webhook could reach what only this machine can: services
behind a firewall, and those that deliver the credentials of a cloud's machine.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import attrs

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_ODD = tuple(
    ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "::/96", "fec0::/10")
)
"""Addresses of IPv6 that lead to others of IPv4 (RFC 6052, 8215, 3056, and 4291 of old), or are
site-local (RFC 3879)."""


def parse_networks(items: tuple[str, ...]) -> tuple[Network, ...]:
    """Networks such as `10.0.0.0/8`, or single addresses; ValueError says what is none."""
    return tuple([ip_network(item) for item in items])


def parse_address(text: str) -> Address | None:
    """An address as it is written in a URL; None = it is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


@attrs.frozen
class Reachable:
    networks: tuple[Network, ...] = ()

    def problem(self, address: Address) -> str | None:
        """Why not to connect there."""
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            address = mapped
        if any(address in network for network in self.networks):
            return None
        odd = any(address in network for network in _ODD)
        if address.is_global and not address.is_multicast and not odd:
            return None
        return f"{address} is no public address, and the option push_networks does not name it"
