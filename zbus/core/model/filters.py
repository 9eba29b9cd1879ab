"""Which tags a group wants.

A filter is a list of alternatives separated by `;`. An alternative is words separated by dots, as
a tag is: `*` stands for exactly one word, `#` for all the rest (none included) and ends the
alternative; any other word stands for itself, case-sensitive. A message without a tag matches no
filter. Work per match is bounded by the length of filter and tag, without backtracking.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

FILTER_BYTES_MAX = 127

MEMO_BYTES_MAX = 16 << 20
"""What all remembered verdicts take, about. Past it all are forgotten."""

_VERDICT_BYTES = 150
"""What one takes beside its tag."""

Match = Callable[[bytes], bool]


def compile_filter(text: str) -> Match | None:
    """A function that says whether a tag matches; None for the filter that lets everything through.

    Verdicts are remembered: those of one text once, however many groups have it.
    """
    known = _filters.get(text)
    if known is None:
        alternatives = [_words(part) for part in text.encode().split(b";") if part]
        if not alternatives:
            return None
        known = _filters[text] = _Filter(alternatives)
    return known.match


class _Filter:
    __slots__ = ("__weakref__", "_alternatives", "memo")

    def __init__(self, alternatives: list[list[bytes]]) -> None:
        self._alternatives = alternatives
        self.memo: dict[bytes, bool] = {}

    def match(self, tag: bytes) -> bool:
        verdict = self.memo.get(tag)
        if verdict is None:
            words = _words(tag)
            verdict = bool(tag) and any(_match(a, words) for a in self._alternatives)
            _make_room(_VERDICT_BYTES + len(tag))
            self.memo[tag] = verdict
        return verdict


_filters: WeakValueDictionary[str, _Filter] = WeakValueDictionary()
_memo_bytes = 0  # never less than there are


def _make_room(size_bytes: int) -> None:
    global _memo_bytes
    _memo_bytes += size_bytes
    if _memo_bytes > MEMO_BYTES_MAX:
        for known in _filters.values():
            known.memo.clear()
        _memo_bytes = size_bytes


def _words(text: bytes) -> list[bytes]:
    """Split at dots; empty words at the end do not count, those within do."""
    words = text.split(b".")
    while words and not words[-1]:
        words.pop()
    return words


def _match(pattern: list[bytes], words: list[bytes]) -> bool:
    for position, part in enumerate(pattern):
        if part == b"#":
            return True
        if position >= len(words) or part not in (b"*", words[position]):
            return False
    return len(pattern) == len(words)
