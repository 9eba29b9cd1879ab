"""A node of a SEMQ world: the real endpoint on a database in memory, and what a shell does for it.

The process of a node may end in any commit; what it wanted done then is lost, from some effect on.
Its applications take messages and have done with them when the world says so.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from random import Random
from typing import TYPE_CHECKING

from tests.semq.database import Crashed, Database, open_database
from tests.simulation.semq_book import Sent
from tests.simulation.semq_links import DirectLink, Link, PlatformLink, closed, words
from tests.simulation.semq_tables import Noted, noted, watch
from zbus.semq.endpoint.endpoint import Endpoint, EndpointOptions, StoreError
from zbus.semq.endpoint.events import (
    Came,
    Close,
    Closed,
    Connect,
    Done,
    Effect,
    Event,
    Happened,
    Left,
    Opened,
    Refused,
    Reported,
    Submit,
    Submitted,
    Take,
    Taken,
    Transmit,
    Unreachable,
)
from zbus.semq.protocol.words import PLATFORM

if TYPE_CHECKING:
    from tests.simulation.semq import SemqSimulation

STEPS_MAX = 200
"""Steps of one node at one time."""

USERS = ("", "alice")
HOLDERS = {1: "", 2: "", 3: "alice"}
"""Applications, and whose messages they take."""


class Node:
    """See the module. `endpoint` is None while the process does not run."""

    def __init__(self, world: SemqSimulation, name: str, options: EndpointOptions) -> None:
        self.world = world
        self.name = name
        self.options = options
        self.random: Random = world.random
        self.database: Database = open_database()
        self.endpoint: Endpoint | None = None
        self.skew_ms = 0
        self.life = 0  # of its disk
        self.starts = 0
        self.links: dict[int, Link] = {}
        self.events: deque[Event] = deque()
        self.submits: dict[int, Sent] = {}
        self.takes: dict[int, int] = {}  # ask -> holder
        self.dones: dict[int, tuple[int, int, int]] = {}  # ask -> holder, row, serial
        self.held: dict[int, list[tuple[int, int]]] = {}  # holder -> rows, and their serials
        self.asks = 0
        self.sent: list[str] = []  # commands that it transmitted lately
        self.connect_ms: int | None = 0  # when the platform is to be called
        self.backup: tuple[Database, int] | None = None
        self._turned = (0, 0)  # when, and how often
        self._kept = 0  # events of a step that failed: they wait for the next one
        self._wake_ms: int | None = None  # of the world: the program's pauses are not of its clock

    @property
    def now_ms(self) -> int:
        """As this node's clock has it."""
        return self.world.now_ms + self.skew_ms

    @property
    def runs(self) -> bool:
        return self.endpoint is not None

    def say(self, text: str) -> None:
        self.world.say(f"{self.name}: {text}")

    # -- life ---------------------------------------------------------------------------------

    def start(self, renewed: bool = False) -> None:
        """The process begins; its shell calls the platform. `renewed`: the disk is another one."""
        self.starts += 1
        random = Random(f"{self.world.seed} {self.name} {self.starts}")
        self.say("starts" + " on another disk" * renewed)
        try:
            self.endpoint = Endpoint(self.database, self.options, random, renewed)
        except Crashed as crash:
            self.end(str(crash))
            self.world.faults.down(self)
            return
        watch(self.database)
        self.connect_ms = self.world.now_ms

    def end(self, how: str) -> None:
        """The process ends; whoever it was linked to is told of it, or not."""
        if self.endpoint is not None:
            self.notice()
        self.endpoint = None
        self.say(f"ends {how}")
        for link in self.links.values():
            link.close()
        for one in (self.links, self.submits, self.takes, self.dones, self.held):
            one.clear()
        self.events.clear()
        self._kept = 0
        self._wake_ms = None
        self.connect_ms = None
        self.world.book.let_go(self.name)
        self.database = self.database.copy()

    def copy_of_disk(self) -> Database:
        """A backup, made while the process runs."""
        return self.database.copy()

    def restore(self) -> None:
        """An old backup takes the place of what is on the disk."""
        assert self.backup is not None
        backup, since_ms = self.backup
        self.database = backup
        self.life += 1
        self.world.book.restored(self.name, since_ms, self.world.judge.committed)
        self.start(renewed=True)

    # -- links --------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Something happens to it."""
        if self.runs:
            self.events.append(event)

    def lost(self, link: Link) -> None:
        """A link is no more."""
        if self.links.pop(link.number, None) is not None:
            self.tell(closed(link))
            self._call_again(link)

    def _call_again(self, link: Link) -> None:
        if isinstance(link, PlatformLink):
            self.connect_ms = self.world.now_ms + self.random.randint(500, 5_000)

    def opened(self, link: Link, event: Opened) -> None:
        self.links[link.number] = link
        self.tell(event)

    def platform_link(self) -> PlatformLink | None:
        for link in self.links.values():
            if isinstance(link, PlatformLink):
                return link
        return None

    def direct_link(self, peer: str, caller: bool) -> DirectLink | None:
        for link in self.links.values():
            if isinstance(link, DirectLink) and (link.peer, link.caller) == (peer, caller):
                return link
        return None

    # -- steps --------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """In the world's time."""
        dues = [] if self.connect_ms is None else [self.connect_ms]
        if self.endpoint is not None:
            due_ms = self.endpoint.next_due()
            dues += [] if due_ms is None else [due_ms - self.skew_ms]
            dues += [] if self._wake_ms is None else [self._wake_ms]
        return min(dues, default=None)

    def _is_due(self) -> bool:
        """Its clock may have gone back since the pause began: it ends all the same."""
        assert self.endpoint is not None
        due_ms = self.endpoint.next_due()
        woken = self._wake_ms is not None and self._wake_ms <= self.world.now_ms
        return woken or (due_ms is not None and due_ms <= self.now_ms)

    def turn(self) -> bool:
        """What there is to do now. Says whether there was anything."""
        if self.endpoint is None:
            return False
        if self.connect_ms is not None and self.connect_ms <= self.world.now_ms:
            self.connect_ms = None
            self.world.call_platform(self)
        if len(self.events) <= self._kept and not self._is_due():
            return False
        at_ms, count = self._turned
        count = count + 1 if at_ms == self.world.now_ms else 0
        self._turned = self.world.now_ms, count
        self.world.check(count < STEPS_MAX, f"{self.name} does not come to rest")
        count = self.random.choice((1, len(self.events), len(self.events)))
        events = [self.events.popleft() for _ in range(min(count, len(self.events)))]
        self._kept = 0
        self._step(events)
        self._plan()
        return True

    def _plan(self) -> None:
        """When the pause that begins now ends."""
        due_ms = None if self.endpoint is None else self.endpoint.next_due()
        self._wake_ms = None if due_ms is None else due_ms - self.skew_ms

    def _step(self, events: list[Event]) -> None:
        assert self.endpoint is not None
        try:
            effects = self.endpoint.step(self.now_ms, events)
        except Crashed as crash:
            self.end(str(crash))
            self.world.faults.down(self)
            return
        except (StoreError, sqlite3.Error) as error:
            self._refused(events, error)
            return
        self.notice()
        self.release(effects)

    def _refused(self, events: list[Event], error: Exception) -> None:
        """Nothing of it has happened: what came is lost with its link, and sends are refused."""
        self.say(f"cannot store: {error}")
        self.world.check(isinstance(error, StoreError), f"{self.name}: {error!r} is not told apart")
        self.world.counts["steps of a full disk"] += 1
        for event in events:
            if isinstance(event, Came):
                link = self.links.get(event.link)
                if link is not None:
                    self.events = deque(one for one in self.events if not _of(one, event.link))
                    link.close()
                    self.lost_by_us(link)
            elif isinstance(event, Submit):
                self.world.book.refused(self.submits.pop(event.ask).serial)
            elif isinstance(event, Done):
                self._done_again(*self.dones.pop(event.ask))
            elif isinstance(event, Take):
                self.takes.pop(event.ask, None)
            else:
                self.events.append(event)
                self._kept += 1

    def lost_by_us(self, link: Link) -> None:
        if self.links.pop(link.number, None) is not None:
            self.tell(Closed(link.number))
            self._call_again(link)

    def notice(self) -> list[Noted]:
        """What became of its rows."""
        found = noted(self.database)
        self.world.judge.changed(self, found)
        return found

    # -- effects ------------------------------------------------------------------------------

    def release(self, effects: list[Effect]) -> None:
        """They are done; or the process ends in the middle of them."""
        for effect in effects:
            if self.world.faults.ends_here():
                self.end("among effects")
                self.world.faults.down(self)
                return
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Transmit):
            link = self.links.get(effect.link)
            if link is not None:
                self.world.judge.transmits(self, link, effect.frame)
                link.transmit(effect.frame)
        elif isinstance(effect, Close):
            link = self.links.get(effect.link)
            if link is not None:
                self.say(f"closes link {effect.link}: {effect.why}")
                link.close()
                self.lost_by_us(link)
        elif isinstance(effect, Connect):
            self.world.call(self, effect)
        elif isinstance(effect, Happened):
            self.world.judge.happened(self, effect)
        else:
            self._answered(effect)

    def _answered(self, effect: Submitted | Taken | Reported | Refused) -> None:
        book, ask = self.world.book, effect.ask
        if isinstance(effect, Submitted):
            sent = self.submits.pop(ask)
            sent.life = self.life
            book.submitted(sent.serial, effect.record, effect.mid)
            self.say(f"has {sent}")
        elif isinstance(effect, Taken):
            if ask in self.takes:  # else whoever asked has left
                self._taken(self.takes.pop(ask), effect)
        elif isinstance(effect, Reported):
            if ask in self.dones:
                book.done(self.dones.pop(ask)[2])
        elif ask in self.submits:
            self.say(f"is refused: {effect.status} {effect.text}")
            book.refused(self.submits.pop(ask).serial)
        elif ask in self.dones:
            self.world.check(effect.status == 507, f"{self.name} refuses a done row: {effect}")
            self._done_again(*self.dones.pop(ask))
        else:
            self.takes.pop(ask, None)

    def _done_again(self, holder: int, row: int, serial: int) -> None:
        self.held.setdefault(holder, []).append((row, serial))

    def _taken(self, holder: int, taken: Taken) -> None:
        if taken.frame is None:
            return
        again = " again" * taken.again
        self.say(f"holder {holder} is handed{again} row {taken.row}: {words(taken.frame)}")
        sent = self.world.book.handed(self.name, holder, HOLDERS[holder], taken)
        self.world.judge.handed(self, sent, taken)
        self.held.setdefault(holder, []).append((taken.row, sent.serial))

    # -- applications -------------------------------------------------------------------------

    def submit(self, sent: Sent, **more: str | int) -> None:
        self.asks += 1
        self.submits[self.asks] = sent
        self.world.book.submit(sent)
        self.tell(
            Submit(
                self.asks,
                sent.destination,
                sent.body,
                level=sent.level,
                ack2=sent.ack2,
                ordered=sent.ordered,
                app_key=sent.app_key,
                expires_ms=sent.expires_ms,
                **more,  # type: ignore[arg-type]  # route and priority
            )
        )

    def take(self, holder: int, wait: bool = True) -> None:
        if holder in self.takes.values():
            return
        self.asks += 1
        self.takes[self.asks] = holder
        self.tell(Take(self.asks, HOLDERS[holder], wait, holder))

    def have_done(self, holder: int) -> bool:
        """With one of what it holds. Says whether there was any."""
        held = self.held.get(holder)
        if not held:
            return False
        row, serial = held.pop(self.random.randrange(len(held)))
        if not row:
            return True  # of level 1, and nobody's any more
        self.asks += 1
        self.dones[self.asks] = (holder, row, serial)
        self.world.book.sent[serial].done_asked = True
        self.tell(Done(self.asks, row))
        return True

    def leave(self, holder: int) -> None:
        """The application ends, and another one begins."""
        self.held.pop(holder, None)
        self.world.book.let_go(self.name, holder)
        self.takes = {ask: who for ask, who in self.takes.items() if who != holder}
        self.tell(Left(holder))


def _of(event: Event, number: int) -> bool:
    return isinstance(event, Came) and event.link == number


__all__ = ["HOLDERS", "PLATFORM", "USERS", "Node", "Unreachable"]
