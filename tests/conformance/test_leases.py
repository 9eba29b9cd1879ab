"""Many deliveries settled at once, given back, and extended: `ack`, `nack`, `extend`."""

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
    refused,
    restart,
)


def leased(count: int, window: int = 100, lease_ms: int = 10_000) -> tuple[World, Client]:
    """A world whose group g has leased the first messages of as many, all by one client."""
    query = f"group_mask=64&group_ack_window={window}&group_ack_timeout={lease_ms}"
    world, client = declared(f"T/g?{query}")
    put(client, "T", *[b"%d" % n for n in range(count)])
    for _ in range(count):
        assert pull(client, "/T/g").status == 200
    return world, client


def settle(command: str, offsets: str, *lines: str) -> bytes:
    return cmd(command, "topic: T", "consume_group: g", f"offset: {offsets}", *lines)


def bodies(client: Client) -> list[bytes]:
    found = []
    while (reply := pull(client, "/T/g")).status == 200:
        found.append(reply.body)
    return found


def test_many_acks_are_one_request() -> None:
    world, client = leased(8)
    ok(client, settle("ack", "0,2-4,7"))
    world.advance(10_000)
    assert bodies(client) == [b"1", b"5", b"6"]
    assert bodies(restart(world).connect()) == []


def test_an_ack_may_name_what_nobody_has() -> None:
    world, client = leased(2)
    ok(client, settle("ack", "0-9999"))
    world.advance(10_000)
    assert bodies(client) == []
    put(client, "T", b"2")
    assert bodies(client) == [b"2"], "what was never handed out is not settled"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("topic: T", "consume_group: nobody"), b"404: ConsumeGroup(nobody) Not Found"),
        (("topic: T", "consume_group: g", "partition: 3"), b"404: Partition(3) Not Found"),
    ],
)
def test_a_strict_ack_of_what_is_not_there_is_refused(lines: tuple[str, ...], text: bytes) -> None:
    """Stock clients rely on the other answer."""
    world, client = leased(1)
    ok(client, cmd("ack", *lines, "offset: 0"))
    reply = client.request(cmd("ack", *lines, "offset: 0", "strict: 1"))
    assert (reply.status, reply.body) == (404, text)
    world.advance(10_000)
    assert bodies(client) == [b"0"], "neither settled anything"
    ok(client, settle("ack", "0", "strict: 1"))


@pytest.mark.parametrize("command", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    "offsets",
    [
        "1,",
        ",1",
        "1,,2",
        "3-1",
        "-1",
        "1-",
        "1--2",
        "1-2-3",
        "+1",
        "1 ,2",
        "1_0",
        "0x1",
        "a",
        "0-10000",
        "0-9998,1,2",
        "0-9223372036854775807",
        "9223372036854775808",
    ],
)
def test_offsets_are_numbers_and_ranges(command: str, offsets: str) -> None:
    _, client = leased(2)
    status, text = refused(client, settle(command, offsets))
    assert status == 400
    assert text.startswith("400: Bad Format, offset is numbers and ranges such as 3,5-9,12")


@pytest.mark.parametrize("command", ["ack", "nack", "extend"])
def test_what_is_missing(command: str) -> None:
    _, client = leased(1)
    line = "400: Bad Format, Missing offset"
    assert refused(client, cmd(command, "topic: T", "consume_group: g")) == (400, line)
    line = "400: Bad Format, Missing topic"
    assert refused(client, cmd(command, "offset: 1")) == (400, line)
    line = "404: Topic(X) Not Found"
    assert refused(client, cmd(command, "topic: X", "offset: 1")) == (404, line)


@pytest.mark.parametrize("command", ["nack", "extend"])
def test_only_what_is_leased(command: str) -> None:
    _, client = leased(2)
    ok(client, settle("ack", "0"))
    assert refused(client, settle(command, "0")) == (
        404,
        "404: offset 0 is not leased: its lease expired, or it was acknowledged or never delivered",
    )
    assert client.request(settle(command, "0")).headers["reason"] == "not-leased"
    text = "404: none of these 3 offsets is leased"
    assert refused(client, settle(command, "0,7-8")) == (404, text)
    assert ok(client, settle(command, "0-5")).headers["count"] == "1"
    text = "404: ConsumeGroup(x) Not Found"
    request = cmd(command, "topic: T", "group: x", "offset: 1")
    assert refused(client, request) == (404, text)
    assert "reason" not in client.request(request).headers
    text = "404: Partition(3) Not Found"
    assert refused(client, settle(command, "1", "partition: 3")) == (404, text)


class TestNack:
    def test_it_comes_again_at_once_and_first(self) -> None:
        world, client = leased(3)
        put(client, "T", b"3")
        reply = ok(client, settle("nack", "0-1"))
        assert reply.headers["count"] == "2"
        again = pull(client, "/T/g")
        assert (again.body, again.headers["retry"]) == (b"0", "1")
        assert bodies(client) == [b"1", b"3"]
        world.broker.check()

    def test_at_the_end(self) -> None:
        _, client = leased(3)
        put(client, "T", b"3")
        ok(client, settle("nack", "0,1", "front: 0"))
        assert bodies(client) == [b"3", b"0", b"1"]

    def test_later(self) -> None:
        world, client = leased(2)
        ok(client, settle("nack", "0-1", "delay: 3000"))
        assert pull(client, "/T/g").headers["empty"] == "delayed"
        world.advance(2_999)
        assert bodies(client) == []
        world.advance(1)
        assert bodies(client) == [b"0", b"1"]

    def test_a_waiting_pull_gets_it(self) -> None:
        world, client = leased(1)
        reader = world.connect()
        assert reader.exchange(cmd("consume", "topic: T", "group: g")) == []
        ok(client, settle("nack", "0"))
        assert reader.replies()[0].body == b"0"

    def test_it_outlives_a_restart(self) -> None:
        world, client = leased(3)
        ok(client, settle("nack", "1,2"))
        assert bodies(restart(world).connect()) == [b"1", b"2"]

    def test_of_a_partition(self) -> None:
        _, client = declared("T/g?partitions=2&group_mask=64")
        put(client, "T", b"x", query="partition=1")
        assert pull(client, "/T/g").headers["partition"] == "1"
        ok(client, settle("nack", "0", "partition: 1"))
        assert bodies(client) == [b"x"]

    def test_it_may_be_silent(self) -> None:
        _, client = leased(1)
        assert client.exchange(settle("nack", "0", "ack: 0")) == []
        assert bodies(client) == [b"0"]

    def test_by_url(self) -> None:
        _, client = leased(1)
        assert client.request(http("/T/g?cmd=nack&offset=0")).status == 200
        assert bodies(client) == [b"0"]


class TestExtend:
    def test_by_the_groups_time(self) -> None:
        world, client = leased(2, lease_ms=2_000)
        world.advance(1_500)
        assert ok(client, settle("extend", "0-1")).headers["count"] == "2"
        world.advance(1_999)
        assert bodies(client) == []
        world.advance(1)
        assert bodies(client) == [b"0", b"1"]

    @pytest.mark.parametrize("lease_ms", [500, 60_000])
    def test_by_a_time_of_its_own(self, lease_ms: int) -> None:
        world, client = leased(1)
        ok(client, settle("extend", "0", f"group_ack_timeout: {lease_ms}"))
        world.advance(lease_ms - 1)
        assert bodies(client) == []
        world.advance(1)
        assert bodies(client) == [b"0"]

    def test_it_outlives_a_restart(self) -> None:
        world, client = leased(1)
        ok(client, settle("extend", "0", "group_ack_timeout: 60000"))
        world = restart(world)
        world.advance(59_999)
        assert bodies(world.connect()) == []
        world.advance(1)
        assert bodies(world.connect()) == [b"0"]

    def test_a_time_has_a_limit(self) -> None:
        _, client = leased(1)
        status, text = refused(client, settle("extend", "0", "group_ack_timeout: 2147483648"))
        assert status == 400
        assert "from 0 to 2147483647 ms" in text


def test_a_group_tells_how_it_leases() -> None:
    _, client = leased(0, window=7, lease_ms=1_234)
    info = document(ok(client, http("/T/g?cmd=query")))
    assert (info["ackRequired"], info["ackWindow"], info["ackTimeout"]) == (True, 7, 1_234)
    info = document(ok(client, http("/T/h?cmd=declare")))
    assert (info["ackRequired"], info["ackWindow"], info["ackTimeout"]) == (False, 100, 10_000)


def test_scattered_offsets_are_paid_for() -> None:
    _, client = leased(3)
    before = client.peer.work
    offsets = ",".join(str(offset) for offset in range(0, 3_000, 2))
    assert client.request(settle("ack", offsets)).status == 200
    assert before - client.peer.work >= 750
