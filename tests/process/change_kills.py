"""A kill campaign of changes: `kill -9` a broker while it changes a topic of 64 partitions.

    python -m tests.process.change_kills --cycles 300 --seed 1      (make crash-changes)

One data directory lives through all cycles. Topics and groups are made, put elsewhere, changed,
emptied and removed, one after the other, until the broker is killed at some moment. The next one
must show what the last answer said, or what the unanswered request would have made of it: nothing
between. The numbers that are compared are those of all partitions together, so a change that
reached only some of them shows: a message that comes back, an ack that is forgotten, a group that
begins with history. The first violation ends the run, and the data directory is kept.
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
from pathlib import Path
from random import Random
from typing import Final
from zlib import crc32

import attrs

from tests.process.broker import BrokerProcess
from tests.process.kill_ledger import Violation
from tests.process.pipe import Pipe, Reply, ask

PARTITIONS: Final = 64
LEASE_MS: Final = 10_000_000
KILL_MS_MAX: Final = 50
CHANGES: Final = ("declare", "copy", "seek", "filter", "empty group", "remove group", "replace")
ON_TOPICS: Final = ("empty topic", "remove topic")


def _keys() -> list[str]:
    """A key for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        found.setdefault(crc32(b"%d" % number) % PARTITIONS, str(number))
        number += 1
    return [found[index] for index in range(PARTITIONS)]


KEYS: Final = _keys()


@attrs.frozen
class Shown:
    """What a query shows of the topic; None in its place: there is none."""

    stored: int  # messages that are not purged, as a new reader would get them
    groups: dict[str, tuple[str, int]]  # filter, and messages that are not done

    def having(self, name: str, filter: str, left: int) -> Shown:
        return attrs.evolve(self, groups={**self.groups, name: (filter, left)})

    def without(self, name: str) -> Shown:
        groups = {other: group for other, group in self.groups.items() if other != name}
        return attrs.evolve(self, groups=groups)

    def emptied(self) -> Shown:
        return Shown(0, {name: (filter, 0) for name, (filter, _) in self.groups.items()})


class Campaign:
    """See above. `checkout` is the folder of another version to be tested."""

    def __init__(self, data_dir: Path, seed: int, checkout: Path | None = None) -> None:
        self.data_dir = data_dir
        self.checkout = checkout
        self.random = Random(seed)
        self.before: Shown | None = None
        self.after: Shown | None = None
        self.asked = "nothing"
        self.counts: Counter[str] = Counter()

    def run(self, cycles: int) -> dict[str, int]:
        for _ in range(cycles):
            self.counts["cycles"] += 1
            self._cycle()
        return dict(self.counts)

    def _cycle(self) -> None:
        broker = BrokerProcess(
            self.data_dir, "--set", "segment_bytes=65536", checkout=self.checkout
        )
        with broker, Pipe(broker.port) as pipe:
            self._compare(pipe)
            self._prepare(pipe)
            killer = threading.Timer(self.random.uniform(0, KILL_MS_MAX) / 1000, broker.kill)
            killer.start()
            try:
                while self._change(pipe):
                    self.counts["changes"] += 1
            except (OSError, EOFError):
                self.counts["unanswered"] += 1
            killer.join()

    def _compare(self, pipe: Pipe) -> None:
        found = self._look(pipe)
        if found not in (self.before, self.after):
            raise Violation(f"{self.asked} half made: {found}, not {self.before} or {self.after}")
        self.counts["made" if found == self.after else "not made"] += 1
        self.before = self.after = found

    def _look(self, pipe: Pipe) -> Shown | None:
        reply = pipe.get("/Wide?cmd=query")
        if reply.status == 404:
            return None
        document = json.loads(_right(reply).body)
        groups = {
            one["groupName"]: (one.get("filter") or "", one["messageCount"] + one["leasedCount"])
            for one in document["consumeGroupList"]
            if one["groupName"] != "Wide"  # every topic has one of its own name
        }
        # The probe begins with the oldest message of each partition.
        _right(pipe.get("/Wide/probe?cmd=declare"))
        _right(pipe.get("/Wide/probe?cmd=seek&from=earliest"))
        probe = json.loads(_right(pipe.get("/Wide/probe?cmd=query")).body)
        _right(pipe.get("/Wide/probe?cmd=remove"))
        return Shown(probe["messageCount"], groups)

    def _prepare(self, pipe: Pipe) -> None:
        """There is a topic with messages, and a group with acks that must not be forgotten."""
        shown = self.before
        if shown is None:
            durability = self.random.choice(("os", "disk"))
            target = f"/Wide?cmd=declare&partitions={PARTITIONS}&durability={durability}"
            _right(pipe.get(target))
            shown = Shown(0, {})
        if shown.stored < 2 * PARTITIONS:
            puts = [ask(f"/Wide?cmd=produce&key={key}", b"body") for key in KEYS for _ in range(2)]
            pipe.send(b"".join(puts))
            for _ in puts:
                _right(pipe.read())
            more = 2 * PARTITIONS
            groups = {name: (filter, left + more) for name, (filter, left) in shown.groups.items()}
            shown = Shown(shown.stored + more, groups)
        if "worker" not in shown.groups:
            target = "/Wide/worker?cmd=declare&from=earliest&ack=true"
            _right(pipe.get(f"{target}&group_lease={LEASE_MS}&group_window=999"))
            shown = shown.having("worker", "", shown.stored)
        for _ in range(3):
            if self.random.random() < 0.5 and shown.groups["worker"][1]:
                shown = self._work(pipe, shown)
        self.before = self.after = shown

    def _work(self, pipe: Pipe, shown: Shown) -> Shown:
        lines = b"accept: application/json\r\n"
        reply = pipe.get("/Wide/worker?cmd=consume&batch=40&timeout=0", lines=lines)
        if reply.status == 204:  # all are leased
            return shown
        found = [(one["partition"], one["offset"]) for one in json.loads(_right(reply).body)]
        asked = [
            ask(f"/Wide/worker?cmd=ack&partition={partition}&offset={offset}")
            for partition, offset in found
        ]
        pipe.send(b"".join(asked))
        for _ in asked:
            _right(pipe.read())
        self.counts["acks"] += len(asked)
        return shown.having("worker", "", shown.groups["worker"][1] - len(asked))

    def _change(self, pipe: Pipe) -> bool:
        shown = self.before
        if shown is None:
            return False  # the next cycle makes the topic
        wide = self.random.random() < 0.15
        what = self.random.choice(ON_TOPICS if wide else CHANGES)
        name = self.random.choice(("a", "b", "c", "worker"))
        if name == "worker" and what != "remove group":
            name = "a"
        target, self.after = self._request(what, name, shown)
        self.asked = f"{what} {name}"
        _right(pipe.get(target))
        self.before = self.after
        return "worker" in self.after.groups if self.after is not None else False

    def _request(self, what: str, name: str, shown: Shown) -> tuple[str, Shown | None]:
        """What is asked for, and what is to become of it."""
        group = f"/Wide/{name}?cmd="
        filter, left = shown.groups.get(name, ("", -1))
        if what == "empty topic":
            return "/Wide?cmd=empty", shown.emptied()
        if what == "remove topic":
            return "/Wide?cmd=remove", None
        if left < 0:
            if what in ("copy", "filter", "replace"):
                target = f"{group}declare&group_start_copy=worker"
                return target, shown.having(name, "", shown.groups["worker"][1])
            return f"{group}declare&from=earliest", shown.having(name, "", shown.stored)
        if what == "remove group" or what == "replace":
            return f"{group}remove", shown.without(name)
        if what == "empty group":
            return f"{group}empty", shown.having(name, filter, 0)
        if what == "filter":
            filter = self.random.choice(("a.*", "b.*"))
            return f"{group}declare&group_filter={filter}", shown.having(name, filter, left)
        if what == "seek":
            return f"{group}seek&from=earliest", shown.having(name, filter, shown.stored)
        return f"{group}declare&from=earliest", shown  # it stays where it is


def _right(reply: Reply) -> Reply:
    if reply.status != 200:
        raise Violation(f"{reply.status}: {reply.body!r}")
    return reply


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 a broker while it changes a topic")
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
        print(f"after {json.dumps(campaign.counts)}: {problem}", file=sys.stderr)
        print(f"the data directory is kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
