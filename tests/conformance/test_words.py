"""Words instead of bits: each says what its bit says, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    document,
    http,
    ok,
    refused,
    restart,
)
from tests.conformance.websocket_client import connected

GROUP_BITS = {"ack": 64, "exclusive": 16, "temporary": 32, "paused": 8}
TOPIC_BITS = {f"topic_{word}": bit for word, bit in GROUP_BITS.items()} | {"rpc": 2, "proxy": 4}


def shown(client: Client, path: str = "/T/g") -> dict[str, Any]:
    found: dict[str, Any] = document(ok(client, http(f"{path}?cmd=query")))
    return found


def said(info: dict[str, Any]) -> set[str]:
    return {word for word in GROUP_BITS if info.get(word)}


@pytest.mark.parametrize("word", GROUP_BITS)
def test_a_groups_word_is_its_bit(word: str) -> None:
    world, client = declared(f"T/g?{word}=true", f"T/h?group_mask={GROUP_BITS[word]}")
    for path in ("/T/g", "/T/h"):
        info = shown(client, path)
        assert (info["mask"], said(info)) == (GROUP_BITS[word], {word})
    again = restart(world).connect()
    assert said(shown(again)) == {word}
    ok(again, http(f"/T/g?cmd=declare&{word}=false"))
    assert (shown(again)["mask"], said(shown(again))) == (0, set())


@pytest.mark.parametrize("word", TOPIC_BITS)
def test_a_topics_word_is_its_bit(word: str) -> None:
    bit = TOPIC_BITS[word]
    _, client = declared(f"T?{word}=true&durability=os", f"U?topic_mask={bit}&durability=os")
    info, other = shown(client, "/T"), shown(client, "/U")
    assert (info["mask"], info.get("rpc", False)) == (bit, bool(bit & 6))
    assert {**info, "topicName": "", "consumeGroupList": []} == {
        **other,
        "topicName": "",
        "consumeGroupList": [],
    }
    assert said(shown(client, "/T/T")) == said(info), "groups go by their topic"
    ok(client, http(f"/T?cmd=declare&{word}=0"))
    assert shown(client, "/T")["mask"] == 0


def test_words_change_nothing_but_what_they_say() -> None:
    _, client = declared("T/g?ack=true&group_lease=1m", "T/g?exclusive=1", "T/g?group_window=7")
    info = shown(client)
    assert said(info) == {"ack", "exclusive"}
    assert (info["leaseMs"], info["window"], info["mask"]) == (60_000, 7, 80)


def test_a_group_says_no_where_its_topic_says_yes() -> None:
    _, client = declared("T/g?topic_ack=true", "T/h?ack=false")
    assert (said(shown(client, "/T/g")), said(shown(client, "/T/h"))) == ({"ack"}, set())
    ok(client, http("/T/h?cmd=declare&group_mask=0"))
    assert said(shown(client, "/T/h")) == {"ack"}, "0 leaves it to the topic"


@pytest.mark.parametrize(
    ("query", "mask", "durability"),
    [
        ("rpc=true", 3, "memory"),
        ("proxy=true", 5, "memory"),
        ("rpc=true&durability=os", 2, "os"),
        ("rpc=true&durability=memory", 3, "memory"),
        ("topic_mask=2&rpc=true", 2, "disk"),
        ("rpc=false", 0, "disk"),
    ],
)
def test_topics_of_calls_are_kept_in_memory_unless_something_else_is_said(
    query: str, mask: int, durability: str
) -> None:
    _, client = declared(f"T?{query}")
    info = shown(client, "/T")
    assert (info["mask"], info["durability"]) == (mask, durability)


def test_a_topic_that_exists_stays_where_it_is_kept() -> None:
    _, client = declared("T?durability=os", "T?rpc=true", "M?topic_mask=1", "M?rpc=true")
    assert (shown(client, "/T")["mask"], shown(client, "/T")["durability"]) == (2, "os")
    assert shown(client, "/M")["mask"] == 3


CONTRADICTIONS = [
    ("group_mask=64&ack=false", "group_mask=64 and ack=false contradict each other"),
    ("group_mask=64&group_ack=false", "group_mask=64 and ack=false contradict each other"),
    ("group_mask=16&ack=true", "group_mask=16 and ack=true contradict each other"),
    ("group_mask=16&temporary=1", "group_mask=16 and temporary=true contradict each other"),
    ("topic_mask=0&rpc=true", "topic_mask=0 and rpc=true contradict each other"),
    ("topic_mask=64&topic_ack=0", "topic_mask=64 and topic_ack=false contradict each other"),
    ("topic_mask=1&durability=disk", "a memory topic is not durable"),
    ("group_lease=1s&group_ack_timeout=2000", "group_lease and group_ack_timeout are one"),
    ("group_window=1&group_ack_window=2", "group_window and group_ack_window are one"),
    ("ack=1&group_ack=0", "ack and group_ack are one"),
]


@pytest.mark.parametrize(("query", "text"), CONTRADICTIONS)
def test_contradictions(query: str, text: str) -> None:
    _, client = declared()
    status, told = refused(client, http(f"/T/g?cmd=declare&{query}"))
    assert (status, told[:17]) == (400, "400: Bad Format, ")
    assert text in told
    assert client.request(http("/T?cmd=query")).status == 404, "nothing was made"


@pytest.mark.parametrize(
    "query",
    [
        "group_mask=64&ack=true&exclusive=false",
        "group_mask=0&ack=true",
        "group_mask=64&topic_ack=false",
        "ack=true&group_ack=true",
        "group_ack=1&ack=",
    ],
)
def test_what_is_no_contradiction(query: str) -> None:
    _, client = declared(f"T/g?{query}")
    assert said(shown(client)) == {"ack"}


@pytest.mark.parametrize("value", ["maybe", "2", "yes", "tru", "%00", "-1", "true,false", "TRUE!"])
@pytest.mark.parametrize("word", [*GROUP_BITS, *TOPIC_BITS])
def test_a_word_is_true_or_false(word: str, value: str) -> None:
    _, client = declared()
    status, text = refused(client, http(f"/T/g?cmd=declare&{word}={value}"))
    assert status == 400
    assert text.startswith(f"400: Bad Format, {word} is true or false, not ")


def test_in_the_originals_protocol_ack_is_about_the_reply() -> None:
    """Its clients may say whether they want a reply with any command."""
    world = World()
    client = world.connect()
    for value in ("0", "1", "true", "false", "x"):
        ok(client, cmd("declare", "topic: T", "group: g", "group_mask: 16", f"ack: {value}"))
        assert said(shown(client)) == {"exclusive"}
    ok(client, cmd("declare", "topic: T", "group: g", "group_ack: 1", "ack: 0"))
    assert said(shown(client)) == {"exclusive", "ack"}


@pytest.mark.parametrize(
    ("request_", "noted"),
    [
        (cmd("declare", "topic: T", "group: g", "ack: true"), True),
        (cmd("declare", "topic: U", "ack: 1"), True),
        (cmd("declare", "topic: T", "group: g", "ack: false"), False),
        (cmd("declare", "topic: T", "group: g", "ack: true", "id: 7"), False),
        (cmd("declare", "topic: T", "group: g", "ack: true", "group_ack: true"), False),
        (http("/T/g?cmd=declare", "ack: true"), False),
        (http("/T/g?cmd=declare&ack=true"), False),
        (cmd("seek", "topic: T", "group: T", "from: latest", "ack: true"), False),
    ],
)
def test_who_seems_to_mean_the_groups_ack_is_told(request_: bytes, noted: bool) -> None:
    """Stock clients send an id with each request, and nobody types one."""
    _, client = declared("T")
    note = ok(client, request_).headers.get("note", "")
    assert ("say group_ack" in note) is noted


def test_in_json_frames_ack_is_the_word() -> None:
    world = World()
    frame = {"cmd": "declare", "topic": "T", "consume_group": "g", "ack": True, "from": "latest"}
    assert connected(world).ask(frame)["status"] == 200
    assert said(shown(world.connect())) == {"ack"}
