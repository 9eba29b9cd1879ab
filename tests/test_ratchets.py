"""Sizes of the house: limits, and what is over them today. Each figure here may only shrink.

Sizes are those of lines as the formatter writes them. Who has to raise one says why in the commit.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_tidy import MODULES, NAMES, PACKAGE, imports, module_name, name_of, walked

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
FOLDER_FILES_MAX = 20
CLASS_FIELDS_MAX = 15

PACKAGE_LINES = 102_324
"""All of `zbus/`. The goal is 70,000."""
LONGEST_CHAIN = 37
"""Modules of the longest chain of imports. The goal is 25."""
BROKER_ATTRIBUTES = 12
"""Public attributes of `Broker` beside its verbs, which are its methods and what `_bind` binds."""

FIELDS: dict[str, int] = {
    "cli.bench.options.Options": 17,
    "client.readers.consuming.Consuming": 22,
    "config.server.ServerOptions": 22,
    "core.broker.Broker": 27,
    "core.cursor.backlog.Backlog": 18,
    "core.cursor.state.GroupOptions": 21,
    "core.cursor.state.TopicOptions": 24,
    "core.diagnosis.why.Why": 18,
    "core.model.chunk.Chunk": 17,
    "core.persistence.replay.Replay": 16,
    "core.topics.topic.Group": 28,
    "core.topics.topic.Partition": 28,
    "core.topics.topic.Topic": 22,
    "dialects.zbus.messages.produce.Produce": 25,
    "dialects.zbus.messages.pull_tickets.PullReply": 16,
    "dialects.zbus.request.params.Params": 21,
    "edge.connection.Connection": 31,
    "protocol.documents.GroupInfo": 35,
    "protocol.documents.Stats": 27,
    "protocol.documents.TopicInfo": 29,
    "protocol.documents.Why": 21,
    "protocol.parameters.Declared": 16,
    "semq.endpoint.links.Link": 16,
    "semq.endpoint.outbox.Row": 20,
    "server.loop.loop.Loop": 25,
    "server.loop.socket_connection.SocketConnection": 25,
    "server.process.serve.Server": 23,
    "spark.options.Wish": 20,
    "storage.jetstream.client.NatsClient": 18,
    "storage.jetstream.engine.JetStreamJournal": 22,
    "storage.local.engine.LocalJournal": 20,
    "storage.local.lane.LocalLane": 20,
    "storage.local.opening.Found": 18,
    "wire.heads.head.Head": 16,
    "wire.heads.heads.Heads": 21,
    "wire.http.HttpReader": 18,
}
"""Classes with more fields than they should have."""


@cache
def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def too_long(path: Path) -> Iterator[str]:
    if lines_of(path) > FILE_LINES_MAX:
        yield f"{name_of(path)} has {lines_of(path)} lines"
    for node in walked(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"


def test_files_and_functions() -> None:
    assert [text for path in MODULES for text in too_long(path)] == []


def test_folders() -> None:
    """The file that makes a folder a package does not count."""
    files = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(folder): count for folder, count in files.items() if count > FOLDER_FILES_MAX} == {}


def starred_literals(path: Path) -> Iterator[str]:
    """`*("a", "b")` within another literal: a way to have fewer lines, and no other."""
    for node in walked(path):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            for part in node.elts:
                if isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple | ast.List):
                    yield f"{name_of(path)}:{part.lineno}"


def test_no_starred_literals() -> None:
    assert [text for path in MODULES for text in starred_literals(path)] == []


def fields_of(node: ast.ClassDef) -> set[str]:
    """What an object of the class has: fields that are declared, and what `self.x =` gives it.
    A function `_bind` binds methods of parts, which are no fields."""
    found = {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign)
        and isinstance(part.target, ast.Name)
        and "ClassVar" not in ast.unparse(part.annotation)
    }
    rest = [part for part in node.body if getattr(part, "name", "") != "_bind"]
    for part in (inner for outer in rest for inner in ast.walk(outer)):
        targets: list[ast.expr] = []
        if isinstance(part, ast.Assign):
            targets = part.targets
        elif isinstance(part, ast.AnnAssign | ast.AugAssign):
            targets = [part.target]
        for target in targets:
            for name in ast.walk(target):
                if (
                    isinstance(name, ast.Attribute)
                    and isinstance(name.value, ast.Name)
                    and name.value.id == "self"
                    and isinstance(name.ctx, ast.Store)
                ):
                    found.add(name.attr)
    return found


def classes() -> Iterator[tuple[str, set[str]]]:
    for path in MODULES:
        for node in walked(path):
            if isinstance(node, ast.ClassDef):
                yield f"{module_name(path)[5:]}.{node.name}", fields_of(node)


def test_fields_of_classes() -> None:
    large = {name: len(found) for name, found in classes() if len(found) > CLASS_FIELDS_MAX}
    assert large == FIELDS, "the table has what is over the limit, and shrinks with it"


def test_attributes_of_the_broker() -> None:
    found = dict(classes())["core.broker.Broker"]
    public = sorted(name for name in found if not name.startswith("_"))
    assert len(public) <= BROKER_ATTRIBUTES, public


def test_lines_of_the_package() -> None:
    assert sum(map(lines_of, PACKAGE.rglob("*.py"))) <= PACKAGE_LINES


def test_longest_chain_of_imports() -> None:
    """Imports within functions and for types count."""
    paths = {module_name(path): path for path in MODULES}

    @cache
    def depth(module: str) -> int:
        below = {name for name, _ in imports(paths[module]) if name in NAMES} - {module}
        return 1 + max(map(depth, below), default=0)

    assert max(map(depth, paths)) <= LONGEST_CHAIN


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("class A:\n    a: int\n    b: ClassVar[int] = 1", {"a"}),
        (
            "class A:\n    def f(self):\n        self.a, self.b = 1, 2\n        self.c[0] = 1",
            {"a", "b"},
        ),
        ("class A:\n    def f(self):\n        self.a.b = 1\n        self.c += 1", {"c"}),
    ],
)
def test_fields(text: str, fields: set[str]) -> None:
    [node] = ast.parse(text).body
    assert isinstance(node, ast.ClassDef)
    assert fields_of(node) == fields
