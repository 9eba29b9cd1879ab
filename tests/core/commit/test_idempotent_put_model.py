"""Any puts, with keys, ids and expectations, against a dictionary: with crashes, a full journal,
purges, and time that goes on. What the dictionary says is what every ticket ends with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe
from tests.limits import examples
from tests.records import records_of
from zbus.core.cursor.state import TopicOptions
from zbus.core.dedup.window import KEY_MS
from zbus.core.model.chunk import Chunk, implied_id, make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import Duplicate, Peeked, Stored
from zbus.core.verbs.puts import PutOptions

Name = tuple[str, bytes]  # its kind, and the id or key


@dataclass
class Put:
    """A put that stored something."""

    index: int
    offset: int
    messages: list[Message]
    names: list[tuple[Name, int]]  # with the offset
    time_ms: int
    content: list[tuple[bytes, bytes]]


@dataclass
class Asked:
    """A put, and how it has to end unless there is no room."""

    probe: Probe
    expected: tuple[object, ...]
    durable: list[tuple[int, int]]  # what an answer promises: partitions and their least ends


@dataclass
class Model:
    box: Box
    dedupe_ms: int
    puts: list[Put] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    promised: dict[int, int] = field(default_factory=dict)  # partition -> least end

    def find(self, name: Name) -> tuple[Put, int] | None:
        remember_ms = self.dedupe_ms or KEY_MS
        for put in self.puts:
            if put.time_ms + remember_ms > self.box.now_ms:
                for own, offset in put.names:
                    if own == name:
                        return put, offset
        return None

    def put(
        self,
        key: bytes,
        ids: list[bytes],
        body: bytes,
        route: bytes,
        expected: int | None,
        short: bool,
    ) -> None:
        box = self.box
        topic = box.topic()
        partition = topic.partition_for(route)
        messages = [Message(id, b"", route, b"a: b\r\n", body, box.now_ms, once=key) for id in ids]
        content = [(message.key, message.body) for message in messages]
        expected_offset = None if expected is None else max(0, partition.end + expected)
        probe = Probe()
        end = partition.end
        if short and key and len(ids) == 1 and expected is None:
            one = messages[0]
            row = make_row(one.id, one.headers, one.body, one.tag, one.key, once=one.once)
            box.broker.put(partition, probe, row)
        else:
            box.broker.put_all(
                partition, probe, Chunk.of(messages), PutOptions(expected_offset=expected_offset)
            )

        fresh, known = messages, []
        if key:
            found = self.find(("key", key))
            if found is not None:
                if found[0].content != content:
                    self.asked.append(Asked(probe, (Refusal.REUSED,), []))
                    return
                fresh, known = [], [found]
        elif self.dedupe_ms:
            places = {id: self.find(("id", id)) if id else None for id in ids}
            known = [place for id in ids if (place := places[id]) is not None]
            fresh = [
                message
                for position, message in enumerate(messages)
                if places[message.id] is None and not (message.id and message.id in ids[:position])
            ]
        if fresh and expected_offset is not None and expected_offset != end:
            # The end that it names is one that no crash takes back, nor a full disk.
            end_there = [(partition.index, end)]
            self.asked.append(Asked(probe, (Refusal.CONFLICT, str(end)), end_there))
            return
        durable = [(put.index, offset + 1) for put, offset in known]
        if fresh:
            names: list[tuple[Name, int]] = []
            if self.dedupe_ms and not key:
                names += [(("id", m.id), end + n) for n, m in enumerate(fresh) if m.id]
            if key:
                names.append((("key", key), end))
            put = Put(partition.index, end, fresh, names, box.now_ms, content)
            self.puts.append(put)
            durable.append((partition.index, end + len(fresh)))
        elif key:
            durable = [(known[0][0].index, known[0][1] + len(messages))]
        offset, index = (end, partition.index) if fresh else (known[0][1], known[0][0].index)
        kind: type = Stored if len(fresh) == len(messages) else Duplicate
        count = () if kind is Stored else (len(messages) - len(fresh),)
        self.asked.append(Asked(probe, (kind, index, offset, *count), durable))

    def look(self) -> None:
        """After a turn, or a crash: what found no room, or was not kept, was never there."""
        ends = [partition.end for partition in self.box.topic().partitions]
        for put in self.puts:
            whole = put.offset + len(put.messages)
            assert whole <= ends[put.index] or put.offset >= ends[put.index], "all or none"
        self.puts = [put for put in self.puts if put.offset < ends[put.index]]
        waiting = []
        for asked in self.asked:
            if asked.probe.open:
                waiting.append(asked)
                continue
            answer = asked.probe.answers[-1]
            if isinstance(answer, BrokerError) and answer.refusal is Refusal.FULL:
                assert asked.durable
                continue
            assert told(asked.probe) == asked.expected
            for index, end in asked.durable:
                self.promised[index] = max(end, self.promised.get(index, 0))
                assert self.box.partition(index=index).visible >= end, "durable when told"
        self.asked = waiting

    def crash(self, keep: int) -> None:
        assert isinstance(self.box.journal, CrashJournal)
        journal = self.box.journal.crash(lambda lane, unsynced: unsynced * keep // 4)
        self.asked = []
        self.box = Box(journal, now_ms=self.box.now_ms, segment_bytes_max=3_000)
        for index, end in self.promised.items():
            assert self.box.partition(index=index).end >= end, "what was told is there"

    def compare(self) -> None:
        """The log is what was put, each once."""
        for partition in self.box.topic().partitions:
            stored = {
                put.offset + n: message
                for put in self.puts
                if put.index == partition.index
                for n, message in enumerate(put.messages)
            }
            assert set(range(partition.first, partition.end)) <= set(stored)
            at = partition.first
            while at < partition.visible:
                probe = Probe()
                self.box.broker.browse(probe, partition, at, 1_000)
                (answer,) = probe.answers
                assert isinstance(answer, Peeked)
                records = records_of(answer.pieces)
                for record in records:
                    put = stored[record.offset]
                    put.id = put.id or implied_id(partition.index, record.offset)
                    assert record.message == put
                at += len(records)
            assert at == partition.visible


def told(probe: Probe) -> tuple[object, ...]:
    answer = probe.answers[-1]
    if isinstance(answer, BrokerError):
        return (answer.refusal, answer.name) if answer.name else (answer.refusal,)
    assert isinstance(answer, Stored | Duplicate)
    count = () if isinstance(answer, Stored) else (answer.count,)
    return (type(answer), answer.partition.index, probe.offset, *count)


PUTS = st.tuples(
    st.just("put"),
    st.sampled_from([b"", b"", b"k1", b"k2", b"k3"]),
    st.lists(st.sampled_from([b"", b"1", b"2", b"3", b"4", b"5"]), min_size=1, max_size=3),
    st.sampled_from([b"x", b"x", b"y"]),
    st.sampled_from([b"", b"", b"r1", b"r2"]),
    st.sampled_from([None, None, None, 0, 0, 1, -1]),
    st.booleans(),
)
STEPS = st.one_of(
    PUTS,
    PUTS,
    PUTS,
    PUTS,
    st.tuples(st.just("turn"), st.sampled_from([0, 1, 30, 99, 100, 400_000])),
    st.tuples(st.just("release"), st.integers(1, 3)),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("crash"), st.integers(0, 4)),
    st.tuples(st.just("purge")),
)


@pytest.fixture(autouse=True, scope="module")
def many_snapshots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zbus.core.persistence.storage.SNAPSHOT_EVERY_BYTES", 100)
        yield


@pytest.mark.parametrize(("partitions", "dedupe_ms"), [(1, 0), (1, 100), (3, 0), (3, 100)])
@examples(60)
@given(steps=st.lists(STEPS, min_size=20, max_size=60))
def test_puts_are_what_the_dictionary_says(
    partitions: int, dedupe_ms: int, steps: list[tuple[object, ...]]
) -> None:
    box = Box(CrashJournal(), segment_bytes_max=3_000)
    box.declare(TopicOptions("T", partitions=partitions, dedupe_ms=dedupe_ms))
    box.settle()
    model = Model(box, dedupe_ms)
    for name, *values in steps:
        box = model.box
        assert isinstance(box.journal, CrashJournal)
        if name == "put":
            model.put(*values)  # type: ignore[arg-type]  # the table says what they are
            continue
        if name == "turn":
            assert isinstance(values[0], int)
            box.turn(values[0])
        elif name == "release":
            assert isinstance(values[0], int)
            box.journal.release(values[0])
        elif name == "full":
            box.journal.full = bool(values[0])
        elif name == "purge":
            box.broker.purge_topic(Probe(), box.topic())
            box.turn()
        else:
            box.turn()
            model.look()
            assert isinstance(values[0], int)
            model.crash(values[0])
        model.look() if name != "full" else None
    assert isinstance(model.box.journal, CrashJournal)
    model.box.journal.full = False
    model.box.settle()
    model.look()
    assert not model.asked, "every ticket has ended"
    model.compare()
    model.crash(4)
    model.look()
    model.compare()
