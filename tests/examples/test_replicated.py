"""The files that run replicated messages: NATS servers and brokers, by systemd or in containers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.limits import WAIT_S
from tests.process.nats import find_program
from zbus import config
from zbus.cli.broker_options import SINGLE_OPTIONS
from zbus.cli.serve import serve
from zbus.server.exits import EXIT_WENT_BACK
from zbus.server.process.replicated import read_access

FOLDER = ROOT / "examples/replicated"
UNIT = ROOT / "packaging/zbus.service"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())
SERVERS = ["nats1", "nats2", "nats3"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("more", ["", "[Service]\nRestartSecs=1\n"])
def test_systemd_takes_the_units(tmp_path: Path, more: str) -> None:
    """And it would say so of a word that it does not know."""
    (tmp_path / "zbus.service.d").mkdir()
    drop_in = (FOLDER / "replicated.conf").read_text() + more
    (tmp_path / "zbus.service.d/replicated.conf").write_text(drop_in)
    for unit in (UNIT, FOLDER / "nats.service"):
        text = re.sub(r"/opt/zbus/bin/[\w-]+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    command = ["systemd-analyze", "verify", *map(str, tmp_path.glob("*.service"))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "nats.service" not in ended.stderr, ended.stderr
    assert ("zbus.service" in ended.stderr) is bool(more), ended.stderr


def test_the_server_has_no_more_rights_than_the_broker() -> None:
    hardening = UNIT.read_text().partition("\nNoNewPrivileges")[2]
    assert hardening
    assert (FOLDER / "nats.service").read_text().endswith(hardening)


def test_a_broker_is_started_again_unless_messages_may_be_lost() -> None:
    drop_in = (FOLDER / "replicated.conf").read_text()
    assert "\nRestart=always\n" in drop_in
    assert f"\nRestartPreventExitStatus={EXIT_WENT_BACK}\n" in drop_in


@pytest.mark.skipif(find_program() is None, reason="needs nats-server: the extra `replicated`")
def test_nats_takes_its_configuration() -> None:
    program = find_program()
    assert program is not None
    command = [program, "-t", "-c", str(FOLDER / "nats.conf")]
    environment = {"NATS_NAME": SERVERS[0]}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr


def test_nats_is_set_up_as_the_page_says() -> None:
    text = (FOLDER / "nats.conf").read_text()
    page = (ROOT / "docs/howto/replicated.md").read_text()
    for line in ("max_payload: 8MB", "  sync_interval: always", "  name: zbus"):
        assert f"\n{line}\n" in text
        assert f"\n{line}\n" in page
    assert re.findall(r"nats://(\w+):6222", text) == SERVERS


@pytest.mark.parametrize("name", ["zbus1", "zbus2"])
def test_a_broker_of_compose_takes_its_options(name: str) -> None:
    service = COMPOSE["services"][name]
    command, *words = service["command"]
    assert command == "serve"
    params = serve.make_context(command, words).params
    options = {key: params[key] for key in SINGLE_OPTIONS if params[key] is not None}
    loaded = config.load(environ=service["environment"], options=options)
    access, _ = read_access(loaded)
    assert [host for host, _ in access.servers] == SERVERS == service["depends_on"]
    port = loaded.server_name.rpartition(":")[2]
    assert service["ports"] == [f"127.0.0.1:{port}:{loaded.port}"]
    assert loaded.node == name
    assert (FOLDER / service["build"] / "Dockerfile").exists()
    _, _, script, check = service["healthcheck"]["test"]
    assert (ROOT / "packaging" / Path(script).name).exists()
    assert check == "live"


def test_the_servers_of_compose_have_names_and_disks_of_their_own() -> None:
    for name in SERVERS:
        service = COMPOSE["services"][name]
        assert service["environment"] == {"NATS_NAME": name}
        file, disk = service["volumes"]
        assert (FOLDER / file.partition(":")[0]).exists()
        assert disk.partition(":")[0] in COMPOSE["volumes"]
        assert f"store_dir: {disk.partition(':')[2]}\n" in (FOLDER / "nats.conf").read_text()
