"""Requests that wait for something the broker has no queue for.

A long poll of a topic that does not exist yet waits for it: when any client makes the topic,
the polls are its first pulls, in the order in which they came. And the refusal of a long poll
is held back for a moment, because the original's Java client asks again at once whatever it hears.
"""

from __future__ import annotations

from typing import Final

from zbus.core.api import Broker, BrokerError, Outcome, Refusal, Session
from zbus.dialects.camellia.pulls import EMPTY, PullReply
from zbus.dialects.camellia.queues import Queues
from zbus.edge.access import Bearer, Needs
from zbus.edge.rights import admit_reader, forbidden, may_still

HELD_MS: Final = 1_000
"""This long a refusal is held back, at most."""

PARKED_MAX: Final = 100_000
"""Polls that may wait for one topic; another one is answered at once."""


class Parking:
    def __init__(self, broker: Broker, queues: Queues) -> None:
        self._broker = broker
        self._queues = queues
        # By topic, in lower case: deadlines, and who asks.
        self._polls: dict[str, dict[PullReply, tuple[int, Bearer | None]]] = {}
        self._ends = broker.timers.timer(self._end, lambda poll: poll.session)
        self._outcomes: dict[PullReply, Outcome] = {}  # of those that are held back
        self._of: dict[Session, dict[PullReply, None]] = {}  # both kinds
        broker.changes.watch(self.look)

    def wait(self, topic: str, poll: PullReply, deadline_ms: int) -> None:
        """Until there is a topic."""
        polls = self._polls.setdefault(topic.lower(), {})
        if self._broker.stopping or len(polls) >= PARKED_MAX:
            poll.settle(EMPTY)
            return
        polls[poll] = deadline_ms, poll.peer.asker
        self._keep(poll, deadline_ms)

    def hold(self, poll: PullReply, refusal: BrokerError, deadline_ms: int) -> None:
        """Refuse it, but not yet."""
        self._outcomes[poll] = refusal
        self._keep(poll, min(deadline_ms, self._broker.now_ms + HELD_MS))

    def look(self) -> None:
        """There may be topics that were not there before, or the broker stops."""
        if not self._polls:
            return
        if self._broker.stopping:
            for poll in [poll for polls in self._polls.values() for poll in polls]:
                self._end(poll)
            return
        for name in [name for name in self._polls if self._broker.topic(name) is not None]:
            self.open(name)

    def open(self, name: str) -> None:
        """There is the topic: its polls are pulls from now on."""
        needs, now_ms = Needs("consume", name, (name,)), self._broker.now_ms
        for poll, (deadline_ms, bearer) in self._polls.pop(name.lower(), {}).items():
            self._let_go(poll)
            if not may_still(bearer, needs, now_ms):
                poll.settle(forbidden(name))
                continue
            group = self._queues.reading(name)
            if isinstance(group, BrokerError):
                self.hold(poll, group, deadline_ms)
            elif group is None:
                poll.settle(BrokerError(Refusal.TOPIC_UNKNOWN, f"there is no topic {name}"))
            else:
                self._broker.pull(group, poll, deadline_ms)
                admit_reader(poll.peer, group, bearer)

    def _keep(self, poll: PullReply, until_ms: int) -> None:
        self._ends.set(poll, until_ms)
        self._of.setdefault(poll.session, {})[poll] = None
        poll.session.when_left(self._left)

    def _let_go(self, poll: PullReply) -> None:
        self._ends.discard(poll)
        polls = self._of[poll.session]
        del polls[poll]
        if not polls:
            del self._of[poll.session]

    def _end(self, poll: PullReply) -> None:
        """It has waited long enough."""
        poll.settle(self._take_out(poll))

    def _take_out(self, poll: PullReply) -> Outcome:
        """How it ends."""
        self._let_go(poll)
        name = poll.topic.lower()
        polls = self._polls.get(name, {})
        polls.pop(poll, None)
        if not polls:
            self._polls.pop(name, None)
        return self._outcomes.pop(poll, EMPTY)

    def _left(self, session: Session) -> None:
        """A client is gone."""
        for poll in list(self._of.get(session, ())):
            outcome = self._take_out(poll)
            if session.closed:
                poll.drop()
            else:  # it sends no more, and still hears
                poll.settle(outcome)
