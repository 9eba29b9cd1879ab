"""Where a client connects next: `zbus.client.links.attempts`, and standbys that name the owner."""

from __future__ import annotations

import random

import pytest

from zbus.client import commands, errors
from zbus.client.links.attempts import Attempts
from zbus.client.links.request_tracker import RequestTracker
from zbus.client.options import Options, parse_urls

ADDRESSES = parse_urls("a:1,b:2,c:3")
STANDBY = b"HTTP/1.1 503 X\r\ncontent-length: 0\r\nstandby: b:2\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("places", [1, 2, 3])
def test_all_addresses_are_tried_before_a_pause(places: int) -> None:
    options = Options(backoff_s=0.1, backoff_max_s=1.0, retries=5)
    attempts = Attempts(options, random.Random(1), ADDRESSES[:places])
    for pause_s in (0.1, 0.2, 0.4, 0.8, 1.0):
        tried = []
        for number in range(places):
            tried.append(attempts.address)
            assert not attempts.failed(10.0)
            last = number == places - 1
            waited_s = attempts.retry_at_s - 10.0
            assert pause_s / 2 <= waited_s <= pause_s if last else waited_s == 0
        assert sorted(tried) == list(ADDRESSES[:places])
    assert attempts.failed(10.0)  # the first of a round too many


def test_an_answer_gives_new_courage() -> None:
    attempts = Attempts(Options(retries=1), random.Random(1), ADDRESSES[:2])
    for _ in range(10):
        assert not attempts.failed(0)
        assert not attempts.failed(0)
        attempts.worked()


@pytest.mark.parametrize("named", [True, False])
def test_what_a_standby_was_sent_is_sent_to_the_next(named: bool) -> None:
    """It does nothing, so that holds for requests that must not be done twice, too."""
    tracker = RequestTracker(Options(retries=3), random.Random(1), ADDRESSES[:2])
    tracker.connected()
    call = tracker.submit(commands.ping(), 0)
    call.safe = False
    sent = tracker.take()
    id_line = b"id: %b\r\n" % call.id if named else b""
    assert not tracker.receive(STANDBY.replace(b"standby:", id_line + b"standby:"))
    tracker.lost(0, "it was closed")
    assert (tracker.attempts.address, call.done) == (ADDRESSES[1], False)
    tracker.connected()
    assert tracker.take() == sent


def test_if_all_are_standbys_the_owner_is_named() -> None:
    tracker = RequestTracker(Options(retries=1), random.Random(1), ADDRESSES[:2])
    call = tracker.submit(commands.ping(), 0)
    for _ in range(3):
        assert not call.done
        tracker.connected()
        assert not tracker.receive(STANDBY)
        tracker.lost(0, "it was closed")
    with pytest.raises(errors.ConnectionLost, match="a standby, and the owner is b:2") as raised:
        call.result()
    assert not raised.value.unknown


def test_a_503_on_a_connection_that_stays_is_the_answer() -> None:
    tracker = RequestTracker(Options(), random.Random(1), ADDRESSES[:2])
    tracker.connected()
    call = tracker.submit(commands.ping(), 0)
    # Such a line may come from a service: its connection stays.
    lines = b"id: %b\r\nstandby: of a service\r\n" % call.id
    answer = b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n%b\r\n" % lines
    assert tracker.receive(answer)
    with pytest.raises(errors.Overloaded):
        call.result()
