"""`produce` with `cron`: messages that come again and again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

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
    refused,
    restart,
)
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.patterns.schedules import AGAIN_MS, SCHEDULES_MAX
from zbus.dialects.zbus.messages.cron import TIMES

MINUTE_MS, DAY_MS = 60_000, 86_400_000
EPOCH_2026_MS = 1_767_225_600_000


def at(world: World, year: int, month: int, day: int, hour: int = 0, zone: str = "UTC") -> None:
    """Let time pass until then."""
    then = datetime(year, month, day, hour, tzinfo=ZoneInfo(zone))
    world.advance(int(then.timestamp() * 1_000) - world.now_ms)


def world_at(*when: int, topic: str = "T") -> tuple[World, Client]:
    """A world that begins then, and a topic."""
    now_ms = int(datetime(*when, tzinfo=UTC).timestamp() * 1_000)  # type: ignore[misc, arg-type]
    world = World(now_ms=now_ms)
    client = world.connect()
    ok(client, http(f"/{topic}?cmd=declare"))
    return world, client


def schedule(client: Client, cron: str, words: str = "", body: bytes = b"x") -> Any:
    return ok(client, http(f"/T?cron={quote(cron)}&{words}", body=body, method="POST"))


def times(client: Client) -> list[str]:
    """When the messages that are there were to come, in Berlin."""
    found = []
    while (reply := pull(client)).status == 200:
        when = datetime.fromtimestamp(int(reply.headers["cron_time"]) / 1_000, UTC)
        found.append(when.astimezone(ZoneInfo("Europe/Berlin")).strftime("%d %H:%M%z"))
    return found


def pending(client: Client) -> list[Any]:
    reply = client.request(http("/cron.T?cmd=peek&state=delayed"))
    return [] if reply.status != 200 else document(reply)


CRON = "cron is five fields such as 0 9 * * 1-5, or six with seconds first"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cron=x", f"{CRON}, not 'x': wrong number of fields"),
        ("cron=*%20*%20*%20*", f"{CRON}, not '* * * *': wrong number of fields"),
        ("cron=0%200%2030%202%20*", f"{CRON}, not '0 0 30 2 *': bad day-of-month"),
        ("cron=99%20*%20*%20*%20*", f"{CRON}, not '99 * * * *': bad minute"),
        ("cron=99%20*%20*%20*%20*%20*", f"{CRON}, not '99 * * * * *': bad second"),
        ("cron=*%2025%20*%20*%20*", f"{CRON}, not '* 25 * * *': bad hour"),
        ("cron=*%20*%20*%20*%209", f"{CRON}, not '* * * * 9': bad day-of-week"),
        ("cron=%40daily", "cron is five fields"),
        ("cron=%D9%A1%20*%20*%20*%20*", "cron is five fields"),
        (f"cron={'1,' * 60}1%20*%20*%20*%20*", "cron is five fields"),
        ("cron=*%20*%20*%20*%20*&cron_zone=Nowhere", "cron_zone is a time zone such as Europe"),
        ("cron=*%20*%20*%20*%20*&cron_zone=../../etc/passwd", "cron_zone is a time zone"),
        ("cron=*%20*%20*%20*%20*&cron_zone=/etc/localtime", "cron_zone is a time zone"),
        ("cron=*%20*%20*%20*%20*&cron_zone=Europe", "cron_zone is a time zone"),
        ("cron_zone=UTC", "cron_zone is for messages with cron"),
        *(
            (f"cron=*%20*%20*%20*%20*&{word}", f"cron and {word.split('=')[0]} do not go together")
            for word in (
                "delay=1000",
                "deliver_at=9999999999999",
                "ttl=1000",
                "partition=0",
                "max_attempts=2",
                "front=true",
                "expected_offset=0",
                "idempotent=1&id=a",
            )
        ),
    ],
)
def test_bad_input(query: str, text: str) -> None:
    _, client = declared("T")
    status, told = refused(client, http(f"/T?{query}", body=b"x", method="POST"))
    assert status == 400
    assert text in told
    assert client.request(http("/cron.T?cmd=query")).status == 404, "nothing was made"


def test_not_for_batches_and_calls() -> None:
    _, client = declared("T")
    line = "content-type: application/x-ndjson"
    data = http("/T?cron=*%20*%20*%20*%20*", line, body=b"a\nb\n", method="POST")
    assert refused(client, data)[1] == "400: Bad Format, cron is for one message, not for a batch"
    ok(client, http("/R?cmd=declare&topic_mask=2"))
    data = http("/R?cron=*%20*%20*%20*%20*", body=b"a", method="POST")
    assert refused(client, data)[1] == "400: Bad Format, cron is not for calls"
    unknown = client.request(http("/nope?cron=*%20*%20*%20*%20*", body=b"a", method="POST"))
    assert unknown.status == 404


def test_a_working_week() -> None:
    world, client = world_at(2026, 11, 20, 12)  # a Friday
    lines = ("tag: a.b", "key: k", "content-type: text/plain", "x-y: z", "cron_time: forged")
    words = "cron=0%209%20*%20*%201-5&cron_zone=Europe/Berlin&id=daily"
    reply = ok(client, http(f"/T?{words}", *lines, body=b"good morning", method="POST"))
    assert reply.headers["schedule"] == "cron.T"
    monday_s = int(datetime(2026, 11, 23, 8, tzinfo=UTC).timestamp())
    assert reply.headers["due"] == str(monday_s * 1_000)
    assert pull(client).status == 204, "nothing before its time"
    at(world, 2026, 11, 23, 8)
    found = pull(client)
    assert (found.body, found.headers["cron_id"], found.headers["tag"]) == (
        b"good morning",
        "daily",
        "a.b",
    )
    assert (found.headers["key"], found.headers["zbus-header-x-y"]) == ("k", "z")
    assert found.headers["cron_time"] == reply.headers["due"]
    assert "cron" not in found.headers, "whoever passes it on would make a schedule"
    at(world, 2026, 12, 1)
    assert times(client) == [f"{day} 09:00+0100" for day in (24, 25, 26, 27, 30)]
    assert len(pending(client)) == 1


def test_clocks_are_changed() -> None:
    world, client = world_at(2026, 3, 27)
    schedule(client, "30 2 * * *", "cron_zone=Europe/Berlin")
    at(world, 2026, 3, 31)
    expected = ["27 02:30+0100", "28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]
    assert times(client) == [*expected, "31 02:30+0200"][: len(expected)]
    at(world, 2026, 10, 24, 3)
    times(client)
    at(world, 2026, 10, 27)
    assert times(client) == ["25 02:30+0200", "26 02:30+0100"], "once, though it is there twice"


def test_a_broker_that_was_not_there() -> None:
    """Of the times that it missed one comes, at once."""
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=hourly")
    at(world, 2026, 1, 1, 2)
    assert len(times(client)) == 2
    world.now_ms += DAY_MS + 30 * MINUTE_MS
    world = restart(world)
    client = world.connect()
    world.advance(1)
    assert times(client) == ["02 03:00+0100"]
    world.advance(30 * MINUTE_MS)
    assert times(client) == ["02 04:00+0100"]


def test_it_is_like_any_delayed_message() -> None:
    world, client = world_at(2026, 1, 1)
    first = schedule(client, "0 * * * *", "id=a")
    again = schedule(client, "30 * * * *", "id=a")
    assert again.headers["duplicate"] == "1", "an id names one schedule"
    schedule(client, "15 * * * *", "id=b", b"y")
    found = {row["id"]: row for row in pending(client)}
    assert found.keys() == {"a", "b"}
    assert str(found["a"]["until"]) == first.headers["due"]
    ok(client, http("/cron.T?cmd=cancel&id=a"))
    world.advance(DAY_MS)
    bodies = set()
    while (reply := pull(client)).status == 200:
        bodies.add(reply.body)
    assert bodies == {b"y"}
    ok(client, http("/cron.T?cmd=pause"))
    world.advance(DAY_MS)
    assert times(client) == []
    ok(client, http("/cron.T?cmd=resume"))
    assert len(times(client)) == 1, "the last one that it missed"
    schedule(client, "0 * * * *", "id=a")
    assert {row["id"] for row in pending(client)} == {"a", "b"}, "its id is free again"
    ok(client, http("/cron.T?cmd=remove"))
    world.advance(DAY_MS)
    assert times(client) == []


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("ends", ["", "restart", "turn"])
def test_one_that_is_put_again_is_told_as_it_is(pause: bool, ends: str) -> None:
    """Nothing of it changes, so the reply has the time of the first."""
    world, client = world_at(2026, 1, 1)
    put = http(f"/T?cron={quote('0 5 * * *')}&id=a", body=b"x", method="POST")
    again = http(f"/T?cron={quote('0 3 * * *')}&id=a", body=b"y", method="POST")
    if ends == "turn":
        first, second = client.exchange(put + again)
    else:
        first = ok(client, put)
        if pause:
            ok(client, http("/cron.T?cmd=pause"))
        if ends == "restart":
            world = restart(world)
            client = world.connect()
        second = ok(client, again)
    assert int(first.headers["due"]) == EPOCH_2026_MS + 5 * 60 * MINUTE_MS
    assert (second.headers["duplicate"], second.headers["due"]) == ("1", first.headers["due"])
    later = f"reschedule&id=a&delay={2 * DAY_MS}"
    ok(client, http(f"/cron.T?cmd={later}"))
    assert int(ok(client, again).headers["due"]) == world.now_ms + 2 * DAY_MS
    ok(client, http("/cron.T?cmd=fire&id=a"))
    assert int(ok(client, again).headers["due"]) >= world.now_ms


def test_put_off() -> None:
    """What is before that time does not come, and what comes then stands for it."""
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=a")
    world.advance(60 * MINUTE_MS)
    assert len(times(client)) == 1
    ok(client, http(f"/cron.T?cmd=reschedule&id=a&delay={6 * 60 * MINUTE_MS + 5 * MINUTE_MS}"))
    world.advance(6 * 60 * MINUTE_MS)
    assert times(client) == []
    world.advance(5 * MINUTE_MS)
    assert times(client) == ["01 08:05+0100"]
    world.advance(55 * MINUTE_MS)
    assert times(client) == ["01 09:00+0100"], "and then as before"


@pytest.mark.parametrize("cron", ["* * * * *", "0 * * * *", "0 0 1 1 *"])
def test_fired(cron: str) -> None:
    """Each time that it is fired, a message comes that stands for that time; its own times come as
    they would."""
    world, client = world_at(2026, 3, 5, 12)
    due = schedule(client, cron, "id=a").headers["due"]
    for seconds in (10, 5, 1):
        world.advance(seconds * 1_000)
        ok(client, http("/cron.T?cmd=fire&id=a"))
        world.advance(1)
        found = pull(client)
        assert (found.status, found.headers["cron_id"]) == (200, "a")
        assert 0 <= world.now_ms - int(found.headers["cron_time"]) <= 1
        assert pull(client).status == 204
        assert [str(row["until"]) for row in pending(client)] == [due]
    world.advance(int(due) - world.now_ms)
    assert pull(client).headers["cron_time"] == due


@pytest.mark.parametrize("away", [False, True])
def test_another_time_is_known_after_a_start(away: bool) -> None:
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=a")
    ok(client, http(f"/cron.T?cmd=reschedule&id=a&delay={90 * MINUTE_MS}"))
    if away:
        world.now_ms += 100 * MINUTE_MS
    world = restart(world)
    client = world.connect()
    world.advance(91 * MINUTE_MS)
    found = times(client)
    assert found[0] == "01 02:30+0100"
    assert all(time.endswith(":00+0100") for time in found[1:])


def test_another_time_while_nothing_can_be_put() -> None:
    """It is tried again, and stands for the same time."""
    world, client = world_at(2026, 1, 1, 0, 30)
    schedule(client, "0 * * * *", "id=a")
    world.broker._puts.refusing = BrokerError(Refusal.FULL, "the disk is full")
    ok(client, http("/cron.T?cmd=fire&id=a"))
    world.advance(3 * AGAIN_MS)
    assert pull(client).status == 204
    world.broker._puts.refusing = None
    world.advance(2 * AGAIN_MS)
    assert times(client) == ["01 01:30+0100"]
    world.advance(30 * MINUTE_MS)
    assert times(client) == ["01 02:00+0100"]


def test_every_second() -> None:
    world, client = world_at(2026, 1, 1)
    schedule(client, "* * * * * *")
    world.advance(30_000)
    assert len(times(client)) == 30


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("words", ["", "durability=memory"])
def test_its_topic_is_removed(again: bool, restarted: bool, words: str) -> None:
    """Then its schedules are gone: a topic of the same name does not take them over."""
    world, client = world_at(2026, 1, 1, topic="Other")
    ok(client, http(f"/t?cmd=declare&{words}"))
    schedule(client, "0 * * * *", "id=a")
    ok(client, http("/T?cmd=remove"))
    assert client.request(http("/cron.T?cmd=query")).status == 404
    if restarted:
        world = restart(world)
        client = world.connect()
    if again:
        ok(client, http("/T?cmd=declare"))
    world.advance(DAY_MS)
    assert pending(client) == []
    assert not again or (pull(client).status, times(client)) == (204, [])
    assert client.request(http("/cron.T?cmd=query")).status == 404
    world.broker.check()


def test_one_that_was_put_into_a_topic_of_schedules_goes_with_them() -> None:
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=a")
    ok(client, http("/cron.T?cron=0%20*%20*%20*%20*", body=b"x", method="POST"))
    ok(client, http("/T?cmd=remove"))
    assert world.broker.topics == {}


def test_a_topic_of_that_name_that_a_user_declared_stays() -> None:
    _, client = declared("T", "cron.T")
    ok(client, http("/T?cmd=remove"))
    ok(client, http("/cron.T?cmd=query"))


def test_a_topic_of_somebodys_own() -> None:
    _, client = declared("T")
    ok(client, http("/cron.T?cmd=declare"))
    ok(client, http("/cron.T", "cron_id: x", body=b"mine", method="POST"))
    told = refused(client, http("/T?cron=*%20*%20*%20*%20*", body=b"x", method="POST"))
    assert told[0] == 400
    assert "cron.T exists and was not made for schedules" in told[1]
    assert pull(client, "/cron.T").body == b"mine", "and nobody reads it but its consumers"


def test_what_is_no_schedule() -> None:
    """Messages of another dialect, or plain ones, in such a topic."""
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=a")
    ok(client, http("/cron.T?id=plain", body=b"hello", method="POST"))
    world.advance(DAY_MS)
    assert len(times(client)) == 24
    assert [row["id"] for row in pending(client)] == ["a"]
    assert (
        document(ok(client, http("/cron.T?cmd=query")))["consumeGroupList"][0]["leasedCount"] == 0
    )


def test_the_disk_is_full() -> None:
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *")
    why = world.broker._puts.too_large()
    world.broker._puts.refusing = why
    world.advance(60 * MINUTE_MS + 5 * AGAIN_MS)
    assert times(client) == []
    world.broker._puts.refusing = None
    world.advance(AGAIN_MS)
    assert times(client) == ["01 02:00+0100"]
    world.advance(60 * MINUTE_MS)
    assert times(client) == ["01 03:00+0100"]


def test_several_partitions_and_keys() -> None:
    now_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)
    world = World(now_ms=now_ms)
    client = world.connect()
    ok(client, http("/T?cmd=declare&partitions=4"))
    for number in range(8):
        schedule(client, "0 * * * *", f"id={number}&key=k{number % 2}", b"%d" % number)
    for number in range(8):
        schedule(client, "0 * * * *", f"id=n{number}", b"n%d" % number)
    world.advance(3 * 60 * MINUTE_MS)
    found: dict[bytes, set[str]] = {}
    for _ in range(3 * 16):
        reply = pull(client)
        found.setdefault(reply.body, set()).add(reply.headers["partition"])
    assert pull(client).status == 204
    assert all(len(partitions) == 1 for partitions in found.values())
    assert len(set.union(*found.values())) == 4


def test_so_many_and_no_more() -> None:
    world, client = world_at(2026, 1, 1)
    request = http("/T?cron=0%200%201%201%20*", body=b"x", method="POST")
    ok(client, request)
    rest = b"x\n" * (SCHEDULES_MAX - 1)  # what is delayed there counts, whatever it is
    target = "/cron.T?delay=365d&content-type=application/x-ndjson"
    ok(client, http(target, body=rest, method="POST"))
    text = f"429: topic T has {SCHEDULES_MAX} schedules, which is the limit"
    world.advance(MINUTE_MS)
    assert refused(client, request) == (429, text)
    ok(client, http("/cron.T?cmd=cancel&offset=7"))
    ok(client, request)
    assert refused(client, request) == (429, text)


@pytest.mark.parametrize("flushed", [True, False])
def test_a_crash_at_any_time(flushed: bool) -> None:
    """Whatever was written before, there is one schedule and each time comes, and once."""
    world, client = world_at(2026, 1, 1)
    schedule(client, "0 * * * *", "id=a")
    hours = 12
    for hour in range(hours):
        world.now_ms = int(datetime(2026, 1, 1, hour, 59, 59, tzinfo=UTC).timestamp() * 1_000)
        world.turn()
        for _ in range(hour % 6):  # turns after it is due, before the crash
            world.now_ms += 1_000 if _ == 0 else 0
            world.turn()
        if flushed:
            world.flush()
        now_ms = world.now_ms
        world = World(world.journal, now_ms=now_ms)
        world.advance(40_000)  # a lease that was lost ends meanwhile
    client = world.connect()
    assert times(client) == [f"01 {hour + 2:02}:00+0100" for hour in range(hours)]
    assert len(pending(client)) == 1


def test_times_against_a_model() -> None:
    """The last time that has passed is the one that was next before, over changes of the clocks."""
    start_ms = int(datetime(2026, 3, 20, tzinfo=UTC).timestamp() * 1_000)
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"):
        for cron in ("*/20 * * * *", "30 2 * * *", "0 3 * * 0", "15 10 L * *", "0 0 1 */2 *"):
            now_ms = start_ms
            for _ in range(300 if cron.startswith("*") else 20):
                next_ms = TIMES.next_ms(cron, zone, now_ms)
                assert next_ms is not None
                assert next_ms > now_ms
                assert TIMES.last_ms(cron, zone, next_ms) == next_ms
                assert TIMES.last_ms(cron, zone, next_ms + 999) == next_ms
                now_ms = next_ms


def test_a_client_of_the_old_protocol() -> None:
    """Words may be header lines, too."""
    _, client = declared("T")
    reply = ok(client, cmd("produce", "topic: T", "cron: */5 * * * *", "id: a", body=b"x"))
    assert reply.headers["schedule"] == "cron.T"
