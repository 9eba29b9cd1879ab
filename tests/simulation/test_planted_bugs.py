"""A campaign that finds nothing is worth something only if it finds what is there to be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.simulation.crash_states import WorldFailure, campaign
from tests.simulation.stack import Stack
from zbus.core.cursor.state import StateChange
from zbus.core.persistence import storage as writer
from zbus.core.topics.delta import snapshot
from zbus.core.topics.topic import Partition
from zbus.storage.format import batch
from zbus.storage.local import segment
from zbus.storage.port import ALL_DURABLE, CommitDone, Lane

STATES = 10_000


def acknowledge_before_the_sync(stack: Stack) -> None:
    commit = stack.journal.commit

    def early(lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        commit(lanes, synced, lambda _: None)
        done(ALL_DURABLE)

    stack.journal.commit = early  # type: ignore[method-assign]


def forget_the_names(stack: Stack) -> None:
    """Directories are not synced."""

    def nothing(path: Path) -> None:
        pass

    stack.disk.sync_directory = nothing  # type: ignore[method-assign]
    stack.disk.sync_all = lambda file: False  # type: ignore[method-assign]


def forget_the_content(stack: Stack) -> None:
    """Files are not synced."""

    def nothing(file: int) -> None:
        pass

    stack.disk.sync = nothing  # type: ignore[method-assign]
    stack.disk.sync_all = lambda file: False  # type: ignore[method-assign]


SABOTEURS = [acknowledge_before_the_sync, forget_the_names, forget_the_content]


@pytest.mark.parametrize("prepare", SABOTEURS, ids=lambda prepare: prepare.__name__)
def test_a_broker_that_promises_too_much(prepare: Callable[[Stack], None]) -> None:
    with pytest.raises(
        WorldFailure, match=r"lost|does not give|is READY|ends at|was settled|was removed"
    ):
        campaign(STATES, seed=1, prepare=prepare)


def test_a_checksum_that_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(*anything: Any) -> bool:
        return True

    monkeypatch.setattr(segment, "is_intact", whole)
    monkeypatch.setattr(batch, "is_intact", whole)
    with pytest.raises(WorldFailure):
        campaign(STATES, seed=1)


def test_a_checkpoint_without_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(partition: Partition, now_ms: int) -> StateChange:
        whole = snapshot(partition, now_ms)
        return attrs.evolve(whole, groups=()) if partition.stored.segment_bytes else whole

    monkeypatch.setattr(writer, "snapshot", forgetful)
    with pytest.raises(WorldFailure):
        campaign(STATES, seed=1)
