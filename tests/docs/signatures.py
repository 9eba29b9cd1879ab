"""What editors and type checkers see of the clients' methods: `zbus/client/methods.pyi`.

It is made of the functions that make the requests. `python -m tests.docs.signatures` writes it
again. A function that answers one of several documents has a signature for each: which one it is
depends on how many of its optional names are given.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path

from zbus.client import commands, managing, methods, scheduling, single

STUB = Path(methods.__file__ or "").with_suffix(".pyi")

HEAD = '''
"""The methods of both clients and of their pipelines, as editors and type checkers see them.

`python -m tests.docs.signatures` makes this of `commands`: do not edit it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from zbus.client.async_client import AsyncPending
from zbus.client.blocking import Pending
from zbus.client.documents import GroupInfo, ServerInfo, TopicInfo, TrackerInfo
from zbus.client.managing import Level, Loss, Retries
from zbus.client.messages import Body, Delivery, Message, Stored, StoredBatch
from zbus.client.positions import Start
from zbus.client.requests import Acks, Offsets
from zbus.client.scheduling import Scheduled
from zbus.client.single import Document, Listed, Redriven, State

ALWAYS: tuple[str, ...]
PIPED: tuple[str, ...]
'''

CLASSES = [
    ("BlockingMethods", methods.ALWAYS, False, "{}"),
    ("AsyncMethods", methods.ALWAYS, True, "{}"),
    ("PipelineMethods", methods.PIPED, False, "Pending[{}]"),
    ("AsyncPipelineMethods", methods.PIPED, True, "AsyncPending[{}]"),
]


def functions() -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for module in (managing, scheduling, single, commands):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        found |= {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return found


def made() -> ast.Module:
    """The whole stub."""
    tree = ast.parse(HEAD)
    known = functions()
    for name, words, awaited, returns in CLASSES:
        body = [method for word in words for method in methods_of(known[word], awaited, returns)]
        tree.body.append(ast.ClassDef(name, [], [], body, []))
    return ast.fix_missing_locations(tree)


def methods_of(function: ast.FunctionDef, awaited: bool, returns: str) -> Iterator[ast.stmt]:
    answer = function.returns
    assert isinstance(answer, ast.Subscript), f"{function.name} makes no Request[…]"
    answers = _alternatives(answer.slice)
    if len(answers) == 1:
        yield _method(function, function.args, answers[0], awaited, returns)
        return
    for count, one in enumerate(answers):
        arguments = _named(function.args, count)
        yield _method(function, arguments, one, awaited, returns, overload=count + 1)
    yield _method(function, function.args, answer.slice, awaited, returns, overload=len(answers))


def _alternatives(answer: ast.expr) -> list[ast.expr]:
    if isinstance(answer, ast.BinOp):
        return [*_alternatives(answer.left), answer.right]
    return [answer]


def _named(arguments: ast.arguments, count: int) -> ast.arguments:
    """With `count` of the optional names given, and the others left out."""
    arguments = copy.deepcopy(arguments)
    optional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    for place, each in enumerate(optional):
        each.annotation = ast.Name("str" if place < count else "None")
    arguments.defaults = arguments.defaults[count:]
    return arguments


def _method(
    function: ast.FunctionDef,
    arguments: ast.arguments,
    answer: ast.expr,
    awaited: bool,
    returns: str,
    overload: int = 0,
) -> ast.stmt:
    arguments = copy.deepcopy(arguments)
    (arguments.posonlyargs or arguments.args).insert(0, ast.arg("self"))
    arguments.kw_defaults = [
        ast.Constant(...) if isinstance(default, ast.Name) else default
        for default in arguments.kw_defaults
    ]
    kind = ast.AsyncFunctionDef if awaited else ast.FunctionDef
    return kind(
        function.name,
        arguments,
        [function.body[0] if overload < 2 else ast.Expr(ast.Constant(...))],  # it is said once
        [ast.Name("overload")] if overload else [],
        ast.parse(returns.format(ast.unparse(answer)), mode="eval").body,
    )


if __name__ == "__main__":
    STUB.write_text(ast.unparse(made()) + "\n")
