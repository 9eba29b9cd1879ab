"""Whether a batch is whole: what was read = what was written + filtered out + bad + late.

Rows are counted at the source (as offsets), behind it, where bad ones leave, and in front of the
sink. Each count is made by another part of the plan, so a row that is lost between two of them
shows. A query that joins, groups or repeats rows has no number of rows that it filtered out: then
what goes in and what comes out are only told; so is what came too late for its watermark, as Spark
counts it: of an aggregate, what a task has made one row of counts once.

Spark repeats tasks whose output was lost, and what these counted is counted again. So more rows
behind the source than it has offsets say that tasks were repeated, and nothing is judged; fewer are
rows that were lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import attrs


@attrs.frozen(kw_only=True)
class Counts:
    """Of one batch, or of many."""

    offsets: int | None = None  # what the source was to read, if it says so
    read: int = 0  # rows behind the source
    bad: int = 0  # of these, what cannot be parsed
    results: int = 0  # in front of the sink
    bad_kept: int = 0  # the same, of bad rows
    late: int = 0  # behind the watermark: Spark has dropped it
    by_row: bool = True  # each row gives one result or none

    @property
    def filtered(self) -> int | None:
        """Rows of which the query made nothing; None = it is not a matter of rows."""
        return self.read - self.bad - self.results if self.by_row else None

    def problems(self) -> list[str]:
        """What is not as it should be."""
        return [] if self.repeated else list(self._problems())

    @property
    def repeated(self) -> bool:
        """Tasks were repeated, so counts are too high."""
        return self.offsets is not None and self.read > self.offsets

    def _problems(self) -> Iterator[str]:
        if self.offsets is not None and self.read < self.offsets:
            yield f"{self.offsets} offsets were to be read, and {self.read} rows were"
        if self.bad_kept != self.bad:
            yield f"{self.bad} rows could not be parsed, and {self.bad_kept} were kept as bad"
        if self.filtered is not None and self.filtered < 0:
            yield f"of {self.read - self.bad} rows the query made {self.results}"

    def __add__(self, other: Self) -> Counts:
        both = self.offsets is not None and other.offsets is not None
        return Counts(
            offsets=(self.offsets or 0) + (other.offsets or 0) if both else None,
            read=self.read + other.read,
            bad=self.bad + other.bad,
            results=self.results + other.results,
            bad_kept=self.bad_kept + other.bad_kept,
            late=self.late + other.late,
            by_row=self.by_row and other.by_row,
        )

    def document(self) -> dict[str, int | bool | None]:
        """As JSON has it."""
        return {
            "read": self.read,
            "written": self.results,
            "filtered": self.filtered,
            "bad": self.bad,
            "late": self.late,
            "repeated": self.repeated,
        }

    def __str__(self) -> str:
        parts = [f"{self.read:,} read", f"{self.results:,} written"]
        if self.filtered is not None:
            parts.append(f"{self.filtered:,} filtered out")
        parts.append(f"{self.bad:,} bad")
        if self.late:
            parts.append(f"{self.late:,} too late")
        return ", ".join(parts) + (" (tasks were repeated)" if self.repeated else "")
