"""What a token and a certificate authority allow a source and a sink, against a real broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.spark.errors import UnknownTopic, Unreachable, Usage
from zbus.spark.options import SinkWish, read_wish
from zbus.spark.sink.sink import commit, write_rows
from zbus.spark.source.arrows import read
from zbus.spark.source.location import Where

TOKENS = {
    "reader": ('["consume", "query", "server"]', '"orders" = []'),
    "writer": ('["produce", "query"]', '"orders" = []\n"txn.*" = []'),
    "meagre": ('["produce", "query"]', '"orders" = []'),
    "admin": ('["admin"]', ""),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of tokens, for the broker and for machines."""
    found = tmp_path_factory.mktemp("rights")
    text = ""
    for name, (operations, topics) in TOKENS.items():
        digest = sha256(name.encode()).hexdigest()
        text += f'[[token]]\nname = "{name}"\nsha256 = ["{digest}"]\noperations = {operations}\n'
        text += f"[token.topics]\n{topics}\n"
        (found / name).write_text(f"{name}\n")
    (found / "tokens.toml").write_text(text)
    (found / "tokens.toml").chmod(0o600)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(found / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(found / "server.pem")
    )
    return found


@pytest.fixture(scope="module")
def where(folder: Path) -> Iterator[dict[str, Any]]:
    server = str(folder / "server.pem")
    options = ["--token-file", str(folder / "tokens.toml"), "--tls-cert-file", server]
    options += ["--tls-key-file", server, "--listen", "https://127.0.0.1:0"]
    with BrokerProcess(folder / "data", *options) as broker:
        place = {"broker": f"https://localhost:{broker.port}", "tls_ca": str(folder / "ca.pem")}
        with connect(str(place["broker"]), token="admin", ca=place["tls_ca"]) as bus:
            bus.declare("orders")
            bus.produce_many("orders", ["a", "b"])
        yield place


def bodies(where: Where) -> list[bytes]:
    with where.open() as log:
        (span,) = log.spans("orders")
        batches = list(read(log, span, span.first, span.end, ["body"]))
    return [body for batch in batches for body in batch.column("body").to_pylist()]


def test_who_may_read(where: dict[str, Any], folder: Path) -> None:
    assert bodies(Where(**where, token_file=str(folder / "reader"))) == [b"a", b"b"]
    for name in ("writer", "tokens.toml"):
        with pytest.raises(Usage):
            bodies(Where(**where, token_file=str(folder / name)))


def test_a_token_of_the_environment(where: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((Usage, UnknownTopic)):
        bodies(Where(**where))
    monkeypatch.setenv("ZBUS_TOKEN", "reader")
    assert bodies(Where(**where)) == [b"a", b"b"]


def test_an_authority_that_is_not_trusted(where: dict[str, Any], folder: Path) -> None:
    broker = where["broker"]
    with pytest.raises(Unreachable, match="cannot be reached"):
        bodies(Where(broker=broker, token_file=str(folder / "reader"), patience_s=0.5))


def test_who_may_write(where: dict[str, Any], folder: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"c"]})

    def write(name: str) -> int:
        place = Where(**where, token_file=str(folder / name))
        wish = SinkWish(where=place, topic="orders")
        with place.client() as bus:
            return commit(bus, wish, "app", 0, [write_rows(wish, "app", [batch])])

    for name in ("reader", "meagre"):
        with pytest.raises(Usage):
            write(name)
    assert write("writer") == 1


def test_no_token_is_in_a_plan(folder: Path) -> None:
    given = {"broker": "h:1", "topic": "t", "tokenFile": str(folder / "reader")}
    assert b"reader\n" not in pickle.dumps(read_wish(given))
    assert read_wish(given).where.token() == "reader"
