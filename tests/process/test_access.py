"""Tokens and a real broker: where it does not start, SIGHUP, and new tables under load."""

from __future__ import annotations

import os
import signal
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from tests.limits import WAIT_S
from tests.process.broker import WORKERS, BrokerProcess, Wire, request, run_serve


def entry(name: str, operations: str, *tokens: str) -> str:
    digests = ", ".join(f'"{sha256(token.encode()).hexdigest()}"' for token in tokens)
    listed = ", ".join(f'"{operation}"' for operation in operations.split())
    return (
        f'[[token]]\nname = "{name}"\nsha256 = [{digests}]\noperations = [{listed}]\n'
        '[token.topics]\n"*" = []\n'
    )


ADMIN = entry("admin", "admin", "ADMIN-SECRET")


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(path)


def wait_until(what: str, broker: BrokerProcess, count: int = 1) -> None:
    deadline = time.monotonic() + WAIT_S
    while broker.log().count(what) < count * WORKERS:  # each of its processes says it
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.01)


@pytest.mark.parametrize(
    "options",
    [
        ("--host", "0.0.0.0"),
        ("--host", "::"),
        ("--set", "listen=http://127.0.0.1:0,http://0.0.0.0:0"),
        ("--host", "0.0.0.0", "--set", "insecure=false"),
    ],
)
def test_open_to_others_without_tokens(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = run_serve("--port", "0", "--data-dir", str(tmp_path / "data"), *options)
    assert ended.returncode == 3
    assert "is reachable from other machines" in ended.stderr
    assert "--token-file" in ended.stderr
    assert "--insecure" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("options", [("--insecure",), ("--token-file", "{file}")])
def test_open_to_others_on_purpose(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "tokens.toml"
    replace(file, ADMIN)
    given = [option.format(file=file) for option in options]
    with BrokerProcess(tmp_path / "data", "--host", "0.0.0.0", *given) as broker:
        assert broker.get("/?cmd=ping", "token: ADMIN-SECRET").status == 200
        expected = 200 if options == ("--insecure",) else 403
        assert broker.get("/?cmd=ping").status == expected


@pytest.mark.parametrize("content", [None, "[[token]]\nname = 'x'\n", ""])
def test_a_bad_file_is_no_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "tokens.toml"
    if content is not None:
        file.write_text(content)
    data_dir = str(tmp_path / "data")
    ended = run_serve("--port", "0", "--data-dir", data_dir, "--token-file", str(file))
    assert ended.returncode == 3
    assert f"zbus: {file}: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sighup_takes_the_file_over(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    replace(file, ADMIN + entry("shop", "produce consume", "OLD-SECRET"))
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker:
        admin, shop = "token: ADMIN-SECRET", "token: OLD-SECRET"
        assert broker.get("/T?cmd=declare", admin).status == 200
        wire, waiting = broker.connect(), broker.connect()
        assert wire.get("/T", shop, body=b"x").status == 200
        assert wire.get("/T?cmd=consume", shop).body == b"x"
        waiting.send(request("/T?cmd=consume", shop))
        replace(file, ADMIN + entry("shop", "produce", "NEW-SECRET"))
        os.kill(broker.process.pid, signal.SIGHUP)
        reply = waiting.read()
        assert (reply.status, reply.body) == (403, b"403: Command(consume) Topic(T) Forbidden")
        wait_until("tokens taken over", broker)
        assert wire.get("/T", shop, body=b"x").status == 403
        assert wire.get("/T", "token: NEW-SECRET", body=b"x").status == 200
        replace(file, "[[token]")
        os.kill(broker.process.pid, signal.SIGHUP)
        wait_until("token file rejected, keeping the previous one", broker)
        assert wire.get("/T", "token: NEW-SECRET", body=b"x").status == 200
        assert broker.stop() == 0
        assert "SECRET" not in broker.log()


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    replace(file, ADMIN)
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker:
        wire = broker.connect()
        assert wire.get("/?cmd=ping", "token: LATE").status == 403
        replace(file, ADMIN + entry("late", "home", "LATE"))
        wait_until("tokens taken over", broker)
        assert wire.get("/?cmd=ping", "token: LATE").status == 200


def test_new_tables_under_load(tmp_path: Path) -> None:
    """A token that is in every table is never refused; one that comes and goes is one or the
    other, and what was refused is not stored."""
    file = tmp_path / "tokens.toml"
    tables = [
        ADMIN + entry("shop", "produce", "STAYS", "COMES"),
        ADMIN + entry("shop", "produce", "STAYS"),
    ]
    replace(file, tables[0])
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker:
        assert broker.get("/T?cmd=declare", "token: ADMIN-SECRET").status == 200
        over = threading.Event()
        counts = {"STAYS": [0, 0], "COMES": [0, 0]}

        def load(token: str) -> None:
            wire = Wire(broker.port)
            while not over.is_set():
                status = wire.get("/T", f"token: {token}", body=token.encode()).status
                assert status in (200, 403)
                counts[token][status == 403] += 1
            wire.close()

        threads = [threading.Thread(target=load, args=(token,)) for token in counts]
        for thread in threads:
            thread.start()
        for turn in range(1, 31):
            replace(file, tables[turn % 2])
            os.kill(broker.process.pid, signal.SIGHUP)
            wait_until("tokens taken over", broker, turn)
        over.set()
        for thread in threads:
            thread.join()
        assert counts["STAYS"][1] == 0
        assert all(count > 0 for count in (counts["STAYS"][0], *counts["COMES"]))
        reply = broker.get("/T?cmd=query", "token: ADMIN-SECRET")
        stored = counts["STAYS"][0] + counts["COMES"][0]
        assert f'"messageDepth":{stored},'.encode() in reply.body
