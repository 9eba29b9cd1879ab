"""The examples in Python of the pages about the client run, against a real broker."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from tests.cli.commands import LEAVES
from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, name_of
from tests.examples.broker_process import BrokerProcess
from zbus.client import BlockingClient
from zbus.client.managing import DeclareOptions
from zbus.protocol.parameters import Put

URL = "http://127.0.0.1:15555"
HOWTO = DOCS / "howto"
EXAMPLES = [
    (page, block)
    for page in (
        ROOT / "README.md",
        HOWTO / "python-client.md",
        HOWTO / "python-frameworks.md",
        HOWTO / "order-per-key.md",
        HOWTO / "last-value-per-key.md",
        HOWTO / "priorities.md",
        HOWTO / "cloudevents.md",
        HOWTO / "transactions.md",
        *sorted(HOWTO.glob("coming-*.md")),
    )
    for block in blocks(page, "python")
]

CALL = re.compile(r"\bbus\.(\w+)(\(.*)")
WORDS: dict[str, type] = {"DeclareOptions": DeclareOptions, "Put": Put}
IN_SHELL = re.compile(r"(?<!\w)zbus ([a-z]+(?: [a-z]+)?)\b([^`|>\n]*)")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


def test_they_are_found() -> None:
    assert len(EXAMPLES) == 29


@pytest.mark.parametrize(
    ("page", "block"), EXAMPLES, ids=lambda value: str(getattr(value, "line", "at"))
)
def test_an_example(
    broker: BrokerProcess, page: Path, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # taskiq looks for it
    code = compile(block.text.replace(URL, broker.url), f"{name_of(page)}:{block.line}", "exec")
    exec(code, {"__name__": "page"})


def call_at(text: str) -> ast.Call | None:
    """The call that a text begins with, if it ends in this line."""
    for end in range(len(text), 0, -1):
        try:
            node = ast.parse(text[:end], mode="eval").body
        except SyntaxError:
            continue
        return node if isinstance(node, ast.Call) else None
    return None


class Anything:
    def __contains__(self, name: object) -> bool:
        return True


def taken_by(method: Callable[..., object]) -> Container[object]:
    """The keywords of a method, those of its `Unpack[...]` included."""
    names: set[object] = set()
    for each in inspect.signature(method).parameters.values():
        if each.kind is not each.VAR_KEYWORD:
            names.add(each.name)
        elif found := re.fullmatch(r"Unpack\[(\w+)\]", each.annotation):
            names |= {*WORDS[found[1]].__annotations__, None}  # None: what is unpacked with **
        else:
            return Anything()
    return names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_calls_of_the_client_have_keywords_that_there_are(page: Path) -> None:
    """Also those that are not run: within a sentence, or a part of a program."""
    wrong = []
    for line in page.read_text(encoding="utf-8").splitlines():
        for name, arguments in CALL.findall(line):
            call = call_at(f"f{arguments}")
            method = getattr(BlockingClient, name, None)
            if method is None:
                wrong.append(name)
            elif call is not None:
                wrong += [(name, x.arg) for x in call.keywords if x.arg not in taken_by(method)]
    assert wrong == []


def options_of(command: click.Command) -> set[str]:
    return {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_the_shell_have_options_that_there_are(page: Path) -> None:
    wrong = []
    for words, rest in IN_SHELL.findall(page.read_text(encoding="utf-8")):
        command = LEAVES.get(words) or LEAVES.get(words.split()[0])
        if command is not None:
            flags = set(OPTION.findall(rest)) - {"--help", "--version"}
            wrong += [(words, flag) for flag in sorted(flags - options_of(command))]
    assert wrong == []
