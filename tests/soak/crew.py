"""What a run consists of: a broker, a watch, brisk clients and attackers, each a process.

All of them end with what started them: clients and attackers when their standard input ends, and
the broker is stopped by its id.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests import forked
from tests.authority import write_files
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe
from tests.soak.attack import declares
from tests.soak.attacks import ATTACKS
from tests.soak.figures import Figures
from tests.soak.watch import Watch

PERIOD_MS: Final = 5.0  # of a brisk client's rounds
SILENT_S: Final = 1.0  # who reports four times a second, and not for so long, waits for a reply
RESTORE_S: Final = 20 * WAIT_S  # a broker that the attackers left may still do what they asked for
# What is cached on purpose is small, so that what is kept by mistake shows.
OPTIONS: Final = {
    "durability": "os",
    "cache_bytes_max": "2MiB",
    "history_bytes_max": "2MiB",
    "memory_bytes_max": "4MiB",
}


class Child:
    """A process that ends with its standard input."""

    def __init__(self, *arguments: str) -> None:
        self.process = forked.Popen[bytes](
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def end(self) -> None:
        """Ask it to end, and see to it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class BriskClient(Child):
    """`tests.soak.brisk`, and what it said so far."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(
            "tests.soak.brisk",
            "--port",
            str(port),
            "--topic",
            topic,
            "--period-ms",
            str(PERIOD_MS),
        )
        self.samples: list[tuple[float, float]] = []  # began (s), took (ms)
        self.errors: list[tuple[float, str]] = []  # when (s), what
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.samples += [(began, took) for began, took in said["samples"]]
            self.errors += [(at, text) for at, text in said["errors"]]

    def end(self) -> None:
        super().end()
        self._listener.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def under_way(self, begin_s: float, end_s: float) -> list[float]:
        """What each operation took that was under way in this time, in milliseconds; of one that
        is not over, what it took so far."""
        found = [
            took_ms
            for began_s, took_ms in self.samples
            if began_s < end_s and began_s + took_ms / 1e3 > begin_s
        ]
        began_s, took_ms = self.samples[-1] if self.samples else (begin_s, 0.0)
        silent_since_s = began_s + took_ms / 1e3
        if silent_since_s < end_s - SILENT_S:
            found.append((time.monotonic() - silent_since_s) * 1e3)
        return found

    def forget(self, before_s: float) -> None:
        """Operations that ended before then."""
        ended = 0
        for began_s, took_ms in self.samples:
            if began_s + took_ms / 1e3 >= before_s:
                break
            ended += 1
        del self.samples[:ended]

    def wait_past(self, moment_s: float) -> None:
        """Until everything is told that was under way then; an error if that does not come."""
        deadline = time.monotonic() + WAIT_S
        while not (self.samples and self.samples[-1][0] > moment_s):
            if self.process.poll() is not None:
                return self.errors.append((time.monotonic(), "the client itself ended"))
            if time.monotonic() > deadline:
                return self.errors.append((deadline, "the client still waits for a reply"))
            pause(0.05)


class Attackers(Child):
    """`tests.soak.driver`: connections of one kind, ready to begin."""

    def __init__(self, stage: Stage, name: str, connections: int) -> None:
        super().__init__(
            "tests.soak.driver",
            name,
            "--connections",
            str(connections),
            "--port",
            str(stage.broker.port),
            "--secure-port",
            str(stage.secure_port),
        )
        assert self.process.stdout is not None
        self.did: dict[str, Any] = {}  # in the end
        assert self.process.stdout.readline() == b"ready\n"

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"g")

    def end(self) -> None:
        super().end()
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        self.process.stdout.close()
        assert self.process.returncode == 0, "attackers failed; they have said why"
        self.did = json.loads(said)


class Stage:
    """A broker that is watched, and its brisk clients."""

    def __init__(self, folder: Path, clients: int, options: dict[str, str]) -> None:
        files = write_files(folder)
        self._exits = ExitStack()
        given = [f"{name}={value}" for name, value in {**OPTIONS, **options}.items()]
        self.broker = self._exits.enter_context(
            BrokerProcess(
                folder / "data",
                "--listen",
                "http://127.0.0.1:0",
                "--listen",
                "https://127.0.0.1:0",
                "--tls-cert-file",
                str(files.certificate),
                "--tls-key-file",
                str(files.key),
                *[word for option in given for word in ("--set", option)],
            )
        )
        self._prepared: set[Callable[[Pipe], None]] = set()
        self.clients: list[BriskClient] = []
        try:
            self.secure_port = self._find_secure_port()
            self.watch = self._exits.enter_context(Watch(self.broker.process.pid))
            for number in range(clients):
                self._add_client(f"brisk{number}")
        except BaseException:
            self._exits.close()
            raise

    def _find_secure_port(self) -> int:
        deadline = time.monotonic() + WAIT_S
        while not (found := re.search(r"https://127.0.0.1:(\d+)", self.broker.log())):
            assert time.monotonic() < deadline, self.broker.log()
            pause(0.01)
        return int(found[1])

    def _add_client(self, topic: str) -> None:
        with Pipe(self.broker.port) as pipe:
            declares(f"{topic}?partitions=2&durability=os&retention_done=true")(pipe)
        client = BriskClient(self.broker.port, topic)
        self._exits.callback(client.end)
        self.clients.append(client)

    def prepare(self, name: str) -> None:
        """Make what this attack needs, once."""
        prepare = ATTACKS[name].prepare
        if prepare is not None and prepare not in self._prepared:
            self._prepared.add(prepare)
            with Pipe(self.broker.port) as pipe:
                prepare(pipe)

    @contextmanager
    def attack(self, name: str, connections: int) -> Iterator[Attackers]:
        """While this is open, they attack."""
        attackers = Attackers(self, name, connections)
        try:
            attackers.begin()
            yield attackers
        finally:
            attackers.end()
        restore = ATTACKS[name].restore
        if restore is not None and self.alive:
            with Pipe(self.broker.port, RESTORE_S) as pipe:
                restore(pipe, connections)

    def figures(self, begin_s: float, end_s: float) -> Figures:
        """Of all brisk clients, of what was under way in this time."""
        took = [ms for client in self.clients for ms in client.under_way(begin_s, end_s)]
        return Figures.of(took, PERIOD_MS)

    def errors(self, begin_s: float = 0.0, end_s: float = math.inf) -> list[str]:
        return [
            text
            for client in self.clients
            for at_s, text in client.errors
            if begin_s <= at_s <= end_s
        ]

    def forget(self, before_s: float) -> None:
        """What ended before is not asked for any more."""
        for client in self.clients:
            client.forget(before_s)
        self.watch.forget(before_s)

    @property
    def alive(self) -> bool:
        return self.broker.process.poll() is None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()


def pause(seconds: float) -> None:
    """Let the others work."""
    threading.Event().wait(seconds)
