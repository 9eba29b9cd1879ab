"""A declare that has to read for its start position, and what others declare meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.dialogue import World, http, ok
from zbus.core.model.limits import Limits
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Lane, ReadDone


class SlowJournal(MemoryJournal):
    """Answers reads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: list[Callable[[], None]] = []

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        super().read(lane, offset, bytes_max, lambda got: self._asked.append(lambda: done(got)))

    def answer(self, world: World) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            world.posted.extend(asked)
            world.turn()


def cold(limits: Limits | None = None) -> tuple[SlowJournal, World]:
    """A topic T of five messages, a second apart, of which none is in memory."""
    journal = SlowJournal()
    world = World(journal)
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    for _ in range(5):
        world.advance(1_000)
        ok(client, http("/T", body=b"x"))
    return journal, World(journal, now_ms=world.now_ms, limits=limits or Limits())


def test_what_another_declared_meanwhile_stays() -> None:
    journal, world = cold()
    slow, other = world.connect(), world.connect()
    slow.send(http(f"/T/g?cmd=declare&group_start_time={world.now_ms - 2_000}&group_filter=a"))
    ok(other, http("/T/g?cmd=declare&retention_ms=5000&dedupe_ms=60000&topic_mask=8"))
    ok(other, http("/T/g?cmd=declare&group_ack_window=7"))
    journal.answer(world)
    assert [reply.status for reply in slow.replies()] == [200]
    topic = world.broker.topic("T")
    assert topic is not None
    options = topic.options
    assert (options.retention_ms, options.dedupe_ms, options.paused) == (5_000, 60_000, True)
    group = topic.group("g")
    assert group is not None
    assert (group.options.window, group.options.filter) == (7, "a")


def test_a_group_that_another_made_meanwhile_stays_where_it_is() -> None:
    journal, world = cold()
    slow, other = world.connect(), world.connect()
    slow.send(http(f"/T/g?cmd=declare&from=time:{world.now_ms - 2_000}"))
    ok(other, http("/T/g?cmd=declare&from=latest"))
    journal.answer(world)
    assert [reply.status for reply in slow.replies()] == [200]
    topic = world.broker.topic("T")
    assert topic is not None
    group = topic.group("g")
    assert group is not None
    assert group.position() == [5]


def test_the_limit_on_groups_holds() -> None:
    journal, world = cold(Limits(groups_per_topic_max=5))
    client = world.connect()
    for number in range(9):
        start = f"group_start_time={world.now_ms - 2_000}"
        client.send(http(f"/T/g{number}?cmd=declare&{start}&id={number}"))
    world.turn()
    journal.answer(world)
    topic = world.broker.topic("T")
    assert topic is not None
    assert len(topic.groups) == 5
    statuses = [reply.status for reply in client.replies()]
    assert statuses.count(200) == 4
    assert len(statuses) == 9
