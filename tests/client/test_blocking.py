"""The blocking client against a real broker."""

from __future__ import annotations

import contextlib
import gc
import inspect
import pydoc
import re
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import zbus
import zbus.client
from tests.limits import WAIT_S
from tests.process.broker import eventually
from zbus.client import BlockingClient, Delivery, GroupInfo, Message
from zbus.client.links.sockets import Socket

_names = count()


@pytest.fixture
def topic() -> str:
    return f"blocking-{next(_names)}"


@pytest.fixture
def bus(url: str) -> Iterator[BlockingClient]:
    with zbus.connect(url) as client:
        yield client


def bodies(messages: Any) -> list[str]:
    return [message.text for message in messages]


def test_produce_and_consume(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    stored = bus.produce(topic, "one", tag="a", key="k")
    assert (stored.offset, stored.durability, stored.duplicate) == (0, "disk", False)
    assert bus.produce_many(topic, [b"two", Message("three", tag="b")]).offset == 1
    with bus.consume(topic, "g", timeout_ms=0) as messages:
        found = list(messages)
    assert [(m.text, m.tag) for m in found] == [("one", "a"), ("two", ""), ("three", "b")]
    assert bus.query(topic, "g").leased_count == 0


def test_an_empty_group_ends_the_loop(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    with bus.consume(topic, "g", timeout_ms=20) as messages:
        assert list(messages) == []
        bus.produce(topic, "x")
        assert bodies(messages) == ["x"]


def test_break_counts_as_done(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    bus.produce_many(topic, ["0", "1", "2"])
    with bus.consume(topic, "g") as messages:
        for message in messages:
            if message.text == "1":
                break
    with bus.consume(topic, "g", timeout_ms=0) as messages:
        assert bodies(messages) == ["2"]


def test_an_exception_gives_it_back(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    bus.produce_many(topic, ["0", "1", "2"])

    def work() -> None:
        with bus.consume(topic, "g") as messages:
            for message in messages:
                if message.text == "1":
                    raise LookupError("of mine")

    with pytest.raises(LookupError, match="of mine"):
        work()
    with bus.consume(topic, "g", timeout_ms=0) as messages:
        assert [(m.text, m.retry) for m in messages] == [("1", 1), ("2", 1)]


def test_a_plain_loop(bus: BlockingClient, topic: str) -> None:
    """Without `with` it is not known why the loop ended: the current message comes again."""
    bus.declare(topic, "g", ack=True)
    bus.produce_many(topic, ["0", "1", "2"])
    for message in bus.consume(topic, "g"):
        if message.text == "1":
            break
    gc.collect()
    assert bodies(bus.consume(topic, "g", timeout_ms=0)) == ["1", "2"]
    eventually(lambda: bus.query(topic, "g").consumer_count == 0)


def test_by_hand(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    bus.produce_many(topic, ["0", "1", "2"])
    with bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as messages:
        found = list(messages)
        messages.ack(found[0])
        messages.nack(found[1])
        assert [(m.text, m.retry) for m in messages] == [("1", 1)]
        messages.ack(found[2])
    assert bus.query(topic, "g").leased_count == 1


def test_a_group_without_leases(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic)
    bus.produce_many(topic, ["0", "1", "2"])
    with bus.consume(topic) as messages:
        assert next(iter(messages)).text == "0"
    assert bodies(bus.consume(topic, timeout_ms=0)) == ["1", "2"]


def test_waiting_for_what_comes_later(url: str, bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    got: list[Delivery] = []
    ready = threading.Event()

    def read() -> None:
        with bus.consume(topic, "g") as messages:
            ready.set()
            for message in messages:
                got.append(message)
                if len(got) == 3:
                    return

    reader = threading.Thread(target=read)
    reader.start()
    assert ready.wait(WAIT_S)
    for number in range(3):
        bus.produce(topic, str(number))
    reader.join(WAIT_S)
    assert [message.text for message in got] == ["0", "1", "2"]


def test_threads_share_a_client(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic)
    wrong: list[object] = []

    def work(name: int) -> None:
        try:
            for number in range(50):
                bus.produce(topic, f"{name}/{number}")
                bus.ping()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []
    found = [delivery.text for delivery in bus.read(topic, count=1_000)]
    assert len(found) == 400
    for name in range(8):
        mine = [text for text in found if text.startswith(f"{name}/")]
        assert mine == [f"{name}/{number}" for number in range(50)]


def test_a_pipeline(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic)
    with bus.pipeline(in_flight_max=10) as pipe:
        pending = [pipe.produce(topic, str(number)) for number in range(333)]
        early = pending[5].result().offset
    assert early == 5
    assert [p.result().offset for p in pending] == list(range(333))
    assert all(p.done for p in pending)


def test_a_pipeline_tells_its_first_error_at_the_end(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic)
    pending: list[zbus.client.Pending[zbus.client.Stored]] = []

    def work() -> None:
        with bus.pipeline() as pipe:
            pending.extend(pipe.produce(name) for name in (topic, "nowhere", topic))

    with pytest.raises(zbus.client.NotFound, match="nowhere"):
        work()
    assert pending[2].result().offset == 1
    with pytest.raises(zbus.client.NotFound):
        pending[1].result()


def test_refusals_and_that_it_goes_on(bus: BlockingClient, topic: str) -> None:
    with pytest.raises(zbus.client.NotFound) as caught:
        bus.produce(topic, "x")
    assert caught.value.text == f"404: Topic({topic}) Not Found"
    bus.declare(topic)
    with pytest.raises(zbus.client.TooLarge):
        bus.produce(topic, b"x" * (17 << 20))  # the broker does not even read that
    assert bus.produce(topic, "fits").offset == 0
    with pytest.raises(zbus.client.NotFound), bus.consume(topic, "nobody") as messages:
        list(messages)


def test_an_exclusive_group(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True, exclusive=True)
    bus.produce(topic, "x")
    with bus.consume(topic, "g") as messages:
        next(iter(messages))
        with pytest.raises(zbus.client.Forbidden):
            bus.pull(topic, "g")
    assert bus.pull(topic, "g") == []


def test_large_bodies(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    large = bytes(range(256)) * 4096
    for _ in range(5):
        bus.produce(topic, large)
    with bus.consume(topic, "g", timeout_ms=0) as messages:
        assert [message.body == large for message in messages] == [True] * 5


def test_a_unix_path_or_port_where_nobody_is(tmp_path: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(zbus.client.ConnectionLost, match=f"no connection to 127.0.0.1:{port}"):
            zbus.connect(f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=r"nobody\.sock"):
        zbus.connect(f"unix:{tmp_path}/nobody.sock")
    with pytest.raises(ValueError, match="not of the form"):
        zbus.connect("ftp://127.0.0.1")
    with pytest.raises(TypeError):
        zbus.connect("http://127.0.0.1", tokn="x")  # type: ignore[call-arg]


def test_a_peer_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with zbus.connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05) as bus:
            with pytest.raises(zbus.client.Timeout, match=r"within 0\.05 s"):
                bus.ping()
            with pytest.raises(TimeoutError):
                bus.ping(timeout_s=0.01)


def test_a_closed_client(url: str) -> None:
    bus = zbus.connect(url)
    assert repr(bus) == f"<BlockingClient {url}>"
    bus.close()
    with pytest.raises(zbus.client.ConnectionLost, match="closed"):
        bus.ping()


def test_closing_wakes_who_waits(url: str, topic: str) -> None:
    bus = zbus.connect(url)
    bus.declare(topic)
    ended = threading.Event()

    def wait() -> None:
        try:
            bus.pull(topic, wait_ms=60_000)
        except zbus.client.ConnectionLost:
            ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not bus.query(topic, topic).consumer_count:
        pass
    bus.close()
    assert ended.wait(WAIT_S)
    thread.join(WAIT_S)


def interrupt_when(ready: Callable[[], object], unheard: bool = False) -> threading.Thread:
    """Ctrl-C, as soon as something is the case; the thread is to be started. Unheard, it ends no
    system call of the main thread, as one that comes just before the call begins."""
    main = threading.get_ident()

    def press() -> None:
        while not ready():
            pass
        signal.pthread_kill(threading.get_ident() if unheard else main, signal.SIGINT)

    return threading.Thread(target=press)


def test_interrupted_with_requests_under_way(url: str, bus: BlockingClient, topic: str) -> None:
    """Nothing is lost by that, and nothing is done twice, wherever it hits: what was being sent is
    sent again on another connection, and the broker knows it."""
    empty = f"{topic}-empty"  # where nothing comes, so that the pull waits
    bus.declare(topic)
    bus.declare(empty)
    with zbus.connect(url) as other, bus.pipeline() as pipe:
        calls = [pipe.produce(topic, str(number)) for number in range(10)]
        thread = interrupt_when(lambda: other.query(empty, empty).consumer_count)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            bus.pull(empty, empty, wait_ms=60_000)
        thread.join(WAIT_S)
        assert [call.result().offset for call in calls] == list(range(10))
        assert bus.query(topic).message_depth == 10


@pytest.mark.parametrize("unheard", [False, True])
def test_interrupted_while_it_waits(unheard: bool) -> None:
    """The connection stays: other requests on it are answered."""
    interrupted = threading.Event()

    def serve(connection: socket.socket) -> None:
        received = b""
        while len(ids := re.findall(rb"\r\nid: (\S+)\r\n", received)) < 11:
            received += connection.recv(10_000)
        assert interrupted.wait(WAIT_S)
        for offset, id in enumerate(ids[:10]):
            head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nid: %b\r\noffset: %d\r\n\r\n"
            connection.sendall(head % (id, offset))
        while connection.recv(10_000):
            pass

    def waits() -> bool:
        return sys._current_frames()[main].f_code is Socket.wait.__code__

    main = threading.get_ident()
    with Peer(serve) as url, zbus.connect(url, retries=0) as bus, bus.pipeline() as pipe:
        calls = [pipe.produce("T", str(number)) for number in range(10)]
        thread = interrupt_when(waits, unheard)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            bus.pull("T", wait_ms=60_000)
        thread.join(WAIT_S)
        interrupted.set()
        assert [call.result().offset for call in calls] == list(range(10))


def test_a_consumer_that_is_interrupted(url: str, bus: BlockingClient, topic: str) -> None:
    bus.declare(topic, "g", ack=True)
    bus.produce_many(topic, ["0", "1"])
    found = []

    def state() -> GroupInfo:
        return bus.query(topic, "g")

    thread = interrupt_when(lambda: not state().leased_count)  # all is acknowledged

    def work() -> None:
        with bus.consume(topic, "g") as messages:
            for message in messages:
                found.append(message.text)
                if message.text == "1":
                    thread.start()
                    messages.ack(message)

    with pytest.raises(KeyboardInterrupt):
        work()
    thread.join(WAIT_S)
    assert found == ["0", "1"]
    assert (state().message_count, state().leased_count, state().consumer_count) == (0, 0, 0)


class Peer:
    """A server that is no broker: what it does with its first connection is told by a function."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.serve = serve
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self.listener.accept()[0] as connection:
            self.serve(connection)

    def __enter__(self) -> str:
        self.thread.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        self.thread.join(WAIT_S)
        self.listener.close()


def test_an_impatient_request_cuts_no_other_short() -> None:
    """However long the peer takes: what is sent after a request of 10 ms has its own time."""
    large = b"x" * (16 << 20)

    def serve(connection: socket.socket) -> None:
        select.select([], [], [], 0.3)  # the peer is busy
        received = b""
        while len(ids := re.findall(rb"\r\nid: (\S+)\r\n", received)) < 2:
            received += connection.recv(4_000)
        size = len(received)
        while size < len(large):
            size += len(connection.recv(1 << 20))
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nid: %b\r\n\r\n" % ids[1])
        while connection.recv(1 << 20):
            pass

    with Peer(serve) as url, zbus.connect(url, retries=0) as bus:
        with pytest.raises(zbus.client.Timeout):
            bus.ping(timeout_s=0.01)
        bus.produce("T", large, timeout_s=WAIT_S)


def test_another_kind_of_server() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n")

    with (
        Peer(serve) as url,
        zbus.connect(url, retries=0) as bus,
        pytest.raises(zbus.client.ProtocolError, match="status 302"),
    ):
        bus.ping()


def test_a_deadline_holds_while_it_connects() -> None:
    """A host that does not even refuse: connections to a full backlog are not answered."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        bus = BlockingClient(
            f"http://127.0.0.1:{full.getsockname()[1]}",
            zbus.client.Options(connect_timeout_s=60),
        )
        with pytest.raises(zbus.client.Timeout, match=r"within 0\.1 s$"):
            bus.ping(timeout_s=0.1)


def test_the_help_of_a_method_says_how_to_call_it_and_what_it_returns() -> None:
    methods: list[tuple[Callable[..., Any], str]] = [
        (BlockingClient.produce, "Stored"),
        (zbus.client.Client.produce, "Stored"),
        (zbus.client.Pipeline.produce, "Pending[Stored]"),
        (zbus.client.AsyncPipeline.produce, "AsyncPending[Stored]"),
    ]
    for make, returns in methods:
        signature = inspect.signature(make)
        assert list(signature.parameters)[:3] == ["self", "topic", "body"]
        assert signature.return_annotation == returns
        assert (make.__doc__ or "").startswith("Store one message")
    bus = BlockingClient("http://127.0.0.1:1", zbus.client.Options())
    text = " ".join(pydoc.plain(pydoc.render_doc(bus.query)).split())
    assert "topic: 'str | None' = None, group: " in text
    assert "Request" not in text


def test_files_that_are_not_there() -> None:
    """Not taken for a broker that is not there."""
    with pytest.raises(FileNotFoundError):
        zbus.connect("https://127.0.0.1:1", ca="/no/such/file")
    with pytest.raises(FileNotFoundError):
        zbus.connect_async("https://127.0.0.1:1", ca="/no/such/file")
