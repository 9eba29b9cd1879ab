"""One batch in flight, and what ends a doubt: dialogues with a stream that says what it likes."""

from __future__ import annotations

import logging

import pytest

from tests.storage.jetstream.scripted import ScriptedStream
from zbus.storage.jetstream.committer import (
    AGAIN_MS,
    DELETED_TIMES,
    DOUBT_MS,
    Committer,
    Entry,
    Failure,
)
from zbus.storage.jetstream.stream import (
    Messages,
    Outcome,
    Outgoing,
    Published,
    Stored,
    StreamState,
    Unreachable,
)

LOST = Published(0, Outcome.UNKNOWN, "no answer")
WRONG = Published(0, Outcome.WRONG_SEQUENCE, "wrong last sequence")
NOBODY = Unreachable("no leader")
DELETED = Unreachable("stream not found", deleted=True)


class Desk:
    """A committer behind sequence 10, and what became of it."""

    def __init__(self) -> None:
        self.stream = ScriptedStream()
        self.refused: list[tuple[int, Outcome]] = []
        self.failures: list[tuple[Failure, str]] = []
        self.settled: list[str] = []
        self.committer = Committer(
            self.stream,
            10,
            0,
            lambda entries, outcome, text: self.refused.append((len(entries), outcome)),
            lambda failure, text: self.failures.append((failure, text)),
        )

    def put(self, *bodies: bytes) -> None:
        messages = [Outgoing("s", {"Zb": "1"}, body) for body in bodies]
        self.committer.add(Entry(lambda sequence: messages, len(bodies), 1))
        self.committer.push()
        name = b"".join(bodies).decode()
        self.committer.when_settled(lambda: self.settled.append(name))

    def answer(self, kind: str, *answer: object) -> tuple[object, ...]:
        return self.stream.answer(kind, *answer)


def stored(sequence: int, body: bytes, epoch: str = "1", subject: str = "s") -> Messages:
    return Messages([Stored(sequence, subject, {"Zb": epoch, "Nats-Batch-Id": "x"}, body)])


def test_one_batch_in_flight_and_the_rest_behind_it() -> None:
    desk = Desk()
    for body in (b"a", b"b", b"c"):
        desk.put(body)
    assert desk.stream.open == ["publish"]
    messages, last = desk.answer("publish", Published(11))
    assert (len(messages), last, desk.settled) == (1, 10, ["a"])  # type: ignore[arg-type]
    messages, last = desk.answer("publish", Published(13))
    assert (len(messages), last, desk.settled) == (2, 11, ["a", "b", "c"])  # type: ignore[arg-type]


@pytest.mark.parametrize("sequence", [10, 12, 0, 99])
def test_a_confirmation_of_another_place_ends_the_owner(sequence: int) -> None:
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", Published(sequence))
    assert desk.failures == [(Failure.BROKEN, f"sequence {sequence} was confirmed")]
    assert desk.settled == []


def test_an_answer_that_was_lost_after_it_was_stored() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", LOST)
    assert (desk.committer.in_doubt, desk.settled) == (True, [])
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", StreamState(11, 0, 0))
    assert desk.answer("get", stored(11, b"a")) == (11,)
    assert (desk.settled, desk.committer.last, desk.committer.in_doubt) == (["a"], 11, False)


def test_a_doubt_and_its_end_are_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zbus")
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", WRONG)
    for answer in (Messages([]), Messages([])):
        desk.answer("get", answer)
        desk.stream.wait(DOUBT_MS)
        desk.answer("state", StreamState(11, 0, 0))
    desk.answer("get", stored(11, b"a"))
    desk.put(b"b")
    desk.answer("publish", Published(12))
    desk.put(b"c")
    desk.answer("publish", LOST)
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", StreamState(12, 0, 0))
    desk.answer("publish", Published(0, Outcome.NO_ROOM, "no"))
    lines = [(each.getMessage(), *map(vars(each).get, FIELDS)) for each in caplog.records]
    assert lines == [
        ("write in doubt", 11, "another copy of it is under way", None),
        ("write settled", None, None, 2 * DOUBT_MS),
        ("write in doubt", 13, "no answer", None),
        ("write settled", None, None, DOUBT_MS),
    ]


FIELDS = ("sequence", "why", "after_ms")


def test_what_was_not_stored_is_sent_again_under_the_same_condition() -> None:
    desk = Desk()
    desk.put(b"a")
    first = desk.answer("publish", LOST)
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", NOBODY)
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", StreamState(10, 0, 0))
    assert desk.answer("publish", Published(11)) == first
    assert desk.settled == ["a"]


def test_a_copy_under_way_is_waited_for() -> None:
    """The place is taken, and there is nothing to be read yet: that is not another owner."""
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", WRONG)
    desk.answer("get", NOBODY)
    desk.stream.wait(DOUBT_MS)
    desk.answer("get", Messages([]))
    assert (desk.failures, desk.committer.in_doubt) == ([], True)
    desk.stream.wait(AGAIN_MS)
    desk.answer("state", StreamState(11, 0, 0))
    desk.answer("get", stored(11, b"a"))
    assert (desk.settled, desk.failures) == (["a"], [])


OTHERS = [
    stored(11, b"b"),
    stored(11, b"a", epoch="2"),
    stored(11, b"a", subject="o"),
    Messages([Stored(11, "s", {}, b"a")]),
]


@pytest.mark.parametrize("there", OTHERS)
def test_another_message_in_its_place_is_another_owner(there: Messages) -> None:
    desk = Desk()
    desk.put(b"a")
    desk.put(b"b")
    desk.answer("publish", WRONG)
    desk.answer("get", there)
    assert [failure for failure, _ in desk.failures] == [Failure.TAKEN]
    assert (desk.settled, desk.stream.open) == ([], [])
    desk.put(b"c")
    assert desk.stream.open == []  # nothing more is ever sent


def test_an_end_before_what_was_confirmed() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", LOST)
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", StreamState(9, 0, 0))
    assert desk.failures == [(Failure.WENT_BACK, "it ends at 9, and 10 was confirmed")]


def test_a_stream_that_was_deleted() -> None:
    """A server that has just started may say so by mistake, so once is not enough."""
    desk = Desk()
    desk.put(b"a")
    desk.answer("publish", LOST)
    for answer in [DELETED] * (DELETED_TIMES - 1) + [NOBODY] + [DELETED] * DELETED_TIMES:
        assert desk.failures == []
        desk.stream.wait(DOUBT_MS)
        desk.answer("state", answer)
    assert desk.failures == [(Failure.WENT_BACK, "it was deleted")]


@pytest.mark.parametrize("outcome", [Outcome.NO_ROOM, Outcome.REFUSED])
def test_a_batch_that_is_refused_is_settled_and_the_next_goes_on(outcome: Outcome) -> None:
    desk = Desk()
    for body in (b"a", b"b"):
        desk.put(body)
    desk.answer("publish", Published(0, outcome, "no"))
    assert (desk.refused, desk.settled) == ([(1, outcome)], ["a"])
    assert desk.answer("publish", Published(11))[1] == 10
    assert desk.settled == ["a", "b"]


def test_answers_after_the_end_are_nothing() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.committer.stopped = True
    desk.answer("publish", Published(11))
    assert (desk.settled, desk.committer.last) == ([], 10)


def test_the_time_of_the_first_copy_counts() -> None:
    """Any copy may be the stored one, so certainty begins when the first was sent."""
    desk = Desk()
    desk.stream.wait(1_000)
    desk.put(b"a")
    desk.answer("publish", LOST)
    desk.stream.wait(DOUBT_MS)
    desk.answer("state", StreamState(10, 0, 0))
    desk.stream.wait(500)
    desk.answer("publish", Published(11))
    assert desk.committer.confirmed_ms == 1_000
