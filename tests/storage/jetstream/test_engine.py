"""The engine over a stream that says what it likes: what is purged when, and what stays trimmed."""

from __future__ import annotations

from tests.storage.jetstream.scripted import ScriptedStream
from zbus.storage.format.batch import iterate
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.ownership import Claimed, Owner
from zbus.storage.jetstream.stream import Messages, Published, Stored
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import StoredLane, Verdicts
from zbus.testing.engines import Writer

LANE = ("orders", 0)
SUBJECTS = Subjects("test")


class Desk:
    """An engine that owns an empty stream from sequence 1 on."""

    def __init__(self) -> None:
        self.stream = ScriptedStream()
        self.stored: list[Stored] = []
        claimed = Claimed(Owner(1, random="r", kept=1), 1, 0, 0)
        self.failures: list[str] = []
        self.journal = JetStreamJournal(self.stream, SUBJECTS, claimed, self.failures.append)
        self.writer = Writer(LANE)

    def confirm(self) -> None:
        """Store what is published."""
        _, (messages, last), _ = self.stream.asked[0]
        for at, message in enumerate(messages, last + 1):
            self.stored.append(Stored(at, message.subject, message.headers, message.body))
        self.stream.answer("publish", Published(last + len(messages)))

    def commit(self) -> list[Verdicts]:
        answers: list[Verdicts] = []
        self.journal.commit([LANE], True, answers.append)
        self.confirm()
        return answers


def test_a_lane_is_purged_when_its_removal_is_stored() -> None:
    """Until then a crash would leave it half removed."""
    desk = Desk()
    desk.writer.append(desk.journal, desk.writer.checkpoint)
    assert desk.commit() == [{}]
    desk.journal.remove([LANE], lambda: None)
    assert desk.stream.open == ["publish"]
    desk.journal.upkeep(0)
    assert "purge" not in desk.stream.open
    desk.confirm()
    desk.journal.upkeep(1_000)
    assert desk.stream.open.count("purge") == 1


def test_what_was_trimmed_stays_so_when_the_lane_is_opened_again() -> None:
    """The purge may not be done yet."""
    desk = Desk()
    for body in (b"a", b"b"):
        desk.writer.append(desk.journal, desk.writer.checkpoint)
        desk.writer.append(desk.journal, lambda body=body: desk.writer.data(body))  # type: ignore[misc]
    assert desk.commit() == [{}]
    desk.journal.trim(LANE, 1)
    desk.stream.asked.clear()  # no answer to the purge
    found: list[StoredLane] = []
    done: list[object] = []
    desk.journal.open([LANE], found.append, done.append)
    while not done:
        kind, details, _ = desk.stream.asked[0]
        if kind == "newest":
            newest = {one.subject: one for one in desk.stored}
            there = [newest[name] for name in details[0] if name in newest]
            desk.stream.answer("newest", Messages(sorted(there), 99))
        else:
            subject, sequence = details
            name = subject.removesuffix("*")
            rest = [one for one in desk.stored if one.sequence >= sequence]
            there = [one for one in rest if one.subject.startswith(name)]
            desk.stream.answer("read", Messages(there, 99))
    assert done == [None]
    assert len(found) == 1
    answers: list[object] = []
    desk.journal.read(LANE, 0, 1 << 20, answers.append)
    _, (_, sequence), _ = desk.stream.asked[0]
    data = [one for one in desk.stored if one.subject.endswith(".d") and one.sequence >= sequence]
    desk.stream.answer("read", Messages(data, 99))
    (raw,) = answers
    assert isinstance(raw, bytes)
    assert [header.base_offset for header, _ in iterate(raw)] == [1]
