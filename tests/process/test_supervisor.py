"""What systemd is told, by a broker that runs; and the unit and the image that are shipped."""

from __future__ import annotations

import configparser
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.test_tls import PLAIN, TLS, TlsBroker

UNIT = ROOT / "packaging/zbus.service"


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(WAIT_S)

    def hear(self, word: str) -> str:
        """The next thing that begins so."""
        while not (text := self.sock.recv(4_096).decode()).startswith(word):
            pass
        return text


def test_it_tells_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(tmp_path / "notify")
    with manager.sock:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "3000000")
        with BrokerProcess(tmp_path / "data") as broker:
            assert manager.hear("READY=1") == "READY=1\nSTATUS=serves 0 topics"
            for _ in range(2):
                assert manager.hear("WATCHDOG=1") == "WATCHDOG=1"
            assert broker.connect().get("/T?cmd=declare").status == 200
            os.kill(broker.process.pid, signal.SIGHUP)
            assert "\nMONOTONIC_USEC=" in manager.hear("RELOADING=1")
            assert manager.hear("READY=1") == "READY=1\nSTATUS=serves 1 topics"
            assert broker.stop() == 0
            assert manager.hear("STOPPING=1")


@pytest.mark.parametrize("path", ["/nowhere/notify", "@nobody"])
def test_a_manager_that_is_not_there_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "x")
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.connect().get("/_health/ready").status == 200
        assert broker.stop() == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "zbus.service"
    unit.write_text(UNIT.read_text().replace("/opt/zbus/bin/zbus", "/bin/true"))
    command = ["systemd-analyze", "verify", str(unit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "zbus.service" not in ended.stderr, ended.stderr


def test_the_image_has_what_the_package_needs() -> None:
    """No Docker engine is needed to see that what is copied is there."""
    text = (ROOT / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    names = {name for line in copied for name in line if not name.startswith(("-", "/"))}
    assert names
    assert all((ROOT / name).exists() for name in names)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line}
    assert names <= kept
    assert "USER zbus" in text


def test_the_unit_is_hardened() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    service = parser["Service"]
    assert service["Type"] == "notify"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["WatchdogSec"]


def test_the_page_makes_what_the_unit_needs() -> None:
    """Its account, with which files of root that are not everybody's can be read; and the unit
    itself, for those who install by pip alone."""
    unit, page = UNIT.read_text(), (ROOT / "docs/howto/production.md").read_text()
    assert "\nUser=zbus\nGroup=zbus\n" in unit
    assert "DynamicUser" not in unit
    assert "useradd --system --user-group" in page
    for name in ("zbus.toml", "tokens.toml"):
        assert f"install -m 0640 -g zbus /dev/null /etc/zbus/{name}" in page
    assert f"```ini\n{unit}```" in page


def healthy(port: int, *check: str) -> tuple[bool, str]:
    """What the image's health check says of a broker at this port."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "packaging/healthcheck.py"), *check],
        env={**os.environ, "ZBUS_PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return ended.returncode == 0, ended.stderr


def test_the_health_check_of_the_image(tmp_path: Path) -> None:
    """Over http and over https, whatever the options say of tokens."""
    with TlsBroker(tmp_path, listen=(TLS, PLAIN)) as broker:
        assert healthy(broker.plain_port) == (True, "")
        assert healthy(broker.port) == healthy(broker.port, "live") == (True, "")
        assert not healthy(broker.port, "unknown")[0]
    good, why = healthy(broker.port)
    assert not good
    assert "refused" in why
