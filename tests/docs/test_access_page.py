"""The page about access and its example are what the code does."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT
from zbus.dialects.adf.request import OPERATIONS as ADF_OPERATIONS
from zbus.dialects.camellia.dialect import VERBS
from zbus.dialects.mqcloud.dialect import VERBS as MQCLOUD_VERBS
from zbus.dialects.semq.dialect import COMMANDS as SEMQ_COMMANDS
from zbus.dialects.zbus.schema.commands import COMMANDS, FREE
from zbus.edge.access import ADMIN, ALL, OPERATIONS, Access
from zbus.edge.rights import URL_TOKEN
from zbus.semq.protocol.words import Fields
from zbus.server.process.tokens import DIGESTS_MAX, FILE_BYTES_MAX, NAME_BYTES_MAX, parse_tokens

PAGE = DOCS / "reference/access.md"
EXAMPLE = ROOT / "examples/tokens.toml"


def rows(heading: str) -> dict[str, str]:
    """Command and operation, as a section of the page has them."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (`[\w`, ]+`) \| (`\w+`|none) \|", text, re.MULTILINE)
    return {
        command.strip("`"): operation.strip("`")
        for commands, operation in found
        for command in commands.split(", ")
    }


def test_the_table_of_operations() -> None:
    asked = {name: command.operation for name, command in COMMANDS.items()}
    expected = {name: needed or "none" for name, needed in asked.items() if needed is not None}
    assert rows("Operations") == expected
    assert set(OPERATIONS) == set(expected.values()) - {"none"}


def test_the_actions_of_adf() -> None:
    assert rows("Actions of Adf") == {
        action.name.lower(): operation for action, operation in ADF_OPERATIONS.items()
    }


def test_the_verbs_of_camellia() -> None:
    text = PAGE.read_text().partition("\n## Verbs of camellia\n")[2].partition("\n## ")[0]
    found = {
        name.rpartition("/")[2]: operation.strip("`") if operation.startswith("`") else None
        for names, operation in re.findall(
            r"^\| (`.*?`) \| (`\w+`|nothing.*?) \|", text, re.MULTILINE
        )
        for name in re.findall(r"`([/\w]+)`", names)
    }
    assert found == {path[-1].decode(): verb.operation for path, verb in VERBS.items()}


def test_the_verbs_of_mqcloud() -> None:
    found = {
        path: operation
        for paths, operation in re.findall(
            r"^\| (`/.*?`) \| `(\w+)` \|",
            PAGE.read_text().partition("\n## Verbs of MQCloud\n")[2].partition("\n## ")[0],
            re.MULTILINE,
        )
        for path in re.findall(r"`([^`]+)`", paths)
    }
    asked = {
        f"/{b'/'.join(path).decode()}{'/billing' if verb.names else ''}": verb.operation
        for path, verb in MQCLOUD_VERBS.items()
    }
    used = set()
    for path, operation in asked.items():
        (row,) = [
            row
            for row in found
            if path == row or (path.startswith(row.rstrip("…")) and row.endswith("…"))
        ]
        assert found[row] == operation, path
        used.add(row)
    assert used == set(found)


def test_what_needs_nothing_and_what_is_everything() -> None:
    text = PAGE.read_text()
    for name in (*FREE, ALL.encode(), ADMIN.encode()):
        assert f"`{name.decode()}`" in text
    assert URL_TOKEN in text


def test_limits() -> None:
    text = PAGE.read_text()
    assert FILE_BYTES_MAX == 1 << 20
    assert "at most 1 MiB" in text
    assert f"At most {DIGESTS_MAX:,} in the file" in text
    assert f"1 to {NAME_BYTES_MAX} bytes" in text


def test_the_example() -> None:
    text = EXAMPLE.read_text()
    access = Access(parse_tokens(text))
    for name, token in (
        ("shop", "shop-token"),
        ("billing", "billing-token"),
        ("billing", "billing-token-2"),
        ("admin", "admin-token"),
    ):
        assert token in text
        assert access.of_token(token.encode()).grant.name == name
    assert access.of_principal("turnstile-7.example").grant.name == "turnstile"
    assert access.anonymous.grant.name == "everybody"
    assert access.of_token(b"billing-token").grant.sees("Invoices.2027", "any")


def test_the_commands_of_semq() -> None:
    text = PAGE.read_text().partition("\n## Commands of SEMQ\n")[2].partition("\n## ")[0]
    found = {
        command: operation.strip("`") if operation.startswith("`") else ""
        for commands, operation in re.findall(r"^\| (`\w.*?`) \| (`\w+`|nothing.*?) \|", text, re.M)
        for command in re.findall(r"`(\w+)`", commands)
    }
    said = Fields({"node": "1:1", "src": "1:1", "dst": "1:2"})
    asked = {name: command.needs(said) for name, command in SEMQ_COMMANDS.items()}
    assert found == {name: needs.operation if needs else "" for name, needs in asked.items()}
