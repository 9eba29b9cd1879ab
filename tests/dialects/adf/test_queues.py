"""Making and deleting queues, and what happens to those that are not there (row 14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.dialogue import World, http
from tests.dialects.adf.broker import (
    QUICK,
    broker,
    count_of,
    form,
    new_id,
    pull,
    push,
    queue,
    speaker,
)
from tests.dialects.adf.speakers import FORMS, Http, Speaker, handshake
from tests.process.broker import BrokerProcess
from zbus.core.api import Topic, TopicOptions
from zbus.dialects.adf.queues import messageid, topic_name

__all__ = ["broker", "form", "queue", "speaker"]

UNKNOWN = "queue not exists."


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that makes no queues by itself."""
    options = (*QUICK, "--set", "adf_auto_create=false")
    with BrokerProcess(tmp_path_factory.mktemp("adf") / "data", *options) as process:
        yield process
        assert process.stop() == 0


def test_create_and_delete(speaker: Speaker, queue: str) -> None:
    assert speaker.ask("createqueue", "1", queue).result == "ok"
    assert speaker.ask("createqueue", "1", queue).result == "queue exists."
    assert count_of(speaker, queue) == 0
    assert speaker.ask("deletequeue", "1", queue).result == "ok"
    assert speaker.ask("deletequeue", "1", queue).result == UNKNOWN
    assert speaker.ask("createqueue", "1", "").result == "no set queue name."


def test_a_queue_that_is_made_again(speaker: Speaker, queue: str) -> None:
    id = new_id()
    before = push(speaker, queue, b"held", b"x", b"y")
    pull(speaker, queue, id)
    assert speaker.ask("deletequeue", "1", queue).result == "ok"
    for action in ("delete", "lcancel", "rcancel"):
        assert speaker.ask(action, id, queue).result == UNKNOWN
    assert speaker.ask("createqueue", "1", queue).result == "ok"
    assert count_of(speaker, queue) == 0
    assert speaker.ask("delete", id, queue).result == "message was not pulled."
    after = push(speaker, queue, b"z")
    assert after[0] > before[-1], "no messageid comes again"
    assert pull(speaker, queue, id) == [b"z"]


def test_whoever_held_of_a_deleted_queue_brings_nothing_back(
    broker: BrokerProcess, queue: str
) -> None:
    speaker, stayer = Speaker(broker.port, "ws-json"), Speaker(broker.port, "ws-bin")
    push(speaker, queue, b"x")
    pull(speaker, queue, "1")
    assert stayer.ask("deletequeue", "1", queue).result == "ok"
    assert stayer.ask("createqueue", "1", queue).result == "ok"
    speaker.close()
    assert count_of(stayer, queue) == 0


def test_an_unknown_queue_is_made_by_use(speaker: Speaker, queue: str) -> None:
    for action in ("count", "clear", "delete", "lcancel", "rcancel", "deletequeue"):
        assert speaker.ask(action, "1", queue).result == UNKNOWN
    push(speaker, queue + "/r", b"x")
    push(speaker, queue + "/l", b"x", action="lpush")
    waiting = speaker.tell("pull", new_id(), queue + "/p").seated()
    push(speaker, queue + "/p", b"x")
    assert waiting.take().body == b"x"


@pytest.mark.parametrize("form", FORMS)
def test_if_the_broker_makes_none(strict: BrokerProcess, form: str, queue: str) -> None:
    speaker = Speaker(strict.port, form)
    for action in ("count", "clear", "delete", "lcancel", "rcancel", "deletequeue", "pull"):
        assert speaker.ask(action, "1", queue).result == UNKNOWN
    for action in ("rpush", "lpush"):
        assert speaker.ask(action, "1", queue, b"x").result == UNKNOWN
    assert speaker.ask("createqueue", "1", queue).result == "ok"
    push(speaker, queue, b"x")
    assert speaker.ask("pull", new_id(), queue).body == b"x"
    assert speaker.ask("createqueue", "1", queue).result == "queue exists."


BAD_NAMES = ("", "x" * 201, "中" * 67, " space", "a\tb", ".", "..")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_queue_has(speaker: Speaker, name: str) -> None:
    text = "queue invalid." if name else "queue empty."
    for action in ("rpush", "pull", "count", "delete", "deletequeue"):
        body = b"x" if action == "rpush" else None
        told = speaker.ask(action, "1", name, body)
        assert (told.queue, told.result) == (name, text)


NAMES = (
    "/order/new",
    "/",
    "a/b/c",
    "plain",
    "back\\slash",
    "100%",
    "%2F",
    "%2f",
    "%5C",
    "%25",
    "%252F",
    "/%2F/",
    "a b",
    "中文/队列",
    "?&=#+",
    "😀",
    "_x",
    "queue",
    "json",
)


@pytest.mark.parametrize("name", NAMES)
def test_names(speaker: Speaker, name: str) -> None:
    """Each is another queue, and is told as it was given."""
    speaker.ask("deletequeue", "1", name)
    assert speaker.ask("createqueue", "1", name) == ("createqueue", "1", name, "ok", *(None,) * 4)
    push(speaker, name, name.encode())
    id = new_id()
    assert pull(speaker, name, id) == [name.encode()]
    assert speaker.ask("delete", id, name).result == "ok"


def test_names_are_those_of_topics() -> None:
    assert topic_name(b"/order/new") == "%2Forder%2Fnew"
    assert topic_name(b"a\\b") == "a%5Cb"
    assert topic_name(b"100%") == "100%"
    assert topic_name(b"%2F") == "%252F"
    assert topic_name(b"%252f") == "%25252f"
    assert topic_name(b"\xff") == ""
    assert len({topic_name(name.encode()).lower() for name in NAMES}) == len(NAMES) - 1


def test_a_name_without_regard_to_case(speaker: Speaker, queue: str) -> None:
    push(speaker, queue + "/Case", b"x")
    assert count_of(speaker, queue + "/cASE") == 1


# -- topics that others have declared ----------------------------------------------------------


def test_topics_of_others(broker: BrokerProcess, speaker: Speaker) -> None:
    """Those with the group of their name are queues, if that has acknowledgements."""
    http = Http(broker.port)

    def declare(topic: str, group: str, more: str = "") -> None:
        target = f"/{topic}?cmd=declare&consume_group={group}&{more}"
        assert http.ask("GET", target)[0] == 200

    base = f"Of-{new_id()}"
    declare(base + "a", base + "a", "group_mask=64")
    push(speaker, base + "a", b"x")
    assert pull(speaker, base + "a", new_id()) == [b"x"]

    declare(base + "b", base + "b")
    push(speaker, base + "b", b"x")
    told = speaker.ask("pull", new_id(), base + "b")
    assert told.result == "queue without transactions.", "messages would be gone when delivered"
    assert count_of(speaker, base + "b") == 1

    assert http.ask("GET", f"/{base}c?cmd=declare")[0] == 200
    push(speaker, base + "c", b"x")
    assert pull(speaker, base + "c", new_id()) == [b"x"], "nobody has claimed its group before"


def test_nobody_can_send_to_a_websocket_of_adf() -> None:
    """What is routed to it would be no answer to anything."""
    world = World()
    client = world.connect()
    client.send(handshake("/queue/json"))
    world.settle()
    client.received = b""
    reply = world.connect().request(http("/?cmd=route&recver=session-1", "id: 1", body=b"x"))
    assert (reply.status, client.received) == (404, b"")


def test_ids_stay_what_they_were_when_a_queue_gets_more_partitions() -> None:
    """And no message that comes then has one of them."""
    for count in (1, 3):
        before, after = (
            Topic(TopicOptions("q", partitions=count)),
            Topic(TopicOptions("q", partitions=8, grown=((0,) * count,))),
        )
        known = {
            (index, offset): messageid(before.partitions[index], offset)
            for index in range(count)
            for offset in range(100)
        }
        for (index, offset), id in known.items():
            assert messageid(after.partitions[index], offset) == id
        later = [messageid(one, at) for one in after.partitions[count:] for at in range(100)]
        assert len({*known.values(), *later}) == 800
        assert max(later) + 4_102_444_800_000 * 1_000 < 1 << 53, "JavaScript holds it until 2100"
