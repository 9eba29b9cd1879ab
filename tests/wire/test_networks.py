"""Where a webhook may lead."""

from __future__ import annotations

import pytest

from zbus.wire.networks import Reachable, parse_address, parse_networks

NOT_PUBLIC = [
    "127.0.0.1",
    "127.255.0.9",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "fec0::1",
    "feff::1",
]


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_what_is_not_public(text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert Reachable().problem(address) is not None
    assert Reachable(parse_networks(("0.0.0.0/0", "::/0"))).problem(address) is None


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_what_is_public(text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert Reachable().problem(address) is None


@pytest.mark.parametrize("text", ["localhost", "0x7f.1", "127.1", "2130706433", "017700000001", ""])
def test_what_is_a_name(text: str) -> None:
    """It is looked up, and what is found is judged."""
    assert parse_address(text) is None


def test_named_networks() -> None:
    reach = Reachable(parse_networks(("10.0.0.0/8", "192.168.1.5")))
    found = [
        reach.problem(address) is None
        for text in ("10.9.9.9", "::ffff:10.9.9.9", "192.168.1.5", "192.168.1.6", "127.0.0.1")
        if (address := parse_address(text)) is not None
    ]
    assert found == [True, True, True, False, False]
