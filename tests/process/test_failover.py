"""A dialogue of each dialect with three nodes, amid which the owner of its topic is killed: what
docs/howto/cluster.md says that clients see is what they see.

Each is told in three parts. Before the first `yield` all is well. Before the second one the owner
stands still: a request that an edge passes on over a connection which the client has used before is
sent, and not answered. Then the owner is killed. The client uses nodes that are not the owner's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import trustme

import zbus
from tests.dialects.adf.broker import count_of, pull, push
from tests.dialects.adf.speakers import CLOSE, Speaker
from tests.dialects.camellia.words import verb
from tests.dialects.mqcloud.words import TOPIC as ORDERS
from tests.dialects.mqcloud.words import get, told
from tests.limits import WAIT_S
from tests.process import stock_clients
from tests.process.broker import Answer, Wire, request
from tests.process.endpoint import EndpointProcess, wait_for
from tests.process.nats import NatsCluster, find_program
from tests.process.test_camellia import ProcessTalk as CamelliaTalk
from tests.process.test_events import ACCEPT
from tests.process.test_mqcloud import ProcessTalk as MqcloudTalk
from tests.process.test_nodes import SHARDS, Member, start_node
from tests.process.websocket import WebSocket
from zbus.dialects.adf.queues import topic_name
from zbus.protocol.places import shard_of

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

A, B = "1:10008", "1:56001"  # nodes of SEMQ
ADF_HTTP, ADF_WEBSOCKET = "/http", "/websocket"
SENT_S = 0.2
"""What a client has sent has reached its edge, and been passed on."""


class Cluster:
    """Three nodes."""

    def __init__(self, folder: Path, servers: NatsCluster) -> None:
        authority, options = trustme.CA(), ("--set", f"semq_nodes={A},{B}")
        engine = servers.engine("failover")
        self.nodes = [start_node(folder, engine, name, authority, *options) for name in "abc"]
        for node in self.nodes:
            node.wait_for("/_health/all", 200)

    def owner(self, topic: str) -> tuple[Member, int]:
        """The node, and its process."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            for node in self.nodes:
                with suppress(StopIteration, OSError):
                    return node, node.owner_of(shard_of(topic, SHARDS))
            time.sleep(0.02)
        raise AssertionError(f"nobody owns {topic}")


@attrs.define
class Place:
    """What a dialogue is given."""

    cluster: Cluster
    topic: str
    folder: Path
    ports: list[int] = attrs.field(init=False)  # of nodes that do not own the topic

    def __attrs_post_init__(self) -> None:
        owner, _ = self.cluster.owner(self.topic)
        self.ports = [node.port for node in self.cluster.nodes if node is not owner]

    @property
    def port(self) -> int:
        return self.ports[0]

    def connect(self) -> Wire:
        return Wire(self.port)

    def get(self, target: str, *lines: str, body: bytes = b"") -> Answer:
        """Through the other node."""
        wire = Wire(self.ports[-1])
        try:
            return wire.get(target, *lines, body=body)
        finally:
            wire.close()


Dialogue = Callable[[Place], Iterator[None]]


def refused(answer: Answer) -> bool:
    """As the page says it."""
    return (answer.status, answer.headers.get("retry-after")) == (503, "1")


def ok(answer: Answer) -> Answer:
    assert answer.status == 200, answer
    return answer


def everything(place: Place, group: str = "") -> list[bytes]:
    """What a group has to give."""
    found: list[bytes] = []
    target = f"/{place.topic}/{group}?cmd=consume&timeout=0"
    while (answer := place.get(target)).status != 204:
        found.append(ok(answer).body)
    return found


# -- zbus ------------------------------------------------------------------------------------------


def over_http(place: Place) -> Iterator[None]:
    target = f"/{place.topic}"
    put = f"{target}?cmd=produce"
    ok(place.get(f"{target}?cmd=declare&group=g&ack=true&group_lease=60s&group_keep_attempts=true"))
    ok(place.get(f"{target}?cmd=declare&group=idle"))
    client, waiting = place.connect(), place.connect()
    for body in (b"leased", b"free"):
        ok(client.get(put, body=body))
    leased = ok(client.get(f"{target}/g?cmd=consume"))
    for body in (b"leased", b"free"):
        assert ok(waiting.get(f"{target}/idle?cmd=consume")).body == body
    waiting.send(request(f"{target}/idle?cmd=consume&timeout=60000"))
    yield
    keyed = request(f"{put}&idempotency_key=1", body=b"keyed")
    client.send(keyed)
    client.send(request(f"{target}/g?cmd=consume&timeout=0"))
    yield
    held = ok(place.get(put, body=b"held"))
    assert held.headers["durability"] == "replicated"
    assert refused(client.read())
    assert refused(client.read()), "nothing is asked twice, not even what changes nothing"
    again = waiting.read()
    assert refused(again) or again.status == 204
    client.send(keyed)
    ok(client.read())
    got = [ok(client.get(f"{target}/g?cmd=consume&timeout=5000")).body for _ in range(3)]
    assert (got[0], sorted(got)) == (b"free", [b"free", b"held", b"keyed"])
    none = client.get(f"{target}/g?cmd=consume&timeout=0")
    assert none.status == 204, "the lease goes on, and a key is stored once"
    ok(place.get(f"{target}/g?cmd=ack&offset={leased.headers['offset']}"))


def over_a_websocket(place: Place) -> Iterator[None]:
    """An edge does not know which answers are open: who has asked the former owner anything has to
    come again. Another client stays."""
    topic = place.topic
    ok(place.get(f"/{topic}?cmd=declare"))
    waiting, asked, idle = (WebSocket(place.connect()) for _ in range(3))
    waiting.tell({"cmd": "consume", "topic": topic, "id": "pull", "timeout": 60_000})
    assert asked.ask({"cmd": "query", "topic": topic})["status"] == 200
    assert idle.ask({"cmd": "ping"})["status"] == 200
    yield
    asked.tell({"cmd": "produce", "topic": topic, "body": "sent"})
    yield
    held = idle.ask({"cmd": "produce", "topic": topic, "body": "held"})
    assert held["status"] == 200, held
    for socket in (waiting, asked):
        assert socket.read_close()[0] == 1013
    delivery = idle.ask({"cmd": "consume", "topic": topic, "timeout": 5_000})
    assert (delivery["status"], delivery["body"]) == (200, "held")


def events(place: Place) -> Iterator[None]:
    target = f"/{place.topic}"
    ok(place.get(f"{target}?cmd=declare"))
    stream = place.connect()
    stream.send(request(f"{target}?cmd=consume", ACCEPT))
    said = _until(stream, b"id: -\n\n")
    ok(place.get(f"{target}?cmd=produce", body=b"before"))
    said = _until(stream, b"data: before\n\n")
    yield
    yield
    ok(place.get(f"{target}?cmd=produce", body=b"between"))
    said = b""
    while piece := stream.sock.recv(1 << 16):
        said += piece
    assert b"between" not in said
    again = place.connect()
    again.send(request(f"{target}?cmd=consume", ACCEPT, "last-event-id: 0"))
    assert b"before" not in _until(again, b"data: between\n\n")


def _until(stream: Wire, mark: bytes) -> bytes:
    said = b""
    while mark not in said:
        piece = stream.sock.recv(1 << 16)
        assert piece, said
        said += piece
    return said


# -- the others ------------------------------------------------------------------------------------


def adf_over_http(place: Place) -> Iterator[None]:
    """Each request has a connection of its own, so nothing is sent to one that stands still."""
    speaker, other = (Speaker(port, "http-json") for port in place.ports)
    push(speaker, ADF_HTTP, b"1", b"2", b"3")
    assert pull(speaker, ADF_HTTP, "a", "b") == [b"1", b"2"]
    assert speaker.ask("delete", "a", ADF_HTTP).result == "ok"
    yield
    held = speaker.tell("rpush", "c", ADF_HTTP, b"held")
    time.sleep(SENT_S)
    yield
    assert held.take().result == "ok"
    assert_all_is_back(other, ADF_HTTP, b"held")


def adf_over_a_websocket(place: Place) -> Iterator[None]:
    """A client that has asked the former owner anything has to come again."""
    speaker, other = (Speaker(port, "ws-bin") for port in place.ports)
    push(speaker, ADF_WEBSOCKET, b"1", b"2", b"3")
    assert pull(speaker, ADF_WEBSOCKET, "a", "b") == [b"1", b"2"]
    assert speaker.ask("delete", "a", ADF_WEBSOCKET).result == "ok"
    yield
    speaker.tell("rpush", "c", ADF_WEBSOCKET, b"sent")
    yield
    push(other, ADF_WEBSOCKET, b"held")
    assert speaker.socket is not None
    assert speaker.socket.exactly(2)[0] & 15 == CLOSE
    assert_all_is_back(other, ADF_WEBSOCKET, b"held")


def assert_all_is_back(speaker: Speaker, queue: str, last: bytes) -> None:
    """No lease of Adf outlives an owner."""
    told = [speaker.ask("pull", f"{number}", queue) for number in range(3)]
    assert [(each.body, each.duplications) for each in told] == [(b"2", 1), (b"3", 0), (last, 0)]
    assert count_of(speaker, queue) == 0


def camellia(place: Place) -> Iterator[None]:
    topic = place.topic
    talk, other = CamelliaTalk(place), CamelliaTalk(place)  # type: ignore[arg-type]
    held, free = talk.send(topic, msg="leased"), talk.send(topic, msg="free")
    later = talk.send(topic, msg="later", delayMillis=600_000, msgId="later")
    [leased] = talk.pull(topic, ackTimeoutMillis=600_000)
    assert leased["msgId"] == held["msgId"]
    assert other.status(free) == 1 or True
    yield
    talk._wire.send(verb("ackMsg", topic=topic, msgId=free["msgId"], ack="true"))
    yield
    assert refused(talk._wire.read())
    assert other.send(topic, msg="held")["msg"] == "held"
    assert other.send(topic, msg="again", msgId="later")["triggerTime"] == later["triggerTime"]
    found = other.poll(topic, longPollingTimeoutMillis=10_000, batch=10).messages()
    found += other.pull(topic, batch=10)
    assert [message["msg"] for message in found] == ["free", "held"]
    other.ack(leased)
    assert other.status(held) == 4


def mqcloud(place: Place) -> Iterator[None]:
    talk = MqcloudTalk(place)  # type: ignore[arg-type]
    talk.begin()
    for body in ("1", "2", "3"):
        talk.produce(body)
    leased = talk.message(maxPullSize=1, consumeTimeout=60)
    wire = place.connect()
    fields = {"topic": ORDERS, "consumer": "billing"}
    ok(wire.get("/?cmd=ping"))
    yield
    wire.send(get("/mq/message", **fields))
    yield
    talk.produce("held")
    assert talk.ack(leased["requestId"])["message"][:3] == "ok "
    assert sorted(talk.drain() + told(leased)) == ["1", "2", "3", "held"]
    wire.close()


def semq(place: Place) -> Iterator[None]:
    """Two endpoints at different nodes, and the platform between them."""
    with (
        EndpointProcess(place.folder / "a", A, place.ports[0], direct=False) as a,
        EndpointProcess(place.folder / "b", B, place.ports[1], direct=False) as b,
        a.connect() as at_a,
        b.connect() as at_b,
    ):
        for number in range(3):
            at_a.send(B, str(number), ordered=True)
        first = at_b.take_one(wait_s=WAIT_S)
        assert first is not None
        yield
        for number in range(3, 6):
            at_a.send(B, str(number), ordered=True)
        first.done()
        yield
        for number in range(6, 9):
            at_a.send(B, str(number), ordered=True)
        found = [first.text]
        while len(found) < 9:
            message = at_b.take_one(wait_s=WAIT_S)
            assert message is not None
            found.append(message.text)
            message.done()
        assert found == [str(number) for number in range(9)]
        assert wait_for(lambda: a.is_empty() and b.is_empty())


# -- clients ---------------------------------------------------------------------------------------

PATIENT: dict[str, Any] = {"retries": 100, "timeout_s": WAIT_S}


def blocking_client(place: Place) -> Iterator[None]:
    """It sends a produce again that was refused, under its key."""
    with zbus.connect(f"http://127.0.0.1:{place.port}", **PATIENT) as bus:
        bus.declare(place.topic, "g", ack=True, lease_ms=60_000)
        bus.produce(place.topic, "0")
        with bus.pipeline() as pipe:
            pending = [pipe.produce(place.topic, "1")]
            pending[0].result()
            yield
            pending += [pipe.produce(place.topic, str(number)) for number in range(2, 50)]
            yield
            pending += [pipe.produce(place.topic, str(number)) for number in range(50, 100)]
        assert [each.result().offset for each in pending] == list(range(1, 100))
        with bus.consume(place.topic, "g", timeout_ms=1_000) as messages:
            assert [message.text for message in messages] == [str(number) for number in range(100)]


def async_client(place: Place) -> Iterator[None]:
    """A task that produces, and one that consumes, amid it."""
    begun, found = threading.Event(), list[str]()

    async def main() -> None:
        async with zbus.connect_async(f"http://127.0.0.1:{place.port}", **PATIENT) as bus:
            await bus.declare(place.topic, "g", ack=True, lease_ms=60_000)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce, bus)
                async with bus.consume(place.topic, "g", timeout_ms=10_000) as messages:
                    async for message in messages:
                        found.append(message.text)
                        if message.text == "10":
                            begun.set()
                        if message.text == "99":
                            break

    async def produce(bus: zbus.client.Client) -> None:
        for number in range(100):
            await bus.produce(place.topic, str(number))
            await anyio.sleep(0.01)

    thread = threading.Thread(target=anyio.run, args=(main,))
    thread.start()
    assert begun.wait(WAIT_S)
    yield
    yield
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert list(dict.fromkeys(found)) == [str(number) for number in range(100)]


def stock_python(place: Place) -> Iterator[None]:
    """zbuspy 0.11, which takes nodes for servers: their trackers say where the topic is."""
    client = stock_clients.zbuspy()
    if client.missing:
        pytest.skip(f"{client.missing}: make stock-clients")
    session = stock_clients.Session(client, place.folder, "nodes", f"127.0.0.1:{place.port}")
    try:
        session.expect("connected")
        yield
        yield
        session.go_on()
        session.finish()
    finally:
        session.close()


# -- all of them -----------------------------------------------------------------------------------

DIALOGUES: list[tuple[Dialogue, str]] = [
    (over_http, "http"),
    (over_a_websocket, "websocket"),
    (events, "events"),
    (adf_over_http, topic_name(ADF_HTTP.encode())),
    (adf_over_a_websocket, topic_name(ADF_WEBSOCKET.encode())),
    (camellia, "camellia"),
    (mqcloud, ORDERS),
    (semq, "semq"),
    (blocking_client, "blocking"),
    (async_client, "async"),
    (stock_python, "MyTopic"),
]
"""And the topic whose owner is killed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("failover")
    with NatsCluster(folder / "nats", sync="2m") as servers:
        cluster = Cluster(folder, servers)
        yield cluster
        logs = [node.log for node in cluster.nodes]
        for node in cluster.nodes:
            node.kill()
    assert not any("Traceback" in log for log in logs), logs


@pytest.mark.parametrize(("dialogue", "topic"), DIALOGUES)
def test_an_owner_is_killed_amid_it(
    cluster: Cluster, dialogue: Dialogue, topic: str, tmp_path: Path
) -> None:
    for node in cluster.nodes:
        node.wait_for("/_health/all", 200)
    steps = dialogue(Place(cluster, topic, tmp_path))
    next(steps)
    _, owner = cluster.owner(topic)
    os.kill(owner, signal.SIGSTOP)
    try:
        next(steps)
        time.sleep(SENT_S)
    finally:
        os.kill(owner, signal.SIGKILL)
    assert next(steps, "done") == "done"
