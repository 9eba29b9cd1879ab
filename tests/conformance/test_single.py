"""`delete`, `cancel`, `fire`, `reschedule`: single messages of a group, or of all groups."""

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    TEN_YEARS_MS,
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

LATER = "delay=5000"
ALL = ("delete", "cancel", "fire", "reschedule")
DELAYED = ("cancel", "fire", "reschedule")


def order(client: Client, command: str, query: str, path: str = "/T/g") -> int:
    """How many were changed."""
    more = "&delay=9000" if command == "reschedule" and "deliver_at" not in query else ""
    return int(ok(client, http(f"{path}?cmd={command}&{query}{more}")).headers["count"])


def refusal(client: Client, command: str, query: str, path: str = "/T/g") -> tuple[int, str]:
    more = "&delay=9000" if command == "reschedule" else ""
    return refused(client, http(f"{path}?cmd={command}&{query}{more}"))


def with_delayed(*targets: str, passed: bool) -> tuple[World, Client]:
    """Messages 0, 2 and 4 at once, 1 and 3 later. `passed`: the group has come past them, else it
    has not even begun."""
    world, client = declared(*targets or ("T/g?group_mask=64",))
    for offset in range(5):
        put(client, "T", b"%d" % offset, query=LATER if offset % 2 else "")
    if passed:
        assert drain(client, "/T/g") == [b"0", b"2", b"4"]
    return world, client


def rest(world: World, client: Client, ms: int = 0) -> list[bytes]:
    """What the group hands out by then."""
    world.advance(ms)
    world.broker.check()
    return drain(client, "/T/g")


both = pytest.mark.parametrize("passed", [False, True], ids=["not come to", "passed"])


class TestDelete:
    @both
    def test_a_delayed_message(self, passed: bool) -> None:
        world, client = with_delayed(passed=passed)
        assert order(client, "delete", "offset=1") == 1
        assert rest(world, client, 5_000) == ([b"3"] if passed else [b"0", b"2", b"3", b"4"])

    def test_a_ready_one(self) -> None:
        world, client = with_delayed(passed=False)
        assert order(client, "delete", "offset=2") == 1
        assert rest(world, client) == [b"0", b"4"]

    def test_a_leased_one_is_its_holders_no_more(self) -> None:
        world, client = declared("T/g?group_mask=64&group_ack_window=1")
        put(client, "T", b"0", b"1")
        assert pull(client, "/T/g").body == b"0"
        assert pull(client, "/T/g").headers["empty"] == "leased"
        assert order(client, "delete", "offset=0") == 1
        assert pull(client, "/T/g").body == b"1", "the window opened"
        assert refused(client, http("/T/g?cmd=nack&offset=0"))[0] == 404
        world.advance(10_000)
        assert pull(client, "/T/g").body == b"1"

    def test_a_reader_that_waits_gets_what_comes_behind(self) -> None:
        _, client = declared("T/g?group_mask=64&group_ack_window=1")
        put(client, "T", b"0", b"1")
        assert pull(client, "/T/g").body == b"0"
        reader = client.world.connect()
        assert reader.exchange(http("/T/g?cmd=consume")) == []
        order(client, "delete", "offset=0")
        assert [reply.body for reply in reader.replies()] == [b"1"]

    def test_many(self) -> None:
        world, client = with_delayed(passed=True)
        assert order(client, "delete", "offset=0-1,3,9-10,3,2-3") == 4
        assert rest(world, client, 60_000) == [b"4"]

    def test_in_all_groups(self) -> None:
        world, client = declared("T/g", "T/h")
        put(client, "T", b"0", b"1")
        assert order(client, "delete", "offset=0", path="/T") == 2
        assert drain(client, "/T/h") == drain(client, "/T/g") == [b"1"]
        world.broker.check()

    def test_not_in_the_log(self) -> None:
        _, client = with_delayed(passed=False)
        order(client, "delete", "offset=0")
        messages = document(ok(client, http("/T?cmd=read&count=9")))
        assert len(messages) == 5
        ok(client, http("/T/late?cmd=declare&group_start_offset=0"))
        assert pull(client, "/T/late").body == b"0"

    def test_it_outlives_a_restart(self) -> None:
        world, client = with_delayed(passed=False)
        order(client, "delete", "offset=1,2")
        again = restart(world)
        assert rest(again, again.connect(), 5_000) == [b"0", b"3", b"4"]

    def test_it_may_be_silent(self) -> None:
        _, client = declared("T/g")
        put(client, "T", b"0")
        line = ("topic: T", "consume_group: g", "offset: 0", "ack: 0")
        assert client.exchange(cmd("delete", *line)) == []
        assert drain(client, "/T/g") == []


class TestCancel:
    @both
    def test_what_is_delayed(self, passed: bool) -> None:
        world, client = with_delayed(passed=passed)
        assert order(client, "cancel", "offset=0-4") == 2, "only those"
        assert rest(world, client, 5_000) == ([] if passed else [b"0", b"2", b"4"])

    def test_what_was_just_delivered(self) -> None:
        world, client = with_delayed(passed=True)
        world.advance(5_000)
        assert pull(client, "/T/g").body == b"1"
        text = f"409: offset 1 was just delivered: it is leased until {EPOCH_MS + 15_000} in g"
        assert refusal(client, "cancel", "offset=1") == (409, text)
        text = "409: offset 3 is not delayed (any more): it is ready in g"
        assert refusal(client, "cancel", "offset=3") == (409, text)
        ok(client, http("/T/g?cmd=ack&offset=1"))
        text = "409: offset 1 is finished, so it was delivered or is gone in g"
        assert refusal(client, "cancel", "offset=1") == (409, text)
        text = "409: none of these 4 offsets is delayed"
        assert refusal(client, "cancel", "offset=0-3") == (409, text)

    def test_in_the_millisecond_in_which_it_is_due(self) -> None:
        world, client = with_delayed(passed=True)
        world.advance(4_999)
        assert order(client, "cancel", "offset=1") == 1
        world.advance(1)
        assert refusal(client, "cancel", "offset=3")[0] == 409
        assert rest(world, client) == [b"3"]

    def test_in_all_groups(self) -> None:
        world, client = with_delayed("T/g", "T/h", passed=True)  # h has not begun
        assert order(client, "cancel", "offset=1", path="/T") == 2
        world.advance(5_000)
        assert drain(client, "/T/h") == [b"0", b"2", b"3", b"4"]
        assert drain(client, "/T/g") == [b"3"]

    def test_it_outlives_a_restart(self) -> None:
        for passed in (False, True):
            world, client = with_delayed(passed=passed)
            order(client, "cancel", "offset=1")
            again = restart(world)
            bodies = rest(again, again.connect(), 60_000)
            assert b"1" not in bodies
            assert b"3" in bodies

    def test_a_retry_that_waits(self) -> None:
        world, client = declared("T/g?group_mask=64")
        put(client, "T", b"0")
        assert pull(client, "/T/g").status == 200
        ok(client, http("/T/g?cmd=nack&offset=0&delay=3000"))
        assert order(client, "cancel", "offset=0") == 1
        assert rest(world, client, 60_000) == []


class TestFire:
    @both
    def test_it_is_due_now_and_once(self, passed: bool) -> None:
        world, client = with_delayed("T/g", passed=passed)
        assert order(client, "fire", "offset=3") == 1
        assert rest(world, client) == ([b"3"] if passed else [b"0", b"2", b"4", b"3"])
        assert rest(world, client, 5_000) == [b"1"], "its own time does not bring it again"
        assert rest(world, client, 60_000) == []

    def test_with_a_lease(self) -> None:
        world, client = with_delayed(passed=False)
        assert order(client, "fire", "offset=1,3") == 2
        assert rest(world, client) == [b"0", b"2", b"4", b"1", b"3"]
        assert refusal(client, "fire", "offset=1")[0] == 409
        assert rest(world, client, 9_999) == []
        again = restart(world)
        assert rest(again, again.connect(), 1) == [b"0", b"1", b"2", b"3", b"4"]

    def test_a_reader_that_waits_gets_it(self) -> None:
        world, client = declared("T/g")
        reader = world.connect()
        assert reader.exchange(http("/T/g?cmd=consume")) == []
        put(client, "T", b"0", query=LATER)
        assert reader.replies() == []
        order(client, "fire", "offset=0")
        world.advance(1)
        assert [reply.body for reply in reader.replies()] == [b"0"]

    @both
    def test_it_outlives_a_restart(self, passed: bool) -> None:
        world, client = with_delayed(passed=passed)
        order(client, "fire", "offset=1")
        again = restart(world)
        again.advance(1)
        assert b"1" in rest(again, again.connect())

    def test_what_a_filter_does_not_want_is_not_wanted_then(self) -> None:
        world, client = declared("T/g?group_filter=a")
        put(client, "T", b"0", query=f"{LATER}&tag=b")
        assert order(client, "fire", "offset=0") == 1
        assert rest(world, client, 1) == []


class TestReschedule:
    @both
    def test_later_and_earlier(self, passed: bool) -> None:
        world, client = with_delayed("T/g", passed=passed)
        ok(client, http("/T/g?cmd=reschedule&offset=1&delay=9000"))
        ok(client, http(f"/T/g?cmd=reschedule&offset=3&deliver_at={EPOCH_MS + 1_000}"))
        assert rest(world, client) == ([] if passed else [b"0", b"2", b"4"])
        assert rest(world, client, 999) == []
        assert rest(world, client, 1) == [b"3"]
        assert rest(world, client, 7_999) == []
        assert rest(world, client, 1) == [b"1"]

    def test_into_the_past_is_now(self) -> None:
        world, client = with_delayed("T/g", passed=True)
        assert order(client, "reschedule", f"offset=1&deliver_at={EPOCH_MS - 1}") == 1
        ok(client, http("/T/g?cmd=reschedule&offset=3&delay=0"))
        assert rest(world, client) == [b"1", b"3"]

    def test_a_delay_wins(self) -> None:
        world, client = with_delayed("T/g", passed=True)
        ok(client, http(f"/T/g?cmd=reschedule&offset=1&delay=100&deliver_at={EPOCH_MS + 9_000}"))
        assert rest(world, client, 100) == [b"1"]

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("", "reschedule needs delay or deliver_at"),
            ("delay=", "reschedule needs delay or deliver_at"),
            (f"delay={TEN_YEARS_MS + 1}", None),
            ("delay=-1", None),
            ("delay=1e3", None),
            (
                f"deliver_at={EPOCH_MS + TEN_YEARS_MS + 1}",
                "deliver_at is more than ten years ahead",
            ),
            ("deliver_at=9223372036854775808", None),
        ],
    )
    def test_no_such_time(self, query: str, text: str | None) -> None:
        world, client = with_delayed("T/g", passed=True)
        status, told = refused(client, http(f"/T/g?cmd=reschedule&offset=1&{query}"))
        assert status == 400
        assert told.startswith("400: Bad Format, ")
        assert text is None or told == f"400: Bad Format, {text}"
        assert rest(world, client, 5_000) == [b"1", b"3"], "nothing is lost"

    def test_ten_years(self) -> None:
        _, client = with_delayed("T/g", passed=True)
        assert order(client, "reschedule", f"offset=1&deliver_at={EPOCH_MS + TEN_YEARS_MS}") == 1

    @both
    def test_it_outlives_a_restart(self, passed: bool) -> None:
        world, client = with_delayed("T/g", passed=passed)
        ok(client, http("/T/g?cmd=reschedule&offset=1&delay=9000"))
        again = restart(world)
        reader = again.connect()
        assert b"1" not in rest(again, reader, 8_999)
        assert rest(again, reader, 1) == [b"1"]


class TestById:
    def test_each(self) -> None:
        world, client = declared("T/g?dedupe_ms=60000&partitions=3")
        for id in ("a", "b", "c", "d"):
            ok(client, http(f"/T?id={id}&delay=5000", body=id.encode(), method="POST"))
        assert order(client, "cancel", "msgid=a") == 1
        assert order(client, "delete", "id=b") == 1, "in a URL it is the message's"
        ok(client, cmd("fire", "topic: T", "group: g", "msgid: c", "id: of the request"))
        assert drain(client, "/T/g") == [b"c"]
        assert rest(world, client, 5_000) == [b"d"]

    @pytest.mark.parametrize("command", ALL)
    def test_unknown(self, command: str) -> None:
        world, client = declared("T/g?dedupe_ms=1000", "U/g")
        ok(client, http("/T?id=a&delay=90000", body=b"a", method="POST"))
        text = "404: no message with the id x was stored in the last 1000 ms"
        assert refusal(client, command, "msgid=x") == (404, text)
        text = "400: Bad Format, U does not keep ids (dedupe_ms is off): use the offset"
        assert refusal(client, command, "msgid=a", "/U/g") == (400, text)
        text = "400: Bad Format, offset and msgid name a message: give one"
        assert refusal(client, command, "msgid=a&offset=0") == (400, text)
        text = "400: Bad Format, Message.Id length should be <= 39"
        assert refusal(client, command, f"msgid={'x' * 40}") == (400, text)
        world.advance(1_000)
        assert refusal(client, command, "msgid=a")[0] == 404, "forgotten"


class TestRefused:
    @pytest.mark.parametrize("command", ALL)
    def test_what_is_not_there(self, command: str) -> None:
        world, client = with_delayed("T/g", passed=False)
        text = "404: partition 0 has offsets 0 to 5"
        assert refusal(client, command, "offset=5") == (404, text)
        assert refusal(client, command, "offset=9-20") == (404, text)
        text = "404: Partition(1) Not Found"
        assert refusal(client, command, "offset=0&partition=1") == (404, text)
        assert refusal(client, command, "offset=0", "/T/x") == (
            404,
            "404: ConsumeGroup(x) Not Found",
        )
        assert refusal(client, command, "offset=0", "/X/g") == (404, "404: Topic(X) Not Found")
        text = "400: Bad Format, Missing topic"
        assert refusal(client, command, "offset=0", "/") == (400, text)
        assert refusal(client, command, "") == (400, "400: Bad Format, Missing offset")
        for offsets in ("1,", "3-1", "-1", "a", "0-10000"):
            assert refusal(client, command, f"offset={offsets}")[0] == 400
        assert rest(world, client, 5_000) == [b"0", b"1", b"2", b"3", b"4"], "nothing is lost"

    def test_what_is_finished_cannot_be_deleted(self) -> None:
        _, client = with_delayed("T/g", passed=True)
        text = "404: offset 0 is finished in g"
        assert refusal(client, "delete", "offset=0") == (404, text)
        assert refusal(client, "delete", "offset=0,2") == (
            404,
            "404: none of these 2 offsets is unfinished",
        )

    @pytest.mark.parametrize("command", DELAYED)
    def test_what_is_not_delayed(self, command: str) -> None:
        _, client = with_delayed(passed=False)
        text = "409: offset 2 is not delayed (any more): it is ready in g"
        assert refusal(client, command, "offset=2") == (409, text)

    @pytest.mark.parametrize("command", ALL)
    def test_more_than_fits_into_one_turn(self, command: str) -> None:
        _, client = declared("T", "T/b", "T/c")
        put(client, "T", b"0")
        status, text = refusal(client, command, "offset=0-9999", "/T")
        assert status == 429
        assert text.startswith("429: 10000 offsets in 3 groups are more than 20000 at once")

    def test_what_was_forgotten(self) -> None:
        _, client = declared("T/g")
        put(client, "T", b"0")
        ok(client, http("/T?cmd=empty"))
        assert refusal(client, "delete", "offset=0") == (404, "404: partition 0 has offsets 1 to 1")


def test_a_long_log_is_looked_at_from_storage() -> None:
    world, client = declared("T/g")
    lines = b"".join(b"%d\n" % n for n in range(2_000))
    ok(client, http("/T", "content-type: application/x-ndjson", body=lines, method="POST"))
    put(client, "T", b"late", query=LATER)
    again = restart(world)  # nothing is at hand
    client = again.connect()
    assert order(client, "cancel", "offset=0-2000") == 1
    ok(client, http("/T/g?cmd=ack&offset=0-1999"))
    assert rest(again, client, 60_000) == []
