"""Messages that wait for their time: which, and until when. Made for ten million of them.

The offsets are cut into pages of 256. What a page holds is one array of numbers, each a due time
(epoch milliseconds) times 256 plus the low byte of an offset, in ascending order: so a page is
sorted by due time and then by offset, and the array is all there is. A heap has the first number
of every page, so that the first of all is known; an entry of it counts only while it is still
true, and the others are dropped when they surface, or all at once when they are more than half.

Why so: a message costs 8 bytes here, and its page about 300 more, whatever the due times are. With
one message in a hundred delayed that is still no more than a dictionary takes. To set one is a
binary search and a move of 1 KB at the middle; the offset of one that is known is found by looking
through the low bytes of its page, which takes half a microsecond. What is due comes out in the
order of due time and offset, however many are due in the same millisecond: then page after page is
taken whole. No step depends on how many there are, but for the heap's logarithm, and what touches
every page (to copy all of it, to store it, to read it back) copies 2 KB at a time.

`Columns` is what is stored of it: the arrays of the pages, one after another.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from operator import lt
from typing import Final

import attrs

PAGE: Final = 256
"""Offsets of a page. The low byte of an offset must be a byte of the numbers kept."""

DUE_MS_MAX: Final = (1 << 56) - 1
"""What is due later than that is due then."""

_LOW: Final = 0 if sys.byteorder == "little" else 7  # where in 8 bytes the lowest is
_PAGE_BITS: Final = 56  # of a page's number, in an entry of the heap
_NUMBER: Final = (1 << _PAGE_BITS) - 1
_COMPACT_FROM: Final = 64
"""Smaller heaps are never rebuilt."""

_FEW: Final = 16  # keys that are set one by one more quickly than sorted into their page


def _lows(page: array[int]) -> bytes:
    """The low bytes of the offsets, in the order of the page."""
    return page.tobytes()[_LOW::8]


def _numbers(values: Iterable[int] = ()) -> array[int]:
    return array("Q", values)


@attrs.frozen
class Columns:
    """Delayed messages as they are stored, in the order of their pages."""

    pages: array[int] = attrs.Factory(_numbers)  # offset // 256
    counts: array[int] = attrs.Factory(_numbers)  # messages of each
    keys: array[int] = attrs.Factory(_numbers)  # of all pages: due * 256 + offset % 256

    def __bool__(self) -> bool:
        return len(self.pages) > 0

    def __len__(self) -> int:
        return len(self.keys)

    def each(self) -> Iterator[tuple[int, array[int]]]:
        """The pages: number, and keys."""
        start = 0
        for number, count in zip(self.pages, self.counts, strict=True):
            yield number, self.keys[start : start + count]
            start += count

    def offsets(self, first: int = 0) -> list[int]:
        """All offsets from `first` on, those of a page in the order of their due times."""
        return [
            offset
            for number, keys in self.each()
            if number >= first // PAGE
            for key in keys
            if (offset := number * PAGE + key % PAGE) >= first
        ]

    def truncated(self, end: int) -> Columns:
        """The same without offsets from `end` on."""
        if not self:
            return self
        highest = max(_lows(self.keys[-self.counts[-1] :]))
        if self.pages[-1] * PAGE + highest < end:
            return self
        delays = Delays()
        delays.load(self)
        delays.truncate(end)
        return delays.columns()

    def problem(self) -> str | None:
        """Why `Delays` would not have stored this."""
        pages, counts = self.pages, self.counts
        if len(pages) == len(counts) == len(self.keys) == 1:  # the commonest
            return None if counts[0] == 1 and pages[0] <= _NUMBER else "a page is not what it says"
        if len(counts) != len(pages) or sum(counts) != len(self.keys):
            return "the pages do not hold as many delayed messages as there are"
        if not all(map(lt, pages, islice(pages, 1, None))) or (pages and pages[-1] > _NUMBER):
            return "pages of delayed messages are not in order"
        for number, keys in self.each():
            if not (keys and all(map(lt, keys, islice(keys, 1, None)))):
                return f"page {number} of delayed messages is not in order"
            if len(set(_lows(keys))) < len(keys):
                return f"page {number} of delayed messages has an offset twice"
        return None


NOTHING: Final = Columns()


class Delays:
    __slots__ = ("_count", "_heap", "_lowest", "_pages", "_top")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        self._heap: list[int] = []  # due << 56 | number of a page
        self._count = 0
        self._top = -1  # no offset here is above it
        self._lowest = 0  # no page has a lower number

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """The offsets in ascending order."""
        for number in sorted(self._pages):
            for low in sorted(_lows(self._pages[number])):
                yield number * PAGE + low

    def __contains__(self, offset: int) -> bool:
        if offset > self._top:
            return False
        page = self._pages.get(offset // PAGE)
        return page is not None and offset % PAGE in _lows(page)

    def within(self, offsets: range) -> list[int]:
        """Which are in a range, in no order. Looks through the pages of the range or through all,
        whichever are fewer."""
        if not offsets or offsets.start > self._top or not self._count:
            return []
        pages = self._pages
        numbers = range(offsets.start // PAGE, offsets.stop // PAGE + 1)
        if len(numbers) < len(pages):
            found = [number for number in numbers if number in pages]
        else:
            found = [number for number in pages if number in numbers]
        return [
            offset
            for number in found
            for low in _lows(pages[number])
            if (offset := number * PAGE + low) in offsets
        ]

    def due_of(self, offset: int) -> int:
        """When the message is due; KeyError if it is not here."""
        page = self._pages[offset // PAGE]
        at = _lows(page).find(offset % PAGE)
        if at < 0:
            raise KeyError(offset)
        return page[at] // PAGE

    def find(self, offset: int) -> int | None:
        """When the message is due; None if it is not here."""
        if offset > self._top or (page := self._pages.get(offset // PAGE)) is None:
            return None
        at = _lows(page).find(offset % PAGE)
        return None if at < 0 else page[at] // PAGE

    def set(self, offset: int, due_ms: int) -> None:
        """Add a message, or move it."""
        if offset > self._top:
            self._top = offset
        else:
            self.discard(offset)
        number, low = divmod(offset, PAGE)
        key = min(due_ms, DUE_MS_MAX) * PAGE + low
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = array("Q", (key,))
            self._lowest = min(self._lowest, number)
        else:
            insort(page, key)
        if page[0] == key:
            self._push(number, page)
        self._count += 1

    def set_all(self, first: int, due_ms: Iterable[int]) -> None:
        """The same for consecutive offsets from `first` on, but for those that have a 0."""
        for offset, one_ms in enumerate(due_ms, first):
            if one_ms:
                self.set(offset, one_ms)

    def discard(self, offset: int) -> bool:
        """Take a message out; say whether it was here."""
        if offset > self._top or (page := self._pages.get(offset // PAGE)) is None:
            return False
        at = _lows(page).find(offset % PAGE)
        if at < 0:
            return False
        del page[at]
        self._count -= 1
        if at == 0:
            self._begins_later(offset // PAGE, page)
        return True

    def clear(self) -> None:
        self._pages.clear()
        self._heap.clear()
        self._count = 0
        self._top = -1
        self._lowest = 0

    # -- in order of time -----------------------------------------------------------------

    def next_due(self) -> int | None:
        """The earliest due time, None when empty."""
        heap = self._heap
        while heap:
            head = heap[0]
            page = self._pages.get(head & _NUMBER)
            if page is not None and page[0] // PAGE == head >> _PAGE_BITS:
                return head >> _PAGE_BITS
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int, count_max: int) -> list[int]:
        """Take out what is due at `now_ms` or before, at most that many, in order."""
        out: list[int] = []
        heap = self._heap
        while len(out) < count_max and (due_ms := self.next_due()) is not None and due_ms <= now_ms:
            head = heapq.heappop(heap)
            while heap and heap[0] == head:
                heapq.heappop(heap)
            number = head & _NUMBER
            page = self._pages[number]
            # All that comes before the first of any other page.
            last_ms = now_ms
            if (other_ms := self.next_due()) is not None:
                goes_first = number < heap[0] & _NUMBER
                last_ms = min(now_ms, other_ms if goes_first else other_ms - 1)
            stop = bisect_right(page, last_ms * PAGE + PAGE - 1)
            stop = min(stop, count_max - len(out))
            out += [number * PAGE + key % PAGE for key in page[:stop]]
            del page[:stop]
            self._count -= stop
            self._begins_later(number, page)
        return out

    def _begins_later(self, number: int, page: array[int]) -> None:
        """The first of a page was taken out."""
        if page:
            self._push(number, page)
        else:
            del self._pages[number]

    def _push(self, number: int, page: array[int]) -> None:
        heap = self._heap
        heapq.heappush(heap, page[0] // PAGE << _PAGE_BITS | number)
        if len(heap) > _COMPACT_FROM and len(heap) > 2 * len(self._pages):
            self._rebuild()

    def _rebuild(self) -> None:
        heads = [page[0] // PAGE << _PAGE_BITS | number for number, page in self._pages.items()]
        heapq.heapify(heads)
        self._heap = heads

    # -- in order of offset ---------------------------------------------------------------

    def lowest(self) -> int | None:
        """The lowest offset, None when empty."""
        pages = self._pages
        if not pages:
            return None
        if self._lowest not in pages:
            self._lowest = min(pages)
        return self._lowest * PAGE + min(_lows(pages[self._lowest]))

    def truncate(self, end: int) -> None:
        """Drop offsets from `end` on."""
        if end <= self._top:
            self._keep(range(end))
            self._top = min(self._top, end - 1)

    def fall_off(self, first: int) -> int:
        """Drop offsets below `first`; how many those were."""
        lowest = self.lowest()
        if lowest is None or lowest >= first:
            return 0
        before = self._count
        self._keep(range(first, self._top + 1))
        return before - self._count

    def _keep(self, offsets: range) -> None:
        """Drop all others. Looks at every page."""
        for number, page in list(self._pages.items()):
            first = number * PAGE
            if first >= offsets.start and first + PAGE <= offsets.stop:
                continue
            kept = array("Q")
            if first + PAGE > offsets.start and first < offsets.stop:
                kept.extend([key for key in page if first + key % PAGE in offsets])
            self._count -= len(page) - len(kept)
            if kept:
                self._pages[number] = kept
            else:
                del self._pages[number]
        self._rebuild()

    # -- page by page, over several turns -----------------------------------------------

    def numbers(self) -> list[int]:
        """Of all pages there are now."""
        return list(self._pages)

    def keys_of(self, number: int) -> array[int]:
        """What a page holds; it may be gone by now."""
        return self._pages.get(number, NOTHING.keys)

    # -- all of it ------------------------------------------------------------------------

    def columns(self) -> Columns:
        """All there is."""
        return self._columns((number, self._pages[number]) for number in sorted(self._pages))

    def select(self, offsets: Iterable[int]) -> tuple[Columns, AbstractSet[int]]:
        """Those of the given offsets that are here, and the others."""
        wanted: dict[int, list[int]] = {}
        for offset in offsets:
            wanted.setdefault(offset // PAGE, []).append(offset)
        found: list[tuple[int, array[int]]] = []
        others: set[int] = set()
        for number in sorted(wanted):
            page = self._pages.get(number, NOTHING.keys)
            lows = _lows(page)
            keys = []
            for offset in wanted[number]:
                at = lows.find(offset % PAGE)
                if at < 0:
                    others.add(offset)
                else:
                    keys.append(page[at])
            if keys:
                found.append((number, array("Q", sorted(keys))))
        return self._columns(found), others

    @staticmethod
    def _columns(pages: Iterable[tuple[int, array[int]]]) -> Columns:
        columns = Columns()
        for number, keys in pages:
            columns.pages.append(number)
            columns.counts.append(len(keys))
            columns.keys.extend(keys)
        return columns if columns else NOTHING

    def load(self, columns: Columns) -> None:
        """Set all of them."""
        for number, keys in columns.each():
            self._load(number, keys)

    def merge(self, other: Delays, without: Collection[int] = ()) -> None:
        """Set all that another has, but not those offsets."""
        left_out: dict[int, set[int]] = {}
        for offset in without:
            left_out.setdefault(offset // PAGE, set()).add(offset % PAGE)
        for number, page in other._pages.items():
            lows = left_out.get(number)
            if lows is None:
                self._load(number, page[:])
            elif keys := array("Q", [key for key in page if key % PAGE not in lows]):
                self._load(number, keys)

    def _load(self, number: int, keys: array[int]) -> None:
        """Set what belongs to one page; `keys` becomes ours."""
        page = self._pages.get(number)
        if page is not None:
            few = len(keys) < _FEW
            if few or set(_lows(page)) & set(_lows(keys)):
                for key in keys:
                    self.set(number * PAGE + key % PAGE, key // PAGE)
                return
            self._count -= len(page)
            keys = array("Q", sorted(chain(page, keys)))
        self._pages[number] = keys
        self._count += len(keys)
        self._top = max(self._top, number * PAGE + PAGE - 1)
        self._lowest = min(self._lowest, number)
        self._push(number, keys)

    def check(self) -> None:
        """Assert the invariants."""
        columns = self.columns()
        assert columns.problem() is None, columns.problem()
        assert len(columns) == self._count
        assert max(self, default=-1) <= self._top
        assert min(self._pages, default=self._lowest) >= self._lowest
        heads = {page[0] // PAGE << _PAGE_BITS | number for number, page in self._pages.items()}
        assert heads <= set(self._heap)


class AllDelays:
    """Of the partitions of a topic. What is due at the same time comes in their order."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[int, Delays] = {}  # of partitions that ever had some

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __contains__(self, place: tuple[int, int]) -> bool:
        index, offset = place
        return index in self._parts and offset in self._parts[index]

    def of(self, index: int) -> Delays:
        """Those of one partition."""
        return self._parts.setdefault(index, Delays())

    def set(self, place: tuple[int, int], due_ms: int) -> None:
        """Add a message of a partition, or move it."""
        self.of(place[0]).set(place[1], due_ms)

    def _first(self) -> tuple[int, int] | None:
        """The earliest due time, and the partition."""
        parts = self._parts.items()
        firsts = [(due_ms, i) for i, part in parts if (due_ms := part.next_due()) is not None]
        return min(firsts, default=None)

    def next_due(self) -> int | None:
        """The earliest due time, None when empty."""
        first = self._first()
        return None if first is None else first[0]

    def pop_first(self, now_ms: int) -> tuple[int, int] | None:
        """Take out the first of what is due at `now_ms` or before, None if nothing is."""
        first = self._first()
        if first is None or first[0] > now_ms:
            return None
        due_ms, index = first
        return index, self._parts[index].pop_due(due_ms, 1)[0]

    def check(self) -> None:
        """Assert the invariants."""
        for part in self._parts.values():
            part.check()
