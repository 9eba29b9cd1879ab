"""What the pages say of the code is what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.commands import COMMANDS as COMMANDS_OF_SHELL
from tests.docs.diagram import diagram
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name_of, prose
from tests.docs.shell import alike
from tests.docs.small_log import page_blocks
from tests.docs.tables import WITH_TABLES, written
from zbus.config import OPTIONS
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.model.filters import compile_filter
from zbus.core.topics.outcomes import EmptyReason
from zbus.dialects.zbus.replies import TEXTS
from zbus.dialects.zbus.request import batch_formats as containers
from zbus.dialects.zbus.request import legacy_flags as masks
from zbus.dialects.zbus.schema.commands import COMMANDS, MOUNTED
from zbus.edge.dialect import RESERVED
from zbus.edge.status import STATUS

ZBUS = DOCS / "reference/zbus.md"
ERRORS = DOCS / "reference/errors.md"
COMMAND_LINE = DOCS / "reference/command-line.md"
DISK = DOCS / "reference/on-disk-format.md"
DIALECT = DOCS / "howto/write-a-dialect.md"
ARCHITECTURE = DOCS / "explanation/architecture.md"
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))

# Made where the measurements are, which is not everywhere.
MAY_BE_ABSENT = {DOCS / "explanation/performance.md"}

BLOCK = re.compile(r"^<!-- begin ([\w ]+) -->$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:work|home|root|tmp|Users|var|mnt|opt)/(?!zbus\b|lib/zbus\b)"
)

pages = pytest.mark.parametrize("page", PAGES, ids=name_of)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What headings are called in links, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """The text under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text_of(page), re.M | re.S)
    assert found is not None, f"{name_of(page)} has no section {heading}"
    return found[1]


# -- all pages ------------------------------------------------------------------------------------


@pages
def test_links_resolve(page: Path) -> None:
    wrong = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if file in MAY_BE_ABSENT and not file.exists():
            continue
        is_there = file.is_relative_to(ROOT) and file.exists()
        if not is_there or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    assert not wrong


@pages
def test_no_page_knows_a_machine(page: Path) -> None:
    assert not MACHINE_PATH.findall(text_of(page))


@pages
def test_every_page_is_plain(page: Path) -> None:
    text = text_of(page)
    shouts = [line for line in prose(page).splitlines() if re.search(r"\w!(\s|$)", line)]
    assert not shouts
    assert text.startswith("# ")
    assert text.endswith("\n")
    assert not re.search(r"[ \t]$", text, re.MULTILINE), "a line ends with white space"


def test_every_page_can_be_reached_from_the_first() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        names = [link.partition("#")[0] for link in LINK.findall(prose(page))]
        waiting += [(page.parent / name).resolve() for name in names if name and ":" not in name]
    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_decisions_are_short_and_complete(page: Path) -> None:
    text = text_of(page)
    assert len(text.splitlines()) < 60
    for part in ("What forced it.", "Chosen.", "Price.", "What would change our mind."):
        assert f"**{part}**" in text
    assert f"]({page.name})" in text_of(DOCS / "adr/README.md")


# -- the dialect ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    assert section(ZBUS, name).strip()
    assert f"[{name}](#{name})" in text_of(ZBUS)
    assert f"`{name}`" in text_of(DOCS / "reference/dialects.md")


GETTERS = ("number", "text", "flag", "switch", "duration", "size", "time", "start", "ranges")


def asked_for() -> Iterator[str]:
    """Every parameter that the dialect's code asks a request for."""
    for path in (ROOT / "zbus/dialects/zbus").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = ast.unparse(node.func.value)
            is_getter = node.func.attr in GETTERS and owner.endswith("params")
            is_field = node.func.attr == "get" and owner.endswith(("fields", "params.fields"))
            if (is_getter or is_field) and isinstance(node.args[0], ast.Constant):
                assert isinstance(node.args[0].value, bytes)
                yield node.args[0].value.decode()


PARAMETERS = sorted(set(asked_for()))


def test_the_parameters_are_found() -> None:
    assert {"delay", "group_filter", "recver", "accept", "bytes"} <= set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_described(name: str) -> None:
    spelled = name.replace("_", "-")
    assert re.search(rf"`({name}|{spelled})\b", text_of(ZBUS), re.IGNORECASE)


@pytest.mark.parametrize("reason", EmptyReason, ids=lambda reason: reason.name)
def test_every_reason_for_nothing_is_described(reason: EmptyReason) -> None:
    assert f"| `{reason.value}` |" in section(ZBUS, "consume")


def test_tables_of_commands_are_made_of_the_code() -> None:
    for page in WITH_TABLES:
        assert text_of(page) == written(text_of(page)), "run: python -m tests.docs.tables"
    told = set(BLOCK.findall(text_of(ZBUS)))
    assert told >= {f"parameters of {name}" for name, each in COMMANDS.items() if each.parameters}
    assert told >= {f"events of {name}" for name, each in COMMANDS.items() if each.of_events}
    assert "commands" in told


def test_masks() -> None:
    bits = {name: value for name, value in vars(masks).items() if type(value) is int}
    table = section(ZBUS, "Masks")
    for name, value in bits.items():
        assert f"| {value} | {name.lower()} |" in table
    assert len(bits) == 7


def test_filters() -> None:
    """The table of the page, by the code."""
    table = section(ZBUS, "Filters")
    head, *rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    tags = [a or "" for a, _ in re.findall(r"`([^`]+)`|(\(none\))", head[1])]
    assert (len(tags), len(rows)) == (7, 7)
    for shown_filter, passing in rows:
        match = compile_filter(shown_filter.strip("`"))
        assert match is not None
        passed = [tag for tag in tags if match(tag.encode())]
        shown = (
            passing if passing != "all but the untagged" else " ".join(f"`{t}`" for t in tags if t)
        )
        assert sorted(passed) == sorted(re.findall(r"`([^`]+)`", shown)), shown_filter


def test_containers_and_paths() -> None:
    text = text_of(ZBUS)
    for kind in (containers.MESSAGES, containers.NDJSON, containers.JSON, containers.BATCHES):
        assert f"`{kind.decode()}`" in section(ZBUS, "Containers")
    for path in [*MOUNTED, *RESERVED]:
        assert f"`/{path.decode()}" in text


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+_(?:max|ms))`", text_of(ZBUS)))))
def test_limits_are_options(name: str) -> None:
    """What looks like an option is one, of a broker or a topic. (They end in `_ms` and `_max`.)"""
    assert name in OPTIONS or hasattr(TopicOptions, name)


@pytest.mark.parametrize("dialect", ["adf", "camellia", "mqcloud"])
def test_who_comes_from_there_finds_every_option(dialect: str) -> None:
    """All of the dialect's, and none that is not there."""
    page = text_of(DOCS / f"howto/coming-from-{dialect}.md")
    named = set(re.findall(rf"\b{dialect}_\w+", page))
    assert named == {name for name in OPTIONS if name.startswith(dialect)}


@pytest.mark.parametrize("refusal", Refusal, ids=lambda refusal: refusal.name)
def test_every_refusal_is_listed(refusal: Refusal) -> None:
    rows = section(ERRORS, "Refusals of the broker")
    (row,) = re.findall(rf"^\| (\d+) \| {refusal.value} \|(.*)$", rows, re.MULTILINE)
    assert int(row[0]) == STATUS[refusal]
    if refusal in TEXTS:
        assert f"`{re.sub('{}', '<', TEXTS[refusal]).split('<')[0]}" in row[1]


def test_every_status_of_the_wire_is_listed() -> None:
    said: set[str] = set()
    for folder in ("zbus/wire", "zbus/server"):
        for path in (ROOT / folder).rglob("*.py"):
            said |= set(re.findall(r"WireError\(\s*(\d{3})", path.read_text(encoding="utf-8")))
    listed = re.findall(r"^\| (\d{3}) \|", section(ERRORS, "Requests that are not HTTP"), re.M)
    assert said == set(listed)


def test_texts_of_refusals_are_the_codes() -> None:
    """The longest fixed part of each sentence of the reference is in the source."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("dialects", "edge", "core", "storage", "server", "wire")
        for path in (ROOT / "zbus" / folder).rglob("*.py")
    )
    source = re.sub(r'"\s*\n?\s*f?"', "", source)
    sentences = re.findall(r"`(\d{3}: [^`]+)`", text_of(ZBUS) + text_of(ERRORS))
    assert len(sentences) > 30
    wrong = []
    for sentence in sentences:
        words = re.sub(r"^\d{3}: (Bad Format, )?(topic: )?", "", sentence)
        longest = max(re.split(r"<[^>]*>|\(orders\)|…|=|\b\d+\b", words), key=len).strip(" ,()")
        if longest and longest not in source:
            wrong.append((sentence, longest))
    assert not wrong


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMMANDS_OF_SHELL))
def test_every_option_of_the_command_line(name: str) -> None:
    found = re.search(rf"^## zbus {name}\b(.*?)(?=^## |\Z)", text_of(COMMAND_LINE), re.M | re.S)
    assert found is not None
    for parameter in COMMANDS_OF_SHELL[name].params:
        if isinstance(parameter, click.Option):
            for flag in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"`{flag}[ `]", found[1]), flag


# -- pictures and dumps ---------------------------------------------------------------------------


def test_the_diagram_is_the_table() -> None:
    assert [block.text for block in blocks(ARCHITECTURE, "mermaid")] == [diagram()]


def test_the_dump_is_what_the_journal_writes() -> None:
    shown = [block.text for block in blocks(DISK, "hexdump")]
    assert shown == page_blocks(), "run: python -m tests.docs.small_log"


@pytest.mark.parametrize("module", ["batch", "checkpoint"])
def test_rulers_are_those_of_the_code(module: str) -> None:
    source = (ROOT / f"zbus/storage/format/{module}.py").read_text(encoding="utf-8")
    lines = re.findall(r"^    ((?:\+-|\| ).*)$", source.split('"""')[1], re.MULTILINE)
    assert len(lines) >= 5
    assert "\n".join(lines) in text_of(DISK)


# -- examples in Python ---------------------------------------------------------------------------


def test_the_dialect_that_is_shown_is_the_toy() -> None:
    shown, listed = [block.text.splitlines() for block in blocks(DIALECT, "python")]
    toy = text_of(ROOT / "tests/dialects/toy.py")
    assert alike(["...", *shown, "..."], [line.strip() for line in toy.splitlines()])
    dialects = text_of(ROOT / "zbus/dialects/registry.py")
    assert all(line in dialects for line in listed if "toy" not in line)


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_a_world_run(number: int) -> None:
    page = DOCS / "howto/test-with-world.md"
    examples = blocks(page, "python")
    assert len(examples) == 2
    names: dict[str, object] = {}
    exec(compile(examples[number].text, name_of(page), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert callable(test)
        test()
