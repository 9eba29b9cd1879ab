"""Every dialect over the real loop, with bytes in pieces and a disk that loses its power."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.dialects.dialects import DialectCase, every_dialect, with_toy
from tests.limits import checked
from zbus.testing.simulation import Reply, Scene, request

__all__ = ["with_toy"]

pytestmark = pytest.mark.usefixtures("with_toy")


@every_dialect
@pytest.mark.parametrize("seed", [*range(3), *checked(range(3, 8))])
def test_what_was_answered_is_there_after_power_cuts(dialect: DialectCase, seed: int) -> None:
    scene = Scene(seed)
    assert scene.request(request("declare", "T")).status == 200
    waiting = [b"%d" % number for number in range(60)]
    told: list[bytes] = []

    def writer() -> Generator[bytes, Reply, None]:
        while waiting:
            body = waiting[0]
            reply = yield dialect.put("T", body)
            if reply.status == 200 and waiting[:1] == [body]:
                told.append(waiting.pop(0))

    scene.start(writer)
    for _ in range(5):
        scene.run(40)
        scene.power_cut()
    scene.run(10_000)
    assert not waiting
    assert told == read_all(scene, dialect)


def read_all(scene: Scene, dialect: DialectCase) -> list[bytes]:
    """All bodies in the log, each once: what was put and not answered is put again."""
    found: dict[bytes, None] = {}
    while len(found) < 60:
        reply = dialect.read(scene.request(dialect.pull("T")))
        assert reply.status == 200, reply
        found.update(dict.fromkeys(dialect.bodies(reply)))
    return list(found)
