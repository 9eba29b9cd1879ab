"""Programs of Python as processes of their own, for a sixth of the processor time.

Nearly all that the start of a broker takes is imports, and tests start hundreds. So one process,
the template, imports what zbus is, and forks for each program that is wanted. In all else that is a
process as any: with descriptors, arguments, environment and a working directory of its own, and a
child of the process that asked for it, which waits for it and kills it. It does not inherit limits,
and is no test of a start: `tests/process/test_life.py` starts brokers as users do.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, AnyStr, ClassVar, Final

from tests.limits import WAIT_S

ROOT: Final = Path(__file__).parents[1]
PRELOADED: Final = (
    "zbus.cli.serve",
    "zbus.cli.semq",
    "zbus.cli.copy",
    "zbus.server.process.serve",
    "zbus.server.process.standby",
    "zbus.server.process.replicated",
    "zbus.server.push.courier",
    "zbus.semq.program.start",
)
REQUEST_BYTES_MAX: Final = 1 << 17
SERVER: Final = os.environ.get("TESTED_SERVER", "zbus")
"""The module that is run with `serve` where a test wants a broker: `make check-nodes`."""
PR_SET_CHILD_SUBREAPER: Final = 36


class Template:
    """The process that is forked, from outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None).prctl
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "tests.forked", str(number)]
            out = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdout=out, cwd=ROOT, pass_fds=[number])
        atexit.register(self.close)

    def fork(self, words: Sequence[str], cwd: str, env: dict[str, str], fds: list[int]) -> int:
        """The id of a new child of this process: it runs `python` and these words."""
        request = json.dumps([words, cwd, env]).encode()
        with self._lock:
            # An orphan becomes a child of the next process above it that wants orphans.
            self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._asking, [request], fds)
                return int(self._asking.recv(REQUEST_BYTES_MAX))
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def close(self) -> None:
        self._asking.close()
        self._process.wait()


template = cache(Template)


class Popen(subprocess.Popen[AnyStr]):
    """As of `subprocess`. A program of Python is forked."""

    forks: ClassVar[bool] = False
    """Set by `conftest.py`: measurements and campaigns have the program as it is."""

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        """Descriptors of pipes are pairs of theirs and ours, -1 where there is none."""
        cwd, env = more[4:6]
        if not self.forks or args[0] != sys.executable:
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        theirs = more[9], more[12], more[14]
        fds = [number if fd == -1 else fd for number, fd in enumerate(theirs)]
        place = os.fspath(cwd or os.getcwd())
        self.pid = template().fork(args[1:], place, dict(env or os.environ), fds)
        self._child_created = True
        self._close_pipe_fds(*more[9:15])  # type: ignore[attr-defined]


def start_zbus(*words: object, **options: Any) -> Popen[str]:
    """`zbus` and these words; `cwd` and `env` as of `subprocess`."""
    command, pipe = [sys.executable, "-m", "zbus", *map(str, words)], subprocess.PIPE
    return Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8", **options)


def run_zbus(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    with start_zbus(*words, **options) as process:
        try:
            out, err = process.communicate(timeout=WAIT_S)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _fork_orphan() -> int:
    """Its id; in the new process 0."""
    reading, writing = os.pipe()
    if parent := os.fork():
        os.close(writing)
        orphan = int(os.read(reading, 20))
        os.close(reading)
        os.waitpid(parent, 0)
        return orphan
    if orphan := os.fork():
        os.write(writing, b"%d" % orphan)
        os._exit(0)
    os.close(reading)
    os.close(writing)
    return 0


def _next_program(asking: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]] | None:
    """In a new process, what it shall be; in the template None, once nobody can ask any more."""
    while True:
        request, fds, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 3)
        if not request:
            return None
        pid = _fork_orphan()
        if pid == 0:
            return (*json.loads(request), fds)
        for fd in fds:
            os.close(fd)
        asking.send(b"%d" % pid)


def _run_template(number: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as asking:
        program = _next_program(asking)
    if program is None:
        return
    words, cwd, environment, fds = program
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.orig_argv = [sys.executable, *words]
    sys.argv = words
    codes = list[int]()
    atexit.register(_leave, codes)
    try:
        if words[0] == "-m":
            sys.path[0] = cwd
            del words[0]
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
        codes.append(0)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            codes.append(end.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """Taking a thousand modules apart, which are shared until then, takes longer than all else."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


if __name__ == "__main__":
    _run_template(int(sys.argv[1]))
