"""The promise about the disk, through the whole server: the real loop, sockets and sync thread,
only the sync itself is in the test's hands."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.core.support import Box, Probe
from tests.limits import WAIT_S
from tests.storage.support import Loop
from zbus.config import Config
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.patterns.completions import Source
from zbus.server.loop.loop import Loop as ServerLoop
from zbus.server.process.serve import Server
from zbus.storage.local.files import OpenMode, OsFiles


class HeldFiles(OsFiles):
    """Syncs wait for `allowed`, and fail if told so."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Event()
        self.allowed.set()
        self.fails = False
        self.makes_no_files = False

    def open(self, path: Path, mode: OpenMode) -> int:
        if self.makes_no_files and mode == "create":
            raise OSError(5, "Input/output error")
        return super().open(path, mode)

    def sync(self, file: int) -> None:
        assert self.allowed.wait(WAIT_S)
        if self.fails:
            raise OSError(5, "Input/output error")
        super().sync(file)


@asynccontextmanager
async def serving(tmp_path: Path, files: HeldFiles) -> AsyncIterator[tuple[Server, trio.Event]]:
    """A server, and an event for when it serves no more."""
    server = Server(Config(port=0, data_dir=tmp_path / "data"), files)
    ended = trio.Event()

    async def run() -> None:
        await server.run()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield server, ended
        server.mailbox.post(server.loop.stop)
    server.close()


class Counting(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def sync(self, file: int) -> None:
        super().sync(file)
        self.count += 1


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_start_notes_what_is_lost_of_what_was_settled_before_it_serves(
    tmp_path: Path, by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is there, and the message that it settled was in memory."""
    monkeypatch.setattr(ServerLoop, "may_sync", by_itself)  # else another thread does
    loop, data = Loop(), tmp_path / "data"
    box = Box(loop.local(data))
    box.declare(TopicOptions("In", durability="memory"), "g", GroupOptions(lease=True))
    box.declare(TopicOptions("Out", durability="os"))
    box.settle()
    box.put(b"0", topic="In")
    box.settle()
    assert box.take(topic="In") == [b"0"]
    stored, source = Probe(), Source(box.group("g", "In"), box.partition("In"), [range(1)])
    box.broker.put_and_ack(
        box.partition("Out"), stored, Chunk.of([Message(b"1", body=b"1")]), [source]
    )
    box.broker.commit()
    assert stored.fine
    box.journal.close()  # before the completion is closed
    counts = []
    for _ in range(2):
        files = Counting()
        server = Server(Config(port=0, data_dir=data), files)
        completions = server.broker.topics["out"].partitions[0].completions
        assert completions is None or not (completions.open or completions.closed)
        counts.append(files.count)
        server.close()
    assert counts[0] == counts[1] + 1


def get(target: str, body: str = "") -> bytes:
    start = f"GET {target} HTTP/1.1\r\nhost: localhost\r\n"
    return f"{start}content-length: {len(body)}\r\n\r\n{body}".encode()


async def answer(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(WAIT_S):
        return bytes(await stream.receive_some())


def nothing_came(stream: trio.SocketStream) -> bool:
    try:
        stream.socket._sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)  # type: ignore[attr-defined]
    except BlockingIOError:
        return True
    return False


async def test_while_the_sync_is_held_no_reply_leaves(tmp_path: Path) -> None:
    files = HeldFiles()
    async with serving(tmp_path, files) as (server, _), AsyncExitStack() as stack:
        producer, consumer, other = [
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", server.port))
            for _ in range(3)
        ]
        await producer.send_all(get("/T?cmd=declare"))
        assert b"200 OK" in await answer(producer)
        files.allowed.clear()
        await consumer.send_all(get("/T?cmd=consume"))
        await producer.send_all(get("/T?cmd=produce", "hello") * 100)
        depth = b""
        while b'"messageDepth":100' not in depth:  # they are done in turns
            await other.send_all(get("/T?cmd=query"))
            depth = await answer(other)
        # The loop goes on: others are served, many turns pass, and still nothing is told.
        for _ in range(50):
            await other.send_all(get("/T?cmd=query"))
            assert b'"messageDepth":100' in await answer(other)
        assert nothing_came(producer), "a produce was answered before its sync"
        assert nothing_came(consumer), "a message was handed out before its sync"
        files.allowed.set()
        assert b"durability: disk" in await answer(producer)
        assert b"\r\n\r\nhello" in await answer(consumer)


async def test_after_a_failed_sync_nothing_is_acknowledged(tmp_path: Path) -> None:
    files = HeldFiles()
    async with (
        serving(tmp_path, files) as (server, ended),
        await trio.open_tcp_stream("127.0.0.1", server.port) as producer,
    ):
        await producer.send_all(get("/T?cmd=declare"))
        assert b"200 OK" in await answer(producer)
        files.fails = True
        await producer.send_all(get("/T?cmd=produce", "hello"))
        with trio.fail_after(WAIT_S):
            await ended.wait()
        assert "Input/output error" in server.loop.failure
        assert nothing_came(producer)


async def test_a_write_that_fails_behind_a_sync_ends_the_server_cleanly(tmp_path: Path) -> None:
    """Emptying a topic begins a new file when its sync is done, outside of any request."""
    files = HeldFiles()
    async with (
        serving(tmp_path, files) as (server, ended),
        await trio.open_tcp_stream("127.0.0.1", server.port) as client,
    ):
        await client.send_all(get("/T?cmd=declare"))
        assert b"200 OK" in await answer(client)
        files.makes_no_files = True
        await client.send_all(get("/T?cmd=empty"))
        with trio.fail_after(WAIT_S):
            await ended.wait()
        assert "Input/output error" in server.loop.failure
        assert nothing_came(client)
