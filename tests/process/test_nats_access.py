"""NATS servers with TLS and users: which clients they accept, and the errors of all others."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority import write_files
from tests.process.nats import NatsCluster, find_program
from tests.process.test_standby import Node
from zbus.storage.jetstream.client import Access

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

MORE = """\
authorization {{ users: [{{user: zbus, password: right}}] }}
tls {{ cert_file: "{0.certificate}", key_file: "{0.key}", ca_file: "{0.authority}", verify: true }}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path)
    write_files(tmp_path, "others").certificate.rename(tmp_path / "others-cert.pem")
    (tmp_path / "key.pem").rename(tmp_path / "others-key.pem")
    write_files(tmp_path)
    for name, text in (("right", "zbus\nright\n"), ("wrong", "zbus\nwrong\n"), ("token", "right")):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def cluster(folder: Path) -> Iterator[NatsCluster]:
    files = write_files(folder)
    context = ssl.create_default_context(cafile=files.authority)
    context.load_cert_chain(files.certificate, files.key)
    login = Access([], "zbus", "right", tls=context)
    with NatsCluster(folder / "nats", more=MORE.format(files), login=login) as cluster:
        yield cluster


OPTIONS = {"user": "right", "ca": "zbus-ca.pem", "cert": "cert.pem", "key": "key.pem"}
REFUSED = [
    ({"user": "wrong"}, "Authorization Violation"),
    ({"user": "token"}, "Authorization Violation"),
    ({"user": ""}, "Authorization Violation"),
    ({"ca": "others-ca.pem"}, "certificate verify failed"),
    ({"cert": "others-cert.pem", "key": "others-key.pem"}, ""),
    ({"cert": "", "key": ""}, ""),
    ({"ca": "", "cert": "", "key": ""}, "TLS"),
]


def test_who_may_keep_messages_there(folder: Path, cluster: NatsCluster) -> None:
    """All at the same time: each of those that are refused waits for its timeout."""

    def start(number: int, changed: dict[str, str]) -> Node:
        given = {name: text for name, text in {**OPTIONS, **changed}.items() if text}
        settings = [f"engine_{name}_file={folder / text}" for name, text in given.items()]
        settings.append("engine_timeout_ms=4000")
        words = [word for one in settings for word in ("--set", one)]
        return Node(folder, cluster.engine(f"c{number}"), f"node{number}", *words)

    nodes = [start(number, changed) for number, (changed, _) in enumerate(REFUSED)]
    try:
        good = start(len(nodes), {})
        nodes.append(good)
        assert good.wait_for("/T?cmd=declare", 200)
        for node, (changed, text) in zip(nodes, REFUSED, strict=False):
            assert node.ended() == 3, changed
            said = node.log_path.read_text()
            assert "no stream zbus-c" in said
            assert text in said, (changed, said)
    finally:
        for node in nodes:
            node.kill()
