"""`read` as a search: messages that fit, from the newest or the oldest on, in bounded steps."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pytest

from tests.conformance.dialogue import Client, World, declared, http, ok, put, refused, restart
from zbus.core.verbs.search import SCAN_BYTES_MAX
from zbus.testing.world import Reply

ROWS = [
    ("key=ann&tag=eu.de", "x-shop: north", b"a chair"),
    ("key=bob&tag=eu.fr", "x-shop: south", b"two chairs"),
    ("key=ann&tag=us", "x-floor: 1", b"a table"),
    ("", "x-shop-id: north", "ein Stühlchen".encode()),
    ("key=ann&tag=eu", "", b"\xff\x00chair"),
]


def stocked(partitions: int = 1) -> tuple[World, Client]:
    """A message each second."""
    world, client = declared(f"T?partitions={partitions}")
    for query, line, body in ROWS:
        lines = [line] if line else []
        ok(client, http(f"/T?partition=0&{query}", *lines, body=body, method="POST"))
        world.advance(1_000)
    return world, client


def search(client: Client, query: str) -> Reply:
    return ok(client, http(f"/T?cmd=read&{query}", "accept: application/json"))


def offsets(reply: Reply) -> list[int]:
    return [each["offset"] for each in msgspec.json.decode(reply.body)]


FITS = {
    "newest=1": [4, 3, 2, 1, 0],
    "newest=0": [0, 1, 2, 3, 4],
    "scan=10": [0, 1, 2, 3, 4],
    "newest=1&count=2": [4, 3],
    "newest=1&offset=2": [1, 0],
    "newest=1&offset=0": [],
    "newest=1&offset=99": [4, 3, 2, 1, 0],
    "newest=0&offset=3": [3, 4],
    "newest=0&offset=99": [],
    "text=chair": [0, 1, 4],
    "text=chairs": [1],
    "text=Chair": [],
    f"text={quote('Stühl')}": [3],
    "text=%ff%00": [4],
    "text=a": [0, 1, 2, 4],
    "key=ann": [0, 2, 4],
    "key=an": [],
    "tag=eu.%23": [0, 1, 4],
    "tag=eu.*": [0, 1],
    "tag=us;eu.de": [0, 2],
    "header=x-shop": [0, 1],
    "header=X-Shop": [0, 1],
    "header=x-shop:north": [0],
    "header=x-shop:%20north": [0],
    "header=x-shop:or": [0],
    "header=x-shop:%20no%20": [0],
    "header=x-shop-id:": [3],
    "header=shop": [],
    "header=x-shop:north&text=table": [],
    "key=ann&text=chair&newest=1": [4, 0],
    "key=ann&tag=eu.%23&text=a": [0, 4],
}


@pytest.mark.parametrize("query", FITS)
def test_what_fits(query: str) -> None:
    world, client = stocked()
    for each in (client, restart(world).connect()):
        reply = search(each, query)
        assert offsets(reply) == FITS[query]
        assert (reply.headers["first"], reply.headers["end"]) == ("0", "5")
        assert reply.headers["count"] == str(len(FITS[query]))


TIMES = {
    "since={1}": [1, 2, 3, 4],
    "until={1}": [0],
    "since={1}&until={3}": [1, 2],
    "since={1}&until={3}&newest=1": [2, 1],
    "since={1}&until={3}&newest=1&offset=2": [1],
    "since={1}&offset=0": [1, 2, 3, 4],
    "until={9}&newest=1": [4, 3, 2, 1, 0],
    "since={9}": [],
    "until=2020-01-01": [],
    "since=2020-01-01T00:00:00Z&count=1": [0],
}


@pytest.mark.parametrize("query", TIMES)
def test_in_a_window_of_time(query: str) -> None:
    _, client = stocked()
    begin_ms = msgspec.json.decode(search(client, "count=1").body)[0]["timestamp"]
    times = [begin_ms + 1_000 * n for n in range(10)]
    reply = search(client, query.format(*times))
    assert offsets(reply) == TIMES[query]


def test_what_was_not_in_the_window_is_hardly_looked_at() -> None:
    _, client = stocked()
    begin_ms = msgspec.json.decode(search(client, "count=1").body)[0]["timestamp"]
    for query in (f"since={begin_ms + 4_000}", f"until={begin_ms + 1_000}&newest=1"):
        reply = search(client, query)
        assert (reply.headers["scanned"], "next" in reply.headers) == ("1", False)


def portions(client: Client, query: str) -> Iterator[Reply]:
    """One reply after another, from where the one before ended."""
    offset = ""
    for _ in range(1_000):
        reply = search(client, query + offset)
        yield reply
        if "next" not in reply.headers:
            return
        offset = f"&offset={reply.headers['next']}"
    raise AssertionError("it does not end")


@pytest.mark.parametrize("newest", [0, 1])
@pytest.mark.parametrize("limit", ["scan=7", "count=3", "scan=1", "scan=50&count=1"])
def test_it_goes_on_where_it_ended(newest: int, limit: str) -> None:
    world, client = declared("T")
    put(client, "T", *[b"%d" % n for n in range(100)])
    for each in (client, restart(world).connect()):
        found: list[int] = []
        scanned = 0
        for reply in portions(each, f"text=7&newest={newest}&{limit}"):
            found += offsets(reply)
            scanned += int(reply.headers["scanned"])
        assert sorted(found, reverse=bool(newest)) == found
        assert sorted(found) == [n for n in range(100) if "7" in str(n)]
        assert scanned == 100


@pytest.mark.parametrize("newest", [0, 1])
def test_a_request_looks_at_so_many_bytes(newest: int) -> None:
    """Whatever the sizes: small messages between large ones, in memory and read back."""
    world, client = declared("T")
    sizes = [10, 3 << 20, 200_000, 10, 10, 5 << 20, 64 << 10, 4 << 20, 1, 1, 1]
    for size in sizes:
        put(client, "T", b"x" * size)
    for each in (client, restart(world).connect()):
        found: list[int] = []
        for reply in portions(each, f"text=x&newest={newest}&cut=3"):
            some = offsets(reply)
            found += some
            assert sum(sizes[n] for n in some[:-1]) <= SCAN_BYTES_MAX
        assert found == sorted(range(len(sizes)), reverse=bool(newest))
        assert len(list(portions(each, f"text=nothing&newest={newest}"))) >= 2


def test_many_of_which_few_fit() -> None:
    """It takes several turns, in which others are served."""
    world, client = declared("T")
    other = world.connect()
    for _ in range(5):
        put(client, "T", *[b"hay"] * 1_000)
    put(client, "T", b"needle")
    client.send(http("/T?cmd=read&text=needle", "accept: application/json"))
    served = 0
    while not (replies := client.replies()):
        other.send(http("/_health/live"))
        world.turn()
        served += len(other.replies())
    assert served >= 10
    assert offsets(replies[0]) == [5_000]
    reply = search(client, "text=needle&newest=1")
    assert (offsets(reply), reply.headers["scanned"]) == ([5_000], "5001")


def test_searches_take_turns() -> None:
    world, client = declared("T")
    for _ in range(4):
        put(client, "T", *[b"hay"] * 1_000)
    clients = [world.connect() for _ in range(10)]
    for n, each in enumerate(clients):
        each.send(http(f"/T?cmd=read&text=y&count=1&newest=1&offset={400 * n + 1}"))
    found = []
    for each in clients:
        while not (replies := each.replies()):
            world.turn()
        found += [offsets(reply) for reply in replies]
    assert found == [[400 * n] for n in range(10)]


def test_what_the_log_has_dropped_does_not_matter() -> None:
    _, client = stocked()
    ok(client, http("/T?cmd=empty"))
    put(client, "T", b"new chair")
    for query in ("text=chair&offset=0", "text=chair&newest=1&offset=3"):
        reply = search(client, query)
        assert offsets(reply) == ([5] if "newest" not in query else [])
        assert "next" not in reply.headers


@pytest.mark.parametrize("container", ["application/x-ndjson", "application/vnd.zbus.messages"])
def test_in_other_containers(container: str) -> None:
    _, client = stocked()
    reply = ok(client, http("/T?cmd=read&text=chair", f"accept: {container}"))
    assert reply.headers["content-type"] == container
    assert (reply.headers["count"], reply.headers["scanned"]) == ("3", "5")
    if container == "application/x-ndjson":
        last = msgspec.json.decode(reply.body.splitlines()[-1])
        assert last["body_base64"] == b64encode(b"\xff\x00chair").decode()


def test_in_a_partition() -> None:
    _, client = stocked(partitions=3)
    assert offsets(search(client, "text=chair&partition=0")) == [0, 1, 4]
    assert offsets(search(client, "text=chair&partition=2")) == []


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("scan=0", 400, "scan is a number from 1 to 10000, not '0'"),
        ("scan=10001", 400, "scan is a number from 1 to 10000"),
        ("scan=x", 400, "scan is a number"),
        ("text=" + "x" * 1_025, 400, "text has at most 1024 bytes"),
        ("header=" + "x" * 1_025, 400, "header has at most 1024 bytes"),
        ("key=" + "x" * 1_025, 400, "key"),
        ("tag=" + "x" * 128, 400, "tag"),
        ("since=yesterday", 400, "since"),
        ("until=-1", 400, "until"),
        ("text=x&offset=-1", 400, "offset is a number"),
        ("text=x&partition=1", 404, "Partition(1) Not Found"),
        ("text=x&count=0", 200, ""),
        ("texts=x", 400, "did you mean text?"),
        ("headers=x", 400, "did you mean header?"),
    ],
)
def test_bad_input(query: str, status: int, text: str) -> None:
    _, client = stocked()
    if status == 200:
        assert search(client, query).status == 200
        return
    said = refused(client, http(f"/T?cmd=read&{query}"))
    assert said[0] == status
    assert text in said[1]
