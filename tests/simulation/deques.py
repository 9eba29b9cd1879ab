"""What is certain of double-ended queues with transactions: the judge of what Adf clients get.

A client knows when it asked and when it was told, and not when between the two something was done.
So where a message was put is an interval of events, and of two messages one is surely ahead of the
other if their intervals say so. What was handed out is seen at the moment when it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from sys import maxsize
from typing import NamedTuple

from tests.records import Record

Check = Callable[[bool, str], None]


class Fate(enum.Enum):
    """What is known of a message."""

    ASKED = "asked for"  # it may be there, or come yet
    READY = "ready"  # for certain
    HELD = "held"  # by `holder`
    LOOSE = "loose"  # it is there; ready or not
    DOUBT = "doubtful"  # it may be gone
    GONE = "gone"  # and must not come again


class Spot(NamedTuple):
    """It was put at that end, between two events."""

    left: bool
    since: int
    until: int = maxsize

    def ahead_of(self, other: Spot) -> bool:
        """For certain, while both are there."""
        if self.left != other.left:
            return self.left
        first, second = (other, self) if self.left else (self, other)
        return first.until < second.since


@dataclass(slots=True, eq=False)
class Item:
    """A message."""

    serial: int
    body: bytes
    spot: Spot | None  # None = it may be anywhere
    fate: Fate = Fate.ASKED
    floor: int = 0  # its messageid is higher
    messageid: int = 0
    hands: int = 0  # times it was handed out
    least: int = 0  # so many of them are remembered
    number: int = 0  # of its last hand-out
    since: int = 0  # the event that it was
    again: bool = False  # and it was not the first
    reread: bool = False  # who had it may be taken for who has it
    holder: int = 0  # a connection
    held_until_ms: int = maxsize
    sure: bool = True  # its holder may settle it
    doomed: bool = False  # its holder asked to delete it
    told: bool = True  # that it was taken for somebody; what was not is no attempt, but for a crash
    asked: Spot | None = None  # its holder asked to put it back
    firm: bool = True  # where it is outlasts a crash


@dataclass(slots=True, eq=False)
class Removal:
    """All that is ready is to be dropped, or the whole queue."""

    queue: Deque
    whole: bool
    items: list[tuple[Item, int]]  # and the numbers of their last hand-outs
    open: bool = True


@dataclass(slots=True, eq=False)
class Deque:
    """A queue."""

    name: str
    volatile: bool  # is removed now and then
    there: bool = False  # for certain
    items: dict[int, Item] = field(default_factory=dict)  # by serial number
    ids: dict[int, int] = field(default_factory=dict)  # messageid -> serial number
    highest: int = 0  # messageid that somebody was told
    removals: int = 0  # on their way


class Handed(NamedTuple):
    """A hand-out."""

    queue: Deque
    item: Item
    number: int
    duplications: int


class Deques:
    """See the module. Times are the broker's."""

    def __init__(self, names: Iterable[str], check: Check) -> None:
        self.queues = {name: Deque(name, name == "volatile") for name in names}
        self.check = check
        self._events = 0
        self._serial = 0
        self._number = 0  # of hand-outs
        self.handed: dict[int, list[Handed]] = {}  # by connection: its reply was not read

    def event(self) -> int:
        """Something happens, later than all before."""
        self._events += 1
        return self._events

    # -- what clients ask and are told --------------------------------------------------------

    def push(self, queue: Deque, left: bool, body: bytes) -> Item:
        self._serial += 1
        item = Item(self._serial, b"%d:%b" % (self._serial, body), Spot(left, self.event()))
        item.floor = queue.highest
        if queue.removals:
            item.fate = Fate.DOUBT
        queue.items[item.serial] = item
        return item

    def pushed(self, queue: Deque, item: Item, messageid: int) -> None:
        """It was answered with `ok`."""
        name = f"message {item.serial} of {queue.name}"
        self._numbered(queue, item, messageid)
        self.check(messageid > item.floor, f"{name} has the id {messageid} after {item.floor}")
        if item.spot is not None and item.spot.until == maxsize and not item.number:
            item.spot = item.spot._replace(until=self.event())
        if item.fate is Fate.ASKED:
            item.fate = Fate.READY
        queue.there = not queue.volatile

    def _numbered(self, queue: Deque, item: Item, messageid: int) -> None:
        name = f"message {item.serial} of {queue.name}"
        known = item.messageid or messageid
        self.check(messageid == known, f"{name} has the id {messageid}, and had {known}")
        owner = queue.ids.setdefault(messageid, item.serial)
        self.check(owner == item.serial, f"{name} has the id {messageid} of message {owner}")
        item.messageid = messageid
        queue.highest = max(queue.highest, messageid)

    def pulled(self, connection: int, body: bytes, duplications: int, messageid: int) -> Handed:
        """Somebody read the answer to a pull; an item without a number if it is of nobody."""
        waiting = self.handed.get(connection, [])
        # Over HTTP replies come in the order of requests, and a pull that came before another may
        # have been served after it, with the same message.
        for handed in sorted(waiting, key=lambda one: one.duplications != duplications):
            if handed.item.body == body:
                waiting.remove(handed)
                name = f"message {handed.item.serial} of {handed.queue.name}"
                told = f"{name} is told to be {duplications} times a duplicate, and is"
                self.check(duplications == handed.duplications, f"{told} {handed.duplications}")
                self._numbered(handed.queue, handed.item, messageid)
                return handed
        self.check(False, f"connection {connection} is told {body[:20]!r}, which it was not given")
        return Handed(Deque("", True), Item(0, b"", None), 0, 0)

    def settle(self, handed: Handed, action: str) -> None:
        """Its holder asks for this."""
        item = handed.item
        if item.number != handed.number and not item.reread:
            return
        if item.number != handed.number or item.fate is not Fate.HELD:
            # Perhaps it is his: of what was read again somebody may have the same claim twice.
            if item.fate is not Fate.GONE:
                item.fate = Fate.DOUBT if action == "delete" else item.fate
                self._loosen(item)
            return
        if action == "delete":
            item.doomed = True
        else:
            item.asked = Spot(action == "lcancel", self.event())
            # A lease that has ended meanwhile put it elsewhere.
            spot = item.asked if item.held_until_ms == maxsize else None
            self._back(handed.queue, item, Fate.LOOSE, spot)

    def settled(self, handed: Handed, action: str, result: str, now_ms: int) -> None:
        """And was answered."""
        queue, item = handed.queue, handed.item
        same = item.number == handed.number
        name = f"message {item.serial} of {queue.name}"
        if result == "ok":
            if action == "delete":
                self.check(same or item.reread, f"{name} was settled by who had lost it")
                item.fate = Fate.GONE
            elif same and item.fate is Fate.LOOSE and item.asked is not None:
                item.spot = item.asked._replace(until=self.event())
                item.fate, item.firm = Fate.READY, True
        elif result in ("message was not pulled.", "queue not exists."):
            lost = not (same and item.sure) or now_ms >= item.held_until_ms
            self.check(lost, f"{name} is not its holder's: {result}")
            if same:
                item.doomed = False
                self._loosen(item)
        elif same:
            item.fate = Fate.DOUBT if item.doomed else item.fate
            self._loosen(item)

    def _loosen(self, item: Item) -> None:
        """Nothing is certain but that it is there."""
        item.spot, item.asked, item.sure = None, None, False
        if item.fate in (Fate.HELD, Fate.READY):
            item.fate = Fate.LOOSE

    def _back(self, queue: Deque, item: Item, fate: Fate, spot: Spot | None) -> None:
        item.fate = Fate.DOUBT if queue.removals or item.doomed else fate
        item.spot = spot

    def drop(self, queue: Deque, whole: bool) -> Removal:
        """`clear` or `deletequeue` is asked for."""
        sure = (Fate.READY, Fate.HELD, Fate.LOOSE) if whole else (Fate.READY,)
        kept = (Fate.GONE,) if whole else (Fate.GONE, Fate.HELD)
        items = [(item, item.number) for item in queue.items.values() if item.fate in sure]
        for item in queue.items.values():
            # A lease that is over before that is done leaves something that is ready.
            ends = item.fate is Fate.HELD and item.held_until_ms < maxsize
            if ends or item.fate not in kept:
                item.fate = Fate.DOUBT
                item.sure = item.sure and not whole
        queue.removals += 1
        return Removal(queue, whole, items)

    def dropped(self, removal: Removal, right: bool) -> None:
        """It was answered, or nobody knows any more what became of it."""
        if not removal.open:
            return
        removal.open = False
        queue = removal.queue
        queue.removals -= 1
        for item, number in removal.items:
            if right and (removal.whole or (item.number == number and item.fate is Fate.DOUBT)):
                item.fate = Fate.GONE
        for item in queue.items.values():
            # Handed out meanwhile, before or after it; or ready again in between, also because
            # the reply could not be sent, or the recovery of the partition ended all leases.
            again = item.held_until_ms < maxsize or not item.told or item.reread
            doubted = removal.whole or (not item.sure and again)
            if doubted and item.fate in (Fate.HELD, Fate.LOOSE):
                item.fate, item.sure = Fate.DOUBT, False

    # -- what is seen -------------------------------------------------------------------------

    def pick(
        self, queue: Deque, record: Record, connection: int, now_ms: int, until_ms: int
    ) -> None:
        """A message is taken for somebody, who is told when that is written."""
        body = record.message.body
        item = queue.items.get(int(body.split(b":", 1)[0] or b"-1"))
        if item is None or item.body != body:
            self.check(False, f"nobody pushed {body[:20]!r} to {queue.name}")
            return
        name = f"message {item.serial} of {queue.name}"
        self.check(item.fate is not Fate.GONE, f"{name} was settled or dropped and comes again")
        held = item.fate is Fate.HELD and item.sure and now_ms < item.held_until_ms
        self.check(not held, f"{name} is held by connection {item.holder}")
        now = self.event()
        if item.spot is not None:
            spot = item.spot._replace(until=min(item.spot.until, now))
            for other in queue.items.values():
                if other.fate is Fate.READY and other is not item and other.spot is not None:
                    before = other.spot.ahead_of(spot)
                    self.check(not before, f"{name} comes, and {other.serial} is ahead of it")
        self._number += 1
        item.again = item.number > 0
        item.number, item.since = self._number, now
        item.holder, item.held_until_ms = connection, until_ms
        item.fate, item.spot = Fate.HELD, Spot(True, now)
        item.sure, item.doomed, item.firm = not queue.removals, False, False
        item.asked, item.told = None, False

    def hand_out(self, queue: Deque, record: Record, connection: int) -> None:
        """Now he is told."""
        item = queue.items.get(int(record.message.body.split(b":", 1)[0] or b"-1"))
        if item is None:
            return
        name = f"message {item.serial} of {queue.name}"
        duplications = record.attempts - 1
        right = item.least <= duplications <= item.hands
        text = f"{name} comes with {duplications} duplications, and was handed out"
        self.check(right, f"{text} {item.hands} times, {item.least} of them for certain")
        item.hands = item.least = record.attempts
        item.told = True
        handed = Handed(queue, item, item.number, duplications)
        self.handed.setdefault(connection, []).append(handed)

    def untold(self, queue: Deque, record: Record) -> None:
        """Nor will he be: it could not be written, or he has left."""
        item = queue.items.get(int(record.message.body.split(b":", 1)[0] or b"-1"))
        if item is not None and item.fate in (Fate.HELD, Fate.READY):
            self._loosen(item)

    def closed(self, connection: int) -> None:
        """Nothing more is sent to it, and it keeps what it has pulled. But a reply that its client
        has not read by now may not have left: then the message is back."""
        for handed in self.handed.get(connection, ()):
            item = handed.item
            if (item.number, item.holder) == (handed.number, connection):
                self._loosen(item)

    def left(self, connection: int) -> None:
        """A connection is over that held what was sent to it. All of that is on the left again, in
        its order. Where something else came back, it may be behind that: then it is ahead of what
        was there when it was handed out."""
        for queue in self.queues.values():
            held = [item for item in queue.items.values() if item.holder == connection]
            alone = not any(item.again for item in held)
            alone = alone and not any(self._came_back(item) for item in queue.items.values())
            for item in sorted(held, key=lambda item: -item.number):
                if item.fate is Fate.HELD and item.sure and item.told:
                    now = self.event()
                    since = now if alone else item.since
                    self._back(queue, item, Fate.READY, Spot(True, since, now))
                    item.firm = False
                elif item.fate in (Fate.HELD, Fate.LOOSE):
                    self._back(queue, item, Fate.LOOSE, None)
                    item.asked = None
                elif item.fate is Fate.DOUBT:
                    item.spot = item.asked = None
                # What is still to be done for it finds that it has nothing.
                item.holder, item.sure = 0, False

    def _came_back(self, item: Item) -> bool:
        """It may be ready after it was handed out."""
        if item.fate is Fate.HELD and item.sure and item.held_until_ms == maxsize:
            return False
        return item.number > 0 and item.fate is not Fate.GONE

    # -- what becomes of the broker -----------------------------------------------------------

    def fenced(self, queue: Deque) -> None:
        """It is read again: of what was not written nothing is known."""
        for item in queue.items.values():
            if item.fate is Fate.HELD or not item.firm:
                item.hands += not item.told
                item.fate = Fate.DOUBT if item.doomed else item.fate
                item.reread = True
                self._loosen(item)

    def ended(self) -> None:
        """The broker stopped or was killed: nobody holds anything. What was handed out is where it
        was, or on the left."""
        self.handed.clear()
        now = self.event()
        for queue in self.queues.values():
            for item in queue.items.values():
                item.holder = 0
                if item.fate is Fate.HELD or not item.firm:
                    item.hands += not item.told
                    left = item.spot is not None and item.spot.left
                    fate = Fate.LOOSE if item.fate in (Fate.HELD, Fate.READY) else item.fate
                    self._back(queue, item, fate, Spot(True, item.since, now) if left else None)

    def owed(self, queue: Deque) -> list[Item]:
        """Messages that must come, sooner or later."""
        kept = (Fate.READY, Fate.HELD, Fate.LOOSE)
        return [i for i in queue.items.values() if i.fate in kept and not i.doomed]
