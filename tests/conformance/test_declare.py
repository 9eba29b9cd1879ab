"""Making, looking at, emptying and removing topics and groups (specification 5.5-5.8, 7)."""

import msgspec
import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
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

GROUP_KEYS = [
    "ack",
    "ackRequired",
    "ackTimeout",
    "ackWindow",
    "consumerCount",
    "consumerList",
    "createdTime",
    "deadCount",
    "delayedCount",
    "exclusive",
    "groupName",
    "lastUpdatedTime",
    "leaseMs",
    "leasedCount",
    "mask",
    "messageCount",
    "paused",
    "skippedCount",
    "temporary",
    "topicName",
    "window",
]
TOPIC_KEYS = [
    "consumeGroupList",
    "consumerCount",
    "createdTime",
    "dedupeMs",
    "durability",
    "lastUpdatedTime",
    "mask",
    "messageDepth",
    "partitionCount",
    "serverAddress",
    "serverVersion",
    "storedCount",
    "topicName",
]


def groups(client: Client, topic: str = "T") -> list[str]:
    info = document(client.request(http(f"/{topic}?cmd=query")))
    return [group["groupName"] for group in info["consumeGroupList"]]


class TestDeclare:
    def test_a_topic_gets_a_group_of_its_name(self) -> None:
        world = World()
        client = world.connect()
        reply = ok(client, cmd("declare", "topic: MyTopic", "id: d"))
        assert (reply.headers["id"], reply.headers["topic"]) == ("d", "MyTopic")
        info = document(reply)
        assert list(info) == TOPIC_KEYS
        assert (info["topicName"], info["mask"], info["messageDepth"]) == ("MyTopic", 0, 0)
        assert info["createdTime"] == EPOCH_MS
        (group,) = info["consumeGroupList"]
        assert list(group) == sorted([*GROUP_KEYS, "unclaimed"])
        assert (group["groupName"], group["topicName"]) == ("MyTopic", "MyTopic")

    def test_with_a_group_the_answer_is_the_groups(self) -> None:
        _, client = declared()
        reply = ok(client, http("/T/g?cmd=declare&group_filter=a.*&group_mask=64"))
        info = document(reply)
        assert list(info) == sorted([*GROUP_KEYS, "filter"])
        assert (info["groupName"], info["filter"], info["mask"]) == ("g", "a.*", 64)
        assert groups(client) == ["g"], "the group of the topic's name was not asked for"

    def test_it_may_be_said_again(self) -> None:
        _, client = declared()
        first = ok(client, http("/T?cmd=declare&topic_mask=64"))
        assert ok(client, http("/t?cmd=declare")).body == first.body

    def test_the_topics_own_group_comes_with_a_later_declare(self) -> None:
        _, client = declared("T/g", "T?group_mask=16")
        assert groups(client) == ["g", "T"]
        assert document(ok(client, http("/T/T?cmd=query")))["mask"] == 16

    def test_parameters_of_a_group_without_its_name_are_the_topics_own_groups(self) -> None:
        _, client = declared("T", "T?group_filter=a&group_mask=64")
        info = document(ok(client, http("/T/T?cmd=query")))
        assert (info["filter"], info["mask"]) == ("a", 64)
        put(client, "T", b"x", query="tag=a")
        assert pull(client).body == b"x"
        ok(client, http("/T?cmd=declare&paused=true"))
        assert document(ok(client, http("/T/T?cmd=query")))["paused"]

    @pytest.mark.parametrize("group", ["", "%20"])
    def test_an_empty_group_is_none(self, group: str) -> None:
        _, client = declared()
        info = document(ok(client, http(f"/T?cmd=declare&consume_group={group}")))
        assert info["topicName"] == "T"
        assert groups(client) == ["T"]

    def test_masks_are_replaced_when_given_and_kept_when_not(self) -> None:
        _, client = declared("T/g?topic_mask=64&group_mask=16", "T/g")
        info = document(ok(client, http("/T?cmd=query")))
        assert (info["mask"], info["consumeGroupList"][0]["mask"]) == (64, 16)
        ok(client, http("/T/g?cmd=declare&topic_mask=8&group_mask=32"))
        info = document(ok(client, http("/T?cmd=query")))
        assert (info["mask"], info["consumeGroupList"][0]["mask"]) == (8, 32)
        ok(client, http("/T/g?cmd=declare&topic_mask=&group_mask="))
        info = document(ok(client, http("/T?cmd=query")))
        assert info["mask"] == 8, "an empty number is none"

    @pytest.mark.parametrize(
        ("first", "second", "mask", "durability"),
        [
            ("topic_mask=0", "topic_mask=1", 0, "disk"),
            ("topic_mask=1", "topic_mask=0", 1, "memory"),
            ("topic_mask=1", "topic_mask=64", 65, "memory"),
            ("durability=memory", "topic_mask=0", 1, "memory"),
            ("durability=os", "topic_mask=65", 64, "os"),
        ],
    )
    def test_what_a_topic_is_kept_in_stays(
        self, first: str, second: str, mask: int, durability: str
    ) -> None:
        _, client = declared(f"T?{first}", f"T?{second}")
        info = document(ok(client, http("/T?cmd=query")))
        assert (info["mask"], info["durability"]) == (mask, durability)

    def test_automatic_names(self) -> None:
        _, client = declared("E1")
        ok(client, http("/E1/E1?cmd=remove"))
        names = []
        for value in ("1", "true", "TRUE", "1"):
            request = cmd(
                "declare", "topic: E1", "consume_group: ignored", f"group_name_auto: {value}"
            )
            names.append(document(ok(client, request))["groupName"])
        assert names == ["E1", "E10", "E11", "E12"]
        assert "ignored" not in groups(client, "E1")

    @pytest.mark.parametrize("value", ["0", "false", "yes"])
    def test_no_automatic_name(self, value: str) -> None:
        _, client = declared(f"T/g?group_name_auto={value}")
        assert groups(client) == ["g"]

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("durability=ram", "durability is one of memory, os, disk"),
            ("topic_mask=1&durability=disk", "a memory topic is not durable"),
            ("partitions=0", "partitions is a number from 1 to 64, not '0'"),
            ("partitions=three", "partitions is a number from 1 to 64, not 'three'"),
            ("partitions=65", "partitions must be 1 to 64"),
            ("group_filter=" + "a" * 128, "filter length should be <= 127"),
            ("group_order=id&group_mask=64", "group_order is one of none, key, priority"),
            ("group_order=&group_mask=64", "group_order is one of none, key, priority"),
            ("group_order=key", "an order needs acknowledgements"),
            ("group_order=key&topic_mask=64&group_mask=1", "an order needs acknowledgements"),
            ("group_start_offset=1", "there is no message at 1"),
            ("group_start_offset=0&group_start_msgid=x", "there is no message at 0"),
        ],
    )
    def test_a_refused_declare_leaves_nothing_behind(self, query: str, text: str) -> None:
        _, client = declared()
        assert refused(client, http(f"/T?cmd=declare&{query}")) == (
            400,
            f"400: Bad Format, {text}",
        )
        assert client.request(http("/T?cmd=query")).status == 404

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("partitions=1", "the topic has 2 partitions, and cannot have fewer"),
            ("partitions=4&partitions_order=any", "partitions_order is one of none, key"),
            ("durability=os", "the durability is fixed at creation"),
        ],
    )
    def test_what_is_fixed(self, query: str, text: str) -> None:
        _, client = declared("T?partitions=2")
        assert refused(client, http(f"/T/g?cmd=declare&{query}")) == (
            400,
            f"400: Bad Format, {text}",
        )
        assert groups(client) == ["T"]


class TestQuery:
    def test_a_topic_and_a_group(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0", b"1", b"2")
        put(client, "T", b"later", query="delay=1000")
        reader = world.connect()
        ok(reader, http("/T/g?cmd=consume"))
        assert pull(reader, "/T/g").body == b"1"
        assert pull(reader, "/T/g").body == b"2"
        assert pull(reader, "/T/g").headers["empty"] == "delayed"
        info = document(ok(client, http("/T/g?cmd=query")))
        assert info["consumerCount"] == 1
        assert info["consumerList"] == [f"/{reader.peer.address}"]
        counts = (info["messageCount"], info["leasedCount"], info["delayedCount"])
        assert counts == (0, 3, 1)
        topic = document(ok(client, http("/T?cmd=query")))
        assert (topic["messageDepth"], topic["consumerCount"]) == (4, 1)
        del info["positions"]
        assert topic["consumeGroupList"] == [info]

    @pytest.mark.parametrize(
        "request_bytes",
        [
            http("/?cmd=query"),
            http("/?cmd=server"),
            http("/T?cmd=server"),
            cmd("query"),
            cmd("server"),
        ],
    )
    def test_the_server(self, request_bytes: bytes) -> None:
        _, client = declared("B", "a")
        info = document(ok(client, request_bytes))
        assert list(info) == (
            ["infoVersion", "serverAddress", "serverVersion", "topicTable", "trackerList"]
        )
        assert info["serverAddress"] == {"address": "127.0.0.1:15555", "sslEnabled": False}
        assert list(info["topicTable"]) == ["B", "a"]
        assert info["topicTable"]["a"]["topicName"] == "a"

    def test_versions_of_the_document_only_grow(self) -> None:
        world, client = declared("T")
        replies = client.exchange(http("/?cmd=query") * 50)
        world = restart(world)
        replies += world.connect().exchange(http("/?cmd=query") * 2)
        versions = [document(reply)["infoVersion"] for reply in replies[:50]]
        assert versions == sorted(set(versions))
        assert versions[0] >= EPOCH_MS

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("/NOPE", "404: Topic(NOPE) Not Found"),
            ("/NOPE/g", "404: Topic(NOPE) Not Found"),
            ("/T/g", "404: ConsumeGroup(g) Not Found"),
        ],
    )
    @pytest.mark.parametrize("command", ["query", "remove", "empty"])
    def test_unknown(self, command: str, path: str, text: str) -> None:
        _, client = declared("T")
        assert refused(client, http(f"{path}?cmd={command}")) == (404, text)

    def test_groups_are_found_whatever_their_case(self) -> None:
        _, client = declared("T/MyGroup")
        assert document(ok(client, http("/t/mygroup?cmd=query")))["groupName"] == "MyGroup"

    def test_documents_are_json_with_sorted_keys(self) -> None:
        _, client = declared("T/g?group_filter=%E4%B8%AD")
        body = ok(client, http("/?cmd=query")).body
        assert body == msgspec.json.encode(msgspec.json.decode(body), order="sorted")


class TestRemoveAndEmpty:
    def test_remove_a_group(self) -> None:
        _, client = declared("T/g", "T/h")
        reply = ok(client, cmd("remove", "topic: T", "consume_group: G"))
        assert reply.body == b"%d" % EPOCH_MS
        assert groups(client) == ["h"]

    def test_remove_a_topic_and_make_it_again(self) -> None:
        world, client = declared("T?topic_mask=64")
        put(client, "T", b"x")
        ok(client, cmd("remove", "topic: t", "ack: 0"))
        assert client.request(http("/T?cmd=query")).status == 404
        ok(client, http("/T?cmd=declare"))
        assert drain(client) == []
        assert document(ok(client, http("/T?cmd=query")))["mask"] == 0
        assert restart(world).connect().request(http("/T?cmd=query")).status == 200

    @pytest.mark.parametrize("command", ["remove", "empty", "consume", "produce", "ack", "declare"])
    def test_no_topic(self, command: str) -> None:
        _, client = declared("T")
        assert refused(client, cmd(command, "offset: 0")) == (400, "400: Bad Format, Missing topic")

    def test_empty_a_group(self) -> None:
        _, client = declared("T/g?group_mask=64", "T/h")
        put(client, "T", b"0", b"1", b"2")
        put(client, "T", b"late", query="delay=1000")
        assert pull(client, "/T/g").body == b"0"
        assert ok(client, http("/T/g?cmd=empty")).body == b"%d" % EPOCH_MS
        info = document(ok(client, http("/T/g?cmd=query")))
        assert (info["messageCount"], info["leasedCount"], info["delayedCount"]) == (0, 0, 0)
        put(client, "T", b"new")
        assert pull(client, "/T/g").body == b"new"
        assert drain(client, "/T/h") == [b"0", b"1", b"2", b"new"]

    @pytest.mark.parametrize("mask", [0, 1, 64])
    def test_empty_a_topic(self, mask: int) -> None:
        world, client = declared(f"T/g?topic_mask={mask}", "T/h")
        put(client, "T", b"0", b"1")
        assert pull(client, "/T/g").body == b"0"
        ok(client, http("/T?cmd=empty"))
        assert drain(client, "/T/g") == drain(client, "/T/h") == []
        assert client.request(http("/T/g?cmd=consume&offset=1")).status == 404
        assert ok(client, http("/T", body=b"2")).headers["offset"] == "2", "offsets go on"
        assert drain(client, "/T/g") == drain(client, "/T/h") == [b"2"]
        if not mask & 1:
            again = restart(world).connect()
            assert ok(again, http("/T", body=b"3")).headers["offset"] == "3"
            assert again.request(http("/T/g?cmd=consume&offset=0")).status == 404

    def test_emptying_keeps_what_comes_in_the_same_moment_in_order(self) -> None:
        _, client = declared("T")
        data = cmd("produce", "topic: T", body=b"1") + cmd("empty", "topic: T")
        replies = client.exchange(data + cmd("produce", "topic: T", body=b"2"))
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert drain(client)[-1:] == [b"2"]


class TestSmallCommands:
    def test_ping_tells_the_time(self) -> None:
        _, client = declared()
        assert ok(client, cmd("ping", "id: p")).body == b"%d" % EPOCH_MS

    def test_version(self) -> None:
        _, client = declared()
        assert ok(client, http("/?cmd=version")).body == b"0"

    @pytest.mark.parametrize("lines", [(), ("id: h",), ("ack: 1",), ("topic: NOPE",)])
    def test_a_heartbeat_is_not_answered(self, lines: tuple[str, ...]) -> None:
        _, client = declared()
        assert client.exchange(cmd("heartbeat", *lines)) == []

    def test_a_heartbeat_by_url_is(self) -> None:
        _, client = declared()
        assert client.request(http("/?cmd=heartbeat")).status == 204

    def test_the_icon(self) -> None:
        _, client = declared()
        assert ok(client, http("/favicon.ico")).headers["content-type"] == "image/svg+xml"


def test_where_a_group_is_in_each_partition() -> None:
    """Told when it is asked for by itself; elsewhere it would be one of many."""
    _, client = declared("T?partitions=2", "T/g?group_ack=1")
    for query in ("partition=0", "partition=1", "partition=1"):
        put(client, "T", b"x", query=query)
    assert pull(client, "/T/g").headers["partition"] == "0"
    found = document(ok(client, http("/T/g?cmd=query")))["positions"]
    assert found == [
        {"partition": 0, "cursor": 1, "end": 1, "ready": 0, "leased": 1},
        {"partition": 1, "cursor": 0, "end": 2, "ready": 2, "leased": 0},
    ]
    for target in ("/T?cmd=query", "/?cmd=query", "/T/g?cmd=declare"):
        assert b"positions" not in ok(client, http(target)).body
