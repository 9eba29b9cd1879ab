"""Machines for the nodes of a cluster, and links that can be cut.

    with find_network("abc") as network:
        node = Node(..., machine=network.machines["a"])
        network.cut("a", Link.NODES)

As root each machine is a network namespace with a link of its own to clients, to the NATS servers
and to other machines: what is sent over a link that is cut vanishes. Else all of them are this
machine, and only links that lead through proxies can be cut (`tests.process.tcp_proxies`).
"""

from __future__ import annotations

import enum
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import attrs

LOOPBACK: Final = "127.0.0.1"


class Link(enum.Enum):
    """What a machine reaches over a link, or is reached by."""

    CLIENTS = "c"
    SERVERS = "s"
    NODES = "n"


@attrs.frozen
class Machine:
    """Where a node runs."""

    host: str = LOOPBACK  # where clients reach it
    relay_host: str = LOOPBACK  # where other nodes do
    within: Sequence[str] = ()  # what a command begins with to run there


HERE: Final = Machine()


class ThisMachine:
    """All nodes are on it, and no link can be cut."""

    name = "this machine, and TCP proxies"
    links: frozenset[Link] = frozenset()
    host = LOOPBACK  # where machines reach this one over their links to the servers
    machines: Mapping[str, Machine]

    def __init__(self, names: Iterable[str]) -> None:
        self.machines = dict.fromkeys(names, HERE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is left of it."""

    def cut(self, name: str, *links: Link) -> None:
        """From now on what this machine sends and should get over these links vanishes."""
        raise NotImplementedError

    def mend(self, name: str, *links: Link) -> None:
        raise NotImplementedError

    def lose(self, name: str) -> None:
        """A machine goes, and all that its system knows of connections. What its processes say
        when they are killed must be cut off before."""
        raise NotImplementedError

    def bring_back(self, name: str) -> None:
        """A machine of this name, with the same addresses."""
        raise NotImplementedError


class Namespaces(ThisMachine):
    """See above. Raises OSError and CalledProcessError where this is not permitted."""

    name = "network namespaces"
    links = frozenset(Link)

    def __init__(self, names: Iterable[str]) -> None:
        self._prefix = f"zb{os.getpid()}"
        self._network = os.getpid() % 80 * 3  # 198.18.0.0/15 is for tests (RFC 2544)
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self.host = self._address(Link.SERVERS, 254)
        self.machines = {
            name: Machine(
                self._address(Link.CLIENTS, number),
                self._address(Link.NODES, number),
                ("ip", "netns", "exec", self._prefix + name),
            )
            for name, number in self._numbers.items()
        }
        try:
            for link in Link:
                bridge = self._prefix + link.value
                _ip(f"link add {bridge} type bridge")
                if link is not Link.NODES:
                    _ip(f"address add {self._address(link, 254)}/24 dev {bridge}")
                _ip(f"link set {bridge} up")
            for name in self._numbers:
                self.bring_back(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._numbers:
            with suppress(OSError, subprocess.CalledProcessError):  # it was not made
                self.lose(name)
        for link in Link:
            with suppress(OSError, subprocess.CalledProcessError):
                _ip(f"link del {self._prefix}{link.value}")

    def _address(self, link: Link, number: int) -> str:
        return f"198.18.{self._network + list(Link).index(link)}.{number}"

    def _port(self, name: str, link: Link) -> str:
        """The end of a link that is at its bridge."""
        return f"{self._prefix}{name}{link.value}"

    def cut(self, name: str, *links: Link) -> None:
        for link in links:
            _ip(f"link set {self._port(name, link)} down")

    def mend(self, name: str, *links: Link) -> None:
        for link in links:
            _ip(f"link set {self._port(name, link)} up")

    def lose(self, name: str) -> None:
        for link in Link:
            _ip(f"link del {self._port(name, link)}")
        _ip(f"netns del {self._prefix}{name}")

    def bring_back(self, name: str) -> None:
        space = self._prefix + name
        _ip(f"netns add {space}")
        _ip(f"-n {space} link set lo up")
        for link in Link:
            port, end, number = self._port(name, link), f"to{link.value}", self._numbers[name]
            card = f"02:00:00:00:00:{number:02x}"  # the same one, which its neighbours know
            _ip(f"link add {port} type veth peer name {end} address {card} netns {space}")
            _ip(f"link set {port} master {self._prefix}{link.value} up")
            address = self._address(link, number)
            _ip(f"-n {space} address add {address}/24 dev {end}")
            _ip(f"-n {space} link set {end} up")


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


def find_network(names: Sequence[str]) -> ThisMachine:
    """The best that this machine permits. Names have one letter."""
    try:
        return Namespaces(names)
    except (OSError, subprocess.CalledProcessError):
        return ThisMachine(names)
