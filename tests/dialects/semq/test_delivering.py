"""What is stored, and how it leaves: sections 5.2, 7 and 10 of the specification."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.dialogue import cmd, http, put
from tests.dialects.semq.words import (
    INTERVAL_MS,
    A,
    B,
    Node,
    Platform,
    frame,
    mid_fields,
    send_fields,
)
from zbus.dialects.semq.settings import SemqSettings
from zbus.testing.world import HeldJournal


def stored(count: int, **more: object) -> tuple[Platform, Node, Node]:
    """So many messages wait for a node."""
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    branch.hello()
    branch.vanish()
    branch.connect()
    head.hello()
    for seq in range(1, count + 1):
        assert head.flag(B, seq, b"%d" % seq, **more) == "Ack-Save"
    return platform, head, branch


def numbers(count: int, first: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_in_order_as_the_window_allows() -> None:
    platform, _, branch = stored(10)
    branch.hello(window=4)
    found = branch.take("semq_deliver")
    assert [one.body for one in found] == numbers(4)
    assert [one.headers["lk1"] for one in found] == [f"1/1/{n}" for n in range(1, 5)]
    for one in found[:3]:
        branch.ack(one)
    assert branch.delivered() == numbers(3, 5)
    assert platform.states(B)[4] == "SS_SENT"


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_keeps_states(crash: bool) -> None:
    """What was sent is asked for; what was not, comes when that is answered."""
    platform, _, branch = stored(5)
    branch.hello(window=3)
    found = branch.take("semq_deliver")
    branch.ack(found[0])
    platform.restart(crash)
    last = 3 if crash else 4  # of the fourth nobody waited to have it written
    states = {record: "SS_SENT" if record <= last else "SS_INIT" for record in range(2, 6)}
    assert platform.states(B) == states
    branch.hello(window=3)
    asked = branch.take_one("semq_inquiry")
    assert asked.headers["about"] == "send"
    assert asked.headers["seqs"] == f"2-{last}"
    told = {name: asked.headers[name] for name in ("lk0", "epoch", "stream", "attempt")}
    branch.control("semq_inquiry_resp", about="send", result=1, seqs=f"2-{last - 1}", **told)
    assert branch.delivered() == [], "before that is answered"
    branch.control("semq_inquiry_resp", about="send", result=0, seqs=last, **told)
    assert branch.delivered() == numbers(5 - last + 1, last)
    assert set(platform.states(B).values()) == {"SS_SENT"}


def test_nobody_waits_for_answers_for_long() -> None:
    platform, _, branch = stored(3)
    branch.hello(window=2)
    branch.vanish()
    branch.connect()
    branch.hello()
    assert branch.delivered() == []
    platform.wait(2_001)
    assert branch.delivered() == [b"3"]


def test_an_ack_save_is_not_before_the_commit() -> None:
    journal = HeldJournal()
    platform = Platform(journal=journal)
    head, branch = platform.node(A), platform.node(B)
    for node in (head, branch):
        node.say("semq_hello", id="h", node=node.name, epoch="0" * 16)
        platform.world.settle()
        assert not node.take_answers(), "its mailbox is not durable yet"
        journal.release()
        platform.world.settle()
        assert [one.status for one in node.take_answers()] == [200]
    branch.vanish()
    fields = {"src": A, "dst": B, "savefwd": 3, **mid_fields(A, 1)}
    head.say("semq_send", b"m", id="m", **fields)
    platform.world.settle()
    assert not head.take_answers()
    asked = mid_fields(A, 1, about="send", topic=f"semq/{B}")
    head.control("semq_inquiry", **asked)
    assert head.take_one("semq_inquiry_resp").headers["result"] == "0", "it is not durable"
    head.say("semq_send", b"m", id="again", **fields)
    platform.world.settle()
    assert not head.take_answers()
    journal.release()
    platform.world.settle()
    assert {one.headers["id"]: one.headers["flag"] for one in head.take_answers()} == {
        "m": "2",
        "again": "2",
    }
    head.control("semq_inquiry", **asked)
    assert head.take_one("semq_inquiry_resp").headers["result"] == "1"


def test_what_is_not_confirmed_is_asked_for() -> None:
    platform, _, branch = stored(1)
    branch.hello()
    branch.take("semq_deliver")
    platform.wait(INTERVAL_MS - 1)
    assert branch.take("semq_inquiry") == []
    platform.wait(1)
    asked = branch.take_one("semq_inquiry").headers
    expected = {"src": "0:1", "dst": B, "about": "send", "flag": "1", "ref_id": "1", "seq": "1"}
    assert {name: asked[name] for name in expected} == expected
    assert asked["lk0"] == f"{A}/1/1/1"


def test_back_off_and_its_reset() -> None:
    platform, head, branch = stored(1)
    branch.hello()
    branch.take("semq_deliver")
    times: list[int] = []
    for _ in range(40):
        platform.wait(5_000)
        if branch.take("semq_inquiry"):
            times.append(platform.world.now_ms)
    gaps = [b - a for a, b in pairwise(times)]
    assert len(gaps) >= 2
    assert all(b > 1.2 * a for a, b in pairwise(gaps)), gaps
    assert head.flag(B, 2, b"m") == "Ack-Fwd"
    branch.control("semq_ack", ack_flag=1, src_ref_id=99, **mid_fields(A, 99))
    platform.wait(INTERVAL_MS)
    assert branch.take("semq_inquiry"), "it has said something"


def test_who_is_offline_is_not_asked() -> None:
    platform, _, branch = stored(1)
    branch.hello()
    branch.vanish()
    platform.wait(60_000)
    assert platform.states(B) == {1: "SS_SENT"}
    branch.connect()
    branch.hello()
    assert branch.take_one("semq_inquiry").headers["seq"] == "1"


def test_silence_when_all_is_confirmed() -> None:
    platform, _, branch = stored(3)
    branch.hello()
    for one in branch.take("semq_deliver"):
        branch.ack(one)
    assert platform.states(B) == {}
    branch.pushed.clear()
    platform.wait(3_600_000)
    assert {one.headers["cmd"] for one in branch.pushed} <= {"heartbeat"}


def test_a_late_answer_of_an_earlier_attempt_changes_nothing() -> None:
    platform, _, branch = stored(1)
    branch.hello()
    branch.take("semq_deliver")
    answer = {"about": "send", "result": 0, **mid_fields(A, 1)}
    branch.control("semq_inquiry_resp", attempt=1, **answer)
    assert branch.delivered() == [b"1"]
    branch.control("semq_inquiry_resp", attempt=1, **answer)
    assert branch.delivered() == [], "it was sent again since"
    branch.control("semq_inquiry_resp", attempt=2, **answer)
    assert branch.delivered() == [b"1"]
    assert platform.states(B) == {1: "SS_SENT"}


def test_any_word_of_a_node_begins_the_questions_anew() -> None:
    for word in ("semq_lookup", "semq_send", "semq_hello"):
        platform, _, branch = stored(1)
        branch.hello()
        branch.take("semq_deliver")
        platform.wait(100_000)
        assert branch.take("semq_inquiry")
        fields = {"semq_lookup": {"dst": A}, "semq_hello": {"node": B}}
        branch.request(word, **fields.get(word, send_fields(B, A, 1)))
        platform.wait(INTERVAL_MS)
        assert branch.take("semq_inquiry"), word


EXPIRES = "expires"


@pytest.mark.parametrize("level", [2, 3])
def test_what_has_expired_is_put_by(level: int) -> None:
    platform, head, branch = stored(0)
    soon_ms = platform.world.now_ms + 60_000
    assert head.flag(B, 1, b"old", savefwd=level, expires=soon_ms) == "Ack-Save"
    assert head.flag(B, 2, b"new", savefwd=level) == "Ack-Save"
    platform.wait(60_000)
    branch.hello()
    found = branch.take("semq_deliver")
    whole = level == 3
    told = [(one.headers["seq"], one.headers.get("void"), one.body) for one in found]
    assert sorted(told) == [*([("1", "1", b"")] if whole else []), ("2", None, b"new")]
    assert all(EXPIRES not in one.headers for one in found)
    for one in found:
        branch.ack(one)
    assert platform.states(B) == {}
    (dead,) = platform.document("semq_dead")["rows"]
    assert (dead["node"], dead["src"], dead["bytes"]) == (B, A, 3)
    assert dead["reason"] == "expired"
    pulled = platform.world.connect().request(
        http("/semq.dead/semq?cmd=consume&timeout=0", method="GET")
    )
    assert pulled.body == b"old", "any dialect may take it"


def test_a_void_message_says_what_its_confirmations_need() -> None:
    """Whoever confirms it says that it is void, and that is passed on."""
    platform, head, branch = stored(0)
    soon_ms = platform.world.now_ms + 1_000
    said: dict[str, Any] = {"ack2": 1, "app_key": "k", "ordered": 1}
    head.send(f"{B}/bob", 7, b"old", expires=soon_ms, content_type="a/b", **said)
    platform.wait(1_000)
    branch.hello()
    came = branch.take_one("semq_deliver").headers
    expected = {**mid_fields(A, 7), **said, "void": 1, "savefwd": 3, "dst": f"{B}/bob", "src": A}
    assert {name: came[name] for name in expected} == {k: str(v) for k, v in expected.items()}
    branch.control("semq_ack", dst=A, ack_flag=2, void=1, src_ref_id=7, **mid_fields(A, 7))
    assert head.take_one("semq_ack").headers["void"] == "1"


def test_what_has_expired_and_has_no_void_message() -> None:
    """Of level 2 nobody is told: its sender asks, is told that it is not there, and is refused."""
    platform, head, branch = stored(0)
    soon_ms = platform.world.now_ms + 1_000
    assert head.flag(B, 1, b"old", savefwd=2, ack2=1, expires=soon_ms) == "Ack-Save"
    platform.wait(1_000)
    branch.hello()
    assert branch.take("semq_deliver") == []
    assert platform.states(B) == {}
    asked = mid_fields(A, 1, stream=2, about="send", topic=f"semq/{B}")
    head.control("semq_inquiry", **asked)
    assert head.take_one("semq_inquiry_resp").headers["result"] == "0"
    assert head.flag(B, 1, b"old", savefwd=2, ack2=1, expires=soon_ms) == "410 expired"


def test_what_has_expired_is_not_forwarded() -> None:
    platform, head, branch = stored(0)
    branch.hello()
    old_ms = platform.world.now_ms
    assert head.flag(B, 1, b"one", savefwd=1, expires=old_ms) == "404 expired"
    assert head.flag(B, 1, b"two", savefwd=2, expires=old_ms) == "410 expired"
    assert head.flag(B, 1, b"three", expires=old_ms) == "410 expired"
    assert head.flag(B, 2, b"", expires=old_ms, void=1) == "Ack-Fwd", "it has nothing to expire"
    found = branch.take("semq_deliver")
    assert [(one.headers["seq"], one.headers["void"]) for one in found] == [("2", "1")]


def test_a_full_dead_letter_topic_loses_nothing() -> None:
    platform, head, branch = stored(0)
    client = platform.world.connect()
    client.request(cmd("declare", "topic: semq.dead", "topic_mask: 4"))
    assert head.flag(B, 1, b"old", expires=platform.world.now_ms + 1) == "Ack-Save"
    platform.wait(10)
    branch.hello()
    assert len(branch.delivered()) <= 1
    assert platform.states(B)


# -- instances ----------------------------------------------------------------------------------


def test_a_fixed_message_goes_to_its_instance() -> None:
    platform, head, first = stored(0)
    second = platform.node(B)
    first.hello(semq="1/1")
    assert head.flag(B, 1, b"for 2", fixed=1, semq_id=2) == "Ack-Save"
    assert head.flag(B, 2, b"any") == "Ack-Fwd"
    assert first.delivered() == [b"any"]
    second.hello(semq="2/1,2/2")
    platform.wait(10_100)
    assert second.delivered() == [b"for 2"]
    assert head.flag(B, 3, b"for 1", fixed=1) == "Ack-Fwd"
    assert head.flag(B, 4, b"for 2", fixed=1, semq_id=2) == "Ack-Fwd"
    assert first.delivered() == [b"for 1"]
    assert second.delivered() == [b"for 2"]


def test_what_is_stored_goes_to_the_steady_instance() -> None:
    """Each has a ledger of its own, and would hand over what another one has."""
    platform, head, second = stored(4)
    first = platform.node(B)
    second.hello(semq="2/1", window=2)
    found = second.take("semq_deliver")
    assert [one.body for one in found] == numbers(2)
    first.hello(semq="1/1", window=1)
    assert first.delivered() == [b"3"]
    for one in found:
        second.ack(one)
    assert second.delivered() == [], "it is not the steady one any more"
    assert head.flag(B, 9, b"live") == "Ack-Fwd"
    assert first.delivered() == [b"live"]
    first.vanish()
    platform.wait(2_001)
    assert second.take_one("semq_inquiry").headers["seq"] == "3", "what the other one had"
    assert second.delivered() == [b"4"]
    assert head.flag(B, 10, b"live") == "Ack-Fwd"
    assert second.delivered() == [b"live"]


def test_another_instance_does_not_stand_in_for_one_that_takes_nothing() -> None:
    """It would not know what the first has had."""
    platform, head, first = stored(0)
    second = platform.node(B)
    second.hello(semq="2/1")
    first.hello()
    first.client.takes = False
    body = b"x" * 300_000
    assert [head.flag(B, seq, body) for seq in (1, 2)] == ["Ack-Fwd", "Ack-Save"]
    assert second.delivered() == []
    first.client.takes = True
    assert first.delivered() == [body, body]


def test_an_instance_is_asked_for_what_it_was_sent() -> None:
    platform, _, second = stored(2)
    first = platform.node(B)
    second.hello(semq="2/1", window=1)
    assert second.delivered() == [b"1"]
    first.hello(semq="1/1")
    assert first.delivered() == [b"2"]
    platform.wait(INTERVAL_MS)
    assert second.take_one("semq_inquiry").headers["seq"] == "1"
    assert first.take_one("semq_inquiry").headers["seq"] == "2"


def test_a_fixed_instance_is_asked() -> None:
    platform, _, first = stored(1, fixed=1, semq_id=2)
    second = platform.node(B)
    second.hello(semq="2/1")
    first.hello(semq="1/1")
    assert (second.delivered(), first.delivered()) == ([b"1"], [])
    platform.wait(INTERVAL_MS)
    assert second.take_one("semq_inquiry").headers["seq"] == "1"
    assert first.take("semq_inquiry") == []


def test_another_window() -> None:
    _, _, branch = stored(10)
    branch.hello(window=1)
    found = branch.take("semq_deliver")
    branch.hello(window=4)
    found += branch.take("semq_deliver")
    assert [one.body for one in found] == numbers(4)
    branch.hello(window=2)
    for one in found[:2]:
        branch.ack(one)
    assert branch.delivered() == []
    branch.ack(found[2])
    assert branch.delivered() == [b"5"]


# -- sizes --------------------------------------------------------------------------------------


def test_what_its_node_does_not_take_is_put_by() -> None:
    """Or it would be sent, and break its connection, for ever."""
    platform, head, branch = stored(0)
    assert head.flag(B, 1, b"x" * 11) == "Ack-Save", "nobody knows yet"
    assert head.flag(B, 2, b"next") == "Ack-Save"
    branch.hello(max_size=10)
    assert head.flag(B, 3, b"x" * 11) == "413 too-large"
    found = {one.headers["seq"]: one for one in branch.take("semq_deliver")}
    assert found.keys() == {"1", "2"}
    assert (found["1"].headers["void"], found["2"].body) == ("1", b"next")
    (dead,) = platform.document("semq_dead")["rows"]
    assert (dead["reason"], dead["bytes"]) == ("too large", 11)


def test_rows_that_are_larger_than_the_platform_takes_now() -> None:
    platform, _, branch = stored(0)
    put(platform.world.connect(), f"semq.{B}", b"x" * 11)
    platform._settings = SemqSettings(body_bytes_max=10)
    platform.restart()
    assert branch.hello().headers["max_size"] == "10"
    assert branch.delivered() == []
    assert platform.document("semq_dead")["rows"][0]["reason"] == "too large"


# -- plain HTTP ---------------------------------------------------------------------------------


def poll(platform: Platform, wait: int = 0) -> bytes:
    return http(f"/semq/{B}?cmd=semq_poll&wait={wait}")


def test_a_node_that_polls() -> None:
    platform, _, _ = stored(2)
    client = platform.world.connect()
    came = client.request(poll(platform))
    assert (came.status, came.headers["cmd"], came.body) == (200, "semq_deliver", b"1")
    fields = "&".join(f"{name}={came.headers[name]}" for name in ("lk0", "epoch", "stream", "seq"))
    target = f"/semq?cmd=semq_ack&src={B}&ack_flag=1&src_ref_id=1&{fields}"
    reply = client.request(http(target, method="POST"))
    assert (reply.status, reply.headers["cmd"]) == (200, "semq_reack")
    assert client.request(poll(platform)).body == b"2"
    assert client.request(poll(platform)).status == 204
    assert platform.states(B) == {2: "SS_SENT"}
    platform.wait(INTERVAL_MS + 1)
    assert client.request(poll(platform)).body == b"2", "it was not confirmed"


def test_a_poll_that_waits() -> None:
    platform, head, _ = stored(0)
    client = platform.world.connect()
    assert client.exchange(poll(platform, wait=30)) == []
    assert head.flag(B, 1, b"late") == "Ack-Save"
    (came,) = client.exchange(b"")
    assert came.body == b"late"
    told: dict[str, Any] = {n: came.headers[n] for n in ("lk0", "epoch", "stream", "seq")}
    platform.ask(frame("semq_ack", src=B, ack_flag=1, src_ref_id=1, **told))
    assert client.exchange(poll(platform, wait=30)) == []
    platform.world.advance(30_001)
    assert [one.status for one in client.replies()] == [204]


def test_a_poll_makes_the_mailbox() -> None:
    platform = Platform()
    client = platform.world.connect()
    assert client.request(poll(platform)).status == 204
    head = platform.node(A)
    head.hello()
    assert head.flag(B, 1, b"m") == "Ack-Save"


def test_polls_of_what_has_expired() -> None:
    platform, head, _ = stored(0)
    head.send(B, 1, b"m", expires=platform.world.now_ms + 1_000)
    platform.wait(1_001)
    head.send(B, 2, b"n")
    client = platform.world.connect()
    assert client.request(poll(platform)).body == b"n", "it goes on to the next one"
    came = client.request(poll(platform))
    assert (came.headers["seq"], came.headers["void"], came.body) == ("1", "1", b"")
    assert client.request(poll(platform)).status == 204


def test_a_node_that_sends_over_plain_http() -> None:
    platform, _, branch = stored(0)
    client = platform.world.connect()
    numbered = f"lk0={A}/1/1/5&epoch={'0' * 16}&seq=5"
    target = f"/semq/{B}/bob?cmd=semq_send&src={A}&savefwd=3&{numbered}"
    reply = client.request(http(target, body=b"m", method="POST"))
    assert (reply.status, reply.headers["ack_flag"], reply.headers["flag"]) == (200, "1", "2")
    unnumbered = f"/semq/{B}/?cmd=semq_send&src={A}&savefwd=2"
    lines = "x-src: 1:9", "origin_src: 1:9"
    assert client.request(http(unnumbered, *lines, body=b"n", method="POST")).headers["flag"] == "2"
    refused = client.request(http(unnumbered.replace("fwd=2", "fwd=3"), body=b"o", method="POST"))
    assert (refused.status, refused.headers["reason"]) == (400, "malformed")
    branch.hello()
    first, second = branch.take("semq_deliver")
    assert (first.body, first.headers["seq"], first.headers["dst"]) == (b"m", "5", f"{B}/bob")
    assert (second.body, second.headers["src"], second.headers["stream"]) == (b"n", "0:1", "2")
    assert (second.headers["origin_src"], second.headers["x-src"]) == (A, "1:9")
    branch.ack(first)
    branch.ack(second)
    assert platform.states(B) == {}


def test_options() -> None:
    platform = Platform(SemqSettings(semq_nodes="1:1, 2:x", semq_interval_ms=100, semq_window=2))
    head = platform.node(A)
    told = head.hello(version="1").headers
    assert (told["platform"], told["interval"], told["store_always"]) == ("0:1", "100", "0")
    assert [head.flag("2:x", n, b"%d" % n) for n in (1, 2, 3)] == ["Ack-Save"] * 3
    other = platform.node("2:x")
    other.hello()
    assert other.delivered() == [b"1", b"2"]
