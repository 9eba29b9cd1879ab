"""Other brokers beside which this one is measured, each on a free port with files of its own.

Redis and NATS come from the system's packages. The original, zbus 0.11.5, runs from a folder with
its archive and what that needs, as `make stock-clients` brings it.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.measure import HERE, Server
from tests.semq.shell import free_port

ORIGINAL_FOLDER = HERE.parent.parent / ".venv/stock/java"
JAVA = ("java", "-Xms64m", "-Xmx1024m", "-XX:+UseParallelGC")  # as its start script has it
CONFIGURATION = """<?xml version="1.0" encoding="UTF-8"?>
<zbus>
  <serverHost>127.0.0.1</serverHost><serverPort>{port}</serverPort><monitor enabled="true"/>
  <mqPath>{folder}</mqPath>
</zbus>
"""


@contextmanager
def started(command: Sequence[str], ready: str, port: int) -> Iterator[Server]:
    """The server of this command, once it has printed that it is ready."""
    out = subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while ready not in printed:
                line = process.stdout.readline()
                assert line, f"{command[0]} ended: {printed}"
                printed += line
            # What it prints from now on is of no use, but a full pipe would stop it.
            reading = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
            reading.start()
            yield Server(port, process.pid)
        finally:
            process.kill()  # what it stored goes with its folder
        reading.join()


@contextmanager
def redis_server(folder: Path, fsync: str) -> Iterator[Server]:
    """A Redis with an append-only file."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = ["redis-server", "--port", str(port), "--dir", str(folder), "--save", ""]
    command += ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", fsync]
    with started(command, "Ready to accept connections", port) as server:
        yield server


@contextmanager
def nats_server(folder: Path) -> Iterator[Server]:
    """A NATS server with JetStream. It syncs its files every two minutes."""
    port = free_port()
    command = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    with started(command, "Server is ready", port) as server:
        yield server


@contextmanager
def original(folder: Path, archives: Path) -> Iterator[Server]:
    """zbus 0.11.5. It hands its files to the system, too."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    configuration = folder / "zbus.xml"
    configuration.write_text(CONFIGURATION.format(port=port, folder=folder / "data"))
    command = [*JAVA, "-cp", f"{archives}/*", "io.zbus.mq.server.MqServer"]
    ready = f"Server(127.0.0.1:{port}) started"
    with started([*command, "-conf", str(configuration)], ready, port) as server:
        yield server


def installed(program: str) -> bool:
    """Whether it is there; says so if it is not."""
    found = shutil.which(program) is not None
    if not found:
        print(f"{program} is missing: it is left out")
    return found
