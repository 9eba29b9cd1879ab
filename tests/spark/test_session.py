"""What a session of Spark is told, and what it is not: nothing that somebody has said already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.limits import WAIT_S
from zbus.spark import session
from zbus.spark.session import DEFAULTS, start

ZONE = "spark.sql.session.timeZone"
SHUFFLE = "spark.sql.shuffle.partitions"
STATE = "spark.sql.streaming.stateStore.providerClass"


def test_the_settings_of_a_session_that_is_there_stay(spark: SparkSession) -> None:
    before = {name: str(spark.conf.get(name)) for name in (ZONE, SHUFFLE, STATE)}
    try:
        spark.conf.set(ZONE, "Asia/Tokyo")
        spark.conf.set(SHUFFLE, "7")
        spark.conf.unset(STATE)
        assert start("another").conf.get(ZONE) == "Asia/Tokyo"
        assert spark.conf.get(SHUFFLE) == "7"
        assert spark.conf.get(STATE) == DEFAULTS[STATE]
        start("another", conf={ZONE: "Europe/Paris"})
        assert spark.conf.get(ZONE) == "Europe/Paris"
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert session.running() is spark


def test_workers_load_what_is_compiled(spark: SparkSession) -> None:
    """And not the zip that Spark puts before it."""

    def place(_: int) -> str:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]


ASK = """
import json, sys
from zbus.spark.session import start
s = start("x", master="local[1]", conf={"spark.sql.ansi.enabled": "false"})
names = sys.argv[1:]
print(json.dumps({name: s.conf.get(name, None) for name in names}))
s.stop()
"""


@pytest.mark.check
@pytest.mark.parametrize("way", ["file", "submit"])
def test_a_properties_file_and_submit_are_listened_to(way: str, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{ZONE} Asia/Tokyo\n{SHUFFLE} 7\n")
    job = tmp_path / "ask.py"
    job.write_text(ASK)
    command = [sys.executable]
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    if way == "submit":
        command = [f"{pyspark.__path__[0]}/bin/spark-submit"]
        environment.pop("SPARK_CONF_DIR")
        for setting in (f"{ZONE}=Asia/Tokyo", f"{SHUFFLE}=7"):
            command += ["--conf", setting]
    names = [ZONE, SHUFFLE, STATE, "spark.ui.enabled", "spark.ui.showConsoleProgress"]
    names.append("spark.sql.ansi.enabled")
    done = subprocess.run(
        [*command, str(job), *names],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=WAIT_S,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    expected = {**DEFAULTS, ZONE: "Asia/Tokyo", SHUFFLE: "7", "spark.sql.ansi.enabled": "false"}
    assert said == {name: expected[name] for name in names}
