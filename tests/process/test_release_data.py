"""What a released version wrote is opened, and is all there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.process.broker import BrokerProcess
from tests.process.release_data import observe
from zbus.client import connect

RELEASES = sorted((ROOT / "tests/data").glob("release-*"))


def test_each_release_left_something() -> None:
    assert [path.name for path in RELEASES] == ["release-0.1"]


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_nothing_of_it_is_missing(release: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(release / "log", data)
    expected = json.loads((release / "seen.json").read_text(encoding="utf-8"))
    for topic in expected.values():
        for message in topic["messages"]:
            del message[-1]["content-length"]  # that client took it for the message's
    with BrokerProcess(data) as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            assert json.loads(json.dumps(observe(bus))) == expected
            stored = bus.produce("jobs", "more")  # it is written on
            assert stored.offset == len(expected["jobs"]["messages"])
            assert bus.pull("jobs", "workers")
        assert broker.stop() == 0
        assert "damage" not in broker.log()
