"""Topics that forget: parameters, documents, and what a consumer is told."""

from __future__ import annotations

import msgspec
import pytest

from tests.conformance.dialogue import (
    TEN_YEARS_MS,
    Client,
    World,
    cmd,
    declared,
    document,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.units import DURATIONS, SIZES

KEYS = ("retentionMs", "retentionBytes", "retentionCount", "retentionDone")


def retention(client: Client) -> list[int | bool | None]:
    info = document(ok(client, http("/T?cmd=query")))
    return [info.get(key) for key in KEYS]


def world_that_forgot(query: str = "") -> tuple[World, Client]:
    """Ten messages, of which the first eight are gone."""
    world = World(segment_bytes_max=19_000)
    client = world.connect()
    ok(client, http(f"/T/g?cmd=declare&retention_count=2&{query}"))
    for number in range(10):
        put(client, "T", b"%d" % number + bytes(10_000))
    world.advance(2_000)
    return world, client


class TestDeclare:
    def test_for_ever_unless_told_otherwise(self) -> None:
        _, client = declared("T")
        assert retention(client) == [None] * 4

    @pytest.mark.parametrize("declare", ["http", "headers"])
    def test_all_limits(self, declare: str) -> None:
        values = ("retention_ms=1000", "retention_bytes=2", "retention_count=3")
        done = "retention_done=true"
        world, client = declared()
        if declare == "http":
            ok(client, http("/T?cmd=declare&" + "&".join((*values, done))))
        else:
            lines = [value.replace("=", ": ") for value in (*values, done)]
            ok(client, cmd("declare", "topic: T", *lines))
        assert retention(client) == [1000, 2, 3, True]
        assert retention(restart(world).connect()) == [1000, 2, 3, True]

    def test_what_is_absent_stays(self) -> None:
        _, client = declared("T?retention_ms=5&retention_done=1")
        ok(client, http("/T?cmd=declare&retention_count=7&topic_mask=64&retention_ms="))
        assert retention(client) == [5, None, 7, True]
        ok(client, http("/T?cmd=declare&retention_ms=0&retention_done=0"))
        assert retention(client) == [None, None, 7, None]

    def test_the_brokers_own_limits_are_for_new_topics_that_do_not_choose(self) -> None:
        world = World(settings=ZbusSettings(retention_ms=60_000, retention_bytes=5))
        client = world.connect()
        ok(client, http("/T?cmd=declare&retention_bytes=0"))
        assert retention(client) == [60_000, None, None, None]
        ok(client, http("/T?cmd=declare&retention_ms=0"))
        ok(client, http("/T?cmd=declare"))
        assert retention(client) == [None] * 4

    @pytest.mark.parametrize(
        ("name", "value", "maximum"),
        [
            ("retention_ms", "-1", TEN_YEARS_MS),
            ("retention_ms", "1y", TEN_YEARS_MS),
            ("retention_ms", str(TEN_YEARS_MS + 1), TEN_YEARS_MS),
            ("retention_bytes", "1.5", (1 << 63) - 1),
            ("retention_bytes", "10GB", (1 << 63) - 1),
            ("retention_count", "9" * 19, (1 << 63) - 1),
            ("retention_count", "9" * 20, (1 << 63) - 1),
            ("retention_count", "many", (1 << 63) - 1),
        ],
    )
    def test_bad_values(self, name: str, value: str, maximum: int) -> None:
        _, client = declared("T")
        assert refused(client, http(f"/T?cmd=declare&{name}={value}")) == (
            400,
            f"400: Bad Format, {name} is {FORMS[name].format(maximum)}, not {value!r}",
        )
        assert retention(client) == [None] * 4


FORMS = {
    "retention_ms": f"{DURATIONS}, from 0 to {{}} ms",
    "retention_bytes": f"{SIZES}, from 0 to {{}} bytes",
    "retention_count": "a number from 0 to {}",
}


class TestGap:
    def test_the_next_delivery_tells_once(self) -> None:
        world, client = world_that_forgot()
        one = pull(client, "/T/g")
        assert (one.headers["offset"], one.headers["skipped"]) == ("8", "8")
        assert "skipped" not in pull(client, "/T/g").headers
        info = document(ok(client, http("/T/g?cmd=query")))
        assert (info["skippedCount"], info["messageCount"]) == (8, 0)
        client = restart(world).connect()
        assert document(ok(client, http("/T/g?cmd=query")))["skippedCount"] == 8

    def test_a_crash_before_the_delivery_does_not_swallow_it(self) -> None:
        world, _ = world_that_forgot()
        client = restart(world).connect()
        assert pull(client, "/T/g").headers["skipped"] == "8"

    @pytest.mark.parametrize(
        "accept", ["application/json", "application/x-ndjson", "application/vnd.zbus.messages"]
    )
    def test_a_batch(self, accept: str) -> None:
        _, client = world_that_forgot()
        request = http("/T/g?cmd=consume&batch=10", f"accept: {accept}")
        reply = ok(client, request)
        assert (reply.headers["count"], reply.headers["skipped"]) == ("2", "8")
        assert reply.body.count(b"skipped") == 0

    def test_headed_with_a_window(self) -> None:
        _, client = world_that_forgot()
        lines = ("topic: T", "consume_group: g", "consume_window: 5", "id: c")
        replies = client.exchange(cmd("consume", *lines))
        assert [reply.headers.get("skipped") for reply in replies] == ["8", None]

    def test_nobody_else_can_say_so(self) -> None:
        _, client = declared("T")
        ok(client, http("/T?skipped=5", "skipped: 7", body=b"x"))
        assert "skipped" not in pull(client).headers

    def test_an_ack_of_what_is_gone(self) -> None:
        world = World(segment_bytes_max=19_000)
        client = world.connect()
        ok(client, http("/T?cmd=declare&retention_count=2&group_mask=64&group_ack_timeout=900000"))
        put(client, "T", bytes(10_000))
        assert pull(client).headers["offset"] == "0"
        for _ in range(5):
            put(client, "T", bytes(10_000))
        world.advance(2_000)
        info = document(ok(client, http("/T/T?cmd=query")))
        assert (info["leasedCount"], info["skippedCount"]) == (0, 4)
        ok(client, http("/T?cmd=ack&offset=0"))
        assert pull(client).headers["skipped"] == "4"

    def test_reads_that_name_an_offset(self) -> None:
        _, client = world_that_forgot()
        text = "partition 0 has offsets 8 to 10"
        for path in ("/T/g?cmd=consume&offset=7", "/_log/T?offset=7", "/_log/T?offset=0&count=5"):
            assert refused(client, http(path)) == (404, f"404: {text}")
        path = "/T/h?cmd=declare&group_start_offset=7"
        assert refused(client, http(path)) == (400, f"400: Bad Format, {text}")
        start = document(ok(client, http("/T/h?cmd=declare&group_start_offset=0")))
        assert (start["messageCount"], start["skippedCount"]) == (2, 0)
        bodies = msgspec.json.decode(ok(client, http("/_log/T?offset=8&count=5")).body)
        assert [item["offset"] for item in bodies] == [8, 9]

    def test_services(self) -> None:
        """A call that nobody took is forgotten like any message; the caller's time runs out."""
        world = World(segment_bytes_max=19_000)
        client = world.connect()
        ok(client, http("/T?cmd=declare&topic_mask=2&retention_count=2"))
        for number in range(10):
            lines = ("topic: T", f"id: {number}", "timeout: 5000")
            client.send(cmd("produce", *lines, body=bytes(10_000)))
            world.settle()
        world.advance(2_000)
        service = pull(world.connect())
        assert (service.headers["origin_id"], service.headers["skipped"]) == ("8", "8")
        world.advance(10_000)
        assert [reply.status for reply in client.replies()] == [504] * 10
