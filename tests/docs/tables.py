"""The tables of the pages of the dialect, the shell and the Python client that are made of the
tables of commands and parameters, and of the documents.

They stand between `<!-- begin parameters of produce -->` and `<!-- end -->`.
`python -m tests.docs.tables` writes them again.
"""

from __future__ import annotations

import re

import click

from tests.docs.pages import DOCS
from zbus.cli import main
from zbus.cli.parameters import ParameterOption
from zbus.core.model.limits import DELAY_MS_MAX
from zbus.dialects.zbus.schema.commands import COMMANDS
from zbus.dialects.zbus.schema.kinds import (
    IDEMPOTENCY_KEY_BYTES_MAX,
    KINDS,
    MASK_MAX,
    NUMBER_MAX,
    TEN_YEARS_AHEAD,
    Duration,
    Form,
    Kind,
    Number,
    Size,
    Text,
    Time,
    Word,
)
from zbus.protocol.documents import (
    Document,
    GroupInfo,
    PushInfo,
    ServerAddress,
    ServerInfo,
    TopicInfo,
    TrackerInfo,
)
from zbus.protocol.parameters import OFFSETS_MAX, Declared, Parameter, Put

PAGE = DOCS / "reference/zbus.md"
COMMAND_LINE = DOCS / "reference/command-line.md"
PYTHON_CLIENT = DOCS / "reference/python-client.md"
WITH_TABLES = (PAGE, COMMAND_LINE, PYTHON_CLIENT)

PYTHON = {"Put": Put, "Declared": Declared}
DOCUMENTS_OF_CLIENT: tuple[type[Document], ...] = (
    GroupInfo,
    TopicInfo,
    ServerInfo,
    TrackerInfo,
    ServerAddress,
    PushInfo,
)

_BLOCK = re.compile(r"(?<=<!-- begin )([\w ]+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)
_ROUND = {DELAY_MS_MAX: "ten years", MASK_MAX: "2³¹\u22121", NUMBER_MAX: ""}


def limit_of(name: str, kind: Kind) -> str:
    """How large it may be, for people."""
    match kind:
        case Number(maximum=str(option)):
            return option if option == TEN_YEARS_AHEAD else f"`{option}`"
        case Time(maximum=str(option)):
            return option
        case Size(maximum_bytes):
            return "" if maximum_bytes == NUMBER_MAX else f"{maximum_bytes >> 20} MiB"
        case Number(maximum=int(maximum)):
            return _ROUND.get(maximum, f"{maximum:,}")
        case Text(bytes_max=size):
            return f"{size:,} bytes" if size else ""
        case Word(values):
            return ", ".join(f"`{value}`" for value in values)
        case Duration(maximum_ms):
            return _ROUND.get(maximum_ms) or f"{maximum_ms // 60_000} minutes"
        case Form.OFFSETS:
            return f"{OFFSETS_MAX:,} in all"
        case Form.IDEMPOTENCY_KEY:
            return f"{IDEMPOTENCY_KEY_BYTES_MAX} bytes"
    return ""


def _names(parameter: Parameter) -> str:
    names = (parameter.spelled, *(name.replace("_", "-") for name in parameter.former))
    return ", ".join([f"`{name}`" for name in names])


def table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows]
    return "".join([lines[0], "|---" * len(rows[0]), "|\n", *lines[1:]])


def parameter_table(parameters: tuple[Parameter, ...]) -> str:
    """One row each; without a column that would be empty."""
    limits = [limit_of(each.name, KINDS[each.kind]) for each in parameters]
    shown = any(limits)
    rows: list[tuple[str, ...]] = [
        ("parameter", "default", *(("limit",) if shown else ()), "meaning")
    ]
    rows += [
        (_names(each), each.default, *((limit,) if shown else ()), each.meaning)
        for each, limit in zip(parameters, limits, strict=True)
    ]
    return table(rows)


def command_table() -> str:
    """What there is, with the operation that each needs."""

    rows: list[tuple[str, ...]] = [("command", "", "needs", "changes something")]
    for name, command in COMMANDS.items():
        needs = {None: "nothing", "": "a token"}.get(command.operation, f"`{command.operation}`")
        changes = "" if command.reads else "yes"
        rows.append((f"[{name}](#{name})", command.text, needs, changes))
    return table(rows)


def option_table(command: str) -> str:
    """The options of a command of the shell that are parameters."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    rows: list[tuple[str, ...]] = [("option", "default", "meaning")]
    for each in found.params:
        if isinstance(each, ParameterOption):
            names = [f"`{name}`" for name in (*each.opts, *each.secondary_opts)]
            if not each.is_flag:
                kind = each.make_metavar(click.Context(found)).replace("|", "\\|")
                names[-1] = f"{names[-1][:-1]} {kind.removesuffix(' RANGE')}`"
            told = each.parameter
            rows.append((", ".join(names), told.default, told.meaning.replace("](#", "](zbus.md#")))
    return table(rows)


def _fields(kind: type[Document]) -> tuple[str, str]:
    return f"`{kind.__name__}`", ", ".join([f"`{each}`" for each in kind.__struct_fields__])


def block(name: str) -> str:
    """What stands between the markers of this name."""
    if name == "commands":
        return command_table()
    what, _, command = name.partition(" of ")
    if what == "options":
        return option_table(command)
    if what == "names":
        return f"  {', '.join([f'`{each}`' for each in PYTHON[command].__annotations__])}\n"
    if what == "fields":
        return table([("document", "fields"), *map(_fields, DOCUMENTS_OF_CLIENT)])
    entry = COMMANDS[command]
    return parameter_table(entry.of_events if what == "events" else entry.parameters)


def written(text: str) -> str:
    """A page with its blocks as they have to be."""
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{block(found[1])}", text)


if __name__ == "__main__":
    for page in WITH_TABLES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
