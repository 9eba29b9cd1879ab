"""A stream of events from another worker, when the worker where its client is ends."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import http
from tests.workers.edges import Edges
from tests.workers.test_holding import THERE

END = b"event: end\ndata: 503: the broker is stopping\n\n"


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (b"", END),
        (b":\n\n", END),
        (b"id: 1\ndata: b\n\n", END),
        (b"id: 1\ndata: event: end\n\n", END),
        (b"id: 1\ndata: event: end\ndata: 503: the broker is stopping\n\n", END),
        (b"id: 1\ndata: b", b""),  # amid an event
        (b"id: 1\ndata: b\n", b""),
        (b"id: 1\n", b""),
        (END, b""),  # the other one has ended first
        (END[:9], b""),
        (END[:-1], b""),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 60])
def test_the_last_event_is_told_once_and_never_amid_another(
    last: bytes, told: bytes, at: int
) -> None:
    edges = Edges()
    worker = edges.workers[0]
    client = edges.connect()
    client._go_to(0)
    assert client.request(http(f"/{THERE}?cmd=declare")).status == 200
    assert client.request(http(f"/{THERE}?cmd=produce", body=b"a")).status == 200
    client.send(http(f"/{THERE}?cmd=consume&offset=begin", "accept: text/event-stream"))
    edges.settle()
    assert client.received.endswith(b"id: 0\ndata: a\n\n")
    before = len(client.received)
    (upstream,) = worker.lines.links
    for piece in (last[:at], last[at:]):
        if piece:
            upstream.receive(piece)
    worker.edge.stop()
    edges.settle()
    assert client.received[before:] == last + told
    assert not client.peer.open_tickets
    assert not worker.lines.links
