"""Which versions of Spark a session is begun with."""

from __future__ import annotations

import pyspark
import pytest

from zbus.spark.errors import NoSpark
from zbus.spark.session import start


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4", "5.0.0", "next"])
def test_a_spark_that_does_not_fit(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(NoSpark, match=r"zbus works with 4\.2 and newer, before 5\.0") as caught:
        start("no session")
    assert version in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1"])
def test_a_spark_that_fits(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(NoSpark, match="/nowhere"):
        start("no session", java_home="/nowhere")
