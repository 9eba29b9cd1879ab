"""What nobody should say: it is refused in words, and nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.semq.words import A, B, Node, Platform, frame, mid_fields, send_fields


@pytest.fixture
def head() -> Node:
    """A; B is known, has a message that it has not confirmed, and is not online."""
    platform = Platform()
    branch, head = platform.node(B), platform.node(A)
    branch.hello()
    branch.vanish()
    head.hello()
    head.send(B, 1, b"m")
    branch.connect()
    branch.hello()
    branch.vanish()
    head.take_all()
    return head


SEND: dict[str, dict[str, Any]] = {
    "level 0": {"savefwd": 0},
    "level 4": {"savefwd": 4},
    "a level that is none": {"savefwd": "all"},
    "no lk0": {"lk0": ""},
    "half an lk0": {"lk0": f"{A}/1/1"},
    "an lk0 without numbers": {"lk0": f"{A}/x/1/1"},
    "an lk0 beyond all numbers": {"lk0": f"{A}/1/1/{1 << 63}"},
    "a negative lk0": {"lk0": f"{A}/1/1/-1"},
    "another's lk0": {"lk0": f"{B}/1/1/1"},
    "no epoch": {"epoch": ""},
    "a short epoch": {"epoch": "9f"},
    "an epoch in capitals": {"epoch": "9F00000000000001"},
    "no seq": {"seq": ""},
    "seq 0": {"seq": 0},
    "a seq that is none": {"seq": "1e3"},
    "a stream of level 2": {"stream": 2},
    "a stream that is none": {"stream": 1},
    "no dst": {"dst": "", "topic": ""},
    "a dst that is none": {"dst": "9:1", "topic": ""},
    "a dst with spaces": {"dst": "1:5 6", "topic": ""},
    "a dst with an empty user": {"dst": f"{B}/", "topic": ""},
    "a dst with two users": {"dst": f"{B}/a/b", "topic": ""},
    "another topic": {"topic": "semq/1:1"},
    "a src that is none": {"src": "nobody"},
    "ack2 that is none": {"ack2": "yes"},
    "unreliable level 3": {"reliable": 0},
    "unreliable level 2": {"reliable": 0, "savefwd": 2, "stream": 2},
    "unreliable level 2, without numbers": {"reliable": 0, "savefwd": "", "lk0": "", "seq": ""},
    "unreliable with a receipt": {"reliable": 0, "savefwd": 1, "ack2": 1, "stream": 2},
    "an expiry that is none": {"expires": "tomorrow"},
    "an attempt that is none": {"attempt": 0},
    "a long app_key": {"app_key": "x" * 1_025},
    "a fixed that is none": {"fixed": 2},
}


@pytest.mark.parametrize("case", SEND)
def test_sends(head: Node, case: str) -> None:
    fields = {**send_fields(A, B, 2), **SEND[case]}
    reply = head.request("semq_send", b"m", **fields)
    assert reply.status in (400, 403), reply
    assert reply.headers["reason"] in ("malformed", "forbidden")
    assert reply.body.startswith(b"%d: " % reply.status)
    assert set(head.platform.states(B)) == {1}
    assert head.flag(B, 2, b"m") == "Ack-Save"


CONTROL: dict[str, tuple[str, dict[str, Any]]] = {
    "an ack of nothing": ("semq_ack", {"seq": "", "src_ref_id": ""}),
    "an ack of half an lk0": ("semq_ack", {"lk0": A}),
    "an ack of no epoch": ("semq_ack", {"epoch": "x"}),
    "many acks without lk0": ("semq_ack", {"seqs": "1-3", "lk0": ""}),
    "many acks without an epoch": ("semq_ack", {"seqs": "1-3", "epoch": ""}),
    "an ack of nobody": ("semq_ack", {"ack_flag": 3}),
    "an ack of no record": ("semq_ack", {"src_ref_id": "x"}),
    "an ack for no node": ("semq_ack", {"dst": "x"}),
    "numbers from 0": ("semq_ack", {"seqs": "0-5"}),
    "numbers backwards": ("semq_ack", {"seqs": "5-1"}),
    "numbers that are none": ("semq_ack", {"seqs": "1,,2"}),
    "too many numbers": ("semq_ack", {"seqs": "1-10001"}),
    "very many numbers": ("semq_inquiry", {"seqs": f"1-{1 << 62}", "about": "ack"}),
    "a question about nothing": ("semq_inquiry", {"about": "x"}),
    "a question without a word": ("semq_inquiry", {}),
    "a question about no row": ("semq_inquiry", {"about": "ack", "seq": ""}),
    "many questions about no topic": ("semq_inquiry", {"about": "send", "seqs": "1-3"}),
    "a question about no number": ("semq_inquiry", {"about": "send", "seq": "", "ref_id": 1}),
    "a question of nobody": ("semq_inquiry", {"about": "ack", "ref_id": 1, "flag": 3}),
    "a question about no node": ("semq_inquiry", {"about": "send", "topic": "semq/x"}),
    "an answer without a result": ("semq_inquiry_resp", {}),
    "an answer with another": ("semq_inquiry_resp", {"result": 2}),
    "an instance that is none": ("semq_ack", {"dst": B, "src_semq_id": "x"}),
}


@pytest.mark.parametrize("case", CONTROL)
def test_control_messages(head: Node, case: str) -> None:
    command, more = CONTROL[case]
    fields = mid_fields(A, 1, src=A, dst="0:1", src_ref_id=1)
    reply = head.request(command, **{**fields, **more})
    assert (reply.status, reply.headers["reason"]) == (400, "malformed")
    assert set(head.platform.states(B)) == {1}
    assert head.take_all() == []


@pytest.mark.parametrize("command", ["semq_ack", "semq_reack", "semq_inquiry"])
def test_a_control_message_has_no_body(head: Node, command: str) -> None:
    reply = head.request(command, b"x", dst=B, about="ack", **mid_fields(B, 1))
    assert (reply.status, reply.headers["reason"]) == (400, "malformed")


HELLO: dict[str, dict[str, Any]] = {
    "no node": {"node": ""},
    "a node that is none": {"node": "5:x"},
    "a user": {"node": f"{A}/alice"},
    "a long node": {"node": "1:" + "x" * 65},
    "an epoch that is none": {"epoch": "now"},
    "no instance": {"semq": "1"},
    "instance 0": {"semq": "0/1"},
    "store 0": {"semq": "1/0"},
    "an instance that is none": {"semq": "a/b"},
    "too many stores": {"semq": ",".join(["1/1"] * 65)},
    "an address without a port": {"listen": "host"},
    "an address with a path": {"listen": "host:1/x"},
    "too many addresses": {"listen": ",".join(["h:1"] * 9)},
    "a long address": {"listen": "h" * 300 + ":1"},
    "a cert that is none": {"cert": "-----BEGIN"},
    "a window of 0": {"window": 0},
    "a large window": {"window": 1_001},
    "a long version": {"version": "1" * 65},
    "another src": {"src": B},
    "the platform": {"node": "0:1"},
    "another platform": {"node": "0:2"},
    "a size that is none": {"max_size": "all"},
}


@pytest.mark.parametrize("case", HELLO)
def test_hellos(case: str) -> None:
    platform = Platform()
    node = platform.node(A)
    reply = node.request("semq_hello", **{"node": A, "epoch": "0" * 16, **HELLO[case]})
    assert reply.status in (400, 403)
    assert reply.headers["reason"] in ("malformed", "forbidden")
    assert not platform.world.broker.topics
    node.hello()


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "no such command": ("semq_what", {}),
    "a lookup of nobody": ("semq_lookup", {"src": A}),
    "a lookup of what is none": ("semq_lookup", {"src": A, "dst": "x"}),
    "a list of nobody": ("semq_list", {}),
    "a list of what is none": ("semq_list", {"node": "x"}),
    "a list of none": ("semq_list", {"node": B, "count": 0}),
    "a list of too many": ("semq_list", {"node": B, "count": 1_001}),
    "a list after nothing": ("semq_list", {"node": B, "after": "x"}),
    "a retry of what is none": ("semq_retry", {"node": B, "lk1": "1"}),
    "a long poll": ("semq_poll", {"node": B, "wait": 301}),
    "a poll of what is none": ("semq_poll", {"node": "x"}),
    "a poll of nobody": ("semq_poll", {}),
    "a src that is none": ("semq_ack", {"src": "nobody", "src_ref_id": 1}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_commands(head: Node, case: str) -> None:
    command, fields = OTHERS[case]
    client = head.platform.world.connect()
    reply = client.request(frame(command, id="i", **fields))
    assert (reply.status, reply.headers["reason"]) == (400, "malformed")
    assert reply.headers["id"] == "i"


OF_THE_PLATFORM: dict[str, tuple[str, dict[str, Any]]] = {
    "a message": ("semq_send", send_fields("0:1", A, 1)),
    "an ack": ("semq_ack", {"dst": A, "ack_flag": 2, **mid_fields(A, 1)}),
    "a reack": ("semq_reack", {"dst": A, "ack_flag": 1, **mid_fields(B, 1)}),
    "a question": ("semq_inquiry", {"dst": A, "about": "send", **mid_fields(A, 1)}),
    "an answer": ("semq_inquiry_resp", {"dst": A, "result": 1, **mid_fields(A, 1)}),
    "a word to itself": ("semq_ack", {"dst": "0:1", "src_ref_id": 1}),
    "a lookup": ("semq_lookup", {"dst": A}),
    "a poll": ("semq_poll", {}),
    "a poll by name": ("semq_poll", {"node": "0:1"}),
    "a hello": ("semq_hello", {"node": "0:1"}),
}


@pytest.mark.parametrize("src", ["0:1", "0:1/x", "0:2"])
@pytest.mark.parametrize("case", OF_THE_PLATFORM)
def test_nobody_speaks_as_the_platform(head: Node, case: str, src: str) -> None:
    command, fields = OF_THE_PLATFORM[case]
    topics = set(head.platform.world.broker.topics)
    reply = head.platform.ask(frame(command, **{**fields, "src": src}))
    assert (reply.status, reply.headers["reason"]) == (403, "forbidden")
    assert head.request(command, **{**fields, "src": src}).status == 403
    assert head.take_all() == []
    assert set(head.platform.world.broker.topics) == topics


@pytest.mark.parametrize("command", ["heartbeat", "semq_bye", "semq_stat"])
def test_whatever_a_connection_says_has_its_name(head: Node, command: str) -> None:
    assert head.request(command, src=B).status == 403
    assert head.request(command, src=f"{A}/alice").status == 200


def test_a_connection_of_a_node_polls_nothing(head: Node) -> None:
    assert head.request("semq_poll", node=A).status == 400


TARGETS = {
    "a field in the query that is none": "/semq?cmd=semq_stat&a%20b=c",
    "a line in a value": "/semq?cmd=semq_stat&node=1:1%0d%0ax:%20y",
    "no text": "/semq?cmd=semq_stat&node=%ff",
    "no text in the path": "/semq/%ff?cmd=semq_send",
    "a line in the path": "/semq/1:1%0a?cmd=semq_send",
    "too much": "/semq?cmd=semq_stat" + "&a=b" * 101,
    "nothing": "/semq",
    "a long value": "/semq?cmd=semq_stat&node=" + "x" * 5_000,
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets(case: str) -> None:
    reply = Platform().ask(http(TARGETS[case], body=b"x", method="POST"))
    assert (reply.status, reply.headers["reason"]) == (400, "malformed")


def test_fields_that_are_no_text(head: Node) -> None:
    data = frame("semq_send", b"m", id="i", **send_fields(A, B, 2, app_key="KEY"))
    head.client.send(data.replace(b"KEY", b"\xff\xfe"))
    (told,) = head.take_answers()
    assert (told.status, told.headers["id"]) == (400, "i")
    assert set(head.platform.states(B)) == {1}


def test_half_a_frame(head: Node) -> None:
    """Whoever ends in the middle of one has not sent it."""
    data = frame("semq_send", b"x" * 100, id="i", **send_fields(A, B, 2))
    for end in (10, len(data) // 2, len(data) - 1):
        head.client.send(data[:end])
        head.platform.world.settle()
        head.vanish()
        assert set(head.platform.states(B)) == {1}
        head.connect()
        head.hello()


def test_a_hello_on_a_connection_that_does_not_last() -> None:
    platform = Platform()
    reply = platform.ask(http(f"/semq?cmd=semq_hello&node={A}", "connection: close", method="POST"))
    assert reply.status == 400
