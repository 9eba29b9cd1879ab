"""`python -m tests.mutants [name ...]`: does somebody notice each planted bug?

The tree is copied into a temporary folder, one for each worker. One bug after another is planted,
its tests run, and the source is put back. It is found if a test fails that passes without it. The
test that found it last time is tried first, alone, which takes seconds (`finders.tsv`, written anew
with `--remember`); then those that the bug names. If none fails, they run without it as well, which
tells how long they take: a bug is found, too, if they do not come to an end in several times that.
Else it survived.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.table import MUTANTS

COPIED: Final = ("zbus", "tests", "docs", "examples", "pyproject.toml", "conftest.py", "README.md")
LIMIT_S: Final = 600  # of tests without a bug
FINDERS: Final = Path(__file__).parent / "finders.tsv"
"""By the name of a bug, the test that found it last."""

_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (tests/[^ ]+::.+?)(?: - .*)?$", re.MULTILINE)
_FAILED: Final = 1  # what pytest ends with
_OVERTIME: Final = -1000  # as a status, that there was none in time
_NO_TEST: Final = -1001  # likewise, that a test fails without any bug


class Outcome(NamedTuple):
    """What became of one run of tests."""

    status: int
    seconds: float
    told: str  # the last lines


class Result(NamedTuple):
    """What became of one bug."""

    mutant: Mutant
    outcome: Outcome

    @property
    def word(self) -> str:
        words = {0: "survived", _FAILED: "found", _OVERTIME: "found"}
        return words.get(self.outcome.status, "error")

    @property
    def finder(self) -> str:
        """The test that failed; "" = none, or it is not told."""
        told = _FAILURE.search(self.outcome.told) if self.outcome.status == _FAILED else None
        return told[1] if told is not None else ""


class Tree:
    """A copy of the repository that bugs are planted in, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        for name in COPIED:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)

    def run(self, tests: Iterable[str], limit_s: float) -> Outcome:
        quick = ("-p", "tests.mutants.quick", "-p", "no:cacheprovider", "-x", "-q", "--tb=line")
        whole = ("-m", "not bench")  # with what is left to `make check`
        command = [sys.executable, "-m", "pytest", *quick, *whole, *tests]
        begun = time.monotonic()
        # A group of its own: tests may start brokers, which must not outlive them.
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=dict(os.environ, WHOLE_TESTS="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=limit_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
            status = _OVERTIME
        seconds = time.monotonic() - begun
        return Outcome(status, seconds, "\n".join(out.splitlines()[-12:]))

    def plant(self, mutant: Mutant) -> Callable[[], None]:
        """Plant a bug; give what takes it out again."""
        path = self.folder / mutant.file
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.apply(source))
        return lambda: self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        """A time of its own for each version, in whole seconds: by that, and the size, Python
        knows whether what it has compiled is still right."""
        path.write_text(source, encoding="utf-8")
        self._changes += 1
        changed_s = int(time.time()) + self._changes
        os.utime(path, (changed_s, changed_s))


class Campaign:
    """Bugs, and what becomes of them."""

    def __init__(
        self, mutants: list[Mutant], folder: Path, jobs: int, *, remembers: bool = False
    ) -> None:
        self._mutants = mutants
        self._jobs = jobs
        self._finders = read_finders()
        self._remembers = remembers
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(jobs):
            self._trees.put(Tree(folder / str(number)))
        self._print = threading.Lock()
        self._alone: dict[str, Outcome] = {}  # tests without a bug

    def run(self) -> list[Result]:
        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(self._judge, self._mutants))

    def _judge(self, mutant: Mutant) -> Result:
        """Whether a test fails that passes without the bug: the one that found it last, or any."""
        finder = self._finders.get(mutant.name)
        for tests in ((finder,), mutant.tests) if finder else (mutant.tests,):
            result = Result(mutant, self._plant(mutant, tests, LIMIT_S))
            if result.finder and self._run_alone(result.finder).status == 0:
                return self._tell(result)
        return self._tell(self._run(mutant))

    def _run_alone(self, test: str) -> Outcome:
        """Without a bug, once for all bugs."""
        if test not in self._alone:
            tree = self._trees.get()
            try:
                self._alone[test] = tree.run([test], LIMIT_S)
            finally:
                self._trees.put(tree)
        return self._alone[test]

    def _run(self, mutant: Mutant) -> Result:
        """No test has failed that passes without the bug; but they may come to no end with it."""
        alone = [self._run_alone(test) for test in mutant.tests]
        for outcome in alone:
            if outcome.status != 0:
                return Result(mutant, outcome._replace(status=_NO_TEST))
        limit_s = 30 + 4 * sum([outcome.seconds for outcome in alone])
        return Result(mutant, self._plant(mutant, mutant.tests, limit_s))

    def _plant(self, mutant: Mutant, tests: Iterable[str], limit_s: float) -> Outcome:
        """What these tests say of it."""
        tree = self._trees.get()
        try:
            heal = tree.plant(mutant)
            try:
                return tree.run(tests, limit_s)
            finally:
                heal()
        finally:
            self._trees.put(tree)

    def _tell(self, result: Result) -> Result:
        (mutant, outcome), word = result, result.word
        how = " (no end)" if outcome.status == _OVERTIME else ""
        with self._print:
            print(f"{word:8} {outcome.seconds:6.1f} s  {mutant.name}{how}", flush=True)
            if self._remembers:
                remember(result)
            if word == "error":
                print(f"{' '.join(mutant.tests)}:\n{outcome.told}", flush=True)
        return result


def read_finders() -> dict[str, str]:
    """The bugs that there are, and who found them."""
    names = {mutant.name for mutant in MUTANTS}
    pairs = [line.split("\t") for line in FINDERS.read_text(encoding="utf-8").splitlines()]
    return {name: test for name, test in pairs if name in names}


def remember(result: Result) -> None:
    """Write down who found it."""
    known = read_finders() | ({result.mutant.name: result.finder} if result.finder else {})
    lines = [f"{name}\t{test}\n" for name, test in sorted(known.items())]
    FINDERS.write_text("".join(lines), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutants", description="Plant bugs, run tests.")
    parser.add_argument("names", nargs="*", help="of bugs, or how they begin; all if none is given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--remember", action="store_true", help="write down who found them")
    options = parser.parse_args()
    names = tuple(options.names)
    mutants = [one for one in MUTANTS if not names or one.name.startswith(names)]
    if not mutants:
        parser.error("there is no such bug; --list says which there are")
    for one in mutants:
        one.apply((ROOT / one.file).read_text(encoding="utf-8"))
    if options.list:
        for one in mutants:
            print(f"{one.name:32} {one.file}")
        return 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zbus-mutants-") as folder:
        campaign = Campaign(mutants, Path(folder), options.jobs, remembers=options.remember)
        results = campaign.run()
    counts = {
        word: sum([one.word == word for one in results]) for word in ("found", "survived", "error")
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print(f"{len(results)} mutants in {time.monotonic() - begun:.0f} s: {told}")
    missed = [one.mutant.name for one in results if one.word != "found"]
    if missed:
        print("not found: " + " ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
