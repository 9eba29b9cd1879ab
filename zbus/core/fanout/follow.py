"""Sending every message of a topic to all its subscribers (`zbus.core.fanout.subscribers`).

An audience is *awake* when its live cohort may have something to tell: more is visible, or
something became due. Cohorts behind queue up. Both are served once a turn after the groups, the
live ones first, each a portion, as many as the turn has room for; the others go first in the next.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from zbus.core.fanout.subscribers import (
    CaughtUpGroup,
    Encoder,
    Subscriber,
    Subscription,
    WatchedTopic,
    follower_of,
    watch_of,
)
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal, followed_no_more, topic_unknown
from zbus.core.model.subscriber import Subscribers
from zbus.core.timing.timers import Timers
from zbus.core.topics.newest import first_stored_ms
from zbus.core.topics.topic import Partition, Session, Topic

PORTION_COUNT = 1_000
"""Messages that one cohort looks at in one turn."""

PORTION_BYTES = 64 << 10
"""Bytes for one subscriber in one turn, about: a turn ends with the message that passes it."""

PORTION_BYTES_MIN = 4 << 10
COHORT_BYTES = 16 << 20
"""Bytes for all members of a cohort in one turn, about; but each gets a good piece."""

LIVE_PER_TURN_MAX = 20_000
BEHIND_PER_TURN_MAX = 4_000
"""Work of all live cohorts, and of all behind, in one turn: a message looked at is 1, each KiB sent
is 1, each subscriber served is 2, which is about what they cost. Who comes later waits for the
next."""

DUE_PER_TURN_MAX = 1_000
LATE_MAX = 10_000
"""Messages that became due, for a subscriber that takes nothing. With more it is ended."""

ENDED_STOPPING = BrokerError(Refusal.STOPPING, "the broker is stopping")
ENDED_LATE = BrokerError(
    Refusal.TOO_MANY, "the subscriber does not read: too many messages became due"
)
SERVICES = BrokerError(Refusal.ILLEGAL, "a topic of services has no event stream")


class FanOut:
    """All subscribers of a broker."""

    def __init__(self, timers: Timers) -> None:
        self.now_ms = 0
        self.awake: deque[Subscription] = deque()  # their live cohorts have something to do
        self.queue: deque[CaughtUpGroup] = deque()  # those behind, in turn
        self._blame = timers.faults.quarantine
        self._due = timers.timer(self._expire, lambda watch: watch.topic)
        self.failed: list[tuple[CaughtUpGroup, BrokerError]] = []  # to be ended
        self._work_left = 0  # of this turn

    # -- beginning and end ----------------------------------------------------------------

    def follow(
        self,
        follower: Subscriber,
        form: Encoder,
        partitions: list[Partition],
        filter: str = "",
        position: list[int] | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Tell what `partitions` (of one topic) hold from `position` on, or what was put since a
        time; else what comes."""
        session, topic = follower.session, partitions[0].topic
        if topic.options.calls:
            follower.settle(SERVICES)
            return
        fenced = next((one.fenced for one in partitions if one.fenced is not None), None)
        if fenced is not None:
            follower.settle(fenced)
            return
        assert session.follower is None, "a session follows one topic"
        session.follower = follower
        if since_ms is not None:
            self._search(follower, form, partitions, filter, since_ms, [])
            return
        if position is None:
            position = [partition.visible for partition in partitions]
        self._begin(follower, form, partitions, filter, position)

    def _search(
        self,
        follower: Subscriber,
        form: Encoder,
        partitions: list[Partition],
        filter: str,
        since_ms: int,
        found: list[int],
    ) -> None:
        """Find the place in each partition, one after the other."""

        def done(place: int | BrokerError) -> None:
            if follower.session.follower is not follower:
                return  # gone meanwhile
            if isinstance(place, BrokerError):
                self.expel(follower, place)
                return
            places = [*found, place]
            if len(places) < len(partitions):
                self._search(follower, form, partitions, filter, since_ms, places)
            else:
                self._begin(follower, form, partitions, filter, places)

        partitions[len(found)].log.find_time(since_ms, done)

    def _begin(
        self,
        follower: Subscriber,
        form: Encoder,
        partitions: list[Partition],
        filter: str,
        position: list[int],
    ) -> None:
        topic = partitions[0].topic
        if partitions[0].removed:
            self.expel(follower, topic_unknown(topic.name))
            return
        places = [min(p, part.visible) for p, part in zip(position, partitions, strict=True)]
        watch = watch_of(topic.followed)
        if watch is None:
            watch = topic.followed = WatchedTopic.begin(topic)
            self._schedule(watch)
        alone = len(partitions) == 1 and partitions is not topic.partitions
        only = partitions[0].index if alone else -1
        key = (filter, id(form), only)
        audience = watch.audiences.get(key)
        if audience is None:
            audience = watch.audiences[key] = Subscription(watch, filter, form, partitions)
        follower.begin(places)
        firsts = [partition.first for partition in partitions]
        # Who begins with the oldest there is wants the copies that were made by now, too.
        oldest = any(map(int.__le__, places, firsts))
        cohort = follower.cohort = CaughtUpGroup(audience, places, self.now_ms if oldest else 0)
        cohort.members[follower] = None
        if follower.session.stalled:
            audience.parked[cohort] = None
        else:
            self._go_on(cohort)

    def grow(self, topic: Topic, count: int) -> None:
        """The topic has that many partitions more: who follows all of them follows these, too."""
        watch = watch_of(topic.followed)
        for audience in () if watch is None else watch.audiences.values():
            if audience.partitions is topic.partitions:
                for cohort in audience.cohorts():
                    cohort.position += [0] * count

    def leave(self, session: Session) -> None:
        """The session is gone, or unsubscribed."""
        follower = follower_of(session)
        if follower is not None:
            self._take_out(follower)
            follower.leave()

    def _take_out(self, follower: Subscriber) -> None:
        follower.session.follower = None
        cohort, follower.cohort = follower.cohort, None
        if cohort is not None:
            del cohort.members[follower]
            if not cohort.members:
                self._drop(cohort)

    def resume(self, session: Session) -> None:
        """It reads again."""
        follower = follower_of(session)
        if follower is None or (cohort := follower.cohort) is None:
            return
        if cohort in cohort.audience.parked:
            del cohort.audience.parked[cohort]
            self._go_on(cohort)

    def end(self, topic: Topic, why: BrokerError) -> None:
        """Tell all subscribers of the topic that there is no more, and why."""
        watch, topic.followed = watch_of(topic.followed), None
        if watch is None:
            return
        self._due.discard(watch)
        for audience in list(watch.audiences.values()):
            for cohort in list(audience.cohorts()):
                self._end(cohort, why)

    def _end(self, cohort: CaughtUpGroup, why: BrokerError) -> None:
        for follower in list(cohort.members):
            self.expel(follower, why)

    def expel(self, follower: Subscriber, why: BrokerError) -> None:
        """Tell it no more."""
        self._take_out(follower)
        follower.settle(why)

    def _drop(self, cohort: CaughtUpGroup) -> None:
        """Its last subscriber left."""
        audience = cohort.audience
        if cohort is audience.live:
            audience.live = None
            for other in audience.behind:
                self._enqueue(other)
        audience.behind.pop(cohort, None)
        audience.parked.pop(cohort, None)
        if audience.live is None and not audience.behind and not audience.parked:
            watch = audience.watch
            for key in [key for key, known in watch.audiences.items() if known is audience]:
                del watch.audiences[key]
            watch.forget_if_idle()

    # -- what gives cohorts something to do ------------------------------------------------

    def wake(self, watch: Subscribers) -> None:
        """More of the topic may be sent."""
        assert isinstance(watch, WatchedTopic)
        for audience in watch.audiences.values():
            if audience.live is not None and not audience.awake:
                audience.awake = True
                self.awake.append(audience)

    def _expire(self, watch: WatchedTopic) -> None:
        """Send what became due to all that have passed it."""
        for _ in range(DUE_PER_TURN_MAX):
            found = watch.delayed.pop_first(self.now_ms)
            if found is None:
                break
            for audience in list(watch.audiences.values()):  # some may end here
                self._became_due(audience, *found)
        self._schedule(watch)
        self.wake(watch)
        watch.forget_if_idle()

    def _became_due(self, audience: Subscription, index: int, offset: int) -> None:
        places = [p.index for p in audience.partitions]
        if index not in places:
            return
        at = places.index(index)
        for cohort in list(audience.cohorts()):
            if cohort.position[at] > offset:
                cohort.late.append((at, offset))
                if len(cohort.late) > LATE_MAX and cohort in audience.parked:
                    self._end(cohort, ENDED_LATE)
        for cohort in audience.behind:
            self._enqueue(cohort)

    def _schedule(self, watch: WatchedTopic) -> None:
        due_ms = watch.delayed.next_due()
        if due_ms is not None:
            self._due.set(watch, due_ms)

    @property
    def busy(self) -> bool:
        """There is something to tell in the next turn."""
        return bool(self.awake or self.queue)

    def _go_on(self, cohort: CaughtUpGroup) -> None:
        """A cohort of the audience that is not live: it has a way to go, perhaps none."""
        cohort.audience.behind[cohort] = None
        self._enqueue(cohort)

    def _enqueue(self, cohort: CaughtUpGroup) -> None:
        if not cohort.queued:
            cohort.queued = True
            self.queue.append(cohort)

    # -- sending --------------------------------------------------------------------------

    def run(self) -> None:
        """Send what can be sent, the live cohorts first. There is nothing to do unless there is
        something in `awake`, `queue` or `failed`: a caller of every turn may look first."""
        self._work_left = LIVE_PER_TURN_MAX
        for _ in range(len(self.awake)):
            if self._work_left <= 0:
                break
            audience = self.awake.popleft()
            audience.awake = False
            live = audience.live
            if live is not None and not live.fetching:
                try:
                    self._serve_live(audience, live)
                except Exception as error:
                    self._broke(live, error)
        self._work_left = BEHIND_PER_TURN_MAX
        for _ in range(len(self.queue)):
            if self._work_left <= 0:
                break
            cohort = self.queue.popleft()
            cohort.queued = False
            if cohort in cohort.audience.behind and not cohort.fetching:
                try:
                    self._serve_behind(cohort.audience, cohort)
                except Exception as error:
                    self._broke(cohort, error)
        if self.failed:
            failed, self.failed = self.failed, []
            for cohort, why in failed:
                self._end(cohort, why)

    def _broke(self, cohort: CaughtUpGroup, error: Exception) -> None:
        """Sending to it raised this. It ends: its position is not certain."""
        self._blame(None, error)
        self.failed.append((cohort, followed_no_more(cohort.audience.watch.topic.name)))

    def _serve_live(self, audience: Subscription, cohort: CaughtUpGroup) -> None:
        self._send(cohort, None)
        if cohort.members and not cohort.fetching and not audience.at_end(cohort):
            self.wake(audience.watch)
        for other in audience.behind:
            self._enqueue(other)

    def _serve_behind(self, audience: Subscription, cohort: CaughtUpGroup) -> None:
        live = audience.live
        self._send(cohort, live)
        if cohort not in audience.behind or cohort.fetching:
            return
        if live is not None and cohort.position == live.position and not (cohort.late or live.late):
            del audience.behind[cohort]
            for follower in cohort.members:
                follower.cohort = live
            live.members.update(cohort.members)
            live.complete_ms = max(live.complete_ms, cohort.complete_ms)
        elif live is None and audience.at_end(cohort):
            del audience.behind[cohort]
            audience.live = cohort
        elif cohort.late or live is None or cohort.is_behind(live):
            self._enqueue(cohort)
        # Else it waits for the live cohort to come by.

    def _send(self, cohort: CaughtUpGroup, live: CaughtUpGroup | None) -> None:
        """Give all members the next portion; those that do not take it are parked."""
        encoded = self._collect(cohort, live)
        if not encoded:
            return
        data = encoded[0] if len(encoded) == 1 else b"".join(encoded)
        self._work_left -= 2 * len(cohort.members) + (len(data) >> 10)
        stalled = []
        for follower in cohort.members:
            try:
                follower.send(data)
            except Exception as error:
                follower.failed(error)
            if follower.session.stalled:
                stalled.append(follower)
        for follower in stalled:
            self._park(cohort, follower)

    def _park(self, cohort: CaughtUpGroup, follower: Subscriber) -> None:
        audience = cohort.audience
        alone = CaughtUpGroup(audience, cohort.position.copy(), cohort.complete_ms)
        alone.late.extend(cohort.late)
        alone.members[follower] = None
        follower.cohort = alone
        audience.parked[alone] = None
        del cohort.members[follower]
        if not cohort.members:
            self._drop(cohort)

    def _collect(self, cohort: CaughtUpGroup, live: CaughtUpGroup | None) -> list[bytes]:
        """The next messages as bytes; `live` is whom the cohort must not overtake."""
        audience = cohort.audience
        room = max(PORTION_BYTES_MIN, min(PORTION_BYTES, COHORT_BYTES // len(cohort.members)))
        encoded = self._collect_late(cohort, room) if cohort.late else []
        share = room // len(audience.partitions)
        for at, partition in enumerate(audience.partitions):
            end = partition.visible if live is None else live.position[at]
            if cohort.position[at] < end:
                self._collect_from(cohort, at, partition, end, share, encoded)
        cohort.fetched.clear()
        return encoded

    def _collect_from(
        self,
        cohort: CaughtUpGroup,
        at: int,
        partition: Partition,
        end: int,
        room: int,
        encoded: list[bytes],
    ) -> None:
        audience, position = cohort.audience, cohort.position
        topic, form, match = partition.topic, audience.form, audience.match
        now_ms = self.now_ms
        place = position[at]
        if place < partition.first:
            gap = min(partition.first, end) - place
            place = position[at] = place + gap
            cohort.complete_ms = now_ms
            encoded.append(form.encode_gap(gap, position))
        looked_max = max(1, PORTION_COUNT // len(audience.partitions))
        stop = min(end, place + looked_max)
        chunk, row = None, 0
        while place < stop and room > 0:
            if chunk is None or row >= len(chunk.bodies):
                chunk = self._chunk(cohort, partition, place)
                if chunk is None:
                    break
                row = place - chunk.first
            place += 1
            position[at] = place
            self._work_left -= 1
            if chunk.due is not None and chunk.due[row] > now_ms:
                self.delay(audience.watch, partition.index, place - 1, chunk.due[row])
            elif (chunk.expires is not None and 0 < chunk.expires[row] <= now_ms) or (
                topic.options.compact and _is_known(chunk, row, cohort.complete_ms)
            ):
                pass
            elif match is None or match(chunk.tag_of(row)):
                data = form.encode(topic, partition.index, chunk, row, position)
                room -= len(data)
                encoded.append(data)
            row += 1

    def delay(self, watch: Subscribers | None, index: int, offset: int, due_ms: int) -> None:
        """A subscriber or group has passed a message because it is not due."""
        if isinstance(watch, WatchedTopic) and (index, offset) not in watch.delayed:
            watch.delayed.set((index, offset), due_ms)
            self._schedule(watch)

    def _collect_late(self, cohort: CaughtUpGroup, room: int) -> list[bytes]:
        """What became due since the cohort passed it."""
        encoded: list[bytes] = []
        audience, late = cohort.audience, cohort.late
        while late and room > 0:
            at, offset = late[0]
            partition = audience.partitions[at]
            if offset >= partition.first:
                chunk = self._chunk(cohort, partition, offset)
                if chunk is None:
                    break
                row, form, match = offset - chunk.first, audience.form, audience.match
                expired = chunk.expires is not None and 0 < chunk.expires[row] <= self.now_ms
                if not expired and (match is None or match(chunk.tag_of(row))):
                    topic, index = partition.topic, partition.index
                    encoded.append(form.encode(topic, index, chunk, row, cohort.position))
                    room -= len(encoded[-1])
            late.popleft()
        return encoded

    # -- what is not at hand --------------------------------------------------------------

    def _chunk(self, cohort: CaughtUpGroup, partition: Partition, offset: int) -> Chunk | None:
        """The chunk with this offset; else it is read back, and the cohort has its turn then."""
        log = partition.log
        chunk = log.find(offset)
        if chunk is None:
            for home, fetched in cohort.fetched:  # it may not be at hand any more
                if home is partition and fetched.first <= offset < fetched.end:
                    return fetched
            cohort.fetching = True
            log.fetch(offset, cohort, partial(self._fetched, cohort, partition))
            chunk = log.find(offset)
        if chunk is not None and not chunk.recent:
            log.read_on(chunk)
        return chunk

    def _fetched(
        self, cohort: CaughtUpGroup, partition: Partition, found: Chunk | BrokerError | None
    ) -> None:
        cohort.fetching = False
        if isinstance(found, BrokerError):
            # Not now: the cohort may be in the middle of a portion.
            self.failed.append((cohort, found))
        elif found is not None:
            cohort.fetched.append((partition, found))
        self._look_again(cohort)

    def _look_again(self, cohort: CaughtUpGroup) -> None:
        audience = cohort.audience
        if cohort in audience.behind:
            self._enqueue(cohort)
        elif cohort is audience.live:
            self.wake(audience.watch)


def _is_known(chunk: Chunk, at: int, complete_ms: int) -> bool:
    """It is a copy of a message that was sent before (`zbus.core.upkeep.compaction`)."""
    return chunk.time_of(at) > complete_ms and first_stored_ms(chunk.headers[at]) > 0
