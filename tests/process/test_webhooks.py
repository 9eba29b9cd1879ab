"""Webhooks by a real broker: what bad endpoints do to it, and that nothing is lost."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.authority import write_files
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.hook_endpoint import Answer, Bad, Endpoint, Received
from tests.process.webhook_campaign import campaign

OPTIONS = ("--durability", "os", "--set", "push_networks=127.0.0.0/8")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("webhooks") / "data", *OPTIONS) as broker:
        yield broker
        assert broker.stop() == 0


def info(broker: BrokerProcess, topic: str) -> Any:
    return msgspec.json.decode(broker.get(f"/{topic}/g?cmd=query").body)


def pushed(broker: BrokerProcess, topic: str, url: str, words: str = "") -> None:
    reply = broker.get(f"/{topic}/g?cmd=declare&push_url={url}&{words}")
    assert reply.status == 200, reply.body


def failed(broker: BrokerProcess, topic: str) -> Any:
    """When its webhook has failed."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        found = info(broker, topic)
        if found["push"]["failed"]:
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_a_message_and_a_large_one(broker: BrokerProcess) -> None:
    with Endpoint(lambda received: 200) as endpoint:
        pushed(broker, "T", endpoint.url + "?a=1")
        for body in (b"hello", bytes(5_000_000), b""):
            assert broker.get("/T?tag=x", "content-type: text/plain", body=body).status == 200
            received = endpoint.next()
            assert (received.target, received.body) == ("/in?a=1", body)
            assert received.head["host"] == f"127.0.0.1:{endpoint.port}"
            assert received.head["content-type"] == "text/plain"
            assert received.connection <= 2, "connections are used again"


BAD: dict[str, tuple[Answer | str, str]] = {
    "500": (500, "it replied 500"),
    "302": (
        b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "it replied 302, and a webhook follows no redirect",
    ),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n", "404"),
    "hangs": (Bad.HANG, "it did not reply within 0.7 s"),
    "drips": (Bad.DRIP, "it did not reply within 0.7 s"),
    "resets": (Bad.RESET, "the connection failed: "),
    "garbage": (Bad.GARBAGE, "the connection failed: "),
    "head": (Bad.HEAD, "the connection failed: "),
    "nobody": ("http://127.0.0.1:1/", "no connection: "),
    "unknown": ("http://no-such-host.invalid/", "no connection: no-such-host.invalid was not"),
    "inside": ("http://localhost.localdomain.invalid:1/", "no connection: "),
    "numbers": ("http://0xA9FEA9FE/", "no connection: 169.254.169.254 is no public address"),
}


def test_bad_endpoints(broker: BrokerProcess) -> None:
    """All of them at once: none keeps another from its messages, or the broker from anybody."""
    answers = {f"/{name}": bad for name, (bad, _) in BAD.items() if not isinstance(bad, str)}
    with Endpoint(lambda received: answers[received.target]) as endpoint:
        base = f"127.0.0.1:{endpoint.port}"
        for name, (bad, _) in BAD.items():
            url = bad if isinstance(bad, str) else f"http://{base}/{name}"
            pushed(broker, name, url, "push_timeout=700&group_max_attempts=1")
            assert broker.get(f"/{name}", body=b"x").status == 200
        for name, (_, error) in BAD.items():
            found = failed(broker, name)
            assert error in found["push"]["error"], name
            assert (found["deadCount"], found["push"]["delivered"]) == (1, 0), name


def test_a_certificate_that_nobody_knows(broker: BrokerProcess, tmp_path: Path) -> None:
    files = write_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with Endpoint(lambda received: 200, context) as endpoint:
        pushed(broker, "certificate", endpoint.url.replace("http:", "https:"))
        assert broker.get("/certificate", body=b"x").status == 200
        error = failed(broker, "certificate")["push"]["error"]
        assert error.startswith("no connection: ")
        assert "certificate verify failed" in error
        assert endpoint.received.empty()


def test_replies_that_never_end(broker: BrokerProcess) -> None:
    """The status counts, whatever comes after it."""

    def answer(received: Received) -> Answer:
        return Bad.EARLY if received.target == "/early" else Bad.STREAM

    with Endpoint(answer) as endpoint:
        for topic, body in (("stream", b"x"), ("early", bytes(8 << 20))):
            pushed(broker, topic, f"http://127.0.0.1:{endpoint.port}/{topic}")
            assert broker.get(f"/{topic}", body=body).status == 200
        for topic in ("stream", "early"):
            deadline_s = time.monotonic() + WAIT_S
            while not info(broker, topic)["push"]["delivered"]:
                assert time.monotonic() < deadline_s, info(broker, topic)
                time.sleep(0.05)


def test_what_is_under_way_at_a_stop_is_sent_at_the_next_start(tmp_path: Path) -> None:
    """At once, and not when its lease would have ended; so its key goes on, too."""
    hangs = [True]
    with Endpoint(lambda received: Bad.HANG if hangs[0] else 200) as endpoint:
        with BrokerProcess(tmp_path / "data", *OPTIONS) as broker:
            pushed(broker, "T", endpoint.url, "group_order=key&push_timeout=10m")
            for body in (b"1", b"2"):
                assert broker.get("/T?key=k", body=body).status == 200
            assert endpoint.next().body == b"1"
            assert broker.stop() == 0
        hangs[0] = False
        with BrokerProcess(tmp_path / "data", *OPTIONS):
            received = [endpoint.next(), endpoint.next()]
    assert [each.body for each in received] == [b"1", b"2"]
    assert [each.head["zbus-attempt"] for each in received] == ["2", "1"]


def test_a_campaign(tmp_path: Path) -> None:
    figures = campaign(tmp_path / "data", 400, seed=5, kills=0, ordered=True)
    assert figures["messages"] == 400


@pytest.mark.check
def test_a_long_campaign(tmp_path: Path) -> None:
    campaign(tmp_path / "data", 20_000, seed=6, kills=0, ordered=True)
    campaign(tmp_path / "kills", 20_000, seed=7, kills=5, ordered=True)
