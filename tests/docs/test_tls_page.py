"""The commands of the page on TLS do what it says, from the first to the last."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.limits import WAIT_S

PAGE = ROOT / "docs/howto/tls.md"
# A broker may not be there yet when it is asked. What still runs at the end is ended.
PRELUDE = """\
set -eu
trap 'kill $(jobs -p)' EXIT
set -m
curl() { command curl -sS --retry 10 --retry-all-errors --retry-delay 1 "$@"; echo; }
"""
ZBUS = f"""\
#!/bin/sh
exec {sys.executable} -m zbus "$@"
"""


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl"
)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    zbus = tmp_path / "zbus"
    zbus.write_text(ZBUS)
    zbus.chmod(0o755)
    script = PRELUDE + "".join(block.text for block in blocks(PAGE, "sh"))
    for port in ("15556", "15557"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            script = script.replace(port, str(free.getsockname()[1]))
    out = (tmp_path / "out").open("w+")  # no pipes: a broker that outlives it must not hang it
    done = subprocess.run(
        ["bash", "-c", script],
        stdout=out,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        timeout=WAIT_S,
        check=False,
    )
    out.seek(0)
    printed = out.read()
    out.close()
    assert done.returncode == 0, printed
    assert printed.count('"topicName":"MyTopic"') >= 3, printed
    assert "\nhello\n" in printed
    assert '"sslEnabled":true' in printed
    assert '"sslEnabled":false' in printed
    assert "INFO reloaded" in printed
    assert "reloading failed" not in printed
