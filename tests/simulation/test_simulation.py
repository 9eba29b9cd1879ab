"""The broker under the simulation: many seeds, the same run twice, and bugs that must be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.limits import WAIT_S, checked
from tests.simulation.model import Violation
from tests.simulation.seeds import main, run_seed
from tests.simulation.simulation import Simulation
from zbus.core.broker import Broker
from zbus.core.cursor import journal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import EntryState, StateChange
from zbus.core.model.chunk import Chunk
from zbus.core.model.ticket import Ticket
from zbus.core.persistence.storage import Storage
from zbus.core.topics.topic import Partition, Topic
from zbus.core.verbs.puts import PLAIN, PutOptions, Puts
from zbus.storage.local.engine import LocalJournal
from zbus.storage.port import ALL_DURABLE, CommitDone, Lane

SEEDS = 200
QUICK = 6


@pytest.mark.parametrize("seed", [*range(QUICK), *checked(range(QUICK, SEEDS))])
def test_what_is_promised_holds(seed: int) -> None:
    assert run_seed(seed).problem == ""


@pytest.mark.parametrize(
    "seed", [802038, 802394, 803344, 803413, 801385, 809904, 803654, 809282, 832746]
)
def test_what_has_failed_once(seed: int) -> None:
    """The first four: Adf over HTTP redelivered a message within its lease when the connection
    closed before later replies were sent. The next two were mistakes of the book: the recovery of a
    partition ends leases, and then `clear` may remove those messages. Then: a
    message reused the offset of one that a power cut removed, and was acknowledged instead; and a
    put was answered before its directory was synced, while its topic was removed. The last: a
    request that was repeated while its partition was read again got no answer."""
    assert run_seed(seed).problem == ""


def test_a_seed_is_one_run() -> None:
    """Also where hashes of strings differ."""
    code = (
        "from tests.simulation.simulation import Simulation\n"
        "for seed in range(2):\n"
        "    simulation = Simulation(seed, 60)\n"
        "    simulation.run()\n"
        "    print(simulation.digest)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    (output,) = outputs
    assert len(set(output.split())) == 2


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalJournal, "commit", _commit_without_sync)
    seed = caught_by()
    found = []
    for _ in range(2):
        with pytest.raises(Violation) as caught:
            Simulation(seed).run()
        found.append(str(caught.value))
    assert found[0] == found[1]
    first, *trace, last = found[0].splitlines()
    assert first.startswith(f"seed {seed}, step ")
    assert 10 < len(trace) <= 30
    assert last == f"again: python -m tests.simulation --seed {seed} --steps 250"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "5", "--steps", "60", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 of 2 seeds in ")
    assert out.endswith("failed: none\n")


# -- bugs that were planted ------------------------------------------------------------------------


def caught_by(seeds: int = SEEDS) -> int:
    """The first seed that fails."""
    for seed in range(seeds):
        if run_seed(seed).problem:
            return seed
    raise AssertionError(f"not found by {seeds} seeds")


def _commit_without_sync(
    self: LocalJournal, lanes: list[Lane], synced: bool, done: CommitDone
) -> None:
    done(ALL_DURABLE)


def _apply_without_acks(backlog: Backlog, offset: int, state: int, *rest: int) -> None:
    if state != EntryState.DONE:
        _apply_entry(backlog, offset, state, *rest)


def _restore_too_far(self: Broker, topic: Topic) -> None:
    for group in topic.groups.values():
        for backlog, partition in zip(group.backlogs, topic.partitions, strict=True):
            if backlog.in_order and backlog.cursor < partition.end:
                backlog.cursor += 1
    _restore(self, topic)


def _write_visible(
    self: Storage,
    partition: Partition,
    chunk: Chunk | None,
    change: StateChange | None,
    now_ms: int,
) -> bool:
    written = _write(self, partition, chunk, change, now_ms)
    partition.visible = partition.end
    return written


def _put_early(
    self: Puts, partition: Partition, ticket: Ticket, chunk: Chunk, options: PutOptions = PLAIN
) -> None:
    if chunk.due is not None:
        chunk.due = [due_ms and due_ms - 5 for due_ms in chunk.due]
    _put_all(self, partition, ticket, chunk, options)


def _lease_short(self: Backlog, offset: int, deadline_ms: int) -> int:
    return _lease(self, offset, deadline_ms - 20)


_apply_entry, _lease = journal.apply_entry, Backlog.lease
_restore, _put_all, _write = Broker._restore, Puts.put_all, Storage.write

BUGS: list[tuple[object, str, Callable[..., object]]] = [
    (LocalJournal, "commit", _commit_without_sync),
    (journal, "apply_entry", _apply_without_acks),
    (Broker, "_restore", _restore_too_far),
    (Storage, "write", _write_visible),
    (Puts, "put_all", _put_early),
    (Backlog, "lease", _lease_short),
]


@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=[bug.__name__ for _, _, bug in BUGS])
def test_a_planted_bug_is_found(
    owner: object, name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    caught_by()
