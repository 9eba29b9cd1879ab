"""Requests for a shard that has no owner just now: they wait, in order, and not for ever."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from tests.conformance.dialogue import cmd, http
from tests.conformance.websocket_client import read_http, upgraded
from tests.workers.edges import WORKERS, AtEdges, Edges
from zbus.protocol.places import shard_of
from zbus.testing.world import Reply

HOLD_MS = 5_000
HERE, THERE, ELSEWHERE = (
    next(f"T{n}" for n in count() if shard_of(f"T{n}", WORKERS) == shard)
    for shard in range(WORKERS)
)


class Held:
    """Three workers; the edge of the first one waits for the owner of the second shard."""

    def __init__(self, hold_ms: int = HOLD_MS) -> None:
        self.edges = Edges()
        self.worker = self.edges.workers[0]
        self.worker.wires.hold_ms = hold_ms
        self.forwarder = self.worker.edge
        self.client = self.connect()
        for topic in (HERE, THERE, ELSEWHERE):
            assert self.client.request(http(f"/{topic}?cmd=declare")).status == 200
        self.lose()

    def connect(self) -> AtEdges:
        client = self.edges.connect()
        client._go_to(0)
        return client

    def lose(self) -> None:
        """The owner has ended, and its connections with it."""
        self.worker.wires.down.add(1)
        self.forwarder.moved(1)
        self.edges.settle()

    def find(self) -> None:
        """There is one again."""
        self.worker.wires.down.clear()
        self.forwarder.moved(1)
        self.edges.settle()

    def pass_time(self, ms: int) -> None:
        self.worker.lines.now_ms += ms
        self.forwarder.look()
        self.edges.settle()

    def ask(self, *requests: bytes, client: AtEdges | None = None) -> None:
        client = client or self.client
        client.send(b"".join(requests))
        self.edges.settle()

    def take(self) -> Reply:
        """The next message of the topic whose owner was lost."""
        return self.client.request(http(f"/{THERE}?cmd=consume&timeout=0"))

    def statuses(self, client: AtEdges | None = None) -> list[int]:
        return [reply.status for reply in (client or self.client).replies()]


def put(topic: str, body: bytes = b"x") -> bytes:
    return http(f"/{topic}?cmd=produce", body=body)


def test_what_waits_is_done_when_there_is_an_owner() -> None:
    """In order, also with what is for others; each once."""
    held = Held()
    held.ask(put(THERE, b"1"), put(HERE), put(THERE, b"2"), put(ELSEWHERE))
    assert held.statuses() == []
    held.pass_time(HOLD_MS - 1)
    assert held.statuses() == []
    held.find()
    assert held.statuses() == [200] * 4
    held.find()
    assert [held.take().body for _ in range(2)] == [b"1", b"2"]
    assert held.take().status == 204
    assert held.client.peer.held_bytes == 0


def test_what_waits_for_too_long_is_refused() -> None:
    held = Held()
    held.ask(put(THERE), put(HERE))
    held.pass_time(HOLD_MS)
    first, second = held.client.replies()
    assert (first.status, first.headers["retry-after"], second.status) == (503, "1", 200)
    held.find()
    assert held.edges.workers[1].clients == []  # nobody comes for what is over
    held.lose()
    held.ask(put(THERE))  # it waits anew
    assert held.statuses() == []
    held.find()
    assert held.statuses() == [200]
    assert held.client.peer.held_bytes == 0


def test_a_client_that_takes_nothing_meanwhile_is_not_refused() -> None:
    """The connection to the owner is not read then, so nobody knows whether it is reached."""
    held = Held()
    held.ask(put(THERE))
    most, held.client.peer.out_bytes_max = held.client.peer.out_bytes_max, -1
    held.pass_time(HOLD_MS)
    held.client.peer.out_bytes_max = most
    held.pass_time(HOLD_MS - 1)
    assert held.statuses() == []
    held.find()
    assert held.statuses() == [200]


def test_what_waits_is_refused_with_the_next_one_that_comes_too_late() -> None:
    """The process has stood still, and reads its sockets before it looks at what waits."""
    held = Held()
    held.ask(put(THERE))
    held.worker.lines.now_ms += HOLD_MS
    held.ask(put(THERE), put(HERE))
    assert held.statuses() == [503, 503, 200]
    assert held.client.peer.held_bytes == 0


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("waited", [True, False])
def test_an_owner_that_cannot_be_reached_is_none(silent: bool, waited: bool) -> None:
    """Its heartbeats are heard, and its port refuses, or says nothing: the time does not begin
    anew. There was none before, or only that one."""
    held = Held()
    held.worker.wires.silent = silent
    if waited:
        held.ask(put(THERE))
    held.worker.wires.down.clear()
    held.worker.wires.refusing.add(1)
    if not waited:
        held.ask(put(THERE))
    for _ in range(HOLD_MS // 1_000):
        assert held.statuses() == []
        held.pass_time(1_000)
    held.pass_time(0)
    assert held.statuses() == [503]
    assert held.client.peer.held_bytes == 0


def test_what_was_passed_on_is_refused_and_not_sent_again() -> None:
    held = Held()
    held.find()
    held.ask(http(f"/{THERE}?cmd=consume&timeout=60000"))
    held.lose()
    assert held.statuses() == [503]
    held.find()
    assert held.statuses() == []


def test_nothing_waits_where_that_is_not_wanted() -> None:
    held = Held(hold_ms=0)
    held.ask(put(THERE), put(HERE))
    assert held.statuses() == [503, 200]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/_health/live", 200),
        ("/_health/live/", 200),
        ("/?cmd=health&check=live", 200),
        ("/_health/ready", 503),
        ("/_health/all", 503),
        ("/?cmd=health", 503),
        ("/_health/other", 404),
    ],
)
def test_a_process_lives_while_a_shard_has_no_owner(target: str, status: int) -> None:
    """Whoever watches over it must not end it for that."""
    assert Held().client.request(http(target)).status == status


def test_figures_of_the_others_while_a_shard_has_no_owner() -> None:
    """What an operator looks at; a list of topics that is not whole would mislead clients."""
    held = Held()
    stats = msgspec.json.decode(held.client.request(http("/_stats")).body)
    assert sorted(stats["topics"]) == sorted((HERE, ELSEWHERE))
    metrics = held.client.request(http("/_metrics"))
    assert (metrics.status, b"zbus_topics 2\n" in metrics.body) == (200, True)
    assert held.client.request(http("/?cmd=server")).status == 503
    held.find()
    stats = msgspec.json.decode(held.client.request(http("/_stats")).body)
    assert sorted(stats["topics"]) == sorted((HERE, THERE, ELSEWHERE))


def test_a_stream_of_figures_ends_while_a_shard_has_no_owner() -> None:
    """Soon: its client comes again, and is told of all when there is an owner."""
    held = Held()
    held.ask(http("/_stats?interval=1000", "accept: text/event-stream"))
    text = held.client.received.decode()
    assert f'"{HERE}"' in text
    assert f'"{THERE}"' not in text
    held.client.received = b""
    held.edges.advance(1_000)
    for worker in held.edges.workers:
        worker.front.upkeep()
    held.edges.settle()
    assert b"event: delta" in held.client.received
    assert held.client.peer.closing


def test_an_owner_that_is_late_has_no_part_in_a_stream_of_figures() -> None:
    """The others have begun to tell, and go on when it is known that it does not."""
    held = Held()
    held.worker.wires.silent = True
    held.worker.wires.down.clear()
    held.worker.wires.refusing.add(1)
    held.ask(http("/_stats?interval=1000", "accept: text/event-stream"))
    assert b"event: stats" not in held.client.received
    held.worker.wires.refusing.clear()
    held.lose()
    assert f'"{HERE}"'.encode() in held.client.received
    assert f'"{THERE}"'.encode() not in held.client.received


def test_an_owner_that_ends_amid_its_answer_ends_the_connection() -> None:
    """Nothing can be told behind a half of an answer, so nothing is waited for."""
    held = Held()
    held.find()
    queue = f"/q{{{THERE}}}"
    target = "/queue/{}.json?queue={}&requestid=1"
    assert held.client.request(http(target.format("createqueue", queue))).status == 200
    held.ask(http(target.format("pull", queue) + "&timeout=20"), put(HERE))
    assert b"transfer-encoding: chunked" in held.client.received
    held.lose()
    peer = held.client.peer
    peer.out.clear()
    assert (peer.closing, peer.open_tickets, peer.finished) == (True, 0, True)


@pytest.mark.parametrize("lines", [("cmd: consume", f"topic: {THERE}", "timeout: 60000"), ()])
def test_a_client_that_leaves_while_it_waits_asks_for_nothing(lines: tuple[str, ...]) -> None:
    """It is told to be gone before its connection is closed, as by the loop."""
    held = Held()
    target = "/" if lines else f"/{THERE}?cmd=consume&timeout=60000"
    held.ask(http(target, *lines))
    held.forwarder.see_off(held.client.peer)
    held.client.peer.closed = True
    held.find()
    assert held.edges.workers[1].clients == []


def test_a_client_that_waits_and_leaves() -> None:
    held = Held()
    held.ask(put(THERE))
    held.client.vanish()
    held.forwarder.see_off(held.client._peers[0])
    assert not held.forwarder._waiting  # else it would be looked after for ever
    held.find()
    held.client = held.connect()
    assert held.take().status == 204


def test_a_client_that_leaves_before_the_owner_is_reached() -> None:
    """Nothing is done for it any more, and nothing of it stays there."""
    held = Held()
    held.worker.wires.silent = True
    held.worker.wires.down.clear()
    held.worker.wires.refusing.add(1)
    held.ask(put(THERE))
    held.client.vanish()
    held.forwarder.see_off(held.client._peers[0])
    held.worker.wires.refusing.clear()
    held.pass_time(1_000)
    assert held.edges.workers[1].clients == []
    held.client = held.connect()
    assert held.take().status == 204


def test_a_client_that_waits_and_sends_no_more() -> None:
    held = Held()
    held.ask(put(THERE))
    held.forwarder.see_off(held.client._peers[0])
    held.find()
    assert held.statuses() == [200]


@pytest.mark.parametrize("found", [True, False])
def test_messages_of_a_websocket(found: bool) -> None:
    held = Held()
    socket = upgraded(held.connect())
    message = cmd("produce", f"topic: {THERE}", "id: 7", body=b"by a frame")
    assert socket.exchange(socket.frame(message)) == []
    if found:
        held.find()
        assert [read_http(each.data).status for each in socket.messages()] == [200]
        assert held.take().body == b"by a frame"
    else:
        held.pass_time(HOLD_MS)
        assert socket.messages() == []
        assert socket.close == (1013, "a worker has ended and is starting again")


def test_who_follows_all_servers_by_a_websocket_is_told_to_come_again() -> None:
    """With a code, as for any other message there."""
    held = Held()
    held.find()
    socket = upgraded(held.connect())
    assert len(socket.exchange(socket.frame(cmd("track_sub", "id: 7")))) == 1
    held.lose()
    assert socket.messages() == []
    assert socket.close == (1013, "a worker has ended and is starting again")


@pytest.mark.parametrize("passed_on", [True, False])
def test_a_request_with_its_id_in_the_address_is_refused(passed_on: bool) -> None:
    """As one with a line for it is: only clients that speak the protocol of `cmd` as a line, which
    is answered by id alone, are disconnected."""
    held = Held()
    target = f"/{THERE}?cmd=consume&timeout=60000&id=a%20b"
    if passed_on:
        held.find()
        held.ask(http(target))
        held.lose()
    else:
        held.ask(http(target))
        held.pass_time(HOLD_MS)
    received = held.client.received
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in received
    assert b"\r\nid: a b\r\n" in received
    assert not held.client.peer.closing


@pytest.mark.parametrize("query", ["cmd=query", "cmd=query&id=7"])
def test_a_refusal_of_a_head_has_no_body(query: str) -> None:
    """Else the client would take it for the next answer."""
    held = Held()
    held.ask(http(f"/{THERE}?{query}", method="HEAD"))
    held.pass_time(HOLD_MS)
    received = held.client.received
    assert (received.count(b"HTTP/1.1 503 "), received.count(b"503: ")) == (1, 0)


def test_replies_to_ids_in_addresses_come_when_they_are_there() -> None:
    """Those of requests without one come in order, whatever waits under an id."""
    held = Held()
    held.find()
    held.ask(
        http(f"/{THERE}?cmd=consume&id=late"),
        http(f"/{HERE}?cmd=consume&timeout=10"),
        http(f"/{THERE}?cmd=query&id=b"),
        http(f"/{THERE}?cmd=query", "id: c"),
        http(f"/{THERE}?cmd=nothing&id=d"),
    )
    found = {reply.headers["id"]: reply.status for reply in held.client.replies()}
    assert found == {"b": 200, "c": 200, "d": 400}
    held.ask(http(f"/{THERE}?id=e", body=b"x", method="POST"))
    found = {reply.headers["id"]: reply.status for reply in held.client.replies()}
    assert found == {"late": 200, "e": 200}
    held.edges.advance(10)
    assert held.statuses() == [204]


def test_a_document_of_all_has_the_id_in_the_address() -> None:
    held = Held()
    reply = held.client.request(http("/?cmd=server&id=mine"))
    assert (reply.status, reply.headers["id"]) == (503, "mine")
    held.find()
    reply = held.client.request(http("/?cmd=server&id=mine"))
    assert (reply.status, reply.headers["id"]) == (200, "mine")
