"""Topics of several logs: keys, turns, and naming one of them."""

import pytest

from tests.conformance.dialogue import (
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

KEYS = [f"key-{n}" for n in range(20)]


def test_a_key_stays_in_one_partition_and_in_order() -> None:
    world, client = declared("T?partitions=4")
    of_key: dict[str, set[str]] = {key: set() for key in KEYS}
    for n in range(5):
        for key in KEYS:
            reply = ok(client, http(f"/T?key={key}", body=f"{key}:{n}".encode()))
            of_key[key].add(reply.headers["partition"])
    assert all(len(partitions) == 1 for partitions in of_key.values())
    assert len(set.union(*of_key.values())) == 4, "and they are shared out"
    again = restart(world).connect()
    ok(again, http(f"/T?key={KEYS[0]}", body=f"{KEYS[0]}:5".encode()))
    bodies = [body.decode() for body in drain(again)]
    assert len(bodies) == 101
    for key in KEYS:
        numbers = [body.split(":")[1] for body in bodies if body.startswith(f"{key}:")]
        assert numbers == sorted(numbers)


def test_each_partition_counts_its_own_offsets() -> None:
    _, client = declared("T?partitions=2")
    for partition in (0, 0, 1, 0, 1):
        ok(client, http(f"/T?partition={partition}", body=b"x"))
    reply = ok(client, http("/T?partition=1"))
    assert (reply.headers["partition"], reply.headers["offset"]) == ("1", "2")
    info = document(ok(client, http("/T?cmd=query")))
    assert (info["partitionCount"], info["messageDepth"]) == (2, 6)
    assert info["consumeGroupList"][0]["messageCount"] == 6


def test_partitions_are_read_in_turn() -> None:
    _, client = declared("T?partitions=3")
    for partition in (0, 0, 0, 1, 1, 2):
        put(client, "T", b"%d" % partition, query=f"partition={partition}")
    assert b"".join(drain(client)) == b"012010"


def test_reading_one_partition() -> None:
    world, client = declared("T?partitions=2")
    reader = world.connect()
    assert reader.exchange(http("/T?cmd=consume&partition=1", "id: one")) == []
    assert reader.exchange(http("/T?cmd=consume", "id: any")) == []
    put(client, "T", b"0", query="partition=0")
    (reply,) = reader.replies()
    assert (reply.headers["id"], reply.headers["partition"]) == ("any", "0")
    put(client, "T", b"1", query="partition=1")
    (reply,) = reader.replies()
    assert (reply.headers["id"], reply.headers["partition"], reply.body) == ("one", "1", b"1")


def test_a_random_read_names_its_partition() -> None:
    _, client = declared("T?partitions=2")
    put(client, "T", b"0", query="partition=0")
    put(client, "T", b"1", query="partition=1")
    assert ok(client, http("/T?cmd=consume&offset=0&partition=1")).body == b"1"
    assert ok(client, http("/T?cmd=consume&offset=0")).body == b"0"


@pytest.mark.parametrize("command", ["ack", "remove"])
def test_an_ack_names_its_partition(command: str) -> None:
    world, client = declared("T/g?partitions=2&group_mask=64")
    for partition in (0, 1):
        put(client, "T", b"%d" % partition, query=f"partition={partition}")
        pull(client, "/T/g")
    if command == "ack":
        ok(client, cmd("ack", "topic: T", "group: g", "offset: 0", "partition: 1"))
        world.advance(10_000)
        assert drain(client, "/T/g") == [b"0"]
    else:
        ok(client, http("/T?cmd=remove"))
        ok(client, http("/T?cmd=declare"))
        assert document(ok(client, http("/T?cmd=query")))["partitionCount"] == 1


def test_the_window_is_the_groups() -> None:
    _, client = declared("T/g?partitions=2&group_mask=64&group_ack_window=2")
    for partition in (0, 1, 0, 1):
        put(client, "T", b"x", query=f"partition={partition}")
    assert len(drain(client, "/T/g")) == 2


def test_a_single_partition_is_not_mentioned() -> None:
    _, client = declared("T")
    assert "partition" not in ok(client, http("/T?partition=0")).headers
    assert "partition" not in pull(client).headers


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("partition=2", 404),
        ("partition=9223372036854775807", 404),
        ("partition=-1", 400),
        ("partition=+1", 400),
        ("partition=1.0", 400),
        ("partition=9223372036854775808", 400),
        ("partition=", 200),
    ],
)
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_illegal_partitions(command: str, query: str, status: int) -> None:
    _, client = declared("T?partitions=2")
    put(client, "T", b"x")
    assert refused(client, http(f"/T?cmd={command}&{query}"))[0] == status


class TestBatch:
    def test_it_goes_to_one_partition(self) -> None:
        _, client = declared("T?partitions=4")
        lines = ("content-type: application/x-ndjson",)
        reply = ok(client, http("/T?key=k", *lines, body=b"1\n2\n3"))
        single = ok(client, http("/T?key=k"))
        assert single.headers["partition"] == reply.headers["partition"]
        assert single.headers["offset"] == "3"

    def test_keys_of_different_partitions_are_refused(self) -> None:
        _, client = declared("T?partitions=64")
        body = b"".join(
            b"POST / HTTP/1.1\r\nkey: %b\r\n\r\n" % key.encode() for key in ("a", "b", "c")
        )
        lines = ("content-type: application/vnd.zbus.messages",)
        assert refused(client, http("/T", *lines, body=body))[0] == 400
        ok(client, http("/T?partition=5", *lines, body=body))

    def test_messages_without_a_key_go_along(self) -> None:
        _, client = declared("T?partitions=64")
        body = b"POST / HTTP/1.1\r\nkey: a\r\n\r\nPOST / HTTP/1.1\r\n\r\n"
        lines = ("content-type: application/vnd.zbus.messages",)
        for _ in range(3):
            reply = ok(client, http("/T", *lines, body=body))
        assert reply.headers["offset"] == "4"

    def test_out_it_may_come_from_several(self) -> None:
        _, client = declared("T?partitions=2")
        for partition in (0, 1, 0):
            put(client, "T", b"%d" % partition, query=f"partition={partition}")
        reply = ok(client, http("/T?cmd=consume&batch=10"))
        assert reply.headers["count"] == "3"
        assert reply.body.count(b'"partition":1') == 1


@pytest.mark.parametrize("command", ["seek", "declare"])
@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("from=1&partition=1", "3"),
        ("from=0,1", "0 2 3"),
        ("from=time:0", "0 1 2 3"),
        ("from=earliest", "0 1 2 3"),
        ("from=latest", ""),
        ("from=earliest&partition=0", "0 2"),
        ("from=time:0&partition=0", "0 2"),
    ],
)
def test_start_positions(query: str, left: str, command: str) -> None:
    _, client = declared("T?partitions=2")
    for n in range(4):
        put(client, "T", b"%d" % n, query=f"partition={n % 2}")
    drain(client)
    group = "T" if command == "seek" else "new"
    ok(client, http(f"/T/{group}?cmd={command}&{query}"))
    assert sorted(drain(client, f"/T/{group}")) == [n.encode() for n in left.split()]


class TestGrowth:
    """`alice` is in partition 1 of 2, and in 3 of 4."""

    def test_a_key_that_moves_waits_until_what_is_older_is_finished(self) -> None:
        world, client = declared("T/g?partitions=2&group_mask=64")
        ok(client, http("/T?key=alice", body=b"old"))
        assert pull(client, "/T/g").headers["partition"] == "1"
        info = document(ok(client, http("/T?cmd=declare&partitions=4")))
        assert info["partitionCount"] == 4
        assert ok(client, http("/T?key=alice", body=b"new")).headers["partition"] == "3"
        ok(client, http("/T?partition=2", body=b"another key"))
        assert drain(client, "/T/g") == [b"another key"]
        request = http("/T/g?cmd=why&partition=3&offset=0", "accept: application/json")
        why = document(ok(client, request))
        assert why["state"] == "older first"
        assert "behind unfinished messages from before the topic got more partitions" in why["text"]
        reader = world.connect()
        assert reader.exchange(http("/T/g?cmd=consume&partition=3")) == []
        world.advance(5_000)
        ok(client, http("/T/g?cmd=ack&partition=1&offset=0"))
        (reply,) = reader.replies()
        assert (reply.headers["partition"], reply.body) == ("3", b"new")

    def test_nothing_waits_if_order_does_not_matter(self) -> None:
        _, client = declared("T/g?partitions=2&group_mask=64")
        ok(client, http("/T?key=alice", body=b"old"))
        ok(client, http("/T?cmd=declare&partitions=4&partitions-order=none"))
        ok(client, http("/T?key=alice", body=b"new"))
        assert sorted(drain(client, "/T/g")) == [b"new", b"old"]

    def test_who_waits_may_be_told_later_that_order_does_not_matter(self) -> None:
        _, client = declared("T/g?group_mask=64")
        ok(client, http("/T", body=b"old"))
        ok(client, http("/T?cmd=declare&partitions=2"))
        ok(client, http("/T?partition=1", body=b"new"))
        assert drain(client, "/T/g") == [b"old"]
        ok(client, http("/T?cmd=declare&partitions-order=none"))
        assert drain(client, "/T/g") == [b"new"]

    def test_it_is_as_before_after_a_restart(self) -> None:
        world, client = declared("T/g?group_mask=64")
        ok(client, http("/T?key=alice", body=b"old"))
        ok(client, http("/T?cmd=declare&partitions=4"))
        ok(client, http("/T?key=alice", body=b"new"))
        again = restart(world).connect()
        assert document(ok(again, http("/T?cmd=query")))["partitionCount"] == 4
        assert drain(again, "/T/g") == [b"old"]
        ok(again, http("/T/g?cmd=ack&offset=0"))
        assert drain(again, "/T/g") == [b"new"]

    def test_a_topic_in_memory_and_one_of_services_grow_too(self) -> None:
        for query in ("durability=memory", "rpc=true"):
            world, client = declared(f"T?{query}")
            ok(client, http("/T?cmd=declare&partitions=3"))
            reader = world.connect()
            assert reader.exchange(http("/T?cmd=consume")) == []
            client.exchange(http("/T?partition=2", body=b"x"))
            (reply,) = reader.replies()
            assert reply.body == b"x"

    def test_a_key_is_stored_once_across_it(self) -> None:
        _, client = declared("T")
        request = http("/T?key=alice", "idempotency-key: 1", body=b"x")
        first = ok(client, request)
        ok(client, http("/T?cmd=declare&partitions=4"))
        again = ok(client, request)
        assert again.headers["duplicate"] == "1"
        assert (again.headers["partition"], again.headers["offset"]) == ("0", "0")
        assert first.headers["offset"] == "0"

    @pytest.mark.parametrize(
        ("place", "left"), [("earliest", "old new"), ("latest", "new"), ("1,0", "new")]
    )
    def test_a_group_that_is_made_along_with_it(self, place: str, left: str) -> None:
        world, client = declared("T?partitions=2")
        ok(client, http("/T?partition=0", body=b"old"))
        ok(client, http(f"/T/g?cmd=declare&partitions=3&group_ack=true&from={place}"))
        ok(client, http("/T?partition=2", body=b"new"))
        again = restart(world).connect()
        found = []
        while (reply := pull(again, "/T/g")).status == 200:
            found.append(reply.body.decode())
            at = (reply.headers[name] for name in ("partition", "offset"))
            ok(again, http("/T/g?cmd=ack&partition={}&offset={}".format(*at)))
        assert found == left.split()

    def test_declares_of_the_same_number_change_nothing(self) -> None:
        _, client = declared("T/g?partitions=2&group_mask=64")
        ok(client, http("/T?key=alice", body=b"old"))
        for _ in range(2):
            ok(client, http("/T/g?cmd=declare&partitions=4"))
        ok(client, http("/T?key=alice", body=b"new"))
        assert drain(client, "/T/g") == [b"old"]

    @pytest.mark.parametrize("topic", ["cron.T", "semq.1:2", "txn.T"])
    def test_topics_of_the_broker_keep_theirs(self, topic: str) -> None:
        _, client = declared(topic)
        text = "400: Bad Format, a topic of the broker's own keeps the number of its partitions"
        request = http(f"/{topic}?cmd=declare&partitions=2")
        assert refused(client, request) == (400, text)
