"""What the pages say of Spark is what the code says."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT
from zbus.spark import errors
from zbus.spark.commands import JOBS
from zbus.spark.options import OPTIONS, SINK_OPTIONS
from zbus.spark.sink.encode import COLUMNS

REFERENCE = (DOCS / "reference/spark.md").read_text("utf-8")
SHOWN = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (DOCS / "explanation/spark.md").read_text())


def test_every_option_and_column_is_in_the_reference() -> None:
    names = [*OPTIONS, *SINK_OPTIONS, *COLUMNS]
    assert [name for name in names if f"`{name}`" not in REFERENCE] == []


def test_every_error_has_its_exit_code() -> None:
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    found = {
        name: kind.exit_code
        for name, kind in kinds.items()
        if issubclass(kind, errors.SparkProblem) and kind is not errors.SparkProblem
    }
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (\d) \|", REFERENCE, re.MULTILINE)
    assert {name: int(code) for name, code in rows} == found


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_its_page(job: str) -> None:
    assert f"[{job}](spark-{job}.md)" in REFERENCE


def test_features_are_shown_by_tests() -> None:
    assert len(SHOWN) > 20
    for file, name in SHOWN:
        text = (ROOT / "tests/spark" / file).read_text("utf-8")
        assert f"def {name}(" in text, f"{file}::{name}"
