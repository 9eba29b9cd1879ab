"""The clients over TLS and Unix sockets, with tokens and certificates."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import zbus
import zbus.client
from tests.authority import authority
from tests.limits import WAIT_S
from tests.process.test_access import ADMIN, entry, replace
from tests.process.test_tls import TLS, TlsBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    folder = tmp_path_factory.mktemp("secure")
    tokens = folder / "tokens.toml"
    replace(tokens, ADMIN + entry("reader", "consume", "READER-SECRET"))
    with TlsBroker(folder, "--token-file", str(tokens)) as process:
        yield process


def urls(broker: TlsBroker) -> list[str]:
    return [f"https://localhost:{broker.port}", f"unix:{broker.socket_path}"]


@pytest.mark.parametrize("way", [0, 1])
def test_blocking(broker: TlsBroker, way: int) -> None:
    url, ca, topic = urls(broker)[way], str(broker.files.authority), f"b{way}"
    with zbus.connect(url, ca=ca, token="ADMIN-SECRET") as bus:
        bus.declare(topic, "g", ack=True)
        large = b"x" * 1_000_000
        with bus.pipeline() as pipe:
            for number in range(20):
                pipe.produce(topic, large if number == 7 else str(number))
        with bus.consume(topic, "g", timeout_ms=0) as messages:
            found = [message.body for message in messages]
    assert found[7] == large
    assert len(found) == 20


def test_threads_over_tls(broker: TlsBroker) -> None:
    ca = str(broker.files.authority)
    with zbus.connect(urls(broker)[0], ca=ca, token="ADMIN-SECRET") as bus:
        bus.declare("threads")
        wrong: list[Exception] = []

        def work() -> None:
            try:
                for _ in range(50):
                    bus.produce("threads", b"x" * 5_000)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert wrong == []
        assert bus.query("threads").message_depth == 200


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("way", [0, 1])
def test_async(broker: TlsBroker, way: int, backend: str) -> None:
    async def main() -> None:
        topic = f"a{way}{backend}"
        ca = str(broker.files.authority)
        async with zbus.connect_async(urls(broker)[way], ca=ca, token="ADMIN-SECRET") as bus:
            await bus.declare(topic, "g", ack=True)
            await bus.produce_many(topic, ["0", "1"])
            async with bus.consume(topic, "g", timeout_ms=0) as messages:
                assert [m.text async for m in messages] == ["0", "1"]

    anyio.run(main, backend=backend)


def test_a_token_that_may_only_consume(broker: TlsBroker) -> None:
    """It may not look at the group, and goes through it one by one."""
    ca = str(broker.files.authority)
    with zbus.connect(urls(broker)[0], ca=ca, token="ADMIN-SECRET") as bus:
        bus.declare("only", "g", ack=True)
        bus.produce_many("only", ["0", "1", "2"])
        with zbus.connect(urls(broker)[0], ca=ca, token="READER-SECRET") as reader:
            with pytest.raises(zbus.client.Forbidden):
                reader.produce("only", "x")
            with reader.consume("only", "g", timeout_ms=0) as messages:
                assert [message.text for message in messages] == ["0", "1", "2"]
        assert bus.query("only", "g").leased_count == 0


def test_who_is_not_known(broker: TlsBroker) -> None:
    url, ca = urls(broker)[0], str(broker.files.authority)
    with pytest.raises(zbus.client.ConnectionLost, match=r"(?i)certificate"):
        zbus.connect(url)
    with pytest.raises(zbus.client.ConnectionLost):
        zbus.connect(f"https://localhost:{broker.plain_port}", ca=ca)
    with zbus.connect(url, ca=ca) as bus, pytest.raises(zbus.client.Forbidden):
        bus.declare("nothing")

    async def main() -> None:
        with pytest.raises(zbus.client.ConnectionLost):
            async with zbus.connect_async(url):
                pass

    for backend in ("trio", "asyncio"):
        anyio.run(main, backend=backend)


def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    ca = tmp_path / "zbus-ca.pem"
    options = ("--set", "tls_client_auth=required", "--set", f"tls_client_ca_file={ca}")
    with TlsBroker(tmp_path, *options, listen=(TLS,)) as process:
        url = f"https://localhost:{process.port}"
        issued = authority("zbus").issue_cert("me@example.org", common_name="me")
        own = tmp_path / "me.pem"
        own.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        with zbus.connect(url, ca=str(ca), cert=str(own)) as bus:
            assert bus.ping() > 0
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(own)
        with zbus.connect(url, ssl_context=context) as bus:
            assert bus.ping() > 0
        with (
            pytest.raises(zbus.client.ConnectionLost),
            zbus.connect(url, ca=str(ca), retries=0) as bus,
        ):
            bus.ping()
