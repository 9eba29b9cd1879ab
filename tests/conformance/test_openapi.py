"""The description at `/_openapi.json` against the code: nothing is missing, no limit is another.

Whether the broker behaves as it says is for `tests/process/test_openapi.py`.
"""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.conformance.dialogue import EPOCH_MS, World, declared, document, http, ok, pull, put
from tests.docs.pages import ROOT
from tests.docs.test_pages import PARAMETERS
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import DEFAULT_LIMITS, DELAY_MS_MAX, Limits
from zbus.dialects.zbus import dialect as dialect
from zbus.dialects.zbus.request.params import LOOKING
from zbus.dialects.zbus.schema.commands import COMMANDS, MOUNTED
from zbus.dialects.zbus.schema.kinds import KINDS, Number
from zbus.dialects.zbus.server.openapi import ANYWHERE, DAY_MS, describe
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.status import STATUS
from zbus.protocol.parameters import REQUIRED, Parameter

SETTINGS = ZbusSettings()
WHOLE = describe(SETTINGS, DEFAULT_LIMITS, EPOCH_MS)

NO_PARAMETERS = {
    "accept",
    "content-type",  # media types of bodies and replies
    "cookie",  # a security scheme
    "sec-fetch-mode",
    "user-agent",  # a program's own
}


def operations(description: Any) -> dict[tuple[str, str], Any]:
    return {
        (path, method): operation
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }


def parameters(description: Any) -> dict[str, Any]:
    return {
        parameter["name"]: parameter
        for operation in operations(description).values()
        for parameter in operation["parameters"]
    }


def test_it_is_served() -> None:
    world = World(settings=ZbusSettings(version="7.8.9"), limits=Limits(partitions_max=5))
    served = document(world.connect().request(http("/_openapi.json")))
    assert served["openapi"].startswith("3.1.")
    assert served["info"]["version"] == "7.8.9"
    assert parameters(served)["partitions"]["schema"]["maximum"] == 5
    day_ms = EPOCH_MS // DAY_MS * DAY_MS
    assert served == describe(world.dialect.settings, world.broker.limits, day_ms)
    assert parameters(served)["deliver-at"]["schema"]["maximum"] == day_ms + DELAY_MS_MAX


def test_one_command_is_served() -> None:
    client = World().connect()
    served = document(client.request(http("/_openapi.json?command=consume")))
    found = {key: operation["operationId"] for key, operation in operations(served).items()}
    assert found == {
        ("/{topic}", "get"): "consumeTopic",
        ("/{topic}/{group}", "get"): "consumeGroup",
    }
    assert parameters(served)["cmd"]["schema"]["enum"] == ["consume"]
    refused = client.request(http("/_openapi.json?command=nonsense"))
    assert refused.status == 400
    assert refused.body.startswith(b"400: Bad Format, command is one of produce, consume")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_described(command: str) -> None:
    assert operations(describe(SETTINGS, DEFAULT_LIMITS, EPOCH_MS, command))


def test_every_row_is_a_command() -> None:
    assert {name.encode() for name in COMMANDS} == set(dialect.COMMANDS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_of_the_code_is_described(name: str) -> None:
    assert name.replace("_", "-") in parameters(WHOLE) or name in NO_PARAMETERS


@pytest.mark.parametrize("segment", sorted(MOUNTED))
def test_every_path_is_described(segment: bytes) -> None:
    assert any(path.split("/")[1] == segment.decode() for path in WHOLE["paths"])


@pytest.mark.parametrize("refusal", Refusal, ids=lambda refusal: refusal.name)
def test_every_refusal_is_somebodys(refusal: Refusal) -> None:
    whose = [name for name, entry in COMMANDS.items() if refusal in entry.reasons]
    # A name or value that is illegal is a 400, and those can come from everywhere.
    assert whose or refusal is Refusal.ILLEGAL
    for name in whose:
        described = operations(describe(SETTINGS, DEFAULT_LIMITS, EPOCH_MS, name))
        assert all(str(STATUS[refusal]) in each["responses"] for each in described.values())


def test_what_any_request_can_get_is_described() -> None:
    """The statuses of the wire, of its connections and of the guard, as they stand in the code."""
    sources = [*(ROOT / "zbus/wire").rglob("*.py"), *(ROOT / "zbus/server").rglob("*.py")]
    said: set[str] = set()
    for path in (*sources, ROOT / "zbus/edge/guard.py"):
        source = path.read_text(encoding="utf-8")
        said |= set(re.findall(r"(?:WireError|Answer)\(\s*([45]\d\d)", source))
    said.add(LOOKING[:3])  # of two methods
    assert said == {str(status) for status in ANYWHERE}


def bounds(kind: Number) -> tuple[int, int]:
    maximum = kind.maximum
    return kind.minimum, maximum if type(maximum) is int else getattr(SETTINGS, str(maximum))


NUMBERS = [
    (command, parameter.name, limit, step)
    for command, entry in COMMANDS.items()
    for parameter in entry.parameters
    if isinstance(kind := KINDS[parameter.kind], Number)
    and parameter.name not in ("deliver_at", "partitions")  # judged by the time, and by the core
    for limit, step in zip(bounds(kind), (-1, 1), strict=True)
]


def required(parameter: Parameter) -> bool:
    return parameter.default.startswith(REQUIRED) and parameter.name != "topic"


@pytest.mark.parametrize(("command", "name", "limit", "step"), NUMBERS)
def test_numbers_are_refused_outside_their_limits(
    command: str, name: str, limit: int, step: int
) -> None:
    """What the schema lets through is at least a number to the broker; one further is none."""
    world, _ = declared("T")
    others = [each for each in COMMANDS[command].parameters if each.name != name]
    needed = "".join(f"&{each.name}=0" for each in others if required(each))

    def text_for(number: int) -> str:
        # A consume that waits is not answered; this one has gone wrong or found nothing at once.
        wait = "" if name == "timeout" else "&timeout=0"
        replies = world.connect().exchange(http(f"/T?cmd={command}&{name}={number}{needed}{wait}"))
        return replies[0].body.decode("latin-1") if replies else ""

    assert "is a number from" not in text_for(limit)
    request_clock = text_for(limit + step)
    assert "is a number from" in request_clock or "is at least" in request_clock


@pytest.mark.parametrize("partitions", [1, DEFAULT_LIMITS.partitions_max])
def test_partitions(partitions: int) -> None:
    described = parameters(describe(SETTINGS, DEFAULT_LIMITS, EPOCH_MS, "declare"))
    schema = described["partitions"]["schema"]
    assert partitions in (schema["minimum"], schema["maximum"])
    declared(f"T?partitions={partitions}")


def conforms(name: str, value: Any) -> None:
    """It is as the schema says, and every key is described."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": WHOLE["components"]}
    jsonschema_rs.Draft202012Validator(schema).validate(value)
    assert set(value) <= set(WHOLE["components"]["schemas"][name]["properties"])


def test_documents_are_as_described() -> None:
    _, client = declared(
        "Plain",
        "T?partitions=2&dedupe_ms=1000&retention_ms=60000&retention_bytes=100000"
        "&retention_count=10&retention_done=1&group_mask=64&group_filter=a.*",
    )
    put(client, "T", b"text", query="tag=a.b&key=k&partition=0")
    put(client, "T", b"\xff\xfe", query="tag=a.b&partition=0")
    pull(client)
    conforms("GroupInfo", document(ok(client, http("/T/T?cmd=query"))))
    conforms("TopicInfo", document(ok(client, http("/T?cmd=query"))))
    conforms("TopicInfo", document(ok(client, http("/Plain?cmd=query"))))
    conforms("ServerInfo", document(ok(client, http("/?cmd=server"))))
    conforms("TrackerInfo", document(ok(client, http("/?cmd=tracker"))))
    for reply in (
        client.request(http("/_log/T?count=10")),
        client.request(http("/T?cmd=consume&batch=10&timeout=0")),
    ):
        messages = msgspec.json.decode(reply.body)
        assert messages
        for message in messages:
            conforms("Message", message)


def test_operations_have_ids_of_their_own() -> None:
    for command in ("", *COMMANDS):
        found = operations(describe(SETTINGS, DEFAULT_LIMITS, EPOCH_MS, command))
        ids = [operation["operationId"] for operation in found.values()]
        assert len(ids) == len(set(ids))
