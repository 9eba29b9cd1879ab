"""Searches against a list of all messages, in memory and read back; what stands in their way."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from tests.core.support import Box, CrashJournal, Probe, again, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.filters import compile_filter
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import Searched
from zbus.core.verbs.search import PORTION, SCAN_MAX, Wanted

SIZES = (0, 1, 30, 3_000, PORTION.bytes_max, 3 * PORTION.bytes_max)


def stocked(random: Random) -> tuple[Box, list[tuple[int, Message]]]:
    """A log, and all that is in it."""
    box = Box(CrashJournal())
    box.declare("T", "g")
    known: list[tuple[int, Message]] = []
    for _ in range(random.randrange(12)):
        size = random.choice(SIZES[: random.randrange(1, len(SIZES) + 1)])
        for _ in range(random.choice((1, 3, 40, 700 if size < 100 else 2))):
            tag, key = random.choice((b"", b"a.b", b"c")), random.choice((b"", b"k"))
            headers = random.choice((b"", b"x: 12\r\n", b"xy: 1\r\nz: 2\r\n"))
            body = random.choice((b"one", b"two", b"")) + b"." * size
            message = Message(b"", tag, key, headers, body, box.broker.now_ms)
            known.append((len(known), message))
            box.broker.put(box.partition(), Probe(), make_row(b"", headers, body, tag, key))
        box.settle(random.choice((0, 1, 50)))
    return box, known


def chosen(random: Random, count: int, now_ms: int) -> Wanted:
    some = lambda *values: random.choice((values[0], *values))  # noqa: E731
    return Wanted(
        newest=random.random() < 0.5,
        offset=some(None, random.randrange(count + 2)),
        since_ms=some(0, now_ms - random.randrange(200)),
        until_ms=some(1 << 63, now_ms - random.randrange(200)),
        match=compile_filter(some("", "a.*", "c;x")),
        key=some(None, b"k"),
        header=some(None, (b"x", b""), (b"x", b"2"), (b"z", b"")),
        text=some(b"", b"one", b"o"),
        count=some(100, 20, 70),
        scan=some(SCAN_MAX, 30, 300),
    )


def fits(wanted: Wanted, message: Message) -> bool:
    lines = dict(line.split(b": ") for line in message.headers.split(b"\r\n") if line)
    name, value = wanted.header or (b"", b"")
    return (
        wanted.since_ms <= message.produced_ms < wanted.until_ms
        and (wanted.match is None or wanted.match(message.tag))
        and wanted.key in (None, message.key)
        and (not name or (name in lines and value in lines[name]))
        and wanted.text in message.body
    )


def search(box: Box, wanted: Wanted) -> Searched:
    probe = Probe()
    box.broker.search(probe, box.partition(), wanted)
    for _ in range(200):
        if not probe.open:
            break
        box.settle()
    (outcome,) = probe.answers
    assert isinstance(outcome, Searched)
    return outcome


@pytest.mark.parametrize("seed", range(30))
def test_everything_that_fits_is_found_in_order(seed: int) -> None:
    random = Random(seed)
    box, known = stocked(random)
    for _ in range(6):
        wanted = chosen(random, len(known), box.now_ms)
        found: list[int] = []
        at = wanted.offset
        for _ in range(len(known) + 10):
            said = search(box, attrs.evolve(wanted, offset=at))
            assert len(said.pieces) <= wanted.count
            assert said.scanned <= wanted.scan
            found += [piece.chunk.first for piece in said.pieces]
            at = said.next
            if at is None:
                break
        rows = [row for row in known if fits(wanted, row[1])]
        if wanted.offset is not None:
            before = wanted.newest
            rows = [row for row in rows if (row[0] < wanted.offset) is before]
        expected = [offset for offset, _ in rows]
        assert found == (expected[::-1] if wanted.newest else expected)
        if random.random() < 0.3:
            box = again(box)


def test_what_is_not_durable_is_not_shown() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability="disk"), "g")
    box.settle()
    box.put(b"x")
    box.turn(10)
    assert box.partition().end == 1
    probe = Probe()
    box.broker.search(probe, box.partition(), Wanted(newest=True, offset=9, text=b"x"))
    box.turn()
    (outcome,) = probe.answers
    assert isinstance(outcome, Searched)
    assert (outcome.pieces, outcome.scanned) == ([], 0)


def test_a_topic_that_goes_meanwhile() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g")
    box.put(*[b"x"] * 2_000)
    box.settle()
    probe = Probe()
    box.broker.search(probe, box.partition(), Wanted(text=b"y"))
    box.turn()
    box.broker.remove_topic(Probe(), box.topic())
    box.settle()
    assert refusal(probe).refusal is Refusal.TOPIC_UNKNOWN


def test_a_partition_that_is_read_again() -> None:
    box = LateBox()
    box.put(b"x")
    box.settle()
    probe = Probe()
    box.fail()
    box.broker.search(probe, box.partition(), Wanted(text=b"x"))
    box.turn()
    assert refusal(probe).refusal is Refusal.FENCED
    box.settle()
    assert len(search(box, Wanted(text=b"x")).pieces) == 1


def test_one_portion_of_all_searches_in_a_turn() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g")
    box.put(*[b"x"] * 3 * PORTION.count_max)
    box.settle()
    probes = [Probe() for _ in range(4)]
    for probe in probes:
        box.broker.search(probe, box.partition(), Wanted(text=b"y"))
    turns = 0
    while any(probe.open for probe in probes):
        box.turn()
        turns += 1
    assert turns >= 4 * 3
    box.turn()
    assert box.broker.next_due() != 0, "and then there is peace"
