"""`delay`, `deliver_at` and `ttl`: never early, and gone when it is too late."""

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    TEN_YEARS_MS,
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


@pytest.mark.parametrize("field", ["delay: 5000", f"deliver_at: {EPOCH_MS + 5000}"])
@pytest.mark.parametrize("topic_mask", [0, 1, 64])
def test_never_early_never_late(field: str, topic_mask: int) -> None:
    world, client = declared(f"T?topic_mask={topic_mask}")
    ok(client, cmd("produce", "topic: T", field, body=b"x"))
    reader = world.connect()
    assert reader.exchange(cmd("consume", "topic: T")) == []
    world.advance(4_999)
    assert reader.replies() == []
    assert pull(client).headers["empty"] == "delayed"
    world.advance(1)
    (reply,) = reader.replies()
    assert (reply.body, reply.headers["timestamp"]) == (b"x", str(EPOCH_MS))
    for name in ("delay", "deliver_at"):
        assert name not in reply.headers


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_deliver_at_goes_by_the_clock_outside(ahead_ms: int) -> None:
    """Somebody has set the system's clock since the broker's was: the sender goes by the former."""
    world, client = declared("T")
    world.ahead_ms = ahead_ms
    outside_ms = EPOCH_MS - ahead_ms
    ok(client, cmd("produce", "topic: T", f"deliver_at: {outside_ms + 5_000}", body=b"x"))
    ok(client, cmd("produce", "topic: T", "delay: 6000", body=b"y"))
    reader = world.connect()
    assert reader.exchange(cmd("consume", "topic: T")) == []
    world.advance(4_999)
    assert reader.replies() == []
    world.advance(1)
    assert [reply.body for reply in reader.replies()] == [b"x"]
    assert reader.exchange(cmd("consume", "topic: T")) == []
    world.advance(999)
    assert reader.replies() == []
    world.advance(1)
    assert [reply.body for reply in reader.replies()] == [b"y"]


@pytest.mark.parametrize("query", ["delay=0", "deliver_at=0", "deliver_at=1999-12-31", "delay="])
def test_no_delay(query: str) -> None:
    _, client = declared("T")
    put(client, "T", b"x", query=query)
    assert drain(client) == [b"x"]


def test_others_pass_by() -> None:
    world, client = declared("T")
    put(client, "T", b"late", query="delay=10")
    put(client, "T", b"1", b"2")
    assert drain(client) == [b"1", b"2"]
    world.advance(10)
    assert drain(client) == [b"late"]


def test_order_is_that_of_the_due_times_then_of_the_log() -> None:
    world, client = declared("T")
    for body, delay in ((b"c", 30), (b"a", 10), (b"b1", 20), (b"b2", 20)):
        put(client, "T", body, query=f"delay={delay}")
    assert drain(client) == []
    world.advance(100)
    assert drain(client) == [b"a", b"b1", b"b2", b"c"]


def test_what_became_due_goes_behind_what_was_there() -> None:
    world, client = declared("T")
    put(client, "T", b"late", query="delay=10")
    assert drain(client) == []
    put(client, "T", b"1")
    world.advance(10)
    put(client, "T", b"2")
    assert drain(client) == [b"1", b"late", b"2"]


def test_each_group_gets_it_at_its_time() -> None:
    world, client = declared("T/g", "T/h")
    put(client, "T", b"x", query="delay=10")
    assert drain(client, "/T/g") == []
    world.advance(10)
    assert drain(client, "/T/g") == drain(client, "/T/h") == [b"x"]


@pytest.mark.parametrize("looked", [False, True])
def test_over_a_restart(looked: bool) -> None:
    world, client = declared("T")
    put(client, "T", b"x", query="delay=5000")
    if looked:
        assert pull(client).headers["empty"] == "delayed"
    world.advance(2_000)
    again = restart(world)
    reader = again.connect()
    assert reader.exchange(cmd("consume", "topic: T")) == []
    again.advance(2_999)
    assert reader.replies() == []
    again.advance(1)
    assert [reply.body for reply in reader.replies()] == [b"x"]


def test_due_while_the_broker_was_down() -> None:
    world, client = declared("T")
    put(client, "T", b"x", query="delay=5000")
    assert drain(client) == []
    world.now_ms += 60_000
    assert drain(restart(world).connect()) == [b"x"]


@pytest.mark.parametrize(
    ("field", "status"),
    [
        (f"delay: {TEN_YEARS_MS}", 200),
        (f"delay: {TEN_YEARS_MS + 1}", 400),
        (f"deliver_at: {EPOCH_MS + TEN_YEARS_MS}", 200),
        (f"deliver_at: {EPOCH_MS + TEN_YEARS_MS + 1}", 400),
        (f"ttl: {TEN_YEARS_MS}", 200),
        (f"ttl: {TEN_YEARS_MS + 1}", 400),
        (f"timeout: {TEN_YEARS_MS + 1}", 400),
        ("delay: 9223372036854775808", 400),
        ("delay: -1", 400),
        ("delay: 1e3", 400),
        ("delay: 1y", 400),
        ("delay: 3651d", 400),
        ("delay: 520w", 200),
    ],
)
def test_ten_years_at_most(field: str, status: int) -> None:
    _, client = declared("T")
    assert refused(client, cmd("produce", "topic: T", field))[0] == status
    assert len(drain(client)) == (status == 200 and field.startswith("ttl"))


class TestTtl:
    @pytest.mark.parametrize(("after_ms", "there"), [(0, True), (999, True), (1000, False)])
    @pytest.mark.parametrize("topic_mask", [0, 1, 64])
    def test_gone_at_its_end(self, after_ms: int, there: bool, topic_mask: int) -> None:
        world, client = declared(f"T?topic_mask={topic_mask}")
        put(client, "T", b"x", query="ttl=1000")
        put(client, "T", b"y")
        world.advance(after_ms)
        assert drain(client) == [b"x"] * there + [b"y"]
        world.broker.check()

    def test_over_a_restart(self) -> None:
        world, client = declared("T")
        put(client, "T", b"x", query="ttl=1000")
        world.advance(1000)
        assert drain(restart(world).connect()) == []

    def test_it_is_not_delivered_again_after_its_end(self) -> None:
        world, client = declared("T?topic_mask=64")
        put(client, "T", b"x", query="ttl=1000")
        assert drain(client) == [b"x"]
        world.advance(10_000)
        assert drain(client) == []

    def test_it_counts_from_the_produce_not_from_the_due_time(self) -> None:
        world, client = declared("T")
        put(client, "T", b"x", query="ttl=1000&delay=500")
        put(client, "T", b"y", query="ttl=1000&delay=1000")
        world.advance(500)
        assert drain(client) == [b"x"]
        world.advance(500)
        assert drain(client) == []

    @pytest.mark.parametrize("again", [False, True])
    @pytest.mark.parametrize("group_mask", [0, 64])
    def test_it_is_not_counted_though_nobody_consumes(self, group_mask: int, again: bool) -> None:
        world, client = declared(f"T/g?group_mask={group_mask}")
        for query in ("ttl=2000", "ttl=1000", "", "ttl=2000&delay=90000"):
            put(client, "T", b"x", query=query)
        if again:
            world = restart(world)
            client = world.connect()
        for ms, count in ((999, 4), (101, 3), (1_000, 1), (60_000, 1)):
            world.advance(ms)
            assert document(ok(client, http("/T/g?cmd=query")))["messageCount"] == count
        assert drain(client, "/T/g") == [b"x"]

    def test_ttl_is_not_shown(self) -> None:
        _, client = declared("T")
        put(client, "T", b"x", query="ttl=1000")
        assert "ttl" not in pull(client).headers


def test_a_filter_looks_at_what_is_due_only() -> None:
    world, client = declared("T/g?group_filter=a")
    put(client, "T", b"a", query="delay=10&tag=a")
    put(client, "T", b"b", query="delay=10&tag=b")
    world.advance(10)
    assert drain(client, "/T/g") == [b"a"]


def test_a_new_group_gets_what_is_not_due_yet() -> None:
    world, client = declared("T")
    put(client, "T", b"later", query="delay=5000")
    put(client, "T", b"now")
    assert pull(client).body == b"now"
    ok(client, http("/T/new?cmd=declare"))
    assert pull(client, "/T/new").headers["empty"] == "delayed"
    world.advance(5_000)
    assert pull(client, "/T/new").body == b"later"
    assert pull(client).body == b"later"
