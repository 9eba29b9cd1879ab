"""The tests of real processes against servers of three nodes: `make check-nodes`.

Every broker of `tests/process` that does not say how many processes it has is a cluster of three
nodes (`tests.process.nodes_server`), and each connection reaches a random one of them. All clusters
of a run share three NATS servers.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.process import nodes_server, several_workers
from tests.process.nats import NatsCluster

os.environ["TESTED_SERVER"] = nodes_server.__name__  # before a test has imported tests.forked

SKIPPED: Final = {
    **several_workers.SKIPPED,
}
"""Files, tests of one, or rows of one; and why they are not run."""

_STACK: Final = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """One process of pytest starts the servers for all."""
    if hasattr(config, "workerinput"):
        return
    stack = config.stash[_STACK] = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zbus-nodes-")))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate = authority.issue_cert("node.test").private_key_and_cert_chain_pem
    certificate.write_to_path(folder / "node.pem")
    cluster = stack.enter_context(NatsCluster(folder / "nats", sync="2m"))
    os.environ[nodes_server.ENGINE] = cluster.engine("")
    os.environ[nodes_server.FOLDER] = str(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STACK in config.stash:
        config.stash[_STACK].close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    several_workers.skip(items, SKIPPED)
