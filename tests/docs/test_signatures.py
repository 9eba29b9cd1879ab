"""What `help` says of the clients is what the functions say that make the requests."""

from __future__ import annotations

import inspect

import pytest

import zbus.client
from zbus.client import commands

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


NOT_METHODS = {"encode_offsets", "route", "unconsume"}  # parts, and what has no answer
MADE = [
    name
    for name in commands.__all__
    if inspect.isfunction(getattr(commands, name)) and name not in NOT_METHODS
]


@pytest.mark.parametrize("name", MADE)
def test_both_clients_have_the_same_methods(name: str) -> None:
    blocking, other = (getattr(c, name) for c in CLASSES[:2])
    assert blocking.__doc__ == other.__doc__ == getattr(commands, name).__doc__
    assert inspect.signature(blocking) == inspect.signature(other)
    assert inspect.iscoroutinefunction(other)


def test_pipelines_have_the_same_methods() -> None:
    names = [{n for n in vars(c) if not n.startswith("_")} for c in CLASSES[2:4]]
    assert names[0] == names[1] > {"produce", "produce_many", "ack", "nack", "extend", "call"}
