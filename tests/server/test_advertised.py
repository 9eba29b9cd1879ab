"""The address under which clients are told to find a broker."""

import socket

import pytest

from zbus.server.process.banner import advertised_address
from zbus.server.process.reporter import split_address


@pytest.mark.parametrize(
    ("server_name", "host", "address"),
    [
        ("", "127.0.0.1", "127.0.0.1:5"),
        ("", "localhost", "localhost:5"),
        ("", "::1", "[::1]:5"),
        ("broker", "0.0.0.0", "broker:5"),
        ("broker:80", "0.0.0.0", "broker:80"),
        ("10.0.0.7", "127.0.0.1", "10.0.0.7:5"),
        ("[2001:db8::1]", "::", "[2001:db8::1]:5"),
        ("[2001:db8::1]:80", "::", "[2001:db8::1]:80"),
    ],
)
def test_named_or_bound(server_name: str, host: str, address: str) -> None:
    assert advertised_address(server_name, host, 5) == address


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_of_every_address_one_that_others_can_reach(host: str) -> None:
    name, port = split_address(advertised_address("", host, 5))
    assert port == 5
    assert name
    assert name not in ("0.0.0.0", "::")


class NoRoute(socket.socket):
    """A machine without network."""

    def connect(self, address: object) -> None:
        raise OSError("no route")


def test_without_a_route_it_is_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", NoRoute)
    assert advertised_address("", "0.0.0.0", 5) == f"{socket.gethostname()}:5"


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("a:1", "a", 1), ("[::1]:2", "::1", 2), ("1.2.3.4:5", "1.2.3.4", 5)],
)
def test_parts_of_an_address(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
