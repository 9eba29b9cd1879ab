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

LISTENS: Final = "the port of the cluster has one address, and no TLS"
STARTS: Final = "it starts nodes itself"
ADDRESS: Final = "a client has another address behind the port of the cluster"
UNTAKEN: Final = "the port of the cluster holds what a reader does not take"
UNORDERED: Final = "what clients ask through different nodes has no order"
ONE_SERVER: Final = "its session expects one server in trackers; test_failover.py has one of nodes"
LINES: Final = "it counts lines of the log, and each process writes them"
DURABILITY: Final = "it names another durability"
EDGES: Final = "what waits is counted where the client is connected, and another node may be asked"
APART: Final = "each process takes the file over by itself, and the next request may be at another"
KILLS: Final = "`make crash-nodes` kills nodes under load"

SKIPPED: Final = {
    **several_workers.SKIPPED,
    "test_nodes.py": STARTS,
    "test_failover.py": STARTS,
    "test_tls.py": LISTENS,
    "test_client_secure.py": LISTENS,
    "test_websocket.py::test_over_tls": LISTENS,
    "test_forks.py::test_tls": LISTENS,
    "test_access.py::test_open_to_others_on_purpose": LISTENS,
    "test_access.py::test_a_changed_file_is_noticed": LINES,
    "test_access.py::test_new_tables_under_load": LINES,
    "test_access.py::test_sighup_takes_the_file_over": APART,
    "test_abandoned_pulls.py::test_an_interrupted_wait_loses_nothing": UNORDERED,
    "test_events.py::test_one_that_takes_nothing_is_cut_off_and_goes_on": UNTAKEN,
    "test_history.py": several_workers.DIRECTORY,
    "test_inner_puts.py": several_workers.SAYS,
    "test_life.py::test_data_directory_in_use": several_workers.DIRECTORY,
    "test_life.py::test_file_descriptors_run_out": several_workers.DIRECTORY,
    "test_stock_clients.py::test_messages": ONE_SERVER,
    "test_stock_clients.py::test_it_comes_back_with_the_broker": ONE_SERVER,
    "test_stock_clients.py::test_two_brokers": ONE_SERVER,
    "test_semq.py::test_encrypted_on_its_way": several_workers.DIRECTORY,
    "test_shell.py::test_top": "nodes are not in `zbus top`",
    "test_proxies.py::test_a_consumer_waits": EDGES,
    "test_shell.py::test_errors_as_json": DURABILITY,
    "test_javascript_client.py::test_a_scenario[labels]": DURABILITY,
    "test_supervisor.py::test_the_health_check_of_the_image": LISTENS,
    "test_stats.py::test_figures_of_the_process": "there is no disk",
    "test_stats.py::test_a_connection_is_ended": ADDRESS,
    "test_backup.py": several_workers.DIRECTORY,
    "test_disk_full.py": several_workers.DIRECTORY,
    "test_kill_cycles.py": KILLS,
    "test_mqcloud_kills.py": KILLS,
    "test_semq_kills.py": KILLS,
    "test_soak.py": several_workers.PLANTED,
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
