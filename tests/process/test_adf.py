"""Adf with a broker that is killed and started again, and with real time (rows 8, 12, 13 and 20 of
the list of dialogues)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

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
from tests.dialects.adf.speakers import FORMS, PING, PONG, Speaker, read_json
from tests.limits import checked
from tests.process.broker import BrokerProcess, eventually

__all__ = ["broker", "form", "queue", "speaker"]

REFUSED = "message was not pulled."


@pytest.mark.parametrize("form", [*FORMS[:2], *checked(FORMS[2:])])
def test_a_broker_that_is_killed(tmp_path: Path, form: str) -> None:
    """The list with its order and its ids is what it was; what was pulled is back at the left, in
    the order in which it stood, also with what was given back there."""
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, form)
        given = push(speaker, "/q", *(b"%d" % number for number in range(10)))
        given += push(speaker, "/q", b"left", action="lpush")
        pull(speaker, "/q", "a", "b", "c", "d", "e", "f")  # left 0 1 2 3 4
        assert speaker.ask("delete", "b", "/q").result == "ok"
        assert speaker.ask("rcancel", "c", "/q").result == "ok"
        assert speaker.ask("lcancel", "d", "/q").result == "ok"
        process.kill()
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, form)
        assert speaker.ask("delete", "e", "/q").result == REFUSED
        assert count_of(speaker, "/q") == 10
        told = [speaker.ask("pull", f"again-{number}", "/q") for number in range(10)]
        bodies = [b"left", *(b"%d" % number for number in range(2, 10)), b"1"]
        assert [one.body for one in told] == bodies
        first = [one.body for one in told if one.duplications == 0]
        assert first == [b"%d" % number for number in range(5, 10)], "all others may come again"
        by_body = dict(zip([b"%d" % n for n in range(10)] + [b"left"], given, strict=True))
        assert [one.messageid for one in told] == [by_body[body] for body in bodies]
        after = push(speaker, "/q", b"new")
        assert after[0] > max(given)
        assert speaker.ask("clear", "1", "/q").counted == 1
        process.kill()
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, form)
        assert speaker.ask("clear", "1", "/q").counted == 10
        assert push(speaker, "/q", b"newer")[0] > after[0]


@pytest.mark.parametrize("form", [FORMS[0], *checked(FORMS[1:])])
def test_duplications_after_a_crash(tmp_path: Path, form: str) -> None:
    """What may have been handed out says so."""
    for number in range(1, 4):
        with BrokerProcess(tmp_path / "data") as process:
            speaker = Speaker(process.port, form)
            if number == 1:
                push(speaker, "/q", b"x")
            told = speaker.ask("pull", "1", "/q")
            assert (told.body, told.duplications) == (b"x", number - 1)
            process.kill()


def test_a_queue_that_was_deleted_stays_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, "ws-bin")
        before = push(speaker, "/q", b"x")
        assert speaker.ask("deletequeue", "1", "/q").result == "ok"
        assert speaker.ask("createqueue", "1", "/made").result == "ok"
        process.kill()
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, "ws-json")
        assert speaker.ask("count", "1", "/q").result == "queue not exists."
        assert count_of(speaker, "/made") == 0
        assert push(speaker, "/q", b"y")[0] > before[0]


def test_a_connection_that_ends_and_then_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        speaker, stayer = Speaker(process.port, "ws-bin"), Speaker(process.port, "ws-bin")
        push(speaker, "/q", *(b"%d" % number for number in range(5)))
        pull(speaker, "/q", "a", "b", "c")
        speaker.close()
        eventually(lambda: count_of(stayer, "/q") == 5)
        push(stayer, "/q", b"5")  # what is acknowledged after it is not older
        process.kill()
    with BrokerProcess(tmp_path / "data") as process:
        speaker = Speaker(process.port, "ws-bin")
        told = [speaker.ask("pull", str(number), "/q") for number in range(6)]
        assert [one.body for one in told] == [b"%d" % number for number in range(6)]
        assert [one.duplications for one in told] == [1, 1, 1, 0, 0, 0]


def test_a_pull_waits_longer_than_a_second(
    broker: BrokerProcess, speaker: Speaker, queue: str
) -> None:
    waiting = speaker.tell("pull", new_id(), queue).seated()
    time.sleep(1.2)  # the broker looks after its connections once a second
    assert waiting.is_quiet()
    push(Speaker(broker.port, "ws-json"), queue, b"late")
    assert waiting.take().body == b"late"


def test_nothing_is_kept_of_leases(tmp_path: Path) -> None:
    """A broker on which leases never end by time takes them back when it is started again."""
    options = (*QUICK, "--set", "adf_http_lease_ms=0")
    with BrokerProcess(tmp_path / "data", *options) as process:
        speaker = Speaker(process.port, "http-json")
        push(speaker, "/q", b"1", b"2", b"3")
        pull(speaker, "/q", "a", "b")
        process.kill()
    with BrokerProcess(tmp_path / "data", *options) as process:
        speaker = Speaker(process.port, "http-json")
        assert speaker.ask("delete", "a", "/q").result == REFUSED
        assert count_of(speaker, "/q") == 3
        assert pull(speaker, "/q", "a", "b", "c") == [b"1", b"2", b"3"]


def test_a_client_that_never_answers_pings(broker: BrokerProcess, queue: str) -> None:
    """It lives as long as it says something."""
    with BrokerProcess(
        broker.data_dir.with_name("idle"), "--set", "idle_timeout_ms=3000"
    ) as process:
        speaker = Speaker(process.port, "ws-json")
        waiting = speaker.tell("pull", "1", queue)
        for http in ("http-json", "http-bin"):
            Speaker(process.port, http).tell("pull", http, queue).seated()
        late = [
            Speaker(process.port, form).tell("pull", form, queue).seated() for form in FORMS[2:]
        ]
        assert speaker.socket is not None
        for _ in range(12):
            time.sleep(0.3)
            speaker.socket.tell(PING, b"")
        speaker.stash.clear()
        other = Speaker(process.port, "ws-bin")
        push(other, queue, b"x", b"y", b"z")
        while (got := speaker.socket.read())[0] in (PING, PONG):
            pass
        assert read_json(got[1]).body == b"x"
        assert waiting.action == "pull"
        assert [one.take().body for one in late] == [b"y", b"z"], "silence ends no pull of HTTP"
        assert count_of(other, queue) == 0
