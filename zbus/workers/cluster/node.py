"""The processes of one machine in a cluster of several shards that NATS servers keep.

    edge      answers clients, and passes all on to the owners of shards
    owner     a broker for its shard, and a door for all topics, like the workers of one machine
    spare     owns nothing and answers nobody: it waits to claim a shard that is free

A spare that claims a shard is its owner from then on, and the parent begins another spare. An
owner that loses its shard ends. So a shard moves without a new state in any process.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from itertools import count
from typing import Final

from zbus.config import Config
from zbus.server.exits import (
    EXIT_CANNOT_START,
    EXIT_OK,
    EXIT_TAKEN,
    EXIT_WENT_BACK,
    CannotStart,
)
from zbus.server.process.banner import Where
from zbus.server.process.replicated import Watcher, node_name
from zbus.storage.jetstream.presence import Membership
from zbus.workers import parent
from zbus.workers.cluster.member import AVOID, ENDED, IDLE, Doors, claim
from zbus.workers.cluster.relay import ClusterRoutes, Relay
from zbus.workers.parent import Parent, Process
from zbus.workers.seats import NO_SHARD, READY, Seat
from zbus.workers.server import run_worker

_AVOID_S: Final = 60.0
"""A shard whose stream cannot be served is not claimed again for so long: another node may, and
other shards must not wait behind it. After other failures it is less, and grows."""

_REMEMBER_S: Final = 10.0
"""Spares that begin later need not be told that an owner has ended."""

_CLAIMED: Final = re.compile(rb"C(\d+) (\d+) (\d+)\n")
_LET_GO_S: Final = 2.0
"""An owner that has lost its shard ends within this time, unless it stands still."""

_OWNED: Final = re.compile(rb"O(\d+) (\d+)\n")
_FAILED: Final = re.compile(rb"F(\d+)\n")

log = logging.getLogger("zbus")


class Node(Parent):
    """Raises CannotStart."""

    def prepare(self) -> None:
        (self._edge_doors,) = self.open_doors(1)
        self.shared = self.share(self.config.shards)
        self._relay = Relay.of(self.config)
        self._doors = Doors(self.shared, self._edge_doors, self._relay)
        self._numbers = count(1)
        self._known = b""  # to the spare that claimed a shard last
        self._gone: list[tuple[float, bytes]] = []  # owners that have ended, and when
        self._avoid: dict[int, float] = {}  # until when, by shard
        self._failures: dict[int, Process] = {}  # how often owners have ended lately, by shard
        self._edge = Process(0)
        self._spare = Process(next(self._numbers))  # how often spares have ended lately
        self.processes = [self._spare, self._edge]  # the first one to say what is wrong is a spare

    def where(self) -> Where:
        return Where(self.config.engine, "replicated", "shards", self.config.shards)

    def work(self, process: Process, life: socket.socket, told: int) -> int:
        if process is self._edge:
            watcher = Watcher(self.config)
            seat = Seat(NO_SHARD, self._edge_doors)
            routes = self._routes(watcher.membership)
            return run_worker(self.config, self.shared, seat, life, told, watcher, routes)
        try:
            claimed = claim(self.config, self._doors, life, told, self._avoid, self._known)
        except CannotStart as error:
            print(f"zbus: {error}", file=sys.stderr)
            return error.exit_code
        if claimed is None:
            return EXIT_OK
        seat, engine = claimed
        routes = self._routes(engine.standby.membership)
        return run_worker(self.config, self.shared, seat, life, told, engine, routes)

    def _routes(self, membership: Membership) -> ClusterRoutes:
        config = self.config
        node = node_name(config)
        return ClusterRoutes(node, self.shared.paths, membership, self._relay, config.hold_ms)

    def heard(self, process: Process, said: bytes) -> None:
        process.said += said
        claimed = _CLAIMED.search(process.said)
        if claimed is not None:
            end = claimed.end() + int(claimed[3])
            if len(process.said) < end:
                return
            process.shard, process.epoch = int(claimed[1]), int(claimed[2])
            self._known = process.said[claimed.end() : end]
            process.said = process.said[: claimed.start()] + process.said[end:]
            self._end_former_owner(process)
            self._keep_spares()
        if b"C" in process.said:
            return
        for owned in _OWNED.finditer(process.said):
            self._lost(int(owned[1]), int(owned[2]))
        failed = _FAILED.search(process.said)
        if failed is not None:
            self._avoid_for(int(failed[1]), _AVOID_S)
        if not process.ready and (IDLE in process.said or READY in process.said):
            process.ready = True
            for line in self._ended_lately():
                _tell(process, line)
        process.said = b""

    def _end_former_owner(self, process: Process) -> None:
        """One of this node that stands still, or does not know yet that it lost its shard: it must
        let go of its sockets, and says nothing true any more."""
        for other in self.processes:
            if other.shard == process.shard and other is not process and other.pid:
                self._kill(other)

    def _kill(self, process: Process) -> None:
        log.warning("a former owner is killed", extra={"shard": process.shard})
        os.kill(process.pid, signal.SIGKILL)

    def _lost(self, shard: int, epoch: int) -> None:
        """The shard has this owner, of whatever node."""
        for process in self.processes:
            if process.shard == shard and process.epoch < epoch and not process.lost_s:
                process.lost_s = time.monotonic()

    def _hear(self) -> None:
        super()._hear()
        for process in self.processes:
            if process.pid and 0 < process.lost_s < time.monotonic() - _LET_GO_S:
                self._kill(process)  # its clients would wait for it

    def _avoid_for(self, shard: int, pause_s: float) -> None:
        """No spare of this node claims it for so long."""
        until_s = self._avoid[shard] = time.monotonic() + pause_s
        self._tell_spares(AVOID % (shard, int(until_s * 1_000)))

    def _tell_spares(self, line: bytes) -> None:
        for other in self.processes:
            if other.shard == NO_SHARD and other.pid and other is not self._edge:
                _tell(other, line)

    def _ended_lately(self) -> list[bytes]:
        """Owners, as spares are told of them."""
        since_s = time.monotonic() - _REMEMBER_S
        self._gone = [(at_s, line) for at_s, line in self._gone if at_s > since_s]
        return [line for _, line in self._gone]

    def replace(self, process: Process, code: int) -> None:
        if process is self._edge:
            super().replace(process, code)
            return
        now_s = time.monotonic()
        shard = process.shard
        self.processes.remove(process)
        if shard != NO_SHARD:
            if code in (EXIT_CANNOT_START, EXIT_WENT_BACK):
                self._avoid_for(shard, _AVOID_S)
            elif code not in (EXIT_OK, EXIT_TAKEN):
                failures = self._failures.setdefault(shard, Process(shard))
                self._avoid_for(shard, failures.put_off(now_s))
            line = ENDED % (shard, process.epoch)
            self._gone.append((now_s, line))
            self._tell_spares(line)
        fields = {"shard": shard, "code": code}
        if shard == NO_SHARD and code:
            log.error("a spare process has ended", extra={"code": code})
        elif code == EXIT_TAKEN:
            log.warning("an owner has lost its shard, or its NATS servers", extra=fields)
        elif code:
            log.error("the owner of a shard has ended", extra=fields)
        self._keep_spares(self._spare.put_off(now_s) if code else 0.0)

    def _keep_spares(self, pause_s: float = 0.0) -> None:
        """Begin as many as there should be."""
        idle = [each for each in self.processes if each.shard == NO_SHARD]
        for _ in range(len(idle) - 1, self.config.spares):  # the edge is one of them
            self.processes.append(Process(next(self._numbers), begin_s=time.monotonic() + pause_s))


def _tell(process: Process, line: bytes) -> None:
    with suppress(OSError):  # it has ended, or takes nothing: it finds out later
        os.write(process.status, line)


def run(config: Config) -> int:
    """Run a node; returns the exit code of the process."""
    return parent.run(config, Node)
