"""A job as a file for `spark-submit`, on the cluster that `examples/spark/cluster.sh` starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.process.broker import BrokerProcess
from tests.process.cluster_kills import ROOT, SCRIPT, environment
from zbus.client import connect
from zbus.spark.archive import Archive

COUNT = 1_000


@pytest.mark.check
def test_a_job_on_a_cluster(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            bus.declare("orders")
            bus.produce_many("orders", [b"%d" % number for number in range(COUNT)])
        submit = f"{pyspark.__path__[0]}/bin/spark-submit"
        conf = "--conf spark.driver.memory=512m --conf spark.executor.memory=512m"
        job = f"{ROOT}/examples/spark/job.py archive --broker {url} --topics orders"
        line = f"{submit} --master $SPARK_MASTER {conf} {job} --to {tmp_path}/archive"
        done = subprocess.run(
            [str(SCRIPT), "sh", "-c", line], env=environment(), capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert "a master and 2 workers run: spark://127.0.0.1:" in done.stderr
    # spark-submit puts what a program says on stderr there, too.
    assert f"orders, partition 0: offsets 0 to {COUNT}, {COUNT} messages" in done.stdout
    archive = Archive(tmp_path / "archive")
    table = archive.dataset().to_table(columns=["offset", "body"]).sort_by("offset")
    assert table["offset"].to_pylist() == list(range(COUNT))
    assert table["body"].to_pylist() == [b"%d" % number for number in range(COUNT)]
