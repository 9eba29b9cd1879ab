"""A session leaves: what it waits for ends, all at once or in parts."""

from __future__ import annotations

import pytest

from tests.core.support import Box, CrashJournal, Probe, PullProbe
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.topics.outcomes import Empty, EmptyReason

GROUPS = [f"g{number}" for number in range(5)]


class Scene:
    """A session with three pulls in each of five groups, and two calls."""

    def __init__(self, temporary: bool = False) -> None:
        self.box = box = Box(CrashJournal())
        box.declare("T")
        for name in GROUPS:
            box.declare("T", name, GroupOptions(temporary=temporary))
        box.declare(TopicOptions("S", calls=True))
        box.settle()
        self.session = box.session()
        self.probes: list[Probe | PullProbe] = []
        for name in GROUPS * 3:
            pull = PullProbe(self.session)
            box.broker.pull(box.group(name), pull, None)
            self.probes.append(pull)
        for id in (b"1", b"2"):
            call = Probe()
            row = id, b"", b"?"
            box.broker.call(box.partition("S"), call, row, self.session, box.now_ms + 9_000)
            self.probes.append(call)
        box.settle()

    def open(self) -> int:
        return sum(probe.open for probe in self.probes)

    def is_gone(self) -> bool:
        groups = self.box.topic().groups.values()
        idle = all(not (group.readers or group.waiting) for group in groups)
        return idle and not len(self.box.broker._calls) and not self.session.pulls


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("temporary", [False, True])
def test_in_parts(most: int, temporary: bool) -> None:
    scene = Scene(temporary)
    broker, calls = scene.box.broker, 0
    while True:
        before = scene.open()
        done = broker.leave(scene.session, most)
        assert before - scene.open() <= most, "no more of them at a time"
        calls += 1
        scene.box.put(b"x")
        scene.box.settle()
        if done:
            break
    assert calls >= 22 // most
    assert scene.is_gone()
    assert scene.open() == 0
    assert len(scene.box.topic().groups) == (0 if temporary else len(GROUPS))
    assert broker.leave(scene.session, most), "once more does no harm"


def test_it_is_given_no_message_from_the_first_part_on() -> None:
    scene = Scene()
    assert not scene.box.broker.leave(scene.session, 1)
    scene.box.put(b"for others")
    later = [scene.box.pull(name, wait=True) for name in GROUPS]
    scene.box.settle()
    assert [pull.bodies for pull in later] == [[b"for others"]] * len(GROUPS)
    scene.box.broker.resume(scene.session)
    scene.box.put(b"more")
    scene.box.settle()
    assert all(not isinstance(p, PullProbe) or p.bodies == [] for p in scene.probes)


def test_who_can_still_be_told_is_told_why() -> None:
    scene = Scene()
    assert scene.box.broker.leave(scene.session)
    reasons = [p.answers[0] for p in scene.probes if isinstance(p, PullProbe)]
    assert all(isinstance(why, Empty) and why.reason is EmptyReason.LEFT for why in reasons)
    assert all(probe.answers for probe in scene.probes)


def test_nothing_is_said_to_whom_nothing_reaches() -> None:
    scene = Scene()
    scene.session.closed = True
    assert scene.box.broker.leave(scene.session)
    assert scene.is_gone()
    assert not any(probe.open or probe.answers for probe in scene.probes)


def test_leaving_a_group_costs_what_waits_there() -> None:
    """Not all that the session waits for: a thousand groups would be a million steps."""
    scene = Scene()
    session, group = scene.session, scene.box.group("g0")
    assert session.pulls is not None
    assert len(session.pulls[group]) == 2
    scene.box.broker.leave_group(session, group)
    assert group not in session.pulls
    assert scene.open() == len(scene.probes) - 3
