"""Pushing, pulling and settling, in each form (rows 1 to 5 and 19 of the list of dialogues)."""

from __future__ import annotations

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
from tests.dialects.adf.speakers import FORMS, Http, Speaker, binary, read_binary
from tests.process.broker import BrokerProcess

__all__ = ["broker", "form", "queue", "speaker"]


def test_two_ends(speaker: Speaker, queue: str) -> None:
    given = push(speaker, queue, b"r1", b"r2", b"r3") + push(speaker, queue, b"l0", action="lpush")
    assert given == sorted(set(given)), "they grow"
    assert given[-1] < 1 << 53
    assert count_of(speaker, queue) == 4
    told = [speaker.ask("pull", id, queue) for id in ids(4)]
    assert [one.body for one in told] == [b"l0", b"r1", b"r2", b"r3"]
    assert [one.messageid for one in told] == [given[3], *given[:3]], "as when it was pushed"
    assert [one.duplications for one in told] == [0] * 4


def test_several_pushed_to_the_left_come_in_reverse(speaker: Speaker, queue: str) -> None:
    push(speaker, queue, b"r")
    push(speaker, queue, b"1", b"2", b"3", action="lpush")
    assert pull(speaker, queue, *ids(4)) == [b"3", b"2", b"1", b"r"]


def test_what_is_pulled_is_not_counted_and_not_cleared(speaker: Speaker, queue: str) -> None:
    push(speaker, queue, b"1", b"2", b"3", b"4")
    pulled = ids(4)
    pull(speaker, queue, *pulled)
    assert count_of(speaker, queue) == 0
    assert speaker.ask("clear", new_id(), queue).counted == 0
    for id in pulled:
        assert speaker.ask("delete", id, queue).result == "ok"
        assert speaker.ask("delete", id, queue).result == "message was not pulled."
    for action in ("delete", "lcancel", "rcancel"):
        assert speaker.ask(action, new_id(), queue).result == "message was not pulled."


def test_clear_says_how_many(speaker: Speaker, queue: str) -> None:
    push(speaker, queue, b"held", b"1", b"2", b"3")
    id = new_id()
    pull(speaker, queue, id)
    assert speaker.ask("clear", new_id(), queue).counted == 3
    assert speaker.ask("clear", new_id(), queue).counted == 0
    assert speaker.ask("rcancel", id, queue).result == "ok", "it may come back"
    assert pull(speaker, queue, new_id()) == [b"held"]


def test_what_is_given_back_to_the_left_comes_next(speaker: Speaker, queue: str) -> None:
    given = push(speaker, queue, b"r1", b"r2", b"r3", b"r4")
    p1, p2, p3 = ids(3)
    pull(speaker, queue, p1, p2, p3)
    for id in (p3, p2):
        assert speaker.ask("lcancel", id, queue).result == "ok"
    told = [speaker.ask("pull", id, queue) for id in (p3, p2)]
    assert [one.body for one in told] == [b"r2", b"r3"]
    assert [one.duplications for one in told] == [1, 1]
    assert [one.messageid for one in told] == given[1:3]
    assert speaker.ask("rcancel", p1, queue).result == "ok"
    told = [speaker.ask("pull", id, queue) for id in ids(2)]
    assert [one.body for one in told] == [b"r4", b"r1"], "to the right is the last"
    assert [one.duplications for one in told] == [0, 1]


def test_duplications_grow_by_one(speaker: Speaker, queue: str) -> None:
    push(speaker, queue, b"x")
    id = new_id()
    for number, action in enumerate(("lcancel", "rcancel", "lcancel", "rcancel")):
        assert speaker.ask("pull", id, queue).duplications == number
        assert speaker.ask(action, id, queue).result == "ok"
        assert count_of(speaker, queue) == 1


BYTES = bytes(range(256)) * 256


@pytest.mark.parametrize("size", [1, 125, 126, 60_000, 65_535])
@pytest.mark.parametrize("form", ["ws-bin", "http-bin"])
def test_bytes_are_bytes(speaker: Speaker, queue: str, size: int) -> None:
    push(speaker, queue, BYTES[:size])
    assert pull(speaker, queue, new_id()) == [BYTES[:size]]


@pytest.mark.parametrize("form", ["ws-json", "http-json", "http-bin"])
def test_a_body_over_the_limit(speaker: Speaker, queue: str) -> None:
    """(In a binary message there is no way to say it.)"""
    push(speaker, queue, b"x" * 65_535)
    assert speaker.ask("rpush", "1", queue, b"x" * 65_536).result == "body too long."
    if not speaker.is_binary or speaker.socket is None:
        assert speaker.ask("lpush", "1", queue, b"x" * 70_000).result == "body too long."
    assert count_of(speaker, queue) == 1


def test_the_limit_counts_bytes(broker: BrokerProcess, queue: str) -> None:
    speaker = Speaker(broker.port, "ws-json")
    push(speaker, queue, "中".encode() * 21_845)
    assert speaker.ask("rpush", "1", queue, "中".encode() * 21_846).result == "body too long."


@pytest.mark.parametrize("form", ["ws-json", "ws-bin"])
def test_a_message_may_be_empty_on_a_websocket(speaker: Speaker, queue: str) -> None:
    push(speaker, queue, b"")
    assert pull(speaker, queue, new_id()) == [b""]


@pytest.mark.parametrize(
    "message",
    [
        binary("rpush", b"1", b"/wrong", b"hi") + b"x",
        binary("rpush", b"1", b"/wrong", b"hi")[:-1],
        binary("lpush", b"1", b"/wrong", b"")[:-1],
        binary("rpush", b"1", b"/wrong"),
        binary("rpush", b"1", b"/wrong") + (70_000 % 65_536).to_bytes(2) + b"x" * 70_000,
    ],
    ids=["one more", "one less", "half a length", "no length", "as the stock client sends 70000"],
)
def test_a_length_that_is_wrong_stores_nothing(broker: BrokerProcess, message: bytes) -> None:
    speaker = Speaker(broker.port, "ws-bin")
    assert speaker.socket is not None
    speaker.socket.tell(2, message)
    told = speaker.next()
    assert (told.id, told.queue, told.result) == ("1", "/wrong", "body length invalid.")
    assert speaker.ask("count", "2", "/wrong").result == "queue not exists."


TEXTS = (
    "plain",
    "中文 ürün ąęść",
    "astral 😀 \U0001d4b3 \U0010ffff",
    'quotes " and \\ backslashes \\" \\u4e2d',
    "control \x00\x01\x1f \b\f\n\r\t \x7f \u2028\u2029 end",
    "</script>",
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("reader", FORMS)
@pytest.mark.parametrize("form", FORMS)
def test_texts_from_any_form_to_any_other(
    broker: BrokerProcess, form: str, reader: str, queue: str, text: str
) -> None:
    push(Speaker(broker.port, form), queue, text.encode())
    assert pull(Speaker(broker.port, reader), queue, new_id()) == [text.encode()]


def test_bytes_that_are_no_text_as_json(broker: BrokerProcess, queue: str) -> None:
    push(Speaker(broker.port, "ws-bin"), queue, b"a\xff\xfeb")
    assert pull(Speaker(broker.port, "ws-json"), queue, new_id()) == ["a\ufffd\ufffdb".encode()]


def test_what_others_put_that_is_too_long_for_a_length(broker: BrokerProcess) -> None:
    """It is nobody's, and a pull as JSON gets it."""
    body = b"x" * 70_000
    speakers = {form: Speaker(broker.port, form) for form in FORMS}
    push(speakers["ws-json"], "Long", b"first")
    http = Http(broker.port)
    assert http.ask("POST", "/Long", body=body)[0] == 200
    pull(speakers["ws-bin"], "Long", "first")
    for one in ("ws-bin", "http-bin"):
        assert speakers[one].ask("pull", "1", "Long").result == "body too long."
    assert pull(speakers["http-json"], "Long", "2") == [body]


def test_a_failure_ends_after_its_result(broker: BrokerProcess) -> None:
    """Byte for byte."""
    http = Http(broker.port)
    _, _, body = http.ask("GET", "/queue/delete.bin?queue=/never&requestid=p1")
    text = b"queue not exists."
    assert body == binary("delete", b"p1", b"/never") + len(text).to_bytes(2) + text
    assert read_binary(body).result == "queue not exists."
