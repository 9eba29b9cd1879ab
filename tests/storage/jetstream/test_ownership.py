"""Claims, and who is gone: dialogues with a stream that says what it likes."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests.storage.jetstream.scripted import ScriptedStream
from zbus.storage.jetstream.ownership import (
    NAMELESS_TIMES,
    PAUSE_MS,
    QUIET_MS,
    Claim,
    Claimed,
    Owner,
    WentBack,
)
from zbus.storage.jetstream.presence import GONE_MS, HEIR_MS, Heartbeat, Presence
from zbus.storage.jetstream.stream import (
    Messages,
    Outcome,
    Outgoing,
    Published,
    Stored,
    StreamState,
    Unreachable,
)
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError

SUBJECTS = Subjects("test")
FORMER = Owner(7, "other", "b:2", "random")


class Claiming:
    """A claim under way."""

    def __init__(
        self, free: bool = True, confirmed: int = 0, presence: Presence | None = None
    ) -> None:
        presence = presence or Presence()
        self.stream = ScriptedStream()
        self.answers: list[Claimed | Owner | JournalError | None] = []
        self.claim = Claim(
            self.stream,
            SUBJECTS,
            "node",
            "a:1",
            lambda owner: free,
            self.answers.append,
            confirmed=lambda: confirmed,
            all_have_left=presence.all_have_left,
        )
        self.claim.start()

    def sent(self) -> Owner:
        """What a publish that is open would store."""
        kind, (messages, _), _ = self.stream.asked[0]
        assert kind == "publish"
        return msgspec.json.decode(messages[0].body, type=Owner)


def owner_at(sequence: int, owner: Owner) -> Messages:
    message: Outgoing = owner.encode(SUBJECTS)
    return Messages([Stored(sequence, message.subject, message.headers, message.body)], 1 << 40)


def test_an_empty_stream_is_claimed_at_once() -> None:
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(0, 0, 0))
    assert claiming.stream.answer("newest", Messages([])) == ([SUBJECTS.owner],)
    assert claiming.sent().epoch == 1
    assert claiming.stream.answer("publish", Published(1))[1] == 0
    (claimed,) = claiming.answers
    assert isinstance(claimed, Claimed)
    assert (claimed.owner.epoch, claimed.sequence, claimed.quiet_until_ms) == (1, 1, 0)


@pytest.mark.parametrize(
    ("left", "quiet", "quiet_ms"),
    [(False, False, QUIET_MS), (True, False, 0), (True, True, QUIET_MS)],
)
def test_a_claim_takes_the_place_behind_the_newest_message(
    left: bool, quiet: bool, quiet_ms: int
) -> None:
    """One that left while it was quiet does not know whether the one before it is certain."""
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0))
    former = replace(FORMER, left=left, quiet=quiet)
    claiming.stream.answer("newest", owner_at(40, former))
    assert (claiming.sent().epoch, claiming.sent().address) == (8, "a:1")
    assert claiming.stream.answer("publish", Published(45))[1] == 44
    (claimed,) = claiming.answers
    assert isinstance(claimed, Claimed)
    assert (claimed.sequence, claimed.quiet_until_ms) == (45, quiet_ms)


def test_an_owner_that_a_replica_behind_names_is_not_believed() -> None:
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(30, FORMER)._replace(known=43))
    assert (claiming.stream.open, claiming.answers) == ([], [])
    claiming.stream.wait(PAUSE_MS)
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(40, FORMER)._replace(known=44))
    assert claiming.sent().epoch == 8


@pytest.mark.parametrize(("confirmed", "claimed"), [(44, True), (45, False)])
def test_a_stream_that_is_shorter_than_it_was_is_not_claimed(confirmed: int, claimed: bool) -> None:
    """A new leader may not know all yet."""
    claiming = Claiming(confirmed=confirmed)
    for _ in range(NAMELESS_TIMES if not claimed else 1):
        assert claiming.answers == []
        claiming.stream.answer("state", StreamState(44, 0, 0))
        claiming.stream.wait(PAUSE_MS)
    if claimed:
        assert claiming.stream.open == ["newest"]
    else:
        (error,) = claiming.answers
        assert isinstance(error, WentBack)
        assert "zbus-test-0 ends at 44, and its owner had confirmed 45; messages may" in str(error)


def test_owners_say_how_much_is_confirmed() -> None:
    presence = Presence()
    for sequence in (3, 9, 4):
        presence.hear(Heartbeat(1, "a", sequence=sequence), 0)
    assert (presence.confirmed(0), presence.confirmed(1)) == (9, 0)


def test_an_owner_that_is_there_stays() -> None:
    claiming = Claiming(free=False)
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(40, FORMER))
    assert (claiming.answers, claiming.stream.open) == ([FORMER], [])


def test_a_claim_that_was_refused_looks_again() -> None:
    """Something was stored meanwhile: by the owner, or by another one that claimed it."""
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(40, FORMER))
    claiming.stream.answer("publish", Published(0, Outcome.WRONG_SEQUENCE, "wrong"))
    assert claiming.answers == []
    claiming.stream.wait(PAUSE_MS)
    claiming.stream.answer("state", StreamState(45, 0, 0))
    claiming.stream.answer("newest", owner_at(45, replace(FORMER, epoch=8)))
    assert claiming.sent().epoch == 9


def test_a_claim_whose_answer_was_lost_is_known_again() -> None:
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(40, FORMER))
    mine = claiming.sent()
    claiming.stream.answer("publish", Published(0, Outcome.UNKNOWN, "no answer"))
    claiming.stream.wait(PAUSE_MS)
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(45, mine))
    (claimed,) = claiming.answers
    assert isinstance(claimed, Claimed)
    assert (claimed.owner, claimed.sequence) == (mine, 45)
    assert claimed.quiet_until_ms >= QUIET_MS


def test_a_foreign_message_in_place_of_the_owner_is_named() -> None:
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", Messages([Stored(9, SUBJECTS.owner, {}, b"hello")], 44))
    (error,) = claiming.answers
    assert isinstance(error, JournalError)
    assert "sequence 9 of the stream zbus-test-0 is no message of a broker" in str(error)


def test_a_stream_that_was_purged_is_not_claimed() -> None:
    """Once it may be another one that claims it at the same time."""
    claiming = Claiming()
    for _ in range(NAMELESS_TIMES):
        assert claiming.answers == []
        claiming.stream.answer("state", StreamState(44, 0, 0))
        claiming.stream.answer("newest", Messages([]))
        claiming.stream.wait(PAUSE_MS)
    (error,) = claiming.answers
    assert "zbus-test-0 ends at 44 and has no message of an owner: somebody purged" in str(error)


@pytest.mark.parametrize(("first", "claimed"), [(1, True), (30, True), (31, False), (45, False)])
def test_what_the_owner_kept_must_be_there(first: int, claimed: bool) -> None:
    """It may have written after it was purged, and before it noticed."""
    claiming = Claiming()
    claiming.stream.answer("state", StreamState(44, 0, 0, first))
    claiming.stream.answer("newest", owner_at(40, replace(FORMER, kept=30)))
    if claimed:
        assert claiming.sent().kept == 30
    else:
        assert f"begins at {first}, and its owner kept what begins at 30" in str(claiming.answers)


def test_the_reason_of_waiting_is_known() -> None:
    claiming = Claiming()
    claiming.stream.answer("state", Unreachable("no leader"))
    assert (claiming.claim.problem, claiming.answers) == ("no leader", [])


def test_for_whom_an_owner_has_left() -> None:
    """For a while, until another one has the shard; only its newest owner may say it."""
    presence = Presence()
    presence.hear(Heartbeat(2, "a", random="a2"), 0)
    presence.hear(Heartbeat(1, "c", random="c1", left=True, heir="c"), 0)
    assert presence.heir(0, 0) == ""
    presence.hear(Heartbeat(2, "a", random="a2", left=True, heir="b"), 0)
    assert (presence.heir(0, HEIR_MS - 1), presence.heir(0, HEIR_MS)) == ("b", "")
    presence.hear(Heartbeat(3, "c", random="c3"), 1)
    assert presence.heir(0, 1) == ""


ENDED = Heartbeat(7, "other", random="random")


@pytest.mark.parametrize(
    ("heard", "quiet_ms"),
    [
        ([ENDED], QUIET_MS),
        ([ENDED, replace(ENDED, left=True)], 0),
        ([replace(ENDED, quiet=True), replace(ENDED, quiet=True, left=True)], QUIET_MS),
        ([replace(ENDED, quiet=True), ENDED, replace(ENDED, quiet=True, left=True)], 0),
        ([replace(ENDED, epoch=6, random="before", left=True)], QUIET_MS),
        ([replace(ENDED, left=True), replace(ENDED, epoch=8, random="next")], QUIET_MS),
    ],
    ids=["lives", "ended", "ended-quiet", "ended-later", "another-ended", "another-follows"],
)
def test_quiet_time_goes_on_with_the_next_owner(heard: list[Heartbeat], quiet_ms: int) -> None:
    """Its parent saw the end of the newest owner; the one before that may be certain yet, as long
    as the newest one was quiet."""
    presence = Presence()
    for each in heard:
        presence.hear(each, 0)
    claiming = Claiming(presence=presence)
    claiming.stream.answer("state", StreamState(44, 0, 0))
    claiming.stream.answer("newest", owner_at(40, FORMER))
    claiming.stream.answer("publish", Published(45))
    (claimed,) = claiming.answers
    assert isinstance(claimed, Claimed)
    assert claimed.quiet_until_ms == quiet_ms


def test_what_an_owner_has_done_it_does_not_begin_again() -> None:
    """A heartbeat of before may come late: by another way, when its owner connected again."""
    presence = Presence()
    opening = Heartbeat(2, "a", random="a2", quiet=True, opening=True)
    presence.hear(opening, 0)
    assert presence.owners[0] == opening
    presence.hear(Heartbeat(2, "a", random="a2"), 1)
    presence.hear(opening, 2)
    assert presence.owners[0] == Heartbeat(2, "a", random="a2")
    next_one = Heartbeat(3, "b", random="b3", quiet=True, opening=True)
    presence.hear(next_one, 3)
    assert presence.owners[0] == next_one


def test_presence() -> None:
    presence = Presence()
    assert presence.silent_ms("a", 1_000) == 0  # never heard: watched from now on
    assert presence.silent_ms("a", 1_000 + GONE_MS) == GONE_MS
    presence.hear(Heartbeat(1, random="a"), 5_000)
    assert presence.silent_ms("a", 5_100) == 100
    presence.hear(Heartbeat(1, random="a", left=True), 5_200)
    assert presence.left == {"a"}
    presence.hear(Heartbeat(0, random="b"), 5_300)
    presence.forget(5_300 + 100 * GONE_MS)
    assert presence.silent_ms("b", 900_000) == 0
    assert presence.silent_ms("a", 900_000) == 895_000  # nobody has replaced this owner
    assert presence.left == {"a"}
