"""Confirmations and questions: section 6 of the specification, and the charts of 15.1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.semq.words import EPOCH, A, B, C, Node, Platform, frame, mid_fields


def pair() -> tuple[Platform, Node, Node]:
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    head.hello()
    branch.hello()
    return platform, head, branch


def delivered(count: int = 1) -> tuple[Platform, Node, Node]:
    """So many messages were stored, and handed over; nobody has confirmed them."""
    platform, head, branch = pair()
    branch.vanish()
    for seq in range(1, count + 1):
        assert head.flag(B, seq, b"%d" % seq) == "Ack-Save"
    branch.connect()
    branch.hello()
    assert len(branch.delivered()) == count
    return platform, head, branch


# -- Ack and ReAck ------------------------------------------------------------------------------


def test_an_ack_ends_a_row_and_is_confirmed() -> None:
    platform, _, branch = delivered()
    said = mid_fields(A, 1, app_key="k", dest_semq_id=1, dest_semq_db_id=2, dest_ref_id=301)
    branch.control("semq_ack", ack_flag=1, src_semq_id=1, src_semq_db_id=1, src_ref_id=1, **said)
    assert platform.states(B) == {}
    told = branch.take_one("semq_reack").headers
    echo = {**said, "ack_flag": 1, "src_ref_id": 1, "src": "0:1", "dst": B}
    assert {name: told[name] for name in echo} == {k: str(v) for k, v in echo.items()}


NO_ACKS: dict[str, dict[str, Any]] = {
    "another lk1": {"src_ref_id": 2},
    "another store of the platform": {"src_semq_id": 2},
    "another database of it": {"src_semq_db_id": 2},
    "no record": {"src_ref_id": 0},
    "another number": {"seq": 2},
    "another epoch": {"epoch": "0000000000000000"},
    "another store": {"lk0": f"{A}/1/2/1"},
    "another instance": {"lk0": f"{A}/2/1/1"},
    "another node": {"lk0": f"{C}/1/1/1"},
    "the platform's": {"lk0": "0:1/1/1/1", "stream": 2},
    "another stream": {"stream": 2},
    "of a peer": {"ack_flag": 2},
}


@pytest.mark.parametrize("case", NO_ACKS)
def test_an_ack_that_is_not_of_that_row(case: str) -> None:
    """It changes nothing, and is confirmed all the same: whoever says it has something."""
    platform, _, branch = delivered()
    fields = {"ack_flag": 1, "src_ref_id": 1, **mid_fields(A, 1), **NO_ACKS[case]}
    branch.control("semq_ack", **fields)
    assert platform.states(B) == {1: "SS_SENT"}
    assert branch.take_one("semq_reack").headers["src_ref_id"] == str(fields["src_ref_id"])


def test_an_ack_of_a_row_that_is_gone() -> None:
    platform, _, branch = delivered()
    for _ in range(2):
        branch.control("semq_ack", ack_flag=1, src_ref_id=1, **mid_fields(A, 1))
        assert branch.take_one("semq_reack").headers["src_ref_id"] == "1"
    platform.world.broker.check()


def test_an_ack_after_a_crash() -> None:
    """What the platform forgot of it is asked for again."""
    platform, _, branch = delivered()
    platform.restart(crash=True)
    branch.hello()
    branch.control("semq_ack", ack_flag=1, src_ref_id=1, **mid_fields(A, 1))
    assert platform.states(B) == {}


def test_acks_of_another_node_reach_no_row() -> None:
    platform, head, branch = delivered()
    head.control("semq_ack", ack_flag=1, src_ref_id=1, **mid_fields(A, 1))
    assert platform.states(B) == {1: "SS_SENT"}
    head.say("semq_ack", id="x", src=B, dst="0:1", ack_flag=1, src_ref_id=1, **mid_fields(A, 1))
    (told,) = head.take_answers()
    assert (told.status, told.headers["reason"]) == (403, "forbidden")
    assert platform.states(B) == {1: "SS_SENT"}
    branch.control("semq_ack", ack_flag=1, src_ref_id=1, **mid_fields(A, 1))
    assert platform.states(B) == {}


def test_a_batch_of_acks() -> None:
    platform, _, branch = delivered(10)
    branch.control("semq_ack", ack_flag=1, **mid_fields(A, "2-5,7,90-99"))
    assert set(platform.states(B)) == {1, 6, 8, 9, 10}
    assert branch.take_one("semq_reack").headers["seqs"] == "2-5,7,90-99"


# -- Inquiry and Resp ---------------------------------------------------------------------------


def test_a_sender_asks_what_is_stored() -> None:
    _, head, branch = pair()
    branch.vanish()
    for seq in (1, 2, 3, 5):
        head.send(B, seq, b"m")
    head.take("semq_presence")
    said = {"about": "send", "flag": 1, "topic": f"semq/{B}", "attempt": 1}
    for seq, result in ((1, "1"), (4, "0")):
        head.control("semq_inquiry", semq_id=1, ref_id=seq, **mid_fields(A, seq), **said)
        told = head.take_one("semq_inquiry_resp").headers
        assert (told["result"], told["seq"], told["ref_id"]) == (result, str(seq), str(seq))
    head.control("semq_inquiry", **mid_fields(A, "1-7"), **said)
    told_all = head.take("semq_inquiry_resp")
    found = {one.headers["result"]: one.headers["seqs"] for one in told_all}
    assert found == {"1": "1-3,5", "0": "4,6-7"}


def test_rows_are_of_whom_they_are_for() -> None:
    """Numbers are those of a destination: what is stored for one node is not for another."""
    platform, head, branch = pair()
    platform.node(C).hello()
    branch.vanish()
    head.send(B, 1, b"m")
    for target, result in ((B, "1"), (C, "0"), ("1:999", "0")):
        asked = mid_fields(A, 1, about="send", topic=f"semq/{target}")
        head.control("semq_inquiry", **asked)
        assert head.take_one("semq_inquiry_resp").headers["result"] == result
    assert head.flag(C, 1, b"other") == "Ack-Fwd"


def test_nobody_asks_for_the_rows_of_another() -> None:
    _, head, branch = pair()
    asked = mid_fields(B, 1, about="send", topic=f"semq/{B}")
    head.say("semq_inquiry", id="x", src=A, dst="0:1", **asked)
    assert [one.status for one in head.take_answers()] == [403]
    assert not branch.take("semq_inquiry")


def test_a_receiver_asks_whether_its_ack_has_come() -> None:
    """The question proves that it has the message; a row that is gone was final."""
    platform, _, branch = delivered(3)
    for seq in (1, 1, 9):
        asked = mid_fields(A, seq, about="ack", semq_id=1, semq_db_id=1, ref_id=seq)
        branch.control("semq_inquiry", **asked)
        assert branch.take_one("semq_inquiry_resp").headers["result"] == "1"
    assert set(platform.states(B)) == {2, 3}
    branch.control("semq_inquiry", **mid_fields(A, "1-3", about="ack"))
    told = branch.take_one("semq_inquiry_resp").headers
    assert (told["result"], told["seqs"], told["about"]) == ("1", "1-3", "ack")
    assert platform.states(B) == {}


def test_an_answer_for_the_platform() -> None:
    platform, _, branch = delivered(4)
    said: dict[str, Any] = {"about": "send", "flag": 1, "attempt": 1}
    branch.control("semq_inquiry_resp", result=1, **mid_fields(A, "1-2"), **said)
    assert set(platform.states(B)) == {3, 4}
    branch.control("semq_inquiry_resp", result=0, **mid_fields(A, "1-3"), **said)
    assert branch.delivered() == [b"3"], "what was confirmed is not sent again"
    assert branch.take_answers() == []


# -- between nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["semq_ack", "semq_reack", "semq_inquiry", "semq_inquiry_resp"])
def test_control_messages_are_passed_on(command: str) -> None:
    _, head, branch = pair()
    said = mid_fields(A, 7, ack_flag=2, about="ack", result=1, dest_ref_id=301, app_key="ü")
    branch.control(command, dst=A, **said)
    came = head.take_one(command).headers
    assert (came["src"], came["dst"]) == (B, A)
    assert {name: came[name] for name in said} == {k: str(v) for k, v in said.items()}
    assert branch.take_answers() == [], "nobody is told of that"


@pytest.mark.parametrize(("target", "reason"), [(C, "offline"), ("1:999", "unknown")])
def test_control_messages_for_who_is_not_there(target: str, reason: str) -> None:
    platform, _, branch = pair()
    other = platform.node(C)
    other.hello()
    other.vanish()
    branch.say("semq_ack", id="x", src=B, dst=target, ack_flag=2, **mid_fields(C, 7))
    (told,) = branch.take_answers()
    assert (told.status, told.headers["reason"]) == (404, reason)
    assert not platform.states(C), "they are stored nowhere"


def test_control_messages_find_the_instance_of_their_row() -> None:
    platform, _, branch = pair()
    first, second = platform.node(C), platform.node(C)
    first.hello(semq="1/1")
    second.hello(semq="2/1,2/2,3/1")
    branch.control("semq_ack", dst=C, ack_flag=2, src_semq_id=1, **mid_fields(C, 1))
    branch.control("semq_ack", dst=C, ack_flag=2, src_semq_id=3, **mid_fields(C, 2))
    branch.control("semq_inquiry", dst=C, about="ack", semq_id=2, **mid_fields(C, 3))
    branch.control("semq_inquiry_resp", dst=C, about="send", semq_id=1, **mid_fields(C, 4))
    branch.control("semq_reack", dst=C, dest_semq_id=2, **mid_fields(B, 5))
    branch.control("semq_ack", dst=C, ack_flag=2, epoch=EPOCH, seq=6)
    branch.control("semq_ack", dst=C, ack_flag=2, **mid_fields(C, 7, lk0=f"{C}/2/1/7"))
    asked = {"about": "ack", "semq_id": 1, "result": 1}  # the row of whoever was asked
    branch.control("semq_inquiry_resp", dst=C, dest_semq_id=3, **asked, **mid_fields(B, 8))
    branch.control("semq_inquiry", dst=C, about="send", semq_id=2, **mid_fields(B, 9))
    assert [one.headers["seq"] for one in first.take_all()] == [*"1469"]
    assert [one.headers["seq"] for one in second.take_all()] == [*"23578"]
    branch.say("semq_ack", id="x", src=B, dst=C, ack_flag=2, src_semq_id=9, **mid_fields(C, 1))
    assert [one.headers["reason"] for one in branch.take_answers()] == ["offline"]


def test_confirmations_are_taken_when_messages_are_not() -> None:
    """They are small, and save questions."""
    _, head, branch = pair()
    head.client.takes = False
    body = b"x" * 300_000
    assert branch.flag(A, 1, body) == "Ack-Fwd"
    assert branch.flag(A, 2, body) == "Ack-Save"
    branch.control("semq_ack", dst=A, ack_flag=2, **mid_fields(A, 1))
    assert branch.take_answers() == []
    head.client.takes = True
    assert head.take_one("semq_ack")
    assert head.delivered() == [body, body]


def test_a_forged_confirmation_comes_with_the_name_of_its_sender() -> None:
    """Whether that is who a message was for, its source knows."""
    platform, head, _ = pair()
    other = platform.node(C)
    other.hello()
    other.say("semq_ack", id="x", src=B, dst=A, ack_flag=2, **mid_fields(A, 1))
    assert [one.status for one in other.take_answers()] == [403]
    assert not head.take("semq_ack")
    other.control("semq_ack", src=C, dst=A, ack_flag=2, **mid_fields(A, 1))
    assert head.take_one("semq_ack").headers["src"] == C


def test_over_plain_http_the_reply_is_the_answer() -> None:
    platform, head, _ = delivered(3)
    numbered = f"lk0={A}/1/1/0&epoch={EPOCH}&stream=3"
    client = platform.world.connect()
    inquiry = f"/semq?cmd=semq_inquiry&src={A}&about=send&topic=semq/{B}&{numbered}"
    told = client.request(http(f"{inquiry}&seqs=1-4", method="POST")).headers
    assert (told["cmd"], told["result"]) == ("semq_inquiry_resp", "1")
    assert (told["seqs"], told["missing"]) == ("1-3", "4")
    for seq, result in ((1, "1"), (9, "0")):
        told = client.request(http(f"{inquiry}&seq={seq}", method="POST")).headers
        assert (told["result"], told["seq"]) == (result, str(seq))
    ack2 = f"/semq?cmd=semq_ack&src={B}&dst={A}&ack_flag=2&{numbered}&seq=1"
    assert client.request(http(ack2, method="POST")).status == 200
    assert head.take_one("semq_ack").headers["src"] == B
    head.vanish()
    reply = client.request(http(ack2, method="POST"))
    assert (reply.status, reply.headers["reason"]) == (404, "offline")


# -- the charts ---------------------------------------------------------------------------------


def test_chart_1_target_online() -> None:
    platform, head, branch = pair()
    assert head.flag(B, 1, b"m", ack2=1) == "Ack-Fwd"
    assert branch.take_one("semq_deliver").headers["ack2"] == "1"
    branch.control("semq_ack", dst=A, ack_flag=2, src_ref_id=1, **mid_fields(A, 1))
    assert head.take_one("semq_ack").headers["ack_flag"] == "2"
    head.control("semq_reack", dst=B, ack_flag=2, **mid_fields(A, 1))
    assert branch.take_one("semq_reack")
    assert platform.states(B) == platform.states(A) == {}


def test_chart_9_a_late_copy() -> None:
    """A forwarded copy was confirmed to its source; the stored one is confirmed to the platform."""
    platform, head, branch = pair()
    assert head.flag(B, 1, b"m") == "Ack-Fwd"
    branch.take_one("semq_deliver")
    branch.vanish()
    assert head.flag(B, 1, b"m", attempt=2) == "Ack-Save"
    branch.connect()
    branch.hello()
    branch.ack(branch.take_one("semq_deliver"))
    assert branch.take_one("semq_reack")
    assert platform.states(B) == {}


def test_chart_7_a_crash_of_the_platform() -> None:
    platform, head, branch = pair()
    branch.vanish()
    assert head.flag(B, 1, b"m") == "Ack-Save"
    platform.restart(crash=True)
    head.hello()
    head.control("semq_inquiry", **mid_fields(A, 1, about="send", topic=f"semq/{B}"))
    assert head.take_one("semq_inquiry_resp").headers["result"] == "1"
    branch.hello()
    assert branch.delivered() == [b"m"]


def test_nothing_is_answered_twice_by_http() -> None:
    platform, _, _ = delivered(1)
    client = platform.world.connect()
    fields = mid_fields(A, 1, src=B, ack_flag=1, src_ref_id=1)
    assert client.request(frame("semq_ack", id="i", **fields)).headers["id"] == "i"
