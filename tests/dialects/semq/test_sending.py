"""`semq_send`, by the tables of sections 3 and 7 of the specification."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.semq.words import A, B, C, Node, Platform, send_fields
from zbus.core.model.errors import BrokerError, Refusal
from zbus.dialects.semq.settings import SemqSettings


def pair(settings: SemqSettings | None = None) -> tuple[Platform, Node, Node]:
    """Two nodes that are known; the second one is not online."""
    platform = Platform(settings)
    head, branch = platform.node(A), platform.node(B)
    head.hello()
    branch.hello()
    branch.vanish()
    branch.connect()
    return platform, head, branch


# level, online, Ack2 -> what is answered, and whether a row is stored
MATRIX: dict[tuple[int, bool, int], tuple[str, bool]] = {
    (1, True, 0): ("Ack-Fwd", False),
    (1, True, 1): ("Ack-Fwd", False),
    (1, False, 0): ("404 offline", False),
    (1, False, 1): ("404 offline", False),
    (2, True, 0): ("Ack-Fwd", False),
    (2, True, 1): ("Ack-Fwd", False),
    (2, False, 0): ("Ack-Save", True),
    (2, False, 1): ("Ack-Save", True),
    (3, True, 0): ("Ack-Fwd", False),
    (3, True, 1): ("Ack-Fwd", False),
    (3, False, 0): ("Ack-Save", True),
    (3, False, 1): ("Ack-Save", True),
}


@pytest.mark.parametrize(("level", "online", "ack2"), MATRIX)
def test_levels(level: int, online: bool, ack2: int) -> None:
    platform, head, branch = pair()
    if online:
        branch.hello()
    flag, stored = MATRIX[level, online, ack2]
    assert head.flag(B, 1, b"order", savefwd=level, ack2=ack2) == flag
    assert platform.states(B) == ({1: "SS_INIT"} if stored else {})
    assert branch.delivered() == ([b"order"] if online else [])
    branch.hello()
    assert branch.delivered() == ([b"order"] if stored else [])
    platform.world.broker.check()


def test_an_answer_says_which_row_it_is_about() -> None:
    _, head, _ = pair()
    reply = head.send(B, 42, b"m", app_key="order,doc,new,S1", attempt=3, lk0=f"{A}/1/2/42")
    told = {name: reply.headers[name] for name in reply.headers if name.startswith("src_")}
    assert told == {"src_semq_id": "1", "src_semq_db_id": "2", "src_ref_id": "42"}
    assert (reply.headers["attempt"], reply.headers["seq"]) == ("3", "42")
    assert reply.headers["app_key"] == "order,doc,new,S1"


def test_what_is_forwarded_is_what_was_sent() -> None:
    _, head, branch = pair()
    branch.hello()
    said: dict[str, Any] = {"app_key": "Bestellung Zürich", "session_key": "k", "encrypt": 1}
    head.send(f"{B}/bob", 1, b"\x00\xff", lk1="1/1/99", ordered=1, **said)
    came = branch.take_one("semq_deliver")
    assert came.body == b"\x00\xff"
    assert {name: came.headers[name] for name in said} == {k: str(v) for k, v in said.items()}
    assert (came.headers["src"], came.headers["dst"]) == (A, f"{B}/bob")
    assert "lk1" not in came.headers, "nobody but the platform says that"
    assert "id" not in came.headers


def test_what_is_stored_is_what_was_sent() -> None:
    platform, head, branch = pair()
    said: dict[str, Any] = {"app_key": "Bestellung Zürich", "session_key": "k", "encrypt": 1}
    head.send(f"{B}/bob", 1, b"\x00\xff", lk1="1/1/99", ordered=1, **said)
    platform.restart()
    branch.hello()
    came = branch.take_one("semq_deliver")
    assert came.body == b"\x00\xff"
    assert {name: came.headers[name] for name in said} == {k: str(v) for k, v in said.items()}
    assert (came.headers["src"], came.headers["dst"]) == (A, f"{B}/bob")
    assert came.headers["lk1"] == "1/1/1"


def test_a_message_is_stored_once() -> None:
    platform, head, branch = pair()
    assert [head.flag(B, 1, b"m", attempt=n) for n in (1, 2)] == ["Ack-Save", "Ack-Save"]
    assert platform.states(B) == {1: "SS_INIT"}
    platform.restart()
    head.hello()
    assert head.flag(B, 1, b"m", attempt=3) == "Ack-Save"
    branch.hello()
    assert branch.delivered() == [b"m"]
    assert head.flag(B, 1, b"m", attempt=4) == "Ack-Save", "though it is online: a row is there"
    assert branch.delivered() == []


def test_twice_in_one_turn() -> None:
    platform, head, _ = pair()
    for id in ("x", "y"):
        head.say("semq_send", b"m", id=id, **send_fields(A, B, 1))
    platform.world.settle()
    assert [one.headers["flag"] for one in head.take_answers()] == ["2", "2"]
    assert platform.states(B) == {1: "SS_INIT"}


def test_other_messages_are_others() -> None:
    platform, head, _ = pair()
    others: list[dict[str, Any]] = [
        {},
        {"epoch": "0000000000000002"},
        {"lk0": f"{A}/2/1/1"},
        {"lk0": f"{A}/1/2/1"},
        {"savefwd": 2, "stream": 2},
    ]
    for more in others:
        assert head.flag(B, 1, b"m", **more) == "Ack-Save"
    assert len(platform.states(B)) == len(others)


def test_store_always() -> None:
    platform, head, branch = pair(SemqSettings(semq_store_always=True))
    branch.hello()
    assert head.flag(B, 1, b"three") == "Ack-Save"
    assert head.flag(B, 1, b"two", savefwd=2) == "Ack-Fwd"
    assert sorted(branch.delivered()) == [b"three", b"two"]
    assert platform.states(B) == {1: "SS_SENT"}


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "an unknown node": ({"dst": "1:999", "topic": ""}, "404 unknown"),
    "a node that differs in case": ({"dst": "1:ABC", "topic": ""}, "404 unknown"),
    "another's src": ({"src": B, "lk0": f"{B}/1/1/1"}, "403 forbidden"),
    "the platform's src": ({"src": "0:1", "lk0": "0:1/1/1/1"}, "403 forbidden"),
    "a topic of another node": ({"topic": "semq/1:77"}, "400 malformed"),
    "an lk0 of another": ({"lk0": f"{B}/1/1/1"}, "400 malformed"),
    "no topic of that name": ({"dst": "0:1/T", "topic": ""}, "404 unknown"),
    "no topic at all": ({"dst": "0:1", "topic": ""}, "400 malformed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    platform, head, _ = pair()
    platform.node("1:abc").hello()
    more, expected = REFUSED[case]
    assert head.flag(B, 1, b"m", **more) == expected
    assert not platform.states(B)
    assert head.flag(B, 2, b"m") == "Ack-Save", "the connection goes on"


def test_too_large() -> None:
    platform, head, branch = pair(SemqSettings(body_bytes_max=10))
    assert branch.hello().headers["max_size"] == "10"
    for seq, level in enumerate((1, 2, 3), 1):
        assert head.flag(B, seq, b"x" * 11, savefwd=level) == "413 too-large"
        assert head.flag(B, seq, b"x" * 10, savefwd=level) == "Ack-Fwd"
    assert not platform.states(B)


def test_too_many_rows() -> None:
    platform, head, branch = pair(SemqSettings(semq_rows_max=2))
    flags = [head.flag(B, seq, b"m") for seq in (1, 2, 3)]
    assert flags == ["Ack-Save", "Ack-Save", "429 too-many"]
    assert head.flag(B, 2, b"m") == "Ack-Save", "that one is there"
    branch.hello()
    for came in branch.take("semq_deliver"):
        branch.ack(came)
    branch.vanish()
    assert head.flag(B, 3, b"m") == "Ack-Save"
    assert platform.states(B) == {3: "SS_INIT"}


def test_a_connection_that_takes_nothing_is_none() -> None:
    platform, head, branch = pair()
    branch.hello()
    branch.client.takes = False
    body = b"x" * 200_000
    flags = [head.flag(B, seq, body) for seq in (1, 2, 3)]
    assert flags == ["Ack-Fwd", "Ack-Fwd", "Ack-Save"], "256 KiB are left untaken at most"
    assert head.flag(B, 1, b"m", savefwd=1) == "404 offline"
    assert head.flag(B, 1, b"m", savefwd=2) == "Ack-Save"
    assert platform.states(B) == {1: "SS_INIT", 2: "SS_INIT"}
    branch.client.takes = True
    assert branch.delivered() == [body, body, body, b"m"]
    assert platform.states(B) == {1: "SS_SENT", 2: "SS_SENT"}


def test_what_is_not_reliable_is_the_first_to_be_shed() -> None:
    _, head, branch = pair()
    branch.hello()
    branch.client.takes = False
    assert head.flag(B, 1, b"a", savefwd=1, reliable=0) == "Ack-Fwd"
    assert head.flag(B, 1, b"b", savefwd=1, reliable=0) == "404 offline"
    assert head.flag(B, 1, b"c", savefwd=1) == "Ack-Fwd"
    branch.client.takes = True
    assert branch.delivered() == [b"a", b"c"]


@pytest.mark.parametrize(
    ("refusal", "status", "reason"),
    [(Refusal.FULL, 507, "full"), (Refusal.OVERLOADED, 503, "overloaded")],
)
def test_a_full_disk(refusal: Refusal, status: int, reason: str) -> None:
    """Nothing is stored, and nothing else is held up by it."""
    platform, head, branch = pair()
    head.send(B, 1, b"before")
    puts = platform.world.broker._puts
    puts.refusing = BrokerError(refusal, "there is no room")
    reply = head.send(B, 2, b"m")
    assert (reply.status, reply.headers["reason"]) == (status, reason)
    assert reply.headers["retry-after"] == "1"
    assert head.flag(B, 1, b"before") == "Ack-Save", "that one is there"
    branch.hello()
    assert branch.flag(A, 1, b"m") == "Ack-Fwd"
    branch.ack(branch.take_one("semq_deliver"))
    assert platform.states(B) == {}
    assert head.flag(B, 2, b"m") == "Ack-Fwd"
    assert platform.node(C).request("semq_hello", node=C).status == status
    puts.refusing = None
    branch.vanish()
    assert head.flag(B, 3, b"m") == "Ack-Save"


def test_a_full_disk_and_what_has_expired() -> None:
    platform, head, branch = pair()
    head.send(B, 1, b"old", expires=platform.world.now_ms + 1_000)
    platform.wait(1_000)
    puts = platform.world.broker._puts
    puts.refusing = BrokerError(Refusal.FULL, "there is no room")
    branch.hello()
    assert branch.delivered() == []
    assert platform.states(B) == {1: "SS_SENT"}, "it stays until it can be put by"
    puts.refusing = None
    platform.wait(15_000)
    asked = branch.take_one("semq_inquiry").headers
    told = {name: asked[name] for name in ("lk0", "epoch", "stream", "seq", "attempt", "about")}
    branch.control("semq_inquiry_resp", result=0, **told)
    assert branch.take_one("semq_deliver").headers["void"] == "1"
    assert len(platform.document("semq_dead")["rows"]) == 1


def test_a_mailbox_is_checked_against_no_schema() -> None:
    """What nodes send each other may be encrypted, and a void message keeps the order."""
    platform, head, _ = pair()
    client = platform.world.connect()
    assert head.flag(B, 1, b"order", savefwd=2) == "Ack-Save"
    assert client.request(http(f"/semq.{B}?cmd=declare&schema=false")).status == 200
    assert head.flag(B, 2, b"more", savefwd=2) == "Ack-Save"
    assert platform.states(B) == {1: "SS_INIT", 2: "SS_INIT"}
