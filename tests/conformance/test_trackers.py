"""Trackers (specification, sections 5.10, 5.11, 7 and 15.2): who is told of what, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    Client,
    Reply,
    World,
    cmd,
    declared,
    document,
    http,
    ok,
    put,
    refused,
    restart,
)
from tests.conformance.test_access import (
    ADMIN,
    ADMIN_ENTRY,
    entry,
    pass_time,
    replace_table,
    world_with,
)
from tests.conformance.websocket_client import connected, read_json
from zbus.dialects.zbus.documents import servers
from zbus.dialects.zbus.documents import trackers as track
from zbus.dialects.zbus.documents.servers import SERVERS_MAX
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits

OWN = "127.0.0.1:15555"


def event(address: str = "other:1", **more: Any) -> bytes:
    info = {
        "infoVersion": 1,
        "serverAddress": {"address": address, "sslEnabled": False},
        "serverVersion": "0.11.4",
        "topicTable": {},
        "trackerList": [],
    }
    return msgspec.json.encode({"serverInfo": info | more.pop("info", {}), **more})


def report(client: Client, body: bytes, *lines: str) -> Reply:
    return client.request(cmd("track_pub", *lines, body=body))


def pushes(client: Client) -> list[Any]:
    """The documents that came, each in the form of a push."""
    found = client.replies()
    for reply in found:
        assert reply.status == 200
        assert reply.headers["cmd"] == "track_pub"
        assert reply.headers["content-type"] == "application/json"
        assert "id" not in reply.headers
    return [document(reply) for reply in found]


def follow(world: World) -> Client:
    """A client that has its first document, and time enough for the next."""
    client = world.connect()
    client.send(cmd("track_sub", "id: mine"))
    world.settle()
    assert len(pushes(client)) == 1
    world.advance(1_000)
    return client


def told(world: World, follower: Client) -> Any:
    """The one document that came of a change."""
    world.settle()
    found = pushes(follower)
    assert len(found) == 1, found
    world.advance(1_000)
    assert not follower.replies()
    return found[0]


# -- documents -------------------------------------------------------------------------------


def test_tracker_document() -> None:
    _, client = declared("T")
    reply = ok(client, cmd("tracker", "id: 7"))
    assert reply.headers["id"] == "7"
    info = document(reply)
    assert list(info) == ["infoVersion", "serverAddress", "serverTable", "serverVersion"]
    assert info["serverAddress"] == {"address": OWN, "sslEnabled": False}
    server = info["serverTable"][OWN]
    assert list(info["serverTable"]) == [OWN]
    assert list(server["topicTable"]) == ["T"]
    assert server == document(ok(client, cmd("server"))) | {"infoVersion": info["infoVersion"]}


def test_tls_shows_in_address_and_key() -> None:
    world = World(settings=ZbusSettings(address="broker:443", tls=True))
    info = document(ok(world.connect(), cmd("tracker")))
    assert info["serverAddress"] == {"address": "broker:443", "sslEnabled": True}
    assert list(info["serverTable"]) == ["[SSL]broker:443"]


def test_its_trackers_are_in_the_server_document() -> None:
    world = World(settings=ZbusSettings(tracker_list="a:1,b:2"))
    info = document(ok(world.connect(), cmd("server")))
    assert [tracker["address"] for tracker in info["trackerList"]] == ["a:1", "b:2"]


def test_versions_grow_with_every_document_and_over_restarts() -> None:
    world, client = declared("T")
    requests = [cmd("tracker"), cmd("server"), cmd("query"), *[cmd("tracker")] * 100]
    versions = [document(ok(client, request))["infoVersion"] for request in requests]
    world.advance(1)
    put(client, "T", b"0")
    world.now_ms -= 86_400_000  # somebody sets the clock back, and restarts the broker
    again = restart(world)
    versions.append(document(ok(again.connect(), cmd("tracker")))["infoVersion"])
    assert versions == sorted(set(versions))
    assert versions[0] == EPOCH_MS * 1_000
    assert versions[-1] < 1 << 53, "JavaScript has no larger whole numbers"


# -- following -------------------------------------------------------------------------------


def test_the_answer_to_track_sub_is_a_push() -> None:
    world, _ = declared("T")
    client = world.connect()
    client.send(cmd("track_sub", "id: mine"))
    world.settle()
    (info,) = pushes(client)
    assert list(info["serverTable"][OWN]["topicTable"]) == ["T"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        cmd("declare", "topic: U"),
        cmd("declare", "topic: T", "consume_group: h"),
        cmd("declare", "topic: T", "topic_mask: 16"),
        cmd("remove", "topic: T"),
        cmd("remove", "topic: T", "consume_group: g"),
        cmd("consume", "topic: T"),
        cmd("consume", "topic: T", "consume_group: g", "offset: 0"),
        http("/T?cmd=consume&timeout=0"),
        cmd("track_pub", body=event()),
    ],
)
def test_a_change_is_pushed(request_bytes: bytes) -> None:
    world, client = declared("T", "T/g")
    put(client, "T", b"0")
    follower = follow(world)
    before = document(ok(client, cmd("tracker")))
    client.exchange(request_bytes)
    after = told(world, follower)
    assert after["infoVersion"] > before["infoVersion"]
    table = after["serverTable"][OWN]
    assert after != before
    assert table["infoVersion"] == after["infoVersion"]
    assert table["topicTable"] == document(ok(client, cmd("server")))["topicTable"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        cmd("produce", "topic: T", body=b"x"),
        cmd("query", "topic: T"),
        cmd("tracker"),
        cmd("ack", "topic: T", "offset: 0"),
        cmd("heartbeat"),
        cmd("declare", "topic: T", "topic_mask: abc"),
        cmd("remove", "topic: unknown"),
        cmd("unconsume", "topic: T"),
        cmd("track_pub", body=event(OWN)),
        cmd("track_pub", body=event("unknown:1", live=False)),
        cmd("track_pub", body=b"{"),
    ],
)
def test_what_changes_nothing_is_not_pushed(request_bytes: bytes) -> None:
    world, client = declared("T")
    follower = follow(world)
    client.exchange(request_bytes)
    world.advance(1_000)
    assert not follower.replies()


def test_readers_coming_and_going_are_pushed_once_each() -> None:
    world, _ = declared("T", "T/g")
    follower = follow(world)

    def counts() -> list[int]:
        topic = told(world, follower)["serverTable"][OWN]["topicTable"]["T"]
        return [group["consumerCount"] for group in topic["consumeGroupList"]]

    reader = world.connect()
    reader.exchange(cmd("consume", "topic: T"))
    assert counts() == [1, 0]
    reader.exchange(cmd("consume", "topic: T"))  # once more: nothing new
    world.advance(1_000)
    assert not follower.replies()
    reader.exchange(cmd("consume", "topic: T", "consume_group: g"))
    assert counts() == [1, 1]
    reader.exchange(cmd("unconsume", "topic: T"))
    assert counts() == [0, 1]
    reader.vanish()
    assert counts() == [0, 0]


ELSEWHERE = "192.0.2.1:40000"
"""Followers need not know what was declared there before it is answered."""


class TestDeclareAndProduceAtOnce:
    """Stock clients produce to the servers that a document has their topic at. It comes over
    another connection than the reply to the declare, and is to be there first."""

    def outs(self, world: World, client: Client, follower: Client, data: bytes) -> list[bytes]:
        """Who was sent something, in that order, by one turn."""
        order: list[bytes] = []
        for each in (client, follower):
            each.peer._ready = lambda peer: order.append(peer.id)
        client.send(data)
        world.settle()
        return order

    def test_the_push_goes_before_the_reply(self) -> None:
        world, client = declared()
        follower = follow(world)
        for number in range(5):
            order = self.outs(world, client, follower, cmd("declare", f"topic: T{number}"))
            assert order[:2] == [follower.peer.id, client.peer.id]
            (push,) = pushes(follower)
            assert f"T{number}" in push["serverTable"][OWN]["topicTable"]
            assert len(client.replies()) == 1

    def test_nobody_is_told_twice(self) -> None:
        world, client = declared()
        follower = follow(world)
        ok(client, cmd("declare", "topic: T"))
        world.advance(1_000)
        assert len(pushes(follower)) == 1
        ok(client, cmd("declare", "topic: U"))
        ok(client, cmd("declare", "topic: V"))
        world.advance(1_000)
        found = [set(push["serverTable"][OWN]["topicTable"]) for push in pushes(follower)]
        assert found == [{"T", "U"}, {"T", "U", "V"}]

    def test_who_is_elsewhere_is_told_as_ever(self) -> None:
        world, client = declared()
        client.peer.address = ELSEWHERE
        follower = follow(world)
        ok(client, cmd("declare", "topic: T"))
        world.advance(1_000)
        pushes(follower)
        ok(client, cmd("declare", "topic: U"))
        pushes(follower)
        ok(client, cmd("declare", "topic: V"))
        assert not follower.replies()
        world.advance(1_000)
        assert len(pushes(follower)) == 1

    def test_a_burst_of_declares_is_no_burst_of_documents(self) -> None:
        world, client = declared()
        followers = [follow(world) for _ in range(20)]
        world.advance(10_000)
        for number in range(1_000):
            ok(client, cmd("declare", f"topic: T{number}"))
            world.advance(1)
        counts = [len(pushes(follower)) for follower in followers]
        assert min(counts) >= 8
        assert max(counts) <= 10 + 11 + 10
        world.advance(1_000)
        for follower in followers:
            assert len(pushes(follower)[-1]["serverTable"][OWN]["topicTable"]) == 1_000

    def test_a_crowd_of_followers_is_told_in_portions(self) -> None:
        world, client = declared()
        followers = [world.connect() for _ in range(2_000)]
        for follower in followers:
            follower.exchange(cmd("track_sub"))
        world.advance(10_000)
        ok(client, cmd("declare", "topic: T"))
        for follower in followers:
            follower.replies()
        made: list[bytes] = []
        for follower in followers:
            follower.peer._ready = lambda peer: made.append(peer.id)
        for number in range(5):
            world.broker.begin(world.now_ms)
            client.peer.receive(cmd("declare", f"topic: U{number}"))
            world.broker.finish()
        assert len(made) <= 1_000
        world.advance(1_000)
        for follower in followers:
            assert "U4" in pushes(follower)[-1]["serverTable"][OWN]["topicTable"]


def test_changes_of_a_turn_are_one_push() -> None:
    world, client = declared()
    follower = follow(world)
    client.send(b"".join(cmd("declare", f"topic: T{n}") for n in range(50)))
    assert len(told(world, follower)["serverTable"][OWN]["topicTable"]) == 50


def test_ten_pushes_a_second_at_most_and_the_last_change_always() -> None:
    world, client = declared()
    client.peer.address = ELSEWHERE
    follower = follow(world)
    for number in range(1_000):
        ok(client, cmd("declare", f"topic: T{number}"))
        world.advance(1)
    found = pushes(follower)
    assert 8 <= len(found) <= 11
    world.advance(1_000)
    last = [*found, *pushes(follower)][-1]
    assert len(last["serverTable"][OWN]["topicTable"]) == 1_000


def test_long_documents_are_pushed_less_often() -> None:
    world, client = declared()
    client.exchange(b"".join(cmd("declare", f"topic: T{n}") for n in range(1_000)))
    follower = follow(world)
    for _ in range(200):
        ok(client, cmd("declare", "topic: T0"))
        world.advance(10)
    world.settle()
    count, size = 0, 0
    for reply in follower.replies():
        count, size = count + 1, size + len(reply.body)
    size //= count
    assert size > 400_000
    assert 1 < count <= 2_000 * 2_500 // size + 2, "of the two seconds, a twentieth"


def test_a_follower_that_takes_nothing_gets_the_last_change_when_it_does() -> None:
    world, client = declared()
    follower = follow(world)
    follower.peer.stalled = True
    world.broker.begin(world.now_ms)
    client.peer.receive(cmd("declare", "topic: T"))
    world.broker.finish()
    assert not follower.peer.out
    world.advance(1_000)  # a world takes everything
    (info,) = pushes(follower)
    assert list(info["serverTable"][OWN]["topicTable"]) == ["T"]


def test_followers_that_come_together_share_a_document() -> None:
    """After a restart they all come at once, and a long document takes its time."""
    world, client = declared("T")
    versions = set()
    for _ in range(20):
        (reply,) = world.connect().exchange(cmd("track_sub"))
        versions.add(document(reply)["infoVersion"])
    assert len(versions) == 1
    ok(client, cmd("declare", "topic: U"))
    (reply,) = world.connect().exchange(cmd("track_sub"))
    assert "U" in document(reply)["serverTable"][OWN]["topicTable"]
    assert document(reply)["infoVersion"] > max(versions)


def many_topics(client: Client, *lines: str) -> None:
    """Documents of them are over 400,000 bytes."""
    client.exchange(b"".join(cmd("declare", f"topic: T{n}", *lines) for n in range(1_000)))


def test_followers_that_come_amid_changes_share_a_long_document_and_are_told_the_rest() -> None:
    """They consume as soon as they have it, and each consume is a change."""
    world, client = declared()
    many_topics(client)
    versions, followers = set(), []
    for number in range(50):
        follower = world.connect()
        (reply,) = follower.exchange(cmd("track_sub"))
        versions.add(document(reply)["infoVersion"])
        followers.append(follower)
        ok(client, cmd("declare", f"topic: New{number}"))
    assert len(versions) < 5
    world.advance(3_000)
    for follower in followers:
        assert "New49" in pushes(follower)[-1]["serverTable"][OWN]["topicTable"]


@pytest.mark.parametrize("request_line", ["cmd: server", "cmd: query", "cmd: tracker"])
def test_a_long_document_is_not_made_for_everybody_who_asks(request_line: str) -> None:
    world, client = declared()
    many_topics(client)
    data = http("/", request_line)

    def version() -> int:
        found: int = document(ok(client, data))["infoVersion"]
        return found

    first = version()
    put(client, "T1", b"x")
    assert version() == first
    ok(client, cmd("declare", "topic: New"))
    second = version()
    assert second > first, "it is as it was declared"
    world.advance(1_000)
    assert version() > second, "and soon as it is"


def test_a_first_follower_is_told_what_its_document_does_not_have() -> None:
    world, client = declared()
    many_topics(client)
    world.connect().exchange(http("/?cmd=track_sub", "connection: close"))
    ok(client, cmd("declare", "topic: New"))
    follower = world.connect()
    follower.exchange(cmd("track_sub"))
    world.advance(1_000)
    assert "New" in pushes(follower)[-1]["serverTable"][OWN]["topicTable"]


def test_one_long_document_at_a_time() -> None:
    """Of many tokens each sees something else: the broker has other things to do, too."""
    tokens = [entry(f"t{number}", "track_sub", {"T*": [], f"U{number}": []}) for number in range(4)]
    world, admin = world_with(*tokens)
    many_topics(admin, ADMIN)
    followers = []
    for number in range(4):
        followers.append(world.connect())
        followers[-1].exchange(cmd("track_sub", f"token: t{number}"))
    world.advance(10_000)
    for follower in followers:
        follower.replies()
    counts = [0, 0, 0, 0]
    for number in range(200):  # changes without end: each has its turn
        ok(admin, cmd("declare", f"topic: T{number}", "consume_group: new", ADMIN))
        found = [len(pushes(follower)) for follower in followers]
        assert sum(found) <= 1
        counts = [count + more for count, more in zip(counts, found, strict=True)]
        world.advance(20)
    assert sum(counts) > 8
    assert max(counts) - min(counts) <= 1
    world.advance(10_000)
    for follower in followers:
        topic = pushes(follower)[-1]["serverTable"][OWN]["topicTable"]["T199"]
        assert len(topic["consumeGroupList"]) == 2


def test_tokens_that_see_everything_share_a_document() -> None:
    world, _ = world_with(entry("all", "*"), entry("some", "*", {"O*": []}))
    versions = []
    for token in ("admin", "all", "some"):
        (reply,) = world.connect().exchange(cmd("track_sub", f"token: {token}"))
        versions.append(document(reply)["infoVersion"])
    assert versions[0] == versions[1] < versions[2]


def test_so_much_is_pushed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every follower that is slow holds a copy."""
    world, client = declared()
    client.peer.address = ELSEWHERE
    followers = [follow(world) for _ in range(10)]
    size = len(ok(declared("T")[1], cmd("tracker")).body)
    monkeypatch.setattr(track, "PUSH_BYTES_MAX", size * 3 // 2)
    ok(client, cmd("declare", "topic: T"))
    told_by_then = []
    for _ in range(15):
        told_by_then.append(sum(len(pushes(follower)) for follower in followers))
        world.advance(100)
    assert sum(told_by_then) == 10
    assert max(told_by_then) == 2


def test_plain_http_gets_one_document() -> None:
    world, client = declared()
    plain = world.connect()
    reply = ok(plain, http("/?cmd=track_sub"))
    assert reply.headers["cmd"] == "track_pub"
    ok(client, cmd("declare", "topic: T"))
    world.advance(1_000)
    assert not plain.replies()
    closing = world.connect()
    ok(closing, http("/?cmd=track_sub", "connection: close"))
    assert closing.closed


def test_a_follower_that_is_gone_is_forgotten() -> None:
    world, client = declared()
    for _ in range(3):
        follow(world).vanish()
    ok(client, cmd("declare", "topic: T"))
    world.advance(1_000)
    assert world.broker.next_due() is None


# -- reports ---------------------------------------------------------------------------------


def test_a_server_is_in_the_document_until_its_connection_ends() -> None:
    world, client = declared()
    follower, other = follow(world), world.connect()
    topic = {
        "topicName": "U",
        "serverAddress": {"address": "other:1", "sslEnabled": False},
        "consumerCount": 2,
        "consumeGroupList": [{"groupName": "U", "topicName": "U", "filter": "a.*"}],
    }
    reply = report(other, event(info={"topicTable": {"U": topic}}), "id: 5")
    assert (reply.status, reply.headers["id"]) == (200, "5")
    assert reply.body == b"%d" % world.now_ms
    server = told(world, follower)["serverTable"]["other:1"]
    assert server["serverVersion"] == "0.11.4"
    assert server["topicTable"]["U"]["consumerCount"] == 2
    assert server["topicTable"]["U"]["consumeGroupList"][0]["filter"] == "a.*"
    assert list(document(ok(client, cmd("server")))["topicTable"]) == []
    other.vanish()
    assert list(told(world, follower)["serverTable"]) == [OWN]


def test_a_server_that_says_it_is_gone() -> None:
    world, client = declared()
    follower = follow(world)
    report(client, event())
    assert "other:1" in told(world, follower)["serverTable"]
    report(client, event(live=False))
    assert "other:1" not in told(world, follower)["serverTable"]


def test_silence_is_noticed() -> None:
    world, client = declared()
    follower = follow(world)
    report(client, event())
    told(world, follower)
    world.advance(60_000)
    report(client, event(info={"infoVersion": 2}))
    assert told(world, follower)["serverTable"]["other:1"]["infoVersion"] == 2
    world.advance(88_000)
    assert not follower.replies()
    world.advance(2_000)
    assert [list(info["serverTable"]) for info in pushes(follower)] == [[OWN]]
    assert world.broker.next_due() is None


def test_silence_that_somebody_else_notices_first_is_told_all_the_same() -> None:
    world, client = declared()
    follower = follow(world)
    report(client, event())
    told(world, follower)
    world.now_ms += 90_000
    client.exchange(cmd("tracker"))
    world.advance(1_000)
    assert [list(info["serverTable"]) for info in pushes(follower)] == [[OWN]]


def test_a_report_by_another_connection_takes_over() -> None:
    world, _ = declared()
    first, second = world.connect(), world.connect()
    report(first, event())
    report(second, event(info={"infoVersion": 2}))
    first.vanish()
    table = document(ok(world.connect(), cmd("tracker")))["serverTable"]
    assert table["other:1"]["infoVersion"] == 2


def test_reports_without_an_answer() -> None:
    _, client = declared()
    assert client.exchange(cmd("track_pub", "ack: 0", body=event())) == []
    assert client.exchange(cmd("track_pub", "ack: 0", body=b"{")) == []
    assert "other:1" in document(ok(client, cmd("tracker")))["serverTable"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "track_pub json required"),
        (b"{", "track_pub: Input data was truncated"),
        (b"[]", "track_pub: Expected `object`, got `array`"),
        (b"{}", "track_pub: Object missing required field `serverInfo`"),
        (b'{"serverInfo":{}}', "track_pub: Object missing required field `serverAddress`"),
        (event(""), "track_pub: Expected `str` of length >= 1"),
        (event("a b:1"), "track_pub: Expected `str` matching regex"),
        (event("a:1\r\nx: y"), "track_pub: Expected `str` matching regex"),
        (event("a" * 256), "track_pub: Expected `str` of length <= 255"),
        (event(certificate=5), "track_pub: Expected `str | null`, got `int`"),
        (event(certificate="x" * 70_000), "track_pub: Expected `str` of length <= 65536"),
        (event(live="yes"), "track_pub: Expected `bool`, got `str`"),
        (event(info={"infoVersion": 1.5}), "track_pub: Expected `int`, got `float`"),
        (event(info={"topicTable": []}), "track_pub: Expected `object`, got `array`"),
        (event(info={"topicTable": {"T": 1}}), "track_pub: Expected `object`, got `int`"),
        (
            b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "track_pub: the JSON is nested too deeply",
        ),
        (b'{"serverInfo":"\xff"}', "track_pub: "),
    ],
)
def test_what_is_no_report(body: bytes, text: str) -> None:
    world, client = declared()
    status, found = refused(client, cmd("track_pub", body=body))
    assert status == 400
    assert found.startswith("400: Bad Format, " + text), found
    assert list(document(ok(world.connect(), cmd("tracker")))["serverTable"]) == [OWN]


def test_numbers_of_a_report_are_bounded() -> None:
    _, client = declared()
    huge = event().replace(b'"infoVersion":1', b'"infoVersion":' + b"9" * 30)
    assert report(client, huge).status == 400


def test_names_that_nobody_knows_are_dropped() -> None:
    """Some readers of JSON make objects of what `@type` names: no client is told of one."""
    _, client = declared()
    topic = {
        "@type": "evil.Class",
        "topicName": "U",
        "serverAddress": {"@type": "evil.Class", "address": "other:1", "sslEnabled": False},
        "consumeGroupList": [{"@type": "evil.Class", "groupName": "g", "filter": None}],
    }
    body = event(info={"@type": "evil.Class", "topicTable": {"U": topic}, "error": {"a": 1}})
    assert report(client, body).status == 200
    reply = ok(client, cmd("tracker"))
    assert b"@type" not in reply.body
    assert b"evil" not in reply.body
    assert b"null" not in reply.body


def test_there_is_an_end_to_servers() -> None:
    _, client = declared()
    for number in range(SERVERS_MAX):
        assert report(client, event(f"other:{number}")).status == 200
    assert report(client, event("one-more:1")).status == 429
    assert report(client, event("other:0")).status == 200
    assert report(client, event("other:0", live=False)).status == 200
    assert report(client, event("one-more:1")).status == 200


def test_there_is_an_end_to_what_servers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it counts, not just their topics."""
    monkeypatch.setattr(servers, "BYTES_MAX", 1 << 20)
    _, client = declared()
    trackers = [{"address": "x" * 250}] * 1_000
    taken = 0
    while report(client, event(f"a:{taken}", info={"trackerList": trackers})).status == 200:
        taken += 1
    assert taken == 3
    while report(client, event(f"b:{taken}", certificate="x" * (32 << 10))).status == 200:
        taken += 1
    assert 3 < taken < 12


# -- certificates ----------------------------------------------------------------------------


def test_certificates() -> None:
    world = World(
        settings=ZbusSettings(address="broker:443", tls=True, certificate=lambda: "PEM\n")
    )
    client = world.connect()
    for lines in ((), ("server: broker:443",)):
        reply = ok(client, cmd("ssl", *lines, "id: 1"))
        assert reply.body == b"PEM\n"
        assert reply.headers["content-type"] == "text/plain"
    assert refused(client, cmd("ssl", "server: other:1")) == (
        404,
        "404: Certificate(other:1) Not Found",
    )
    report(client, event(certificate="theirs"))
    assert ok(client, http("/?cmd=ssl&server=other:1")).body == b"theirs"
    report(client, event(certificate="theirs", live=False))
    assert client.request(cmd("ssl", "server: other:1")).status == 404


def test_a_broker_without_tls_has_no_certificate() -> None:
    _, client = declared()
    assert refused(client, cmd("ssl")) == (404, f"404: Certificate({OWN}) Not Found")


TRACKED = ZbusSettings(
    address="first:1",
    certificate=lambda: "PEM",
    tracker_list="tracker:2",
    tracker_token="secret",
)


def test_what_this_broker_reports_is_what_a_tracker_takes() -> None:
    first = World(settings=TRACKED)
    ok(first.connect(), cmd("declare", "topic: T", "group_filter: a"))
    [told] = first.front.reports()
    assert told.address == "tracker:2"
    [(head, _, body)] = HttpReader(Heads(), WireLimits()).receive(told.request())
    expected = {b"cmd": b"track_pub", b"ack": b"0", b"token": b"secret"}
    assert expected.items() <= head.fields.items()
    assert head.fields[b"content-type"] == b"application/json"
    second = World()
    client = second.connect()
    assert report(client, body).status == 200
    table = document(ok(client, cmd("tracker")))["serverTable"]
    assert list(table["first:1"]["topicTable"]) == ["T"]
    assert ok(client, cmd("ssl", "server: first:1")).body == b"PEM"


# -- who may see what ------------------------------------------------------------------------


MINE = entry("mine", "track_sub tracker", {"Orders": ["billing"]})


def test_documents_hold_what_a_token_may_see() -> None:
    """Of this server and of those that reported to it: topics, and groups of them."""
    world, admin = world_with(MINE)
    address = {"address": "other:1"}
    groups = [{"groupName": name, "consumerCount": 1} for name in ("Orders", "billing", "audit")]
    topics = {
        name: {
            "topicName": name,
            "serverAddress": address,
            "consumerCount": 3,
            "consumeGroupList": groups,
        }
        for name in ("Orders", "Secret")
    }
    assert report(admin, event(info={"topicTable": topics}), ADMIN).status == 200
    for command in ("tracker", "track_sub"):
        (reply,) = world.connect().exchange(cmd(command, "token: mine"))
        table = document(reply)["serverTable"]
        for name, readers in ((OWN, 0), ("other:1", 1)):
            assert list(table[name]["topicTable"]) == ["Orders"]
            topic = table[name]["topicTable"]["Orders"]
            assert [group["groupName"] for group in topic["consumeGroupList"]] == ["billing"]
            assert topic["consumerCount"] == readers
        (reply,) = world.connect().exchange(cmd(command, ADMIN))
        for server in document(reply)["serverTable"].values():
            assert sorted(server["topicTable"]) == ["Orders", "Secret"]


def test_each_follower_is_told_what_it_may_see_as_long_as_it_may() -> None:
    world, admin = world_with(MINE)
    follower, other = world.connect(), world.connect()
    follower.exchange(cmd("track_sub", "token: mine"))
    other.exchange(cmd("track_sub", ADMIN))
    pushes(follower), pushes(other)
    pass_time(world, 1_000)
    admin.exchange(cmd("declare", ADMIN, "topic: More"))
    tables = [pushes(client)[0]["serverTable"][OWN] for client in (follower, other)]
    assert [sorted(table["topicTable"]) for table in tables] == [
        ["Orders"],
        ["More", "Orders", "Secret"],
    ]
    replace_table(world, ADMIN_ENTRY)
    ok(admin, cmd("declare", ADMIN, "topic: Orders"))
    pass_time(world, 1_000)
    assert len(pushes(other)) == 1
    admin.exchange(cmd("remove", ADMIN, "topic: More"))
    pass_time(world, 1_000)
    assert not follower.replies(), "its token is gone"
    assert len(pushes(other)) == 1


def test_who_speaks_json_is_pushed_json() -> None:
    world, client = declared()
    page = connected(world)
    first = page.ask({"headers": {"cmd": "track_sub", "id": "1"}})
    assert "id" not in first["headers"]
    assert first["body"]["serverTable"][OWN]["topicTable"] == {}
    world.advance(1_000)
    ok(client, cmd("declare", "topic: T"))
    (push,) = [read_json(message) for message in page.messages()]
    assert push["headers"]["cmd"] == "track_pub"
    assert list(push["body"]["serverTable"][OWN]["topicTable"]) == ["T"]
