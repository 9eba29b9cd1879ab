"""`front` of produce, and `empty` that leaves alone what is leased."""

import pytest

from tests.conformance.dialogue import declared, drain, http, ok, pull, put, refused, restart

FRONT = "cmd=produce&front=true"


def test_a_message_before_all_others() -> None:
    world, client = declared("T/g", "T/acks?ack=true")
    put(client, "T", b"1", b"2", query="cmd=produce")
    put(client, "T", b"0", query=FRONT)
    assert drain(client, "/T/g") == [b"0", b"1", b"2"]
    client = restart(world).connect()
    assert drain(client, "/T/acks") == [b"0", b"1", b"2"]
    ok(client, http("/T/late?cmd=declare&from=earliest"))
    assert drain(client, "/T/late") == [b"1", b"2", b"0"]


def test_a_batch_keeps_its_order() -> None:
    _, client = declared("T/g")
    put(client, "T", b"2", query="cmd=produce")
    lines = b"0\n1\n"
    request = http(f"/T?{FRONT}", "content-type: application/x-ndjson", body=lines, method="POST")
    assert ok(client, request).headers["count"] == "2"
    assert drain(client, "/T/g") == [b"0", b"1", b"2"]


def test_a_duplicate_stays_where_it_is() -> None:
    _, client = declared("T/g")
    put(client, "T", b"0", query=f"{FRONT}&idempotency-key=k")
    put(client, "T", b"1", query=FRONT)
    reply = ok(client, http(f"/T?{FRONT}&idempotency-key=k", body=b"0", method="POST"))
    assert reply.headers["duplicate"] == "1"
    assert drain(client, "/T/g") == [b"1", b"0"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/T?cmd=produce&front=true&delay=5", (400, "front is for messages without a delay")),
        ("/T?cmd=produce&front=true&deliver_at=9e9", (400, "deliver_at")),
        ("/T?cmd=produce&front=maybe", (400, "front")),
        (
            "/T?cmd=produce&front=true&ack_topic=T&ack_group=acks&ack_offset=0",
            (400, "front and ack_topic do not go together"),
        ),
        ("/No?cmd=produce&front=true", (404, "No")),
        ("/T?cmd=empty&keep_leased=true", (400, "keep_leased needs consume_group")),
        ("/T/no?cmd=empty&keep_leased=true", (404, "no")),
        ("/T/acks?cmd=empty&keep_leased=x", (400, "keep_leased")),
    ],
)
def test_refusals(target: str, expected: tuple[int, str]) -> None:
    _, client = declared("T/acks?ack=true")
    put(client, "T", b"0", query="cmd=produce")
    status, text = refused(client, http(target, body=b"1", method="POST"))
    assert status == expected[0]
    assert expected[1] in text
    assert drain(client, "/T/acks") == [b"0"]


def test_emptying_but_for_what_is_leased() -> None:
    world, client = declared("T/g?ack=true&group_on_loss=front", "T/other")
    put(client, "T", b"0", b"1", b"2", query="cmd=produce")
    put(client, "T", b"3", query="cmd=produce&delay=1000")
    assert pull(client, "/T/g").body == b"0"
    assert ok(client, http("/T/g?cmd=empty&keep_leased=true")).headers["count"] == "3"
    world.advance(5_000)
    assert drain(client, "/T/g") == []
    client = restart(world).connect()
    assert drain(client, "/T/g") == [b"0"]
    assert drain(client, "/T/other") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(("query", "expected"), [("on_loss=keep", [b"1"]), ("", [b"0", b"1"])])
def test_a_consume_says_what_becomes_of_its_leases(query: str, expected: list[bytes]) -> None:
    world, client = declared("T/g?ack=true&group_on_loss=front")
    put(client, "T", b"0", b"1", query="cmd=produce")
    other = world.connect()
    assert pull(other, "/T/g", query).body == b"0"
    world.broker.leave(other.peer)
    assert drain(client, "/T/g") == expected
    assert refused(client, http("/T/g?cmd=consume&on_loss=perhaps"))[0] == 400
