"""`peek`: what a group has delayed, leased or ready."""

from typing import Any

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    Client,
    World,
    cmd,
    declared,
    document,
    drain,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)
from zbus.core.verbs import listing


def rows(client: Client, query: str, path: str = "/T/g") -> list[Any]:
    reply = client.request(http(f"{path}?cmd=peek&{query}"))
    assert reply.status == 200, reply
    found = document(reply)
    assert reply.headers["count"] == str(len(found))
    return list(found)


def offsets(client: Client, query: str) -> list[int]:
    return [row["offset"] for row in rows(client, query)]


def paged(client: Client, query: str, count: int) -> list[tuple[int, int]]:
    """All of it, page by page."""
    found: list[tuple[int, int]] = []
    after = ""
    for _ in range(100):
        reply = ok(client, http(f"/T/g?cmd=peek&{query}&count={count}&after={after}"))
        page = [(row["partition"], row["offset"]) for row in document(reply)]
        assert len(page) <= count
        found += page
        if "next" not in reply.headers:
            return found
        after = reply.headers["next"]
    raise AssertionError("the listing does not end")


def with_delays(query: str = "group_mask=64") -> tuple[World, Client]:
    world, client = declared(f"T/g?{query}")
    for offset, delay_ms in enumerate((9_000, 0, 3_000, 0, 6_000)):
        body = b"%d" % offset
        put(client, "T", body, query=f"delay={delay_ms}&key=k{offset % 2}&tag=a.{offset}")
    return world, client


NO_PLACE = "400: Bad Format, after must be the `next` header of the previous page"

both = pytest.mark.parametrize("passed", [False, True], ids=["not come to", "passed"])


@both
def test_what_is_delayed_by_due_time(passed: bool) -> None:
    _, client = with_delays()
    if passed:
        drain(client, "/T/g")
    found = rows(client, "state=delayed")
    assert [(row["offset"], row["until"] - EPOCH_MS) for row in found] == [
        (2, 3_000),
        (4, 6_000),
        (0, 9_000),
    ]
    assert found[0] == {
        "id": found[0]["id"],
        "topic": "T",
        "partition": 0,
        "offset": 2,
        "timestamp": EPOCH_MS,
        "state": "delayed",
        "until": EPOCH_MS + 3_000,
        "tag": "a.2",
        "key": "k0",
        "size": 1,
    }


def test_what_is_leased_by_the_end_of_the_lease() -> None:
    world, client = with_delays()
    assert pull(client, "/T/g").body == b"1"
    world.advance(100)
    other = world.connect()
    assert pull(other, "/T/g").body == b"3"
    ok(client, http("/T/g?cmd=extend&offset=1"))
    first, second = rows(client, "state=leased")
    assert (first["offset"], first["until"], first["attempts"]) == (1, EPOCH_MS + 10_100, 1)
    assert (second["offset"], second["holder"]) == (3, "/" + other.peer.address)
    other.vanish()
    assert "holder" not in rows(client, "state=leased")[1]


@both
def test_what_is_ready(passed: bool) -> None:
    world, client = with_delays("")
    put(client, "T", b"gone", query="ttl=1")
    world.advance(1)
    assert offsets(client, "") == offsets(client, "state=ready") == [1, 3]
    if passed:
        assert pull(client, "/T/g").body == b"1"
    world.advance(9_000)
    assert offsets(client, "") == ([0, 2, 3, 4] if passed else [0, 1, 2, 3, 4])


def test_what_the_filter_does_not_want_is_not_ready() -> None:
    _, client = declared("T/g?group_filter=a")
    put(client, "T", b"0", query="tag=b")
    put(client, "T", b"1", query="tag=a")
    assert offsets(client, "") == [1]


@both
def test_chosen_by_key_and_tag(passed: bool) -> None:
    _, client = with_delays()
    if passed:
        drain(client, "/T/g")
    assert offsets(client, "state=delayed&key=k0") == [2, 4, 0]
    assert offsets(client, "state=delayed&key=k1") == []
    assert offsets(client, "state=delayed&key=") == []
    assert offsets(client, "state=delayed&tag=a.4;a.0") == [4, 0]
    assert offsets(client, "state=delayed&tag=*.2&key=k0") == [2]


def test_bodies_only_if_asked_for() -> None:
    _, client = declared("T/g")
    put(client, "T", b"text", b"\xff")
    assert not any("body" in row or "body_base64" in row for row in rows(client, ""))
    first, second = rows(client, "body=true")
    assert (first["body"], second["body_base64"]) == ("text", "/w==")


def test_bodies_are_bounded() -> None:
    _, client = declared("T/g")
    put(client, "T", *[bytes(400_000)] * 5)
    reply = ok(client, http("/T/g?cmd=peek&body=1"))
    assert [row["offset"] for row in document(reply)] == [0, 1, 2]
    assert paged(client, "body=1", 5) == [(0, offset) for offset in range(5)]


@both
@pytest.mark.parametrize("count", [1, 2, 7])
def test_page_by_page(count: int, passed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKS_MAX", 40)
    _, client = declared("T/g?group_mask=64&partitions=2")
    for n in range(24):  # some due at the same time
        put(client, "T", b"", query=f"partition={n % 2}&delay={1_000 * (n * 7 % 5)}")
    if passed:
        assert len(drain(client, "/T/g")) == len([n for n in range(24) if not n * 7 % 5])
    due = {(n % 2, n // 2): n * 7 % 5 for n in range(24)}
    delayed = sorted([place for place in due if due[place]], key=lambda p: (due[p], p))
    assert paged(client, "state=delayed", count) == delayed
    at_once = sorted([place for place in due if not due[place]])
    assert paged(client, "state=ready", count) == ([] if passed else at_once)
    assert sorted(paged(client, "state=leased", count)) == (at_once if passed else [])


def test_a_request_looks_at_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKS_MAX", 5)
    _, client = declared("T/g")
    for n in range(20):
        put(client, "T", b"", query=f"key={n}&delay=1000")
    reply = ok(client, http("/T/g?cmd=peek&state=delayed&key=9"))
    assert (reply.headers["count"], reply.headers["unseen"]) == ("0", "15")
    drain(client, "/T/g")
    reply = ok(client, http("/T/g?cmd=peek&state=delayed&key=9"))
    assert (reply.headers["count"], reply.headers["next"]) == ("0", f"{EPOCH_MS + 1_000}-0-4")
    assert paged(client, "state=delayed&key=9", 3) == [(0, 9)]


def test_nobody_waits_for_what_was_removed() -> None:
    _, client = declared("T/g")
    assert rows(client, "state=delayed") == rows(client, "state=leased") == rows(client, "") == []


def test_from_storage() -> None:
    world, client = with_delays()
    drain(client, "/T/g")
    again = restart(world)
    client = again.connect()
    assert offsets(client, "state=delayed") == [2, 4, 0]
    assert rows(client, "state=leased&body=1")[0]["body"] == "1"


def test_nothing_changes_by_looking() -> None:
    world, client = with_delays("")
    rows(client, "state=delayed")
    rows(client, "")
    assert document(ok(client, http("/T/g?cmd=query")))["delayedCount"] == 0
    assert drain(client, "/T/g") == [b"1", b"3"]
    world.broker.check()


def test_by_header() -> None:
    _, client = with_delays()
    reply = ok(client, cmd("peek", "topic: T", "consume_group: g", "state: delayed", "count: 1"))
    assert [row["offset"] for row in document(reply)] == [2]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("state=dead", 400, "400: Bad Format, state is one of delayed, leased, ready"),
        ("state=Ready", 400, "400: Bad Format, state is one of delayed, leased, ready"),
        ("count=0", 400, "400: Bad Format, count is a number from 1 to 1000, not '0'"),
        ("count=1001", 400, "400: Bad Format, count is a number from 1 to 1000, not '1001'"),
        ("count=x", 400, "400: Bad Format, count is a number from 1 to 1000, not 'x'"),
        (f"tag={'a' * 128}", 400, "400: Bad Format, tag has at most 127 bytes"),
        (f"key={'a' * 1_025}", 400, "400: Bad Format, key length should be <= 1024"),
        *(
            (f"after={after}", 400, NO_PLACE)
            for after in ("1", "1-2", "1-2-3-4", "a-b-c", "1--2", "-1-0-0", f"0-0-{1 << 63}")
        ),
    ],
)
def test_what_is_not_well_formed(query: str, status: int, text: str) -> None:
    _, client = with_delays()
    assert refused(client, http(f"/T/g?cmd=peek&{query}")) == (status, text)


def test_what_is_unknown() -> None:
    _, client = with_delays()
    text = "404: ConsumeGroup(x) Not Found"
    assert refused(client, http("/T/x?cmd=peek")) == (404, text)
    assert refused(client, http("/X/g?cmd=peek")) == (404, "404: Topic(X) Not Found")
    text = "400: Bad Format, Missing topic"
    assert refused(client, http("/?cmd=peek")) == (400, text)
