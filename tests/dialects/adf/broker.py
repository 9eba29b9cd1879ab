"""A real broker for the dialogues of Adf, one for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.dialects.adf.speakers import FORMS, Speaker
from tests.process.broker import BrokerProcess

QUICK = ("--set", "durability=os")
"""The disk is not what is shown here."""

_NUMBERS = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("adf") / "data", *QUICK) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log()


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def speaker(broker: BrokerProcess, form: str) -> Iterator[Speaker]:
    """A client of each form in turn."""
    speaker = Speaker(broker.port, form)
    yield speaker
    speaker.close()


@pytest.fixture
def queue() -> str:
    """A name that no other test has."""
    return f"/test/text/{next(_NUMBERS)}"


_IDS = count()


def new_id() -> str:
    """A requestid that no other pull has."""
    return f"id-{next(_IDS)}"


def push(speaker: Speaker, queue: str, *bodies: bytes, action: str = "rpush") -> list[int]:
    """Push these; their messageids."""
    ids = []
    for body in bodies:
        told = speaker.ask(action, new_id(), queue, body)
        assert (told.result, told.queue) == ("ok", queue)
        assert told.messageid is not None
        ids.append(told.messageid)
    return ids


def pull(speaker: Speaker, queue: str, *ids: str) -> list[bytes]:
    """Pull once for each id; the bodies."""
    bodies = []
    for id in ids:
        told = speaker.ask("pull", id, queue)
        assert (told.result, told.id) == ("ok", id)
        assert told.body is not None
        bodies.append(told.body)
    return bodies


def count_of(speaker: Speaker, queue: str) -> int:
    told = speaker.ask("count", new_id(), queue)
    assert told.counted is not None, told
    return told.counted


def ids(count: int) -> list[str]:
    return [new_id() for _ in range(count)]
