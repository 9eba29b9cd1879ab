"""The program around the rules: links that are made again, direct ones, steps, the end."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSStream

from tests.limits import WAIT_S
from tests.semq.certificates import both, make
from tests.semq.shell import FakePlatform, Peer, Rules, Shell, fake_platform, free_port, shell
from zbus.semq import connect
from zbus.semq.endpoint.events import (
    Came,
    Close,
    Closed,
    Connect,
    Effect,
    Event,
    Frame,
    Opened,
    Submit,
    Transmit,
    Unreachable,
)
from zbus.semq.program.frames import encode_request
from zbus.semq.program.program import Outside, Program
from zbus.semq.program.sockets import pinned_context, same_fingerprint, server_context
from zbus.semq.protocol.words import PLATFORM


def says_hello(event: Event) -> Iterable[Effect]:
    """As an endpoint does, as far as it matters here."""
    if isinstance(event, Opened):
        yield Transmit(event.link, Frame({"cmd": "semq_hello", "node": "1:10008"}))


# -- the platform ---------------------------------------------------------------------------------


async def test_frames_go_both_ways(tmp_path: Path) -> None:
    rules = Rules(says_hello)
    async with fake_platform() as platform, shell(tmp_path, rules, port=platform.port) as running:
        peer = await platform.accept()
        assert await peer.read() == Frame({"cmd": "semq_hello", "node": "1:10008"})
        await peer.say({"id": "hello", "interval": "15000"})
        await peer.say({"cmd": "semq_deliver", "src": "1:5"}, b"body")
        assert running.rules is rules
        await rules.until(lambda: len(rules.of(Came)) == 2)
        link = rules.of(Opened)[0].link
        assert rules.of(Opened) == [Opened(link, PLATFORM)]
        assert rules.of(Came) == [
            Came(link, Frame({"id": "hello", "interval": "15000"}, b"", 200)),
            Came(link, Frame({"cmd": "semq_deliver", "src": "1:5"}, b"body", 200)),
        ]


async def test_hello_shows_the_token(tmp_path: Path) -> None:
    def rules(event: Event) -> Iterable[Effect]:
        yield from says_hello(event)
        if isinstance(event, Opened):
            yield Transmit(event.link, Frame({"cmd": "semq_send"}))

    async with fake_platform() as platform:  # noqa: SIM117
        async with shell(tmp_path, Rules(rules), port=platform.port, token="secret"):
            peer = await platform.accept()
            assert (await peer.read()).fields["token"] == "secret"
            assert (await peer.read()).fields == {"cmd": "semq_send"}


async def test_it_connects_again(tmp_path: Path) -> None:
    """Whoever ended it, and whatever came; links have numbers that never come again."""
    async with fake_platform() as platform:  # noqa: SIM117
        async with shell(tmp_path, Rules(says_hello), port=platform.port) as running:
            rules = running.rules
            peer = await platform.accept()
            await peer.read()
            await peer.stream.aclose()
            peer = await platform.accept()
            await peer.read()
            await peer.stream.send(b"HTTP/1.1 200 OK\r\ncontent-le")
            await peer.stream.aclose()
            peer = await platform.accept()
            await peer.read()
            await peer.stream.send(b"nonsense\r\n\r\n")
            assert await peer.at_end()
            peer = await platform.accept()
            await peer.read()
            await rules.closed(3)
            assert [event.link for event in rules.of(Opened)] == [1, 2, 3, 4]
            assert [event.link for event in rules.of(Closed)] == [1, 2, 3]
            assert not rules.of(Came)


async def test_a_platform_that_comes_later(tmp_path: Path) -> None:
    port = free_port()
    async with shell(tmp_path, Rules(says_hello), port=port) as running:
        async with connect(running.path) as semq:
            await semq.send("1:5", "written while there is nobody")
        async with fake_platform(port) as platform:
            peer = await platform.accept()
            assert (await peer.read()).command == "semq_hello"


async def test_a_link_that_the_rules_end(tmp_path: Path) -> None:
    """What they said before is sent before; what comes after is nobody's."""

    def rules(event: Event) -> Iterable[Effect]:
        if isinstance(event, Came):
            yield Transmit(event.link, Frame({"cmd": "semq_send"}, b"x" * 1_000_000))
            yield Close(event.link, "because")
            yield Transmit(event.link, Frame({"cmd": "too late"}))
            yield Close(event.link, "twice")
            yield Transmit(77, Frame({"cmd": "there is none"}))
            yield Close(77, "there is none")

    async with fake_platform() as platform:  # noqa: SIM117
        async with shell(tmp_path, Rules(rules), port=platform.port) as running:
            peer = await platform.accept()
            await peer.say({"cmd": "go"})
            assert len((await peer.read()).body) == 1_000_000
            assert await peer.at_end()
            await running.rules.closed()


# -- other endpoints ------------------------------------------------------------------------------


async def test_the_platform_sends_what_it_takes(tmp_path: Path) -> None:
    """However large a body is that this endpoint takes of others."""
    async with fake_platform() as platform, shell(tmp_path, port=platform.port) as running:
        peer = await platform.accept()
        await peer.say({"cmd": "semq_deliver"}, bytes(200_000))
        await running.rules.until(lambda: running.rules.of(Came))
        assert len(running.rules.of(Came)[0].frame.body) == 200_000


async def test_whoever_connects_is_nobody_yet(tmp_path: Path) -> None:
    def rules(event: Event) -> Iterable[Effect]:
        if isinstance(event, Came):
            yield Transmit(event.link, Frame({"cmd": "semq_hello", "nonce": "b"}))
            yield Transmit(event.link, Frame({"id": "7", "reason": "malformed"}, b"no", 400))

    async with shell(tmp_path, Rules(rules)) as running:
        stream = await anyio.connect_tcp("127.0.0.1", running.direct)
        async with stream:
            await stream.send(encode_request(Frame({"cmd": "semq_hello", "id": "1"})))
            data = b""
            while b"malformed" not in data:
                data += await stream.receive()
            assert data.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"cmd: semq_hello\r\nnonce: b\r\n" in data
            assert b"HTTP/1.1 400 Bad Request\r\n" in data
        await running.rules.closed()
        link = running.rules.of(Opened)[0].link
        assert running.rules.happened == [
            Opened(link, "", direct=True),
            Came(link, Frame({"cmd": "semq_hello", "id": "1"})),
            Closed(link),
        ]


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"POST /semq HT"])
async def test_bad_bytes_from_others(tmp_path: Path, data: bytes) -> None:
    async with shell(tmp_path) as running:
        stream = await anyio.connect_tcp("127.0.0.1", running.direct)
        async with stream:
            await stream.send(data)
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(WAIT_S):
                await stream.receive()
        await running.rules.closed()
        assert not running.rules.of(Came)


def wants(port: int, fingerprint: str = "", *addresses: str) -> Rules:
    """An endpoint that wants a direct connection, at the first message that is sent."""
    where = (*addresses, f"127.0.0.1:{port}")

    def rules(event: Event) -> Iterable[Effect]:
        if isinstance(event, Submit):
            yield Connect("1:5", where, fingerprint, "ticket", "key")

    return Rules(rules)


async def send(running: Shell) -> None:
    async with connect(running.path) as semq:
        await semq.send("1:5", "x")


async def test_a_direct_connection(tmp_path: Path) -> None:
    async with fake_platform() as other, shell(tmp_path, wants(other.port)) as running:
        await send(running)
        await other.accept()
        await running.rules.until(lambda: running.rules.of(Opened))
        link = running.rules.of(Opened)[0].link
        assert running.rules.of(Opened) == [Opened(link, "1:5", True, "ticket", "key", False)]


async def test_none_can_be_made(tmp_path: Path) -> None:
    rules = wants(free_port(), "", "nonsense", "127.0.0.1:x", "127.0.0.1:99999")
    async with shell(tmp_path, rules) as running:
        await send(running)
        await rules.until(lambda: rules.of(Unreachable))
        assert rules.of(Unreachable) == [Unreachable("1:5")]
        assert not rules.of(Opened)


async def tls_peer(platform: FakePlatform, context: ssl.SSLContext) -> Peer | None:
    peer = await platform.accept()
    try:
        stream = await TLSStream.wrap(
            peer.stream, server_side=True, ssl_context=context, standard_compatible=False
        )
    except (anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError):
        return None
    return Peer(stream)  # type: ignore[arg-type]


@pytest.mark.parametrize("right", [True, False])
async def test_the_certificate_that_was_told(tmp_path: Path, right: bool) -> None:
    """It is that one, or there is no connection."""
    context, fingerprint = server_context(both(tmp_path / "c.pem", *make("c")))
    told = fingerprint.upper() if right else "00" * 32
    async with fake_platform() as other, shell(tmp_path, wants(other.port, told)) as running:
        rules = running.rules
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tls_peer, other, context)
            await send(running)
            if right:
                await rules.until(lambda: rules.of(Opened))
                assert rules.of(Opened)[0].certain
            else:
                await rules.until(lambda: rules.of(Unreachable))
                assert not rules.of(Opened)


async def test_tls_where_others_connect(tmp_path: Path) -> None:
    context, fingerprint = server_context(both(tmp_path / "c.pem", *make("c")))
    async with shell(tmp_path, tls=context) as running:
        plain = await anyio.connect_tcp("127.0.0.1", running.direct)
        async with plain:
            await plain.send(encode_request(Frame({"cmd": "semq_hello"})))
            assert await Peer(plain).at_end()
        stream = await anyio.connect_tcp(
            "127.0.0.1",
            running.direct,
            tls=True,
            ssl_context=pinned_context(),
            tls_standard_compatible=False,
        )
        await stream.send(encode_request(Frame({"cmd": "semq_hello"})))
        await running.rules.until(lambda: running.rules.of(Came))
        assert len(running.rules.of(Opened)) == 1
        await anyio.aclose_forcefully(stream)
    assert same_fingerprint(fingerprint, ":".join(fingerprint[n : n + 2] for n in range(0, 64, 2)))


# -- steps ----------------------------------------------------------------------------------------


async def test_time_alone_makes_a_step(tmp_path: Path) -> None:
    rules = Rules()
    rules.due_ms = 0  # at once, as the first step says
    async with shell(tmp_path, rules):
        await rules.until(lambda: rules.steps == 2)
    assert not rules.happened


async def test_many_that_come_together_share_a_step(tmp_path: Path) -> None:
    async with shell(tmp_path) as running, connect(running.path) as semq:
        before = running.rules.steps
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(semq.send, "1:5", str(number))
        assert len(running.rules.rows) == 200
        assert running.rules.steps - before < 50
        bodies = {row.body for row in running.rules.rows.values()}
        assert bodies == {str(number).encode() for number in range(200)}


async def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """What comes over a link is as if it was lost: the link ends, and is made again."""
    rules = Rules(says_hello)
    async with fake_platform() as platform, shell(tmp_path, rules, port=platform.port):
        peer = await platform.accept()
        await peer.read()
        rules.full = "the disk is full"
        await peer.say({"cmd": "semq_deliver"}, b"first")
        assert await peer.at_end()
        peer = await platform.accept()  # nobody says hello there: that cannot be written either
        assert await peer.at_end()
        rules.full = ""
        peer = await platform.accept()
        while await peer.at_end():
            peer = await platform.accept()
        await peer.say({"cmd": "semq_deliver"}, b"second")
        await rules.until(lambda: rules.of(Came))
        assert [event.frame.body for event in rules.of(Came)] == [b"second"]
        opened = {event.link for event in rules.of(Opened)}
        assert {event.link for event in rules.of(Closed)} < opened


async def test_a_mistake_in_the_rules_ends_the_program() -> None:
    """What is on the disk is as it should be; whatever is in memory may not be."""

    class Wrong(Rules):
        def step(self, now_ms: int, events: object) -> list[Effect]:
            raise ZeroDivisionError

    program = Program(Wrong(), "1:1", Outside())
    with pytest.raises(ExceptionGroup) as raised:
        await program.run()
    assert raised.group_contains(ZeroDivisionError)


# -- the end --------------------------------------------------------------------------------------


async def test_the_end_in_good_order(tmp_path: Path) -> None:
    """The platform is told; who asked something is answered."""
    rules = Rules(says_hello)
    async with fake_platform() as platform, shell(tmp_path, rules, port=platform.port) as running:
        peer = await platform.accept()
        await peer.read()
        async with connect(running.path) as semq, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(semq.send, "1:5", str(number))
            await running.rules.until(lambda: running.rules.of(Submit))
            tasks.start_soon(partial(_stop, running))
        assert await peer.read() == Frame({"cmd": "semq_bye"})
        assert await peer.at_end()


async def _stop(running: Shell) -> None:
    running.program.stop()
