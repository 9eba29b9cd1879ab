"""`history`: how busy a broker was, against what was put and taken; who may see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    declared,
    document,
    http,
    ok,
    pull,
    put,
    refused,
)
from tests.conformance.test_access_matrix import digest
from tests.conformance.test_stats import seconds
from zbus.dialects.zbus.documents import history as module
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Access, Entry, make_grant

STEP_S = 10


def history(client: Client, query: str = "", *lines: str) -> Any:
    return document(ok(client, http(f"/_history?{query}", *lines)))


def steps(world: World, count: int = 1, before: Callable[[], object] = lambda: None) -> None:
    """Let so many steps of 10 s pass, each of them after a call."""
    for _ in range(count):
        before()
        seconds(world, STEP_S)


def test_an_hour_of_a_topic_and_a_group() -> None:
    world, client = declared("T", "T/g?group_ack=1&group_max_attempts=1", "Other")
    steps(world)
    steps(world, 3, lambda: put(client, "T", b"1234567890", b"1", b"2", b"3"))
    pull(client, "/T/g", "on_loss=keep&lease=1h")
    pull(client, "/T/g", "on_loss=keep&lease=1h")
    ok(client, http("/T/g?cmd=ack&offset=0"))
    steps(world)
    found = history(client, "topic=T")
    assert (found["span"], found["stepMs"], found["topic"]) == ("hour", 10_000, "T")
    assert found["in"] == [None, 0.0, 0.4, 0.4, 0.4, 0.0][-len(found["in"]) :]
    assert found["backlog"][-2:] == [12, 11]
    assert found["out"][-1] == 0.2
    assert found["acked"][-1] == 0.1
    assert sum(rate or 0 for rate in found["bytes"]) * 10 > 3 * 13
    group = history(client, "topic=T&consume_group=g")
    assert group["consume_group"] == "g"
    assert (group["ready"][-1], group["leased"][-1], group["dead"][-1]) == (10, 1, 0)
    assert group["out"][-1] == 0.2
    assert "in" not in group
    ok(client, http("/T/g?cmd=nack&offset=1"))  # its only attempt
    steps(world)
    assert history(client, "topic=T&consume_group=g")["dead"][-1] == 1
    whole = history(client)
    assert "topic" not in whole
    assert whole["in"] == history(client, "topic=T")["in"], "nothing else moved"
    assert history(client, "topic=Other")["in"][-1] == 0


def test_a_value_is_of_the_step_that_it_stands_for() -> None:
    world, client = declared("T")
    steps(world, 2)
    put(client, "T", b"1")
    put_ms = world.now_ms
    steps(world, 5)
    found = history(client, "topic=T")
    [at] = [n for n, rate in enumerate(found["in"]) if rate]
    begin_ms = found["start"] + at * found["stepMs"]
    assert begin_ms - 1_000 <= put_ms + 10_000
    assert put_ms <= begin_ms + found["stepMs"]
    assert found["start"] + len(found["in"]) * found["stepMs"] > world.now_ms


@pytest.mark.parametrize(("span", "step_s", "count"), [("day", 300, 288), ("week", 1_800, 336)])
def test_longer_spans(span: str, step_s: int, count: int) -> None:
    world, client = declared("T", "T/g")
    steps(world, 1)
    steps(world, 2 * step_s // STEP_S, lambda: put(client, "T", b"x"))
    found = history(client, f"topic=T&span={span}")
    assert found["stepMs"] == step_s * 1_000
    assert found["start"] % found["stepMs"] == 0
    assert found["in"][1] == 0.1, "a whole step"
    assert found["backlog"] == sorted(found["backlog"]), "the largest of each"
    assert len(found["in"]) <= count


def test_a_topic_that_is_made_is_counted_from_its_first_message() -> None:
    world, client = declared("A")
    steps(world, 2)
    ok(client, http("/New?cmd=declare"))
    put(client, "New", b"1", b"2")
    steps(world)
    assert history(client, "topic=New")["in"][-1] == 0.2
    assert history(client)["in"][-1] == 0.2
    ok(client, http("/New?cmd=remove"))
    ok(client, http("/New?cmd=declare"))
    steps(world)
    assert history(client, "topic=New")["in"] == [0.0], "it is another one"


def test_a_group_that_begins_at_the_end_has_taken_nothing() -> None:
    world, client = declared("T", "T/g")
    put(client, "T", *[b"x"] * 50)
    steps(world, 2)
    ok(client, http("/T/late?cmd=declare&from=latest"))
    steps(world, 2)
    assert history(client, "topic=T&consume_group=late")["out"] == [None, 0.0]
    assert history(client, "topic=T")["out"][-1] == 0.0


def test_a_group_that_moves_back_takes_nothing() -> None:
    world, client = declared("T", "T/g")
    put(client, "T", b"1", b"2", b"3")
    steps(world)
    pull(client, "/T/g")
    steps(world)
    ok(client, http("/T/g?cmd=seek&from=earliest"))
    steps(world)
    assert history(client, "topic=T&consume_group=g")["out"][-2:] == [0.1, 0.0]


def test_a_broker_that_was_busy_or_suspended() -> None:
    world, client = declared("T")
    steps(world, 2)
    put(client, "T", *[b"x"] * 60)
    world.advance(30_000)  # nothing was looked at
    seconds(world)
    assert history(client, "topic=T")["in"][-3:] == [2.0, 2.0, 2.0], "the mean of the time"
    put(client, "T", *[b"x"] * 10)
    world.advance(900_000)
    seconds(world)
    found = history(client, "topic=T")["in"]
    assert found[-60:-1] == [None] * 59, "and for longer it is not known"


def test_the_busiest_have_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 4)
    world, client = declared(*[f"T{number}" for number in range(6)])

    def untracked() -> list[bool]:
        found = [history(client, f"topic=T{number}") for number in range(6)]
        return ["untracked" in each for each in found]

    steps(world)
    assert untracked() == [False] * 4 + [True] * 2
    steps(world, 2, lambda: put(client, "T5", b"1"))
    assert [untracked()[5], sum(untracked())] == [False, 2]
    kept = untracked()
    steps(world, 6, lambda: put(client, "T5", b"1"))
    assert untracked() == kept
    assert len(history(client, "topic=T5")["in"]) > 6
    assert history(client)["in"][-1] == 0.1
    ok(client, http("/T5?cmd=remove"))
    steps(world, 2)
    ok(client, http("/T5?cmd=declare"))
    steps(world, 2)
    assert sum(untracked()) == 2, "its place was free, and is taken again"


def test_over_a_restart_there_is_a_gap() -> None:
    world, client = declared("T", "T/g")
    steps(world, 3, lambda: put(client, "T", b"1"))
    recorder = world.dialect.history
    assert recorder is not None
    world.flush()
    before = history(client, "topic=T")
    later = World(world.journal, now_ms=world.now_ms + 100_000)
    again = later.dialect.history
    assert again is not None
    again.load(recorder.save()())
    client = later.connect()
    assert history(client)["in"] != []
    steps(later, 2)
    found = history(client, "topic=T")
    assert found["start"] == before["start"]
    known = len(before["in"])
    assert found["in"][: known - 1] == before["in"][: known - 1]
    assert found["in"][known : known + 8] == [None] * 8
    assert (found["in"][-1], found["backlog"][-1]) == (0.0, 3)
    assert later.dialect.holds()["rates"]() > 0


def test_a_broker_that_ends_before_it_has_looked_forgets_nothing() -> None:
    world, client = declared("T", "T/g")
    steps(world, 3, lambda: put(client, "T", b"1"))
    recorder = world.dialect.history
    assert recorder is not None
    saved = recorder.save()()
    for looks in (False, True):
        later = World(world.journal, now_ms=world.now_ms)
        again = later.dialect.history
        assert again is not None
        again.load(saved)
        if looks:
            again.look()
        saved = again.save()()
    last = World(world.journal, now_ms=world.now_ms)
    again = last.dialect.history
    assert again is not None
    again.load(saved)
    steps(last)
    assert history(last.connect(), "topic=T")["in"] == history(client, "topic=T")["in"] + [0.0]


def test_many_topics_are_looked_at_little_by_little() -> None:
    """With all of their groups; and what is removed meanwhile is not missed."""
    world, client = declared(*[f"T{n}/g?partitions=2" for n in range(150)], "Last/g")
    recorder = world.dialect.history
    assert recorder is not None
    steps(world, 2)
    put(client, "T149", b"x")

    def ready() -> int:
        found = history(client, "topic=T149&consume_group=g")["ready"]
        return [each for each in found if each is not None][-1]  # that of now may not be known

    world.now_ms += 10_000
    world.broker.begin(world.now_ms)
    recorder.look()
    assert ready() == 0, "its turn is to come"
    world.advance(8_000)
    assert ready() == 1
    world.advance(2_000)
    recorder.look()
    for number in range(150):
        ok(client, http(f"/T{number}?cmd=remove"))
    ok(client, http("/Last?cmd=remove"))
    world.advance(8_000)
    recorder.look()
    assert [each for each in history(client)["backlog"] if each is not None][-1] == 0


def test_what_was_saved_under_a_clock_that_is_ahead_is_left_out() -> None:
    world, client = declared("T")
    steps(world, 400, lambda: put(client, "T", b"1"))
    recorder = world.dialect.history
    assert recorder is not None
    earlier, client = declared("T")
    again = earlier.dialect.history
    assert again is not None
    again.load(recorder.save()())
    steps(earlier, 3)
    for query in ("", "topic=T"):
        assert history(client, query)["in"][:2] == [None, 0.0]


@pytest.mark.parametrize("data", [b"", b"\x93", b"\x93\xa1x\x00\x90", b"x" * 100])
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    recorder = World().dialect.history
    assert recorder is not None
    with pytest.raises(ValueError, match=r"."):
        recorder.load(data)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("span=hour", 200),
        ("span=", 200),
        ("span=year", 400),
        ("topic=T&span=week", 200),
        ("topic=t", 200),
        ("topic=None", 404),
        ("topic=T&consume_group=none", 404),
        ("consume_group=g", 400),
        ("group=g&topic=T", 200),
        ("topic=T&consume_group=T", 200),  # nobody has asked for it
    ],
)
def test_requests(query: str, status: int) -> None:
    world, client = declared("T", "T/g")
    for _ in range(2):
        assert client.request(http(f"/_history?{query}")).status == status
        assert client.request(http(f"/?cmd=history&{query}")).status == status
        steps(world)


def test_it_can_be_off() -> None:
    world = World(settings=ZbusSettings(history="off"))
    client = world.connect()
    seconds(world, 2)
    assert refused(client, http("/_history"))[0] == 404
    assert "rates" not in world.dialect.holds()


def test_rights() -> None:
    grants = {
        "all": make_grant("all", ["server"], {"*": []}),
        "some": make_grant("some", ["server"], {"Orders": ["billing"], "Mine": []}),
        "none": make_grant("none", ["query", "consume"], {"*": []}),
        "admin": make_grant("admin", ["admin"], {}),
    }
    world = World(access=Access([Entry(g, (digest(name),)) for name, g in grants.items()]))
    client = world.connect()
    for path in ("Orders", "Orders/billing", "Orders/audit", "Mine"):
        ok(client, http(f"/{path}?cmd=declare", "token: admin"))
    allowed = {
        "": ["all", "admin"],
        "topic=Orders": ["all", "admin"],  # all of its groups are in it
        "topic=Orders&consume_group=billing": ["all", "some", "admin"],
        "topic=Orders&consume_group=audit": ["all", "admin"],
        "topic=Mine": ["all", "some", "admin"],
    }
    for query, names in allowed.items():
        for name in grants:
            status = client.request(http(f"/_history?{query}", f"token: {name}")).status
            assert status == (200 if name in names else 403), (query, name)
