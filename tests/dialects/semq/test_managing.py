"""`semq_stat`, `semq_list`, `semq_retry` and `semq_dead`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.semq.words import EPOCH, A, B, Platform, frame


@pytest.fixture
def platform() -> Platform:
    """Three rows for B, of which one is sent; the second has an app_key, and expires."""
    platform = Platform()
    head, branch = platform.node(A), platform.node(B)
    branch.hello()
    branch.vanish()
    head.hello()
    later_ms = platform.world.now_ms + 3_600_000
    head.send(B, 1, b"one")
    platform.wait(1_000)
    head.send(B, 2, b"two..", app_key="order", expires=later_ms)
    head.send(B, 3, b"three", savefwd=2)
    branch.connect()
    branch.hello(window=1)
    return platform


def test_stat(platform: Platform) -> None:
    platform.wait(2_000)
    told = platform.document("semq_stat")
    assert [node["node"] for node in told["nodes"]] == [A, B]
    assert (told["more"], told["dead"]) == (False, 0)
    (one,) = platform.document("semq_stat", node=B)["nodes"]
    assert one["topic"] == f"semq.{B}"
    assert (one["init"], one["sent"], one["online"], one["semq"]) == (2, 1, True, [1])
    assert (one["oldestMs"], one["nextInquiryMs"]) == (3_000, 13_000)
    first = platform.document("semq_stat", count=1)
    assert ([node["node"] for node in first["nodes"]], first["more"]) == ([A], True)
    rest = platform.document("semq_stat", count=1, after=A)
    assert ([node["node"] for node in rest["nodes"]], rest["more"]) == ([B], False)


def test_list(platform: Platform) -> None:
    told = platform.document("semq_list", node=B)
    rows = told["rows"]
    assert [(row["lk1"], row["state"], row["level"]) for row in rows] == [
        ("1/1/1", "SS_SENT", 3),
        ("1/1/2", "SS_INIT", 3),
        ("1/1/3", "SS_INIT", 2),
    ]
    assert rows[0]["mid"] == f"{A}/1/1/{EPOCH}/3/1"
    assert (rows[0]["src"], rows[0]["attempts"], rows[0]["bytes"]) == (A, 1, 3)
    assert rows[1]["app_key"] == "order"
    assert told["after"] == ""


CHOICES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "state": ({"state": "SS_INIT"}, [2, 3]),
    "age": ({"age": 500}, [1]),
    "count": ({"count": 2}, [1, 2]),
    "after": ({"after": "1/1/1"}, [2, 3]),
    "after all": ({"after": "1/1/9"}, []),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_parts_of_a_list(platform: Platform, choice: str) -> None:
    fields, expected = CHOICES[choice]
    rows = platform.document("semq_list", node=B, **fields)["rows"]
    assert [int(row["lk1"].rpartition("/")[2]) for row in rows] == expected


def test_a_list_in_parts(platform: Platform) -> None:
    after, found = "", []
    while True:
        told = platform.document("semq_list", node=B, count=1, after=after)
        found += [row["lk1"] for row in told["rows"]]
        after = told["after"]
        if not after:
            break
    assert found == ["1/1/1", "1/1/2", "1/1/3"]


def test_retry(platform: Platform) -> None:
    branch = platform.nodes[1]
    assert branch.delivered() == [b"one"]
    assert platform.document("semq_retry", node=B)["count"] == 1
    assert branch.delivered() == [b"one"]
    assert platform.document("semq_retry", node=B, lk1="1/1/1")["count"] == 1
    assert branch.delivered() == [b"one"]
    reply = platform.ask(frame("semq_retry", node=B, lk1="1/1/2"))
    assert (reply.status, reply.headers["reason"]) == (404, "unknown")


def test_giving_up(platform: Platform) -> None:
    """Level 3 gives way to its number; what was sent meanwhile may be confirmed yet."""
    branch = platform.nodes[1]
    for record in (1, 2, 3):
        assert platform.document("semq_dead", node=B, lk1=f"1/1/{record}")["count"] == 1
    assert platform.ask(frame("semq_dead", node=B, lk1="1/1/3")).status == 404
    rows = platform.document("semq_dead", node=B)["rows"]
    assert [(row["mid"][-3:], row["reason"], row["bytes"]) for row in rows] == [
        ("3/1", "given up", 3),
        ("3/2", "given up", 5),
        ("2/3", "given up", 5),
    ]
    assert platform.document("semq_dead", node=A)["rows"] == []
    assert len(platform.document("semq_dead", count=2)["rows"]) == 2
    assert platform.document("semq_stat")["dead"] == 3
    voids = []
    for _ in range(5):
        for one in branch.take("semq_deliver"):
            if "void" in one.headers:
                voids.append((one.headers["seq"], one.body))
            branch.ack(one)
    assert voids == [("1", b""), ("2", b"")]
    assert platform.states(B) == {}
    platform.world.broker.check()


def test_what_was_given_up_stays_so_after_a_crash(platform: Platform) -> None:
    platform.document("semq_dead", node=B, lk1="1/1/2")
    platform.restart(crash=True)
    assert set(platform.states(B)) == {1, 3, 4}
    assert len(platform.document("semq_dead")["rows"]) == 1


@pytest.mark.parametrize("command", ["semq_list", "semq_retry", "semq_dead"])
def test_of_unknown_nodes(platform: Platform, command: str) -> None:
    reply = platform.ask(frame(command, node="1:999", lk1="1/1/1"))
    assert (reply.status, reply.headers["reason"]) == (404, "unknown")
