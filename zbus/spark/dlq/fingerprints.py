r"""What errors have in common: their text without numbers and ids.

    Order 4711 of 10.0.0.7: timeout after 30s   ->   Order # of #.#.#.#: timeout after #s

A word is cut at `-` and `_`, and each part is judged by itself. Spark does it, without Python for
each text. In no rule can two repetitions match the same letter and fail behind it, so that no text
takes longer than another one of its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

READ_MAX: Final = 1_000
"""Letters of a text that are looked at."""

KEPT_MAX: Final = 200
"""Letters of a fingerprint."""

_ANY: Final = r"[\p{L}\p{N}]"
_LETTER: Final = r"[\p{L}\p{N}&&[^0-9]]"
_HEX: Final = "[0-9a-fA-F]"


def _part(pattern: str, joints: str = "") -> str:
    """It is between what is no letter or digit, or one of these."""
    other = rf"[\p{{L}}\p{{N}}{joints}]"
    return f"(?<!{other}){pattern}(?!{other})"


_RULES: Final = (
    (r"[\s\p{Z}]+", " "),
    (_part(f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}", "_-"), "#"),  # a UUID
    (_part(f"(?=[a-fA-F]*[0-9]){_HEX}{{8,}}"), "#"),  # an id
    (_part(f"({_LETTER}+)[0-9]+"), "$1#"),  # a number with a name before it
    (_part(f"[0-9]+({_LETTER}{{0,2}})"), "#$1"),  # or with a unit behind it
    (_part(f"{_ANY}*[0-9]{_ANY}*"), "#"),
)
"""One after another: what is replaced, and by what."""


def fingerprint(text: Column) -> Column:
    """The same for texts that differ in numbers and ids only."""
    from pyspark.sql import functions as F

    found = F.substring(text, 1, READ_MAX)
    for pattern, shown in _RULES:
        found = F.regexp_replace(found, pattern, shown)
    return F.substring(F.trim(found), 1, KEPT_MAX)
