"""Nodes with what the Kubernetes manifests give them: each pod has an address of its own, and the
ports of shards are the same in all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests import forked
from tests.docs.pages import ROOT
from tests.examples.manifests import FOLDER, environment, find, pod_of
from tests.limits import WAIT_S
from tests.process.nats import NatsCluster, find_program
from tests.process.test_nodes import Member

pytestmark = pytest.mark.skipif(
    find_program() is None or shutil.which("openssl") is None,
    reason="needs openssl, and nats-server: the extra `replicated`",
)


class Pod(Member):
    """One of the StatefulSet. Its clients come to a port of 127.0.0.1."""

    def __init__(self, folder: Path, engine: str, name: str, address: str) -> None:
        self._environment = environment(name, address, folder)
        super().__init__(folder, engine, name)

    def start(self) -> None:
        environ = {**os.environ, **self._environment}
        with self.log_path.open("ab") as log:
            self.process = forked.Popen[bytes](self._command, stdout=log, stderr=log, env=environ)


def test_pods_become_ready(tmp_path: Path) -> None:
    script = FOLDER.parent / "certificates.sh"
    command = ["sh", str(script), "zbus"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=WAIT_S, check=True)
    shutil.copy(ROOT / "examples/tokens.toml", tmp_path)
    network = f"127.{Random(os.urandom(8)).randrange(1, 255)}.115"
    _, container = pod_of("zbus")
    pods: list[Pod] = []
    with NatsCluster(tmp_path / "nats") as servers:
        try:
            for number in range(find("zbus.yml", "StatefulSet", "zbus")["replicas"]):
                address = f"{network}.{number + 1}"
                pods.append(Pod(tmp_path, servers.engine("pods"), f"zbus-{number}", address))
            for pod in pods:
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    pod.wait_for(container[probe]["httpGet"]["path"], 200)
            owners = [pod.log.count("INFO owner shard=") for pod in pods]
            assert sum(owners) == 6
            assert max(owners) < 6  # so some of what was asked went from node to node
            pods[0].kill()
            for pod in pods[1:]:
                pod.wait_for(container["livenessProbe"]["httpGet"]["path"], 200)
                pod.wait_for(container["startupProbe"]["httpGet"]["path"], 200)
        finally:
            for pod in pods:
                pod.kill()
    assert "Traceback" not in "".join(pod.log for pod in pods)
