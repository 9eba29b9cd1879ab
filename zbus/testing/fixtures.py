"""Pytest fixtures. In the conftest.py beside your pyproject.toml:

    pytest_plugins = ["zbus.testing.fixtures"]

`simulation` is a `Scene` (`zbus.testing.simulation`): each test that takes it runs with ten seeds.
`--simulation-seeds=1000` gives it more, `--simulation-seed=7` that one only, and the marker
`simulation(seeds=50)` decides for one test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zbus.testing.simulation.scene import Scene

_SEEDS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("zbus")
    group.addoption("--simulation-seeds", type=int, help="how many seeds each simulation gets")
    group.addoption("--simulation-seed", type=int, help="the one seed to run")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simulation(seeds): run with that many seeds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "simulation" not in metafunc.fixturenames:
        return
    config = metafunc.config
    marker = metafunc.definition.get_closest_marker("simulation")
    count = config.getoption("--simulation-seeds", None)
    if count is None:
        count = marker.kwargs["seeds"] if marker is not None else _SEEDS
    only = config.getoption("--simulation-seed", None)
    seeds = range(count) if only is None else [only]
    ids = [f"seed-{seed}" for seed in seeds]
    metafunc.parametrize("simulation", seeds, indirect=True, ids=ids)


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A machine with a running broker. What happened is printed if the test fails."""
    scene = Scene(request.param)
    yield scene
    print(scene.story())  # pytest shows it for a test that failed
