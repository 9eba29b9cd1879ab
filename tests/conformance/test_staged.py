"""Staged transactions: a batch is stored as a whole, and once."""

from __future__ import annotations

import json

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    http,
    ok,
    pull,
    refused,
    restart,
)


def prepared() -> tuple[World, Client]:
    """Two topics with a reader each."""
    world, client = declared("Out/r?group_mask=64")
    ok(client, http("/Other/r?cmd=declare&group_mask=64"))
    return world, client


def stage(client: Client, body: bytes, topic: str = "Out", txn: str = "app") -> str:
    """Its offset."""
    reply = ok(client, http(f"/{topic}?cmd=txn_stage&txn={txn}", body=body, method="POST"))
    return reply.headers["offset"]


def left(client: Client, topic: str = "Out") -> list[bytes]:
    found = []
    while (reply := pull(client, f"/{topic}/r")).status == 200:
        found.append(reply.body)
    return found


def commit(client: Client, batch: int, **offsets: str) -> tuple[str, str]:
    """How many messages it has stored, and whether it was done before."""
    stages = [{"topic": topic, "offsets": some} for topic, some in offsets.items()]
    body = json.dumps({"stages": stages}).encode()
    target = f"/?cmd=txn_commit&txn=app&batch={batch}"
    reply = ok(client, http(target, body=body, method="POST"))
    return reply.headers["count"], reply.headers.get("duplicate", "0")


def test_several_topics_at_once_in_the_order_that_is_named() -> None:
    _, client = prepared()
    offsets = [stage(client, b"a"), stage(client, b"b", "Other"), stage(client, b"c")]
    assert offsets == ["0", "1", "2"]
    assert left(client) == left(client, "Other") == []
    assert commit(client, 0, Out="2,0", Other="1") == ("3", "0")
    assert (left(client), left(client, "Other")) == ([b"c", b"a"], [b"b"])


def test_a_commit_that_is_sent_again_changes_nothing() -> None:
    world, client = prepared()
    stage(client, b"a")
    assert commit(client, 7, Out="0") == ("1", "0")
    assert commit(client, 7, Out="0") == ("0", "1")
    assert commit(client, 3, Out="0") == ("0", "1")
    client = restart(world).connect()
    assert commit(client, 7, Out="0") == ("0", "1")
    assert left(client) == [b"a"]


def test_by_headers_and_a_batch_in_a_container() -> None:
    _, client = prepared()
    lines = "topic: Out", "txn: app", "content-type: application/x-ndjson", "key: k"
    reply = ok(client, cmd("txn_stage", *lines, body=b'"a"\n"b"\n'))
    assert (reply.headers["offset"], reply.headers["count"]) == ("0", "2")
    found = ok(client, cmd("txn_commit", "txn: app", "batch: 0", "topic: Out", "offset: 0-1"))
    assert found.headers["count"] == "2"
    message = pull(client, "/Out/r")
    assert (message.body, message.headers["key"]) == (b'"a"', "k")
    assert not [name for name in message.headers if name.startswith("txn")]


def test_what_is_not_named_is_dropped_by_the_next_commit() -> None:
    _, client = prepared()
    for body in (b"lost", b"a"):
        stage(client, body)
    assert commit(client, 0, Out="1") == ("1", "0")
    request = "/?cmd=txn_commit&txn=app&batch=1&topic=Out&offset="
    for offsets, which in (("0", "offset 0 is"), ("0-1", "some of the offsets 0 to 1 are")):
        reply = client.request(http(request + offsets))
        text = f"409: {which} not staged, or no longer"
        assert (reply.status, reply.body.decode()) == (409, text)
        assert "offset" not in reply.headers
    assert left(client) == [b"a"]


def test_aborted() -> None:
    _, client = prepared()
    stage(client, b"a")
    assert ok(client, http("/?cmd=txn_abort&txn=app&batch=0&offset=0")).headers["count"] == "1"
    assert refused(client, http("/?cmd=txn_commit&txn=app&batch=0&topic=Out&offset=0"))[0] == 409
    stage(client, b"b")
    assert commit(client, 0, Out="1") == ("1", "0")
    refusal = refused(client, http("/?cmd=txn_abort&txn=app&batch=0&offset=1"))
    assert refusal == (409, "409: batch 0 is committed")
    assert left(client) == [b"b"]


def test_how_far_it_is() -> None:
    _, client = prepared()

    def state() -> object:
        return json.loads(ok(client, http("/?cmd=txn_query&txn=app")).body)

    assert refused(client, http("/?cmd=txn_query&txn=app"))[0] == 404
    stage(client, b"a")
    assert state() == {"txn": "app", "batch": None, "applied": True, "staged": 1}
    commit(client, 5, Out="0")
    assert state() == {"txn": "app", "batch": 5, "applied": True, "staged": 0}


FORM = "txn is 1 to 100 letters, digits, dots, _ and -, and does not end in .rows"
STAGE = "/Out?cmd=txn_stage"
COMMIT = "/?cmd=txn_commit&txn=app&batch=0"

BAD = {
    "no application": (STAGE, b"x", 400, FORM),
    "an empty one": (f"{STAGE}&txn=", b"x", 400, FORM),
    "a path": (f"{STAGE}&txn=..%2Fx", b"x", 400, FORM),
    "too long": (f"{STAGE}&txn={'x' * 101}", b"x", 400, FORM),
    "the name of the staged": (f"{STAGE}&txn=a.ROWS", b"x", 400, FORM),
    "no such topic": ("/No?cmd=txn_stage&txn=app", b"x", 404, "Topic(No) Not Found"),
    "no topic": ("/?cmd=txn_stage&txn=app", b"x", 400, "Missing topic"),
    "a topic of services": ("/Calc?cmd=txn_stage&txn=app", b"x", 400, "is for calls"),
    "no batch": ("/?cmd=txn_commit&txn=app", b"", 400, "Missing batch"),
    "a negative one": ("/?cmd=txn_commit&txn=app&batch=-1", b"", 400, "batch"),
    "no number": ("/?cmd=txn_commit&txn=app&batch=x", b"", 400, "batch"),
    "too large": (f"/?cmd=txn_commit&txn=app&batch={2**63}", b"", 400, "batch"),
    "nobody": ("/?cmd=txn_commit&txn=no&batch=0", b"", 404, "Topic(txn.no.rows) Not Found"),
    "offsets without a topic": (f"{COMMIT}&offset=0", b"", 400, "Missing topic"),
    "offsets that are none": (f"{COMMIT}&topic=Out&offset=a-b", b"", 400, "numbers and ranges"),
    "the other way round": (f"{COMMIT}&topic=Out&offset=5-1", b"", 400, "numbers and ranges"),
    "both": (f"{COMMIT}&topic=Out&offset=0", b'{"stages":[]}', 400, "give one"),
    "no JSON": (COMMIT, b"{", 400, "txn_commit: "),
    "no UTF-8": (COMMIT, b'{"stages":[{"topic":"\xff"}]}', 400, "txn_commit: "),
    "JSON too deep": (COMMIT, b'{"more":' + b"[" * 100_000, 400, "txn_commit: "),
    "other JSON": (COMMIT, b'{"stages":[{"topic":"Out"}]}', 400, "txn_commit: "),
    "JSON with more": (COMMIT, b'{"stages":[],"more":1}', 400, "txn_commit: "),
    "no topic of that name": (
        COMMIT,
        b'{"stages":[{"topic":"No","offsets":"0"}]}',
        404,
        "Topic(No) Not Found",
    ),
    "a topic with a line end": (
        COMMIT,
        b'{"stages":[{"topic":"a\\nb","offsets":"0"}]}',
        400,
        "no line ends",
    ),
    "not staged": (COMMIT, b'{"stages":[{"topic":"Out","offsets":"0-1"}]}', 409, "not staged"),
    "far beyond": (
        COMMIT,
        b'{"stages":[{"topic":"Out","offsets":"0-999999999999999"}]}',
        400,
        "numbers and ranges",
    ),
    "an abort of nothing": ("/?cmd=txn_abort&txn=app&batch=0", b"", 400, "Missing offset"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_refused(bad: str) -> None:
    """It is said why, the connection goes on, and what was staged stays."""
    target, body, status, text = BAD[bad]
    _, client = prepared()
    ok(client, http("/Calc?cmd=declare&topic_mask=2"))
    stage(client, b"a")
    said = refused(client, http(target, body=body, method="POST"))
    assert said[0] == status, said
    assert text in said[1]
    assert left(client) == []
    assert commit(client, 0, Out="0") == ("1", "0")
    assert left(client) == [b"a"]
