"""What applications ask of their endpoint, on both event loops, and what becomes of what they took
when they go."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.limits import WAIT_S
from tests.semq.certificates import both, certificate_of, make
from tests.semq.shell import NODE, Rules, Shell, shell
from zbus.client.errors import (
    BadRequest,
    Conflict,
    ConnectionLost,
    Full,
    Refused,
    TooLarge,
    TooMany,
)
from zbus.semq import Semq, connect, connect_blocking
from zbus.semq.endpoint.events import Effect, Event, Frame, Happened, Left, Submit, Take, Taken
from zbus.semq.program.encryption import Sealing, load_keys
from zbus.semq.program.frames import ResponseFrames, encode_request, limits
from zbus.semq.program.local import ASKS_MAX
from zbus.semq.protocol.words import Address

flavours = pytest.mark.parametrize("flavour", ["trio", "asyncio"])


def on(flavour: str, folder: Path, test: Callable[[Shell, Semq], Awaitable[None]]) -> None:
    """Run a test with one application."""

    async def main() -> None:
        with anyio.fail_after(WAIT_S):
            async with shell(folder) as running, connect(running.path) as semq:
                await test(running, semq)

    anyio.run(main, backend=flavour)


@flavours
def test_send_take_done(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        sent = await semq.send(
            "1:56001/bob", "hello", level=2, receipt=True, app_key="a,b", priority=3, user="alice"
        )
        assert (sent.record, sent.mid) == (1, "mid-1")
        submit = running.rules.of(Submit)[0]
        assert submit == Submit(
            submit.ask,
            Address("1:56001", "bob"),
            b"hello",
            level=2,
            ack2=True,
            app_key="a,b",
            priority=3,
            user="alice",
        )
        message = await semq.take_one()
        assert message is not None
        assert (message.row, message.text, message.source) == (1, "hello", NODE)
        assert (message.level, message.app_key, message.again) == (2, "a,b", False)
        await message.done()
        assert not running.rules.rows
        assert await semq.take_one(wait_s=0) is None

    on(flavour, tmp_path, test)


@flavours
def test_a_take_waits(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        found: list[str] = []

        async def take() -> None:
            async for message in semq.take():
                found.append(message.text)
                await message.done()
                if len(found) == 3:
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            for text in ("one", "two", "three"):
                await semq.send("1:1", text)
        assert found == ["one", "two", "three"]

    on(flavour, tmp_path, test)


@flavours
def test_a_take_that_is_given_up(flavour: str, tmp_path: Path) -> None:
    """Its time is over, or it is cancelled: the next message is for the next take."""

    async def test(running: Shell, semq: Semq) -> None:
        assert await semq.take_one(wait_s=0.01) is None
        with anyio.move_on_after(0.01):
            await semq.take_one()
        await running.rules.until(lambda: len(running.rules.of(Left)) == 2)
        assert not running.rules.takes
        await semq.send("1:1", "for the next")
        message = await semq.take_one(wait_s=WAIT_S)
        assert message is not None
        assert not message.again

    on(flavour, tmp_path, test)


@flavours
def test_whoever_goes_leaves_what_he_took(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        await semq.send("1:1", "first")
        async with connect(running.path) as other:
            taken = await other.take_one()
            assert taken is not None
            with pytest.raises(Conflict, match="with another connection"):
                await semq.done(taken.row)
        message = await semq.take_one()
        assert message is not None
        assert message.again
        await message.done()

    on(flavour, tmp_path, test)


@flavours
def test_back_and_with(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        await semq.send("1:1", "first")
        for fails in (True, False):
            message = await semq.take_one()
            assert message is not None
            assert message.again is not fails
            try:
                async with message:
                    assert not fails, "planned"
            except AssertionError:
                pass
        assert not running.rules.rows

    on(flavour, tmp_path, test)


@flavours
def test_the_endpoint_itself(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        assert await semq.stat() == {"command": "stat"}
        assert await semq.list(node="1:5", box="in") == {
            **{"command": "list", "node": "1:5", "box": "in"}
        }
        assert await semq.retry(row="7") == {"command": "retry", "row": "7"}
        assert await semq.dead() == {"command": "dead"}

    on(flavour, tmp_path, test)


@flavours
def test_what_becomes_of_messages(flavour: str, tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        return [Happened("received", 1, "")] if isinstance(event, Submit) else []

    async def main() -> None:
        with anyio.fail_after(WAIT_S):
            async with shell(tmp_path, Rules(answer)) as running, connect(running.path) as semq:
                with pytest.raises(RuntimeError, match="before watch"):
                    await semq.next_happened()
                watched = await semq.watch()
                await semq.send("1:1", "x")
                async for one in watched:
                    assert (one.kind, one.record) == ("received", 1)
                    return

    anyio.run(main, backend=flavour)


@flavours
def test_the_end_of_the_endpoint(flavour: str, tmp_path: Path) -> None:
    async def test(running: Shell, semq: Semq) -> None:
        async def take() -> None:
            with pytest.raises(ConnectionLost, match="lost the endpoint") as raised:
                await semq.take_one()
            assert raised.value.unknown

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await running.rules.until(lambda: running.rules.takes)
            running.program.stop()
        with pytest.raises(ConnectionLost):
            await semq.send("1:1", "too late")

    on(flavour, tmp_path, test)


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match="no endpoint at"):
        async with connect(tmp_path / "s"):
            pass
    with pytest.raises(ConnectionLost, match="no endpoint at"):
        connect_blocking(tmp_path / "s")


async def test_the_socket_is_for_one_user(tmp_path: Path) -> None:
    async with shell(tmp_path) as running:
        assert os.stat(running.path).st_mode & 0o777 == 0o600


async def test_blocking(tmp_path: Path) -> None:
    def ask(path: str) -> list[str]:
        with connect_blocking(path) as semq:
            semq.send("1:1", "one")
            semq.send("1:1", "two")
            found = []
            for message in semq.take(wait_s=0):
                with message:
                    found.append(message.text)
            assert semq.manage("stat") == {"command": "stat"}
            return found

    async with shell(tmp_path) as running:
        assert await anyio.to_thread.run_sync(ask, running.path) == ["one", "two"]
        assert not running.rules.rows


# -- what cannot be -------------------------------------------------------------------------------

BAD_SENDS = [
    ({"dst": ""}, 400, "dst is missing"),
    ({"dst": "nobody"}, 400, "is no node address"),
    ({"dst": "1:1/a/b"}, 400, "is no address"),
    ({"savefwd": "4"}, 400, "savefwd"),
    ({"savefwd": "x"}, 400, "savefwd"),
    ({"ack2": "yes"}, 400, "ack2"),
    ({"expires": "-1"}, 400, "expires"),
    ({"route": "pigeon"}, 400, "route"),
    ({"priority": "-1"}, 400, "priority"),
    ({"user": "a/b"}, 400, "is no address"),
    ({"encrypt": "1"}, 422, "no folder of certificates"),
    ({"cmd": "take", "wait_ms": "x"}, 400, "wait_ms"),
    ({"cmd": "take", "user": "a/b"}, 400, "is no address"),
    ({"cmd": "done"}, 400, "row is missing"),
    ({"cmd": "done", "row": "x"}, 400, "row"),
    ({"cmd": "back"}, 400, "take is missing"),
    ({"cmd": "semq_send"}, 400, "there is no cmd 'semq_send'"),
    ({"cmd": ""}, 400, "there is no cmd ''"),
]


@pytest.mark.parametrize(("fields", "status", "text"), BAD_SENDS)
async def test_what_is_asked_wrongly(
    tmp_path: Path, fields: dict[str, str], status: int, text: str
) -> None:
    async with shell(tmp_path) as running, await anyio.connect_unix(running.path) as stream:
        frame = Frame({"cmd": "send", "dst": "1:1", "id": "7", **fields})
        for _ in range(2):  # the connection goes on
            await stream.send(encode_request(frame))
            answer = ResponseFrames(limits()).receive(await stream.receive())[0]
            assert (answer.status, answer.fields["id"]) == (status, "7")
            assert text in answer.body.decode()
        assert not running.rules.of(Submit)


async def test_what_cannot_be_said(tmp_path: Path) -> None:
    async with shell(tmp_path) as running, connect(running.path) as semq:
        with pytest.raises(ValueError, match="control"):
            await semq.send("1:1", "x", app_key="a\r\nb")
        with pytest.raises(BadRequest):
            await semq.send("somewhere", "x")
        assert await semq.stat() == {"command": "stat"}


async def test_too_large(tmp_path: Path) -> None:
    """The stream cannot be understood any more: the connection ends."""
    async with shell(tmp_path, body_bytes_max=1_000) as running, connect(running.path) as semq:
        with pytest.raises((ConnectionLost, TooLarge)):
            await semq.send("1:1", b"x" * 1_001)
    assert not running.rules.of(Submit)


@pytest.mark.parametrize("data", [b"\x16\x03\x01\r\n\r\n", b"POST /semq HTTP/1.1\r\ncmd: se"])
async def test_bytes_that_are_no_frame(tmp_path: Path, data: bytes) -> None:
    async with shell(tmp_path) as running:
        async with await anyio.connect_unix(running.path) as stream:
            await stream.send(data)
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(WAIT_S):
                await stream.receive()
        async with connect(running.path) as semq:
            assert await semq.stat() == {"command": "stat"}


async def test_too_many_takes(tmp_path: Path) -> None:
    async with shell(tmp_path) as running, connect(running.path) as semq:
        async with anyio.create_task_group() as tasks:
            for _ in range(ASKS_MAX):
                tasks.start_soon(semq.take_one)
            await running.rules.until(lambda: len(running.rules.takes) == ASKS_MAX)
            with pytest.raises(TooMany):
                await semq.take_one()
            tasks.cancel_scope.cancel()
        await running.rules.until(lambda: not running.rules.takes)
        assert await semq.take_one(wait_s=0) is None


async def test_a_full_disk(tmp_path: Path) -> None:
    """Who sends is told; who waits goes on waiting; what was taken is there again."""
    rules = Rules()
    async with shell(tmp_path, rules) as running, connect(running.path) as semq:
        await semq.send("1:1", "first")
        other = connect(running.path)
        async with other:
            assert await other.take_one() is not None
            rules.full = "the disk is full"
            for attempt in (
                partial(semq.send, "1:1", "x"),
                partial(other.done, 1),
                semq.stat,
                partial(semq.take_one, wait_s=0),
            ):
                with pytest.raises(Full, match="the disk is full"):
                    await attempt()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(semq.take_one)
            steps = rules.steps
            await rules.until(lambda: rules.steps > steps)
            rules.full = ""
        assert rules.again == {1}
        assert rules.held


async def test_what_somebody_sent_is_no_word_of_ours(tmp_path: Path) -> None:
    """A field that an endpoint says of a message cannot come with it."""
    fields = {"src": "1:5", "again": "1", "fault": "x", "row": "99", "status": "9", "x": "y"}

    def answer(event: Event) -> list[Effect]:
        return [Taken(event.ask, 0, Frame(fields, b"x"))] if isinstance(event, Take) else []

    async with shell(tmp_path, Rules(answer)) as running, connect(running.path) as semq:
        message = await semq.take_one()
        assert message is not None
        assert message.fields == {"src": "1:5", "x": "y", "row": "0"}
        await message.done()  # of level 1: nobody has it but this application


# -- encrypted bodies -----------------------------------------------------------------------------


async def test_encrypted(tmp_path: Path) -> None:
    certificate_of(tmp_path / "all", "1:1", make("b")[0])
    key = both(tmp_path / "b.pem", *make("b"))
    sealing = Sealing(tmp_path / "all", load_keys([key]))
    async with shell(tmp_path, sealing=sealing) as running, connect(running.path) as semq:
        await semq.send("1:1", "secret", encrypt=True, app_key="k")
        submit = running.rules.of(Submit)[0]
        assert submit.sealed["encrypt"] == "1"
        assert b"secret" not in submit.body
        message = await semq.take_one()
        assert message is not None
        assert (message.text, message.fault) == ("secret", "")
        with pytest.raises(Refused, match="there is no certificate"):
            await semq.send("1:2", "secret", encrypt=True)


async def test_a_key_that_is_unknown(tmp_path: Path) -> None:
    """The message stays, and says what is wrong with it."""
    certificate_of(tmp_path / "all", "1:1", make("b")[0])
    other = load_keys([both(tmp_path / "b.pem", *make("b, later"))])
    sealing = Sealing(tmp_path / "all", other)
    async with shell(tmp_path, sealing=sealing) as running, connect(running.path) as semq:
        await semq.send("1:1", "secret", encrypt=True)
        for again in (False, True):
            message = await semq.take_one()
            assert message is not None
            assert message.again is again
            assert "whose key this node does not have" in message.fault
            assert b"secret" not in message.body
            message.back()
