"""Thousands of requests on one WebSocket, none of which waits for an answer (row 17)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from tests.dialects.adf.broker import broker, count_of, queue
from tests.dialects.adf.speakers import BINARY, FORMS, TEXT, Speaker, Told, WebSocket, binary
from tests.limits import checked
from tests.process.broker import BrokerProcess
from tests.wire.websocket_frames import frame

__all__ = ["broker", "queue"]


def encoder(form: str, queue: str) -> Callable[[str, int], bytes]:
    """Makes requests; a push has the number as its body."""

    def as_binary(action: str, number: int) -> bytes:
        id = b"%d" % number
        body = id if action.endswith("push") else None
        return frame(BINARY, binary(action, id, queue.encode(), body))

    def as_json(action: str, number: int) -> bytes:
        body = f',"body":"{number}"' if action.endswith("push") else ""
        text = f'"action":"{action}","requestid":"{number}","queue":"{queue}"{body}'
        return frame(TEXT, b"{%b}" % text.encode())

    return as_binary if form == "ws-bin" else as_json


def ask_all(speaker: Speaker, requests: bytes, count: int) -> list[Told]:
    """Send all of it, and read so many replies meanwhile."""
    socket = speaker.socket
    assert isinstance(socket, WebSocket)
    thread = Thread(target=socket.send, args=(requests,))
    thread.start()
    told = [speaker.next() for _ in range(count)]
    thread.join()
    return told


@pytest.mark.parametrize("count", [2_000, *checked([200_000])])
@pytest.mark.parametrize("form", FORMS[:2])
def test_all_are_answered_in_order(
    broker: BrokerProcess, form: str, queue: str, count: int
) -> None:
    speaker, encode = Speaker(broker.port, form), encoder(form, queue)
    ids = [str(number) for number in range(count)]

    def ask(action: str) -> list[Told]:
        requests = b"".join([encode(action, number) for number in range(count)])
        told = ask_all(speaker, requests, count)
        assert [one.id for one in told] == ids
        assert {(one.action, one.result) for one in told} == {(action, "ok")}
        return told

    pushed = [one.messageid for one in ask("rpush")]
    assert pushed == sorted(pushed, key=lambda id: id or 0)
    assert {one.counted for one in ask("count")} == {count}
    for duplications, action in enumerate(("rcancel", "delete")):
        pulled = ask("pull")
        assert [one.body for one in pulled] == [id.encode() for id in ids]
        assert {one.duplications for one in pulled} == {duplications}
        ask(action)
    ask("lpush")
    cleared = ask("clear")
    assert [cleared[0].counted, cleared[1].counted] == [count, 0]


@pytest.mark.parametrize("count", [2_000, *checked([200_000])])
@pytest.mark.parametrize("form", FORMS[:2])
def test_as_many_wait(broker: BrokerProcess, form: str, queue: str, count: int) -> None:
    """And are served in their order; when they end, nothing is lost."""
    speaker, stayer, encode = (
        Speaker(broker.port, form),
        Speaker(broker.port, "ws-bin"),
        encoder(form, queue),
    )
    requests = b"".join([encode("pull", number) for number in range(count)])
    assert ask_all(speaker, requests + encode("count", 0), 1)[0].counted == 0
    pushes = encoder("ws-bin", queue)
    half = count // 2
    assert len(ask_all(stayer, b"".join([pushes("rpush", n) for n in range(half)]), half)) == half
    served = [speaker.next() for _ in range(half)]
    assert [one.id for one in served] == [str(number) for number in range(half)]
    assert [one.body for one in served] == [b"%d" % number for number in range(half)]
    speaker.close()
    while count_of(stayer, queue) < half:
        pass
    assert stayer.ask("pull", "1", queue).body == b"0"
