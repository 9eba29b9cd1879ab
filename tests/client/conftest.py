"""A real broker for the tests of the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.examples.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One for all tests that neither stop it nor mind other topics."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.url
