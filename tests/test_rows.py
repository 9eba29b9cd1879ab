"""A table is one test, and each row still counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import WAIT_S

TABLE = """
import pytest

@pytest.mark.parametrize("a", [1, pytest.param(2, id="two"), 3])
@pytest.mark.parametrize(("b", "c"), [(1, 1), (2, 0)], ids=["one", "other"])
def test_table(a, b, c):
    assert a != 2 or c

@pytest.mark.parametrize("a", [1, 2])
def test_asks_for_more(a, tmp_path):
    pass

@pytest.mark.parametrize("a", [1, 2, *(pytest.param(a, marks=pytest.mark.check) for a in (3, 4))])
def test_checked(a):
    assert a != 4
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-m", "not check"], ["1 failed, 3 passed", "row 5 of 6: b=2, c=0, a=2"]),
        (["-k", "two"], ["[other-two]", "1 failed, 1 passed, 10 deselected"]),
        (["::test_checked"], ["1 failed, 1 passed", "row 2 of 2: a=4"]),
    ],
)
def test_all_rows_are_tried(options: list[str], said: list[str], tmp_path: Path) -> None:
    file = tmp_path / "test_table.py"
    file.write_text(TABLE)
    usual = ("-p", "tests.rows", "-p", "no:cacheprovider", "-q")
    one = options.pop() if options[0].startswith("::") else ""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *usual, *options, f"{file}{one}"],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert [text for text in said if text not in run.stdout] == [], run.stdout
