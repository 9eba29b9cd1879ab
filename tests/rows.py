"""A table is one test: `@pytest.mark.parametrize` over a function that asks for nothing else.

pytest would make a test of each row, and there are ten thousand rows that take no time, while a
test costs four milliseconds in three processes. So one test goes through all of them, also if some
fail, and says which. Who asks for tests by a word (`-k`) or for a row (`test_name[row]`) has a test
for each row.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

ONCE: Final = {"_leaves_nothing", "request"}  # fixtures that all rows may share
MARKED: Final = type(pytest.param())

Given = dict[str, Any]
Test = Callable[..., object]


class Row(NamedTuple):
    """Values by the names of parameters, and whether they are left to `make check`."""

    given: Given
    checked: bool


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    config = collector.config
    if config.option.keyword or any("[" in argument for argument in config.args):
        return None
    if not isinstance(collector, pytest.Module) or any(collector.iter_markers()):
        return None
    if not (inspect.isfunction(obj) and collector.istestfunction(obj, name)):
        return None
    rows = rows_of(obj)
    if len(rows) < 2:
        return None
    items = [
        pytest.Function.from_parent(collector, name=name + word, callobj=all_rows(obj, some, marks))
        for word, marks in (("", ()), ("[for longer]", (pytest.mark.check.mark,)))
        if (some := [row.given for row in rows if row.checked is bool(marks)])
    ]
    return list(items) if set(items[0].fixturenames) <= ONCE else None


def rows_of(test: Test) -> list[Row]:
    """What a test is called with; nothing if it asks for more than that."""
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    if inspect.iscoroutinefunction(test) or hasattr(test, "hypothesis") or not marks:
        return []
    if not all(map(is_plain, marks)):
        return []
    rows = [
        Row(
            {name: value for row in crossed for name, value in row.given.items()},
            any(row.checked for row in crossed),
        )
        for crossed in itertools.product(*map(table, marks))
    ]
    whole = rows and rows[0].given.keys() == inspect.signature(test).parameters.keys()
    return rows if whole else []


def is_plain(mark: pytest.Mark) -> bool:
    """A table without fixtures and scopes; rows may be left to `make check`."""
    if mark.name != "parametrize" or len(mark.args) != 2 or not mark.kwargs.keys() <= {"ids"}:
        return False
    values = mark.args[1]
    return isinstance(values, Collection) and all(
        [mark.name for mark in value.marks] in ([], ["check"])
        for value in values
        if isinstance(value, MARKED)
    )


def table(mark: pytest.Mark) -> Iterator[Row]:
    """As pytest reads it."""
    names, rows = mark.args
    alone = isinstance(names, str) and "," not in names
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    for row in rows:
        values = row.values if isinstance(row, MARKED) else [row] if alone else row
        checked = isinstance(row, MARKED) and bool(row.marks)
        yield Row(dict(zip(names, values, strict=True)), checked)


def all_rows(test: Test, rows: list[Given], marks: Sequence[pytest.Mark]) -> Callable[[], None]:
    """The test of all rows. The first error is raised, and tells of all rows that failed."""

    @functools.wraps(test)
    def run() -> None:
        errors: list[BaseException] = []
        notes: list[str] = []
        for number, row in enumerate(rows, 1):
            try:
                test(**row)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                errors.append(error)
                given = ", ".join(f"{name}={value!r}" for name, value in row.items())
                notes.append(f"row {number} of {len(rows)}: {given:.1000}")
        if errors:
            errors[0].add_note("\n".join(notes))
            raise errors[0]

    vars(run).update(pytestmark=list(marks), __signature__=inspect.Signature())
    return run
