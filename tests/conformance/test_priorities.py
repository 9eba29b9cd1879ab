"""Groups that are given the messages of the highest priority first."""

import pytest

from tests.conformance.dialogue import (
    Client,
    cmd,
    declared,
    document,
    http,
    ok,
    pull,
    refused,
    restart,
)

URGENT = "group_mask=64&group_ack_timeout=10000&group_order=priority"


def bodies(client: Client, target: str = "/T/g") -> list[bytes]:
    found = []
    while (reply := pull(client, target)).status == 200:
        found.append(reply.body)
    return found


def produce(client: Client, *priorities: str) -> None:
    for value in priorities:
        ok(client, http(f"/T?priority={value}", method="POST", body=value.encode() or b"-"))


def test_the_highest_goes_first_and_others_in_order() -> None:
    _, client = declared(f"T/g?{URGENT}")
    produce(client, "0", "5", "", "9", "5")
    assert bodies(client) == [b"9", b"5", b"5", b"0", b"-"]


def test_other_groups_read_in_the_order_of_the_log() -> None:
    _, client = declared(f"T/g?{URGENT}")
    document(client.request(http("/T/other?cmd=declare")))
    produce(client, "1", "9")
    assert bodies(client, "/T/other") == [b"1", b"9"]


def test_it_is_a_line_of_the_message_however_it_was_given() -> None:
    _, client = declared(f"T/g?{URGENT}")
    ok(client, http("/T?priority=3", method="POST", body=b"url"))
    ok(client, http("/T", "priority: 2", method="POST", body=b"header"))
    ok(client, cmd("produce", "topic: T", "priority: 1", body=b"cmd"))
    ok(client, http("/T?priority=0", method="POST", body=b"none"))
    found = [pull(client, "/T/g") for _ in range(4)]
    assert [(each.body, each.headers.get("priority")) for each in found] == [
        (b"url", "3"),
        (b"header", "2"),
        (b"cmd", "1"),
        (b"none", None),
    ]


def test_each_message_of_a_batch_has_its_own() -> None:
    _, client = declared(f"T/g?{URGENT}")
    own = b"".join(cmd("", f"priority: {n}", body=b"%d" % n) for n in (1, 8, 4))
    plain = cmd("", body=b"as the batch")
    content = "content-type: application/vnd.zbus.messages"
    ok(client, http("/T?priority=5", content, method="POST", body=own + plain))
    lines = b"6\n6\n"
    ndjson = "content-type: application/x-ndjson"
    ok(client, http("/T?priority=6", ndjson, method="POST", body=lines))
    assert bodies(client) == [b"8", b"6", b"6", b"as the batch", b"4", b"1"]
    bad = cmd("", body=b"good") + cmd("", "priority: 11", body=b"bad")
    status, text = refused(client, http("/T", content, method="POST", body=bad))
    problem = "400: Bad Format, message 1: priority is a number from 0 to 9, not '11'"
    assert (status, text) == (400, problem)


def test_what_was_given_back_or_becomes_due_is_compared_again() -> None:
    world, client = declared(f"T/g?{URGENT}")
    ok(client, http("/T?priority=7&delay=1000", method="POST", body=b"later"))
    produce(client, "1", "5")
    assert pull(client, "/T/g").body == b"5"
    ok(client, cmd("nack", "topic: T", "consume_group: g", "offset: 2"))
    assert pull(client, "/T/g").body == b"5"
    world.advance(1_000)
    assert bodies(client) == [b"later", b"1"]
    world.advance(10_000)
    assert bodies(client) == [b"later", b"5", b"1"]


def test_a_restart_compares_anew() -> None:
    world, client = declared(f"T/g?{URGENT}&durability=disk")
    produce(client, "1", "9", "5")
    assert pull(client, "/T/g").body == b"9"
    client = restart(world).connect()
    assert bodies(client) == [b"5", b"1"]


def test_a_dead_letter_keeps_its_priority() -> None:
    _, client = declared("dead", f"T/g?{URGENT}&group_max_attempts=1&group_dead_letter=dead")
    produce(client, "9")
    assert pull(client, "/T/g").body == b"9"
    ok(client, cmd("nack", "topic: T", "consume_group: g", "offset: 0"))
    found = pull(client, "/dead")
    assert (found.body, found.headers["priority"]) == (b"9", "9")


def test_orders_are_changed_while_messages_wait() -> None:
    _, client = declared(f"T/g?{URGENT}")
    produce(client, "1", "9", "5")
    assert pull(client, "/T/g").body == b"9"
    assert "order" not in document(client.request(http("/T/g?cmd=declare&group_order=none")))
    assert bodies(client) == [b"1", b"5"]
    produce(client, "2", "3")
    found = document(client.request(http("/T/g?cmd=declare&group_order=priority")))
    assert found["order"] == "priority"
    assert bodies(client) == [b"3", b"2"]


@pytest.mark.parametrize("value", ["10", "-1", "1.5", "high", "05", "%0a1", "9 9"])
@pytest.mark.parametrize("way", ["url", "frame"])
def test_what_is_no_priority_is_refused(way: str, value: str) -> None:
    _, client = declared(f"T/g?{URGENT}")
    if way == "url":
        request = http(f"/T?priority={value.replace(' ', '%20')}", method="POST", body=b"x")
    else:
        request = cmd("produce", "topic: T", f"priority: {value}", body=b"x")
    status, text = refused(client, request)
    assert status == 400
    assert text.startswith("400: Bad Format, priority is a number from 0 to 9, not ")
    assert bodies(client) == []


@pytest.mark.parametrize("value", ["u=1", "u=3, i", "i"])
def test_what_http_says_of_the_reply_is_no_priority(value: str) -> None:
    _, client = declared(f"T/g?{URGENT}")
    ok(client, http("/T", f"priority: {value}", method="POST", body=b"x"))
    found = pull(client, "/T/g")
    assert (found.body, "priority" in found.headers) == (b"x", False)
