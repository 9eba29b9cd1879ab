"""What errors have in common: their text without numbers and ids.

    Order 4711 of 10.0.0.7: timeout after 30s   ->   Order # of #.#.#.#: timeout after #s

A text is cut into words by one pass over its letters, and each word is judged by itself. There is
no regular expression that could take longer for a text that was made for that.
"""

from __future__ import annotations

from typing import Final

READ_MAX: Final = 1_000
"""Letters of a text that are looked at."""

KEPT_MAX: Final = 200
"""Letters of a fingerprint."""

BLANK: Final = "#"
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")
_HEX_MIN: Final = 8  # letters from which on a word of hexadecimal digits is an id
_UUID: Final = (8, 4, 4, 4, 12)
_UNITS_MAX: Final = 2  # letters of a unit behind a number, as in 30ms


def fingerprint(text: str) -> str:
    """The same for texts that differ in numbers and ids only."""
    found: list[str] = []
    for word in _words(text[:READ_MAX]):
        if word.isspace():
            if found[-1:] != [" "]:
                found.append(" ")
        else:
            found.append(_blanked(word))
    return "".join(found).strip()[:KEPT_MAX]


def _words(text: str) -> list[str]:
    """Runs of letters and digits (with `-` between), runs of space, and all else by itself."""
    found: list[str] = []
    kind = ""
    for letter in text:
        if letter.isspace():
            now = "space"
        elif letter.isalnum() or letter in "-_":
            now = "word"
        else:
            now = ""
        if now and now == kind:
            found[-1] += letter
        else:
            found.append(letter)
        kind = now
    return found


def _blanked(word: str) -> str:
    parts = word.split("-")
    if tuple(map(len, parts)) == _UUID and _HEX.issuperset("".join(parts)):
        return BLANK
    return "-".join("_".join(_blanked_part(inner) for inner in part.split("_")) for part in parts)


def _blanked_part(part: str) -> str:
    """Without digits it stays; with a number at one end, a name or a unit stays; else an id."""
    if _DIGITS.isdisjoint(part):
        return part
    digits = [letter in _DIGITS for letter in part]
    if len(part) >= _HEX_MIN and _HEX.issuperset(part):
        return BLANK
    first = digits.index(True)
    if all(digits[first:]):
        return part[:first] + BLANK
    last = digits.index(False)
    if not any(digits[last:]) and len(part) - last <= _UNITS_MAX:
        return BLANK + part[last:]
    return BLANK
