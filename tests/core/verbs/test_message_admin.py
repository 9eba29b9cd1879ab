"""Orders about single messages against a model: a due time and an end for each message."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.support import Box, CrashJournal, Probe, again, cool, ranges, same_state
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.topics.outcomes import Changed
from zbus.core.topics.topic import Group
from zbus.core.verbs import message_admin as single

OFFSETS = st.lists(st.integers(0, 12), min_size=1, max_size=6)
KEPT_MS = 1 << 40


class SingleMachine(RuleBasedStateMachine):
    """A group that acknowledges on delivery, and one with leases that is never read."""

    def __init__(self) -> None:
        super().__init__()
        self.box = Box(CrashJournal())
        self.due: list[int] = []  # of the first group, as they are by now
        self.other: list[int] = []  # of the second
        self.fates: dict[int, Disposition | None] = {}  # of what is finished; None = nobody knows
        self.gone: set[int] = set()  # for the second
        self.known: set[int] = set()  # those of them whose end is known

    @initialize(kept=st.booleans())
    def begin(self, kept: bool) -> None:
        self.kept = kept
        topic = TopicOptions("T", settled_ms=KEPT_MS if kept else 0)
        self.box.declare(topic, "g")
        self.box.settle()
        self.box.declare(topic, "h", GroupOptions(lease=True))
        self.box.settle()

    @rule(delays=st.lists(st.sampled_from((0, 0, 5, 20, 60)), min_size=1, max_size=4))
    def put(self, delays: list[int]) -> None:
        for delay in delays:
            due_ms = self.box.now_ms + delay if delay else 0
            self.box.put(b"%d" % len(self.due), due_ms=due_ms)
            self.due.append(due_ms)
            self.other.append(due_ms)
        self.box.settle()

    @rule(ms=st.sampled_from((1, 5, 30)))
    def wait(self, ms: int) -> None:
        self.box.settle(ms)

    @rule()
    def read(self) -> None:
        taken = [int(body) for body in self.box.take("g")]
        now_ms = self.box.now_ms
        ready = [o for o, due in enumerate(self.due) if due <= now_ms and o not in self.fates]
        assert sorted(taken) == ready, "not early, not twice, and not never"
        self.fates.update(dict.fromkeys(taken, Disposition.DONE))

    @rule(offsets=OFFSETS, both=st.booleans(), forget=st.booleans())
    def delete(self, offsets: list[int], both: bool, forget: bool) -> None:
        fits = {o for o in offsets if o < len(self.due) and o not in self.fates}
        others = {o for o in offsets if o < len(self.due) and o not in self.gone} if both else set()
        probe = Probe()
        where = self.groups(both), self.box.partition(), ranges(offsets)
        count = len(fits) + len(others)
        if forget and self.kept:
            count += len({o for o in offsets if self.fates.get(o)})
            count += len({o for o in offsets if o in self.known}) if both else 0
        single.delete(self.dispatch, probe, *where, forget)
        self.settle(probe, offsets, count, Refusal.OFFSET_UNKNOWN)
        self.fates.update(dict.fromkeys(fits, Disposition.DELETED))
        self.known |= others
        if forget:
            stored = {o for o in offsets if o < len(self.due)}
            self.fates.update(dict.fromkeys(stored, None))
            self.known -= stored if both else set()
        self.gone |= others

    @rule(offsets=OFFSETS, both=st.booleans(), cold=st.booleans())
    def cancel(self, offsets: list[int], both: bool, cold: bool) -> None:
        fits, others = self.delayed(offsets, both)
        if cold:
            cool(self.box)
        probe = Probe()
        single.cancel(
            self.dispatch, probe, self.groups(both), self.box.partition(), ranges(offsets)
        )
        self.settle(probe, offsets, len(fits) + len(others), Refusal.CONFLICT)
        self.fates.update(dict.fromkeys(fits, Disposition.DELETED))
        self.gone |= others
        self.known |= others

    @rule(offsets=OFFSETS, both=st.booleans(), delay=st.sampled_from((-9, 0, 3, 40)))
    def reschedule(self, offsets: list[int], both: bool, delay: int) -> None:
        fits, others = self.delayed(offsets, both)
        probe, due_ms = Probe(), self.box.now_ms + delay
        where = self.groups(both), self.box.partition(), ranges(offsets)
        single.reschedule(self.dispatch, probe, *where, due_ms)
        self.settle(probe, offsets, len(fits) + len(others), Refusal.CONFLICT)
        for offset in fits:
            self.due[offset] = due_ms
        for offset in others:
            self.other[offset] = due_ms

    @rule()
    def restart(self) -> None:
        before, self.box = self.box, again(self.box)
        for box in (
            before,
            self.box,
        ):  # cursors that look step over what was taken, and tell nobody
            for name in ("g", "h"):
                box.group(name).backlogs[0].next(box.partition().visible)
        same_state(before, self.box)
        self.box.settle()

    @property
    def dispatch(self) -> RunQueue:
        return self.box.broker._runs

    def groups(self, both: bool) -> list[Group]:
        return [self.box.group("g"), self.box.group("h")][: 1 + both]

    def delayed(self, offsets: list[int], both: bool) -> tuple[set[int], set[int]]:
        now_ms = self.box.now_ms
        known = [o for o in offsets if o < len(self.due)]
        fits = {o for o in known if self.due[o] > now_ms and o not in self.fates}
        others = {o for o in known if self.other[o] > now_ms and o not in self.gone}
        return fits, others if both else set()

    def settle(self, probe: Probe, offsets: list[int], count: int, refusal: Refusal) -> None:
        self.box.settle()
        (answer,) = probe.answers
        if count:
            assert answer == Changed(count)
            return
        assert isinstance(answer, BrokerError)
        stored = any(offset < len(self.due) for offset in offsets)
        assert answer.refusal is (refusal if stored else Refusal.OFFSET_UNKNOWN)

    @invariant()
    def what_became_of_each_is_known(self) -> None:
        fates = self.box.group("g").backlogs[0].fates
        assert (fates is not None) is self.kept
        if fates is not None:
            now_ms = self.box.now_ms
            found = {o: fates.find(o, now_ms, KEPT_MS) for o in range(len(self.due))}
            known = {offset: ending.fate for offset, ending in found.items() if ending is not None}
            assert known == {offset: fate for offset, fate in self.fates.items() if fate}
        self.box.check()


TestSingleModel = SingleMachine.TestCase
TestSingleModel.settings = examples(60, stateful_step_count=30)
