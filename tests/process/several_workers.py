"""The tests of real processes against servers of several processes: `make check-workers`.

Every broker of `tests/process` that does not say how many processes it has gets `ZBUS_WORKERS` of
them. What asks for something that is of one process by design is skipped, with its reason; a row of
the table that fits no test is an error, so none is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

REPLICATED: Final = "replicated messages are kept by one process"
COUNTED: Final = "limits count in each process, and are divided among them"
DIRECTORY: Final = "it looks into the directory of one process"
MEMORY: Final = "it measures the first process, which serves nothing"
TOGETHER: Final = "it acknowledges deliveries with a put, and has no braces"
BANNER: Final = "the start names a port, which a Unix socket has not"
PLANTED: Final = "it plants a bug, or a simulated part, in the one process"
ORDER: Final = "statistics and connections of all processes are put together, in other pieces"
SUPERVISOR: Final = "the first process speaks to the supervisor, and does not count topics"
PINGS: Final = "a WebSocket whose pull waits in another process may be asked for a sign of life"
SAYS: Final = "it says how many processes it wants, and compares with one"

SKIPPED: Final = {
    "test_standby.py": REPLICATED,
    "test_nats_access.py": REPLICATED,
    "test_jetstream.py": REPLICATED,
    "test_workers.py": SAYS,
    "test_worker_limits.py": SAYS,
    "test_supervisor.py::test_it_tells_what_it_does": SUPERVISOR,
    "test_tls.py::test_all_addresses_share_the_connections": COUNTED,
    "test_tls.py::test_an_address_with_too_many_connections_is_cut_off": COUNTED,
    "test_tls.py::test_its_permissions_may_be_others": BANNER,
    "test_tls.py::test_the_socket_of_a_broker_that_died_is_replaced": BANNER,
    "test_connections.py::test_one_address_does_not_take_all_connections": COUNTED,
    "test_bodies.py::test_memory_of_bodies": MEMORY,
    "test_torn_tails.py": DIRECTORY,
    "test_release_data.py": DIRECTORY,
    "test_copy.py": DIRECTORY,
    "test_life.py::test_damaged_log_is_refused": DIRECTORY,
    "test_life.py::test_port_taken": "the first process says it, in other words",
    "test_life.py::test_a_reload_during_the_start_ends_nothing": "the start of one process",
    "test_life.py::test_debug_lines_tell_what_clients_do": "each process has sessions of its own",
    "test_kill_cycles.py::test_a_planted_bug_is_found": PLANTED,
    "test_edge_fuzz.py": PLANTED,
    "test_change_kills.py": TOGETHER,
    "test_openapi.py::test_the_whole": "it asks for what is answered with 409",
    "test_websocket.py::test_a_handshake_behind_a_pull_that_waits": PINGS,
    "test_stats.py::test_a_stream_goes_on": ORDER,
}
"""Files, tests of one, or rows of one; and why they are not run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip(items, SKIPPED)


def skip(items: list[pytest.Item], table: Mapping[str, str]) -> None:
    """Each test of which the table has the beginning of the name, or more of it."""
    names = [item.nodeid.partition("tests/process/")[2] for item in items]
    for begin, reason in table.items():
        found = [item for item, name in zip(items, names, strict=True) if name.startswith(begin)]
        file = begin.partition("::")[0]
        if not found and any(name.startswith(file) for name in names):
            raise pytest.UsageError(f"no test is called {begin}")
        for item in found:
            item.add_marker(pytest.mark.skip(reason=reason))
