"""Groups: independence, masks, filters, start positions (specification 6.1-6.5)."""

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

TAGS = ("a.b", "a.c", "a.b.c", "x", "", "a", "stock.600256", "b.b")
TAGGED = "a.b a.c a.b.c x a stock.600256 b.b"


@pytest.mark.parametrize("mask", [0, 1, 64, 65])
def test_groups_are_independent(mask: int) -> None:
    world, client = declared(f"T/g?topic_mask={mask}", "T/h?group_filter=a")
    put(client, "T", b"0")
    put(client, "T", b"1", query="tag=a")
    assert drain(client, "/T/g") == [b"0", b"1"]
    assert drain(client, "/T/h") == [b"1"]
    world.broker.check()


@pytest.mark.parametrize(
    ("filter", "matching"),
    [
        ("a.*", "a.b a.c"),
        ("a.#", "a.b a.c a.b.c a"),
        ("#", TAGGED),
        ("*", "x a"),
        ("*.b", "a.b b.b"),
        ("a.*.c", "a.b.c"),
        ("*.*", "a.b a.c stock.600256 b.b"),
        ("*.#", TAGGED),
        ("a.#.c", "a.b a.c a.b.c a"),
        ("a.b;x", "a.b x"),
        (";a.b;;x;", "a.b x"),
        ("a.", "a"),
        (".a", ""),
        ("a..b", ""),
        ("a.+", ""),
        ("a.b,x", ""),
        ("A.B", ""),
        ("", None),
    ],
)
@pytest.mark.parametrize("topic_mask", [0, 1])
def test_the_filter_table(filter: str, matching: str | None, topic_mask: int) -> None:
    _, client = declared(f"T?topic_mask={topic_mask}")
    ok(client, cmd("declare", "topic: T", "group: g", f"group_filter: {filter}"))
    for tag in TAGS:
        ok(client, cmd("produce", "topic: T", f"tag: {tag}", body=tag.encode()))
    wanted = list(TAGS) if matching is None else matching.split()
    assert [body.decode() for body in drain(client, "/T/g")] == wanted


def test_what_does_not_match_is_skipped_for_good() -> None:
    _, client = declared("T/g?group_filter=a")
    put(client, "T", b"0", query="tag=b")
    assert drain(client, "/T/g") == []
    ok(client, http("/T/g?cmd=declare&group_filter="))
    assert drain(client, "/T/g") == []


class TestFilterAgain:
    def test_absent_leaves_it(self) -> None:
        _, client = declared("T/g?group_filter=a", "T/g?group_mask=64")
        assert document(ok(client, http("/T/g?cmd=query")))["filter"] == "a"

    def test_empty_clears_it(self) -> None:
        _, client = declared("T/g?group_filter=a", "T/g?group_filter=")
        assert "filter" not in document(ok(client, http("/T/g?cmd=query")))
        put(client, "T", b"0")
        assert drain(client, "/T/g") == [b"0"]

    def test_another_replaces_it(self) -> None:
        _, client = declared("T/g?group_filter=a", "T/g?group_filter=b")
        put(client, "T", b"0", query="tag=a")
        put(client, "T", b"1", query="tag=b")
        assert drain(client, "/T/g") == [b"1"]

    def test_the_longest(self) -> None:
        _, client = declared("T/g?group_filter=" + "a" * 127)
        status, text = refused(client, http("/T/g?cmd=declare&group_filter=" + "b" * 128))
        assert (status, text) == (400, "400: Bad Format, filter length should be <= 127")
        assert document(ok(client, http("/T/g?cmd=query")))["filter"] == "a" * 127


class TestStart:
    """Messages 0 to 4; group g has read two of them."""

    @pytest.fixture
    def client(self) -> Client:
        world = World()
        client = world.connect()
        ok(client, http("/T/g?cmd=declare"))
        for n in range(5):
            ok(client, http("/T", f"id: m-{n}", body=b"%d" % n))
            world.advance(10)
        assert [pull(client, "/T/g").body for _ in range(2)] == [b"0", b"1"]
        return client

    @pytest.mark.parametrize(
        ("query", "first"),
        [
            ("", 2),
            ("group_start_copy=g", 2),
            ("group_start_copy=G", 2),
            ("group_start_copy=unknown", 2),
            ("group_start_offset=0", 0),
            ("group_start_offset=3", 3),
            ("group_start_offset=3&group_start_msgid=m-3", 3),
            ("group_start_offset=5", 5),
            ("group_start_offset=3&group_start_time=0", 3),
            ("group_start_copy=g&group_start_offset=4", 4),
            ("group_start_time=0", 0),
            ("group_start_time=1800000000000", 0),
            ("group_start_time=1800000000001", 1),
            ("group_start_time=1800000000010", 1),
            ("group_start_time=1800000000040", 4),
            ("group_start_time=1800000000041", 5),
            ("group_start_time=9223372036854775807", 5),
            ("from=earliest", 0),
            ("from=latest", 5),
            ("from=0", 0),
            ("from=3", 3),
            ("from=5", 5),
            ("from=time:0", 0),
            ("from=time:1800000000001", 1),
            ("from=time:9223372036854775807", 5),
            ("from=2027-01-15T08:00:00.010Z", 1),
            ("from=2027-01-15T08:00:00.010", 1),
            ("from=2027-01-15 08:00:00.040", 4),
            ("from=2027-01-15T09:00:00.040%2B01:00", 4),
            ("from=2027-01-15", 0),
            ("from=1969-12-31", 0),
            ("from=9999-12-31T23:59:59.999999Z", 5),
            ("from=", 2),
            ("from=4&group_start_copy=g", 4),
        ],
    )
    @pytest.mark.parametrize("exists", [False, True])
    def test_positions(self, client: Client, query: str, first: int, exists: bool) -> None:
        query = query.replace(" ", "%20")
        if exists:  # then it stays where it is
            ok(client, http("/T/h?cmd=declare"))
            pull(client, "/T/h")
            first = 3
        ok(client, http(f"/T/h?cmd=declare&{query}"))
        assert drain(client, "/T/h") == [b"%d" % n for n in range(first, 5)]
        assert drain(client, "/T/g") == [b"2", b"3", b"4"], "the others stay where they are"

    @pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
    def test_time_by_the_clock_outside(self, client: Client, ahead_ms: int) -> None:
        client.world.ahead_ms = ahead_ms
        time_ms = 1_800_000_000_010 - ahead_ms
        ok(client, http(f"/T/h?cmd=declare&group_start_time={time_ms}"))
        assert drain(client, "/T/h") == [b"1", b"2", b"3", b"4"]

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("group_start_offset=6", "no message at 6"),
            ("group_start_offset=9223372036854775807", "no message at 9"),
            ("group_start_offset=3&group_start_msgid=m-4", "at offset 3 has another id"),
            ("group_start_offset=5&group_start_msgid=m-4", "no message at 5"),
            ("group_start_offset=0&group_start_msgid=x", "at offset 0 has another id"),
            ("group_start_offset=1&partition=1", "there is no partition 1"),
            ("from=6", "no message at 6"),
            ("from=1,2", "2 offsets were given, but the topic has 1 partitions"),
            ("from=latest&partition=1", "there is no partition 1"),
            ("from=begin", "from is earliest, latest, an offset"),
            ("from=0&group_start_offset=0", "are one: give one of them"),
            ("from=0&group_start_time=0", "are one: give one of them"),
        ],
    )
    def test_failures_change_nothing(self, client: Client, query: str, text: str) -> None:
        before = client.request(http("/T?cmd=query")).body
        request = http(f"/T/h?cmd=declare&group_mask=64&group_filter=x&{query}")
        status, told = refused(client, request)
        assert status == 400
        assert told.startswith("400: Bad Format, ")
        assert text in told
        assert client.request(http("/T?cmd=query")).body == before

    @pytest.mark.parametrize("query", ["from=6", "group_start_offset=6", "from=1&partition=1"])
    def test_no_place_is_looked_for_where_none_is_needed(self, client: Client, query: str) -> None:
        info = document(ok(client, http(f"/T/g?cmd=declare&{query}")))
        assert info["messageCount"] == 3

    def test_leases_outlive_a_declare(self, client: Client) -> None:
        target = "/T/h?cmd=declare&ack=true&from=earliest"
        ok(client, http(target))
        assert pull(client, "/T/h").body == b"0"
        again = document(ok(client, http(target)))
        assert (again["leasedCount"], again["messageCount"]) == (1, 4)

    def test_the_first_group_begins_at_the_beginning(self, client: Client) -> None:
        ok(client, http("/T/g?cmd=remove"))
        ok(client, http("/T/h?cmd=declare"))
        assert drain(client, "/T/h") == [b"0", b"1", b"2", b"3", b"4"]

    def test_the_most_advanced_group_is_the_model(self, client: Client) -> None:
        ok(client, http("/T/h?cmd=declare&group_start_offset=4"))
        ok(client, http("/T/i?cmd=declare"))
        assert drain(client, "/T/i") == [b"4"]

    def test_a_copy_has_all_that_its_model_has_not_finished(self, client: Client) -> None:
        ok(client, http("/T/h?cmd=declare&group_mask=64&group_start_offset=0"))
        assert [pull(client, "/T/h").body for _ in range(3)] == [b"0", b"1", b"2"]
        ok(client, http("/T/h?cmd=ack&consume_group=h&offset=1"))
        ok(client, http("/T/i?cmd=declare&group_start_copy=h"))
        assert drain(client, "/T/i") == [b"0", b"2", b"3", b"4"]
        ok(client, http("/T/j?cmd=declare&group_start_copy=unknown"))
        assert drain(client, "/T/j") == [], "an unknown name is as good as none"

    def test_the_originals_own_form_moves_a_group(self, client: Client) -> None:
        """In a head with `cmd`, and with the id that the message must have."""
        where = ("topic: T", "group: g", "group_start_offset: 1")
        info = document(ok(client, cmd("declare", *where)))
        assert info["messageCount"] == 3
        info = document(ok(client, cmd("declare", *where, "group_start_msgid: m-1")))
        assert info["messageCount"] == 4
        status, text = refused(client, cmd("declare", *where, "group_start_msgid: m-2"))
        assert (status, text[:16]) == (400, "400: Bad Format,")
        assert [pull(client, "/T/g").body for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    def test_going_back_wakes_a_waiting_pull(self, client: Client) -> None:
        drain(client, "/T/g")
        assert client.exchange(cmd("consume", "topic: T", "group: g", "id: p")) == []
        more = ("group_start_offset: 4", "group_start_msgid: m-4")
        replies = client.exchange(cmd("declare", "topic: T", "group: g", *more))
        assert sorted(reply.body for reply in replies)[0] == b"4"


class TestExclusive:
    @pytest.mark.parametrize("query", ["group_mask=16", "topic_mask=16", "topic_mask=17"])
    def test_one_session_at_a_time(self, query: str) -> None:
        world, _ = declared(f"T/g1?{query}")
        holder, other = world.connect(), world.connect()
        consume = cmd("consume", "topic: T", "group: g1", "id: p")
        assert holder.exchange(consume) == []
        reply = other.request(consume)
        assert (reply.status, reply.body) == (401, b"ConsumeGroup(g1) exclusive, forbbiden")
        assert "content-type" not in reply.headers
        assert holder.exchange(consume) == [], "the holder goes on"

    @pytest.mark.parametrize("leaving", ["vanish", "unconsume"])
    def test_the_lock_goes_with_its_holder(self, leaving: str) -> None:
        world, _ = declared("T/g?group_mask=16", "U/h?group_mask=16")
        holder, other = world.connect(), world.connect()
        for topic, group in (("T", "g"), ("U", "h")):
            holder.exchange(cmd("consume", f"topic: {topic}", f"group: {group}"))
        if leaving == "vanish":
            holder.vanish()
        else:
            holder.exchange(cmd("unconsume", "topic: T", "group: g"))
        assert other.exchange(cmd("consume", "topic: T", "group: g", "timeout: 1")) == []
        world.advance(1)
        assert [reply.status for reply in other.replies()] == [204]
        world.broker.check()

    def test_the_groups_mask_goes_before_the_topics(self) -> None:
        world, _ = declared("T/g?topic_mask=16&group_mask=64")
        for _ in range(2):
            assert world.connect().exchange(cmd("consume", "topic: T", "group: g")) == []


class TestDeleteOnExit:
    @pytest.mark.parametrize("leaving", ["vanish", "unconsume"])
    @pytest.mark.parametrize("query", ["group_mask=32", "group_mask=48", "topic_mask=32"])
    def test_it_goes_with_its_last_reader(self, query: str, leaving: str) -> None:
        world, client = declared(f"T/g?{query}")
        reader = world.connect()
        reader.exchange(cmd("consume", "topic: T", "group: g"))
        if leaving == "vanish":
            reader.vanish()
        else:
            reader.exchange(cmd("unconsume", "topic: T", "group: g"))
        world.settle()
        assert client.request(http("/T/g?cmd=query")).status == 404
        assert client.request(http("/T?cmd=query")).status == 200

    def test_it_stays_while_somebody_reads(self) -> None:
        world, client = declared("T/g?group_mask=32")
        readers = [world.connect() for _ in range(2)]
        for reader in readers:
            reader.exchange(cmd("consume", "topic: T", "group: g"))
        readers[0].vanish()
        world.settle()
        assert client.request(http("/T/g?cmd=query")).status == 200

    def test_a_group_that_nobody_has_read_yet_stays(self) -> None:
        world, client = declared("T/g?group_mask=32")
        world.advance(3_600_000)
        assert client.request(http("/T/g?cmd=query")).status == 200


class TestPause:
    @pytest.mark.parametrize("of", ["group_mask", "topic_mask"])
    def test_messages_wait_until_it_is_lifted(self, of: str) -> None:
        world, client = declared(f"T/g?{of}=8")
        put(client, "T", b"0")
        reader = world.connect()
        assert reader.exchange(cmd("consume", "topic: T", "group: g")) == []
        ok(client, http(f"/T/g?cmd=declare&{of}=0"))
        assert [reply.body for reply in reader.replies()] == [b"0"]


class TestInheritance:
    @pytest.mark.parametrize(
        ("topic_mask", "group_mask", "leases"),
        [
            ("64", "0", True),
            ("64", "64", True),
            ("0", "64", True),
            ("0", "0", False),
            ("64", "16", False),
            ("65", "0", True),
            ("66", "0", False),
        ],
    )
    def test_who_decides_about_acks(self, topic_mask: str, group_mask: str, leases: bool) -> None:
        _, client = declared(f"T/g?topic_mask={topic_mask}&group_mask={group_mask}")
        ok(client, cmd("produce", "topic: T", "id: x", body=b"x")) if topic_mask != "66" else (
            client.exchange(cmd("produce", "topic: T", "ack: 0", body=b"x"))
        )
        assert pull(client, "/T/g").body == b"x"
        info = document(ok(client, http("/T/g?cmd=query")))
        assert (info["mask"], info["leasedCount"]) == (int(group_mask), int(leases))

    def test_a_changed_topic_changes_its_groups(self) -> None:
        _, client = declared("T/g", "T/g?topic_mask=64")
        put(client, "T", b"x")
        pull(client, "/T/g")
        assert document(ok(client, http("/T/g?cmd=query")))["leasedCount"] == 1


@pytest.mark.parametrize("mask", [2, 3, 4, 5])
def test_topics_of_services_are_one_queue(mask: int) -> None:
    world, client = declared(f"T/g?topic_mask={mask}")
    info = document(ok(client, http("/T/h?cmd=declare")))
    assert info["groupName"] == "g"
    for n in range(2):
        client.exchange(cmd("produce", "topic: T", "ack: 0", body=b"%d" % n))
    assert pull(client, "/T/h").body == b"0"
    assert pull(client, "/T/anything").body == b"1"
    assert pull(client, "/T/g").status == 204
    world.broker.check()


def test_a_temporary_group_outlives_a_restart_only_if_its_readers_come_back() -> None:
    world, client = declared("T")
    for name in ("left", "kept"):
        ok(client, http(f"/T/{name}?cmd=declare&group_mask=32"))
    put(client, "T", b"x")
    again = restart(world)
    reader = again.connect()
    assert pull(reader, "/T/kept").body == b"x"
    again.advance(10_000)
    assert refused(reader, http("/T/left?cmd=query"))[0] == 404
    ok(reader, http("/T/kept?cmd=query"))
