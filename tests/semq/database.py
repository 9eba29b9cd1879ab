"""A database of SQLite in memory, whose process may end in a commit, and whose disk may be full.

A commit is one operation to an observer: a process that ends in it finds all of it
done afterwards, or nothing. So what may go wrong is said in numbers of commits from now on. What
was not committed is gone with the process, and so is all that belongs to a connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

_ENDS = ("COMMIT", "END")


class Crashed(BaseException):
    """The process ended in a commit. Nothing on the way may take it for an error."""

    def __init__(self, durable: bool) -> None:
        super().__init__("after a commit" if durable else "before a commit")
        self.durable = durable


class Database(sqlite3.Connection):
    """`open_database` makes an empty one."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self.commits = 0
        self._ends_at = self._fails_at = 0
        self._durable = False

    def __del__(self) -> None:
        self.close()  # Python 3.13 warns of a connection that is collected open

    # -- what goes wrong ----------------------------------------------------------------------

    def crash(self, commits: int, durable: bool) -> None:
        """The process ends in that commit from now on, 1 = the next: with it, or without."""
        self._ends_at, self._durable = self.commits + commits, durable

    def fail(self, commits: int) -> None:
        """That commit is refused: the disk has an error."""
        self._fails_at = self.commits + commits

    def fill(self) -> None:
        """It takes no more pages."""
        (pages,) = super().execute("PRAGMA page_count").fetchone()
        super().execute(f"PRAGMA max_page_count = {max(pages, 1)}").fetchone()

    def free(self) -> None:
        """There is room again, and nothing else goes wrong."""
        super().execute("PRAGMA max_page_count = 1073741823").fetchone()
        self._ends_at = self._fails_at = 0

    def copy(self) -> Database:
        """What a process finds that opens it now, in a database of its own."""
        if self.in_transaction:
            super().rollback()
        found = open_database()
        self.backup(found)
        found.commits = self.commits
        return found

    # -- commits ------------------------------------------------------------------------------

    def commit(self) -> None:
        if self.in_transaction:
            self._end(super().commit)

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        if not sql.lstrip()[:6].upper().startswith(_ENDS):
            return super().execute(sql, *given)
        found: list[sqlite3.Cursor] = []
        run = super().execute
        self._end(lambda: found.append(run(sql, *given)))
        return found[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        """Commit or not, but not behind the back of `commit`."""
        if kind is None:
            self.commit()
        else:
            self.rollback()
        return False

    def _end(self, commit: Callable[[], object]) -> None:
        self.commits += 1
        if self.commits == self._fails_at:
            raise sqlite3.OperationalError("disk I/O error")
        if self.commits != self._ends_at:
            commit()
            return
        if self._durable:
            commit()
        else:
            super().rollback()
        raise Crashed(self._durable)


def open_database() -> Database:
    """An empty one. One thread uses it, but any thread may close it: a connection refers to itself,
    and the collector runs in the thread that happens to allocate."""
    return sqlite3.connect(":memory:", factory=Database, check_same_thread=False)
