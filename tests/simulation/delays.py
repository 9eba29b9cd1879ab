"""What is certain of a delay queue whose messages have ids, limits of attempts and an end: the
judge of what camellia clients are told.

Whatever is settled by its id is settled between two moments, its request and its answer. What was
asked and not answered leaves a doubt, which ends with the next hand-out: then the message lives.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.records import Record

Check = Callable[[bool, str], None]

KEPT_MS = 300_000
"""How long an ended message is shown."""

WAITING, READY, CONSUMING, CONSUMED, EXPIRED, DROPPED, DELETED = range(1, 8)


class Fate(enum.Enum):
    """What is known of a message."""

    ASKED = "asked for"  # it may be there, or come yet
    LIVE = "live"  # it was stored, and nobody tried to end it
    DOUBT = "doubtful"  # somebody did, or it was a duplicate
    GONE = "gone"  # and must not come again


@dataclass(slots=True, eq=False)
class Mail:
    """A message."""

    serial: int
    id: str  # "" = the broker gives it one, which is not known yet
    body: bytes
    delay_ms: int
    ttl_ms: int
    max_retry: int
    sent_ms: int
    fate: Fate = Fate.ASKED
    produced_ms: int = 0  # 0 = not known
    hands: int = 0  # times it was handed out
    least: int = 0  # so many of them are remembered
    number: int = 0  # of its last hand-out
    leased_ms: int = 0  # until then
    picked: bool = False  # for somebody who was not told yet, or never
    shaken: bool = False  # was there when all was read again
    settling: int = 0  # requests on their way that may end it
    nacking: int = 0  # or give it back
    tried: set[int] = field(default_factory=set)  # statuses that somebody tried to give it
    gone_ms: int = 0
    released: bool = False  # and forgotten, perhaps
    followed: bool = False  # by another of its id, which makes it go if its time is over

    @property
    def due_ms(self) -> int:
        """Not before."""
        return (self.produced_ms or self.sent_ms) + self.delay_ms

    def may_have_expired(self, now_ms: int) -> bool:
        return not self.produced_ms or now_ms >= self.due_ms + self.ttl_ms

    def lives(self, now_ms: int) -> bool:
        """For certain."""
        tried = self.hands > self.max_retry and not self.is_leased(now_ms)
        return self.fate is Fate.LIVE and not tried and not self.may_have_expired(now_ms)

    def is_leased(self, now_ms: int) -> bool:
        """For certain."""
        return self.leased_ms > now_ms and not self.nacking

    def statuses(self, received_ms: int, now_ms: int) -> set[int]:
        """That it may have been shown with."""
        if self.fate is Fate.GONE and self.gone_ms < received_ms:
            return self.tried & {CONSUMED, DELETED}
        found = set(self.tried)
        if received_ms < self.due_ms:
            found.add(WAITING)
        if now_ms >= self.due_ms:
            found.add(READY)
        if self.number:
            found |= {READY, CONSUMING}
        if self.may_have_expired(now_ms):
            found |= {DROPPED} if self.hands else set()
            found |= {EXPIRED} if not self.least else set()
        if self.hands > self.max_retry:
            found.add(DROPPED)
        if self.followed and found & {EXPIRED, DROPPED}:
            found.add(DELETED)
        return found


@dataclass(slots=True, eq=False)
class Try:
    """A request that may end messages, or give them back, and how they were when it was sent."""

    id: str
    status: int  # 0 = they are given back
    mails: list[tuple[Mail, int, bool]]  # with the number of the last hand-out; it lived
    release: bool = False
    open: bool = True
    beaten: bool = False  # another that was sent meanwhile may have ended them


class Delays:
    """One topic. Times are the broker's."""

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self.check = check
        self.mails: dict[int, Mail] = {}
        self._number = 0
        self._tries: list[Try] = []  # on their way
        self.asking: set[int] = set()  # serials: sent, and not known to be stored
        self.shakes = 0  # times that it was read again

    def named(self, id: str) -> list[Mail]:
        """All that ever had this id."""
        return [mail for mail in self.mails.values() if mail.id == id]

    def _of(self, body: bytes) -> Mail | None:
        digits = body.split(b":", 1)[0]
        mail = self.mails.get(int(digits)) if digits.isdigit() else None
        return mail if mail is not None and mail.body == body else None

    # -- sending ------------------------------------------------------------------------------

    def send(self, mail: Mail) -> list[Mail]:
        """It is sent; which others of its id live."""
        self.mails[mail.serial] = mail
        for attempt in self._tries:  # which may be done after it
            if mail.id == attempt.id:
                attempt.mails.append((mail, 0, False))
                self._threaten(attempt, mail)
        others = [one for one in self.named(mail.id) if one is not mail] if mail.id else []
        for one in others:
            one.followed = True
        return [one for one in others if one.lives(mail.sent_ms)]

    def sent(self, mail: Mail, before: list[Mail], shown: dict[str, object], now_ms: int) -> None:
        """It was answered with what is stored: this message, or an older one of its id."""
        found = self._of(str(shown["msg"]).encode())
        name = f"message {mail.serial} of {self.name}"
        if found is None or (mail.id and found.id != mail.id):
            self.check(False, f"{name} is told to be {str(shown['msg'])[:20]}")
            return
        if found is mail:
            taken = [one.serial for one in before if one.lives(now_ms)]
            self.check(not taken, f"{name} is new, and message {taken} has its id {mail.id!r}")
            mail.fate = Fate.LIVE if mail.fate is Fate.ASKED else mail.fate
        else:
            gone = found.fate is Fate.GONE and found.gone_ms and found.gone_ms < mail.sent_ms
            self.check(not gone, f"{name} is a duplicate of {found.serial}, which was ended")
            mail.fate = Fate.GONE
            found.fate = Fate.LIVE if found.fate is Fate.ASKED else found.fate
        self._shows(found, shown, mail.sent_ms, now_ms)

    def _shows(self, mail: Mail, shown: dict[str, object], received_ms: int, now_ms: int) -> None:
        """What is told of a message is right."""
        name = f"message {mail.serial} of {self.name}"
        produced_ms = shown["produceTime"]
        assert isinstance(produced_ms, int)
        self.check(
            mail.produced_ms in (0, produced_ms) and mail.sent_ms <= produced_ms <= now_ms,
            f"{name} was produced at {produced_ms}, not at {mail.produced_ms or mail.sent_ms}",
        )
        mail.produced_ms = produced_ms
        mail.id = mail.id or str(shown["msgId"])
        times = (mail.due_ms, mail.due_ms + mail.ttl_ms, mail.max_retry, mail.id, self.name)
        names = ("triggerTime", "expireTime", "maxRetry", "msgId", "topic")
        told = tuple(shown[name] for name in names)
        self.check(told == times, f"{name} is told to have {told}, and has {times}")
        possible = mail.statuses(received_ms, now_ms)
        status = f"{name} has the status {shown['status']}, not one of {sorted(possible)}"
        self.check(shown["status"] in possible, status)

    # -- ending -------------------------------------------------------------------------------

    def attempt(self, id: str, status: int, now_ms: int, release: bool = False) -> Try:
        """Somebody asks to end, or to give back (0), the message of this id."""
        mails = [one for one in self.named(id) if one.fate is not Fate.GONE]
        found = Try(id, status, [(one, one.number, one.lives(now_ms)) for one in mails], release)
        self._tries.append(found)
        for mail in mails:
            self._threaten(found, mail)
        return found

    def _threaten(self, attempt: Try, mail: Mail) -> None:
        if not attempt.status:
            mail.nacking += 1
            return
        mail.settling += 1
        mail.tried.add(attempt.status)
        # Who is to be told may be told before that is done, and the answer come late or never.
        if attempt.status == DELETED or mail.hands or mail.picked:
            mail.fate = Fate.DOUBT

    def attempted(self, attempt: Try, code: int, now_ms: int) -> None:
        """It was answered, or never is (0)."""
        if not attempt.open:
            return
        attempt.open = False
        self._tries.remove(attempt)
        if attempt.status == DELETED and code != 404:
            for other in self._tries:
                other.beaten = other.beaten or other.id == attempt.id
        for mail, number, lived in attempt.mails:
            same = mail.number == number
            leased = (
                mail.leased_ms > now_ms and not mail.picked
            )  # which may expire before it is told
            if not attempt.status:
                mail.nacking -= 1
                if number or not same:  # else it was not in anybody's hands
                    mail.leased_ms = 0
                continue
            mail.settling -= 1
            name = f"message {mail.serial} of {self.name}"
            if attempt.status == CONSUMED:
                if code == 200 and same and leased and number and not mail.nacking:
                    self._end(mail, now_ms)
                elif mail.number and mail.fate is Fate.LIVE:
                    mail.fate = Fate.DOUBT
            elif code == 200 and len(attempt.mails) == 1:
                mail.released = mail.released or attempt.release
                self._end(mail, now_ms)
            elif code == 404:
                alive = lived and same and not mail.may_have_expired(now_ms)
                alive = alive and mail.tried == {DELETED} and mail.hands <= mail.max_retry
                alive = alive and not attempt.beaten
                self.check(not alive or mail.settling > 0, f"{name} is told not to be there")

    def _end(self, mail: Mail, now_ms: int) -> None:
        mail.fate, mail.gone_ms, mail.leased_ms = Fate.GONE, now_ms, 0

    # -- looking ------------------------------------------------------------------------------

    def looked(
        self,
        id: str,
        lived: list[Mail],
        code: int,
        shown: dict[str, object] | None,
        received_ms: int,
        now_ms: int,
    ) -> None:
        """`getMsg` was answered."""
        name = f"{id!r} of {self.name}"
        if shown is None:
            alive = [one.serial for one in lived if one.lives(now_ms)]
            self.check(not alive, f"{name} is not there, and is message {alive}")
            return
        found = self._of(str(shown["msg"]).encode())
        if found is None or found.id not in (id, ""):
            self.check(False, f"{name} is told to be {str(shown['msg'])[:20]}")
            return
        alive = [one.serial for one in lived if one.lives(now_ms) and one is not found]
        self.check(not alive, f"{name} is told to be {found.serial}, and is message {alive}")
        self._shows(found, shown, received_ms, now_ms)

    def pulled(self, shown: dict[str, object]) -> None:
        """Somebody was told of a message that he has."""
        mail = self._of(str(shown["msg"]).encode())
        right = mail is not None and shown["status"] == CONSUMING
        self.check(right, f"{self.name}: {str(shown)[:200]} is told to be handed out")
        if mail is not None:
            mail.id = mail.id or str(shown["msgId"])
            self.check(mail.id == shown["msgId"], f"{mail.serial} is told to be {shown['msgId']}")

    def nothing(self, ready: list[Mail], now_ms: int) -> None:
        """A pull was answered with nothing, and these were there when it was sent. What became due
        after others were sent waits for them, if they are being written."""
        if self.asking:
            return
        there = [one.serial for one in ready if not one.number and one.lives(now_ms)]
        self.check(not there, f"{self.name} is told to be empty, and has {there[:5]}")

    def ready(self, now_ms: int) -> list[Mail]:
        """What is ready for certain, and was never handed out."""
        return [
            one
            for one in self.mails.values()
            if not one.number and one.lives(now_ms) and one.due_ms <= now_ms
        ]

    # -- what is seen -------------------------------------------------------------------------

    def pick(self, record: Record, now_ms: int, lease_ms: int) -> None:
        """A message is taken for somebody, who is told when that is written."""
        mail = self._of(record.message.body)
        if mail is None:
            self.check(False, f"nobody sent {record.message.body[:20]!r} to {self.name}")
            return
        name = f"message {mail.serial} of {self.name}"
        self.check(mail.fate is not Fate.GONE, f"{name} was ended and comes again")
        self.check(now_ms >= mail.due_ms, f"{name} comes {mail.due_ms - now_ms} ms early")
        dead = mail.produced_ms and mail.may_have_expired(now_ms)
        self.check(not dead, f"{name} comes after its end")
        self.check(not mail.is_leased(now_ms), f"{name} is leased to somebody else")
        if not (mail.number or mail.tried):
            late = [one.serial for one in self.ready(now_ms) if _is_ahead(one, mail)]
            self.check(not late, f"{name} comes before {late[:3]}, which were due before it")
        self._number += 1
        mail.number = self._number
        mail.leased_ms = 0 if mail.nacking else now_ms + lease_ms
        mail.fate = Fate.DOUBT if mail.settling else Fate.LIVE
        mail.picked = True

    def hand_out(self, record: Record) -> None:
        """Now he is told."""
        mail = self._of(record.message.body)
        if mail is None:
            return
        name = f"message {mail.serial} of {self.name}"
        before = record.attempts - 1
        right = mail.least <= before <= min(mail.hands, mail.max_retry)
        told = f"{name} comes after {before} times, and was handed out {mail.hands} times"
        self.check(right, f"{told}, {mail.least} of them for certain, of {mail.max_retry + 1}")
        mail.hands = mail.least = record.attempts
        mail.picked = False

    def untold(self, record: Record) -> None:
        """Nor will he be: it could not be written, or he has left."""
        mail = self._of(record.message.body)
        if mail is not None:
            mail.leased_ms = 0  # it was no attempt, unless a crash comes before that is written

    def shaken(self) -> None:
        """It is read again: of what was not written, leases and attempts, nothing is known."""
        self.shakes += 1
        self.asking.clear()
        for mail in self.mails.values():
            mail.leased_ms, mail.shaken = 0, True
            if mail.picked:
                mail.hands += 1
                mail.picked = False

    def owed(self, now_ms: int) -> list[int]:
        """What has to come at last."""
        return [one.serial for one in self.mails.values() if one.lives(now_ms)]


def _is_ahead(one: Mail, other: Mail) -> bool:
    """It was due before the other. What is due when all is read again goes behind what is ready
    then."""
    behind = one.delay_ms and one.shaken and other.shaken
    return one.due_ms < other.due_ms and not behind
