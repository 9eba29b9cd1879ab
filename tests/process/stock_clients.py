"""The clients that others wrote for zbus 0.11, where they are at hand, and programs of theirs.

`make stock-clients` brings them into `.venv/stock`; the variables below name others. Nothing of
them is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.limits import WAIT_S

PROGRAMS = Path(__file__).with_name("stock")
STOCK = Path(__file__).parents[2] / ".venv/stock"


class Client(NamedTuple):
    """How to run a session: `command`, then its name, then addresses."""

    name: str
    command: list[str]
    missing: str  # what is not there; empty if all is


def zbuspy() -> Client:
    """The Python client 0.11.3, of PyPI. It runs on Python before 3.9 only."""
    python = shutil.which(os.environ.get("STOCK_ZBUSPY_PYTHON", str(STOCK / "zbuspy/bin/python")))
    missing = (
        "" if python else "no Python older than 3.9 that has zbuspy 0.11.3 (STOCK_ZBUSPY_PYTHON)"
    )
    return Client("zbuspy", [python or "", str(PROGRAMS / "zbuspy_session.py")], missing)


def java() -> Client:
    """The Java client 0.11, with netty and fastjson."""
    path = os.environ.get("STOCK_JAVA_CLASSPATH", str(STOCK / "java/*"))
    program, found = shutil.which("java"), False
    for part in path.split(":"):
        folder = Path(part.removesuffix("/*"))
        found = found or (folder.is_dir() and any(folder.iterdir()))
    missing = "" if program else "no java"
    missing = missing or ("" if found else "no Java client 0.11 (STOCK_JAVA_CLASSPATH)")
    # Its JSON library looks into exceptions, which newer Java versions allow only if told to.
    opens = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    missing = missing or ("" if shutil.which("javac") else "no javac")
    return Client("java", [program or "", *opens, "-cp", f"{path}:.", "JavaSession"], missing)


def compile_java(path: str, folder: Path) -> None:
    """`JavaSession`, for a session in this folder."""
    source = str(PROGRAMS / "JavaSession.java")
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), source], check=True)


def zbusjs(transport: str) -> Client:
    """zbus.js 0.11 under Node.js, over TCP or as a browser runs it, over WebSocket."""
    script = Path(os.environ.get("STOCK_ZBUSJS", str(STOCK / "zbus.js")))
    node = shutil.which("node")
    missing = "" if node else "no node"
    if not missing and not script.is_file():
        missing = "no zbus.js 0.11 (STOCK_ZBUSJS)"
    if not missing and transport == "websocket" and not node_module("ws").is_dir():
        missing = "no package ws for Node.js (NODE_PATH)"
    command = [node or "", str(PROGRAMS / "zbusjs_session.js"), str(script), transport]
    return Client(f"zbusjs-{transport}", command, missing)


def node_module(name: str) -> Path:
    return Path(os.environ.get("NODE_PATH", str(STOCK / "node_modules"))) / name


CLIENTS = [zbuspy(), java(), zbusjs("tcp"), zbusjs("websocket")]


class Session:
    """A running program of a client."""

    def __init__(self, client: Client, folder: Path, name: str, *addresses: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment.setdefault("NODE_PATH", str(STOCK / "node_modules"))
        if client.name == "java":
            compile_java(client.command[-2], folder)
        self.errors = folder / f"{client.name}-{name}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                ["timeout", str(WAIT_S), *client.command, name, *addresses],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment,
            )

    def expect(self, line: str) -> None:
        """The session has come so far."""
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        assert found == line + "\n", found + self.errors.read_text()[-4000:]

    def go_on(self) -> None:
        """What `step` in the programs waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def finish(self) -> None:
        self.expect("done")
        assert self.process.wait(WAIT_S) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
