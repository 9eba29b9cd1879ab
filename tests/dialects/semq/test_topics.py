"""Messages to topics, and what other dialects put into mailboxes."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlencode

import pytest

from tests.conformance.dialogue import cmd, http, pull, put
from tests.dialects.semq.words import EPOCH, A, B, Node, Platform, mid_fields
from zbus.core.model.chunk import Chunk
from zbus.core.model.ticket import Silent
from zbus.dialects.semq.settings import SemqSettings


def declared(query: str = "") -> tuple[Platform, Node]:
    platform = Platform()
    platform.ask(http(f"/T?cmd=declare&{query}"))
    head = platform.node(A)
    head.hello()
    return platform, head


def to_topic(node: Node, seq: int, body: bytes, **more: object) -> str:
    return node.flag("0:1/T", seq, body, **{"topic": "", **more})


@pytest.mark.parametrize("query", ["dedupe_ms=60000", "dedupe_live=true"])
def test_a_message_to_a_topic(query: str) -> None:
    platform, head = declared(query)
    for attempt in (1, 2):
        flag = to_topic(head, 1, b"\x00order", attempt=attempt, app_key="k")
        assert flag == "Ack-Save", "once, however often it is sent"
    assert to_topic(head, 2, b"next") == "Ack-Save"
    client = platform.world.connect()
    came = pull(client)
    assert came.body == b"\x00order"
    assert came.headers["zbus-header-src"] == A
    assert came.headers["zbus-header-app_key"] == "k"
    assert not came.headers.keys() & {"lk0", "savefwd", "dst", "attempt", "cmd"}
    assert pull(client).body == b"next"
    assert pull(client).status == 204


def test_level_3_needs_a_topic_that_remembers() -> None:
    platform, head = declared()
    assert to_topic(head, 1, b"m") == "409 conflict"
    assert to_topic(head, 1, b"m", savefwd=2) == "Ack-Save"
    assert to_topic(head, 1, b"n", savefwd=1) == "Ack-Save"
    client = platform.world.connect()
    assert [pull(client).body for _ in range(2)] == [b"m", b"n"]


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"x-a": "k" * 1_900}, "Ack-Save"),
        ({"x-a": "k" * 2_048}, "431 too-large"),
        ({f"x-{number}": "1" for number in range(30)}, "Ack-Save"),
        ({f"x-{number}": "1" for number in range(41)}, "431 too-large"),
    ],
)
def test_a_topic_takes_as_many_lines_as_of_others(fields: dict[str, str], answer: str) -> None:
    _, head = declared("dedupe_ms=60000")
    assert to_topic(head, 1, b"m", **fields) == answer


def test_ack2_of_a_topic() -> None:
    _, head = declared("dedupe_ms=60000")
    assert to_topic(head, 7, b"m", ack2=1) == "Ack-Save"
    told = head.take_one("semq_ack").headers
    assert (told["ack_flag"], told["src_ref_id"], told["seq"]) == ("2", "7", "7")
    assert (told["src"], told["dst"], told["dest_ref_id"]) == ("0:1", A, "0")
    head.control("semq_reack", ack_flag=2, **mid_fields(A, 7))
    assert head.take_answers() == []


@pytest.mark.parametrize("crash", [False, True])
def test_a_question_about_a_topic(crash: bool) -> None:
    platform, head = declared("dedupe_ms=60000")
    to_topic(head, 1, b"m")
    if crash:
        platform.restart(crash=True)
        head.hello()
    for seq, result in ((1, "1"), (2, "0")):
        head.control("semq_inquiry", **mid_fields(A, seq, about="send", dst="0:1/T"))
        assert head.take_one("semq_inquiry_resp").headers["result"] == result
        head.control("semq_inquiry", **mid_fields(A, seq, about="send", topic="T"))
        assert head.take_one("semq_inquiry_resp").headers["result"] == result


def test_a_topic_of_services_takes_none() -> None:
    platform = Platform()
    platform.ask(cmd("declare", "topic: T", "topic_mask: 2"))
    head = platform.node(A)
    head.hello()
    assert to_topic(head, 1, b"m", savefwd=2).startswith("409")


@pytest.mark.parametrize("topic", [f"semq.{B}", f"SEMQ.{A}", "semq.dead", "semq.any"])
def test_mailboxes_are_no_topics(topic: str) -> None:
    """What is put there has the number of another destination, and would pass for a message to its
    node that is stored already."""
    platform, head = declared()
    branch = platform.node(B)
    branch.hello()
    branch.vanish()
    for level in (2, 3):
        assert head.flag(f"0:1/{topic}", 1, b"m", topic="", savefwd=level) == "409 conflict"
    assert head.flag(B, 1, b"order") == "Ack-Save"
    branch.connect()
    branch.hello()
    assert branch.delivered() == [b"order"]


# -- the other way ------------------------------------------------------------------------------


def test_what_another_dialect_puts_into_a_mailbox() -> None:
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    client = platform.world.connect()
    body = b"\x00hello\xff"
    client.request(http(f"/semq.{B}", "x-own: y", "content-type: a/b", body=body, method="POST"))
    came = branch.take_one("semq_deliver")
    told = {"src": "0:1", "dst": B, "lk0": "0:1/1/1/1", "lk1": "1/1/1", "stream": "2", "seq": "1"}
    assert {name: came.headers[name] for name in told} == told
    assert (came.body, came.headers["savefwd"]) == (body, "2")
    assert (came.headers["x-own"], came.headers["content-type"]) == ("y", "a/b")
    platform.restart()
    branch.hello()
    asked = branch.take_one("semq_inquiry").headers
    assert {name: asked[name] for name in ("lk0", "epoch", "seq")} == {
        name: came.headers[name] for name in ("lk0", "epoch", "seq")
    }
    branch.ack(came)
    assert platform.states(B) == {}


LATIN = f"POST /semq.{B}?cmd=produce HTTP/1.1\r\nx-name: M\xfcller\r\nx-utf8: ".encode("latin-1")


def test_what_is_no_utf_8_becomes_so() -> None:
    """Or no endpoint could read the frame, and it would be sent again for ever."""
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    client = platform.world.connect()
    client.request(LATIN + "Zürich\r\ncontent-length: 1\r\n\r\nx".encode())
    came = branch.take_one("semq_deliver").headers
    assert (came["x-name"], came["x-utf8"]) == ("Müller", "Zürich")


def test_lines_with_control_characters_are_left_out() -> None:
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    topic = platform.world.broker.topics[f"semq.{B}"]
    chunk = Chunk()
    chunk.add(b"a\x01b", b"x-own: y\r\nx-bad: a\x01b\r\nx-tab: a\tb\r\n", b"m", b"\x02")
    platform.world.broker.put_all(topic.partitions[0], Silent(), chunk)
    came = branch.take_one("semq_deliver").headers
    assert (came["x-own"], came["x-tab"]) == ("y", "a\tb")
    assert not came.keys() & {"x-bad", "origin_id", "tag"}


@pytest.mark.parametrize("count", [201, 20])
def test_a_head_that_no_endpoint_takes(count: int) -> None:
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    topic, chunk = platform.world.broker.topics[f"semq.{B}"], Chunk()
    lines = [b"x-%d: %b\r\n" % (at, b"y" * (100_000 // count)) for at in range(count)]
    chunk.add(b"", b"".join(lines), b"m")
    platform.world.broker.put_all(topic.partitions[0], Silent(), chunk)
    came = branch.take_one("semq_deliver")
    assert (came.body, came.headers["seq"]) == (b"m", "1")
    assert not [name for name in came.headers if name.startswith("x-")]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("dialect", ["zbus", "camellia"])
def test_nobody_takes_the_place_of_a_message(dialect: str, encoded: bool) -> None:
    """Ids that other dialects give are not those of SEMQ's own rows."""
    platform = Platform()
    head, branch = platform.node("1:1"), platform.node("1:2")
    for node in (head, branch):
        node.hello()
    branch.vanish()
    mid = "1:1/1/1/9f00000000000001/3/1"
    id = quote(mid, safe="") if encoded else mid
    if dialect == "zbus":
        reply = platform.ask(http("/semq.1:2?cmd=produce", f"id: {id}", body=b"x", method="POST"))
        assert reply.status == (400 if encoded else 200), "it is longer than ids may be"
    else:
        form = urlencode({"topic": "semq.1:2", "msg": "x", "delayMillis": 0, "msgId": id})
        told = platform.ask(http(f"/camellia/delayQueue/sendMsg?{form}", method="POST"))
        assert b"200" in told.body, told
    assert head.flag("1:2", 1, b"order") == "Ack-Save"
    assert head.flag("1:2", 1, b"order") == "Ack-Save", "once"
    branch.connect()
    branch.hello()
    assert sorted(branch.delivered()) == sorted(
        [b"order", *[b"x"] * (dialect != "zbus" or not encoded)]
    )


def test_what_others_see_of_a_row() -> None:
    """Its id is the MID, percent-encoded."""
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    head.hello()
    branch.hello()
    branch.vanish()
    head.send(B, 1, b"order")
    client = platform.world.connect()
    client.request(http(f"/semq.{B}/other?cmd=declare&group_start_offset=0"))
    came = pull(client, f"/semq.{B}/other")
    assert unquote(came.headers["origin_id"]) == f"{A}/1/1/{EPOCH}/3/1"


FORGED = (
    f"src: {A}",
    f"lk0: {A}/1/1/1",
    "epoch: 9f00000000000001",
    "stream: 3",
    "seq: 1",
    "lk1: 1/1/9",
    "savefwd: 3",
    "void: 1",
    "expires: 1",
    "fixed: 1",
    "semq_id: 9",
    f"dst: {A}",
    "content-lengthx: 1",
    "app_key: forged",
    "id: 9",
)


def test_nobody_forges_a_message_of_another_node() -> None:
    """What another dialect says of its message counts for nothing."""
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    client = platform.world.connect()
    head = "\r\n".join((f"POST /semq.{B} HTTP/1.1", "cmd: produce", f"topic: semq.{B}", *FORGED))
    client.request(head.encode() + b"\r\ncontent-length: 1\r\n\r\nx")
    came = branch.take_one("semq_deliver").headers
    assert (came["src"], came["dst"], came["lk0"]) == ("0:1", B, "0:1/1/1/1")
    assert (came["lk1"], came["stream"], came["savefwd"]) == ("1/1/1", "2", "2")
    assert not came.keys() & {"void", "expires", "fixed", "app_key"}


@pytest.mark.parametrize("name", ["host", "cache-control", "skips"])
def test_lines_that_would_be_those_of_the_delivery_itself_are_left_out(name: str) -> None:
    """A frame, or the reply to a `semq_poll`, has its own; and what a stream skips is said by who
    numbers it."""
    platform = Platform()
    branch = platform.node(B)
    branch.hello()
    lines = ["kept: 1"] if name == "host" else ["kept: 1", f"{name}: 1"]
    platform.world.connect().request(http(f"/semq.{B}", *lines, body=b"m", method="POST"))
    came = branch.take_one("semq_deliver").headers
    assert came["kept"] == "1"
    assert came.get(name) == ("no-store" if name == "cache-control" else None)


def test_mailboxes_have_epochs_of_their_own() -> None:
    """Also those that were made in the same moment, and those of a restored directory, where other
    messages have the same places."""
    epochs = []
    for identity in ("a" * 32, "b" * 32, "a" * 32):
        platform = Platform(SemqSettings(semq_nodes=f"{A},{B}", identity=identity))
        for name in (A, B):
            node = platform.node(name)
            node.hello()
            put(platform.world.connect(), f"semq.{name}", b"m")
            epochs.append(node.take_one("semq_deliver").headers["epoch"])
    assert len(set(epochs)) == 4
    assert epochs[:2] == epochs[4:]


def test_a_mailbox_made_anew_has_another_epoch() -> None:
    platform = Platform()
    branch = platform.node(B)
    epochs = []
    for _ in range(2):
        branch.connect()
        branch.hello()
        client = platform.world.connect()
        put(client, f"semq.{B}", b"m")
        came = branch.take_one("semq_deliver")
        epochs.append(came.headers["epoch"])
        platform.world.advance(5)
        if len(epochs) == 1:
            old = came
            assert client.request(cmd("remove", f"topic: semq.{B}")).status == 200
    assert epochs[0] != epochs[1]
    branch.ack(old)
    assert platform.states(B) == {1: "SS_SENT"}, "that Ack is of another life"
    branch.ack(came)
    assert platform.states(B) == {}


def test_a_mailbox_is_like_any_topic_to_those_who_look() -> None:
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    for node in (head, branch):
        node.hello()
    branch.vanish()
    head.send(B, 1, b"secret")
    told = platform.ask(http(f"/?cmd=query&topic=semq.{B}"))
    assert told.status == 200
    assert b"secret" not in told.body
