"""The fixture for users: the example of the page, and what they can do to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests.docs.pages import DOCS, blocks
from zbus.testing.simulation import Reply, Scene

Play = Generator[bytes, Reply, None]


def example() -> Callable[[Scene], None]:
    (block,) = blocks(DOCS / "howto/simulate.md", "python")
    names: dict[str, object] = {}
    exec(compile(block.text, "simulate.md", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    return test


EXAMPLE = example()


@pytest.mark.simulation(seeds=20)
def test_the_example_of_the_page(simulation: Scene) -> None:
    EXAMPLE(simulation)
