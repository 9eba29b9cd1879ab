"""Where a broker listens, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.config import Config
from zbus.server.loop.sockets import Address, BadAddress, addresses_of, exposed, parse_listen

GOOD = [
    ("http://127.0.0.1:15555", Address("tcp", "127.0.0.1", 15555)),
    ("https://0.0.0.0:0", Address("tcp", "0.0.0.0", 0, tls=True)),
    ("http://localhost:1", Address("tcp", "localhost", 1)),
    ("https://[::1]:65535", Address("tcp", "::1", 65535, tls=True)),
    ("unix:/run/zbus.sock", Address("unix", path="/run/zbus.sock")),
    ("unix:zbus.sock", Address("unix", path="zbus.sock")),
]


@pytest.mark.parametrize(("text", "address"), GOOD)
def test_each_form_reads_and_is_written_back(text: str, address: Address) -> None:
    assert parse_listen(text) == [address]
    assert str(address) == text


def test_a_list_keeps_its_order() -> None:
    text = ", ".join(text for text, _ in GOOD)
    assert parse_listen(text) == [address for _, address in GOOD]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "http://127.0.0.1:1,",
        "127.0.0.1:15555",
        "15555",
        "tcp://a:1",
        "HTTP://a:1",
        "http://",
        "http://a",
        "http://:1",
        "http://a:",
        "http://a:x",
        "http://a:-1",
        "http://a:+1",
        "http://a:65536",
        "http://a:000001",
        "http://a:1_0",
        "http://a:\u0661",
        "http://a:1/",
        "http://a/b:1",
        "http://u@a:1",
        "http://::1:1",
        "http://[::1]",
        "http://[a]:1",
        "http://[]:1",
        "unix:",
        "unix:/a\0b",
        "http://a:1,http://a:1",
        "unix:/a, unix:/a",
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_listen(text)
    assert str(caught.value)


@given(st.text(alphabet="htps:/[]0123456789.,ab unix@", max_size=40))
def test_no_text_does_anything_else_than_read_or_be_refused(text: str) -> None:
    try:
        addresses = parse_listen(text)
    except BadAddress:
        return
    assert parse_listen(",".join(map(str, addresses))) == addresses


def test_the_system_may_pick_several_ports() -> None:
    assert len(parse_listen("http://127.0.0.1:0, http://127.0.0.1:0")) == 2


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("https://127.8.9.1:1", True),
        ("http://[::1]:1", True),
        ("http://LocalHost:1", True),
        ("unix:/run/zbus.sock", True),
        ("http://0.0.0.0:1", False),
        ("http://[::]:1", False),
        ("https://192.168.0.1:1", False),
        ("http://localhost.example.org:1", False),
        ("http://127.1:1", False),  # short forms are not known: reachable, to be safe
    ],
)
def test_what_only_this_machine_reaches(text: str, loopback: bool) -> None:
    addresses = parse_listen(text)
    assert addresses[0].is_loopback is loopback
    assert exposed(addresses) == ([] if loopback else addresses)


def test_listen_overrides_host_and_port() -> None:
    assert addresses_of(Config(host="::1", port=7)) == [Address("tcp", "::1", 7)]
    assert addresses_of(Config(port=7, listen="unix:/a")) == [Address("unix", path="/a")]
