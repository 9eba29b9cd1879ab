"""A planted bug: a text of the source, what takes its place, and the tests that have to notice.

The bugs are such as a person could make: a sync left out, a check turned round, one too many. They
stand in texts beside this file, by the part of the house that they break.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent


class Stale(Exception):
    """The source is not what the list says it is."""


class Mutant(NamedTuple):
    """`old` stands in the file exactly once. `tests` is what pytest is given: files, or single
    tests; the quickest that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        """The source with the bug in it."""
        count = source.count(self.old)
        if count != 1:
            raise Stale(f"{self.name}: {self.file} holds {count} times, not once:\n{self.old}")
        mutated = source.replace(self.old, self.new)
        try:
            compile(mutated, self.file, "exec")
        except SyntaxError as error:
            raise Stale(f"{self.name}: {error}") from error
        return mutated
