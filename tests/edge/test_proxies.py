"""Which client a request is from: what is believed, and of which proxies."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import http, ok
from zbus.edge.proxies import Proxies
from zbus.testing.world import World
from zbus.wire.heads.heads import Heads
from zbus.wire.limits import DEFAULT_LIMITS

TRUSTED = "10.0.0.0/8, 2001:db8::/32, 127.0.0.1"
CLIENT = "192.0.2.1"


def client(*lines: str) -> tuple[str, bool | None]:
    head, _ = Heads(DEFAULT_LIMITS).read("\r\n".join(("GET / HTTP/1.1", *lines)).encode())
    return Proxies(TRUSTED).client(head)


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ((), ""),
        ((f"x-forwarded-for: {CLIENT}",), f"{CLIENT}:0"),
        ((f"x-real-ip: {CLIENT}",), f"{CLIENT}:0"),
        ((f"forwarded: for={CLIENT}",), f"{CLIENT}:0"),
        ((f'forwarded: For="{CLIENT}:81";Proto=http;by=10.0.0.1',), f"{CLIENT}:81"),
        ((f"x-forwarded-for: {CLIENT}:80",), f"{CLIENT}:80"),
        (("x-forwarded-for: 2a00::1",), "2a00::1:0"),
        (("x-forwarded-for: [2a00::1]:80",), "2a00::1:80"),
        (('forwarded: for="[2a00::1]:80"',), "2a00::1:80"),
        ((f"x-forwarded-for: ::ffff:{CLIENT}",), f"{CLIENT}:0"),
        # What stands at the left was written by the client.
        ((f"x-forwarded-for: 6.6.6.6, {CLIENT}",), f"{CLIENT}:0"),
        ((f"x-forwarded-for: nonsense, {CLIENT}, 10.1.1.1, 2001:db8::7",), f"{CLIENT}:0"),
        ((f'forwarded: for=6.6.6.6, for="a, for={CLIENT}, for=10.1.1.1',), f"{CLIENT}:0"),
        (("x-forwarded-for: 6.6.6.6", f"x-forwarded-for: {CLIENT}"), f"{CLIENT}:0"),
        # Everything on the way is ours: the client is, too.
        (("x-forwarded-for: 10.0.0.3, 10.0.0.2",), "10.0.0.3:0"),
        # Several that agree; of the nearest proxy there is nothing to learn.
        ((f"x-forwarded-for: {CLIENT}", f"x-real-ip: {CLIENT}"), f"{CLIENT}:0"),
        ((f"x-forwarded-for: {CLIENT}, 10.0.0.2", "x-real-ip: 10.0.0.2"), f"{CLIENT}:0"),
        # The proxy has written one of them, and the client the other.
        ((f"x-forwarded-for: {CLIENT}", "forwarded: for=6.6.6.6"), ""),
        ((f"x-forwarded-for: {CLIENT}", "x-real-ip: 6.6.6.6"), ""),
        # Malformed: ignored.
        (("x-forwarded-for: unknown",), ""),
        ((f"x-forwarded-for: {CLIENT}, _hidden",), ""),
        ((f"x-forwarded-for: {CLIENT}, ",), ""),
        (("x-forwarded-for: ,,,",), ""),
        (("x-forwarded-for: 1.2.3.4.5",), ""),
        (("x-forwarded-for: fe80::1%eth0",), ""),
        (("x-forwarded-for: [",), ""),
        (("x-forwarded-for: " + "1" * 5_000,), ""),
        (("forwarded: ;;==;for",), ""),
        (("forwarded: for=",), ""),
        ((f"x-forwarded-for: {CLIENT}:99999",), f"{CLIENT}:0"),
        ((f"x-forwarded-for: {CLIENT}:-1",), f"{CLIENT}:0"),
    ],
)
def test_the_address(lines: tuple[str, ...], address: str) -> None:
    assert client(*lines)[0] == address


@pytest.mark.parametrize(
    ("lines", "secure"),
    [
        ((), None),
        ((f"x-forwarded-for: {CLIENT}",), None),
        (("x-forwarded-proto: https",), True),
        (("x-forwarded-proto: HTTPS",), True),
        (("x-forwarded-proto: wss",), True),
        (("x-forwarded-proto: http",), False),
        (("x-forwarded-proto: https, http",), False),
        (("x-forwarded-proto: nonsense",), False),
        ((f"forwarded: for={CLIENT};proto=https, for=10.0.0.2;proto=http",), True),
        ((f"forwarded: for={CLIENT};proto=http", "x-forwarded-proto: https"), False),
    ],
)
def test_the_scheme(lines: tuple[str, ...], secure: bool | None) -> None:
    assert client(*lines)[1] is secure


@pytest.mark.parametrize(
    ("trusted", "address"),
    [
        ("127.0.0.1", "192.0.2.1:0"),
        ("127.0.0.0/8", "192.0.2.1:0"),
        ("10.0.0.0/8", None),
        ("", None),
    ],
)
def test_only_trusted_proxies_are_believed(trusted: str, address: str | None) -> None:
    world = World(trusted_proxies=trusted)
    proxy, reader = world.connect(), world.connect()
    own = proxy.peer.address
    ok(proxy, http("/T?cmd=declare&sender_headers=1"))
    for line in (f"x-forwarded-for: {CLIENT}", "x-forwarded-for: 192.0.2.2", "x-other: 1"):
        ok(proxy, http("/T?body=x", line))
    expected = [own] * 3 if address is None else [address, "192.0.2.2:0", own]
    replies = [ok(reader, http("/T?cmd=consume")) for _ in expected]
    assert [reply.headers["remote-addr"] for reply in replies] == ["/" + each for each in expected]


def test_a_connection_has_the_address_of_its_latest_client() -> None:
    world = World(trusted_proxies="127.0.0.1")
    proxy, other = world.connect(), world.connect()
    own = proxy.peer.address
    ok(proxy, http("/?cmd=ping", f"forwarded: for={CLIENT};proto=https"))
    assert f'"address":"/{CLIENT}:0"'.encode() in ok(other, http("/?cmd=connections")).body
    assert proxy.peer.secure
    ok(proxy, http("/?cmd=ping"))
    assert f'"address":"/{own}"'.encode() in ok(other, http("/?cmd=connections")).body
    assert not proxy.peer.secure


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False)])
def test_the_cookie_of_a_login_over_https_is_secure(proto: str, secure: bool) -> None:
    world = World(trusted_proxies="127.0.0.1")
    for trusted in (True, False):
        client = world.connect()
        if not trusted:
            client.peer.address = "192.0.2.9:4000"
        login = http("/?cmd=login", f"x-forwarded-proto: {proto}", body=b"token=t", method="POST")
        cookie = client.request(login).headers["set-cookie"]
        assert ("; Secure" in cookie) == (secure and trusted)


@pytest.mark.parametrize(("trusted", "believed"), [("unix", True), ("127.0.0.1", False)])
def test_a_proxy_on_a_unix_socket(trusted: str, believed: bool) -> None:
    client = World(trusted_proxies=trusted).connect()
    client.peer.address = "unix:pid=1,uid=0"
    ok(client, http("/?cmd=ping", f"x-forwarded-for: {CLIENT}"))
    assert client.peer.address == (f"{CLIENT}:0" if believed else "unix:pid=1,uid=0")
