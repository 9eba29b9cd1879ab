"""Which tags a group wants.

A filter is a list of alternatives separated by `;`. An alternative is words separated by dots, as
a tag is: `*` stands for exactly one word, `#` for all the rest (none included) and ends the
alternative; any other word stands for itself, case-sensitive. A message without a tag matches no
filter. Work per match is bounded by the length of filter and tag, without backtracking.
"""

from __future__ import annotations

from collections.abc import Callable

FILTER_BYTES_MAX = 127
_MEMO_MAX = 4096

Match = Callable[[bytes], bool]


def compile_filter(text: str) -> Match | None:
    """A function that says whether a tag matches; None for the filter that lets everything through.

    The function remembers the verdicts on the last few thousand tags.
    """
    alternatives = [_words(part) for part in text.encode().split(b";") if part]
    if not alternatives:
        return None
    memo: dict[bytes, bool] = {}

    def match(tag: bytes) -> bool:
        verdict = memo.get(tag)
        if verdict is None:
            if len(memo) >= _MEMO_MAX:
                memo.clear()
            words = _words(tag)
            verdict = memo[tag] = bool(tag) and any(_match(a, words) for a in alternatives)
        return verdict

    return match


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
