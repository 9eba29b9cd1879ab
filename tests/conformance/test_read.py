"""`read` and `/_log`: the log itself, for tools; nothing changes by it."""

import msgspec
import pytest

from tests.conformance.dialogue import declared, document, http, ok, put, refused, restart
from zbus.storage.format.batch import decode_chunk, iterate

BATCHES = "application/vnd.zbus.batches"


def bodies(batches: bytes) -> list[bytes]:
    return [body for batch in iterate(batches) for body in decode_chunk(batch).bodies]


@pytest.mark.parametrize("target", ["/_log/T?", "/T?cmd=read&", "/?cmd=read&topic=t&"])
@pytest.mark.parametrize("topic_mask", [0, 1])
def test_stored_batches(target: str, topic_mask: int) -> None:
    _, client = declared(f"T?topic_mask={topic_mask}")
    put(client, "T", b"0", b"1", bytes(range(256)))
    reply = ok(client, http(target))
    assert (reply.headers["content-type"], reply.headers["end"]) == (BATCHES, "3")
    assert reply.headers["partition"] == "0"
    assert bodies(reply.body) == [b"0", b"1", bytes(range(256))]
    assert bodies(ok(client, http(f"{target}offset=2")).body) == [bytes(range(256))]
    assert ok(client, http(f"{target}offset=3")).body == b""


def test_a_batch_is_never_cut() -> None:
    _, client = declared("T")
    client.exchange(http("/T", body=b"x" * 1000) * 3)
    put(client, "T", b"y")
    reply = ok(client, http("/_log/T?offset=1&bytes=1"))
    assert bodies(reply.body) == [b"x" * 1000] * 3, "the one that holds the offset, whole"


@pytest.mark.parametrize("query", ["bytes=0", "bytes=0&offset=1", "bytes=0&offset=99"])
def test_how_far_it_goes_without_batches(query: str) -> None:
    _, client = declared("T")
    put(client, "T", b"0", b"1")
    reply = ok(client, http(f"/_log/T?{query}"))
    assert (reply.headers["first"], reply.headers["end"], reply.body) == ("0", "2", b"")


def test_it_reads_on_from_where_it_ended() -> None:
    _, client = declared("T")
    put(client, "T", *[b"%d" % n for n in range(20)])
    offset, found = 0, []
    while offset < 20:
        batches = ok(client, http(f"/_log/T?offset={offset}&bytes=300")).body
        found += bodies(batches)
        offset = len(found)
    assert found == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize(
    ("query", "accept", "offsets"),
    [
        ("count=2", "*/*", [0, 1]),
        ("count=2&offset=2", "*/*", [2, 3]),
        ("offset=3", "application/json", [3, 4]),
        ("", "text/html,*/*", [0, 1, 2, 3, 4]),
        ("offset=5", "application/json", []),
    ],
)
def test_messages(query: str, accept: str, offsets: list[int]) -> None:
    _, client = declared("T")
    put(client, "T", b"0", b"1", b"2", b"3", b"4")
    reply = ok(client, http(f"/T?cmd=read&{query}", f"accept: {accept}"))
    assert reply.headers["count"] == str(len(offsets))
    items = msgspec.json.decode(reply.body)
    assert [(item["offset"], item["body"]) for item in items] == [(n, str(n)) for n in offsets]


@pytest.mark.parametrize("container", ["application/vnd.zbus.messages", "application/x-ndjson"])
def test_messages_in_other_containers(container: str) -> None:
    _, client = declared("T")
    put(client, "T", b"0", b"1")
    reply = ok(client, http("/T?cmd=read&count=9", f"accept: {container}"))
    assert (reply.headers["content-type"], reply.headers["count"]) == (container, "2")


def test_nothing_changes_by_it() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0")
    before = document(ok(client, http("/T?cmd=query")))
    ok(client, http("/_log/T"))
    ok(client, http("/_log/T?count=1"))
    assert document(ok(client, http("/T?cmd=query"))) == before
    again = restart(world).connect()
    assert bodies(ok(again, http("/_log/T")).body) == [b"0"]


def test_partitions() -> None:
    _, client = declared("T?partitions=2")
    put(client, "T", b"1", query="partition=1")
    reply = ok(client, http("/_log/T?partition=1"))
    assert (reply.headers["partition"], bodies(reply.body)) == ("1", [b"1"])
    assert ok(client, http("/_log/T")).body == b""


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("offset=4", 404),
        ("offset=9223372036854775807", 404),
        ("partition=1", 404),
        ("bytes=16777217", 400),
        ("count=100001", 400),
        ("offset=-1", 400),
    ],
)
def test_refusals(query: str, status: int) -> None:
    _, client = declared("T")
    put(client, "T", b"0", b"1", b"2")
    assert refused(client, http(f"/_log/T?{query}"))[0] == status


@pytest.mark.parametrize(("target", "status"), [("/_log/NOPE", 404), ("/_log", 400)])
def test_which_topic(target: str, status: int) -> None:
    _, client = declared("T")
    assert refused(client, http(target))[0] == status
