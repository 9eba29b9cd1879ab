"""The verbs that put: which puts end together, and what each stores."""

from __future__ import annotations

import pytest

from tests.core.support import Box, CrashJournal, Probe, cool, refusal
from tests.records import records_of
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import Duplicate, Peeked, Stored


@pytest.fixture
def box() -> Box:
    box = Box(CrashJournal(), limits=Limits(message_bytes_max=100, batch_messages_max=5))
    box.declare("T", "g")
    box.settle()
    return box


def put(box: Box, body: bytes, ticket: Probe | None = None) -> Probe:
    ticket = ticket or Probe()
    box.broker.put(box.partition(), ticket, make_row(b"", b"", body))
    return ticket


def put_along(box: Box, ticket: Probe, body: bytes) -> bool:
    return box.broker.put_along(box.partition(), ticket, make_row(b"", b"", body))


def put_along_with_key(box: Box, ticket: Probe, body: bytes, once: bytes) -> bool:
    return box.broker.put_along(box.partition(), ticket, make_row(b"", b"", body, once=once))


def stored(box: Box) -> list[Message]:
    probe = Probe()
    box.broker.browse(probe, box.partition(), 0, 100)
    (answer,) = probe.answers
    assert isinstance(answer, Peeked)
    return [record.message for record in records_of(answer.pieces)]


def test_puts_under_one_ticket_end_together(box: Box) -> None:
    before, ticket = put(box, b"0"), put(box, b"1")
    assert all(put_along(box, ticket, b"%d" % number) for number in range(2, 6))
    after = put(box, b"6")
    box.settle()
    assert [probe.offset for probe in (before, ticket, after)] == [0, 1, 6]
    assert all(len(probe.answers) == 1 for probe in (before, ticket, after))
    assert [message.body for message in stored(box)] == [b"%d" % number for number in range(7)]


def test_a_put_goes_along_only_with_the_one_right_before(box: Box) -> None:
    partition, ticket = box.partition(), put(box, b"0")
    others = [Probe() for _ in range(3)]
    between = [
        lambda: put(box, b"1"),
        lambda: box.broker.put_all(partition, others[0], Chunk.of([Message(b"", body=b"2")])),
        lambda: box.broker.put_all(
            partition, others[1], Chunk.of([Message(b"", body=b"3", once=b"k")])
        ),
        # The same again: nothing is stored, but it is answered with what is put in this turn.
        lambda: box.broker.put(partition, others[2], make_row(b"", b"", b"3", once=b"k")),
        lambda: box.turn(),
    ]
    for step in between:
        assert put_along(box, ticket, b"along")
        step()
        assert not put_along(box, ticket, b"not along")
        ticket = put(box, b"new")
    box.settle()
    bodies = [message.body for message in stored(box)]
    assert bodies.count(b"along") == len(between)
    assert b"not along" not in bodies
    assert not any(probe.open for probe in (ticket, *others))


def test_a_put_does_not_go_along_with_one_that_ended(box: Box) -> None:
    ticket = Probe()
    assert not put_along(box, ticket, b"never put")
    put(box, b"0", ticket)
    box.broker.remove_topic(Probe(), box.topic())
    assert refusal(ticket).refusal is Refusal.TOPIC_UNKNOWN
    box.declare("T", "g")
    assert not put_along(box, ticket, b"removed")
    box.settle()
    assert stored(box) == []


def test_what_goes_along_is_refused_with_its_ticket(box: Box) -> None:
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    journal.full = True
    ticket = put(box, b"0")
    assert put_along(box, ticket, b"1")
    box.settle()
    assert refusal(ticket).refusal is Refusal.FULL
    assert (box.partition().end, box.take()) == (0, [])
    journal.full = False
    again = put(box, b"2")
    box.settle()
    assert (again.offset, again.fine) == (0, True)


@pytest.mark.parametrize("before", [0, 1], ids=["the first of its turn", "not the first"])
def test_a_message_that_cannot_be_added_is_not_counted(
    before: int, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of the program. Those behind it would be at offsets that the log does not have:
    acknowledged, and lost."""
    tickets = [put(box, b"before") for _ in range(before)]
    doomed = Probe()

    def fail(*row: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Chunk, "add", fail)
        with pytest.raises(MemoryError):
            put(box, b"doomed", doomed)
    box.settle()
    tickets += [put(box, b"behind"), put(box, b"too")]
    box.settle()
    tickets.append(put(box, b"later"))
    box.settle()
    assert box.take() == [*[b"before"] * before, b"behind", b"too", b"later"]
    assert [ticket.offset for ticket in tickets] == list(range(before + 3))
    assert not doomed.answers
    assert doomed not in box.partition().puts


def test_a_key_is_not_remembered_of_what_cannot_be_added(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the same put again would be acknowledged, and stored nowhere."""
    row = make_row(b"", b"", b"again", once=b"k")
    put(box, b"before")

    def fail(*other: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Chunk, "extend", fail)
        with pytest.raises(MemoryError):
            box.broker.put(box.partition(), Probe(), row)
    ticket = Probe()
    box.broker.put(box.partition(), ticket, row)
    box.settle()
    assert isinstance(ticket.answers[0], Stored)
    assert box.take() == [b"before", b"again"]


def test_the_limits_are_those_of_every_verb(box: Box) -> None:
    partition, large = box.partition(), bytes(101)
    probes = [Probe() for _ in range(5)]
    box.broker.put(partition, probes[0], make_row(b"", b"", large))
    box.broker.put_all(partition, probes[1], Chunk.of([Message(b""), Message(b"", body=large)]))
    box.broker.put_all(partition, probes[2], Chunk.of([Message(b"", body=large)]))
    box.broker.put(partition, probes[3], make_row(b"", b"", large, once=b"k"))
    box.broker.put_all(partition, probes[4], Chunk.of([Message(b"")] * 6))
    whys = [refusal(probe).refusal for probe in probes]
    assert whys == [Refusal.TOO_LARGE] * 4 + [Refusal.ILLEGAL]
    empty = Probe()
    box.broker.put_all(partition, empty, Chunk())
    assert refusal(empty).refusal is Refusal.ILLEGAL
    ticket = put(box, bytes(100))
    assert not put_along(box, ticket, large)
    box.settle()
    assert ticket.fine
    assert [len(message.body) for message in stored(box)] == [100]


def test_what_can_never_be_put_is_told_so_whatever_else_refuses_it() -> None:
    box = Box(CrashJournal(), limits=Limits(message_bytes_max=9, topic_messages_per_s=2))
    box.declare("T", "g")
    box.settle()
    box.broker.refuse_puts(BrokerError(Refusal.FULL, "full"), None)
    assert refusal(put(box, bytes(10))).refusal is Refusal.TOO_LARGE
    assert refusal(put(box, b"fits")).refusal is Refusal.FULL
    box.broker.refuse_puts(None, None)
    assert put(box, b"second").open
    assert refusal(put(box, b"third")).refusal is Refusal.THROTTLED
    assert refusal(put(box, bytes(10))).refusal is Refusal.TOO_LARGE


@pytest.mark.parametrize("durability", ["memory", "os"])
def test_nothing_is_put_while_the_broker_refuses(durability: str) -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability=durability), "g")
    known = Probe()
    box.broker.put(box.partition(), known, make_row(b"", b"", b"known", once=b"k"))
    box.settle()
    assert known.fine
    full = BrokerError(Refusal.FULL, "no")
    box.broker._puts.refusing = full
    partition = box.partition()
    for in_memory in (None, full):
        box.broker._puts.refusing_in_memory = in_memory
        refused = in_memory is not None or durability != "memory"
        probes = [Probe() for _ in range(4)]
        box.broker.put(partition, probes[0], make_row(b"", b"", b"x"))
        box.broker.put_all(partition, probes[1], Chunk.of([Message(b"")]))
        box.broker.put_all(partition, probes[2], Chunk.of([Message(b"")]))
        key = b"new when %d" % refused
        box.broker.put(partition, probes[3], make_row(b"", b"", b"x", once=key))
        again = Probe()
        box.broker.put(partition, again, make_row(b"", b"", b"known", once=b"k"))
        box.settle()
        assert again.offset == 0, "what was stored before is answered"
        assert not isinstance(again.answers[0], BrokerError)
        assert [isinstance(probe.answers[0], Stored) for probe in probes] == [not refused] * 4


def test_all_columns_are_stored_whatever_the_order_of_the_verbs(box: Box) -> None:
    """A chunk has plain rows first, then some with labels, then plain ones again."""
    partition, now_ms = box.partition(), box.now_ms
    put(box, b"plain")
    box.broker.put(partition, Probe(), make_row(b"id", b"a: 1\r\n", b"labels", b"tag", b"key"))
    put(box, b"plain again")
    timed = Message(b"", headers=b"b: 2\r\n", body=b"timed", due_ms=now_ms + 5, expires_ms=1 << 50)
    box.broker.put_all(partition, Probe(), Chunk.of([timed]))
    box.broker.put(partition, Probe(), make_row(b"", b"", b"once", once=b"k"))
    ticket = put(box, b"first of two")
    assert put_along(box, ticket, b"second of two")
    box.settle()
    expected = [
        Message(b"0-0", body=b"plain"),
        Message(b"id", b"tag", b"key", b"a: 1\r\n", b"labels"),
        Message(b"0-2", body=b"plain again"),
        Message(b"0-3", b"", b"", b"b: 2\r\n", b"timed", 0, now_ms + 5, 1 << 50),
        Message(b"0-4", body=b"once", once=b"k"),
        Message(b"0-5", body=b"first of two"),
        Message(b"0-6", body=b"second of two"),
    ]
    for message in expected:
        message.produced_ms = now_ms
    assert stored(box) == expected
    (chunk,) = partition.log.chunks
    assert [chunk.id_of(at, 0) for at in range(7)] == [message.id for message in expected]
    for message in expected:
        message.id = b"" if message.id.startswith(b"0-") else message.id
    assert chunk.messages() == expected
    cool(box)
    box.settle(10)
    assert len(box.take()) == 7


def test_puts_with_keys_under_one_ticket(box: Box) -> None:
    """One that is known, from now or before, does not go along; what goes along becomes known."""
    broker, partition = box.broker, box.partition()
    broker.put(partition, Probe(), make_row(b"", b"", b"0", once=b"old"))
    box.settle()
    ticket, known, reused = Probe(), Probe(), Probe()
    broker.put(partition, ticket, make_row(b"", b"", b"1", once=b"a"))
    assert put_along_with_key(box, ticket, b"2", b"b")
    for once in (b"old", b"a", b"b"):
        assert not put_along_with_key(box, ticket, b"2", once)
    assert not put_along_with_key(box, ticket, bytes(101), b"large")
    broker.put(partition, known, make_row(b"", b"", b"2", once=b"b"))
    assert not put_along_with_key(box, ticket, b"3", b"c"), "another is the last by now"
    broker.put(partition, reused, make_row(b"", b"", b"other", once=b"a"))
    box.settle()
    assert ticket.fine
    assert (ticket.offset, known.offset) == (1, 2)
    assert isinstance(known.answers[0], Duplicate)
    assert isinstance(reused.answers[0], BrokerError)
    assert reused.answers[0].refusal is Refusal.REUSED
    assert [(message.body, message.once) for message in stored(box)] == [
        (b"0", b"old"),
        (b"1", b"a"),
        (b"2", b"b"),
    ]
