"""The broker does what `/_openapi.json` says, as schemathesis sees it.

Each command is attacked by the description of it alone, which is exact. Then all at once by the
whole, whose operations stand for several commands: what one of them refuses another may accept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis.config import SchemathesisConfig

from tests.limits import TEST_S, WAIT_S, checked
from tests.process.broker import BrokerProcess
from tests.process.openapi_hooks import hasten
from zbus.core.model.names import name_problem
from zbus.dialects.zbus.dialect import COMMANDS

EXAMPLES = [3, *checked([16])]

OF_COMMANDS = r"^/\{topic\}"
"""Paths of the commands that have been attacked one by one, and four fifths of all cases."""

DONE = ["2xx", 302, 404, 409, 429, 507]  # what a well-formed request may get
CONTRADICTIONS = {
    "declare": [400],  # of parameters that are fine each by itself, or with what is there already
    "produce": [400, 422],  # `idempotent` wants an id, too
    "txn_stage": [400, 422],
    "ack": [400],  # of ranges that run backwards
    "nack": [400],
    "extend": [400],
    "delete": [400],  # the same, and both offset and id
    "cancel": [400],
    "fire": [400],
    "reschedule": [400],
    "peek": [400],  # `after` has a form
    "why": [400],
    "track_pub": [400],  # a document that lacks what only part of it must have
}
REFUSED = [302, 400, 404, 409, 413, 414, 429, 431]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("openapi") / "data", "--durability", "os") as broker:
        yield broker
        assert broker.stop() == 0


def load(broker: BrokerProcess, command: str) -> Any:
    document = msgspec.json.decode(broker.get(f"/_openapi.json?command={command}").body)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("default", None)  # of a service, and there is none here
    accepted = DONE + CONTRADICTIONS.get(command, [])
    checks = {
        "positive_data_acceptance": {"expected-statuses": accepted},
        "negative_data_rejection": {"expected-statuses": REFUSED},
    }
    # Lengths are of bytes, and schemas count characters: of ASCII that is the same.
    config = SchemathesisConfig.from_dict({"checks": checks, "generation": {"codec": "ascii"}})
    return schemathesis.openapi.from_dict(document, config=config)


def said_last(url: str) -> dict[str, str]:
    """What the broker reads in the query of a request as it was sent: the last of each name."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def mend(case: Any, command: str) -> None:
    """Without `cmd` it is another command, and any line is a message."""
    messages = command in ("produce", "txn_stage")
    assume(not (messages and isinstance(case.body, list | dict | float | int | None)))
    named = case.query.get("cmd")
    named = named[-1] if isinstance(named, list) else named
    assume(named == command or str(named).lower().encode() not in COMMANDS)  # another one is right
    if case.operation.query.get("cmd") is not None:
        case.query.setdefault("cmd", command)
    if case.operation.query.get("timeout") is not None:
        hasten(case)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("command", sorted(name.decode() for name in COMMANDS))
def test_a_command(
    broker: BrokerProcess, command: str, mode: schemathesis.GenerationMode, examples: int
) -> None:
    for found in load(broker, command).get_all_operations():

        @given(case=found.ok().as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def attack(case: Any) -> None:
            topic = unquote(str(case.path_parameters.get("topic", "/")))
            # A slash sent as it is makes two segments; space around a name is no part of it.
            assume("/" not in topic[1:] and topic.strip())
            if topic < "m" and name_problem(topic) is None:
                broker.get("/T?cmd=remove")
                broker.get("/T?cmd=declare")
                broker.get("/T?body=hello", "content-type: text/plain")
                case.path_parameters["topic"] = "T"
            mend(case, command)
            response = case.call(base_url=f"http://127.0.0.1:{broker.port}", timeout=WAIT_S)
            said = said_last(response.request.url)
            # What is empty counts as absent, and who logs in with nothing asks for the form.
            assume(all(said.get(str(name)) for name in case.query))
            assume(command != "login" or case.method == "GET" or response.request.body)
            # Ten years ahead is said of the day's beginning, and counts from now.
            assume(mode.is_positive or len(said.get("deliver_at", "")) != 13)
            case.validate_response(response)

        attack()


@pytest.mark.parametrize(
    ("phases", "left_out"),
    [
        ("examples", ""),
        ("coverage", OF_COMMANDS),
        pytest.param("examples,coverage,fuzzing", "", marks=pytest.mark.check),
    ],
)
def test_the_whole(broker: BrokerProcess, phases: str, left_out: str) -> None:
    broker.get("/MyTopic?cmd=declare")
    # Other commands of the same path know other parameters, and some replies have no content type
    # while others have. The method has no meaning.
    inexact = (
        "negative_data_rejection",
        "positive_data_acceptance",
        "unsupported_method",
        "content_type_conformance",
        "response_schema_conformance",
    )
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        f"http://127.0.0.1:{broker.port}/_openapi.json",
        "--phases",
        phases,
        "--max-examples",
        "10",
        "--seed",
        "1",
        "--checks",
        "all",
        "--request-timeout",
        str(WAIT_S),
        "--no-color",
        "--exclude-checks",
        ",".join(inexact),
        *(("--exclude-path-regex", left_out) if left_out else ()),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.process.openapi_hooks"}
    run = subprocess.run(
        command, cwd=Path.cwd(), env=environment, capture_output=True, text=True, timeout=TEST_S
    )
    assert run.returncode == 0, run.stdout + run.stderr
