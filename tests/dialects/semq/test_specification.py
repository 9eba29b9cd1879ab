"""Frames as sections 15 and 15.1 of the specification write them, with nothing added."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.semq.words import EPOCH, INTERVAL_MS, A, B, C, Node, Platform
from zbus.testing.world import Reply

MID = {"lk0": f"{A}/1/1/42", "epoch": EPOCH, "stream": "3", "seq": "17"}


def read(text: str) -> dict[str, str]:
    """`cmd: semq_ack | ack_flag: 1`, as the specification has it."""
    pairs = [part.partition(":") for part in text.split("|")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def say(node: Node, text: str) -> list[Reply]:
    """Say it, without an id if it has none; what came back as an answer."""
    fields: dict[str, Any] = read(text)
    node.say(fields.pop("cmd"), **fields)
    node.platform.world.settle()
    return node.take_answers()


def pair(online: bool) -> tuple[Platform, Node, Node]:
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    head.hello()
    branch.hello()
    if not online:
        branch.vanish()
        branch.connect()
    return platform, head, branch


SEND = (
    f"cmd: semq_send | src: {A} | dst: {B} | topic: semq/{B} | id: u1 | lk0: {A}/1/1/42"
    f" | epoch: {EPOCH} | stream: 3 | seq: 17 | attempt: 1 | savefwd: 3 | ack2: 1"
    " | app_key: order,doc,new,S0001"
)


def stored() -> tuple[Platform, Node, Node]:
    """The message of the examples waits for B, and is handed to it."""
    platform, head, branch = pair(online=False)
    (reply,) = say(head, SEND)
    told = {"id": "u1", "ack_flag": "1", "flag": "2", "src_ref_id": "42"}
    assert (reply.status, {name: reply.headers[name] for name in told}) == (200, told)
    branch.hello()
    came = branch.take_one("semq_deliver").headers
    expected = {"src": A, "dst": B, "lk1": "1/1/1", "app_key": "order,doc,new,S0001", **MID}
    assert {name: came[name] for name in expected} == expected
    head.take_all()
    return platform, head, branch


def test_the_message_is_forwarded() -> None:
    platform, head, branch = pair(online=True)
    (reply,) = say(head, SEND)
    told = {"id": "u1", "ack_flag": "1", "flag": "1", "src_ref_id": "42"}
    assert (reply.status, {name: reply.headers[name] for name in told}) == (200, told)
    came = branch.take_one("semq_deliver").headers
    assert "lk1" not in came
    assert {name: came[name] for name in MID} == MID
    assert platform.states(B) == {}


ACK = "cmd: semq_ack | ack_flag: 1 | dst: 0:1 | src_ref_id: 1 | dest_ref_id: 301"

ACKS: dict[str, tuple[str, bool]] = {
    "as it is": ("", True),
    "with all of LK1": (" | src_semq_id: 1 | src_semq_db_id: 1", True),
    "with the MID": ("".join(f" | {name}: {MID[name]}" for name in MID), True),
    "with a key": (" | app_key: order,doc,new,S0001", True),
    **{f"with {name} alone": (f" | {name}: {MID[name]}", True) for name in MID},
    "with half of the MID": (f" | epoch: {EPOCH} | stream: 3 | seq: 17", True),
    "another seq": (" | seq: 18", False),
    "another stream": (" | stream: 2", False),
    "another epoch": (" | epoch: 0000000000000000", False),
    "another source": (f" | lk0: {C}/1/1/42", False),
    "another store": (f" | lk0: {A}/1/2/42", False),
    "another row": (" | src_ref_id: 2", False),
    "a row of another store": (" | src_semq_id: 2", False),
    "a row of another database": (" | src_semq_db_id: 2", False),
    "no row": (" | src_ref_id: 0", False),
    "a MID and no row": (
        " | src_ref_id: " + "".join(f" | {name}: {MID[name]}" for name in MID),
        False,
    ),
}


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("case", ACKS)
def test_ack(case: str, cold: bool) -> None:
    """Both must match, as far as they are said; ReAck comes in any case."""
    platform, _, branch = stored()
    if cold:
        platform.restart()
        branch.hello()
        branch.take_all()
    more, ends = ACKS[case]
    for _ in range(2):  # the second time the row is gone
        assert say(branch, ACK + more) == []
        told = branch.take_one("semq_reack").headers
        echo = {name: value for name, value in read(ACK + more).items() if value}
        echo |= {"cmd": "semq_reack", "src": "0:1", "dst": B}
        assert {name: told[name] for name in echo} == echo
    assert platform.states(B) == ({} if ends else {1: "SS_SENT"})


def test_ack_of_plain_http() -> None:
    platform, _, _ = stored()
    target = f"/semq?cmd=semq_ack&src={B}&dst=0:1&ack_flag=1&src_ref_id=1&seq=17"
    for _ in range(2):
        told = platform.ask(http(target, method="POST"))
        assert (told.status, told.headers["cmd"]) == (200, "semq_reack")
    assert platform.states(B) == {}


INQUIRIES: dict[str, tuple[str, str]] = {
    "as the section lists it": (
        f"flag: 2 | semq_id: 1 | semq_db_id: 1 | ref_id: 42 | epoch: {EPOCH} | stream: 3"
        " | seq: 17 | attempt: 1",
        "1",
    ),
    "with the least": ("ref_id: 42 | seq: 17", "1"),
    "with lk0": (f"lk0: {A}/1/1/42 | epoch: {EPOCH} | seq: 17", "1"),
    "with a topic": (f"topic: semq/{B} | semq_id: 1 | ref_id: 42 | seq: 17", "1"),
    "several": (f"topic: semq/{B} | lk0: {A}/1/1/0 | epoch: {EPOCH} | seqs: 17", "1"),
    "another row of that number": ("ref_id: 43 | seq: 17", "0"),
    "another number": ("ref_id: 42 | seq: 18", "0"),
    "another instance": ("semq_id: 2 | ref_id: 42 | seq: 17", "0"),
    "another database": ("semq_db_id: 2 | ref_id: 42 | seq: 17", "0"),
    "another epoch": ("epoch: 0000000000000000 | ref_id: 42 | seq: 17", "0"),
}


@pytest.mark.parametrize("case", INQUIRIES)
def test_inquiry_of_a_sender(case: str) -> None:
    """Of the platform: what is not said is the sender's own, and is looked for everywhere."""
    platform, head, _ = stored()
    platform.node(C).hello()
    fields, result = INQUIRIES[case]
    assert say(head, f"cmd: semq_inquiry | about: send | dst: 0:1 | {fields}") == []
    told = head.take_one("semq_inquiry_resp").headers
    assert told["result"] == result
    echo = read(fields)
    assert {name: told[name] for name in echo} == echo
    assert platform.states(B) == {1: "SS_SENT"}


def test_a_number_that_several_nodes_have() -> None:
    """Each destination is numbered by itself: LK0 tells which is meant."""
    platform, head, branch = stored()
    other = platform.node(C)
    other.hello()
    other.vanish()
    to_other = SEND.replace(f"dst: {B} | topic: semq/{B}", f"dst: {C}").replace("/42", "/43")
    assert [one.headers["flag"] for one in say(head, to_other)] == ["2"]
    say(branch, ACK)
    head.take_all()
    for record, result in ((42, "0"), (43, "1"), (44, "0")):
        say(head, f"cmd: semq_inquiry | about: send | dst: 0:1 | ref_id: {record} | seq: 17")
        assert head.take_one("semq_inquiry_resp").headers["result"] == result


def test_inquiry_of_a_receiver() -> None:
    """LK1 alone says which row: the question proves that B has it."""
    platform, _, branch = stored()
    for _ in range(2):
        say(branch, "cmd: semq_inquiry | about: ack | flag: 2 | dst: 0:1 | ref_id: 1")
        told = branch.take_one("semq_inquiry_resp").headers
        assert (told["result"], told["ref_id"], told["about"]) == ("1", "1", "ack")
        assert platform.states(B) == {}


@pytest.mark.parametrize("more", ["", " | seq: 17", "".join(f" | {n}: {MID[n]}" for n in MID)])
@pytest.mark.parametrize("result", [0, 1])
def test_answer_to_the_platform(result: int, more: str) -> None:
    platform, _, branch = stored()
    platform.wait(INTERVAL_MS)
    asked = branch.take_one("semq_inquiry").headers
    same = {"about": "send", "flag": "1", "semq_id": "1", "semq_db_id": "1", "ref_id": "1", **MID}
    assert {name: asked[name] for name in same} == same
    say(
        branch,
        f"cmd: semq_inquiry_resp | about: send | dst: 0:1 | ref_id: 1 | seq: 18 | result: {result}",
    )
    assert branch.take("semq_deliver") == [], "that is another message"
    say(branch, f"cmd: semq_inquiry_resp | dst: 0:1 | ref_id: 1 | result: {result}{more}")
    assert len(branch.take("semq_deliver")) == 1 - result
    assert platform.states(B) == ({} if result else {1: "SS_SENT"})


PASSED_ON: list[str] = [
    f"cmd: semq_ack | ack_flag: 2 | dst: {A} | src_ref_id: 42 | dest_ref_id: 301",
    f"cmd: semq_ack | ack_flag: 2 | dst: {A} | src_ref_id: 42 | dest_ref_id: 0 | void: 1",
    f"cmd: semq_ack | ack_flag: 2 | dst: {A} | src_semq_id: 1 | src_semq_db_id: 1 | src_ref_id: 42",
    f"cmd: semq_reack | ack_flag: 2 | dst: {A} | src_ref_id: 42 | dest_ref_id: 301",
    f"cmd: semq_inquiry | about: send | flag: 2 | dst: {A} | semq_id: 1 | ref_id: 42 | seq: 17",
    f"cmd: semq_inquiry | about: ack | flag: 2 | dst: {A} | semq_id: 1 | ref_id: 42",
    f"cmd: semq_inquiry_resp | about: send | dst: {A} | ref_id: 42 | result: 1",
    f"cmd: semq_inquiry_resp | about: ack | dst: {A} | ref_id: 42 | result: 1",
]


@pytest.mark.parametrize("text", PASSED_ON)
def test_between_nodes(text: str) -> None:
    """What is not for the platform is passed on unchanged, however little it says."""
    _, head, branch = pair(online=True)
    assert say(branch, text) == []
    (came,) = head.take_all()
    assert came.headers == {**came.headers, **read(text), "src": B}
    head.vanish()
    (told,) = say(branch, text + " | id: q")
    assert (told.status, told.headers["reason"], told.headers["dst"]) == (404, "offline", A)


# -- semq_send ----------------------------------------------------------------------------------

NUMBERED = f"lk0={A}/1/1/42&epoch={EPOCH}"

POSTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "level 3": (f"savefwd=3&src={A}&{NUMBERED}&stream=3&seq=17", "2", MID),
    "without a stream": (f"savefwd=3&src={A}&{NUMBERED}&seq=17", "2", MID),
    "without lk0": (f"savefwd=3&src={A}&epoch={EPOCH}&seq=17", "2", {"lk0": f"{A}/1/1/17"}),
    "level 2": (f"savefwd=2&src={A}&{NUMBERED}&seq=17", "2", {"stream": "2", "src": A}),
    "no level": (f"src={A}&{NUMBERED}&seq=17", "2", {"stream": "2", "src": A}),
    "level 2 without numbers": ("savefwd=2", "2", {"stream": "2", "src": "0:1"}),
    "nothing": ("", "2", {"stream": "2", "src": "0:1"}),
}


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("case", POSTS)
def test_plain_http(case: str, slash: str) -> None:
    platform, _, branch = pair(online=False)
    query, flag, expected = POSTS[case]
    target = f"/semq/{B}{slash}?cmd=semq_send&{query}"
    for _ in range(2 if "seq" in query else 1):
        reply = platform.ask(http(target, body=b"order", method="POST"))
        assert (reply.status, reply.headers["ack_flag"], reply.headers["flag"]) == (200, "1", flag)
    branch.hello()
    came = branch.take_one("semq_deliver")
    assert (came.body, {name: came.headers[name] for name in expected}) == (b"order", expected)


SENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a topic and no dst": ({"topic": f"semq/{B}"}, B),
    "a dst and no topic": ({"dst": B}, B),
    "both": ({"dst": B, "topic": f"semq/{B}"}, B),
    "a user": ({"dst": f"{B}/bob", "topic": f"semq/{B}"}, f"{B}/bob"),
}


@pytest.mark.parametrize("path", ["/semq", "/", "/any/other"])
@pytest.mark.parametrize("case", SENDS)
def test_a_connection_sends(case: str, path: str) -> None:
    """All that can be left out is: the level is 2 then, and nobody wants a receipt."""
    _, head, branch = pair(online=False)
    fields, target = SENDS[case]
    fields = {**fields, "lk0": MID["lk0"], "epoch": EPOCH, "seq": 17, "id": "u1"}
    lines = [f"{name}: {fields[name]}" for name in fields]
    start = f"POST {path} HTTP/1.1\r\ncmd: semq_send\r\n"
    head.client.send((start + "\r\n".join((*lines, "content-length: 1", "", "x"))).encode())
    (reply,) = head.take_answers()
    assert (reply.headers["id"], reply.headers["flag"]) == ("u1", "2")
    branch.hello()
    came = branch.take_one("semq_deliver").headers
    assert (came["src"], came["dst"], came["stream"]) == (A, target, "2")
    assert not came.keys() & {"ack2", "ordered", "reliable"}


def test_level_1_to_nobody_tells_whom_it_was_for() -> None:
    _, head, _ = pair(online=False)
    (told,) = say(head, f"cmd: semq_send | id: u1 | dst: {B}/bob | savefwd: 1")
    assert (told.status, told.headers["reason"]) == (404, "offline")
    assert told.headers["dst"] == f"{B}/bob"


# -- 15.1 ---------------------------------------------------------------------------------------


def test_chart_2_target_offline() -> None:
    platform, head, branch = stored()
    say(branch, ACK)
    assert branch.take_one("semq_reack")
    assert platform.states(B) == {}
    say(branch, PASSED_ON[0])
    assert head.take_one("semq_ack").headers["src_ref_id"] == "42"
    say(head, f"cmd: semq_reack | ack_flag: 2 | dst: {B} | src_ref_id: 42 | dest_ref_id: 301")
    assert branch.take_one("semq_reack").headers["dest_ref_id"] == "301"


@pytest.mark.parametrize("first", ["platform", "receiver"])
def test_chart_3_lost_ack(first: str) -> None:
    platform, _, branch = stored()
    if first == "platform":
        platform.wait(INTERVAL_MS)
        assert branch.take_one("semq_inquiry").headers["about"] == "send"
        say(branch, "cmd: semq_inquiry_resp | about: send | dst: 0:1 | ref_id: 1 | result: 1")
        assert platform.states(B) == {}
    say(branch, "cmd: semq_inquiry | about: ack | dst: 0:1 | ref_id: 1")
    assert branch.take_one("semq_inquiry_resp").headers["result"] == "1"
    assert platform.states(B) == {}


def test_chart_5_lost_reack() -> None:
    platform, _, branch = stored()
    say(branch, ACK)
    branch.take_all()
    assert platform.states(B) == {}
    say(branch, "cmd: semq_inquiry | about: ack | dst: 0:1 | ref_id: 1")
    assert branch.take_one("semq_inquiry_resp").headers["result"] == "1"


@pytest.mark.parametrize("online", [True, False])
def test_chart_7_crash_of_the_platform(online: bool) -> None:
    """What it only forwarded it does not have; what it stored, it has."""
    platform, head, branch = pair(online)
    say(head, SEND)
    platform.restart(crash=True)
    head.hello()
    say(head, "cmd: semq_inquiry | about: send | dst: 0:1 | ref_id: 42 | seq: 17")
    assert head.take_one("semq_inquiry_resp").headers["result"] == str(int(not online))
    branch.hello()
    assert len(branch.take("semq_deliver")) == int(not online)
