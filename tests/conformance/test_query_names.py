"""`query` with `names`: names alone, for whoever completes or counts them; and what a ServerInfo
tells of the broker."""

from __future__ import annotations

import json

import attrs

from tests.conformance.dialogue import World, cmd, ok, refused
from zbus.dialects.zbus.settings import ZbusSettings


def test_names_of_topics_and_groups() -> None:
    world = World()
    client = world.connect()
    assert ok(client, cmd("query", "names: 1")).body == b"[]"
    ok(client, cmd("declare", "topic: b"))
    ok(client, cmd("declare", "topic: a", "consume_group: z"))
    ok(client, cmd("declare", "topic: a", "consume_group: y"))
    reply = ok(client, cmd("query", "names: 1"))
    assert reply.headers["content-type"].startswith("application/json")
    assert json.loads(reply.body) == ["a", "b"]
    assert json.loads(ok(client, cmd("query", "topic: a", "names: 1")).body) == ["y", "z"]
    assert json.loads(ok(client, cmd("query", "names: 0")).body)["topicTable"].keys() == {"a", "b"}
    unknown = cmd("query", "topic: c", "names: 1")
    assert refused(client, unknown) == (404, "404: Topic(c) Not Found")


def test_the_broker_itself() -> None:
    world = World(settings=attrs.evolve(ZbusSettings(), memory_used=lambda: 12_345))
    first, _ = world.connect(), world.connect()
    info = json.loads(ok(first, cmd("query")).body)
    assert (info["connectionCount"], info["memoryBytes"]) == (2, 12_345)
    assert list(info) == sorted(info)
    info = json.loads(ok(World().connect(), cmd("server")).body)
    assert "connectionCount" not in info
