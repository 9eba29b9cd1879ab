"""What editors see of the clients is what the functions say that make the requests."""

from __future__ import annotations

import ast
import inspect

import pytest

import zbus.client
from tests.docs.signatures import STUB, made
from zbus.client import methods


def plain(tree: ast.Module) -> str:
    """Without the indentation of texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    return ast.dump(tree)


def test_the_stub_is_made_of_the_functions() -> None:
    again = ast.parse(ast.unparse(made()))
    assert plain(ast.parse(STUB.read_text())) == plain(again), "python -m tests.docs.signatures"


CLASSES = [
    zbus.client.BlockingClient,
    zbus.client.Client,
    zbus.client.Pipeline,
    zbus.client.AsyncPipeline,
    zbus.client.Consumer,
    zbus.client.AsyncConsumer,
    zbus.client.Held,
    zbus.client.AsyncHeld,
    zbus.client.Service,
    zbus.client.Watcher,
    zbus.client.AsyncWatcher,
    zbus.client.Pending,
    zbus.client.AsyncPending,
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_public_method_says_what_it_does(kind: type) -> None:
    silent = [
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and (not member.__doc__ or inspect.signature(member).return_annotation is inspect._empty)
    ]
    assert silent == []


def test_both_clients_have_the_same_methods() -> None:
    for name in methods.ALWAYS:
        blocking, other = (getattr(c, name) for c in CLASSES[:2])
        assert blocking.__doc__ == other.__doc__
        assert inspect.signature(blocking) == inspect.signature(other)
