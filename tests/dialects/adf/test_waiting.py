"""Pulls that wait (rows 6 to 9 of the list of dialogues)."""

from __future__ import annotations

import time

import pytest

from tests.dialects.adf.broker import (
    broker,
    count_of,
    form,
    ids,
    new_id,
    pull,
    push,
    queue,
    speaker,
)
from tests.dialects.adf.speakers import FORMS, Http, Speaker
from tests.process.broker import BrokerProcess

__all__ = ["broker", "form", "queue", "speaker"]


def test_several_wait_and_are_served_in_their_order(
    broker: BrokerProcess, speaker: Speaker, queue: str
) -> None:
    names = ids(3)
    w0, w1, w2 = [speaker.tell("pull", id, queue).seated() for id in names]
    other = Speaker(broker.port, "ws-bin")
    push(other, queue, b"a", b"b")
    assert [w0.take().body, w1.take().body] == [b"a", b"b"]
    assert w2.is_quiet()
    assert count_of(speaker, queue) == 0
    assert speaker.ask("rcancel", names[0], queue).result == "ok"
    told = w2.take()
    assert (told.body, told.duplications) == (b"a", 1)


@pytest.mark.parametrize("action", ["lcancel", "rcancel"])
@pytest.mark.parametrize("waiter", FORMS)
def test_what_is_given_back_wakes_who_waits(
    broker: BrokerProcess, speaker: Speaker, queue: str, action: str, waiter: str
) -> None:
    id = new_id()
    push(speaker, queue, b"x")
    pull(speaker, queue, id)
    waiting = Speaker(broker.port, waiter).tell("pull", new_id(), queue).seated()
    assert speaker.ask(action, id, queue).result == "ok"
    assert waiting.take().body == b"x"


def test_first_come_first_served_across_all_forms(broker: BrokerProcess, queue: str) -> None:
    order = (*FORMS, *reversed(FORMS), *FORMS)
    waiting = [
        Speaker(broker.port, form).tell("pull", f"{queue}-{number}"[-32:], queue).seated()
        for number, form in enumerate(order)
    ]
    bodies = [b"%d" % number for number in range(len(order))]
    push(Speaker(broker.port, "ws-json"), queue, *bodies)
    assert [one.take().body for one in waiting] == bodies


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("gone", FORMS)
def test_whoever_is_gone_is_passed_over(
    broker: BrokerProcess, queue: str, gone: str, how: str
) -> None:
    """Nothing is lost, though it waited before the others."""
    leaver, stayer = Speaker(broker.port, gone), Speaker(broker.port, "ws-bin")
    first = [leaver.tell("pull", new_id(), queue).seated() for _ in range(2)]
    second = stayer.tell("pull", new_id(), queue).seated()
    for link in [leaver.socket] if leaver.socket else [one.http for one in first]:
        assert link is not None
        getattr(link, how)()
    assert count_of(stayer, queue) == 0  # by now the broker has heard of the end
    push(stayer, queue, b"x")
    assert second.take().body == b"x"
    push(stayer, queue, b"y")
    assert count_of(stayer, queue) == 1


@pytest.mark.parametrize("suffix", ["", ".json", ".bin"])
def test_the_head_of_a_pull_comes_at_once(broker: BrokerProcess, queue: str, suffix: str) -> None:
    http = Http(broker.port)
    http.request("GET", f"/queue/pull{suffix}?queue={queue}&requestid={new_id()}")
    status, headers = http.read_head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    assert http.is_quiet()
    push(Speaker(broker.port, "ws-bin"), queue, b"late")
    assert b"late" in http.read_body(headers)
    status, _, _ = http.ask("GET", f"/queue/count?queue={queue}&requestid=1")
    assert status == 200, "the connection is kept"


def test_a_pull_of_an_old_http_has_its_length(broker: BrokerProcess, queue: str) -> None:
    """HTTP/1.0 knows no chunks, so its head comes with the body."""
    http = Http(broker.port)
    http.send(f"GET /queue/pull?queue={queue}&requestid={new_id()} HTTP/1.0\r\n\r\n".encode())
    assert http.is_quiet()
    push(Speaker(broker.port, "ws-bin"), queue, b"late")
    status, headers = http.read_head()
    assert (status, headers["connection"]) == (200, "close")
    assert b"late" in http.read_body(headers)
    assert http.is_closed()


def test_a_pull_that_closes(broker: BrokerProcess, queue: str) -> None:
    """As the stock client asks."""
    http = Http(broker.port)
    target = f"/queue/pull?queue={queue}&requestid={new_id()}"
    http.request("GET", target, "Connection: close")
    _, headers = http.read_head()
    assert headers["connection"] == "close"
    push(Speaker(broker.port, "ws-bin"), queue, b"late")
    assert b"late" in http.read_body(headers)
    assert http.is_closed()


@pytest.mark.parametrize("form", ["ws-json", "http-json", "http-bin"])
def test_a_pull_may_say_how_long_it_waits(speaker: Speaker, queue: str) -> None:
    id = new_id()
    began = time.monotonic()
    assert speaker.ask("pull", id, queue, timeout=1).result == "pull timeout."
    assert time.monotonic() - began >= 1
    push(speaker, queue, b"x")
    assert pull(speaker, queue, id) == [b"x"], "the id is free"
    for wrong in ("x", "-1", "1.5", 86_401, 1 << 70):
        assert speaker.ask("pull", new_id(), queue, timeout=wrong).result == "timeout invalid."


def test_whoever_waits_for_a_queue_that_is_deleted_is_told(
    broker: BrokerProcess, speaker: Speaker, queue: str
) -> None:
    waiting = [speaker.tell("pull", id, queue).seated() for id in ids(3)]
    assert Speaker(broker.port, "ws-bin").ask("deletequeue", "1", queue).result == "ok"
    assert [one.take().result for one in waiting] == ["queue not exists."] * 3
    assert speaker.ask("count", "1", queue).result == "queue not exists."


@pytest.mark.parametrize("form", FORMS[:2])
def test_all_is_asked_before_anything_is_answered(speaker: Speaker, queue: str) -> None:
    """Each of them goes by those before it, though a push takes its time to be stored."""
    names = ids(3)
    asked = [
        *(speaker.tell("rpush", id, queue, id.encode()) for id in names),
        *(speaker.tell("pull", id, queue) for id in names),
        speaker.tell("count", "c1", queue),
        *(speaker.tell("delete", id, queue) for id in names[:2]),
        speaker.tell("lcancel", names[2], queue),
        speaker.tell("count", "c2", queue),
        speaker.tell("delete", names[2], queue),
        speaker.tell("clear", "c3", queue),
    ]
    told = [one.take() for one in asked]
    assert [one.result for one in told[:-2]] == ["ok"] * (len(told) - 2)
    assert [one.body for one in told[3:6]] == [id.encode() for id in names]
    assert [told[6].counted, told[10].counted, told[12].counted] == [0, 1, 1]
    assert told[11].result == "message was not pulled."
