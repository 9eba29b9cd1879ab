"""What the MQCloud dialect promises, and who has what: a model that is only as exact as it can be.

A message of a group is OPEN, or DONE (an acknowledgement of it was confirmed), or in DOUBT. Whoever
names a batch puts it in doubt from when he asks until he is answered: then it is known what came of
it, or it stays in doubt. What is OPEN has to come at last; what is DONE must not come again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.records import Record

Check = Callable[[bool, str], None]
GRANTED = "granted"
Place = tuple[int, int]
"""Queue and offset."""


class Fate(enum.Enum):
    """Of a message, for one group."""

    OPEN = "open"
    DOUBT = "doubtful"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Post:
    """A message that somebody produced."""

    serial: int
    body: bytes
    delayed: bool
    place: Place | None = None
    sure: bool = False  # it was answered, or handed out
    ids: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Item:
    """A message, for one group."""

    post: Post
    fate: Fate = Fate.OPEN
    touched: bool = False  # handed out, or skipped, since the group came to its place
    odd: bool = False  # somebody wanted it again: so it comes whenever
    batch: Batch | None = None  # the last that had it
    asked: set[Settle] = field(default_factory=set)  # on their way, and may settle it
    again: set[object] = field(default_factory=set)  # requests for it that were not served yet
    loose: bool = False  # what led to its last hand-out may be forgotten by a crash
    move: Move | None = None  # the reset that put it where it is, and nothing came after
    last: int = 0  # when anything happened to it

    @property
    def owed(self) -> bool:
        return self.post.sure and self.fate is Fate.OPEN and not self.asked


class Move(NamedTuple):
    """What a reset did to a message."""

    reset: object
    comes: bool  # else it was skipped
    batch: Batch | None  # had it before, and has it again if the reset is forgotten


@dataclass(slots=True, eq=False)
class Batch:
    """What one client was handed out."""

    number: int  # of its connection
    queue: int
    items: dict[int, Item]
    lease_ms: int
    low_ms: int  # it was locked then at the earliest,
    picked_ms: int  # and then at the latest
    begin: int | None = None  # not known before the client has read it
    at_ms: int | None = None
    told: bool = False
    read: bool = False
    over: int = 0  # it ended for certain, then
    doubt: bool = False  # somebody may have ended it
    shaken: bool = False  # its lock may be forgotten, and its leases are not
    freed: bool = False  # it was unlocked, or the next one handed out, which a crash may undo
    moved: bool = False  # its messages are no more its own: the group was reset
    asks: set[Settle] = field(default_factory=set)

    def holds(self, now_ms: int) -> bool:
        """For certain: it is somebody's, and nobody has said anything else."""
        certain = self.told and not (self.over or self.doubt or self.shaken or self.moved)
        begun_ms = self.low_ms if self.at_ms is None else self.at_ms
        return certain and not self.asks and now_ms < begun_ms + self.lease_ms

    def may_hold(self, since_ms: int, since: int) -> bool:
        """It may have held its queue since then."""
        ended = self.over and self.over < since
        return not ended and since_ms < self.picked_ms + self.lease_ms


@dataclass(slots=True, eq=False)
class Settle:
    """A requestId that is on its way, to acknowledge or to unlock."""

    unlock: bool
    queue: int
    offset: int
    next: int
    lock_ms: int
    sent: int
    fair: Batch | None = None  # it is that batch's own, and nothing is known against it
    batches: list[Batch] = field(default_factory=list)  # that it may mean

    def may_mean(self, batch: Batch, pop: bool) -> bool:
        if batch.over or batch.queue != self.queue:
            return False
        if batch.shaken:
            inside = any(self.offset <= offset < self.next for offset in batch.items)
            return inside or batch.begin in (None, self.offset)
        if batch.begin not in (None, self.offset) and (pop or self.unlock):
            return False
        if self.unlock and batch.at_ms not in (None, self.lock_ms):
            return False
        return self.lock_ms >= (batch.low_ms if batch.at_ms is None else batch.at_ms)

    def may_settle(self, batch: Batch) -> list[Item]:
        if self.unlock or (not batch.shaken and batch.begin not in (None, self.offset)):
            return []
        least = self.offset if batch.begin not in (None, self.offset) else 0
        return [i for o, i in batch.items.items() if least <= o < self.next and i.batch is batch]


@dataclass(slots=True, eq=False)
class Topic:
    """One topic, and its messages."""

    name: str
    queues: int
    posts: dict[int, Post] = field(default_factory=dict)
    places: dict[Place, Post] = field(default_factory=dict)

    def put(self, post: Post, place: Place, check: Check) -> None:
        """It is known where it is."""
        other = self.places.setdefault(place, post)
        same = other is post and post.place in (None, place)
        check(same, f"message {post.serial} of {self.name} is at {place}, as is {other.serial}")
        post.place = place

    def of(self, body: bytes) -> Post | None:
        digits = body.split(b":", 1)[0]
        post = self.posts.get(int(digits)) if digits.isdigit() else None
        return post if post is not None and post.body == body else None


class Progress:
    """One group: a clustering consumer, or one client of a broadcast."""

    def __init__(self, topic: Topic, name: str, pop: bool, check: Check) -> None:
        self.topic = topic
        self.name = name
        self.pop = pop
        self.check = check
        self.items: dict[Place, Item] = {}
        self.batches: list[list[Batch]] = [[] for _ in range(topic.queues)]
        self.open: list[Settle] = []
        self.moves: list[object] = []
        self.fences = 0
        self.requests = 0  # for messages, so far
        self.late_ms = 0  # until then somebody may be at work who is gone
        self.skipped = [0] * topic.queues  # a reset led there: before it nothing has to come
        self.now = 0  # counts what happens

    def tick(self) -> int:
        self.now += 1
        return self.now

    def item(self, post: Post) -> Item:
        assert post.place is not None
        item = self.items.get(post.place)
        if item is None:
            item = self.items[post.place] = Item(post)
            if post.place[1] < self.skipped[post.place[0]]:
                item.fate, item.touched = Fate.DOUBT, True
        return item

    def _all(self, queue: int) -> Iterable[tuple[int, Item]]:
        """Everything that is stored in a queue for certain."""
        for (where, offset), post in self.topic.places.items():
            if where == queue and post.sure:
                yield offset, self.item(post)

    # -- handing out --------------------------------------------------------------------------

    def pick(
        self, records: list[Record], number: int, lease_ms: int, low_ms: int, now_ms: int
    ) -> Batch | None:
        """Messages of one queue are taken for somebody, who is told when that is written."""
        now, items = self.tick(), {}
        queue = records[0].partition
        for record in records:
            post = self.topic.of(record.message.body)
            if post is None or record.partition != queue:
                self.check(False, f"{self.name}: nobody sent {record.message.body[:20]!r}")
                return None
            self.topic.put(post, (queue, record.offset), self.check)
            items[record.offset] = self.item(post)
        held = self.batches[queue]
        if not self.pop:
            for batch in held:
                text = f"{self.name}: queue {queue} is handed to connection {number}, and is"
                self.check(not batch.holds(now_ms), f"{text} that of connection {batch.number}")
        self._in_order(queue, items)
        batch = Batch(number, queue, items, lease_ms, low_ms, now_ms)
        for offset, item in items.items():
            name = f"message {item.post.serial} at {queue}/{offset}"
            old = item.batch
            taken = self.pop and old is not None and not item.move and old.holds(now_ms)
            self.check(not taken, f"{name} of {self.name} is somebody else's")
            wrong = item.fate is Fate.DONE and not item.again
            self.check(not wrong, f"{name} was acknowledged and comes again to {self.name}")
            if item.fate is Fate.DONE:
                item.fate = Fate.DOUBT
            wished = any(one != GRANTED for one in item.again)
            item.loose = wished or item.move is not None
            item.touched, item.batch, item.move, item.last = True, batch, None, now
        for other in held if not self.pop else ():
            if not other.over:
                other.over, other.freed = now, True
        held.append(batch)
        for settle in self.open:
            self._threaten(settle, batch)
        return batch

    def _in_order(self, queue: int, items: dict[int, Item]) -> None:
        """Whoever gets a message has got, or gets, those before it. What was delayed, or wanted
        again, comes whenever."""
        usual = [o for o, item in items.items() if not (item.post.delayed or item.odd)]
        if self.pop:
            usual = [offset for offset in usual if not items[offset].touched]
        last = max(usual, default=-1)
        for offset, item in self._all(queue):
            left = offset < last and offset not in items and item.owed
            left = left and not (item.post.delayed or item.odd or (self.pop and item.touched))
            text = f"{self.name} gets {queue}/{last} before {item.post.serial} at {offset}"
            self.check(not left, text)

    def told(self, batch: Batch) -> None:
        """Now he is told, so it is written."""
        batch.told = True
        for item in batch.items.values():
            item.post.sure = True
            item.again.discard(GRANTED)
            if item.batch is batch and item.fate is Fate.DOUBT and not item.loose:
                item.fate = Fate.OPEN

    def untold(self, batch: Batch) -> None:
        """Nor will he be: they go back."""
        batch.over = self.tick()
        for item in batch.items.values():
            if item.batch is batch:
                item.touched = False

    # -- requestIds ---------------------------------------------------------------------------

    def settle(self, settle: Settle) -> None:
        """It is sent."""
        self.open.append(settle)
        for batch in self.batches[settle.queue] if settle.queue < self.topic.queues else ():
            self._threaten(settle, batch)

    def _threaten(self, settle: Settle, batch: Batch) -> None:
        if settle.may_mean(batch, self.pop):
            settle.batches.append(batch)
            batch.asks.add(settle)
            for item in settle.may_settle(batch):
                item.asked.add(settle)
                item.last = self.now

    def settled(self, settle: Settle, said: str | None, own: Batch | None, now_ms: int) -> None:
        """It was answered, or never is (None), or nobody knows what came of it. `own` is what was
        handed out by the same request, after it."""
        if settle not in self.open:
            return
        now = self.tick()
        self.open.remove(settle)
        meant = [b for b in settle.batches if b is not own and self._may_still(settle, b)]
        for batch in settle.batches:
            batch.asks.discard(settle)
            for item in batch.items.values():
                if settle in item.asked:
                    item.asked.discard(settle)
                    item.last = now
                    if said is None and item.fate is Fate.OPEN:
                        item.fate = Fate.DOUBT  # whoever has it by now
        if said is None:
            for batch in meant:
                batch.doubt = True
                self._doubt(settle, batch)
        elif said.startswith("ok ") or said.endswith("unlock:true"):
            text = f"{self.name} is told {said!r} of what nobody has"
            self.check(bool(meant), text)
            self._done(settle, meant, now)
        elif said.startswith(("not the locked", "offset has")):
            for batch in meant:
                batch.doubt = True  # it is unlocked
        self._fair(settle, said, now_ms)

    def _may_still(self, settle: Settle, batch: Batch) -> bool:
        """Now that more is known of it than when it was asked."""
        over, batch.over = batch.over, 0
        found = settle.may_mean(batch, self.pop)
        batch.over = over
        return found

    def _doubt(self, settle: Settle, batch: Batch) -> None:
        for item in settle.may_settle(batch):
            if item.fate is Fate.OPEN:
                item.fate = Fate.DOUBT

    def _done(self, settle: Settle, meant: list[Batch], now: int) -> None:
        if len(meant) > 1 or any(batch.shaken or batch.begin is None for batch in meant):
            for batch in meant:
                batch.doubt = True
                self._doubt(settle, batch)
            return
        for batch in meant:
            batch.over, batch.freed = batch.over or now, settle.unlock
            text = f"{self.name}: a batch at {batch.begin} is acknowledged by {settle.offset}"
            self.check(batch.begin == settle.offset, text)
            for item in settle.may_settle(batch):
                item.fate = Fate.DONE

    def _fair(self, settle: Settle, said: str | None, now_ms: int) -> None:
        """A batch's own requestId counts until its time is over."""
        batch = settle.fair
        if said is None or batch is None or batch.asks or batch.at_ms is None:
            return
        right = said.startswith("ok ") or said.endswith("unlock:true")
        ended = batch.over or batch.doubt or batch.shaken or batch.moved
        ended = ended or now_ms >= batch.at_ms + batch.lease_ms
        self.check(right or bool(ended), f"{self.name} is told {said!r} of what it has")

    # -- resets, and what is wanted again -------------------------------------------------------

    def moved(self, places: list[int]) -> None:
        """The group stands elsewhere now, in the queues where that is not -1. It may yet be
        forgotten."""
        now, move = self.tick(), object()
        self.moves.append(move)
        for queue, place in enumerate(places):
            if place < 0:
                continue
            self.skipped[queue] = max(self.skipped[queue], place)
            for batch in self.batches[queue]:
                batch.moved = True
            for (where, offset), post in self.topic.places.items():
                if where != queue:
                    continue
                item = self.item(post)
                if offset < place or item.asked or item.fate is Fate.DONE:
                    skipped = offset < place and item.fate is Fate.DONE and not item.asked
                    item.fate = Fate.DONE if skipped else Fate.DOUBT
                item.touched = offset < place
                former = item.batch if item.move is None else item.move.batch
                item.move = Move(move, offset >= place, former)
                item.batch, item.last = None, now

    def reset(self, since: int) -> None:
        """That is durable now, if it was the only one since then."""
        moves = self.moves[since:]
        for item in self.items.values():
            if item.move is None or len(moves) != 1 or item.move.reset is not moves[0]:
                continue
            if not item.asked:
                item.fate = Fate.OPEN if item.move.comes else Fate.DONE
            item.move = None

    def want(self, post: Post) -> object:
        """Somebody wants it again."""
        item, wish = self.item(post), object()
        item.again.add(wish)
        item.odd = True
        return wish

    def wanted(self, post: Post, wish: object, since: int, said: int) -> None:
        """He was answered: 200, or 500, or nothing (0)."""
        item = self.item(post)
        if not said or wish not in item.again:
            return
        item.again.discard(wish)
        if said == 200:
            item.again.add(GRANTED)
            if item.fate is Fate.DONE:
                same = item.last <= since and not item.asked
                item.fate = Fate.OPEN if same else Fate.DOUBT

    # -- the end of things ----------------------------------------------------------------------

    def shaken(self) -> None:
        """Everything is read again: of locks nothing is known any more."""
        self.fences += 1
        for held in self.batches:
            for batch in held:
                batch.shaken = True
                batch.over = 0 if batch.freed else batch.over
        for item in self.items.values():
            if item.move is not None:
                item.batch, item.move = item.move.batch, None
                item.touched |= item.batch is not None  # and is leased, if the reset is forgotten
        for settle in self.open:  # it may mean more than before
            for batch in self.batches[settle.queue] if settle.queue < self.topic.queues else ():
                if batch not in settle.batches:
                    self._threaten(settle, batch)

    def owed(self) -> list[int]:
        """What has to come at last."""
        found = []
        for queue in range(self.topic.queues):
            found += [item.post.serial for _, item in self._all(queue) if item.owed]
        return found
