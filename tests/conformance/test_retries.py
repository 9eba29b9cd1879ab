"""Messages that are not acknowledged, and how fast a group is given messages: words of `declare`,
`consume`, `pause` and `resume`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import (
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
from zbus.core.model.limits import DELAY_MS_MAX
from zbus.core.model.rate_limit import RATE_MAX

LEASING = "group_mask=64&group_ack_timeout=1000"


def retrying(words: str, *bodies: bytes) -> tuple[World, Client]:
    """A group g with acknowledgements and these words, and messages."""
    world, client = declared(f"T/g?{LEASING}&{words}")
    put(client, "T", *(bodies or (b"0",)))
    return world, client


def info(client: Client) -> Any:
    return document(ok(client, http("/T/g?cmd=query")))


def declare(client: Client, words: str) -> Any:
    return document(ok(client, http(f"/T/g?cmd=declare&{words}")))


def test_backoff_and_the_end() -> None:
    world, client = retrying("group_max_attempts=3&group_backoff=2000,3000")
    for retry, pause_ms in enumerate((2_000, 3_000)):
        found = pull(client, "/T/g")
        assert found.headers.get("retry", "0") == str(retry)
        world.advance(1_000)
        assert pull(client, "/T/g").headers["empty"] == "delayed"
        world.advance(pause_ms - 1)
        assert pull(client, "/T/g").headers["empty"] == "delayed"
        world.advance(1)
    assert pull(client, "/T/g").headers["retry"] == "2"
    world.advance(1_000)
    assert pull(client, "/T/g").headers["empty"] == "drained"
    assert (info(client)["deadCount"], info(client)["leasedCount"]) == (1, 0)
    assert info(restart(world).connect())["deadCount"] == 1


def test_attempts_and_pauses_outlive_a_restart() -> None:
    world, client = retrying("group_max_attempts=3&group_backoff=2000")
    for pause_ms in (2_000, 4_000):
        assert pull(client, "/T/g").body == b"0"
        ok(client, cmd("nack", "topic: T", "group: g", "offset: 0"))
        world = restart(world)
        client = world.connect()
        world.advance(pause_ms - 1)
        assert pull(client, "/T/g").headers["empty"] == "delayed"
        world.advance(1)
    assert pull(client, "/T/g").headers["retry"] == "2"
    ok(client, cmd("nack", "topic: T", "group: g", "offset: 0"))
    world = restart(world)
    client = world.connect()
    world.advance(60_000)
    assert pull(client, "/T/g").headers["empty"] == "drained"
    assert info(client)["deadCount"] == 1


@pytest.mark.parametrize("group", ["group_max_attempts=2", ""])
def test_a_message_has_a_limit_of_its_own(group: str) -> None:
    world, client = retrying(group)  # 0 goes by the group
    put(client, "T", b"1", query="max_attempts=1")
    batch = b"".join([b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n%d" % n for n in (2, 3)])
    kind = "content-type: application/vnd.zbus.messages"
    ok(client, http("/T?max_attempts=3", kind, body=batch, method="POST"))
    ok(client, cmd("produce", "topic: T", "max_attempts: 4", "id: x", body=b"4"))
    last = "" if group else "0"
    for expected in ("01234", "0234", last + "234", last + "4", last):
        found = drain(client, "/T/g")
        assert b"".join(sorted(found)) == expected.encode()
        world.advance(1_000)
        if expected == "0234":
            world = restart(world)
            client = world.connect()
    assert drain(client, "/T/g") == ([b"0"] if last else [])
    assert info(client)["deadCount"] == (4 if last else 5)


def test_a_limit_of_its_own_is_not_a_header() -> None:
    _, client = declared("T")
    ok(client, cmd("produce", "topic: T", "max_attempts: 4", body=b"x"))
    assert "max_attempts" not in pull(client).headers


@pytest.mark.parametrize("value", ["0", "1000001", "-1", "1.5", "None"])
def test_limits_of_its_own_that_are_none(value: str) -> None:
    _, client = declared("T")
    status, text = refused(client, http(f"/T?cmd=produce&max_attempts={value}"))
    assert status == 400
    assert "max_attempts is a number from 1 to 1000000, or none, not" in text
    assert drain(client) == [], "nothing is stored"


def test_the_document_shows_what_was_declared() -> None:
    world, client = declared("D", f"T/g?{LEASING}")
    assert "maxAttempts" not in info(client)
    words = (
        "group_max_attempts=5&group_backoff=1000,60000&group_dead_letter=D&group_on_loss=front"
        "&group_rate=50&group_one_batch=1&group_keep_attempts=1"
    )
    expected = {
        "maxAttempts": 5,
        "backoffMs": 1_000,
        "backoffMaxMs": 60_000,
        "deadLetter": "D",
        "onLoss": "front",
        "rate": 50,
        "oneBatch": True,
        "keepAttempts": True,
    }
    assert expected.items() <= declare(client, words).items()
    assert expected.items() <= declare(client, "group_ack_window=9").items(), "they stay"
    client = restart(world).connect()
    assert expected.items() <= info(client).items()
    words = (
        "group_max_attempts=none&group_backoff=none&group_dead_letter=&group_on_loss=keep"
        "&group_rate=none&group_one_batch=0&group_keep_attempts=0"
    )
    assert not expected.keys() & declare(client, words).keys()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("group_max_attempts=0", "group_max_attempts is a number from 1 to 1000000, or none,"),
        ("group_max_attempts=1000001", "group_max_attempts is a number from 1 to 1000000"),
        ("group_max_attempts=-1", "group_max_attempts is a number"),
        ("group_max_attempts=None", "group_max_attempts is a number"),
        ("group_rate=0", "group_rate is a number from 1 to "),
        (f"group_rate={RATE_MAX + 1}", "group_rate is a number from 1 to "),
        ("group_rate=1.5", "group_rate is a number from 1 to "),
        ("group_backoff=0", "group_backoff is milliseconds, or a number"),
        ("group_backoff=1x", "group_backoff is milliseconds, or a number"),
        ("group_backoff=5,4", "group_backoff is milliseconds, or a number"),
        ("group_backoff=5,", "group_backoff is milliseconds, or a number"),
        ("group_backoff=,5", "group_backoff is milliseconds, or a number"),
        ("group_backoff=5,6,7", "group_backoff is milliseconds, or a number"),
        (f"group_backoff={DELAY_MS_MAX + 1}", "group_backoff is milliseconds, or a number"),
        (f"group_backoff=1,{DELAY_MS_MAX + 1}", "group_backoff is milliseconds, or a number"),
        ("group_on_loss=drop", "group_on_loss is one of keep, front"),
        ("group_dead_letter=D", "dead letters: without a limit of attempts no message is ever"),
        ("group_mask=0&group_max_attempts=3", "attempts: a group without acknowledgements"),
        ("group_mask=0&group_on_loss=front", "lost leases: a group without acknowledgements"),
        ("group_max_attempts=3&group_dead_letter=T", "dead letters of T would return to it"),
        ("group_max_attempts=3&group_dead_letter=t", "dead letters of T would return to it"),
        ("group_max_attempts=3&group_dead_letter=E", "would return to it through E"),
        ("group_max_attempts=3&group_dead_letter=S", "dead letters: S is a topic of services"),
    ],
)
@pytest.mark.parametrize("new", [True, False])
def test_what_makes_no_sense_is_refused(words: str, text: str, new: bool) -> None:
    targets = ("D", "S?topic_mask=2", "T", f"E?{LEASING}&group_max_attempts=1&group_dead_letter=T")
    _, client = declared(*targets, *(() if new else (f"T/g?{LEASING}",)))
    mask = "group_mask=64&" if new and "group_mask" not in words else ""
    status, found = refused(client, http(f"/T/g?cmd=declare&{mask}{words}"))
    assert status == 400
    assert text in found
    if new:
        assert refused(client, http("/T/g?cmd=query"))[0] == 404, "nothing was made"
    else:
        assert not {"maxAttempts", "backoffMs", "rate"} & info(client).keys()


def test_a_dead_letter_topic_has_to_exist() -> None:
    _, client = declared(f"T/g?{LEASING}")
    request = http("/T/g?cmd=declare&group_max_attempts=3&group_dead_letter=nowhere")
    step = "declare the dead-letter topic first, with cmd=declare&topic=nowhere"
    assert refused(client, request) == (404, f"404: Topic(nowhere) Not Found; {step}")


def test_a_dead_letter_topic_may_be_named_as_headers_are() -> None:
    _, client = declared("Tote%20Briefe", f"T/g?{LEASING}")
    lines = ("topic: T", "group: g", "group_max_attempts: 3", "group_dead_letter: Tote%20Briefe")
    assert document(ok(client, cmd("declare", *lines)))["deadLetter"] == "Tote Briefe"


def test_what_a_lost_connection_had_comes_first() -> None:
    world, client = retrying("group_on_loss=front", b"0", b"1", b"2")
    lost = world.connect()
    assert [pull(lost, "/T/g").body for _ in range(2)] == [b"0", b"1"]
    lost.vanish()
    world.settle()
    found = [pull(client, "/T/g") for _ in range(3)]
    assert [reply.body for reply in found] == [b"0", b"1", b"2"]
    assert [reply.headers.get("retry") for reply in found] == ["1", "1", None]


def test_a_pull_says_how_long_it_leases() -> None:
    world, client = retrying("", b"0", b"1")
    assert pull(client, "/T/g", "lease=5000").body == b"0"
    assert pull(client, "/T/g", "lease=100").body == b"1"
    world.advance(100)
    assert pull(client, "/T/g").body == b"1"
    world.advance(4_899)
    assert pull(client, "/T/g").body == b"1", "its second lease was the group's"
    world.advance(1)
    assert pull(client, "/T/g").body == b"0"


@pytest.mark.parametrize("value", ["0", "-1", "x", "2147483648", "1.5"])
def test_a_lease_is_a_number(value: str) -> None:
    _, client = retrying("")
    status, text = refused(client, http(f"/T/g?cmd=consume&timeout=0&lease={value}"))
    assert status == 400
    assert text.startswith("400: Bad Format, lease is")
    assert pull(client, "/T/g").body == b"0"


def test_a_rate() -> None:
    world, client = retrying("group_rate=2", *[b"%d" % number for number in range(5)])
    assert [pull(client, "/T/g").body for _ in range(2)] == [b"0", b"1"]
    assert pull(client, "/T/g").headers["empty"] == "throttled"
    reader = world.connect()
    assert reader.exchange(http("/T/g?cmd=consume")) == []
    world.advance(499)
    assert reader.replies() == []
    world.advance(1)
    assert reader.replies()[0].body == b"2"
    declare(client, "group_rate=none")
    assert pull(client, "/T/g").body == b"3"


def test_one_batch_at_a_time() -> None:
    world, client = retrying("group_one_batch=1", b"0", b"1", b"2")
    batch = document(ok(client, http("/T/g?cmd=consume&batch=2", "accept: application/json")))
    assert [message["body"] for message in batch] == ["0", "1"]
    assert pull(client, "/T/g").headers["empty"] == "leased"
    reader = world.connect()
    assert reader.exchange(http("/T/g?cmd=consume")) == []
    ok(client, cmd("ack", "topic: T", "group: g", "offset: 0"))
    assert reader.replies() == []
    ok(client, cmd("ack", "topic: T", "group: g", "offset: 1"))
    assert reader.replies()[0].body == b"2"


@pytest.mark.parametrize("of_topic", [True, False])
def test_pause_and_resume(of_topic: bool) -> None:
    world, client = declared("T/g?topic_mask=8" if of_topic else "T/g")
    if not of_topic:
        assert document(ok(client, http("/T/g?cmd=pause")))["paused"] is True
        ok(client, http("/T/g?cmd=pause"))
    assert info(client)["paused"] is True
    put(client, "T", b"0")
    assert pull(client, "/T/g").headers["empty"] == "paused"
    world = restart(world)
    client, reader = world.connect(), world.connect()
    assert reader.exchange(http("/T/g?cmd=consume")) == []
    answer = document(ok(client, cmd("resume", "topic: T", "group: g")))
    assert (answer["groupName"], answer["paused"]) == ("g", False)
    assert reader.replies()[0].body == b"0"


def test_pause_of_what_is_not_there() -> None:
    _, client = declared("T")
    assert refused(client, http("/T/x?cmd=pause")) == (404, "404: ConsumeGroup(x) Not Found")
    assert refused(client, http("/X?cmd=pause")) == (404, "404: Topic(X) Not Found")
    assert refused(client, http("/?cmd=resume")) == (400, "400: Bad Format, Missing topic")
    assert document(ok(client, http("/T?cmd=pause")))["groupName"] == "T"
    assert document(ok(client, http("/T?cmd=query")))["mask"] == 0
