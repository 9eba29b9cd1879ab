"""The table "what carries over" of the page on dialects: what each pair of them passes on.

`python -m tests.dialects.crossing.table` writes it into the page.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import Final

from tests.dialects.crossing.speakers import NAMES
from tests.docs.pages import DOCS
from tests.docs.tables import table

PAGE = DOCS / "reference/dialects.md"

PAIRS: Final = tuple(permutations(NAMES, 2))
"""Who puts, and who takes."""

_ALWAYS: Final = ("yes",) * len(PAIRS)

CELLS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("yes", "text", "yes", "yes", "text", "yes", "yes", "yes", "yes", "yes", "yes", "yes"),
    "order": _ALWAYS,
    "place in front": ("yes", "yes", "yes", "yes", "yes", "yes", "", "", "", "", "", ""),
    "id": ("kept", "yes", "yes", "own", "own", "own", "yes", "kept", "yes", "yes", "kept", "kept"),
    "tag": ("kept", "kept", "kept", "", "", "", "", "", "", "", "", ""),
    "key": ("kept", "kept", "kept", "", "", "", "", "", "", "yes", "kept", "kept"),
    "headers": ("kept", "kept", "kept", "", "", "", "", "", "", "", "", ""),
    "delay": ("yes", "yes", "yes", "", "", "", "yes", "yes", "yes", "yes", "yes", "yes"),
    "expiry": ("yes", "yes", "yes", "", "", "", "yes", "yes", "yes", "", "", ""),
    "attempts": _ALWAYS,
    "limit of attempts": ("yes", "yes", "yes", "", "", "", "yes", "yes", "yes", "", "", ""),
    "being done": _ALWAYS,
}
"""A row for each thing, with a cell for each of PAIRS; "" is what the sender has no word for."""

NO_WORD: Final = "\N{EN DASH}"

_BLOCK = re.compile(r"(?<=<!-- begin what carries over -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def as_page() -> str:
    """The table as the page has it."""
    rows = [("", *(f"{sender} → {receiver}" for sender, receiver in PAIRS))]
    rows += [(thing, *(cell or NO_WORD for cell in cells)) for thing, cells in CELLS.items()]
    return table(rows)


def written(page: str) -> str:
    """The page with the table of today."""
    return _BLOCK.sub(lambda _found: as_page(), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
