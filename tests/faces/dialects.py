"""Each dialect in the few requests that show what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from tests.conformance.dialogue import http
from tests.faces.toy import ToyFace
from zbus.faces import FACES

Request = Callable[..., bytes]


@attrs.frozen
class Dialect:
    """`put(topic, body, *lines)` and `pull(topic, *lines)`, the latter waiting."""

    name: str
    put: Request
    pull: Request

    def __str__(self) -> str:
        return self.name


def dialect(name: str, path: str, query: str = "") -> Dialect:
    """One that puts by POST and pulls by GET at this path."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        return http(path.format(topic), *lines, body=body, method="POST")

    def pull(topic: str, *lines: str) -> bytes:
        return http(path.format(topic) + query, *lines)

    return Dialect(name, put, pull)


DIALECTS = (
    dialect("native", "/{}", "?cmd=consume"),
    dialect("toy", "/toy/{}"),
)
"""A row for each of FACES, and one that shows that a new one needs no more than its row there."""

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that a dialect has outside its folder."""
    monkeypatch.setitem(FACES, "toy", ToyFace)
