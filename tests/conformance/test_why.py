"""`why`: why a message is not with the consumers of a group; what a topic keeps for it."""

from typing import Any

import attrs
import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    Client,
    cmd,
    declared,
    document,
    drain,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)

SETTLED = "settled_ms=60000"


def why(client: Client, offset: int, path: str = "/T/g", query: str = "") -> Any:
    target = f"{path}?cmd=why&offset={offset}{query}"
    found = document(ok(client, http(target, "accept: application/json")))
    told = ok(client, http(target))
    assert told.headers["content-type"] == "text/plain"
    assert told.body.decode() == found["text"] + "\n"
    return found


def state(client: Client, offset: int, path: str = "/T/g") -> str:
    return str(why(client, offset, path)["state"])


def test_the_path_of_its_own() -> None:
    world, client = declared("T/g?group_mask=64")
    put(client, "T", b"0", query="delay=90061001&tag=a&key=k")
    target = "/_why?topic=T&group=g&offset=0"
    text = (
        b"The message at offset 0 of T, stored 2026-11-22 22:50:00.000 UTC, is delayed in g until"
    )
    reply = ok(client, http(target))
    assert reply.body.startswith(text[:38]), reply.body
    assert document(ok(client, http(target, "accept: application/json"))) == {
        "text": reply.body.decode().strip(),
        "state": "delayed",
        "topic": "T",
        "consume_group": "g",
        "partition": 0,
        "offset": 0,
        "id": document(ok(client, http("/T/g?cmd=peek&state=delayed")))[0]["id"],
        "tag": "a",
        "key": "k",
        "timestamp": EPOCH_MS,
        "until": EPOCH_MS + 90_061_001,
    }
    world.broker.check()


def test_each_state_of_a_life() -> None:
    world, client = declared(f"T/g?group_mask=64&group_ack_window=2&{SETTLED}")
    put(client, "T", b"0", query="delay=1000")
    put(client, "T", b"1", b"2", b"3")
    put(client, "T", b"4", query="ttl=500")
    assert state(client, 0) == "delayed"
    text = " is ready in g: 1 message before it, as far as that is known."
    assert why(client, 1)["text"].endswith(text)
    assert pull(client, "/T/g").body == b"1"
    found = why(client, 1)
    assert (found["state"], found["until"], found["attempts"]) == ("leased", EPOCH_MS + 10_000, 1)
    assert found["holder"] == "/" + client.peer.address
    assert why(client, 2)["text"].endswith(" is ready; no consumer of g is waiting.")
    assert pull(client, "/T/g").body == b"2"
    found = why(client, 3)
    assert found["state"] == "window full"
    assert "g has 2 unacknowledged messages and may have 2." in found["text"]
    ok(client, http("/T/g?cmd=ack&offset=1-2"))
    found = why(client, 2)
    assert (found["state"], found["ended"], found["attempts"]) == ("done", EPOCH_MS, 1)
    ok(client, http("/T/g?cmd=delete&offset=3"))
    assert state(client, 3) == "deleted"
    world.advance(500)
    found = why(client, 4)
    assert (found["state"], found["text"][-26:]) == ("expired", ", and g will pass over it.")
    drain(client, "/T/g")
    found = why(client, 4)
    assert (found["state"], found["ended"]) == ("expired", EPOCH_MS + 500)
    world.advance(500)
    assert state(client, 0) == "ready"


def test_a_filter() -> None:
    _, client = declared(f"T/g?group_filter=a.*&{SETTLED}")
    put(client, "T", b"0", query="tag=b")
    put(client, "T", b"1")
    found = why(client, 0)
    text = "will be passed over by g: its tag b does not match the filter a.*."
    assert (found["state"], found["text"][-len(text) :]) == ("filtered", text)
    assert "its lack of a tag does not match" in why(client, 1)["text"]
    assert drain(client, "/T/g") == []
    assert "was passed over by g at " in why(client, 0)["text"]


def test_a_paused_group() -> None:
    _, client = declared("T/g?group_mask=8")
    put(client, "T", b"0")
    assert state(client, 0) == "paused"


def test_a_group_that_acknowledges_on_delivery() -> None:
    _, client = declared(f"T/g?{SETTLED}")
    put(client, "T", b"0", b"1")
    assert drain(client, "/T/g") == [b"0", b"1"]
    found = why(client, 1)
    assert found["state"] == "done"
    assert " was handed out to g at " in found["text"]


def test_what_is_dead() -> None:
    world, client = declared(f"T/g?group_mask=64&{SETTLED}")
    put(client, "T", b"0")
    group = world.broker.topics["t"].groups["g"]
    assert pull(client, "/T/g").status == 200
    group.backlogs[0].give_up(0)
    found = why(client, 0)
    assert (found["state"], found["attempts"]) == ("dead", 1)
    assert " was given up by g at " in found["text"]
    assert found["text"].endswith(", after 1 attempt.")


def test_behind_another_of_its_key() -> None:
    world, client = declared(f"T/g?group_mask=64&{SETTLED}")
    group = world.broker.topics["t"].groups["g"]
    group.configure(attrs.evolve(group.options, order="key"))
    for key in ("a", "a", "b"):
        put(client, "T", key.encode(), query=f"key={key}")
    assert pull(client, "/T/g").body == b"a"
    for _ in range(2):  # before the group has come to it, and after
        found = why(client, 1)
        assert (found["state"], found["behind"]) == ("key busy", 0)
        assert found["text"].endswith(" is ready in g, behind offset 0, which has the key a, too.")
        drain(client, "/T/g")
    ok(client, http("/T/g?cmd=ack&offset=0"))
    assert state(client, 1) == "ready"
    world.broker.check()


def test_what_went_to_the_dead_letters() -> None:
    world, client = declared("D", f"T/g?group_mask=64&group_ack_timeout=10&{SETTLED}")
    group = world.broker.topics["t"].groups["g"]
    group.configure(attrs.evolve(group.options, attempts_max=1, dead_letter="D"))
    put(client, "T", b"0")
    assert pull(client, "/T/g").body == b"0"
    world.advance(1_000)
    found = why(client, 0)
    assert (found["state"], found["attempts"]) == ("dead", 1)
    assert " was given up by g and put into D at " in found["text"]


@pytest.mark.parametrize("after", ["", "D?cmd=declare", "D?cmd=declare&rpc=true"])
def test_a_dead_letter_topic_that_is_missing(after: str) -> None:
    """What is given up waits for it, and is leased to no consumer."""
    world, client = declared("D", "T/g?ack=true&group_max_attempts=1&group_dead_letter=D")
    put(client, "T", b"0", b"1")
    ok(client, http("/D?cmd=remove"))
    assert pull(client, "/T/g").body == b"0"
    world.advance(100_000)
    if "rpc" in after:
        ok(client, http("/" + after))
    found = why(client, 0)
    assert (found["state"], found["attempts"]) == ("dead", 1)
    assert "until" not in found
    assert found["text"].endswith(
        " was given up by g after 1 attempt, and waits for D, which is missing or takes no"
        " messages."
    )
    assert state(client, 1) == "ready"
    if after == "D?cmd=declare":
        ok(client, http("/" + after))
        world.advance(2_000)
        assert why(client, 0)["letterTopic"] == "D"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("again", [False, True])
def test_a_dead_letter_is_found_without_an_option(count: int, again: bool) -> None:
    """In the dead-letter topic, which knows of what each died."""
    world, client = declared(f"D?partitions={count}")
    dead = "group_max_attempts=2&group_dead_letter=D&group_backoff=1"
    ok(client, http(f"/T/g?cmd=declare&ack=true&group_ack_timeout=10&{dead}"))
    ok(client, http(f"/T/other?cmd=declare&ack=true&group_ack_timeout=10&{dead}"))
    put(client, "T", b"0", b"1", query="key=k" if count > 1 else "")
    put(client, "T", b"2", b"3")
    for group, offsets in (("g", [0, 1, 2]), ("other", [3])):
        for _ in range(2):
            for _ in range(4):
                pull(client, f"/T/{group}")
            keep = {0, 1, 2, 3} - set(offsets)
            ok(client, http(f"/T/{group}?cmd=ack&offset={','.join(map(str, sorted(keep)))}"))
            world.advance(1_000)
    if again:
        client = restart(world).connect()
    seen = set()
    for offset in (0, 1, 2):
        found = why(client, offset)
        assert (found["state"], found["attempts"], found["reason"]) == ("dead", 2, "expired")
        assert found["letterTopic"] == "D"
        place = (found["letterPartition"], found["letterOffset"])
        letter = ok(client, http(f"/D?cmd=consume&partition={place[0]}&offset={place[1]}"))
        assert letter.headers["dead_offset"] == str(offset)
        assert " was given up by g and put into D at " in found["text"]
        assert f"after 2 attempts (expired): there it is offset {place[1]}" in found["text"]
        seen.add(place)
    assert len(seen) == 3
    assert state(client, 3) == "finished", "it died in the other group"
    assert state(client, 3, "/T/other") == "dead"
    assert state(client, 0, "/T/other") == "finished"


def test_letters_of_a_topic_of_before_are_of_others() -> None:
    world, client = declared("D")
    for _ in range(2):
        dead = "group_max_attempts=1&group_dead_letter=D"
        ok(client, http(f"/T/g?cmd=declare&ack=true&group_ack_timeout=10&{dead}"))
        put(client, "T", b"0")
        assert pull(client, "/T/g").status == 200
        if world.broker.topics["d"].partitions[0].visible:
            break
        world.advance(1_000)
        assert state(client, 0) == "dead"
        ok(client, http("/T?cmd=remove"))
        world.advance(1_000)
    ok(client, http("/T/g?cmd=ack&offset=0"))
    assert state(client, 0) == "finished"


def test_a_long_dead_letter_topic_is_looked_through_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, client = declared("D")
    dead = "group_max_attempts=1&group_dead_letter=D"
    ok(client, http(f"/T/g?cmd=declare&ack=true&group_ack_timeout=10&{dead}"))
    for number in range(20):
        put(client, "T", b"%d" % number)
        assert pull(client, "/T/g").status == 200
        world.advance(1_000)
    assert state(client, 0) == "dead"
    monkeypatch.setattr("zbus.core.diagnosis.dead_letter_lookup.LETTERS_MAX", 5)
    states = [state(client, offset) for offset in (0, 14, 15, 19)]
    assert states == ["finished", "finished", "dead", "dead"]
    monkeypatch.setattr("zbus.core.diagnosis.dead_letter_lookup.PORTIONS_MAX", 0)
    assert state(client, 19) == "finished"


def test_what_is_not_kept() -> None:
    _, client = declared("T/g")
    put(client, "T", b"0")
    drain(client, "/T/g")
    found = why(client, 0)
    text = "is finished in g, and how is not known, since the topic has no settled_ms."
    assert (found["state"], found["text"][-len(text) :]) == ("finished", text)


def test_it_is_kept_for_so_long() -> None:
    world, client = declared("T/g?settled_ms=1000")
    put(client, "T", b"0")
    drain(client, "/T/g")
    world.advance(999)
    assert state(client, 0) == "done"
    world.advance(10)
    found = why(client, 0)
    assert found["state"] == "finished"
    assert "that was before the time for which the topic keeps how" in found["text"]


def test_it_is_kept_over_a_restart_and_a_checkpoint() -> None:
    world, client = declared(f"T/g?group_mask=64&partitions=2&{SETTLED}")
    for partition in (0, 1):
        put(client, "T", b"0", b"1", b"2", query=f"partition={partition}")
        for _ in range(3):
            pull(client, "/T/g")
        ok(client, http(f"/T/g?cmd=ack&offset=0&partition={partition}"))
        ok(client, http(f"/T/g?cmd=delete&offset=1&partition={partition}"))
    for _ in range(2):
        world = restart(world)
        client = world.connect()
        for partition in (0, 1):
            query = f"&partition={partition}"
            assert why(client, 0, query=query)["state"] == "done"
            assert why(client, 0, query=query)["ended"] == EPOCH_MS
            assert why(client, 1, query=query)["state"] == "deleted"
            assert why(client, 2, query=query)["state"] == "leased"


def test_the_option_may_come_and_go() -> None:
    world, client = declared("T/g?group_mask=64")
    assert "settledMs" not in document(ok(client, http("/T?cmd=query")))
    put(client, "T", b"0", b"1", b"2")

    def finish(offset: int) -> str:
        assert pull(client, "/T/g").status == 200
        ok(client, http(f"/T/g?cmd=ack&offset={offset}"))
        return state(client, offset)

    assert finish(0) == "finished"
    found = document(ok(client, http(f"/T?cmd=declare&{SETTLED}")))
    assert found["settledMs"] == 60_000
    assert finish(1) == "done"
    assert state(client, 0) == "finished"
    ok(client, http("/T?cmd=declare&settled_ms=0"))
    assert finish(2) == "finished"
    assert state(client, 1) == "finished"
    assert state(restart(world).connect(), 1) == "finished"


@pytest.mark.parametrize("again", [False, True])
def test_what_is_deleted_and_forgotten(again: bool) -> None:
    """Two that are acknowledged and two that are not; of each kind one is forgotten."""
    world, client = declared(f"T/g?dedupe_live=1&group_mask=64&{SETTLED}")
    for id in "abcd":
        ok(client, http(f"/T?id={id}", body=id.encode(), method="POST"))
        assert pull(client, "/T/g").body == id.encode()
    ok(client, cmd("ack", "topic: T", "group: g", "offset: 0-1"))
    if again:
        world = restart(world)
        client = world.connect()
    reply = ok(client, http("/T/g?cmd=delete&offset=1-2&forget=1"))
    assert reply.headers["count"] == "2"
    ok(client, http("/T/g?cmd=delete&msgid=d"))
    for _ in range(2):
        assert [state(client, n) for n in range(4)] == ["done", "finished", "finished", "deleted"]
        for id, status in zip("abcd", (200, 404, 404, 200), strict=True):
            assert client.exchange(http(f"/_why?topic=T&group=g&msgid={id}"))[0].status == status
        assert refused(client, http("/T/g?cmd=delete&offset=1-2&forget=1"))[0] == 404
        world = restart(world)
        client = world.connect()


def test_what_is_read_again_is_another_story() -> None:
    _, client = declared(f"T/g?{SETTLED}")
    put(client, "T", b"0")
    drain(client, "/T/g")
    ok(client, http("/T/g?cmd=seek&from=0"))
    assert state(client, 0) == "ready"
    drain(client, "/T/g")
    ok(client, http("/T/g?cmd=empty"))
    assert state(client, 0) == "finished"


def test_what_is_not_stored() -> None:
    _, client = declared("T/g")
    put(client, "T", b"0")
    assert why(client, 1)["text"] == "There is no message at offset 1 of T: the log ends at 1."
    assert state(client, 1 << 62) == "not stored"
    ok(client, http("/T?cmd=empty"))
    assert why(client, 0)["text"] == (
        "There is no message at offset 0 of T any more: the log begins at 1, since what was before"
        " was emptied, or not retained."
    )


def test_a_group_that_came_later() -> None:
    world, client = declared("T")
    put(client, "T", b"0")
    drain(client, "/T")
    world.advance(1)
    ok(client, http("/T/late?cmd=declare"))
    found = why(client, 0, "/T/late")
    assert found["state"] == "finished"
    assert found["text"].endswith("; it was stored before the group was declared.")


def test_by_id() -> None:
    _, client = declared("T/g?dedupe_ms=1000&partitions=2")
    ok(client, http("/T?id=a&partition=1", body=b"a", method="POST"))
    for query in ("id=a", "msgid=a"):
        reply = ok(client, http(f"/_why?topic=T&group=g&{query}"))
        assert b"at offset 0 of partition 1 of T, stored" in reply.body
    reply = ok(client, cmd("why", "topic: T", "consume_group: g", "msgid: a", "id: 7"))
    assert reply.headers["id"] == "7"


def test_from_storage() -> None:
    world, client = declared("T/g")
    put(client, "T", b"0", query="delay=1000")
    assert state(restart(world).connect(), 0) == "delayed"


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/_why", 400, "400: Bad Format, Missing topic"),
        ("/_why?topic=T", 400, "400: Bad Format, Missing offset"),
        ("/_why?topic=X&offset=0", 404, "404: Topic(X) Not Found"),
        ("/_why?topic=T&group=x&offset=0", 404, "404: ConsumeGroup(x) Not Found"),
        ("/_why?topic=T&group=g&offset=0&partition=1", 404, "404: Partition(1) Not Found"),
        ("/_why?topic=T&group=g&offset=-1", 400, None),
        ("/_why?topic=T&group=g&offset=1-2", 400, None),
        ("/_why?topic=T&group=g&id=a", 400, None),
        ("/_why?topic=T&group=g&offset=0&msgid=a", 400, None),
    ],
)
def test_no_answer(target: str, status: int, text: str | None) -> None:
    _, client = declared("T/g")
    put(client, "T", b"0")
    found = refused(client, http(target))
    assert found[0] == status
    assert text is None or found[1] == text
