"""Messages that ended are shown for a while, and then nothing of them is kept."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World
from tests.dialects.camellia.words import WorldTalk
from zbus.dialects.camellia.settings import CamelliaSettings


def ended(talk: WorldTalk, id: str) -> None:
    talk.send(msg="x" * 20_000, msgId=id)
    [pulled] = talk.pull()
    talk.ack(pulled)


@pytest.mark.parametrize("restarts", [False, True])
def test_shown_for_five_minutes(restarts: bool) -> None:
    """With its body, also if a lot was sent and consumed since."""
    talk = WorldTalk(World(segment_bytes_max=100_000))
    for number in range(20):
        ended(talk, str(number))
    if restarts:
        talk.restart()
    talk.world.advance(299_999)
    for number in range(20):
        found = talk.get({"topic": "T", "msgId": str(number)})
        assert (found["status"], len(found["msg"])) == (4, 20_000)
    talk.world.advance(1)
    assert talk.get({"topic": "T", "msgId": "3"}) is None
    talk.world.advance(10_000)
    topic = talk.world.broker.topics["t"]
    assert topic.partitions[0].first > 10, "nor does it take room on the disk"


def test_for_as_long_as_it_is_set() -> None:
    talk = WorldTalk(World(dialects={"camellia": CamelliaSettings(camellia_ended_ms=1_000)}))
    ended(talk, "one")
    talk.world.advance(999)
    assert talk.status({"topic": "T", "msgId": "one"}) == 4
    talk.world.advance(1)
    assert talk.status({"topic": "T", "msgId": "one"}) is None


def test_not_at_all() -> None:
    talk = WorldTalk(World(dialects={"camellia": CamelliaSettings(camellia_ended_ms=0)}))
    ended(talk, "one")
    assert talk.status({"topic": "T", "msgId": "one"}) is None
    again = talk.send(msgId="one")
    assert talk.status(again) == 2
