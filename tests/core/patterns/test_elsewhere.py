"""What is completed in a topic of another process: once, in order, whatever ends in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest

from tests.core.patterns import test_dead_letters as dying
from tests.core.patterns import test_transactions as staging
from tests.core.patterns.test_completions import crashes
from tests.core.patterns.test_dead_letters import LEASE_MS, expire, life
from tests.core.patterns.test_redrive import DEAD, moved
from tests.core.patterns.test_transactions import ROWS, commit, committed, everything, stage
from tests.core.support import Box, CrashJournal, Probe, again, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Row, make_row
from zbus.core.model.errors import BrokerError, Outcome, Refusal, topic_unknown
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Calling, Parts, Ticket
from zbus.core.patterns.completions import AGAIN_MS
from zbus.core.patterns.redrive import PAUSE_MS, PORTION
from zbus.core.patterns.transaction_log import Stage
from zbus.core.patterns.transactions import AGAIN_MS as APPLIED_AGAIN_MS
from zbus.core.topics.elsewhere import RemoteTopic
from zbus.core.topics.outcomes import DONE
from zbus.core.topics.topic import Partition, Topic
from zbus.core.verbs.seek import Start


class Between:
    """The way to another broker, whose topics are called Far. What is sent stays on it until it is
    delivered, and an answer may be lost."""

    def __init__(self, there: Box) -> None:
        self.there = there
        self.sent: deque[tuple[str, Sequence[Row], Ticket]] = deque()
        self.is_busy = False

    def has(self, name: str) -> bool:
        return name.lower().startswith("far")

    def busy(self, topic: str) -> bool:
        return self.is_busy

    def put(self, source: Partition, topic: str, rows: Sequence[Row], ticket: Ticket) -> None:
        self.sent.append((topic, rows, ticket))

    def check(self, topic: str, origin: str, ticket: Ticket) -> None:
        unknown = None if self.there.broker.topic(topic) else topic_unknown(topic)
        if origin:
            unknown = self.there.broker.dead_letter_problem(origin, topic)
        ticket.settle(unknown or DONE)

    def store(self) -> list[tuple[Ticket, Outcome]]:
        """All of it is done there; the answers."""
        answers: list[tuple[Ticket, Outcome]] = []
        while self.sent:
            name, rows, ticket = self.sent.popleft()
            topic = self.there.broker.topic(name)
            if topic is None:
                answers.append((ticket, topic_unknown(name)))
                continue
            found: list[Outcome] = []
            parts = Parts(Calling(found.append), DONE, len(rows))
            for row in rows:
                assert len(row) > 3
                self.there.broker.put(topic.partition_for(row[4]), parts.part(), row)
            self.there.settle()
            answers.append((ticket, found[0]))
        return answers

    def deliver(self) -> None:
        """And answered."""
        for ticket, outcome in self.store():
            ticket.settle(outcome)


def far(*names: str, partitions: int = 1) -> Box:
    there = Box(CrashJournal())
    for name in names or ("Far",):
        there.declare(TopicOptions(name, partitions=partitions), "r", GroupOptions())
    there.settle()
    return there


def joined(here: Box, there: Box) -> Between:
    between = Between(there)
    here.broker.elsewhere.port = between
    return between


def rest(here: Box, between: Between, ms: int = 0) -> None:
    """Until nothing is left to do in both."""
    here.settle(ms)
    while between.sent:
        between.deliver()
        here.settle()


def taken(there: Box, topic: str = "Far") -> list[bytes]:
    return there.take("r", topic=topic)


# -- dead letters ------------------------------------------------------------------------------


def leased(there: Box, count: int = 1, durability: str = "disk") -> tuple[Box, Between]:
    """All messages of In were handed out to g for the last time; the dead go Far."""
    here = Box(CrashJournal())
    between = joined(here, there)
    options = GroupOptions(
        lease=True, window=100, lease_ms=LEASE_MS, attempts_max=1, dead_letter="Far"
    )
    declared = here.declare(TopicOptions("In", durability=durability), "g", options)
    here.settle()
    assert declared.fine
    for n in range(count):
        row = make_row(b"id%d" % n, b"x-y: z\r\n", b"%d" % n, b"a.b", b"k")
        here.broker.put(here.partition("In"), Probe(), row)
    here.settle()
    assert len(here.take(topic="In")) == count
    return here, between


def test_a_dead_letter() -> None:
    there = far()
    here, between = leased(there)
    expire(here)
    assert life(here) is MessageState.LEASED, "to no client, until that is answered"
    here.settle(10 * LEASE_MS)
    assert len(between.sent) == 1
    assert here.take(topic="In") == []
    rest(here, between)
    assert life(here) is MessageState.DONE
    assert here.group("g", "In").backlogs[0].dead == 1
    pull = there.pull("r", topic="Far")
    there.settle()
    (record,) = pull.records
    message = record.message
    assert (message.id, message.tag, message.key, message.body) == (b"id0", b"a.b", b"k", b"0")
    assert message.headers == (
        b"x-y: z\r\ndead_topic: In\r\ndead_group: g\r\ndead_partition: 0\r\ndead_offset: 0\r\n"
        b"dead_attempts: 1\r\ndead_reason: expired\r\n"
    )
    assert message.once.startswith(b"zb:")
    assert message.once.endswith(b":0:0:g")


@pytest.mark.parametrize("partitions", [1, 3])
def test_many_in_order(partitions: int) -> None:
    there = far(partitions=partitions)
    here, between = leased(there, 50)
    expire(here)
    rest(here, between)
    assert taken(there) == [b"%d" % n for n in range(50)]


def sent(here: Box, between: Between) -> None:
    pass


def stored(here: Box, between: Between) -> None:
    between.store()


def answered(here: Box, between: Between) -> None:
    between.deliver()


def finished(here: Box, between: Between) -> None:
    between.deliver()
    here.turn()


def durable(here: Box, between: Between) -> None:
    rest(here, between)


HOW_FAR = pytest.mark.parametrize("until", [sent, stored, answered, finished, durable])


@HOW_FAR
@pytest.mark.parametrize("there_too", [False, True])
def test_a_crash_leaves_it_there_once(
    until: Callable[[Box, Between], None], there_too: bool
) -> None:
    there = far()
    here, between = leased(there, 3)
    expire(here)
    until(here, between)
    for after in crashes(here):
        other = Between(again(there) if there_too else there)
        after.broker.elsewhere.port = other
        rest(after, other)
        for _ in range(3):
            rest(after, other, LEASE_MS)
        assert [life(after, offset) for offset in range(3)] == [MessageState.DONE] * 3
        assert everything(other.there, "Far") == [b"0", b"1", b"2"]


def test_those_of_other_messages_have_other_keys() -> None:
    """Of another topic, group, place or content; or of a topic and group that were made again."""
    here = Box(CrashJournal())
    between = joined(here, far())
    options = GroupOptions(lease=True, attempts_max=1, dead_letter="Far")

    def die(topic: str, group: str, *bodies: bytes) -> None:
        here.declare(topic, group, options, Start(offset=0))
        here.settle(1)
        here.put(*bodies, topic=topic)
        here.settle()
        assert here.take(group, topic=topic)
        expire(here)

    die("In", "g", b"0", b"0")
    die("In", "h", b"0")
    here.broker.remove_group(Probe(), here.group("h", "In"))
    here.settle()
    die("In", "h", b"0")
    die("Other", "g", b"0")
    for body in (b"0", b"1"):
        here.broker.remove_topic(Probe(), here.topic("In"))
        here.settle()
        die("In", "g", body)
    keys = [row[7] for _, rows, _ in between.sent for row in rows if len(row) > 3]
    assert len(keys) == len(set(keys)) == 2 + 3 + 4 + 1 + 1 + 1


def test_the_topic_is_not_there_now() -> None:
    there = far()
    here, between = leased(there)
    there.broker.remove_topic(Probe(), there.topic("Far"))
    there.settle()
    expire(here)
    for _ in range(3):
        between.deliver()
        here.settle()
        assert life(here) is MessageState.LEASED
        assert not between.sent, "not at once"
        assert here.broker.elsewhere.missing == {"far"}
        here.settle(AGAIN_MS)
        assert len(between.sent) == 1
    there.declare(TopicOptions("FAR"), "r", GroupOptions())
    there.settle()
    rest(here, between)
    assert life(here) is MessageState.DONE
    assert here.broker.elsewhere.missing == set()
    assert taken(there) == [b"0"]


def test_a_full_disk_there() -> None:
    there = far()
    here, between = leased(there, 2)
    assert isinstance(there.journal, CrashJournal)
    there.journal.full = True
    expire(here)
    rest(here, between)
    assert [life(here, offset) for offset in (0, 1)] == [MessageState.LEASED] * 2
    there.journal.full = False
    rest(here, between, AGAIN_MS)
    assert taken(there) == [b"0", b"1"]


def test_what_can_wait_does_while_much_is_under_way() -> None:
    there = far()
    here, between = leased(there)
    between.is_busy = True
    expire(here)
    here.settle(5 * AGAIN_MS)
    assert not between.sent
    between.is_busy = False
    rest(here, between, AGAIN_MS)
    assert taken(there) == [b"0"]


def test_a_group_that_is_moved_meanwhile_reads_it_again() -> None:
    there = far()
    here, between = leased(there)
    expire(here)
    here.broker.rewind(here.group("g", "In"), [0])
    here.settle()
    rest(here, between)
    assert life(here) is MessageState.READY
    assert here.take(topic="In") == [b"0"]


@pytest.mark.parametrize("gone", ["group", "topic"])
def test_the_source_goes_meanwhile(gone: str) -> None:
    there = far()
    here, between = leased(there)
    expire(here)
    if gone == "group":
        here.broker.remove_group(Probe(), here.group("g", "In"))
    else:
        here.broker.remove_topic(Probe(), here.topic("In"))
    rest(here, between)
    here.settle(LEASE_MS)
    assert not between.sent
    assert taken(there) == [b"0"]


@pytest.mark.parametrize("until", [sent, stored, answered])
def test_the_source_is_read_again_meanwhile(until: Callable[[Box, Between], None]) -> None:
    there, here = far(), LateBox()
    between = joined(here, there)
    here.declare("T", "g", GroupOptions(lease=True, attempts_max=1, dead_letter="Far"))
    here.put(b"0")
    here.settle()
    here.take()
    here.settle(LEASE_MS)
    here.settle()
    assert between.sent
    here.fail()
    until(here, between)
    for _ in range(5):
        rest(here, between, LEASE_MS)
    assert here.group().backlogs[0].life(0) is MessageState.DONE
    assert everything(there, "Far") == [b"0"]


@pytest.mark.parametrize(
    ("name", "groups", "problem"),
    [
        ("Far", {}, None),
        ("FAR", {}, None),
        ("Far2", {}, Refusal.TOPIC_UNKNOWN),
        ("Far", {"r": "In"}, Refusal.ILLEGAL),  # they would come back
        ("Farcalls", {}, Refusal.ILLEGAL),
        ("Near", {}, Refusal.TOPIC_UNKNOWN),
    ],
)
def test_what_a_group_may_name(name: str, groups: dict[str, str], problem: Refusal | None) -> None:
    there = far()
    there.declare(TopicOptions("In"), "g")
    there.declare(TopicOptions("Farcalls", calls=True, durability="memory"))
    for group, target in groups.items():
        options = GroupOptions(lease=True, attempts_max=1, dead_letter=target)
        there.declare("Far", group, options)
    there.settle()
    here = Box(CrashJournal())
    joined(here, there)
    options = GroupOptions(lease=True, attempts_max=1, dead_letter=name)
    for _ in range(2):
        probe = here.declare("In", "g", options)
        here.settle()
        if problem is None:
            assert probe.fine
        else:
            assert refusal(probe).refusal is problem
            assert here.broker.topic("In") is None


# -- redriving ---------------------------------------------------------------------------------


def letters(there: Box, *origins: bytes) -> tuple[Box, Between]:
    """A dead message from each of these topics; In is here."""
    here = Box(CrashJournal())
    between = joined(here, there)
    for name in ("In", "Dead"):
        here.declare(name, "g", GroupOptions(lease=True, window=9_999))
    for number, origin in enumerate(origins):
        message = Message(b"id%d" % number, headers=b"x: y\r\n" + DEAD % origin)
        row = make_row(message.id, message.headers, b"%d" % number, b"tag", b"key")
        here.broker.put(here.partition("Dead"), Probe(), row)
    here.settle()
    return here, between


def redrive(here: Box, count: int = 1_000) -> Probe:
    def target(name: str) -> Topic | RemoteTopic | None:
        return here.broker.topic(name) or here.broker.elsewhere.find(name)

    probe = Probe()
    here.broker.redrive(probe, here.group("g", "Dead"), target, count)
    return probe


def test_letters_go_back() -> None:
    """As those of here do; the one whose topic is gone stays, wherever that was."""
    there = far()
    here, between = letters(there, b"Far", b"In", b"Far9", b"Gone", b"Far")
    probe = redrive(here)
    here.settle()
    assert probe.open
    rest(here, between)
    assert moved(probe) == (3, 2)
    assert taken(there) == [b"0", b"4"]
    assert here.take(topic="In") == [b"1"]
    assert here.take(topic="Dead") == [b"2", b"3"]


def test_one_whose_topic_is_gone_ends_no_redrive() -> None:
    """Its answer comes before the others are sent. All is told when it is durable."""
    there = far()
    here, between = letters(there, b"Far9", *[b"Far"] * 250)
    probe = redrive(here)
    assert len(between.sent) == PORTION
    between.deliver()
    here.settle()
    between.deliver()
    here.turn()
    here.turn()
    assert probe.open
    here.settle()
    assert moved(probe) == (250, 1)


@HOW_FAR
def test_a_crash_and_another_redrive_leave_them_there_once(
    until: Callable[[Box, Between], None],
) -> None:
    there = far()
    here, between = letters(there, b"Far", b"Far")
    redrive(here)
    here.turn()
    here.settle()
    until(here, between)
    for after in crashes(here):
        other = Between(again(there))
        after.broker.elsewhere.port = other
        rest(after, other)
        redrive(after)
        rest(after, other)
        assert everything(other.there, "Far") == [b"0", b"1"]
        assert after.take(topic="Dead") == []


def test_a_redrive_waits_while_much_is_under_way_and_others_go_on() -> None:
    there = far()
    here, between = letters(there, *[b"Far"] * 450)
    probe = redrive(here)
    between.is_busy = True
    here.turn()
    here.settle(10 * PAUSE_MS)
    under_way = len(between.sent)
    assert 0 < under_way < 450
    here.put(b"1", topic="In")
    here.settle(PAUSE_MS)
    assert here.take(topic="In") == [b"1"]
    assert len(between.sent) == under_way
    between.is_busy = False
    for _ in range(10):
        rest(here, between, PAUSE_MS)
    assert moved(probe) == (450, 0)
    assert taken(there) == [b"%d" % n for n in range(450)]


# -- transactions ------------------------------------------------------------------------------


def staged(there: Box) -> tuple[Box, Between]:
    here = staging.prepared()
    return here, joined(here, there)


def test_a_batch_of_here_and_there() -> None:
    there = far("Far", "Far2")
    here, between = staged(there)
    near, one = stage(here, b"n"), stage(here, b"a", b"b", topic="Far")
    two = stage(here, b"c", topic="Far2")
    probe = commit(here, 1, one, near, two)
    here.settle()
    assert probe.open
    rest(here, between)
    assert committed(probe) == (4, False)
    assert (taken(there), taken(there, "Far2")) == ([b"a", b"b"], [b"c"])
    assert here.take("r", topic="Out") == [b"n"]
    again_ = commit(here, 1, one, near, two)
    rest(here, between)
    assert committed(again_) == (0, True)
    assert not between.sent


@pytest.mark.parametrize("name", ["Far9", "Near9"])
def test_nothing_is_decided_for_a_topic_that_is_not_there(name: str) -> None:
    here, between = staged(far())
    rows = stage(here, b"a", topic=name)
    probe = commit(here, 1, Stage(rows.first, rows.end, name))
    rest(here, between)
    assert refusal(probe) == topic_unknown(name)


@HOW_FAR
def test_a_crash_leaves_a_batch_there_once(until: Callable[[Box, Between], None]) -> None:
    there = far()
    here, between = staged(there)
    one, near = stage(here, b"a", b"b", topic="Far"), stage(here, b"n")
    commit(here, 1, one, near)
    here.settle()
    until(here, between)
    for after in crashes(here):
        other = Between(again(there))
        after.broker.elsewhere.port = other
        for _ in range(4):
            rest(after, other, APPLIED_AGAIN_MS)
        assert everything(other.there, "Far") == [b"a", b"b"]
        assert everything(after) == [b"n"]
        assert after.group("txn", ROWS).backlogs[0].ready_count(3) == 0


def test_a_batch_whose_topic_goes_is_stored_when_it_is_there_again() -> None:
    there = far()
    here, between = staged(there)
    probe = commit(here, 1, stage(here, b"a", topic="Far"))
    here.settle()
    there.broker.remove_topic(Probe(), there.topic("Far"))
    there.settle()
    rest(here, between)
    assert isinstance(refusal(probe), BrokerError)
    there.declare("Far", "r")
    there.settle()
    rest(here, between, APPLIED_AGAIN_MS)
    rest(here, between, APPLIED_AGAIN_MS)
    assert taken(there) == [b"a"]


def test_without_other_processes_no_topic_is_elsewhere() -> None:
    box = dying.prepared()
    assert box.broker.elsewhere.find("Far") is None
    assert not box.broker.elsewhere.busy("Far")
