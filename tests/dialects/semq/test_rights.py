"""Nodes are bound to tokens, and what each command needs."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.semq.words import A, B, C, Node, Platform, frame, mid_fields, send_fields
from tests.dialects.talks import entry
from zbus.dialects.semq.settings import SemqSettings
from zbus.edge.access import Access, Entry, make_grant


def of_node(token: str, node: str, *targets: str) -> list[Entry]:
    """May be this node, and may send to those. It is granted no group of theirs, or it could be any
    of them: a token may do the same to all its topics."""
    topics: dict[str, list[str]] = {f"semq.{one}": ["-"] for one in targets}
    grant = make_grant(token, ["consume", "produce"], {**topics, f"semq.{node}": []})
    return [Entry(grant, (sha256(token.encode()).digest(),))]


def table() -> Access:
    return Access(
        [
            entry("admin", "admin"),
            *of_node("head", A, B, C),
            *of_node("branch", B),
            entry("watcher", "query", "T"),
            entry("operator", "query empty", "semq.*"),
            entry("sender", "produce", "*"),
        ]
    )


@pytest.fixture
def platform() -> Platform:
    return Platform(SemqSettings(semq_nodes=f"{A},{B},{C}"), table())


def hello(platform: Platform, name: str, token: str) -> int:
    fields: dict[str, Any] = {"token": token} if token else {}
    return platform.node(name).request("semq_hello", node=name, **fields).status


@pytest.mark.parametrize(
    ("name", "token", "status"),
    [
        (A, "head", 200),
        (B, "branch", 200),
        (A, "branch", 403),
        (B, "head", 403),
        (A, "sender", 403),
        (A, "", 403),
        (A, "wrong", 403),
        (B, "admin", 200),
    ],
)
def test_who_may_be_a_node(platform: Platform, name: str, token: str, status: int) -> None:
    assert hello(platform, name, token) == status
    dialect = platform.world.front.dialects["semq"]
    assert bool(dialect.holds()["semqLinks"]()) is (status == 200)


def test_a_connection_shows_its_token_once(platform: Platform) -> None:
    head, branch = platform.node(A, "head"), platform.node(B, "branch")
    head.hello()
    branch.hello()
    assert head.flag(B, 1, b"m", ack2=1) == "Ack-Fwd"
    branch.control("semq_ack", dst=A, ack_flag=2, **mid_fields(A, 1))
    assert head.take_one("semq_ack"), "to confirm is no right of its own"
    assert branch.flag(A, 1, b"m") == "403 forbidden"
    assert branch.request("semq_lookup", src=B, dst=A).status == 403
    assert branch.request("heartbeat").status == 200
    assert branch.flag(C, 1, b"m") == "403 forbidden"
    assert not platform.states(A)


def test_what_may_be_sent_without_a_connection(platform: Platform) -> None:
    for token, status in (("head", 200), ("branch", 403), ("sender", 403), ("wrong", 403)):
        fields = {"token": token, **send_fields(A, B, 1)}
        assert platform.ask(frame("semq_send", b"m", **fields)).status == status
    unsigned = f"/semq/{C}?cmd=semq_send&savefwd=2"
    for token, status in (("sender", 200), ("branch", 403)):
        reply = platform.ask(http(unsigned, f"token: {token}", body=b"m", method="POST"))
        assert reply.status == status
    assert platform.states(C) == {1: "SS_INIT"}


CONTROL: dict[str, tuple[str, dict[str, Any]]] = {
    "ack": ("semq_ack", {"ack_flag": 1, "src_ref_id": 1}),
    "question": ("semq_inquiry", {"about": "ack"}),
    "answer": ("semq_inquiry_resp", {"result": 1}),
    "a node that is named, too": ("semq_ack", {"node": A, "src_ref_id": 1}),
}


@pytest.mark.parametrize("case", CONTROL)
def test_nobody_confirms_for_another(platform: Platform, case: str) -> None:
    head, branch = platform.node(A, "head"), platform.node(B, "branch")
    head.hello()
    assert head.flag(C, 1, b"m") == "Ack-Save"
    command, fields = CONTROL[case]
    said = {"src": C, "dst": "0:1", **mid_fields(A, 1), **fields}
    branch.hello()
    assert branch.request(command, **said).status == 403
    for token in ("branch", "sender", ""):
        shown: dict[str, Any] = {"token": token} if token else {}
        assert platform.ask(frame(command, **said, **shown)).status == 403
    assert platform.states(C) == {1: "SS_INIT"}
    assert platform.ask(frame(command, **said, token="admin")).status == 200


def test_polls(platform: Platform) -> None:
    for token, status in (("branch", 204), ("admin", 204), ("head", 403), ("sender", 403)):
        assert platform.ask(http(f"/semq/{B}?cmd=semq_poll", f"token: {token}")).status == status
    assert platform.ask(http(f"/semq/{A}?cmd=semq_poll", "token: branch")).status == 403


@pytest.mark.parametrize("token", ["admin", "operator", "watcher", "branch", ""])
def test_operators(platform: Platform, token: str) -> None:
    head = platform.node(A, "head")
    head.hello()
    head.send(B, 1, b"m")
    shown: dict[str, Any] = {"token": token} if token else {}
    may = token in ("admin", "operator")
    commands: tuple[tuple[str, dict[str, Any]], ...] = (
        ("semq_stat", {}),
        ("semq_stat", {"node": B}),
        ("semq_list", {"node": B}),
        ("semq_retry", {"node": B}),
        ("semq_dead", {}),
        ("semq_dead", {"node": B, "lk1": "1/1/1"}),
    )
    for command, fields in commands:
        reply = platform.ask(frame(command, **fields, **shown))
        sees = may or (token == "watcher" and not fields)
        assert reply.status == (200 if sees else 403), command
        if token == "watcher":
            assert B.encode() not in reply.body, "of nodes that are not granted nothing is told"


def test_rights_that_end(platform: Platform) -> None:
    """A node that may not be one any more is offline, and is handed nothing."""
    head, branch = platform.node(A, "head"), platform.node(B, "branch")
    head.hello()
    branch.hello()
    access = platform.world.front.rights.access
    assert access is not None
    access.update([entry("admin", "admin"), *of_node("head", A, B, C)])
    platform.world.posted.append(platform.world.front.upkeep)
    platform.world.settle()
    assert branch.take_one("semq_bye").headers["reason"] == "forbidden"
    assert branch.client.closed
    assert head.flag(B, 1, b"m") == "Ack-Save"
    assert branch.delivered() == []


def test_topics(platform: Platform) -> None:
    client = platform.world.connect()
    assert client.request(http("/T?cmd=declare", "token: admin")).status == 200
    head = platform.node(A, "head")
    head.hello()
    assert head.flag("0:1/T", 1, b"m", topic="", savefwd=2) == "403 forbidden"
    reply = client.request(
        http("/semq?cmd=semq_send&dst=0:1/T&savefwd=2", "token: sender", body=b"m", method="POST")
    )
    assert reply.status == 200


def test_without_a_table_anybody_may(platform: Platform) -> None:
    free = Platform()
    nodes: list[Node] = [free.node(name) for name in (A, B)]
    for node in nodes:
        node.hello()
    assert nodes[0].flag(B, 1, b"m") == "Ack-Fwd"
