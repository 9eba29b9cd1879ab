"""Faults of three NATS servers and of the connections to and between them.

Each broker reaches the servers through proxies of its own, and so does each server the others.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from tests.process.nats import NatsCluster
from tests.process.networks import LOOPBACK
from tests.process.tcp_proxies import TcpProxies
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.stream import Messages, Stored
from zbus.storage.jetstream.subjects import Subjects
from zbus.testing.engines import Bench

SERVERS: Final = range(3)
HEALTHY_S: Final = 90.0
SETTLED_S: Final = 5.0
"""A replica gives an entry out when it hears that it is committed: with the next heartbeat."""
READ_S: Final = 20.0
_PORTION: Final = 1_000, 4 << 20


class FaultyCluster(NatsCluster):
    """Three servers, of which `cut`, `silent` and `delay` (`tcp_proxies`) can be asked. `host` is
    where brokers reach this machine."""

    def __init__(
        self,
        folder: Path,
        brokers: Sequence[str],
        cluster: str,
        chance: Random,
        host: str = LOOPBACK,
    ) -> None:
        super().__init__(folder)
        self.brokers = brokers
        self.subjects = Subjects(cluster)
        self.chance = chance
        targets = {f"{name}{n}": port for name in brokers for n, port in enumerate(self.ports)}
        for one in SERVERS:
            others = [other for other in SERVERS if other != one]
            targets |= {f"{one}-{other}": self.routes[one][other] for other in others}
        self.proxies = TcpProxies(targets, host)
        for one in SERVERS:
            ports = self.proxies.ports
            self.routes[one] = [ports[name] for name in ports if name.startswith(f"{one}-")]

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self.proxies.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.proxies.__exit__(kind, error, trace)

    def ports_for(self, broker: str) -> list[int]:
        """Where this broker reaches the servers."""
        return [self.proxies.ports[f"{broker}{number}"] for number in SERVERS]

    # -- faults, each with its end --------------------------------------------------------------

    def make(self, kind: str) -> None:
        """Make one of `FAULTS`, and end it."""
        FAULTS[kind](self)

    def _kill(self, servers: Sequence[int]) -> None:
        for number in servers:
            self.kill(number)
        self._wait()
        for number in servers:
            self.start(number)

    def _stop(self, servers: Sequence[int]) -> None:
        for number in servers:
            self.signal(number, signal.SIGSTOP)
        self._wait()
        for number in servers:
            self.signal(number, signal.SIGCONT)

    def _isolate(self, servers: Sequence[int]) -> None:
        """Brokers still reach them, but other servers do not."""
        names = [f"{one}-{other}" for one in SERVERS for other in SERVERS if one != other]
        self._set("silent", [name for name in names if {int(name[0]), int(name[2])} & {*servers}])

    def _connections(self, how: str) -> None:
        """Those of one broker or of all."""
        few = self.chance.choice([[name] for name in self.brokers] + [list(self.brokers)])
        self._set(how, [f"{name}{number}" for name in few for number in SERVERS])

    def _set(self, how: str, names: Sequence[str]) -> None:
        self.proxies.set(how, names)
        self._wait()
        self.proxies.set("pass", names)

    def _wait(self) -> None:
        time.sleep(self.chance.uniform(3.0, 6.0))

    def the_leader(self) -> list[int]:
        return [self.wait_until_healthy()]

    def two(self) -> list[int]:
        return self.chance.sample(SERVERS, 2)

    # -- looking ------------------------------------------------------------------------------

    def wait_until_healthy(self) -> int:
        """Until all replicas have the whole stream; the number of its leader."""
        deadline_s = time.monotonic() + HEALTHY_S
        while time.monotonic() < deadline_s:
            answer = self.ask(f"STREAM.INFO.{self.subjects.stream}")
            cluster = None if answer is None else answer.cluster
            if cluster is not None and cluster.leader:
                current = [one for one in cluster.replicas if one.current and not one.offline]
                if len(current) == len(SERVERS) - 1:
                    return int(cluster.leader[1:])
            time.sleep(0.1)
        raise TimeoutError(f"the stream is not healthy after {HEALTHY_S} s: see {self.folder}")

    def replicas(self) -> list[list[Stored]]:
        """What each server has of the stream, read while the others are down."""
        found = []
        for number in SERVERS:
            self.wait_until_healthy()
            time.sleep(SETTLED_S)
            last = self._last()
            others = [other for other in SERVERS if other != number]
            for other in others:
                self.kill(other)
            found.append(self._read(number, last))
            for other in others:
                self.start(other)
        self.wait_until_healthy()
        return found

    def _last(self) -> int:
        answer = self.ask(f"STREAM.INFO.{self.subjects.stream}")
        assert answer is not None
        assert answer.state is not None
        return answer.state.last_seq

    def _read(self, number: int, last: int) -> list[Stored]:
        """All up to sequence `last`, or what this server gives out within `READ_S`."""
        bench, found, got = Bench(), list[Stored](), list[Messages | object]()
        access = self.access()
        access = type(access)([access.servers[number]])
        stream = NatsStream(NatsClient(access, bench.post), self.subjects.stream)
        deadline_s = time.monotonic() + READ_S
        while (not found or found[-1].sequence < last) and time.monotonic() < deadline_s:
            got.clear()
            begin = found[-1].sequence + 1 if found else 1
            stream.read(self.subjects.all, begin, *_PORTION, got.append)
            bench.run_until(lambda: got)
            if isinstance(got[0], Messages):
                found += got[0].found
            else:
                time.sleep(0.1)
        stream.close()
        return found


def differences(replicas: Sequence[Sequence[Stored]]) -> list[str]:
    """What of the servers' copies of the stream is not alike."""
    found = []
    first, *others = [{one.sequence: (one.subject, one.body) for one in log} for log in replicas]
    for number, other in enumerate(others, 1):
        places = [at for at in sorted(first | other) if first.get(at) != other.get(at)]
        if places:
            text = f"differs from server 0 in {len(places)} messages, first at {places[0]}"
            found.append(f"server {number} ends at {max(other, default=0)} and {text}")
    return found


LEADER_KILLED: Final = "leader killed"
OTHER_FAULTS: Final[dict[str, Callable[[FaultyCluster], None]]] = {
    "leader stopped": lambda cluster: cluster._stop(cluster.the_leader()),
    "leader isolated": lambda cluster: cluster._isolate(cluster.the_leader()),
    "connections cut": lambda cluster: cluster._connections("cut"),
    "connections silent": lambda cluster: cluster._connections("silent"),
    "connections delayed": lambda cluster: cluster._connections("delay"),
}
MAJORITY_FAULTS: Final[dict[str, Callable[[FaultyCluster], None]]] = {
    "majority killed": lambda cluster: cluster._kill(cluster.two()),
    "majority stopped": lambda cluster: cluster._stop(cluster.two()),
    "majority isolated": lambda cluster: cluster._isolate(cluster.two()),
}
FAULTS: Final[dict[str, Callable[[FaultyCluster], None]]] = {
    LEADER_KILLED: lambda cluster: cluster._kill(cluster.the_leader()),
    **OTHER_FAULTS,
    **MAJORITY_FAULTS,
}
