"""What a group has been promised and given: whom it leased what, how often, and until when.

A message that is not acknowledged comes again: not while its lease is open, not before its pause is
over, and each time with one attempt more. Deliveries are numbered through. What a crash may take of
them is the end: all that were written in the turn that did not end, if the process was killed; or
all since the last write of that partition that was confirmed, if the power was cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Check = Callable[[bool, str], None]
"""Of something that has to be so: whether it is, and what is wrong if not."""


@dataclass(slots=True, eq=False)
class Sent:
    """A message that somebody sent, whatever became of it; or a copy of it that the broker put
    somewhere, as a dead letter or on its way back. A copy has a negative serial number."""

    serial: int
    body: bytes
    tag: bytes
    key: bytes
    note: bytes
    due_ms: int  # not before; 0 = at once
    ttl_ms: int  # 0 = for ever
    place: tuple[int, int] | None = None  # partition and offset, when known
    expired_ms: int = 0  # from then on it must not be handed out; 0 = not known
    stored: bool = False  # the broker said so
    refused: bool = False  # the broker said so
    lost: bool = False  # a crash took it, as it may at the topic's level
    excused: bool = False  # perhaps purged: it need not be there any more
    dead: bool = False  # purged for certain: it must not come any more
    delivered_before: int = 0  # the number of the last delivery when it was sent
    confirms: Callable[[], None] | None = None  # to be called when it is known to be stored


@dataclass(frozen=True, slots=True)
class Retries:
    """What becomes of what is not acknowledged, and in which order a group reads."""

    attempts_max: int = 0
    pauses_ms: tuple[int, int] = (0, 0)  # the first, and the longest
    dead_letter: str = ""
    front: bool = False  # leases of a connection that is gone are given back
    by_key: bool = False
    rate: int = 0
    one_batch: bool = False

    def headers(self) -> dict[str, str]:
        """As `declare` takes them."""
        first_ms, longest_ms = self.pauses_ms
        return {
            "group_max_attempts": str(self.attempts_max or "none"),
            "group_backoff": f"{first_ms},{longest_ms}" if first_ms else "none",
            "group_dead_letter": self.dead_letter,
            "group_on_loss": "front" if self.front else "keep",
            "group_order": "key" if self.by_key else "none",
            "group_rate": str(self.rate or "none"),
            "group_one_batch": "true" if self.one_batch else "false",
        }

    def pause_ms(self, attempts: int) -> int:
        """Before the next attempt."""
        first_ms, longest_ms = self.pauses_ms
        return min(longest_ms, first_ms * 2 ** (attempts - 1))


@dataclass(slots=True, eq=False)
class GroupBook:
    """See the module."""

    name: str
    leased: bool
    filter: bytes
    lease_ms: int
    window: int
    retries: Retries = Retries()
    declared: bool = False  # the broker said so
    paused: bool = False  # likewise
    switching: int = 0  # requests on their way that say that, or the contrary
    switches: int = 0  # such requests, ever
    seen: set[int] = field(default_factory=set)  # serials that were ever given
    given: set[int] = field(default_factory=set)  # since the group was moved
    ordered: set[int] = field(default_factory=set)  # taken for somebody, for the sake of order
    highest: dict[tuple[int, bytes], int] = field(default_factory=dict)  # offset of first ones
    run: set[int] = field(default_factory=set)  # given in this run of the broker
    leases: dict[int, int] = field(default_factory=dict)  # serial -> deadline
    pauses: dict[int, int] = field(default_factory=dict)  # serial -> not before
    times: dict[int, int] = field(default_factory=dict)  # serial -> due, if it was changed
    timing: Counter[int] = field(default_factory=Counter)  # requests for that, not answered
    handed: dict[int, list[int]] = field(default_factory=dict)  # serial -> its deliveries
    least: dict[int, int] = field(default_factory=dict)  # so many are not forgotten; else all
    # Perhaps written and not told when the broker ended: attempts that nobody saw.
    unseen: Counter[int] = field(default_factory=Counter)
    untold: set[int] = field(default_factory=set)  # taken for somebody who was not told since
    nacking: Counter[int] = field(default_factory=Counter)  # serial -> nacks not answered
    acking: set[int] = field(default_factory=set)  # an ack was sent, perhaps
    acked: set[int] = field(default_factory=set)  # and confirmed
    results: dict[int, list[int]] = field(default_factory=dict)  # serial -> what settles it
    buried: set[int] = field(default_factory=set)  # found as dead letters
    redriven: bool = False  # somebody tried: what then stayed was leased, and a crash may keep that
    moves: int = 0
    moving: bool = False  # that was asked for and is not answered
    sought: dict[int, int] = field(default_factory=dict)  # partition -> it was moved there
    passed: set[int] = field(default_factory=set)  # need not come: perhaps it was moved past them

    def wants(self, sent: Sent) -> bool:
        """Whether the message has to come, sooner or later."""
        if not sent.stored or sent.lost or sent.excused or sent.ttl_ms:
            return False
        if sent.serial < 0 and self.redriven:
            return False  # it may be back where it came from
        return passes(self.filter, sent.tag) and not self.is_past(sent)

    def is_past(self, sent: Sent) -> bool:
        """The group was moved beyond it, perhaps."""
        if sent.serial in self.passed:
            return True
        return sent.place is not None and sent.place[1] < self.sought.get(sent.place[0], 0)

    def may_be_done(self, serial: int) -> bool:
        """Somebody tried to finish it, or it was handed out too often."""
        if serial in self.acking or serial in self.results:
            return True
        most = self.retries.attempts_max
        return bool(most) and self.attempts_most(serial) >= most

    def attempts_most(self, serial: int) -> int:
        """So many attempts the broker may have counted."""
        return len(self.handed.get(serial, ())) + self.unseen[serial]

    def open_leases(self, now_ms: int) -> Iterable[int]:
        """Serials that somebody has, and nobody tried to finish."""
        for serial, deadline_ms in self.leases.items():
            if deadline_ms > now_ms and not self.may_be_done(serial):
                yield serial

    # -- what is handed out -------------------------------------------------------------------

    def hand_out(
        self, check: Check, name: str, serial: int, attempts: int, now: tuple[int, int]
    ) -> None:
        """It is leased. `now`: the time, and the number of the delivery."""
        now_ms, number = now
        left_ms = self.leases.get(serial, 0) - now_ms
        check(left_ms <= 0, f"{name} is leased to somebody else for {left_ms} ms")
        early_ms = self.pauses.get(serial, 0) - now_ms
        check(early_ms <= 0, f"{name} comes {early_ms} ms before its pause is over")
        numbers = self.handed.setdefault(serial, [])
        least = self.least.pop(serial, len(numbers))
        unseen = self.unseen[serial]
        if serial not in self.passed and not self.redriven:
            known = least < attempts <= len(numbers) + unseen + 1
            check(known, f"{name} comes for the {attempts}. time after {least}-{len(numbers)}")
        most = self.retries.attempts_max
        check(not most or attempts <= most, f"{name} comes {attempts} times, and {most} are most")
        if not self.nacking[serial]:  # else it may be given back at any time
            self.leases[serial] = now_ms + self.lease_ms
            if self.retries.pauses_ms[0]:
                self.pauses[serial] = self.leases[serial] + self.retries.pause_ms(attempts)
        self.untold.discard(serial)
        self.unseen[serial] = unseen - min(unseen, max(0, attempts - len(numbers) - 1))
        del numbers[max(0, attempts - 1) :]
        numbers += [number] * (attempts - len(numbers))

    def check_key(
        self,
        check: Check,
        name: str,
        sent: Sent,
        others: dict[int, Sent],
        now: tuple[int, set[int]],
    ) -> None:
        """Nobody else has a message of its key, and none before it waits. `now`: the time, and
        the serials of the same batch."""
        now_ms, batch = now
        assert sent.place is not None
        partition, offset = sent.place
        for serial, numbers in self.handed.items():
            other = others[serial]
            if other.key != sent.key or serial in batch or serial == sent.serial:
                continue
            if other.place is None or other.place[0] != partition or other.ttl_ms:
                continue
            if self.may_be_done(serial) or serial in self.acked or self.is_past(other):
                continue
            taken = self.leases.get(serial, 0) > now_ms
            check(not taken, f"{name} and {serial} of the same key are leased to two")
            certain = self.least.get(serial, len(numbers)) > 0
            waits = certain and other.place[1] < offset and not other.lost
            check(not waits, f"{name} comes before {serial} of the same key, which was given back")

    def give_back(self, serial: int, now_ms: int, delay_ms: int | None) -> None:
        """A nack was sent, perhaps. Without a delay the group's pause counts."""
        self.nacking[serial] += 1
        self.leases.pop(serial, None)
        if serial in self.pauses:
            own_ms = self.retries.pause_ms(len(self.handed.get(serial, [0])))
            pause_ms = delay_ms or own_ms
            self.pauses[serial] = min(self.pauses[serial], now_ms + pause_ms)

    def lose(self, serial: int) -> None:
        """Its holder is gone."""
        self.leases.pop(serial, None)
        self.pauses.pop(serial, None)

    def lose_all(self, now_ms: int) -> None:
        """All who held something are gone, and the group may want that back."""
        if self.retries.front:
            self.leases.clear()
            for serial, until_ms in self.pauses.items():
                pause_ms = self.retries.pause_ms(len(self.handed.get(serial, [0])))
                self.pauses[serial] = min(until_ms, now_ms + pause_ms)

    # -- what becomes of it -------------------------------------------------------------------

    def move(self, placed: dict[tuple[int, int], int], partition: int, place: int) -> None:
        """It stands there now. `placed`: which serial is where."""
        self.moves += 1
        self.sought[partition] = place
        there = {serial for (index, _), serial in placed.items() if index == partition}
        for known in (self.given, self.ordered, self.run, self.acked):
            known -= there
        for serial in there:
            for counts in (self.leases, self.pauses, self.handed, self.least):
                counts.pop(serial, None)
            if not self.timing[serial]:  # else it may be done after this
                self.times.pop(serial, None)
            self.passed.discard(serial)
        for key in [key for key in self.highest if key[0] == partition]:
            del self.highest[key]

    def doubt(self, serials: Iterable[int]) -> None:
        """It was moved, or not, when there were these messages. A request to move it that is not
        answered may do it yet: so `moving` stays."""
        self.regress()
        self.sought.clear()
        self.passed.update(serials)
        self.ordered.update(serials)
        self.highest.clear()

    def forget_deliveries(self, written: Callable[[int], int], memory: bool = False) -> None:
        """Of the message with this serial, only deliveries up to this number are known. In `memory`
        there is nothing to be written."""
        for serial, numbers in self.handed.items():
            last = written(serial)
            known = sum([number <= last for number in numbers])
            # With a limit of attempts nobody sees a delivery before it is written.
            least = len(numbers) if self.retries.attempts_max and not memory else known
            self.least[serial] = min(least, self.least.get(serial, least))
            if known < len(numbers):
                self.leases.pop(serial, None)
                self.pauses.pop(serial, None)

    def interrupt(self) -> None:
        """The attempts that nobody was told of may have been written, and may not."""
        self.unseen.update(self.untold)

    def forget(self) -> None:
        """The group is not there any more, or begins anew."""
        self.declared = self.paused = False
        for known in (self.seen, self.given, self.acking, self.ordered, self.untold):
            known.clear()
        self.highest.clear()
        self.times.clear()
        self.sought.clear()
        self.passed.clear()
        self.regress()

    def regress(self) -> None:
        """It may have fallen back to an earlier state."""
        self.paused = False
        self.acked.clear()
        self.run.clear()
        self.leases.clear()
        self.pauses.clear()
        for serial in self.handed:
            self.least[serial] = 0


def passes(pattern: bytes, tag: bytes) -> bool:
    """The filters that are used here, spelled out."""
    if not pattern:
        return True
    words = tag.split(b".")
    if pattern == b"#":
        return tag != b""
    if pattern == b"a.*":
        return len(words) == 2 and words[0] == b"a"
    if pattern == b"a.#;b":
        return tag == b"b" or words[0] == b"a"
    raise NotImplementedError(pattern)
