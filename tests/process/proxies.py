"""Proxies as real programs: with the configurations of the page, and with what Debian has as it
comes. They are started together, on ports of their own, and ended by their ids."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.examples.broker_process import ROOT, lasting_port
from tests.limits import WAIT_S
from tests.process.broker import Wire

CONFIGURATIONS = ROOT / "examples/proxies"
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

_NGINX = """daemon off; master_process off; pid nginx.pid; error_log stderr warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
{}
}}
"""
"""What Debian's own nginx.conf has around a file of conf.d, and what an ordinary user needs."""


class Kind(NamedTuple):
    """One proxy, in one configuration."""

    name: str
    program: str
    command: Callable[[Path, str], list[str]]
    """How it is started in its folder, with this configuration."""
    configuration: str
    port: str
    """How the configuration of the page says the port of the proxy."""


def _nginx(folder: Path, text: str) -> list[str]:
    (folder / "nginx.conf").write_text(_NGINX.format(text))
    return ["-e", "stderr", "-p", str(folder), "-c", "nginx.conf"]


def _haproxy(folder: Path, text: str) -> list[str]:
    (folder / "haproxy.cfg").write_text(text)
    return ["-db", "-f", str(folder / "haproxy.cfg")]


def _varnish(folder: Path, text: str) -> list[str]:
    """As it comes, `text` is only where it listens, and where the broker does."""
    listens, _, source = text.partition("\n")
    if "\n" in source:
        (folder / "zbus.vcl").write_text(source)
        origin = ["-f", str(folder / "zbus.vcl")]
    else:
        origin = ["-b", source]
    jail = ["-j", "none"] if os.geteuid() == 0 else []
    where = ["-n", str(folder / "varnish"), "-a", listens, "-T", "none", "-s", "malloc,16m"]
    # As the page has it: a delivery has more lines than the 64 that are usual.
    lines = ["-p", "http_max_hdr=128"] if "-f" in origin else []
    return [*jail, "-F", *where, *lines, *origin]


def _caddy(folder: Path, text: str) -> list[str]:
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tgrace_period 100ms\n}\n" + text)
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _file(name: str) -> str:
    return (CONFIGURATIONS / name).read_text()


_LISTENS = "127.0.0.1:80\n"

KINDS = (
    Kind("nginx", "nginx", _nginx, _file("nginx.conf"), "listen 80;"),
    Kind(
        "nginx-bare",
        "nginx",
        _nginx,
        "server { listen 80; location / { proxy_pass http://127.0.0.1:15555; } }",
        "listen 80;",
    ),
    Kind("haproxy", "haproxy", _haproxy, _file("haproxy.cfg"), "bind :80"),
    Kind(
        "haproxy-bare",
        "haproxy",
        _haproxy,
        "defaults\n mode http\n timeout connect 5s\n timeout client 50s\n timeout server 50s\n"
        "listen zbus\n bind :80\n server broker 127.0.0.1:15555\n",
        "bind :80",
    ),
    Kind("varnish", "varnishd", _varnish, _LISTENS + _file("varnish.vcl"), _LISTENS),
    Kind("varnish-bare", "varnishd", _varnish, _LISTENS + "127.0.0.1:15555", _LISTENS),
    Kind("caddy", "caddy", _caddy, _file("Caddyfile"), "\n:80 {"),
)
OF_THE_PAGE = tuple(kind.name for kind in KINDS if not kind.name.endswith("-bare"))


def program_of(kind: Kind) -> str | None:
    """Where it is, if it is here."""
    return shutil.which(kind.program, path=_PATH)


class Proxy:
    """One that runs, in front of the broker at `broker_port`."""

    def __init__(self, kind: Kind, folder: Path, broker_port: int) -> None:
        folder.mkdir()
        self.name = kind.name
        self.port = lasting_port()
        self._log = folder / "log"
        here = kind.port.replace("127.0.0.1:", ":").replace("listen 80", "listen :80")
        if kind.program == "caddy":  # with an address before the port it would speak https
            here = here.replace(":80 {", f":{self.port} {{\n\tbind 127.0.0.1")
        else:
            here = here.replace(":80", f"127.0.0.1:{self.port}")
        text = kind.configuration
        assert (text.count(kind.port), text.count("15555")) == (1, 1)
        text = text.replace(kind.port, here).replace("15555", str(broker_port))
        if ".port" in text:  # Varnish says the two apart
            text = text.replace(f'"127.0.0.1:{broker_port}"', f'"{broker_port}"')
        found = program_of(kind)
        assert found is not None
        command = [found, *kind.command(folder, text)]
        environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=folder, env=environment
            )

    def wait(self) -> None:
        """Until it listens."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S).close()
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.02)
            else:
                return

    def connect(self) -> Wire:
        return Wire(self.port)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S)
