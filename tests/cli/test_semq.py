"""`zbus semq`, against an endpoint that runs in another thread and sends to itself."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import click
import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner, Result

from tests.docs.pages import DOCS
from tests.semq.certificates import both, certificate_of, make
from zbus.cli import main
from zbus.cli.semq import semq as group
from zbus.semq.program.start import Settings, opened

NODE = "1:10008"
Semq = Callable[..., Result]


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[None]:
    async with opened(settings) as found, anyio.create_task_group() as tasks:
        tasks.start_soon(found.program.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.fixture
def semq(tmp_path: Path) -> Iterator[Semq]:
    """A command, asking the endpoint."""
    certificate_of(tmp_path / "all", NODE, make("own")[0])
    settings = Settings(
        database=tmp_path / "db",
        node=NODE,
        socket=tmp_path / "s",
        certificates=tmp_path / "all",
        keys=(both(tmp_path / "own.pem", *make("own")),),
    )

    def run(*args: str, stdin: bytes = b"") -> Result:
        given = {"ZBUS_SEMQ_SOCKET": str(settings.socket)}
        return CliRunner().invoke(main, ["semq", *args], input=stdin, env=given)

    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(running(settings)),
    ):
        yield run


def test_send_and_take(semq: Semq) -> None:
    sent = semq("send", NODE, "hello", "--app-key", "a,b")
    assert re.fullmatch(r"1 1:10008/1/1/1/[0-9a-f]{16}/3/1\n", sent.stdout)
    shown = semq("take", "-v")
    assert "app_key: a,b\n" in shown.stdout
    assert shown.stdout.endswith("\n\nhello\n")
    again = semq("take", "--done")  # the one before was not done
    assert (again.stdout, again.exit_code) == ("hello\n", 0)
    nothing = semq("take", "--timeout", "0")
    assert (nothing.exit_code, nothing.stderr) == (3, "zbus: nothing came within 0 ms\n")


def test_json(semq: Semq) -> None:
    sent = json.loads(semq("send", NODE, "-", "--json", "--level", "2", stdin=b"\xff").stdout)
    assert sent["mid"].endswith("/2/1")
    taken = json.loads(semq("take", "--json", "--done").stdout)
    assert taken["mid"] == sent["mid"]
    assert taken["src"] == taken["dst"] == NODE
    assert taken["body_base64"] == "/w=="
    semq("send", f"{NODE}/bob", "text")
    assert json.loads(semq("take", "--json", "--user", "bob").stdout)["body"] == "text"


def test_several(semq: Semq) -> None:
    for number in range(3):
        semq("send", NODE, str(number))
    assert semq("take", "--count", "2", "--done").stdout == "0\n1\n"
    assert semq("take", "--count", "0", "--timeout", "0", "--done").stdout == "2\n"


def test_encrypted(semq: Semq) -> None:
    semq("send", NODE, "secret", "--encrypt")
    assert semq("take", "--done").stdout == "secret\n"
    refused = semq("send", "1:5", "secret", "--encrypt")
    assert refused.exit_code == 1
    assert "there is no certificate" in refused.stderr


def test_what_waits(semq: Semq) -> None:
    semq("send", "1:56001", "later", "--app-key", "k")
    semq("send", NODE, "here")
    shown = semq("stat").stdout
    assert f"{NODE}  platform not connected, epoch " in shown
    assert "  1:56001  SS_INIT 1, oldest 0 s\n" in shown
    assert "inbox: NEW 1\n" in shown
    assert "dead: 0\n" in shown
    assert json.loads(semq("stat", "--json").stdout)["inbox"] == {"NEW": 1}
    (row,) = semq("list").stdout.splitlines()
    assert row.startswith("1  dst=1:56001 savefwd=3 ")
    assert semq("list", "--node", "1:7").stdout == ""
    assert json.loads(semq("list", "--in", "--json").stdout)["app_state"] == "NEW"
    assert semq("list", "--dead").stdout == ""
    assert semq("retry", "--node", "1:56001").stdout == "1 message\n"
    assert json.loads(semq("retry", "--json", "--row", "77").stdout) == {"count": 0}
    assert semq("release", "--from", "1:56001").stdout == "0 messages\n"
    assert "is no node address" in semq("release", "--from", "x").stderr


def test_done_of_what_was_never_here(semq: Semq) -> None:
    assert semq("done", "77").stdout == "1 message\n"
    assert semq("done").exit_code == 64


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("send", "nobody", "x"), 1, "is no node address"),
        (("send", NODE, "x", "--level", "4"), 64, "4 is not in the range"),
        (("send", NODE, "x", "--app-key", "a\nb"), 64, "control characters"),
        (("send", NODE, "x", "--unreliable"), 1, "reliable"),
        (("take", "--user", "a/b"), 1, "is no address"),
        (("fly",), 64, "No such command 'fly'"),
    ],
)
def test_what_is_asked_wrongly(semq: Semq, args: tuple[str, ...], code: int, text: str) -> None:
    found = semq(*args)
    assert found.exit_code == code
    assert text in found.stderr
    assert "zbus: " in found.stderr or found.stderr


def test_errors_as_json(semq: Semq) -> None:
    found = json.loads(semq("send", "nobody", "x", "--json").stderr)
    assert (found["status"], found["exit_code"]) == (400, 1)


@pytest.mark.parametrize(
    "word", ["send 1:1 x", "take", "done 1", "stat", "list", "retry", "release --from 1:1"]
)
def test_nobody_there(tmp_path: Path, word: str) -> None:
    path = str(tmp_path / "absent")
    found = CliRunner().invoke(main, ["semq", *word.split(), "--socket", path])
    assert found.exit_code == 2
    assert f"no endpoint at {path}: No such file or directory" in found.stderr


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "Missing option '--database'"),
        (("--database", "db", "--node", NODE), "Missing option '--platform'"),
        (("--database", "db", "--node", NODE, "--platform", "ftp://x"), "--platform: "),
        (("--database", "db", "--node", NODE, "--platform", "x", "--listen", "7"), "HOST:PORT"),
        (("--database", "db", "--node", NODE, "--platform", "https://x", "--ca", "no"), "use the"),
    ],
)
def test_run_written_wrong(args: tuple[str, ...], text: str) -> None:
    found = CliRunner().invoke(main, ["semq", "run", *args])
    assert found.exit_code == 64
    assert text in found.stderr


@pytest.mark.parametrize("name", sorted(group.commands))
def test_every_option_is_explained(name: str) -> None:
    page = (DOCS / "reference/command-line.md").read_text(encoding="utf-8")
    found = re.search(rf"^### zbus semq {name}\b(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    for option in group.commands[name].params:
        if isinstance(option, click.Option):
            for flag in option.opts:
                assert re.search(rf"`{flag}[ `]", found[1]), flag
