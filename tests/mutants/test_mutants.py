"""The list of planted bugs fits the source; and the runner tells found from survived."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import Outcome, Result, Tree
from tests.mutants.mutant import ROOT, Mutant, Stale
from tests.mutants.table import MUTANTS

PARTS = (
    "core",
    "core/commit",
    "core/cursor",
    "core/delivery",
    "core/patterns",
    "core/persistence",
    "core/topics",
    "core/verbs",
    "storage",
    "storage/format",
    "storage/local",
    "wire",
    "wire/heads",
    "edge",
    "dialects/zbus/messages",
    "dialects/zbus/request",
    "server/loop",
    "server/watch",
    "client/links",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits(mutant: Mutant) -> None:
    mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    assert mutant.old != mutant.new
    for test in mutant.tests:
        path, _, name = test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        assert name.partition("::")[0].partition("[")[0] in source, f"there is no {test}"
        assert (ROOT / path).exists(), f"there is no {path}"


def test_names_and_parts() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert len(MUTANTS) >= 60
    folders = {Path(mutant.file).parent.as_posix() for mutant in MUTANTS}
    assert folders >= {f"zbus/{part}" for part in PARTS}


@pytest.mark.parametrize("source", ["", "a = 1\na = 1\n"], ids=["gone", "twice"])
def test_a_stale_one(source: str) -> None:
    with pytest.raises(Stale, match="times, not once"):
        Mutant("m", "zbus/m.py", "a = 1", "a = 2", ()).apply(source)


def test_one_that_is_no_python() -> None:
    with pytest.raises(Stale, match="invalid syntax"):
        Mutant("m", "zbus/m.py", "a = 1", "a = =", ()).apply("a = 1\n")


@pytest.mark.parametrize(
    ("status", "told", "finder"),
    [
        (1, "FAILED tests/a/test_b.py::test_c[x] - assert 1", "tests/a/test_b.py::test_c[x]"),
        (1, "..\nFAILED tests/a/test_b.py::test_c\n1 failed", "tests/a/test_b.py::test_c"),
        (1, "ERROR tests/test_b.py::test_c - Timeout", "tests/test_b.py::test_c"),
        (1, "ERROR tests/test_b.py\n!!!", ""),
        (0, "FAILED tests/a/test_b.py::test_c", ""),
    ],
)
def test_who_found_it(status: int, told: str, finder: str) -> None:
    mutant = Mutant("m", "zbus/m.py", "a", "b", ())
    assert Result(mutant, Outcome(status, 0.1, told)).finder == finder


def test_the_runner(tmp_path: Path) -> None:
    """A bug is found, one that changes nothing is not, and the source is as it was."""
    tree = Tree(tmp_path / "tree")
    tests = ["tests/core/model/test_names.py"]
    file = "zbus/core/model/names.py"
    before = (ROOT / file).read_text(encoding="utf-8")
    outcomes = []
    for old, new in (("name is empty", "name is"), ("is longer than {", "is really longer than {")):
        heal = tree.plant(Mutant("m", file, old, new, ()))
        outcomes.append(tree.run(tests, 60).status)
        heal()
        assert (tree.folder / file).read_text(encoding="utf-8") == before
    assert outcomes == [1, 0]
