"""Messages that are not acknowledged: attempts, pauses, ends of lives, what a lost session had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.core.support import Box, CrashJournal, Probe, PullProbe, again, refusal
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery.retries import ATTEMPTS_MAX, BACKOFF_MS_MAX, pause_ms
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import DELAY_MS_MAX
from zbus.core.model.message_state import MessageState
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Empty, EmptyReason
from zbus.core.topics.topic import Group

LEASE_MS = 1_000
LEASING = GroupOptions(lease=True, lease_ms=LEASE_MS)


def leasing(count: int, **options: Any) -> Box:
    """A group g, and messages named by their numbers."""
    box = Box(CrashJournal())
    declare(box, **options)
    box.put(*[b"%d" % number for number in range(count)])
    box.settle()
    return box


def declare(box: Box, **options: Any) -> Probe:
    probe = box.declare(TopicOptions("T", durability="os"), "g", attrs.evolve(LEASING, **options))
    box.settle()
    return probe


def hear_of_the_dead(box: Box) -> list[tuple[int, str]]:
    """Offsets and reasons of those for whom somebody has to do something."""
    heard: list[tuple[int, str]] = []

    def dead(group: Group, index: int, offset: int, reason: str) -> None:
        assert offset in group.backlogs[index].leased.settling
        heard.append((offset, reason))

    box.broker._dispatch.runs.dead = dead
    return heard


# -- pauses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_ms", "longest_ms", "attempts", "pause"),
    [
        (0, 0, 1, 0),
        (0, 0, 100, 0),
        (100, 0, 1, 100),
        (100, 0, 2, 200),
        (100, 0, 5, 1_600),
        (100, 0, 1_000_000, BACKOFF_MS_MAX),
        (100, 250, 2, 200),
        (100, 250, 3, 250),
        (100, 100, 9, 100),
        (BACKOFF_MS_MAX + 1, 0, 1, BACKOFF_MS_MAX + 1),
        (BACKOFF_MS_MAX + 1, 0, 2, BACKOFF_MS_MAX + 1),
        (1, DELAY_MS_MAX, 1_000_000, DELAY_MS_MAX),
        (DELAY_MS_MAX, DELAY_MS_MAX, 7, DELAY_MS_MAX),
    ],
)
def test_pauses(first_ms: int, longest_ms: int, attempts: int, pause: int) -> None:
    options = GroupOptions(backoff_ms=first_ms, backoff_max_ms=longest_ms)
    assert pause_ms(options, attempts) == pause


# -- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"attempts_max": ATTEMPTS_MAX + 1}, "attempts: at most 1000000"),
        ({"attempts_max": -1}, "attempts: at most 1000000"),
        ({"backoff_ms": DELAY_MS_MAX + 1}, "backoff: a pause is at most ten years"),
        ({"backoff_ms": 1, "backoff_max_ms": DELAY_MS_MAX + 1}, "backoff: a pause is at most ten"),
        ({"backoff_max_ms": 5}, "backoff: a longest pause needs a first one"),
        ({"backoff_ms": 6, "backoff_max_ms": 5}, "backoff: the longest pause, 5 ms, is shorter"),
        ({"dead_letter": "D"}, "dead letters: without a limit of attempts"),
        ({"on_loss": "drop"}, "lost leases: one of keep, front"),
        ({"rate_per_s": 1 << 41}, "rate: at most"),
        ({"rate_per_s": -1}, "rate: at most"),
        ({"lease": False, "attempts_max": 2}, "attempts: a group without acknowledgements"),
        ({"lease": False, "backoff_ms": 2}, "backoff: a group without acknowledgements"),
        ({"lease": None, "on_loss": "front"}, "lost leases: a group without acknowledgements"),
        ({"lease": None, "one_batch": True}, "one batch: a group without acknowledgements"),
        ({"attempts_max": 2, "dead_letter": "none"}, "there is no topic none"),
        ({"attempts_max": 2, "dead_letter": "T"}, "dead letters of T would return to it through T"),
        ({"attempts_max": 2, "dead_letter": "A"}, "would return to it through A"),
        ({"attempts_max": 2, "dead_letter": "S"}, "dead letters: S is a topic of services"),
    ],
)
def test_options_that_make_no_sense_change_nothing(options: dict[str, Any], text: str) -> None:
    box = leasing(1)
    for name, target in (("D", ""), ("B", "T"), ("A", "B"), ("A", "D")):
        made = attrs.evolve(LEASING, attempts_max=1, dead_letter=target)
        assert box.declare(name, f"g{target}", made).answers == []
        box.settle()
    box.declare(TopicOptions("S", calls=True, competing=True))
    box.settle()
    before = box.group().options
    probe = declare(box, **options)
    assert text in refusal(probe).text
    unknown = options.get("dead_letter") == "none"
    assert refusal(probe).refusal is (Refusal.TOPIC_UNKNOWN if unknown else Refusal.ILLEGAL)
    assert box.group().options == before
    assert box.take() == [b"0"]


def test_a_dead_letter_topic_may_have_one_itself() -> None:
    box = leasing(0)
    for name in ("D", "E"):
        box.declare(name)
        box.settle()
    options = attrs.evolve(LEASING, attempts_max=2, dead_letter="E")
    assert box.declare("D", "g", options).open
    box.settle()
    assert declare(box, attempts_max=2, dead_letter="d").fine


def test_what_was_declared_stays_when_the_dead_letter_topic_is_removed() -> None:
    box = leasing(0)
    box.declare("D")
    box.settle()
    assert declare(box, attempts_max=2, dead_letter="D").fine
    box.broker.remove_topic(Probe(), box.topic("D"))
    box.settle()
    assert declare(box, attempts_max=2, dead_letter="D").fine
    assert declare(box, attempts_max=3, dead_letter="D").fine
    other = attrs.evolve(LEASING, attempts_max=2, dead_letter="D")
    probe = box.declare(TopicOptions("T", durability="os"), "h", other)
    box.settle()
    assert refusal(probe).refusal is Refusal.TOPIC_UNKNOWN


# -- lives ---------------------------------------------------------------------------------


def test_a_lease_that_ends_waits_longer_each_time() -> None:
    box = leasing(1, backoff_ms=100, backoff_max_ms=300)
    for pause in (100, 200, 300, 300):
        assert box.take() == [b"0"]
        box.settle(LEASE_MS)
        assert box.group().backlogs[0].life(0) is MessageState.DELAYED
        box.settle(pause - 1)
        assert box.take() == []
        box.settle(1)
    assert box.take() == [b"0"]


def test_what_is_given_back_waits_too_but_not_if_its_holder_says_when() -> None:
    box = leasing(1, backoff_ms=100)
    assert box.take() == [b"0"]
    assert box.nack(0).open
    box.settle()
    assert box.take() == []
    box.settle(100)
    assert box.take() == [b"0"]
    box.nack(0, due_ms=box.now_ms + 7)
    box.settle(6)
    assert box.take() == []
    box.settle(1)
    assert box.take() == [b"0"]


@pytest.mark.parametrize("way", ["expired", "in front", "at the end", "later"])
def test_after_its_last_attempt_it_is_dead(way: str) -> None:
    box = leasing(1, attempts_max=2)
    for _ in range(2):
        assert box.take() == [b"0"]
        if way == "expired":
            box.settle(LEASE_MS)
        else:
            box.nack(0, front=way == "in front", due_ms=box.now_ms + 5 if way == "later" else 0)
            box.settle(5)
    backlog = box.group().backlogs[0]
    assert (backlog.dead, backlog.life(0)) == (1, MessageState.DONE)
    assert box.take() == []
    box = again(box)
    assert box.group().backlogs[0].dead == 1
    assert box.take() == []


def test_a_limit_that_is_lowered_counts_what_was() -> None:
    box = leasing(1)
    for _ in range(4):
        assert box.take() == [b"0"]
        box.settle(LEASE_MS)
    declare(box, attempts_max=2)
    assert box.take() == [b"0"]
    box.settle(LEASE_MS)
    assert (box.take(), box.group().backlogs[0].dead) == ([], 1)


# -- dead letters --------------------------------------------------------------------------


def with_dead_letters(count: int = 2) -> tuple[Box, list[tuple[int, str]]]:
    box = leasing(count)
    box.declare("D")
    box.settle()
    declare(box, attempts_max=1, dead_letter="D")
    return box, hear_of_the_dead(box)


def test_what_is_settling_is_nobody_s() -> None:
    box, heard = with_dead_letters()
    assert box.take(count=1) == [b"0"]
    box.settle(LEASE_MS)
    assert heard == [(0, "expired")]
    backlog = box.group().backlogs[0]
    for probe in (box.nack(0), box.extend(0, box.now_ms + 9)):
        box.settle()
        assert refusal(probe).refusal is Refusal.NOT_LEASED
    box.settle(10 * LEASE_MS)
    assert (heard, backlog.life(0)) == ([(0, "expired")], MessageState.LEASED)
    assert box.take() == [b"1"]
    box.ack(0)
    box.settle()
    assert (backlog.leased.settling, backlog.life(0)) == (set(), MessageState.DONE)


def test_what_settles_no_more_is_asked_for_again() -> None:
    box, heard = with_dead_letters()
    assert box.take(count=1) == [b"0"]
    box.nack(0)
    box.settle()
    assert heard == [(0, "given back")]
    box.group().backlogs[0].leased.settle_no_more(0)
    box.settle(LEASE_MS)
    assert heard == [(0, "given back"), (0, "expired")]


def test_after_a_restart_what_was_settling_is_asked_for_again() -> None:
    box, _ = with_dead_letters()
    assert box.take(count=1) == [b"0"]
    box.settle(LEASE_MS)
    box = again(box)
    heard = hear_of_the_dead(box)
    box.settle(LEASE_MS)
    assert heard == [(0, "expired")]


def test_without_anybody_who_listens_it_is_finished() -> None:
    box, _ = with_dead_letters()
    box = again(box)
    assert box.take(count=1) == [b"0"]
    box.settle(LEASE_MS)
    assert (box.group().backlogs[0].dead, box.take()) == (1, [b"1"])


# -- what a session had that is gone -------------------------------------------------------


def hold(box: Box, count: int) -> PullProbe:
    pull = box.pull(count=count)
    box.settle()
    return pull


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_what_a_lost_session_had_comes_first_in_order(most: int) -> None:
    box = leasing(10, on_loss="front")
    kept, lost = hold(box, 2), hold(box, 4)
    box.ack(3)
    box.settle()
    parts = 1
    while not box.broker.leave(lost.session, most):
        parts += 1
    assert parts >= 3 / most
    assert box.take(count=4) == [b"2", b"4", b"5", b"6"]
    assert kept.bodies == [b"0", b"1"]
    assert box.group().backlogs[0].attempts[2] == 2, "it was handed out before"
    assert box.group().backlogs[0].attempts[6] == 1


def test_without_the_option_its_leases_stay_until_they_end() -> None:
    box = leasing(3)
    lost = hold(box, 2)
    box.broker.leave(lost.session)
    assert box.take() == [b"2"]
    box.settle(LEASE_MS)
    assert box.take() == [b"0", b"1", b"2"]


def test_who_only_leaves_the_group_has_what_he_has() -> None:
    box = leasing(2, on_loss="front")
    other = hold(box, 1)
    box.broker.leave_group(other.session, box.group())
    assert box.take() == [b"1"]
    box.broker.leave(other.session)
    assert box.take() == [b"0"]


def test_what_went_to_another_is_not_given_back() -> None:
    box = leasing(1, on_loss="front")
    lost = hold(box, 1)
    box.settle(LEASE_MS)
    hold(box, 1)
    box.broker.leave(lost.session)
    assert box.take() == []


def test_one_that_takes_its_consumers_along_is_dead_some_day() -> None:
    box = leasing(1, on_loss="front", attempts_max=3, backoff_ms=60_000)
    for _ in range(3):
        box.broker.leave(hold(box, 1).session)
    assert (box.take(), box.group().backlogs[0].dead) == ([], 1)


def test_after_a_restart_nobody_knows_who_had_it() -> None:
    box = leasing(1)
    hold(box, 1)
    box = again(box)
    assert box.take() == []
    box.settle(LEASE_MS)
    assert box.take() == [b"0"]


def test_after_a_restart_what_everybody_had_comes_first_in_order() -> None:
    box = leasing(6, on_loss="front")
    hold(box, 2)
    box.pull(count=2, lease_ms=60 * LEASE_MS)
    box.settle()
    box = again(box)
    box.settle()
    assert box.take() == [b"%d" % number for number in range(6)]
    assert box.group().backlogs[0].attempts[3] == 2


def test_what_was_held_for_too_long_comes_first_in_order() -> None:
    box = leasing(5, on_loss="front")
    hold(box, 3)
    box.nack(2)
    box.settle(LEASE_MS)
    assert box.take() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("of_group", "of_pull", "expected"),
    [
        ("front", "keep", [b"2"]),
        ("keep", "front", [b"0", b"1", b"2"]),
        ("front", "", [b"0", b"1", b"2"]),
        ("keep", "", [b"2"]),
    ],
)
def test_a_pull_says_whether_its_leases_outlive_its_session(
    of_group: str, of_pull: str, expected: list[bytes]
) -> None:
    box = leasing(3, on_loss=of_group)
    lost = box.pull(count=2, on_loss=of_pull)
    box.settle()
    box.broker.leave(lost.session)
    assert box.take(count=3) == expected


@pytest.mark.parametrize("gone", ["group", "topic"])
def test_what_is_removed_takes_nothing_back(gone: str) -> None:
    box = leasing(1, on_loss="front")
    lost = hold(box, 1)
    if gone == "group":
        box.broker.remove_group(Probe(), box.group())
    else:
        box.broker.remove_topic(Probe(), box.topic())
    box.settle()
    assert not lost.session.held
    assert box.broker.leave(lost.session)
    box.settle()


# -- leases of their own length, rates, batches --------------------------------------------


def test_a_pull_may_say_how_long_it_leases() -> None:
    box = leasing(2)
    for lease_ms in (50, 0):
        pull = PullProbe(box.session(), PullOptions(lease_ms=lease_ms))
        box.broker.pull(box.group(), pull, None)
    box.settle(50)
    assert box.take() == [b"0"]
    box.settle(LEASE_MS - 51)
    assert box.take() == []
    box.settle(1)
    assert box.take() == [b"1"]


@pytest.mark.parametrize("lease", [True, False])
def test_a_rate_is_never_passed(lease: bool) -> None:
    box = leasing(100, rate_per_s=10, lease=lease)
    assert len(box.take()) == 10
    times = []
    pull = PullProbe(
        box.session(), PullOptions(credit=50), lambda outcome: times.append(box.now_ms)
    )
    start_ms = box.now_ms
    box.broker.pull(box.group(), pull, None)
    while len(times) < 5:
        box.settle()
        due_ms = box.broker.next_due()
        assert due_ms is not None, "it is woken"
        box.turn(due_ms - box.now_ms)
    assert times == [start_ms + 100 * number for number in range(1, 6)]


def test_who_comes_too_fast_is_told_so() -> None:
    box = leasing(3, rate_per_s=1)
    assert box.take() == [b"0"]
    probe = box.pull()
    box.settle()
    assert isinstance(empty := probe.answers[-1], Empty)
    assert empty.reason is EmptyReason.THROTTLED
    declare(box, rate_per_s=0)
    assert box.take() == [b"1", b"2"]


def test_a_change_of_other_options_does_not_fill_the_bucket() -> None:
    box = leasing(30, rate_per_s=10)
    assert len(box.take()) == 10
    declare(box, rate_per_s=10, window=99)
    assert box.take() == []


def test_one_batch_at_a_time_of_a_partition() -> None:
    box = Box(CrashJournal())
    options = attrs.evolve(LEASING, one_batch=True)
    box.declare(TopicOptions("T", durability="os", partitions=2), "g", options)
    box.settle()
    for index in (0, 1):
        box.put(b"%d0" % index, b"%d1" % index, b"%d2" % index, index=index)
    box.settle()
    first, second, third = hold(box, 2), hold(box, 2), box.pull(wait=True)
    box.settle()
    assert sorted(first.bodies + second.bodies) == [b"00", b"01", b"10", b"11"]
    box.ack(0)
    box.settle()
    assert third.open, "one of its batch is not settled"
    box.ack(1)
    box.settle()
    assert third.bodies == [b"02"]


# -- against a model -----------------------------------------------------------------------


@dataclass
class OneLife:
    """A message as its group sees it: obviously right."""

    state: str = "ready"
    attempts: int = 0
    until_ms: int = 0
    times: list[int] = field(default_factory=list)  # when it was handed out


_LIVES = {
    "ready": MessageState.READY,
    "leased": MessageState.LEASED,
    "delayed": MessageState.DELAYED,
    "done": MessageState.DONE,
    "dead": MessageState.DONE,  # nothing is kept of either
}


class Retrying(RuleBasedStateMachine):
    """Attempts, pauses and ends of lives, over restarts."""

    ATTEMPTS_MAX, FIRST_MS, LONGEST_MS = 4, 300, 1_000

    def __init__(self) -> None:
        super().__init__()
        self.box = leasing(
            0,
            attempts_max=self.ATTEMPTS_MAX,
            backoff_ms=self.FIRST_MS,
            backoff_max_ms=self.LONGEST_MS,
        )
        self.lives: list[OneLife] = []

    def end(self, life: OneLife, now_ms: int, delay_ms: int = 0) -> None:
        if life.attempts == self.ATTEMPTS_MAX:
            life.state = "dead"
        else:
            life.state = "delayed"
            pause = min(self.LONGEST_MS, self.FIRST_MS * 2 ** (life.attempts - 1))
            life.until_ms = now_ms + (delay_ms or pause)

    def pass_time(self) -> None:
        now_ms = self.box.now_ms
        for life in self.lives:
            if life.state == "leased" and life.until_ms <= now_ms:
                self.end(life, now_ms)
            elif life.state == "delayed" and life.until_ms <= now_ms:
                life.state = "ready"

    @rule(count=st.integers(1, 3))
    def put(self, count: int) -> None:
        self.box.put(*[b"%d" % number for number in range(count)])
        self.box.settle()
        self.lives += [OneLife() for _ in range(count)]

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        self.box.broker._tick.put_ms = 0
        pull = self.box.pull(count=count)
        self.box.settle()
        self.pass_time()
        ready = {offset for offset, life in enumerate(self.lives) if life.state == "ready"}
        given = [record.offset for record in pull.records]
        assert len(given) == min(count, len(ready))
        assert set(given) <= ready, "early, twice, or after its end"
        for record in pull.records:
            life = self.lives[record.offset]
            life.attempts += 1
            life.state, life.until_ms = "leased", self.box.now_ms + LEASE_MS
            assert record.attempts == life.attempts

    def held(self) -> list[int]:
        return [offset for offset, life in enumerate(self.lives) if life.state == "leased"]

    @precondition(lambda self: self.held())
    @rule(pick=st.integers(0, 99), delay_ms=st.sampled_from([0, 10, 5_000]), front=st.booleans())
    def give_back(self, pick: int, delay_ms: int, front: bool) -> None:
        offset = self.held()[pick % len(self.held())]
        now_ms = self.box.now_ms
        self.box.nack(offset, front=front, due_ms=now_ms + delay_ms if delay_ms else 0)
        self.end(self.lives[offset], now_ms, delay_ms)
        self.box.settle()

    @precondition(lambda self: self.held())
    @rule(pick=st.integers(0, 99))
    def ack(self, pick: int) -> None:
        offset = self.held()[pick % len(self.held())]
        self.box.ack(offset)
        self.lives[offset].state = "done"
        self.box.settle()

    @rule(ms=st.sampled_from([1, 10, 299, 300, 600, 999, 1_000, 4_000]))
    def wait(self, ms: int) -> None:
        """In steps, so that everything happens at its time, as it does in a broker that runs."""
        end_ms = self.box.now_ms + ms
        while (now_ms := self.box.now_ms) < end_ms:
            due_ms = self.box.broker.next_due() or end_ms
            self.box.settle(max(1, min(due_ms, end_ms) - now_ms))
            self.pass_time()

    @rule()
    def restart(self) -> None:
        self.box = again(self.box)
        self.box.settle()
        self.pass_time()

    def teardown(self) -> None:
        backlog = self.box.group().backlogs[0]
        assert backlog.dead == sum(life.state == "dead" for life in self.lives)
        for offset, life in enumerate(self.lives):
            assert backlog.life(offset) is _LIVES[life.state]
            kept = life.attempts if life.state not in ("dead", "done") else 0
            assert backlog.attempts.get(offset, 0) == kept


TestRetrying = Retrying.TestCase
TestRetrying.settings = examples(60, derandomize=True, stateful_step_count=40)
