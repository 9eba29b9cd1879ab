"""Groups that want acks: leases, windows, time, restarts (specification 5.4, 6.6)."""

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
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


def ack(offset: int, *lines: str) -> bytes:
    return cmd("ack", "topic: T", "consume_group: g", f"offset: {offset}", *lines)


@pytest.mark.parametrize("topic_mask", [0, 1])
def test_unacked_messages_come_again_with_retry(topic_mask: int) -> None:
    world, client = declared(f"T/g?topic_mask={topic_mask}&group_mask=64")
    put(client, "T", b"0", b"1")
    first = pull(client, "/T/g")
    assert "retry" not in first.headers
    for retry in ("1", "2", "3"):
        world.advance(9_999)
        assert pull(client, "/T/g").body in (b"1", b""), "not early"
        world.advance(1)
        again = pull(client, "/T/g")
        assert (again.body, again.headers["retry"]) == (b"0", retry)
        for name in ("offset", "origin_id", "timestamp"):
            assert again.headers[name] == first.headers[name]
        ok(client, ack(1))


def test_a_waiting_pull_gets_it_when_the_time_is_up() -> None:
    world, client = declared("T/g?group_mask=64&group_ack_timeout=1500")
    put(client, "T", b"0")
    pull(client, "/T/g")
    reader = world.connect()
    assert reader.exchange(cmd("consume", "topic: T", "group: g")) == []
    world.advance(1_499)
    assert reader.replies() == []
    world.advance(1)
    assert reader.replies()[0].headers["retry"] == "1"


def test_what_ends_together_comes_again_in_its_old_order() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", b"1", b"2", b"3")
    for _ in range(3):
        pull(client, "/T/g")
    ok(client, ack(1))
    world.advance(10_000)
    assert [pull(client, "/T/g").body for _ in range(3)] == [b"0", b"2", b"3"]


def test_what_comes_again_goes_before_what_is_new() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", b"1", b"2")
    for _ in range(2):
        pull(client, "/T/g")
        world.advance(1)
    world.advance(10_000)
    bodies = [pull(client, "/T/g").body for _ in range(3)]
    assert (set(bodies[:2]), bodies[2]) == ({b"0", b"1"}, b"2")


class TestAck:
    def test_it_ends_the_matter(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        pull(client, "/T/g")
        reply = ok(client, ack(0, "id: a"))
        assert (reply.body, reply.headers["id"]) == (b"%d" % EPOCH_MS, "a")
        world.advance(60_000)
        assert pull(client, "/T/g").headers["empty"] == "drained"

    @pytest.mark.parametrize(
        "lines",
        [
            ("topic: T", "consume_group: g", "offset: 0"),
            ("topic: T", "consume_group: g", "offset: 7"),
            ("topic: T", "consume_group: g", "offset: 9223372036854775807"),
            ("topic: T", "consume_group: unknown", "offset: 0"),
            ("topic: T", "offset: 0"),
            ("topic: NOACK", "offset: 0"),
            ("topic: T", "group: g", "offset: 0", "partition: 5"),
        ],
    )
    def test_unknown_things_count_as_settled(self, lines: tuple[str, ...]) -> None:
        world, client = declared("T/g?group_mask=64", "NOACK")
        put(client, "T", b"0")
        for _ in range(2):
            assert len(client.exchange(cmd("ack", *lines))) == 1
            ok(client, cmd("ack", *lines))
        world.broker.check()

    @pytest.mark.parametrize(
        ("lines", "refusal"),
        [
            (("topic: T", "consume_group: g"), (400, "400: Bad Format, Missing offset")),
            (("topic: T", "offset:"), (400, "400: Bad Format, Missing offset")),
            (("topic: NOPE", "offset: 0"), (404, "404: Topic(NOPE) Not Found")),
        ],
    )
    def test_refusals(self, lines: tuple[str, ...], refusal: tuple[int, str]) -> None:
        _, client = declared("T/g?group_mask=64")
        assert refused(client, cmd("ack", *lines)) == refusal

    def test_without_a_reply(self) -> None:
        _, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        pull(client, "/T/g")
        assert client.exchange(ack(0, "ack: 0")) == []
        assert client.exchange(cmd("ack", "topic: NOPE", "offset: 0", "ack: 0")) == []
        assert pull(client, "/T/g").headers["empty"] == "drained"

    def test_from_another_connection_after_the_first_broke(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        reader = world.connect()
        pull(reader, "/T/g")
        reader.vanish()
        world.advance(5_000)
        assert pull(client, "/T/g").headers["empty"] == "leased", "not returned early"
        ok(client, ack(0))
        world.advance(10_000)
        assert pull(client, "/T/g").headers["empty"] == "drained"

    def test_a_late_ack_of_what_is_out_again(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        pull(client, "/T/g")
        world.advance(10_000)
        ok(client, ack(0))
        reply = pull(client, "/T/g")
        assert reply.status in (200, 204), "it had come back before the ack"
        world.broker.check()


class TestWindow:
    def test_the_default_is_100(self) -> None:
        _, client = declared("T/g?group_mask=64")
        put(client, "T", *[b"x"] * 101)
        assert [pull(client, "/T/g").status for _ in range(101)] == [200] * 100 + [204]
        ok(client, ack(50))
        assert pull(client, "/T/g").headers["offset"] == "100"

    def test_an_ack_wakes_a_waiting_pull(self) -> None:
        world, client = declared("T/g?group_mask=64&group_ack_window=1")
        put(client, "T", b"0", b"1")
        pull(client, "/T/g")
        reader = world.connect()
        assert reader.exchange(cmd("consume", "topic: T", "group: g")) == []
        ok(client, ack(0))
        assert [reply.body for reply in reader.replies()] == [b"1"]

    def test_redelivery_goes_on_with_a_full_window(self) -> None:
        world, client = declared("T/g?group_mask=64&group_ack_window=1&group_ack_timeout=1000")
        put(client, "T", b"0", b"1")
        for retry in (None, "1", "2"):
            assert pull(client, "/T/g").headers.get("retry") == retry
            assert pull(client, "/T/g").headers["empty"] == "leased"
            world.advance(1_000)

    def test_a_wider_window_wakes_a_waiting_pull(self) -> None:
        world, client = declared("T/g?group_mask=64&group_ack_window=1")
        put(client, "T", b"0", b"1")
        pull(client, "/T/g")
        reader = world.connect()
        reader.exchange(cmd("consume", "topic: T", "group: g"))
        ok(client, http("/T/g?cmd=declare&group_ack_window=2"))
        assert [reply.body for reply in reader.replies()] == [b"1"]

    @pytest.mark.parametrize(
        ("value", "status"), [("0", 200), ("999", 200), ("1000000", 200), ("1000001", 400)]
    )
    def test_its_limits(self, value: str, status: int) -> None:
        _, client = declared("T")
        request = http(f"/T/g?cmd=declare&group_mask=64&group_ack_window={value}")
        assert client.request(request).status == status


class TestRestart:
    def test_leases_are_kept_with_deadline_and_attempts(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0", b"1", b"2")
        pull(client, "/T/g")
        world.advance(10_000)
        pull(client, "/T/g")
        world.advance(4_000)
        pull(client, "/T/g")
        again = restart(world)
        reader = again.connect()
        info = document(ok(reader, http("/T/g?cmd=query")))
        assert (info["leasedCount"], info["messageCount"]) == (2, 1)
        again.advance(5_999)
        assert pull(reader, "/T/g").body == b"2"
        assert pull(reader, "/T/g").status == 204
        again.advance(1)
        reply = pull(reader, "/T/g")
        assert (reply.body, reply.headers["retry"]) == (b"0", "2")
        again.advance(4_000)
        reply = pull(reader, "/T/g")
        assert (reply.body, reply.headers["retry"]) == (b"1", "1")

    def test_acks_are_kept(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0", b"1", b"2")
        for _ in range(3):
            pull(client, "/T/g")
        ok(client, ack(1))
        again = restart(world)
        again.advance(10_000)
        reader = again.connect()
        assert [pull(reader, "/T/g").body for _ in range(2)] == [b"0", b"2"]
        assert pull(reader, "/T/g").status == 204

    def test_acks_of_leases_from_before(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        pull(client, "/T/g")
        again = restart(world)
        reader = again.connect()
        ok(reader, ack(0))
        again.advance(60_000)
        assert pull(reader, "/T/g").headers["empty"] == "drained"

    def test_the_settings_are_kept(self) -> None:
        world, client = declared("T/g?group_mask=64&group_ack_window=2&group_ack_timeout=50")
        put(client, "T", b"0", b"1", b"2")
        again = restart(restart(world))
        reader = again.connect()
        assert [pull(reader, "/T/g").status for _ in range(3)] == [200, 200, 204]
        again.advance(50)
        assert pull(reader, "/T/g").headers["retry"] == "1"


def test_without_the_bit_nothing_comes_again() -> None:
    world, client = declared("T/g")
    put(client, "T", b"0")
    pull(client, "/T/g")
    world.advance(60_000)
    assert pull(client, "/T/g").headers["empty"] == "drained"


def test_turning_acks_off_settles_nothing_that_is_out() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0")
    pull(client, "/T/g")
    ok(client, http("/T/g?cmd=declare&group_mask=0"))
    world.advance(10_000)
    assert pull(client, "/T/g").body == b"0"
    assert pull(client, "/T/g").status == 204
    world.broker.check()


def test_memory_topics_are_gone_after_a_restart_and_others_are_as_they_were() -> None:
    world = World()
    client = world.connect()
    ok(client, http("/M/g?cmd=declare&topic_mask=1"))
    ok(client, http("/T/g?cmd=declare&topic_mask=64&group_mask=80&group_filter=a.%23"))
    ok(client, http("/T/h?cmd=declare"))
    ok(client, http("/P?cmd=declare&partitions=4&durability=os"))
    put(client, "T", b"0", b"1", query="tag=a.b")
    put(client, "T", b"2", query="tag=b")
    put(client, "M", b"0")
    pull(client, "/T/h")
    before = document(ok(client, http("/?cmd=query")))["topicTable"]
    reader = restart(world).connect()
    after = document(ok(reader, http("/?cmd=query")))["topicTable"]
    assert list(after) == ["P", "T"]
    assert reader.request(http("/M", body=b"x")).status == 404
    for table in (before, after):
        table.pop("M", None)
        for topic in table.values():
            for item in (topic, *topic["consumeGroupList"]):
                for live in ("lastUpdatedTime", "consumerCount", "consumerList"):
                    item.pop(live, None)
    assert after == before
    assert pull(reader, "/T/g").body == b"0"
    assert pull(reader, "/T/h").body == b"1"


def test_old_messages_come_again_before_newer_ones_that_also_ended() -> None:
    """Leases that end one after another must not starve the first of them."""
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", b"1", b"2")
    for _ in range(3):
        pull(client, "/T/g")
        world.advance(100)
    world.advance(20_000)
    assert [pull(client, "/T/g").body for _ in range(3)] == [b"0", b"1", b"2"]


def test_an_ack_that_comes_after_the_lease_counts_all_the_same() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", b"1")
    pull(client, "/T/g")
    world.advance(10_000)
    assert document(client.request(http("/T/g?cmd=query")))["leasedCount"] == 0
    ok(client, ack(0))
    assert pull(client, "/T/g").body == b"1"
    assert pull(client, "/T/g", "timeout=0").status == 204
    # What was never handed out cannot be acknowledged.
    put(client, "T", b"2")
    ok(client, ack(2))
    assert pull(client, "/T/g").body == b"2"


def test_an_ack_counts_although_a_crash_made_the_broker_forget_the_lease() -> None:
    """Found by a simulation: it was confirmed, and the message came again."""
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", b"1")
    assert pull(client, "/T/g").body == b"0"
    after = World(world.journal, now_ms=world.now_ms)  # the lease was not written yet
    client = after.connect()
    ok(client, ack(0))
    assert pull(client, "/T/g").body == b"1"
    assert pull(client, "/T/g", "timeout=0").status == 204
    # A message that came after the start was not handed out before it.
    put(client, "T", b"2")
    ok(client, ack(2))
    assert pull(client, "/T/g").body == b"2"
