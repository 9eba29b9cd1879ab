"""Schemas of topics: what clients are told of them, and of messages that do not fit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    document,
    http,
    ok,
    pull,
    refused,
    restart,
)
from tests.conformance.test_access import ADMIN, entry, world_with
from tests.conformance.test_dead_letters import die, scene

ORDER = {
    "type": "object",
    "required": ["item", "price"],
    "properties": {"item": {"type": "string"}, "price": {"type": "number"}},
}
GOOD, BAD = b'{"item":"chair","price":20}', b'{"item":"chair","price":"20"}'
WHY = '422: the body does not fit the schema of the topic: /price: "20" is not of type "number"'
DATA = Path(__file__).parent.parent / "data"


def declare(schema: Any, topic: str = "T", query: str = "") -> bytes:
    body = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return http(f"/{topic}?cmd=declare&schema=body&{query}", body=body, method="POST")


def produce(body: bytes, topic: str = "T", query: str = "", *lines: str) -> bytes:
    return http(f"/{topic}?{query}", *lines, body=body, method="POST")


def with_schema(schema: Any = ORDER, topic: str = "T") -> tuple[World, Client]:
    world = World()
    client = world.connect()
    ok(client, declare(schema, topic))
    return world, client


def depth(world: World, topic: str = "T") -> int:
    found = world.broker.topic(topic)
    assert found is not None
    return found.depth()


def versions(client: Client) -> tuple[int | None, str | None]:
    info = document(ok(client, http("/T?cmd=query")))
    return info.get("schemaVersion"), info.get("schemaCompatibility")


# -- declaring ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        declare(ORDER),
        declare(json.dumps(ORDER, indent=4).encode()),
        http(f"/T?cmd=declare&schema={quote(json.dumps(ORDER))}"),
        http("/T?cmd=declare", f"schema: {json.dumps(ORDER)}"),
        cmd("declare", "topic: T", "schema: body", body=json.dumps(ORDER).encode()),
        http(
            "/T?cmd=declare&schema=body",
            "content-encoding: gzip",
            body=gzip.compress(json.dumps(ORDER).encode()),
            method="POST",
        ),
    ],
)
def test_how_it_is_declared(request_: bytes) -> None:
    world, client = declared()
    ok(client, request_)
    assert versions(client) == (1, "backward")
    assert refused(client, produce(BAD)) == (422, WHY)
    ok(client, produce(GOOD))
    shown = ok(client, http("/T?cmd=schema"))
    assert shown.headers["content-type"] == "application/schema+json"
    assert shown.body == json.dumps(ORDER, separators=(",", ":")).encode()
    assert depth(world) == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "schema: it is no JSON"),
        (b"{", "schema: it is no JSON"),
        (b'"text"', "schema: #: a schema is an object"),
        (b'{"type":"text"}', "schema: /type: "),
        (b'{"$ref":"http://example.com/a"}', "schema: /$ref: it stays within the schema"),
        (b'{"pattern":"(?=a)"}', "look-around"),
        (b'{"description":"' + b"x" * 70_000 + b'"}', "schema: it has at most 65536 bytes"),
        (b"[" * 30_000, "schema: it is no JSON"),
        (b"\xff", "schema: it is no JSON"),
        (b'{"enum":[' + b"1," * 5_000 + b"1]}", "it has a weight of"),
    ],
)
def test_a_schema_that_is_none_changes_nothing(body: bytes, text: str) -> None:
    world, client = declared()
    status, told = refused(client, declare(body))
    assert (status, told[:17]) == (400, "400: Bad Format, ")
    assert text in told
    assert world.broker.topic("T") is None


def test_versions() -> None:
    world, client = with_schema()
    wider = {**ORDER, "properties": {**ORDER["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    ok(client, declare(ORDER))
    assert versions(client) == (1, "backward"), "it is declared at each start of a program"
    ok(client, declare(wider))
    assert versions(client) == (2, "backward")
    narrow = {**ORDER, "required": ["item", "price", "note"]}
    status, text = refused(client, declare(narrow))
    assert status == 409
    assert text == (
        "409: schema: version 3 is not backward compatible with the one before:"
        " /note: it is required now, and was not"
    )
    assert versions(client) == (2, "backward")
    assert refused(client, produce(b'{"item":"c","price":1,"note":2}'))[0] == 422
    ok(client, declare(narrow, query="schema_compatibility=none"))
    assert versions(client) == (3, "none")
    for number, schema in enumerate((ORDER, wider, narrow), 1):
        shown = ok(client, http(f"/T?cmd=schema&version={number}"))
        assert json.loads(shown.body) == schema
        assert shown.headers["schema_version"] == f"{number}"
    there = "404: Topic(T) has no version 4 of its schema: there are 1 to 3"
    assert refused(client, http("/T?cmd=schema&version=4")) == (404, there)
    assert refused(client, http("/T?cmd=schema&version=0"))[0] == 404
    assert versions(restart(world).connect()) == (3, "none")


def test_a_topic_without_one() -> None:
    _, client = declared("T")
    assert versions(client) == (None, None)
    assert refused(client, http("/T?cmd=schema")) == (404, "404: Topic(T) has no schema")
    assert refused(client, http("/U?cmd=schema")) == (404, "404: Topic(U) Not Found")
    text = "400: Bad Format, schema_compatibility is for topics with a schema"
    assert refused(client, http("/T?cmd=declare&schema_compatibility=full")) == (400, text)
    assert refused(client, http("/T?cmd=declare&schema_compatibility=sideways"))[0] == 400
    ok(client, http("/T?cmd=declare&schema="))
    ok(client, http("/T?cmd=declare&schema=none"))
    assert versions(client) == (None, None)


def test_it_is_taken_back() -> None:
    _, client = with_schema()
    ok(client, http("/T?cmd=declare&retention_count=9"))
    assert versions(client) == (1, "backward"), "what is not said stays"
    ok(client, http("/T?cmd=declare&schema_compatibility=full"))
    assert versions(client) == (1, "full")
    ok(client, http("/T?cmd=declare&schema=none"))
    ok(client, produce(BAD))
    assert versions(client) == (None, None)


def test_what_is_there_already_is_not_checked() -> None:
    world, client = declared("T")
    ok(client, produce(BAD))
    ok(client, declare(ORDER))
    assert pull(client).body == BAD
    after = restart(world).connect()
    assert refused(after, produce(BAD)) == (422, WHY)


def test_a_token_sees_the_schemas_of_its_topics() -> None:
    world, admin = world_with(entry("t", "query", {"Orders": []}))
    client = world.connect()
    for topic in ("Orders", "Secret"):
        ok(admin, http(f"/{topic}?cmd=declare&schema=true", ADMIN))
    ok(client, http("/Orders?cmd=schema", "token: t"))
    assert client.request(http("/Secret?cmd=schema", "token: t")).status == 404
    found = document(ok(client, http("/_asyncapi.json", "token: t")))
    assert list(found["channels"]) == ["Orders"]
    assert client.request(http("/_asyncapi.json")).status == 403


# -- what is put -------------------------------------------------------------------------------

ONE_A_LINE = "content-type: application/x-ndjson"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "id=7",
        "tag=a&key=k",
        "delay=1000",
        "ttl=60000",
        "idempotent=true&id=8",
        "front=true",
        "expected_offset=0",
        "partition=0",
        "cron=0+9+*+*+*",
        "cmd=txn_stage&txn=app",
    ],
)
def test_every_form_of_a_put_is_checked(query: str) -> None:
    world, client = with_schema()
    assert refused(client, produce(BAD, query=query)) == (422, WHY)
    assert depth(world) == 0
    ok(client, produce(GOOD, query=query))
    assert refused(client, produce(BAD, query=query.replace("=0", "=1")))[0] in (404, 422)


def test_puts_of_one_turn_are_checked_one_by_one() -> None:
    world, client = with_schema()
    found = client.exchange(b"".join(map(produce, (GOOD, BAD, GOOD, GOOD, BAD, b"", GOOD))))
    assert [reply.status for reply in found] == [200, 422, 200, 200, 422, 422, 200]
    assert depth(world) == 4


def test_a_schema_that_comes_between_puts_of_one_turn() -> None:
    world, client = declared("T")
    found = client.exchange(b"".join((produce(BAD), produce(BAD), declare(ORDER), produce(BAD))))
    assert [reply.status for reply in found] == [200, 200, 200, 422]
    assert depth(world) == 2


def test_a_batch_is_refused_as_a_whole() -> None:
    world, client = with_schema()
    status, text = refused(client, produce(GOOD + b"\n" + BAD, "T", "", ONE_A_LINE))
    assert (status, text) == (422, WHY.replace("the body", "message 1: the body"))
    assert depth(world) == 0
    ok(client, produce(GOOD + b"\n" + GOOD, "T", "", ONE_A_LINE))
    assert depth(world) == 2


def test_a_put_that_is_sent_again_is_known_whatever_the_schema_is_by_now() -> None:
    world, client = declared("T")
    ok(client, produce(BAD, query="idempotency-key=k"))
    ok(client, declare(ORDER))
    again = ok(client, produce(BAD, query="idempotency-key=k"))
    assert again.headers["duplicate"] == "1"
    assert depth(world) == 1


def test_an_ack_that_comes_with_a_put_that_does_not_fit() -> None:
    _, client = with_schema()
    ok(client, http("/In/g?cmd=declare&ack=true"))
    ok(client, produce(b"x", "In"))
    offset = pull(client, "/In/g").headers["offset"]
    query = f"ack_topic=In&ack_group=g&ack_offset={offset}"
    assert refused(client, produce(BAD, query=query)) == (422, WHY)
    ok(client, produce(GOOD, query=query))


def test_a_call_is_checked_and_its_answer_is_not() -> None:
    world = World()
    client = world.connect()
    ok(client, declare({"type": "object", "required": ["n"]}, query="rpc=true"))
    assert refused(client, produce(b"{}"))[0] == 422
    assert world.broker.memory_use().calls == 0, "nothing waits for an answer"


def test_a_schedule_whose_occurrences_do_not_fit_any_more_still_occurs() -> None:
    world, client = declared("T")
    ok(client, produce(BAD, query="cron=*+*+*+*+*"))
    ok(client, declare(ORDER))
    world.advance(120_000)
    assert depth(world) >= 1


def test_what_was_staged_before_there_was_a_schema_is_committed() -> None:
    world, client = declared("T")
    offset = ok(client, produce(BAD, query="cmd=txn_stage&txn=app")).headers["offset"]
    ok(client, declare(ORDER))
    ok(client, http(f"/?cmd=txn_commit&txn=app&batch=1&topic=T&offset={offset}"))
    assert depth(world) == 1


def test_what_the_broker_copies_is_never_lost() -> None:
    """A dead letter comes into a topic whose schema it does not fit, and back again."""
    world, client = scene()
    ok(client, produce(b"poison", "In"))
    ok(client, declare(ORDER, "Dead"))
    ok(client, declare(ORDER, "In"))
    die(world, client)
    assert depth(world, "Dead") == 1
    moved = ok(client, http("/Dead/ops?cmd=redrive"))
    assert moved.headers["count"] == "1"
    assert pull(client, "/In/g").body == b"poison"


def test_several_partitions_and_a_restart() -> None:
    world = World()
    client = world.connect()
    ok(client, declare(ORDER, query="partitions=3&durability=os"))
    for number in range(6):
        assert refused(client, produce(BAD, query=f"key={number}")) == (422, WHY)
        ok(client, produce(GOOD, query=f"key={number}"))
    after = restart(world).connect()
    assert refused(after, produce(BAD)) == (422, WHY)


# -- AsyncAPI ----------------------------------------------------------------------------------


def judge() -> Callable[[Any], None]:
    """The JSON Schema of AsyncAPI 3.0.0, as its authors publish it (Apache License 2.0)."""
    text = gzip.decompress((DATA / "asyncapi-3.0.0.json.gz").read_bytes())
    return jsonschema_rs.Draft7Validator(json.loads(text)).validate


def test_asyncapi_is_asyncapi() -> None:
    own = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", **own}
    schemas = {"T": ORDER, "Ä b": own, "a~b": own, "seven": draft_7, "all": True, "none": False}
    client = World().connect()
    for topic, schema in schemas.items():
        ok(client, declare(schema, quote(topic)))
    ok(client, http("/plain?cmd=declare"))
    ok(client, http("/service?cmd=declare&rpc=true"))
    ok(client, produce(GOOD, "T", "cron=0+9+*+*+*"))
    found = document(ok(client, http("/_asyncapi.json")))
    validate = judge()
    validate(found)
    assert set(found["channels"]) == {*schemas, "plain"}
    assert "payload" not in found["channels"]["plain"]["messages"]["message"]
    for operation in found["operations"].values():
        assert lookup(found, operation["channel"]["$ref"])["address"]
    for topic in ("Ä b", "a~b", "seven"):
        payload = found["channels"][topic]["messages"]["message"]["payload"]
        assert lookup(found, payload["schema"]["$ref"]) == {"type": "integer"}
    with pytest.raises(ValueError, match="operations"):
        validate({**found, "operations": {"x": {"channel": {"$ref": "#/channels/T"}}}})
    with pytest.raises(ValueError, match=r"7"):
        validate({**found, "channels": {"T": 7}})


def lookup(document: Any, ref: str) -> Any:
    """As the reference has it: a pointer in the fragment of a URI."""
    return jsonschema_rs.Registry([("urn:x", document)]).resolver("urn:x").lookup(ref).contents
