"""Pulls that their callers give up lose nothing: the core against the broker in one process."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.client.peer import Joined
from zbus.client import commands, errors
from zbus.client.messages import Delivery
from zbus.client.requests import Pulling, Request
from zbus.testing.world import World

GONE = errors.ConnectionLost("it was given up")
GROUPS = [pytest.param(False, id="no acks"), pytest.param(True, id="acks")]


def joined(ack: bool, messages: int = 3, partitions: int = 1) -> Joined:
    peer = Joined(World())
    peer.run(commands.declare("T", "g", ack=ack, partitions=partitions))
    for number in range(messages):
        peer.run(commands.produce("T", b"%d" % number, partition=number % partitions))
    return peer


def pull(**options: Any) -> Request[list[Delivery]]:
    return commands.pull("T", "g", **options)


WHEN = ["unsent", "sent", "answered"]


def abandon(peer: Joined, when: str, **options: Any) -> None:
    """Give a pull up before it is sent, before its answer is received, or after."""
    call = peer.submit(pull(**options))
    if when == "sent":
        data = peer.exchange.take()
        peer.exchange.give_up(call, GONE)
        peer.pass_on(data)
        return
    if when == "answered":
        peer.step()
    peer.exchange.give_up(call, GONE)


def rest(peer: Joined) -> list[bytes]:
    """All that the group has, one pull after another; each is acknowledged."""
    found = []
    while got := peer.run(pull()):
        found += [one.body for one in got]
        peer.run(commands.ack("T", "g", got[0].offset, partition=got[0].partition))
    return found


@pytest.mark.parametrize("ack", GROUPS)
@pytest.mark.parametrize("batch", [1, 2, 10])
@pytest.mark.parametrize("when", WHEN)
def test_all_come_in_order(ack: bool, batch: int, when: str) -> None:
    peer = joined(ack)
    abandon(peer, when, batch=batch)
    assert rest(peer) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ack", GROUPS)
@pytest.mark.parametrize("moments", list(itertools.product(WHEN, repeat=3)))
def test_several_in_a_row(ack: bool, moments: tuple[str, ...]) -> None:
    peer = joined(ack, messages=5)
    for when in moments:
        abandon(peer, when, batch=2)
    assert rest(peer) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("ack", GROUPS)
def test_a_pull_that_waits_is_ended_at_the_broker(ack: bool) -> None:
    """What comes later is for others."""
    peer = joined(ack, messages=0)
    other = Joined(peer.world)
    abandon(peer, "sent", wait_ms=20_000)
    peer.settle()
    other.run(commands.produce("T", b"later"))
    assert [one.body for one in other.run(pull())] == [b"later"]


def test_leases_are_given_back_at_once() -> None:
    peer = joined(ack=True)
    other = Joined(peer.world)
    abandon(peer, "sent", batch=2)
    peer.settle()
    got = other.run(pull(batch=10))
    assert [(one.body, one.retry) for one in got] == [(b"0", 1), (b"1", 1), (b"2", 0)]


def test_a_lease_that_has_ended_is_left_to_others() -> None:
    """Nothing is read for a long time, as by a blocking client that asks for nothing."""
    peer = joined(ack=True)
    other = Joined(peer.world)
    abandon(peer, "sent")
    peer.world.advance(60_000)
    assert rest(other) == [b"0", b"1", b"2"]
    assert peer.run(pull()) == []
    assert peer.exchange.take_kept(Pulling("T", "g", None, 10)) == []


def test_each_partition_has_its_own() -> None:
    peer = joined(ack=False, messages=4, partitions=2)
    abandon(peer, "sent", batch=10)
    peer.settle()
    assert [one.body for one in peer.run(pull(partition=1))] == [b"1"]
    assert [one.body for one in peer.run(pull(batch=2))] == [b"0", b"2"]
    assert [one.body for one in peer.run(pull(batch=2))] == [b"3"]


def test_kept_messages_outlive_the_connection() -> None:
    peer = joined(ack=False)
    abandon(peer, "sent")
    peer.settle()
    peer.break_now()
    assert rest(peer) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ack", GROUPS)
def test_the_connection_breaks_while_it_is_decided(ack: bool) -> None:
    for steps in range(6):
        peer = joined(ack)
        abandon(peer, "answered")
        for _ in range(steps):
            peer.step()
        peer.break_now()
        assert rest(peer) == [b"0", b"1", b"2"]


def test_the_readers_place_is_kept() -> None:
    """Giving up a pull does not leave an exclusive or temporary group."""
    peer = joined(ack=False, messages=0)
    other = Joined(peer.world)
    peer.run(commands.declare("T", "mine", exclusive=True))
    call = peer.submit(commands.pull("T", "mine", wait_ms=20_000))
    peer.step()
    peer.exchange.give_up(call, GONE)
    peer.settle()
    with pytest.raises(errors.Forbidden):
        other.run(commands.pull("T", "mine"))


def test_the_group_is_removed_meanwhile() -> None:
    peer = joined(ack=True)
    abandon(peer, "sent")
    other = Joined(peer.world)
    other.run(commands.remove("T", "g"))
    peer.settle()
    with pytest.raises(errors.NotFound):
        peer.run(pull())


def test_what_is_lost_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    peer = joined(ack=False)
    abandon(peer, "sent", batch=2)
    peer.settle()
    peer.exchange.close()
    assert caplog.messages[0].startswith("2 messages are lost")


@pytest.mark.parametrize("ack", GROUPS)
def test_a_caller_in_haste_forgets_nothing(ack: bool) -> None:
    """The next pull ends before it is known what became of the one before it."""
    peer = joined(ack)
    call = peer.submit(pull())
    data = peer.exchange.take()
    peer.exchange.give_up(call, GONE)
    hasty = peer.submit(pull(timeout_s=0.001))
    peer.exchange.expire(peer.now_s + 0.002)
    assert hasty.done
    peer.pass_on(data)
    assert rest(peer) == [b"0", b"1", b"2"]
