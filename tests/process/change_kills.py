"""A kill campaign of changes: `kill -9` a broker while it changes topics and moves messages.

    python -m tests.process.change_kills --cycles 300 --seed 1      (make crash-changes)

One data directory lives through all cycles. Two things go on until the broker is killed at some
moment:

* Groups of a topic of 64 partitions, and the topic, are made, put elsewhere, changed, paused,
  emptied and removed, one after the other. The next broker must show what the last answer said, or
  what the unanswered request would have made of it: nothing between. What is compared is each
  message of each partition that a group has not finished, so a change that reached only some
  partitions shows: a message that comes back, an ack that is forgotten, a group that stands
  elsewhere in one of them.
* Messages move from topic to topic: dead letters, redriving, and results that acknowledge their
  source (`tests.process.change_moves`).

Now and then a broker is killed just after its start, when it finishes what the one before began.
The first violation ends the run, names seed and cycle, and the data directory is kept. The seed
chooses what is done, but a machine's timing is no part of it: a run cannot be repeated exactly.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final
from zlib import crc32

import attrs

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.change_moves import Moves, Place, right, take, unfinished
from tests.process.kill_ledger import Violation
from tests.process.pipe import Pipe, ask, number

PARTITIONS: Final = 64
LEASE_MS: Final = 10_000_000
KILL_MS_MAX: Final = (50, 400)
PAUSED: Final = 8  # the bit in the mask of a group
SEEKS: Final = ("earliest", "latest", "offset", "offset")
CHANGES: Final = (
    "declare",
    "copy",
    "seek",
    "seek",
    "filter",
    "pause",
    "empty group",
    "remove group",
    "replace",
)
ON_TOPICS: Final = ("empty topic", "remove topic")
ON_WORKER: Final = ("seek", "remove group")


def _keys() -> list[str]:
    """A key for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        found.setdefault(crc32(b"%d" % number) % PARTITIONS, str(number))
        number += 1
    return [found[index] for index in range(PARTITIONS)]


KEYS: Final = _keys()

Places = frozenset[Place]


@attrs.frozen
class Standing:
    """Of a group: what it has not finished, and options."""

    left: Places
    filter: str = ""
    paused: bool = False


@attrs.frozen
class Shown:
    """What is seen of the topic; None in its place: there is none."""

    stored: Places  # messages that are not purged, as a new reader gets them
    groups: dict[str, Standing]

    def having(self, name: str, standing: Standing) -> Shown:
        return attrs.evolve(self, groups={**self.groups, name: standing})

    def without(self, name: str) -> Shown:
        groups = {other: group for other, group in self.groups.items() if other != name}
        return attrs.evolve(self, groups=groups)

    def emptied(self) -> Shown:
        none: Places = frozenset()
        groups = {name: attrs.evolve(group, left=none) for name, group in self.groups.items()}
        return Shown(none, groups)

    def parts(self) -> dict[str, Places]:
        return {"stored": self.stored, **{n: group.left for n, group in self.groups.items()}}

    def __str__(self) -> str:
        groups = [
            f"{name}: {len(group.left)} left, {group.filter!r}{', paused' if group.paused else ''}"
            for name, group in sorted(self.groups.items())
        ]
        return f"<{len(self.stored)} stored; {'; '.join(groups)}>"


class Campaign:
    """See above. `checkout` is the folder of another version to be tested."""

    def __init__(
        self,
        data_dir: Path,
        seed: int,
        checkout: Path | None = None,
        program: Sequence[str] = ("zbus",),
    ) -> None:
        self.data_dir = data_dir
        self.checkout = checkout
        self.program = program  # what is started
        self.seed = seed
        self.random = Random(seed)
        self.before: Shown | None = None
        self.after: Shown | None = None
        self.ends: Counter[int] = Counter()  # the next offset of each partition
        self.asked = "nothing"
        self.moves = Moves()
        self.counts: Counter[str] = Counter()

    def run(self, cycles: int) -> dict[str, int]:
        for _ in range(cycles):
            self.counts["cycles"] += 1
            try:
                self._cycle()
            except (Violation, TimeoutError) as found:
                where = f"seed {self.seed}, cycle {self.counts['cycles']}"
                raise Violation(f"{where}: {found}") from found
            if self.counts["cycles"] % 50 == 0:
                print(json.dumps(self.figures()), flush=True)
        return self.figures()

    def figures(self) -> dict[str, int]:
        return dict(self.counts | self.moves.counts)

    def _start(self) -> BrokerProcess:
        options = ("--set", "segment_bytes=65536")
        return BrokerProcess(self.data_dir, *options, program=self.program, checkout=self.checkout)

    def _cycle(self) -> None:
        if self.random.random() < 0.2:
            with self._start() as broker:
                time.sleep(self.random.uniform(0, 0.03))
                broker.kill()
            self.counts["killed after the start"] += 1
        with self._start() as broker, Pipe(broker.port) as pipe:
            self._compare(pipe)
            self.moves.check(pipe)
            self._prepare(pipe)
            over = threading.Event()
            dice = Random(self.random.getrandbits(64))
            clients = self.moves.clients(broker.port, over, dice)
            longest_ms = self.random.choice(KILL_MS_MAX)
            killer = threading.Timer(self.random.uniform(0, longest_ms) / 1000, broker.kill)
            for client in clients:
                client.start()
            killer.start()
            try:
                while self._change(pipe):
                    self.counts["changes"] += 1
            except (ConnectionError, EOFError):
                self.counts["unanswered"] += 1
            killer.join()
            over.set()
            for client in clients:
                client.join(WAIT_S)
                if client.problem is not None:
                    raise client.problem
                if client.is_alive():
                    raise Violation(f"{client} does not end")

    def _compare(self, pipe: Pipe) -> None:
        found = self._look(pipe)
        if found not in (self.before, self.after):
            told = _differences(found, self.before), _differences(found, self.after)
            raise Violation(
                f"{self.asked} half made: {found}, not {self.before} or {self.after}; "
                f"it differs in {told[0]} or {told[1]}"
            )
        self.counts["made" if found == self.after else "not made"] += 1
        self.before = self.after = found

    def _look(self, pipe: Pipe) -> Shown | None:
        reply = pipe.get("/Wide?cmd=query")
        if reply.status == 404:
            return None
        groups = {}
        for one in json.loads(right(reply).body)["consumeGroupList"]:
            name = one["groupName"]
            if name == "Wide":  # every topic has one of its own name
                continue
            left = frozenset(unfinished(pipe, "Wide", f"group_start_copy={name}"))
            if len(left) != one["messageCount"] + one["leasedCount"]:
                raise Violation(f"{name} counts {one}, and {len(left)} are left")
            paused = bool(one["mask"] & PAUSED)
            groups[name] = Standing(left, one.get("filter") or "", paused)
        return Shown(frozenset(unfinished(pipe, "Wide", "from=earliest")), groups)

    def _prepare(self, pipe: Pipe) -> None:
        """There is a topic with messages, and a group with acks that must not be forgotten."""
        shown = self.before
        if shown is None:
            durability = self.random.choice(("os", "disk"))
            target = f"/Wide?cmd=declare&partitions={PARTITIONS}&durability={durability}"
            right(pipe.get(target))
            shown = Shown(frozenset(), {})
            self.ends.clear()
        if len(shown.stored) < 2 * PARTITIONS:
            shown = self._put(pipe, shown)
        if "worker" not in shown.groups:
            target = "/Wide/worker?cmd=declare&from=earliest&ack=true"
            right(pipe.get(f"{target}&group_lease={LEASE_MS}&group_window=999"))
            shown = shown.having("worker", Standing(shown.stored))
        for _ in range(3):
            if self.random.random() < 0.5 and shown.groups["worker"].left:
                shown = self._work(pipe, shown)
        self.before = self.after = shown

    def _put(self, pipe: Pipe, shown: Shown) -> Shown:
        puts = [ask(f"/Wide?cmd=produce&key={key}", b"body") for key in KEYS for _ in range(2)]
        pipe.send(b"".join(puts))
        more = set()
        for _ in puts:
            head = right(pipe.read()).head
            partition, offset = number(head, b"partition"), number(head, b"offset")
            if offset != self.ends[partition]:
                raise Violation(f"Wide/{partition} goes on at {offset}: {self.ends[partition]}")
            self.ends[partition] += 1
            more.add((partition, offset))
        groups = {
            name: attrs.evolve(group, left=group.left | more)
            for name, group in shown.groups.items()
        }
        return Shown(shown.stored | more, groups)

    def _work(self, pipe: Pipe, shown: Shown) -> Shown:
        worker = shown.groups["worker"]
        found = {place for place, _ in take(pipe, "/Wide/worker", 40)}
        if not found <= worker.left:
            raise Violation(f"worker is given {found - worker.left} again")
        asked = [
            ask(f"/Wide/worker?cmd=ack&partition={partition}&offset={offset}")
            for partition, offset in found
        ]
        pipe.send(b"".join(asked))
        for _ in asked:
            right(pipe.read())
        self.counts["acks"] += len(asked)
        return shown.having("worker", attrs.evolve(worker, left=worker.left - found))

    def _change(self, pipe: Pipe) -> bool:
        shown = self.before
        if shown is None:
            return False  # the next cycle makes the topic
        wide = self.random.random() < 0.15
        what = self.random.choice(ON_TOPICS if wide else CHANGES)
        name = self.random.choice(("a", "b", "c", "worker"))
        if name == "worker" and what not in ON_WORKER:
            name = "a"
        target, self.after = self._request(what, name, shown)
        self.asked = target
        right(pipe.get(target))
        self.before = self.after
        self.counts[what] += 1
        return "worker" in self.after.groups if self.after is not None else False

    def _request(self, what: str, name: str, shown: Shown) -> tuple[str, Shown | None]:
        """What is asked for, and what is to become of it."""
        group = f"/Wide/{name}?cmd="
        if what == "empty topic":
            return "/Wide?cmd=empty", shown.emptied()
        if what == "remove topic":
            return "/Wide?cmd=remove", None
        now = shown.groups.get(name)
        if now is None:
            if what in ("copy", "filter", "replace"):
                left = shown.groups["worker"].left
                return f"{group}declare&group_start_copy=worker", shown.having(name, Standing(left))
            start, left = self._start_of(shown)
            return f"{group}declare&from={start}", shown.having(name, Standing(left))
        if what in ("remove group", "replace"):
            return f"{group}remove", shown.without(name)
        if what == "empty group":
            return f"{group}empty", shown.having(name, attrs.evolve(now, left=frozenset()))
        if what == "filter":
            filter = self.random.choice(("a.*", "b.*"))
            target = f"{group}declare&group_filter={filter}"
            return target, shown.having(name, attrs.evolve(now, filter=filter))
        if what == "pause":
            verb = "resume" if now.paused else "pause"
            return group + verb, shown.having(name, attrs.evolve(now, paused=not now.paused))
        start, left = self._start_of(shown)
        if what == "declare":  # it is there, and stays where it is
            return f"{group}declare&from={start}", shown
        return f"{group}seek&from={start}", shown.having(name, attrs.evolve(now, left=left))

    def _start_of(self, shown: Shown) -> tuple[str, Places]:
        """A place in all partitions, and what is left of there."""
        where = self.random.choice(SEEKS)
        if where == "earliest":
            return where, shown.stored
        if where == "latest":
            return where, frozenset()
        firsts = dict(self.ends)
        for partition, offset in shown.stored:
            firsts[partition] = min(firsts[partition], offset)
        starts = [
            self.random.randint(firsts.get(index, 0), self.ends[index])
            for index in range(PARTITIONS)
        ]
        left = frozenset(place for place in shown.stored if place[1] >= starts[place[0]])
        return ",".join(map(str, starts)), left


def _differences(found: Shown | None, expected: Shown | None) -> str:
    """Of which messages, some of them."""
    if found is None or expected is None:
        return "everything"
    mine, others = found.parts(), expected.parts()
    told = []
    for name in mine.keys() & others.keys():
        more, less = sorted(mine[name] - others[name]), sorted(others[name] - mine[name])
        if more or less:
            told.append(f"{name}: {len(more)} more, {more[:5]}, {len(less)} less, {less[:5]}")
    return "; ".join(told) or "groups or options"


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 a broker while it changes topics")
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--checkout", type=Path, help="the folder of another version to be tested")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-changes-"))
    print(f"seed {chosen.seed}, {chosen.cycles} cycles in {folder}", flush=True)
    campaign = Campaign(folder / "data", chosen.seed, chosen.checkout)
    try:
        figures = campaign.run(chosen.cycles)
    except BaseException as problem:
        print(f"after {json.dumps(campaign.figures())}: {problem}", file=sys.stderr)
        print(f"the data directory is kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
