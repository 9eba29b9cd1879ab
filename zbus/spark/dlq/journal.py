"""How far the plan in a file was applied: a line for each step, in a file beside it.

    part 500        that many messages are put in one transaction
    paused          the group was not paused before, and is now
    committed 0     the first part of the plan is where it goes
    finished 0      and is done in the group
    done            so is all of it, and the group goes on

A step is written down when it is done, and before the next one begins; only `paused` is written
before. So a second run after a crash knows what is left. A line ends with a full
stop: one that was not written whole has none.
"""

from __future__ import annotations

import os
from pathlib import Path

from zbus.spark.errors import SparkProblem

PART = "part"
PAUSED = "paused"
COMMITTED = "committed"
FINISHED = "finished"
DONE = "done"
_END = " ."


class Journal:
    """Raises SparkProblem."""

    def __init__(self, plan: Path) -> None:
        self._path = plan.with_name(f"{plan.name}.applied")
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise SparkProblem(f"{self._path} cannot be read: {error}") from error
        lines = text.splitlines()
        self._known = [line.removesuffix(_END) for line in lines if line.endswith(_END)]

    def has(self, *words: object) -> bool:
        """Whether a step is done."""
        return " ".join(map(str, words)) in self._known

    def number(self, word: str) -> int | None:
        """What was written with a word first."""
        found = [line.split()[1] for line in self._known if line.startswith(f"{word} ")]
        return int(found[0]) if found else None

    def add(self, *words: object) -> None:
        """A step is done. It stays written."""
        line = " ".join(map(str, words))
        try:
            with self._path.open("ab") as file:
                file.write(f"\n{line}{_END}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SparkProblem(f"{self._path} cannot be written: {error}") from error
        self._known.append(line)
