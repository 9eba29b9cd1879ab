"""How busy the broker, its topics and groups were in the last hour, day and week: `history`.

Every 10 seconds each topic is looked at once, a part of them in each second. As in `stats`, all is
derived from what is there anyway. What is kept is bounded: the broker as a whole, and `SERIES_MAX`
topics and groups. When there are more, those that move the most messages have a series: one that
moves twice as many as the least busy of these takes its place, at most one every 10 seconds.

A group that came with its topic, and that no client has asked for, has none, as in the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
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

TOPICS_PER_LOOK: Final = 1_000
"""Topics that are looked at in a second, at most: a few milliseconds of the loop. With more than
10,000 a round takes longer than a step, and some steps have the mean of two."""

_TOPICS_PER_LOOK_MIN: Final = 50
_LOOKS_PER_ROUND: Final = 8
_STEP_MS: Final = SPANS[0].step_ms
_MEAN_STEPS_MAX: Final = 6
"""When the broker was busy or suspended for longer, nothing is known of the time between."""

_WEIGHT_STEPS: Final = 360
"""What a topic moved counts for about an hour."""

_WATCHED_BYTES: Final = 350

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
        self._known: dict[Watchable, _Watched] = {}
        self._seen: dict[Watchable, _Watched] = {}  # in this round
        self._left: list[Topic] = []  # that this round has still to look at
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
        """To be called about once a second."""
        step = self._broker.now_ms // _STEP_MS
        if not self._left:
            if step <= self._step:
                return
            self._begin(step)
        count = -(-len(self._broker.topics) // _LOOKS_PER_ROUND)
        count = min(TOPICS_PER_LOOK, max(_TOPICS_PER_LOOK_MIN, count))
        for topic in self._left[:count]:
            self._look(topic)
        del self._left[:count]
        if not self._left:
            self._end()

    def _begin(self, step: int) -> None:
        if not self._step and self._loaded_ms > self._broker.now_ms + _STEP_MS:
            # It was saved under a clock that was ahead of this one.
            self._loaded.clear()
            self._whole = _new_series(None)
        self._passed = step - self._step if self._step else 0
        self._step = step
        self._left = list(self._broker.topics.values())
        self._sum = [0] * WIDTH
        self._busiest = self._idlest = None

    def _end(self) -> None:
        counted: Row = [*self._sum[:4]] if self._passed else [None] * 4
        self._put(self._whole, [*counted, self._sum[4]], known=bool(self._passed))
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
            found = self._count_up(group, (passed, passed - leased))
            self._note(group, found, [ready, leased, group.dead_count()])
            out += found[0] or 0
            acked += found[1] or 0
            backlog = max(backlog, ready + leased)
        found = self._count_up(topic, (put, size))
        rest: Row = [None, None] if found[0] is None else [out, acked]
        self._note(topic, [*found, *rest], [backlog])
        for column, value in enumerate((*found, out, acked, backlog)):
            self._sum[column] += value or 0

    def _count_up(self, key: Watchable, counts: Counts) -> Row:
        """What was counted in a step since the last look, for each of them."""
        watched = self._known.get(key)
        if watched is None:
            watched = self._seen[key] = self._load(key)
            # A topic that was not there in the round before began with nothing; a group may begin
            # anywhere in the log.
            before = (0, 0) if self._passed and isinstance(key, Topic) else None
        else:
            self._seen[key] = watched
            before = watched.counts
        watched.counts = counts
        if before is None or not self._passed:
            return [None, None]
        pairs = zip(counts, before, strict=True)
        return [round(max(0, now - then) / self._passed) for now, then in pairs]

    def _note(self, key: Watchable, counted: Row, there: Row) -> None:
        watched = self._seen[key]
        moved = (counted[0] or 0) + (counted[2] or 0 if len(counted) > 2 else 0)
        watched.weight += (moved - watched.weight) / _WEIGHT_STEPS
        if watched.series is None and self._count + len(self._loaded) < SERIES_MAX:
            watched.series = _new_series(key)
            self._count += 1
        if watched.series is not None:
            self._put(watched.series, [*counted, *there], known=counted[0] is not None)
            if self._idlest is None or watched.weight < self._seen[self._idlest].weight:
                self._idlest = key
        elif self._busiest is None or watched.weight > self._seen[self._busiest].weight:
            self._busiest = key

    def _put(self, series: Series, row: Row, *, known: bool) -> None:
        """For this step; the mean for those before, if the last look was earlier."""
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

    def save(self) -> bytes:
        """What is to be kept over a restart."""
        kept = [_KeptSeries("", "", 0.0, self._whole.save())]
        for key, watched in self._known.items():
            if watched.series is not None:
                rings = watched.series.save()
                kept.append(_KeptSeries(*_names_of(key), watched.weight, rings))
        return msgspec.msgpack.encode(_Kept(_SHAPE, self._broker.now_ms, kept))

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
