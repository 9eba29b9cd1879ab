"""How busy the broker, its topics and groups were in the last hour, day and week: `history`.

Every 10 seconds each topic is looked at once, a slice of them at a time. As in `stats`, all is
derived from what is there anyway. What is kept is bounded: the broker as a whole, and `SERIES_MAX`
topics and groups. When there are more, those that move the most messages have a series: one that
moves twice as many as the least busy of these takes its place, at most one every 10 seconds.

A group that came with its topic, and that no client has asked for, has none, as in the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs
import msgspec

from zbus.core.api import Broker, Group, Topic
from zbus.dialects.zbus.documents.series import (
    ENDIAN,
    LEVELS,
    SERIES_BYTES,
    SPANS,
    WIDTH,
    Row,
    Saved,
    Series,
)
from zbus.protocol.documents import History, Span

SERIES_MAX: Final = 1_000
"""Topics and groups with a series: 10 MB in all."""

SLICE_WORK: Final = 200
"""What is looked at in one go: a topic and each group of it, in each partition. That is 100 topics
with a group each, or somewhat less than a millisecond of the loop."""

_ROUND_MS: Final = 8_000
_PAUSE_MS_MIN: Final = 80
"""Between two slices. With more than 10,000 topics a round takes longer than a step, and some steps
have the mean of two."""

_STEP_MS: Final = SPANS[0].step_ms
_MEAN_STEPS_MAX: Final = 6
"""When the broker was busy or suspended for longer, nothing is known of the time between."""

_WEIGHT_STEPS: Final = 360
"""What a topic moved counts for about an hour."""

_WATCHED_BYTES: Final = 350
_UNKNOWN: Final = (None, None)

TOPIC_COLUMNS: Final = ("in_rate", "bytes_rate", "out_rate", "acked_rate", "backlog")
GROUP_COLUMNS: Final = ("out_rate", "acked_rate", "ready", "leased", "dead")
_COUNTED: Final[dict[tuple[str, ...], int]] = {TOPIC_COLUMNS: 4, GROUP_COLUMNS: 2}
assert all(len(columns) == WIDTH for columns in _COUNTED)

_SHAPE: Final = f"{ENDIAN} {WIDTH} {[(span.step_ms, span.count) for span in SPANS]}"

Watchable: TypeAlias = "Topic | Group"
Counts: TypeAlias = "tuple[int, int]"


class _KeptSeries(msgspec.Struct, array_like=True, frozen=True):
    topic: str  # "" = the whole broker
    group: str  # "" = the topic
    weight: float
    rings: Saved


class _Kept(msgspec.Struct, array_like=True, frozen=True):
    """What is kept over a restart."""

    shape: str
    now_ms: int
    series: list[_KeptSeries]


@attrs.define(eq=False)
class _Watched:
    """What is known of a topic or group at the last look."""

    counts: Counts | None = None  # ever, or since the broker's start
    series: Series | None = None
    weight: float = 0.0  # messages that it moves in a step, of late


class Recorder:
    """Looks at all topics again and again, and keeps what they were like."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slices = broker.timers.timer(self._look_at_some)
        self._known: dict[Watchable, _Watched] = {}
        self._seen: dict[Watchable, _Watched] = {}  # in this round
        self._left: list[Topic] = []  # that this round has still to look at, the next one last
        self._topics = 0  # of this round
        self._step = 0  # that this round is for; 0 = there was no round yet
        self._passed = 0  # steps since the round before; 0 = there was none
        self._whole = _new_series(None)
        self._sum = [0] * WIDTH
        self._count = 0  # series, without that of the whole
        self._busiest: Watchable | None = None  # in this round, of those without a series
        self._idlest: Watchable | None = None  # of those with one
        self._loaded: dict[tuple[str, str], _KeptSeries] = {}
        self._loaded_ms = 0  # when that was saved

    # -- looking --------------------------------------------------------------------------

    def look(self) -> None:
        """To be called about once a second. What there is to do is done a little at a time."""
        step = self._broker.now_ms // _STEP_MS
        if not self._left and step > self._step:
            self._begin(step)
            self._look_at_some()
        elif self._left and not self._slices:  # something went wrong in one of them
            self._look_at_some()

    def _look_at_some(self, _: None = None) -> None:
        work, left = 0, len(self._left)
        while self._left and work < SLICE_WORK:
            topic = self._left.pop()
            work += (1 + len(topic.groups)) * len(topic.partitions)
            if self._broker.topic(topic.name) is topic:  # it may have been removed meanwhile
                self._look(topic)
        if self._left:
            pause_ms = _ROUND_MS * (left - len(self._left)) // self._topics
            self._slices.set(None, self._broker.now_ms + max(_PAUSE_MS_MIN, pause_ms))
        else:
            self._end()

    def _begin(self, step: int) -> None:
        if not self._step and self._loaded_ms > self._broker.now_ms + _STEP_MS:
            # It was saved under a clock that was ahead of this one.
            self._loaded.clear()
            self._whole = _new_series(None)
        self._passed = step - self._step if self._step else 0
        self._step = step
        self._left = [*self._broker.topics.values()][::-1]
        self._topics = len(self._left)
        self._sum = [0] * WIDTH
        self._busiest = self._idlest = None

    def _end(self) -> None:
        counted = self._sum[:4] if self._passed else [None] * 4
        self._put(self._whole, [*counted, self._sum[4]], bool(self._passed))
        self._known, self._seen = self._seen, {}
        self._loaded.clear()
        if self._busiest is not None and self._idlest is not None:
            busiest, idlest = self._known[self._busiest], self._known[self._idlest]
            if busiest.weight > 2 * idlest.weight:
                busiest.series, idlest.series = _new_series(self._busiest), None
        self._count = sum([each.series is not None for each in self._known.values()])

    def _look(self, topic: Topic) -> None:
        put = size = end = 0
        for partition in topic.partitions:
            put += partition.visible
            size += partition.bytes_put
            end += partition.end
        out = acked = backlog = 0
        for group in topic.groups.values():
            if group.options.unclaimed:
                continue
            ready, leased, delayed, _ = group.counts()
            passed = end - ready - delayed
            watched, counted = self._count_up(group, passed, passed - leased)
            if counted is not None:
                out += counted[0]
                acked += counted[1]
            backlog = max(backlog, ready + leased)
            if self._has_series(group, watched, counted[0] if counted else 0):
                there = [ready, leased, group.dead_count()]
                self._put(watched.series, [*(counted or _UNKNOWN), *there], bool(counted))
        watched, counted = self._count_up(topic, put, size)
        row = (*(counted or (0, 0)), out, acked, backlog)
        self._sum = [a + b for a, b in zip(self._sum, row, strict=True)]
        if self._has_series(topic, watched, row[0] + out):
            cells = row if counted else [*_UNKNOWN, *_UNKNOWN, backlog]
            self._put(watched.series, cells, bool(counted))

    def _count_up(self, key: Watchable, *counts: int) -> tuple[_Watched, Counts | None]:
        """What was counted in a step since the last look; None = that is not known."""
        watched = self._known.get(key)
        if watched is None:
            watched = self._load(key)
            if self._passed and isinstance(key, Topic):
                # It was not there in the round before, so it began with nothing. A group may
                # begin anywhere in the log.
                watched.counts = (0, 0)
        self._seen[key] = watched
        before, watched.counts = watched.counts, (counts[0], counts[1])
        if before is None:
            return watched, None
        passed = self._passed
        first, second = counts[0] - before[0], counts[1] - before[1]
        if passed > 1:
            first, second = round(first / passed), round(second / passed)
        return watched, (max(0, first), max(0, second))

    def _has_series(self, key: Watchable, watched: _Watched, moved: int) -> bool:
        watched.weight += (moved - watched.weight) / _WEIGHT_STEPS
        if watched.series is None and self._count + len(self._loaded) < SERIES_MAX:
            watched.series = _new_series(key)
            self._count += 1
        if watched.series is None:
            if self._busiest is None or watched.weight > self._seen[self._busiest].weight:
                self._busiest = key
            return False
        if self._idlest is None or watched.weight < self._seen[self._idlest].weight:
            self._idlest = key
        return True

    def _put(self, series: Series | None, row: Sequence[int | None], known: bool) -> None:
        """For this step; the mean for those before, if the last look was earlier."""
        assert series is not None
        filled = self._passed if known and self._passed <= _MEAN_STEPS_MAX else 1
        for step in range(max(series.last, self._step - filled) + 1, self._step + 1):
            series.put(step, row)

    # -- showing --------------------------------------------------------------------------

    def document(self, topic: Topic | None, group: Group | None, span: Span) -> History:
        """Of the whole broker, a topic, or a group of it."""
        key = group or topic
        series: Series | None = self._whole
        untracked = False
        if key is not None:
            watched = self._seen.get(key) or self._known.get(key)
            series = None if watched is None else watched.series
            untracked = watched is not None and series is None
        level = LEVELS[span]
        step_ms = SPANS[level].step_ms
        now_step = self._broker.now_ms // _STEP_MS
        first, rows = (0, []) if series is None else series.rows(level, now_step)
        columns = _columns_of(key)
        return History(
            span=span,
            start=first * step_ms,
            step_ms=step_ms,
            topic="" if topic is None else topic.name,
            consume_group="" if group is None else group.name,
            untracked=untracked,
            **dict(zip(columns, _values(rows, _COUNTED[columns], step_ms), strict=True)),
        )

    def bytes_used(self) -> int:
        """Of what is kept, about."""
        return SERIES_BYTES * (self._count + 1) + _WATCHED_BYTES * len(self._known)

    # -- restarts -------------------------------------------------------------------------

    def save(self) -> Callable[[], bytes]:
        """A call that gives what is to be kept over a restart. Another thread may make it, since
        each ring is copied at one moment."""
        found = [("", "", 0.0, self._whole)]
        for key, watched in (self._known | self._seen).items():
            if watched.series is not None:
                found.append((*_names_of(key), watched.weight, watched.series))
        # What was loaded and not looked at yet is kept as it is.
        return partial(_encoded, self._broker.now_ms, found, [*self._loaded.values()])

    def load(self, data: bytes) -> None:
        """What an earlier broker has saved. Raises ValueError if it is not that."""
        try:
            kept = msgspec.msgpack.decode(data, type=_Kept)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        if kept.shape != _SHAPE:
            raise ValueError(f"it has the form {kept.shape!r}")
        for each in kept.series:
            Series(0).load(each.rings)
        self._loaded = {(each.topic, each.group): each for each in kept.series}
        whole = self._loaded.pop(("", ""), None)
        if whole is not None:
            self._whole.load(whole.rings)
        self._loaded_ms = kept.now_ms

    def _load(self, key: Watchable) -> _Watched:
        """With what is known of it from before the start."""
        watched = _Watched()
        kept = self._loaded.pop(_names_of(key), None) if self._loaded else None
        if kept is not None:
            watched.weight = kept.weight
            watched.series = _new_series(key)
            watched.series.load(kept.rings)
            self._count += 1
        return watched


def _encoded(
    now_ms: int, found: list[tuple[str, str, float, Series]], loaded: list[_KeptSeries]
) -> bytes:
    """One by one, so that the thread of the loop waits for none of them for long."""
    encode = msgspec.msgpack.encode
    series = [
        msgspec.Raw(encode(_KeptSeries(topic, group, weight, each.save())))
        for topic, group, weight, each in found
    ]
    return encode((_SHAPE, now_ms, [*series, *loaded]))


def _columns_of(key: Watchable | None) -> tuple[str, ...]:
    return GROUP_COLUMNS if isinstance(key, Group) else TOPIC_COLUMNS


def _new_series(key: Watchable | None) -> Series:
    return Series(_COUNTED[_columns_of(key)])


def _names_of(key: Watchable) -> tuple[str, str]:
    return (key.topic.name, key.name) if isinstance(key, Group) else (key.name, "")


def _values(rows: list[Row], counted: int, step_ms: int) -> Iterator[list[float | None]]:
    """Column by column; what was counted in a step as a rate."""
    for column in range(WIDTH):
        values: list[float | None] = [row[column] for row in rows]
        if column < counted:
            values = [None if n is None else round(n * 1_000 / step_ms, 3) for n in values]
        yield values
