"""The rules of the house that a machine can check: who may import whom, sizes, words.

Everything is read with `ast`; nothing of the package is imported. A rule that has to change is
changed here, in the tables below, together with `docs/explanation/architecture.md`. Limits that the
code does not keep yet are in `tests/test_ratchets.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "zbus"
TESTS = ROOT / "tests"
ARCHITECTURE = ROOT / "docs/explanation/architecture.md"

# What the core knows of storage: the port, what goes through it, and the engine for memory.
CORE_STORES_BY = (
    "storage.port",
    "storage.segments",
    "storage.format.batch",
    "storage.format.checkpoint",
    "storage.format.columns",
    "storage.memory",
)

# Which package may import which: arrows point down, and `core` and `wire` never meet. "version" is
# the package itself (`from zbus import __version__`).
ARROWS: dict[str, set[str]] = {
    "version": {"client"},  # only when a program asks for it
    "option": set(),  # how one is declared
    "units": set(),
    "documents": set(),  # what decoding one raises
    "protocol": set(),  # words that broker and clients share
    "core": {"option", *CORE_STORES_BY},
    "wire": {"option"},
    "storage": {"core", "documents", "protocol.places", "version"},  # what nodes tell each other
    "edge": {"wire", "core", "option"},
    "dialects": {
        "edge",
        "wire",
        "core",
        "option",
        "units",
        "version",
        "documents",
        "protocol",
        "semq.protocol.about",
        "semq.protocol.fields",
        "semq.protocol.tickets",
        "semq.protocol.words",
    },
    "config": {"core", "wire", "edge", "dialects", "option", "units"},  # options are declared there
    "server": {
        "config",
        "dialects",
        "edge",
        "storage",
        "core",
        "wire",
        "option",
        "protocol",
        "version",
    },
    "workers": {
        "server",
        "dialects",
        "edge",
        "storage",
        "core",  # a broker puts into the topics of another
        "wire",
        "config",
        "documents",
        "protocol",
    },
    "client": {"wire", "version", "documents", "protocol"},
    "semq": {"client", "wire", "version", "documents"},
    "integrations": {"client", "protocol", "version"},
    "spark": {  # it reads what is stored, from files too
        "client",
        "wire",
        "units",
        "protocol.nearest",
        "version",
        "storage.format.batch",
        "storage.format.columns",
        "storage.format.checkpoint",
        "storage.errors",
        "storage.port",
        "storage.local.files",
        "storage.local.high_water_marks",
        "storage.local.naming",
        "storage.local.shards",
        "storage.tools.manifest",
    },
    "cli": {
        "server",
        "workers",
        "dialects",
        "edge",
        "storage",
        "core",
        "wire",
        "config",
        "client",
        "semq",
        "spark",
        "version",
        "units",
        "documents",
        "protocol",
    },
    "__main__": {"cli"},
    "testing": {"*"},
}

# The rooms of a package, ground floor first: a room imports only rooms of floors below its own.
FLOORS: dict[str, list[str]] = {
    "core": [
        "model",
        "dedup log timing",
        "cursor",
        "topics",
        "persistence",
        "commit fanout",
        "delivery",
        "upkeep",
        "verbs",
        "patterns",
        "broker diagnosis",
        "api",
    ],
    "dialects.zbus": [
        "schema settings",
        "request",
        "documents",
        "context",
        "replies",
        "messages server session",
        "permissions placing topics",
        "inspect",
        "dialect",
    ],
    "server": ["exits", "loop push", "assembly", "watch", "process", "doctor"],
    "storage": [
        "errors segments",
        "format",
        "port",
        "jetstream local memory",
        "tools",
        "copying",
    ],
    "semq": ["protocol", "endpoint", "program", "app"],
}

# What may be used of the core from above: verbs, outcomes, options, views.
BEHIND_THE_API = ("dialects", "server", "workers", "config", "testing")
# Parts of the broker and of a group that only the core touches; `Group.progress` shows the latter.
PARTS_OF_THE_CORE = {
    "backlogs",
    "_calls",
    "_dispatch",
    "_fencing",
    "_following",
    "_memory",
    "_completions",
    "_puts",
    "_retention",
    "_standbys",
    "_tick",
}

ASSEMBLY = ("zbus.server.assembly", "zbus.dialects.registry")
ASSEMBLED_THERE = {"Storage", "Router"}

PURE = ("core/", "wire/", "edge/", "dialects/", "storage/format/")
BANNED_IN_PURE = {"time", "random", "os", "socket", "select", "threading", "trio"}

DIALECT_WORDS = tuple(
    [
        "consume",
        "produce",
        "lpush",
        "rpush",
        "lcancel",
        "rcancel",
        "camellia",
        "adf",
        "mqcloud",
        "semq",
        "recver",
        "mask",
        "rpc",
        "msgid",
        "delete_on_exit",
        "http",
        "https",
        "websocket",
        "url",
        "origin_status",
        "status_code",
        "name_auto",
    ]
)
DIALECT_FREE = ("core", "storage")
# Only its dialect knows these words, and what else it makes of HTTP.
ZBUS_WORDS = tuple(
    [
        "cmd",
        "topic_mask",
        "group_mask",
        "rpc",
        "msgid",
        "recver",
        "origin_status",
        "remote-addr",
        "track_pub",
        "track_sub",
        "tracker",
        "trackers",
        "tracker_list",
        "group_name_auto",
        "lpush",
        "rpush",
        "lcancel",
        "rcancel",
        "camellia",
        "mqcloud",
        "semq",
    ]
)
ZBUS = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(ZBUS_WORDS)})(?![A-Za-z0-9_])", re.IGNORECASE)
ZBUS_FREE = ("wire", "server")
# The first commands to try, as they are printed at the start.
ZBUS_KEPT = {"server/process/banner.py": {"cmd"}}

# The format is older than the names that the program has for these.
DIALECT_KEPT = {"storage/format/checkpoint.py": {"mask", "rpc", "delete_on_exit"}}
# `_` separates words, so that `consume_group` is found; letters and digits do not.
DIALECT = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(DIALECT_WORDS)})(?![A-Za-z0-9])", re.IGNORECASE)

REMINDER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b")
REFERENCE = re.compile(r"ADR-\d{4}|#\d+")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".js", ".css", ".html", ".lua", ".sh"}

MOCK_MODULES = {"mock", "unittest.mock", "pytest_mock"}
SUSPECT = re.compile("sleep|mock")

MODULES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted(path for path in TESTS.rglob("*.py") if "process" not in path.parts)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def walked(path: Path) -> list[ast.AST]:
    """All nodes of a module: many rules look at each of them."""
    return list(ast.walk(tree(path)))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> list[tuple[str, int]]:
    """Full names of the imported modules (`from a import b` is `a.b` if that is a module), those
    imported for types alone included."""
    return list(imported(path))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in walked(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full in NAMES else base), node.lineno


def part_of(module: str) -> str:
    """The part of the house that a module of the package belongs to."""
    _, _, inner = module.partition(".")
    return inner.split(".")[0] or "version"


def may_import(importer: str, imported: str) -> bool:
    part, target = part_of(importer), part_of(imported)
    allowed = ARROWS[part]
    inner = imported.partition(".")[2]
    return part == target or "*" in allowed or target in allowed or inner in allowed


def test_imports_follow_the_arrows() -> None:
    unknown = {part_of(module) for module in NAMES} - set(ARROWS)
    assert not unknown, "a new part needs its line in ARROWS"
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in MODULES
        for name, line in imports(path)
        if name.split(".")[0] == "zbus" and not may_import(module_name(path), name)
    ]
    assert not wrong


def test_the_core_is_used_through_its_api() -> None:
    above = [path for path in MODULES if part_of(module_name(path)) in BEHIND_THE_API]
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in above
        for name, line in imports(path)
        if name.startswith("zbus.core") and name != "zbus.core.api"
    ]
    edge = [path for path in MODULES if part_of(module_name(path)) == "edge"]
    wrong += [
        f"{name_of(path)}:{node.lineno} reaches into {ast.unparse(node)}"
        for path in (*above, *edge)
        for node in walked(path)
        if isinstance(node, ast.Attribute)
        and node.attr in PARTS_OF_THE_CORE
        and ast.unparse(node.value).endswith(("broker", "group", "_broker", "_group", "topic"))
    ]
    assert not wrong


def room_of(package: str, module: str) -> str:
    """The room of that package in which a module is; "" if it is in none."""
    inner = module.removeprefix(f"zbus.{package}.")
    return inner.split(".")[0] if inner != module else ""


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_stand_on_those_below(package: str) -> None:
    floors = {
        room: number for number, floor in enumerate(FLOORS[package]) for room in floor.split()
    }
    rooms = {room_of(package, module) for module in NAMES} - {""}
    assert rooms == set(floors), "each room of the package has its floor"
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in MODULES
        if (room := room_of(package, module_name(path)))
        for name, line in imports(path)
        if (other := room_of(package, name)) not in {"", room} and floors[other] >= floors[room]
    ]
    assert not wrong


def test_a_broker_is_put_together_in_one_place() -> None:
    """So a server, a world and a simulated machine have the same parts, put together alike."""
    wrong = [
        f"{name_of(path)}:{node.lineno} imports {alias.name}"
        for path in MODULES
        if module_name(path) not in ASSEMBLY and part_of(module_name(path)) != "core"
        for node in walked(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in ASSEMBLED_THERE
    ]
    assert not wrong


def test_no_import_cycle() -> None:
    """Imports for types count."""
    graph = {
        module_name(path): {name for name, _ in imports(path) if name in NAMES} for path in MODULES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done:
            return
        for other in sorted(graph[module] - {module}):
            visit(other, (*trail, module))
        done.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_pure_modules_do_no_io() -> None:
    pure = [path for path in MODULES if relative(path).startswith(PURE)]
    assert len(pure) > 100
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in pure
        for name, line in imports(path)
        if name.split(".")[0] in BANNED_IN_PURE
    ]
    wrong += [
        f"{name_of(path)}:{node.lineno} calls open"
        for path in pure
        for node in walked(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "io.open"}
    ]
    assert not wrong


def test_every_module_says_its_idea() -> None:
    silent = [path for path in MODULES if tree(path).body and not ast.get_docstring(tree(path))]
    assert not silent, "no module docstring"


def test_every_module_of_the_core_has_its_test() -> None:
    """A file of its name, or the one that its docstring names."""
    missing = []
    for path in (PACKAGE / "core").rglob("*.py"):
        if not tree(path).body or path.name == "__init__.py":
            continue
        room = TESTS / path.parent.relative_to(PACKAGE)
        named = re.search(
            r"^Tests: `(tests/[\w/]+\.py)`\.$", ast.get_docstring(tree(path)) or "", re.M
        )
        if not (named and (ROOT / named[1]).exists()) and not any(
            room.glob(f"test_{path.stem}*.py")
        ):
            missing.append(relative(path))
    assert not missing


def test_architecture_page_names_every_room() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = {path.parent.relative_to(PACKAGE).as_posix() for path in MODULES} - {"."}
    listed = page.partition("## Rooms")[2]
    assert set(re.findall(r"^\| `([a-z/_]+)` \|", listed, re.MULTILINE)) == rooms


def test_no_reminder_without_a_reference() -> None:
    wrong = []
    for path in ROOT.rglob("*"):
        top = path.relative_to(ROOT).parts[0]
        if top not in {"zbus", "tests", "examples", "docs"} or path.suffix not in TEXT_SUFFIXES:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if REMINDER.search(line) and not REFERENCE.search(line):
                wrong.append(f"{name_of(path)}:{number} {line.strip()}")
    assert not wrong


def texts(node: ast.AST) -> Iterator[str]:
    """Identifiers and strings of one node."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, bytes):
            yield value.decode("latin-1")
        elif isinstance(value, str):
            yield value


def found_words(
    parts: tuple[str, ...], words: re.Pattern[str], kept: dict[str, set[str]]
) -> list[str]:
    """Where modules of these parts say one of these, but those that they may keep."""
    return [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)} {word}"
        for path in MODULES
        if relative(path).startswith(parts)
        for node in walked(path)
        for text in texts(node)
        for word in words.findall(text)
        if word not in kept.get(relative(path), set())
    ]


def test_core_and_storage_speak_no_dialect() -> None:
    assert not found_words(DIALECT_FREE, DIALECT, DIALECT_KEPT)


def test_wire_and_server_know_no_dialect() -> None:
    assert not found_words(ZBUS_FREE, ZBUS, ZBUS_KEPT)


def waits_and_mocks(path: Path) -> Iterator[str]:
    """Where a file of tests does either."""
    for node in walked(path):
        if isinstance(node, ast.Call):
            called = node.func
            if "sleep" in (getattr(called, "id", ""), getattr(called, "attr", "")):
                yield f"{name_of(path)}:{node.lineno} sleeps"
        elif isinstance(node, ast.arg) and node.arg == "mocker":
            yield f"{name_of(path)}:{node.lineno} mocks"
        elif isinstance(node, ast.ImportFrom) and node.module == "unittest":
            mocks = [alias for alias in node.names if alias.name == "mock"]
            yield from (f"{name_of(path)}:{alias.lineno} mocks" for alias in mocks)
    for name, line in imports(path):
        if name in MOCK_MODULES or name.startswith("unittest.mock."):
            yield f"{name_of(path)}:{line} imports {name}"


def test_tests_neither_wait_nor_mock() -> None:
    """Who does says so: only what has one of the words is read as a program."""
    suspects = [path for path in TEST_FILES if SUSPECT.search(path.read_text(encoding="utf-8"))]
    assert [text for path in suspects for text in waits_and_mocks(path)] == []


# The rules are worth as much as their own tests: what each must let pass and must catch.
ARROW_CASES = [
    ("zbus.core.broker", "zbus.core.topics.topic", True),
    ("zbus.core.broker", "zbus.wire.http", False),
    ("zbus.core.persistence.storage", "zbus.storage.port", True),
    ("zbus.core.persistence.storage", "zbus.storage.local.engine", False),
    ("zbus.wire.http", "zbus.core.model.message", False),
    ("zbus.dialects.zbus.messages.produce", "zbus.wire.http", True),
    ("zbus.dialects.zbus.messages.produce", "zbus.config", False),
    ("zbus.edge.router", "zbus.dialects.registry", False),
    ("zbus.storage.local.engine", "zbus.core.cursor.state", True),
    ("zbus.spark.source.files", "zbus.storage.format.batch", True),
    ("zbus.spark.source.files", "zbus.storage.local.engine", False),
    ("zbus.server.process.serve", "zbus.testing.world", False),
    ("zbus.server.process.serve", "zbus.config", True),
    ("zbus.config.options", "zbus.server.assembly", False),
    ("zbus.core.broker", "zbus", False),
]


@pytest.mark.parametrize(("importer", "imported", "allowed"), ARROW_CASES)
def test_arrows(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("consume_group", True),
        ("CONSUME", True),
        ("topic_mask", True),
        ("the adf queue", True),
        ("consumer", False),
        ("produced_ms", False),
        ("mask of a topic", True),
        ("unmasked", False),
        ("http_status", True),
        ("is_rpc", True),
    ],
)
def test_dialect_words(text: str, found: bool) -> None:
    assert bool(DIALECT.search(text)) is found
