"""Plays the console blocks of a page against a real broker and compares what comes back.

Only places are changed on the way in: host and port, and `.venv/bin`, which is where the tests
run. A page that is played in a `fresh` shell finds nothing of zbus on its path until it says so
with `export PATH=...`; a how-to may take that for done. On the way out times, ids and sessions are
made equal, since they differ from run to run. In the page `...` stands for any text within a line,
and a line of `...` alone for any number of lines.

The shell's job control is played, too: `zbus serve &` starts the broker, any other `&` starts a
program whose first lines are compared, and `kill` ends them by number or by the first word of their
command. A small `nc` is put on the path, because machines have different ones or none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests import forked
from tests.docs.pages import ROOT, Step

COMMAND_TIMEOUT_S = 60

_NC = """#!{python}
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as sock:
    sock.sendall(sys.stdin.buffer.read())
    while data := sock.recv(65536):
        sys.stdout.buffer.write(data)
"""

BIN = Path(sys.executable).parent  # not resolved: it may be a link out of the environment

_OF_BASH = re.compile(r"[|&;<>$~*]")

_CURL_SETTINGS = "silent\nshow-error\n"  # the progress bar is for people who wait

_VARYING = (
    (re.compile(r"\b1[789]\d{11}\b"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<session>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
)


class Shell:
    """One page's worth of commands."""

    def __init__(self, tmp_path: Path, fresh: bool = False) -> None:
        self._data_dir = tmp_path / "data"
        self._log = (tmp_path / "broker.log").open("wb")
        self._broker: subprocess.Popen[str] | None = None
        self._jobs: dict[int, tuple[str, subprocess.Popen[str]]] = {}
        self._port = 0
        tools = tmp_path / "bin"
        tools.mkdir()
        nc = tools / "nc"
        nc.write_text(_NC.format(python=sys.executable))
        nc.chmod(0o755)
        (tools / ".curlrc").write_text(_CURL_SETTINGS)
        others = [x for x in os.environ["PATH"].split(os.pathsep) if Path(x) != BIN]
        path = [str(tools), *([] if fresh else [str(BIN)]), *others]
        self._environment = os.environ | {"PATH": os.pathsep.join(path), "CURL_HOME": str(tools)}
        self._environment["HOME"] = str(tmp_path)  # files of a page are below ~
        self._environment["PYTHONUNBUFFERED"] = "1"

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = {program for _, program in self._jobs.values()}
        for program in running | ({self._broker} if self._broker else set()):
            program.kill()
            _end(program)
        self._log.close()

    def serve(self, *more: str) -> list[str]:
        """Start the broker, perhaps with more options; the lines it printed."""
        assert self._broker is None, "a broker runs already"
        options = ("--port", str(self._port), "--data-dir", str(self._data_dir), *more)
        self._broker = self._popen("-m", "zbus", "serve", *options)
        banner = ""
        while "try:" not in banner:
            assert self._broker.stdout is not None
            line = self._broker.stdout.readline()
            assert line, f"the broker ended: {banner}"
            banner += line
        found = re.search(r"http://127\.0\.0\.1:(\d+)", banner)
        assert found is not None, banner
        self._port = int(found[1])
        self._environment["ZBUS_URL"] = f"http://127.0.0.1:{self._port}"
        return self._shown(banner)

    def play(self, step: Step) -> list[str]:
        """Run one command; the lines it printed."""
        command = step.command
        if command.startswith("export PATH="):
            self._environment["PATH"] = self._run(f'{command} && printf %s "$PATH"').stdout
            return []
        if command.startswith("zbus serve") and command.endswith("&"):
            assert self._which("zbus") == str(BIN / "zbus"), "which zbus?"
            banner = self.serve(*shlex.split(command[:-1])[2:])
            assert self._broker is not None
            self._add_job(command, self._broker)
            return banner
        if command.startswith("kill "):
            jobs = command.replace(" -9", "").split()[1:]
            for job in jobs:
                self._stop(job, gently=" -9 " not in command)
            return []
        if command.endswith("&"):
            return self._start(command[:-1], len(step.output))
        done = self._run(command)
        return self._shown(done.stdout + done.stderr)

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        command = self._placed(command)
        if command.startswith("zbus ") and not _OF_BASH.search(command):
            assert self._which("zbus") == str(BIN / "zbus"), "which zbus?"
            words = shlex.split(command)[1:]
            return forked.run_zbus(*words, cwd=ROOT, env=self._environment)
        return subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=self._environment,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def _which(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment["PATH"])

    def _add_job(self, command: str, program: subprocess.Popen[str]) -> None:
        """Bash gives a job the number after the highest that is taken."""
        self._jobs[max(self._jobs, default=0) + 1] = command, program

    def _stop(self, job: str, gently: bool) -> None:
        """End `%3`, or `%zbus`: the job whose command begins so."""
        name = job.removeprefix("%")
        numbers = [x for x, (command, _) in self._jobs.items() if command.startswith(name)]
        number = int(name) if name.isdigit() else next(iter(numbers), 0)
        assert len(numbers) < 2, f"{job} may be {numbers}"
        assert number in self._jobs, f"{job} is no job of {self._jobs}"
        _, program = self._jobs.pop(number)
        if program is self._broker:
            self._broker = None
        if gently:
            program.terminate()
        else:
            program.kill()
        _end(program)
        assert (program.returncode == 0) is gently

    def _start(self, command: str, lines: int) -> list[str]:
        python, *words = shlex.split(self._placed(command))
        assert self._which(python) == str(BIN / "python"), f"which {python}?"
        program = self._popen(*words, "--url", f"http://127.0.0.1:{self._port}")
        self._add_job(command, program)
        assert program.stdout is not None
        return self._shown("".join([program.stdout.readline() for _ in range(lines)]))

    def _popen(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, *words]
        out = subprocess.PIPE
        return forked.Popen(
            command, stdout=out, stderr=self._log, text=True, cwd=ROOT, env=self._environment
        )

    def _placed(self, command: str) -> str:
        """The command, with the places of the test's broker and programs."""
        command = re.sub(r"(\$PWD/)?\.venv/bin\b", lambda _found: str(BIN), command)
        return re.sub(r"\blocalhost([: ])15555\b", rf"127.0.0.1\g<1>{self._port}", command)

    def _shown(self, text: str) -> list[str]:
        """What was printed, with the documentation's port."""
        return _trimmed(text.replace(f":{self._port}", ":15555").splitlines())


def _end(program: subprocess.Popen[str]) -> None:
    program.wait(COMMAND_TIMEOUT_S)
    assert program.stdout is not None
    program.stdout.close()


def alike(shown: list[str], printed: list[str]) -> bool:
    """Whether a page shows what was printed."""
    return _alike([_neutral(line) for line in _trimmed(shown)], [_neutral(x) for x in printed])


def _alike(shown: list[str], printed: list[str]) -> bool:
    for number, line in enumerate(shown):
        if line == "...":
            rest = shown[number + 1 :]
            return any(_alike(rest, printed[at:]) for at in range(number, len(printed) + 1))
        if number >= len(printed) or not _alike_line(line, printed[number]):
            return False
    return len(printed) == len(shown)


def _alike_line(shown: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed) is not None


def _trimmed(lines: list[str]) -> list[str]:
    lines = [line.strip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _neutral(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line
