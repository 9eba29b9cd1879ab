"""Pulls that wait, from their coming to their end. A pull is

    queued      in the line of its group, first come, first served
    parked      looked at, and there was nothing for it (`zbus.core.topics.parked_pulls`)
    recorded    handed messages that it is sent when that is durable (`zbus.core.delivery.durable`)
    ended       answered for the last time, or dropped with its session

    queued    -> parked      there is nothing in its partition, its session is stalled, it is full
    parked    -> queued      it may take messages again
    queued    -> recorded    it was given messages, and its credit is used up
    recorded  -> queued      nothing was left of them when they were durable
    any       -> ended       it was given all that it may have, its time is up, it is cancelled

A pull with credit stays in its line while it is given messages.

All pulls of a group end when the group is gone, or cannot be read. There may be hundreds of
thousands of them, and each of the others in a turn would wait for all. So they end in parts, one in
a turn, and a pull that waits in such a group meanwhile gets nothing.

Tests: `tests/core/delivery/test_cancel_pulls.py`.
"""

from __future__ import annotations

from itertools import islice

from zbus.core.delivery.budget import TurnBudget
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.errors import BrokerError, too_many_wait
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Empty, EmptyReason
from zbus.core.topics.topic import Group, Pull, Session


class WaitingPulls:
    """The pulls of all groups."""

    def __init__(
        self, runs: RunQueue, budget: TurnBudget, timers: Timers, waiting_max: int
    ) -> None:
        self.runs = runs
        self._budget = budget
        self.count, self._count_max = 0, waiting_max  # of all groups
        self._over_limit: list[Pull] = []  # this turn's pulls that came when that many waited
        self._timed: list[Pull] = []  # this turn's pulls with a deadline
        self._deadlines = timers.timer(self._time_is_up, lambda pull: pull.session)
        self.cancelled: dict[Group, EmptyReason | BrokerError] = {}  # not all have ended yet

    def add(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        """Queue up; the pull is served or ended later, in this turn at the earliest."""
        pull.group = group
        waiting = group.waiting
        if waiting or group.aside is not None:
            session = pull.session
            older = group.pull_of(session)
            if older is not None:
                if pull.wants.replaces and older.wants.replaces:
                    self.end(older, EmptyReason.REPLACED)
                else:
                    pull.key = pull
                    session.pulls = session.pulls or {}
                    session.pulls.setdefault(group, {})[pull] = None
        waiting[pull.key] = pull
        self.count += 1
        if self.count > self._count_max:
            self._over_limit.append(pull)
        if deadline_ms is not None:
            pull.deadline_ms = deadline_ms
            self._timed.append(pull)
        self.runs.activate(group)

    def resume(self, group: Group, session: Session) -> None:
        """A session takes messages again."""
        if group.aside is not None and session in group.aside.stalled:
            group.put_back(group.aside.take_stalled(session))
            self.runs.activate(group)

    def finish(self, pull: Pull) -> None:
        """It was given all that it may have: it waits no more."""
        if pull.group.forget_pull(pull):
            self.count -= 1
        self._deadlines.discard(pull)
        if pull.key is not pull:
            return
        pull.key = pull.session  # or it would hold on to itself
        pulls = pull.session.pulls
        if pulls is not None and (beside := pulls.get(pull.group)) is not None:
            beside.pop(pull, None)
            if not beside:
                del pulls[pull.group]

    def end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None:
        """The pull ends with nothing."""
        self.finish(pull)
        if not pull.open:
            return
        if pull.session.closed:
            pull.drop()
        else:
            pull.settle(reason if isinstance(reason, BrokerError) else Empty(pull.group, reason))

    # -- all of a group -------------------------------------------------------------------

    def cancel(self, group: Group, reason: EmptyReason | BrokerError) -> None:
        """All pulls of a group end with nothing: the first of them now, very many of them in the
        turns that follow."""
        self.cancelled[group] = reason
        self._cancel_some(group)

    def _cancel_some(self, group: Group) -> None:
        pulls = list(islice(group.pulls(), self._budget.ended))
        self._budget.ended -= len(pulls)
        for pull in pulls:
            self.end(pull, self.cancelled[group])
        if next(group.pulls(), None) is None:
            del self.cancelled[group]
        else:
            self.runs.activate(group)

    # -- the end of a turn ----------------------------------------------------------------

    def end_turn(self) -> None:
        """Groups were served: end what is over, and keep the times of the others."""
        for group in list(self.cancelled):
            self._cancel_some(group)
        if self._timed:
            timed, self._timed = self._timed, []
            for pull in timed:
                if pull.open and pull.credit:
                    if pull.deadline_ms > self.runs.tick.now_ms:
                        self._deadlines.set(pull, pull.deadline_ms)
                        continue
                    try:
                        self._expire(pull)
                    except Exception as error:
                        self.runs.tick.faults.quarantine(pull.session, error)
        if self._over_limit:
            over_limit, self._over_limit = self._over_limit, []
            for pull in over_limit:
                if pull.open and pull.credit and self.count > self._count_max:
                    self.end(pull, too_many_wait(self._count_max))

    def _time_is_up(self, pull: Pull) -> None:
        """A pull has waited as long as it would."""
        if pull.group.active:
            self._timed.append(pull)  # it has its turn in this tick, and then ends
        else:
            self._expire(pull)

    def _expire(self, pull: Pull) -> None:
        group, budget = pull.group, self._budget
        searching = any(p.log.awaits(group) for p in group.topic.partitions)
        # It had no turn, or not all of it.
        crowded = group in budget.starved or (pull.wants.count_max > 1 and budget.batched <= 0)
        if searching or (group.active and (crowded or not pull.postponed)):
            # It may have a message yet: the search goes on in the next tick.
            pull.postponed = True
            self._deadlines.set(pull, self.runs.tick.now_ms + 1)
        else:
            self.end(pull, group.empty_reason(pull))
