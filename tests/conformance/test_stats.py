"""`stats`, `connections`, `disconnect`: how a broker does, and who is connected."""

from __future__ import annotations

import json
import random
import re
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
    pull,
    put,
)
from tests.conformance.test_access_matrix import digest
from tests.conformance.test_events import events, stream
from zbus.core.model.limits import Limits
from zbus.edge.access import Access, Entry, make_grant


def stats(client: Client, query: str = "", *lines: str) -> Any:
    return document(ok(client, http(f"/_stats{query}", *lines)))


def seconds(world: World, count: int = 1) -> None:
    for _ in range(count):
        world.advance(1_000)
        world.dialect.upkeep()
        world.settle()


def told(client: Client) -> list[tuple[str, Any]]:
    return [(event["event"], json.loads(event["data"])) for event in events(client)]


def warned(client: Client) -> list[str]:
    return [warning["text"] for warning in stats(client)["warnings"]]


def test_the_document() -> None:
    _, client = declared("T?partitions=2", "T/g?group_mask=64", "Empty")
    put(client, "T", *[b"%d" % number for number in range(7)], query="partition=1")
    put(client, "T", b"later", query="delay=60000")
    for _ in range(8):
        pull(client, "T/g")
    put(client, "T", b"8", b"9")
    found = stats(client)
    assert found["topics"]["T"]["groups"]["g"] == {
        "consumers": 1,
        "dead": 0,
        "delayed": 1,
        "leased": 7,
        "outCount": 7,
        "paused": False,
        "ready": 2,
        "skipped": 0,
    }
    assert found["topics"]["T"]["inCount"] == found["topics"]["T"]["depth"] == 10
    assert found["topics"]["T"]["partitionCount"] == 2
    assert (found["topicCount"], found["inCount"], found["warnings"]) == (2, 10, [])
    assert (found["connectionCount"], found["draining"]) == (1, False)
    assert "topics" not in stats(client, "?topics=false")
    assert document(ok(client, http("/?cmd=stats"))) == stats(client)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?interval=999", 400),
        ("?interval=60001", 400),
        ("?interval=x", 400),
        ("?interval=0", 400),
        ("?topics=perhaps", 400),
        ("?cmd=connections&count=0", 400),
        ("?cmd=connections&count=1001", 400),
        ("?cmd=disconnect", 400),
        ("?cmd=disconnect&session=nobody", 404),
        ("?cmd=disconnect&session=%ff%00", 404),
    ],
)
def test_bad_requests(query: str, status: int) -> None:
    _, client = declared("T")
    path = "/" if "cmd=" in query else "/_stats"
    assert client.request(http(path + query, "accept: text/event-stream")).status == status


def test_a_stream_tells_what_has_changed() -> None:
    world, client = declared("A", "B")
    reader = stream(world, "/_stats")
    [(kind, all)] = told(reader)
    assert (kind, sorted(all["topics"])) == ("stats", ["A", "B"])
    seconds(world)
    assert [(kind, found["topics"]) for kind, found in told(reader)] == [("delta", {})]
    put(client, "A", b"1")
    ok(client, http("/B?cmd=remove"))
    ok(client, http("/C?cmd=declare"))
    seconds(world)
    [(_, found)] = told(reader)
    assert found["topics"]["B"] is None
    assert (found["topics"]["A"]["inCount"], found["topics"]["C"]["inCount"]) == (1, 0)
    assert found["topicCount"] == 2
    # Who comes again is told all again.
    [(kind, again)] = told(stream(world, "/_stats"))
    assert (kind, sorted(again["topics"])) == ("stats", ["A", "C"])


def test_a_stream_at_its_own_pace_and_without_topics() -> None:
    world, client = declared("A")
    reader = stream(world, "/_stats?interval=5000&topics=false")
    put(client, "A", b"1")
    seconds(world, 11)
    found = told(reader)
    assert [kind for kind, _ in found] == ["stats", "delta", "delta"]
    assert not any("topics" in one for _, one in found)
    assert [one["inCount"] for _, one in found] == [0, 1, 1]


def test_a_slow_reader_is_told_the_latest_state() -> None:
    world, client = declared("A")
    reader = stream(world, "/_stats")
    told(reader)
    reader.takes = False
    seconds(world)  # this one it has not taken
    for number in range(5):
        put(client, "A", b"%d" % number)
        seconds(world)
    assert told(reader) == []
    reader.takes = True
    world.settle()
    assert len(told(reader)) == 1
    seconds(world)
    [(_, found)] = told(reader)
    assert found["topics"]["A"]["inCount"] == 5


def test_a_stream_needs_a_connection_for_itself() -> None:
    world, client = declared("A")
    client.send(cmd("consume", "topic: A", "id: 1"))
    world.settle()
    client.send(http("/_stats", "accept: text/event-stream"))
    world.settle()
    assert client.replies()[0].status == 400
    head = client.world.connect()
    head.send(b"HEAD /_stats HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
    world.settle()
    assert b"text/event-stream" in head.received


def test_many_topics_are_looked_at_in_turn() -> None:
    world = World(limits=Limits(topics_max=10_000))
    client = world.connect()
    for number in range(5_000):
        client.send(cmd("declare", f"topic: T{number}", f"id: {number}"))
    world.settle()
    client.replies()
    assert len(stats(client)["topics"]) == 5_000
    reader = stream(world, "/_stats")
    [(_, all)] = told(reader)
    assert len(all["topics"]) == 5_000
    put(client, "T4999", b"1")
    put(client, "T0", b"1")
    seconds(world, 4)
    changed = {name for _, found in told(reader) for name in found["topics"]}
    assert changed == {"T4999", "T0"}


def test_figures_equal_a_recount() -> None:
    """After anything that happens, what a reader of the stream knows is what a query finds."""
    chance = random.Random(1)
    world, client = declared(*[f"T{number}/g?group_mask=64" for number in range(4)])
    reader = stream(world, "/_stats")
    known: dict[str, Any] = {}
    for _ in range(60):
        topic = f"T{chance.randrange(4)}"
        act = chance.choice(("put", "put", "pull", "empty", "remove", "pause"))
        client.request(http(f"/{topic}?cmd=declare"))
        client.request(http(f"/{topic}/g?cmd=declare&group_mask=64"))
        if act == "put":
            put(client, topic, *[b"x"] * chance.randrange(1, 5))
        elif act == "pull":
            client.request(http(f"/{topic}/g?cmd=consume&timeout=0"))
        else:
            client.request(http(f"/{topic}{'/g' if act == 'pause' else ''}?cmd={act}"))
        if chance.random() < 0.5:
            seconds(world)
        for _, found in told(reader):
            known.update(found["topics"])
    seconds(world)
    for _, found in told(reader):
        known.update(found["topics"])
    server = document(ok(client, http("/?cmd=server")))["topicTable"]
    assert {name for name, row in known.items() if row is not None} == set(server)
    for name, topic in server.items():
        row = known[name]
        assert row["inCount"] == topic["messageDepth"]
        for group in topic["consumeGroupList"]:
            mine = row["groups"][group["groupName"]]
            assert mine["ready"] == group["messageCount"]
            assert mine["leased"] == group["leasedCount"]
            assert mine["paused"] == group["paused"]
            assert mine["outCount"] == row["inCount"] - mine["ready"] - mine["delayed"]
    assert stats(client)["topics"] == {n: row for n, row in known.items() if row is not None}


def test_warnings_in_words() -> None:
    world, client = declared(
        "Orders", "Orders/billing?group_mask=64&group_ack_window=2", "Orders/audit"
    )
    put(client, "Orders", *[b"x"] * 1_200)
    assert warned(client) == []
    seconds(world, 59)
    assert warned(client) == []
    seconds(world, 65)
    assert warned(client) == [
        "Group billing of topic Orders has no consumer and has not read for 2 minutes; "
        "1,200 messages wait.",
        "Group audit of topic Orders has no consumer and has not read for 2 minutes; "
        "1,200 messages wait.",
    ]
    for _ in range(2):
        pull(client, "Orders/billing")
    ok(client, http("/Orders/audit?cmd=pause"))
    seconds(world, 3_700)
    texts = warned(client)
    assert "Group audit of topic Orders is paused; 1,200 messages wait." in texts
    counted = re.findall(rb"^zbus_warnings\{.*\} (\d+)$", ok(client, http("/_metrics")).body, re.M)
    assert sum(map(int, counted)) == len(texts)
    found = stats(client)["topics"]["Orders"]["groups"]
    assert found["billing"]["lastReadTime"] <= world.broker.now_ms - 3_600_000 + 60_000
    assert "lastReadTime" not in found["audit"]


def test_many_warnings_of_a_kind_are_counted_and_do_not_hide_others() -> None:
    """A hundred are listed, with the two of a paused topic, which weigh the least."""
    world, client = declared("Held/a", "Held/b", *[f"T{n}/g?group_ack=1" for n in range(130)])
    put(client, "Held", b"x")
    for number in range(130):
        put(client, f"T{number}", b"1", b"2")
    for group in "ab":
        ok(client, http(f"/Held/{group}?cmd=pause"))
    for _ in range(65):
        seconds(world)
    found = stats(client)
    assert found["warningCount"] == 132
    assert found["warningKinds"] == {
        "paused": {"count": 2, "topics": 1},
        "unread": {"count": 130, "topics": 130},
    }
    kinds = [warning["kind"] for warning in found["warnings"]]
    assert kinds == ["unread"] * 98 + ["paused"] * 2
    text = ok(client, http("/_metrics")).body.decode()
    assert 'zbus_warnings{kind="paused"} 2\n' in text
    assert 'zbus_warnings{kind="unread"} 130\n' in text


def test_a_full_window_and_the_dead_are_worth_a_word() -> None:
    world, client = declared("T", "T/g?group_mask=64&group_ack_window=1&group_lease=3600000")
    put(client, "T", b"1", b"2")
    pull(client, "T/g")
    seconds(world, 125)
    assert warned(client) == [
        "Group g of topic T has 1 message leased, as many as its window allows, and has not "
        "acknowledged any for 2 minutes; 1 message waits."
    ]


def dies(client: Client, group: str, body: bytes) -> None:
    put(client, "T", body)
    offset = pull(client, group).headers["offset"]
    ok(client, http(f"/{group}?cmd=nack&offset={offset}"))


def test_dead_messages_are_worth_a_word_until_their_letters_are_dealt_with() -> None:
    dying = "group_mask=64&group_max_attempts=1&group_dead_letter=Dead"
    _, client = declared("Dead", "T", f"T/a?{dying}", f"T/b?{dying}")
    dies(client, "T/a", b"1")
    dies(client, "T/a", b"2")
    said = "Group a of topic T has dead-lettered 2 messages after too many attempts; "
    assert warned(client) == [said + "2 messages wait in Dead."]
    ok(client, http("/Dead?cmd=redrive&offset=0"))
    assert warned(client) == [said + "1 message waits in Dead."]
    pull(client, "Dead")  # whoever takes it deals with it
    assert warned(client) == []
    assert stats(client)["topics"]["T"]["groups"]["a"]["dead"] == 2
    ok(client, http("/Dead/audit?cmd=declare&from=earliest"))  # and so should this one
    assert warned(client) == [said + "2 messages wait in Dead."]


def test_a_dead_letter_topic_that_is_missing_is_worth_a_word() -> None:
    dying = "group_mask=64&group_max_attempts=1&group_dead_letter=Dead"
    world, client = declared("Dead", f"T/a?{dying}")
    said = (
        "Group a of topic T puts what it gives up into Dead, which is missing or takes no"
        " messages: it stays leased."
    )
    ok(client, http("/Dead?cmd=remove"))
    assert warned(client) == [said], "before anything has died"
    dies(client, "T/a", b"1")
    assert warned(client) == [said]
    ok(client, http("/Dead?cmd=declare&rpc=true"))
    assert warned(client) == [said]
    ok(client, http("/Dead?cmd=remove"))
    assert warned(client) == [said]
    ok(client, http("/Dead?cmd=declare"))
    seconds(world, 2)
    assert warned(client) == [
        "Group a of topic T has dead-lettered 1 message after too many attempts; "
        "1 message waits in Dead."
    ]


def test_dead_messages_that_are_dropped_are_worth_a_word_for_an_hour() -> None:
    world, client = declared("T", "T/g?group_mask=64&group_max_attempts=1")
    dies(client, "T/g", b"1")
    said = "Group g of topic T has dead-lettered 1 message after too many attempts."
    seconds(world)
    assert warned(client) == [said]
    seconds(world, 3_500)
    assert warned(client) == [said]
    seconds(world, 150)
    assert warned(client) == []
    dies(client, "T/g", b"2")
    assert warned(client) == [said.replace("1 message", "2 messages")]


def test_tokens_see_their_part() -> None:
    grants = {
        "all": make_grant("all", ["server", "disconnect"], {"*": []}),
        "some": make_grant("some", ["server", "disconnect", "move"], {"Orders": ["billing"]}),
        "none": make_grant("none", ["consume"], {"*": []}),
        "admin": make_grant("admin", ["admin"], {}),
    }
    world = World(access=Access([Entry(g, (digest(name),)) for name, g in grants.items()]))
    client = world.connect()
    for path in ("Orders", "Orders/billing", "Orders/audit", "Other"):
        ok(client, http(f"/{path}?cmd=declare", "token: admin"))
    for each in ("all", "admin"):
        found = stats(client, "", f"token: {each}")
        assert (sorted(found["topics"]), found["connectionCount"]) == (["Orders", "Other"], 1)
        [row] = document(ok(client, http("/_connections", f"token: {each}")))
        assert row["user"] == each
    found = stats(client, "", "token: some")
    assert list(found["topics"]["Orders"]["groups"]) == ["billing"]
    assert (list(found["topics"]), "connectionCount" in found) == (["Orders"], False)
    move = "/?cmd=move&shard=0&to=a"
    for target in ("/_connections", "/?cmd=disconnect&session=x", "/_cluster", move):
        assert client.request(http(target, "token: some")).status == 403
        assert client.request(http(target, "token: none")).status == 403
    assert client.request(http("/_stats", "token: none")).status == 403
    assert client.request(http("/_cluster", "token: all")).status == 404  # it is no node
    assert client.request(http(move, "token: all")).status == 403  # it may not
    assert client.request(http(move, "token: admin")).status == 404


@pytest.mark.parametrize("left", [None, ["Orders"]])
def test_a_stream_ends_with_its_right(left: list[str] | None) -> None:
    """Or when it is another one: who comes again is told what may be seen now."""
    grant = make_grant("one", ["server"], {"*": []})
    access = Access([Entry(grant, (digest("one"),))])
    world = World(access=access)
    reader = stream(world, "/_stats", "token: one")
    seconds(world)
    assert len(told(reader)) == 2
    fewer = [] if left is None else [make_grant("one", ["server"], {name: [] for name in left})]
    access.update([Entry(grant, (digest("one"),)) for grant in fewer])
    seconds(world)
    assert reader.closed


def test_who_is_connected() -> None:
    world, client = declared("T", "T/g")
    other = world.connect()
    other.send(cmd("consume", "topic: T", "consume_group: g", "id: 1", "timeout: 60000"))
    watcher = stream(world, "/T?cmd=consume")
    rows = document(ok(client, http("/_connections")))
    assert [row["kind"] for row in sorted(rows, key=lambda row: row["kind"])] == [
        "events",
        "http",
        "http",
    ]
    [waiting] = [row for row in rows if row["reads"]]
    assert waiting["reads"] == [{"topic": "T", "group": "g"}]
    assert (waiting["waitingRequests"], waiting["stalled"]) == (1, False)
    assert watcher.peer.id.decode() in {row["id"] for row in rows}
    pages, after = [], ""
    while True:
        reply = ok(client, http(f"/_connections?count=1&after={after}"))
        pages += document(reply)
        if not (after := reply.headers.get("next", "")):
            break
    assert [row["id"] for row in pages] == sorted(row["id"] for row in rows)
