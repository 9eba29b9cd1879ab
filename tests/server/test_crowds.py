"""Connections are counted by address."""

from __future__ import annotations

import socket
from random import Random

import pytest

from zbus.server.process.connection_limits import ConnectionLimits


def test_so_many_of_each_address() -> None:
    crowds = ConnectionLimits(20, 2)
    assert [crowds.enter("a") for _ in range(3)] == [True, True, False]
    assert crowds.enter("b")
    assert crowds.refused == 1
    crowds.leave("a")
    assert [crowds.enter("a") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("most", "host"), [(0, "a"), (1, "")])
def test_who_is_not_counted(most: int, host: str) -> None:
    """Nobody, or whoever has no address."""
    crowds = ConnectionLimits(200, most)
    assert all(crowds.enter(host) for _ in range(100))
    crowds.leave(host)
    assert not crowds._counts


def test_nothing_is_kept_of_who_has_left() -> None:
    crowds, random = ConnectionLimits(20, 3), Random(1)
    inside: list[str] = []
    for _ in range(2_000):
        if inside and random.random() < 0.5:
            crowds.leave(inside.pop(random.randrange(len(inside))))
        elif crowds.enter(host := random.choice("abcdefg")):
            inside.append(host)
        assert crowds._counts == {host: inside.count(host) for host in inside}
    for host in inside:
        crowds.leave(host)
    assert not crowds._counts


@pytest.mark.parametrize("secure", [False, True])
def test_a_refusal_is_said_where_that_is_cheap(secure: bool) -> None:
    ours, theirs = socket.socketpair()
    ConnectionLimits(20, 7).refuse(ours, secure)
    said = theirs.recv(4096)
    assert ours.fileno() == -1
    if secure:
        assert said == b""
    else:
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"content-length: %d" % len(body) in head
        assert body == b"429: this address has 7 connections, and may have no more"
    theirs.close()
