"""Removing what an archive does not need any more, and what runs that were killed have left.

* A snapshot, or a commit below one, goes when a newer snapshot is older than the given age: no
  reader begins there any more.
* A data file goes when no record that is left names it, and it was written before that age.
* What is unfinished goes when it was begun before that age.

Files are listed before records are read: what is committed meanwhile is not taken for forgotten.
So the age must be more than any run, and any reader, takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from zbus.spark.archive import layout as names
from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import names_in

AGE_MS = 24 * 3_600_000
AGE_MS_LEAST = 3_600_000


@attrs.define
class Vacuumed:
    """What was removed, or is to be: paths below the root."""

    data: list[str] = attrs.Factory(list)
    records: list[str] = attrs.Factory(list)
    unfinished: list[str] = attrs.Factory(list)
    foreign: list[str] = attrs.Factory(list)  # not of this program: left


def vacuum(chains: Chains, before_ms: int, *, dry_run: bool = False) -> Vacuumed:
    """Remove what is older and not needed. Raises Unverified: then it is unknown what is needed."""
    found = Vacuumed()
    candidates = list(_data(chains, before_ms, found))
    needed: set[str] = set()
    for topic, partition in chains.lanes():
        needed |= _records(chains, topic, partition, before_ms, found)
    found.data = [path for path in candidates if path not in needed]
    if not dry_run:
        for path in [*found.records, *found.data]:
            with suppress(FileNotFoundError):
                chains.files.remove(chains.root / path)
    _unfinished(chains, before_ms, found, dry_run)
    return found


def _data(chains: Chains, before_ms: int, found: Vacuumed) -> Iterator[str]:
    """Data files of that age."""
    for topic in names_in(chains.files, chains.root):
        if not names.is_topic_directory(topic):
            continue
        for date in names_in(chains.files, chains.root / topic):
            for name in names_in(chains.files, chains.root / topic / date):
                attempt = names.attempt_of(name)
                path = f"{topic}/{date}/{name}"
                if attempt is None or not names.is_date_directory(date):
                    found.foreign.append(path)
                elif attempt.time_ms < before_ms:
                    yield path


def _records(
    chains: Chains, topic: str, partition: int, before_ms: int, found: Vacuumed
) -> set[str]:
    """Adds the records of a lane that may go; gives the files that those that stay name."""
    numbers = chains.numbers(names.SNAPSHOTS, topic, partition)
    snapshots = [chains.snapshot(topic, partition, number) for number in numbers]
    old = [snapshot for snapshot in snapshots if snapshot.time_ms < before_ms]
    floor = old[-1] if old else None
    needed: set[str] = set()
    for snapshot in snapshots:
        if floor is not None and snapshot.number < floor.number:
            path = chains.directory(names.SNAPSHOTS, topic, partition)
            found.records.append(_below(chains, path / names.record_name(snapshot.number)))
        else:
            needed.update(file.path for file in snapshot.lane.files)
    for position in chains.numbers(names.COMMITS, topic, partition):
        if floor is not None and position < floor.lane.position:
            path = chains.directory(names.COMMITS, topic, partition)
            found.records.append(_below(chains, path / names.record_name(position)))
        else:
            commit = chains.commit(topic, partition, position)
            needed.update(file.path for file in commit.files)
    chains.read(topic, partition)  # raises
    return needed


def _below(chains: Chains, path: Path) -> str:
    return path.relative_to(chains.root).as_posix()


def _unfinished(chains: Chains, before_ms: int, found: Vacuumed, dry_run: bool) -> None:
    root = chains.root / names.UNFINISHED
    for name in names_in(chains.files, root):
        attempt = names.attempt_of(name)
        if attempt is None:
            found.foreign.append(f"{names.UNFINISHED}/{name}")
            continue
        if attempt.time_ms >= before_ms:
            continue
        left = [f"{name}/{each}" for each in names_in(chains.files, root / name)]
        found.unfinished += [f"{names.UNFINISHED}/{each}" for each in left or [name]]
        if not dry_run:
            for each in [*left, name]:
                with suppress(OSError):
                    chains.files.remove(root / each)
