"""A real broker for the frameworks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.examples.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.port
