"""Who is online, and who is told of it: section 11 of the specification, and `semq_lookup`."""

from __future__ import annotations

import hmac

import pytest

from tests.conformance.dialogue import cmd, http
from tests.dialects.semq.words import A, B, C, Node, Platform, frame, mid_fields
from zbus.dialects.semq import links
from zbus.dialects.semq.settings import SemqSettings


def states(node: Node) -> list[tuple[str, str]]:
    found = node.take("semq_presence")
    return [(one.headers["node"], one.headers["state"]) for one in found]


def pair() -> tuple[Platform, Node, Node]:
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    head.hello()
    branch.hello()
    return platform, head, branch


def test_whoever_sends_is_told_of_the_target() -> None:
    _, head, branch = pair()
    head.send(B, 1, b"m")
    assert states(head) == [(B, "online")], "at once"
    head.send(B, 2, b"m")
    assert states(head) == []
    branch.vanish()
    assert states(head) == [(B, "offline")]
    branch.connect()
    branch.hello()
    assert states(head) == [(B, "online")]
    assert states(branch) == [], "it has asked for nobody"


@pytest.mark.parametrize("what", ["ack", "lookup", "inquiry"])
def test_whoever_asks_is_told(what: str) -> None:
    _, head, branch = pair()
    branch.vanish()
    if what == "ack":
        head.control("semq_ack", dst=B, ack_flag=2, **mid_fields(B, 1))
    elif what == "lookup":
        head.request("semq_lookup", src=A, dst=B)
    else:
        head.control("semq_inquiry", **mid_fields(A, 1, about="send", topic=f"semq/{B}"))
    assert states(head) == [(B, "offline")]
    branch.connect()
    branch.hello()
    assert states(head) == [(B, "online")]


def test_who_has_gone_is_told_nothing() -> None:
    platform, head, branch = pair()
    head.send(B, 1, b"m")
    head.vanish()
    branch.vanish()
    head.connect()
    head.hello()
    branch.connect()
    branch.hello()
    assert states(head) == [], "subscriptions are of a connection"
    dialect = platform.world.front.dialects["semq"]
    assert dialect.holds()["semqLinks"]() == 2 * 2_500


def test_few_nodes_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "WATCHED_MAX", 2)
    platform = Platform(SemqSettings(semq_nodes="1:1,1:2,1:3"))
    head = platform.node(A)
    head.hello()
    for name in ("1:1", "1:2", "1:1", "1:3"):
        head.send(name, 1, b"m")
    assert len(states(head)) == 3
    for name in ("1:1", "1:2", "1:3"):
        platform.node(name).hello()
    assert states(head) == [("1:1", "online"), ("1:3", "online")], "the last that were asked for"


def test_all_watches_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "WATCHES_MAX", 3)
    platform = Platform(SemqSettings(semq_nodes="1:1,1:2,1:3"))
    nodes = [platform.node(name) for name in (A, B)]
    for node in nodes:
        node.hello()
        for name in ("1:1", "1:2", "1:3"):
            node.send(name, 1, b"m")
    assert [len(states(node)) for node in nodes] == [3, 0]
    nodes[0].vanish()
    nodes[1].send("1:1", 2, b"m")
    assert states(nodes[1]) == [("1:1", "offline")]


# -- connections --------------------------------------------------------------------------------


def test_the_newest_connection_of_an_instance_wins() -> None:
    platform, head, branch = pair()
    head.send(B, 1, b"m")
    states(head)
    again = platform.node(B)
    again.hello()
    bye = branch.take_one("semq_bye")
    assert bye.headers["reason"] == "replaced"
    assert branch.client.closed
    assert states(head) == [(B, "online")], "what was on its way may be lost"
    assert head.flag(B, 2, b"n") == "Ack-Fwd"
    assert again.delivered() == [b"n"]
    branch.vanish()
    assert states(head) == [], "it is online"
    assert head.flag(B, 3, b"o") == "Ack-Fwd"


def test_other_instances_stay() -> None:
    platform, head, branch = pair()
    second, third = platform.node(B), platform.node(B)
    second.hello(semq="2/1,3/1")
    assert not branch.client.closed
    third.hello(semq="3/7")
    assert second.client.closed
    assert not branch.client.closed
    third.vanish()
    assert head.flag(B, 1, b"m") == "Ack-Fwd"
    branch.vanish()
    assert head.flag(B, 2, b"m") == "Ack-Save"


def test_heartbeats() -> None:
    platform, head, branch = pair()
    platform.world.advance(10_000)
    assert [one.headers["src"] for one in branch.take("heartbeat")] == ["0:1"]
    assert branch.request("heartbeat").status == 200
    head.send(B, 1, b"m")
    states(head)
    for ms in (9_999, 20_000):
        platform.world.advance(ms)
        head.request("heartbeat")
        assert states(head) == []
    platform.world.advance(1)
    assert states(head) == [(B, "offline")]
    assert branch.client.closed
    assert branch.take_one("semq_bye").headers["reason"] == "silent"


def test_half_a_message_is_heard() -> None:
    platform, _, branch = pair()
    data = frame("semq_send", b"x" * 1_000, src=B, dst=A, savefwd=1)
    for at in range(0, len(data) - 1, 100):
        branch.client.send(data[at : at + 100])
        platform.world.settle()
        platform.world.advance(10_000)
    assert not branch.client.closed


def test_who_takes_nothing_is_not_silent() -> None:
    """Nothing is read from it meanwhile; the server looks after that."""
    platform, head, branch = pair()
    branch.client.takes = False
    assert head.flag(B, 1, b"x" * 300_000) == "Ack-Fwd"
    for _ in range(10):
        platform.world.advance(9_000)
        head.request("heartbeat")
    assert head.flag(B, 2, b"m") == "Ack-Save"
    branch.client.takes = True
    assert branch.delivered() == [b"x" * 300_000, b"m"]


def test_bye() -> None:
    _, head, branch = pair()
    head.send(B, 1, b"m")
    branch.take("semq_deliver")
    states(head)
    assert branch.request("semq_bye").status == 200
    assert states(head) == [(B, "offline")]
    assert head.flag(B, 2, b"m") == "Ack-Save"
    assert branch.delivered() == []
    branch.hello()
    assert branch.delivered() == [b"m"], "on the same connection"


def test_hello_again_changes_what_is_said() -> None:
    _, head, branch = pair()
    branch.hello(listen="10.0.0.1:99", cert="aa:bb")
    assert head.request("semq_lookup", src=A, dst=B).headers["listen"] == "10.0.0.1:99"
    for node, semq in ((C, "1/1"), (B, "7/1")):
        assert branch.request("semq_hello", node=node, semq=semq).status == 403
    assert head.flag(B, 1, b"m") == "Ack-Fwd"


def test_a_mailbox_stays_as_its_node_wrote_it() -> None:
    platform, _, _ = pair()
    for name, other in (("1:abc", "1:ABC"), ("1:XYZ", "1:xyz")):
        platform.node(name).hello()
        reply = platform.node(other).request("semq_hello", node=other)
        assert (reply.status, reply.headers["reason"]) == (409, "conflict")


def test_a_topic_that_is_no_mailbox() -> None:
    platform = Platform()
    client = platform.world.connect()
    client.request(cmd("declare", f"topic: semq.{A}", "partitions: 2"))
    reply = platform.node(A).request("semq_hello", node=A)
    assert (reply.status, reply.headers["reason"]) == (409, "conflict")
    client.request(cmd("declare", f"topic: semq.{B}"))
    client.request(http(f"/semq.{B}", body=b"before", method="POST"))
    branch = platform.node(B)
    branch.hello()
    assert branch.delivered() == [b"before"], "an operator may make it"


def test_a_mailbox_that_is_removed() -> None:
    platform, head, branch = pair()
    client = platform.world.connect()
    assert client.request(cmd("remove", f"topic: semq.{B}")).status == 200
    assert branch.take_one("semq_bye")
    assert head.flag(B, 1, b"m") == "404 unknown"
    branch.connect()
    branch.hello()
    assert head.flag(B, 1, b"m") == "Ack-Fwd"


def test_the_stop() -> None:
    platform, head, branch = pair()
    platform.world.broker.stop()
    platform.world.settle()
    assert head.flag(B, 1, b"m", savefwd=1) == "Ack-Fwd", "until it is closed"
    branch.vanish()
    platform.world.broker.check()


# -- lookup -------------------------------------------------------------------------------------


def signed(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


def test_lookup() -> None:
    platform, head, branch = pair()
    key = branch.hello(listen="b.example:7001,[::1]:7001", cert="AB:cd").headers["ticket_key"]
    told = head.request("semq_lookup", src=A, dst=f"{B}/bob").headers
    assert (told["node"], told["listen"]) == (B, "b.example:7001,[::1]:7001")
    assert told["cert"] == "AB:cd"
    asker, target, expires, sign = told["ticket"].split("|")
    assert (asker, target) == (A, B)
    assert int(expires) == platform.world.now_ms + 60_000
    assert sign == signed(key, f"{A}|{B}|{expires}")
    assert told["key"] == signed(key, "key" + told["ticket"])
    assert head.hello().headers["ticket_key"] != key


@pytest.mark.parametrize(
    ("target", "reason"), [("1:999", "unknown"), (C, "offline"), (B, "offline")]
)
def test_lookup_of_who_is_not_to_be_reached(target: str, reason: str) -> None:
    platform, head, _ = pair()
    other = platform.node(C)
    other.hello(listen="c:1")
    other.vanish()
    reply = head.request("semq_lookup", src=A, dst=target)
    assert (reply.status, reply.headers["reason"]) == (404, reason)
