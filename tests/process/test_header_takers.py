"""What was accepted can be taken: by HTTP libraries as people use them, also through nginx.

The messages are those of the crossing table, and others at every limit. Each library takes all of
them, from a group of its own, by each address. A program that is not here is skipped by name.
"""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import playwright
import pytest
import requests
import urllib3

from tests.conformance.test_header_crossing import MESSAGES
from tests.examples.broker_process import BrokerProcess
from tests.limits import SHORT_JVM
from tests.process.proxies import KINDS, Proxy, program_of

PROGRAMS = Path(__file__).parent / "takers"
NODE = Path(playwright.__file__).parent / "driver/node"
TIMEOUT_S = 120
TOPIC = "T" * 200

Lines = dict[str, bytes]


class Address(NamedTuple):
    """Where messages are taken."""

    url: str
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return " ".join((self.url, *(word for pair in self.headers.items() for word in pair)))


class Took(NamedTuple):
    """What a library made of a reply."""

    status: int
    body: bytes
    lines: Lines


def put_all(port: int) -> list[tuple[bytes, Lines]]:
    """Put all messages; what they have."""
    long = {"tag": "t" * 127, "key": "k" * 200, "id": "i" * 39, "idempotency-key": "y" * 255}
    at_limits: list[dict[str, str]] = [
        {**long, **{f"x-{number:02}": "v" * 15 for number in range(40)}},
        {**long, "idempotency-key": "z" * 255, "x-long": "v" * 1_411},
        {**long, "idempotency-key": "a" * 255, "key": "k" * 1_024, "x-a": "v" * 580},
        {"content-type": f"text/html; charset=utf-8; x={'p' * 1_900}"},
        {"x-latin": "\xe9\xff"},
        {"user-agent": "u" * 4_000, "x-a": "1"},
    ]
    sent = []
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    client.request("GET", f"/{TOPIC}?cmd=declare")
    assert client.getresponse().read()
    for number, given in enumerate([*MESSAGES, *at_limits]):
        body = f"{number} \x00".encode()
        own = {name: value.encode("latin-1" if name == "x-latin" else "utf-8")
               for name, value in given.items()}  # fmt: skip
        client.putrequest("POST", f"/{TOPIC}", skip_accept_encoding=True)
        for name, value in own.items():
            named = name if name in long or name == "user-agent" else f"zbus-header-{name}"
            client.putheader(named, value)
        client.putheader("content-length", str(len(body)))
        client.endheaders(body)
        reply = client.getresponse()
        assert reply.status == 200, (given, reply.read())
        reply.read()
        own.pop("user-agent", None)
        own.pop("id", None)
        sent.append((body, own))
    client.close()
    return sent


def with_http_client(address: Address) -> Took:
    url = urlsplit(address.url)
    client = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT_S)
    client.request("GET", f"{url.path}?{url.query}", headers=address.headers)
    reply = client.getresponse()
    took = Took(reply.status, reply.read(), latin(reply.getheaders()))
    client.close()
    return took


def with_requests(address: Address) -> Took:
    reply = requests.get(address.url, headers=address.headers, timeout=TIMEOUT_S)
    return Took(reply.status_code, reply.content, latin(reply.headers.items()))


def with_urllib3(address: Address) -> Took:
    reply = urllib3.request("GET", address.url, headers=address.headers, timeout=TIMEOUT_S)
    return Took(reply.status, reply.data, latin(reply.headers.items()))


def with_httpx(address: Address) -> Took:
    reply = httpx.get(address.url, headers=address.headers, timeout=TIMEOUT_S)
    return Took(reply.status_code, reply.content, lowered(reply.headers.raw))


def with_curl(address: Address, *options: str) -> Took:
    lines = [word for pair in address.headers.items() for word in ("-H", ": ".join(pair))]
    command = ["curl", "-s", "-S", "-i", *options, *lines, address.url]
    found = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    head, _, body = found.partition(b"\r\n\r\n")
    status, *rest = head.split(b"\r\n")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in rest)]
    return Took(int(status.split()[1]), body, lowered(pairs))


def with_compressed_curl(address: Address) -> Took:
    return with_curl(address, "--compressed")


def latin(pairs: Iterable[tuple[str, str]]) -> Lines:
    return {name.lower(): value.encode("latin-1") for name, value in pairs}


def lowered(pairs: list[tuple[bytes, bytes]]) -> Lines:
    return {name.decode().lower(): value for name, value in pairs}


def one_by_one(take: Callable[[Address], Took]) -> Callable[[list[Address], int], list[Took]]:
    def all_of_them(addresses: list[Address], count: int) -> list[Took]:
        return [take(address) for address in addresses for _ in range(count)]

    return all_of_them


def with_program(*command: str) -> Callable[[list[Address], int], list[Took]]:
    def run(addresses: list[Address], count: int) -> list[Took]:
        texts = [address.text for address in addresses]
        words = (*command, str(count), *texts)
        environment = {**os.environ, "JDK_JAVA_OPTIONS": SHORT_JVM}
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return [read_line(line.split()) for line in done.stdout.decode().splitlines()]

    return run


def read_line(words: list[str]) -> Took:
    status, body, *rest = words
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return Took(int(status), decoded(body), {name.lower(): decoded(value) for name, value in pairs})


def decoded(word: str) -> bytes:
    return base64.b64decode(word[1:])


_JAVA = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")

TAKERS = [
    pytest.param(one_by_one(with_http_client), id="http.client"),
    pytest.param(one_by_one(with_requests), id="requests"),
    pytest.param(one_by_one(with_urllib3), id="urllib3"),
    pytest.param(one_by_one(with_httpx), id="httpx"),
    pytest.param(one_by_one(with_curl), id="curl"),
    pytest.param(one_by_one(with_compressed_curl), id="curl--compressed"),
    pytest.param(with_program(str(NODE), str(PROGRAMS / "take.mjs")), id="node"),
    pytest.param(with_program("java", str(PROGRAMS / "Take.java")), id="java", marks=_JAVA),
]


@pytest.fixture(scope="module")
def stored(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[list[int], list[tuple[bytes, Lines]]]]:
    """The ports, of the broker and of nginx as it comes; and what all messages have."""
    folder = tmp_path_factory.mktemp("takers")
    (kind,) = (kind for kind in KINDS if kind.name == "nginx-bare")
    with BrokerProcess(folder / "data") as broker:
        ports, nginx = [broker.port], None
        if program_of(kind) is not None:
            nginx = Proxy(kind, folder / "nginx", broker.port)
            nginx.wait()
            ports.append(nginx.port)
        try:
            yield ports, put_all(broker.port)
        finally:
            if nginx is not None:
                nginx.stop()


@pytest.mark.parametrize("take", TAKERS)
def test_what_was_accepted_can_be_taken(
    stored: tuple[list[int], list[tuple[bytes, Lines]]],
    take: Callable[[list[Address], int], list[Took]],
    request: pytest.FixtureRequest,
) -> None:
    ports, sent = stored
    group = request.node.callspec.id.replace(".", "-")
    addresses = []
    for port in ports:
        for form in ("plain", "cmd"):
            name = f"{group}-{port}-{form}".ljust(200, "g")
            url = f"http://127.0.0.1:{port}"
            declared = f"{url}/{TOPIC}/{name}?cmd=declare&from=earliest"
            assert requests.get(declared, timeout=TIMEOUT_S).status_code == 200
            if form == "plain":
                addresses.append(Address(f"{url}/{TOPIC}/{name}?cmd=consume&timeout=0", {}))
            else:  # nginx drops names with _
                headers = {"cmd": "consume", "topic": TOPIC, "consume-group": name, "timeout": "0"}
                addresses.append(Address(f"{url}/", headers))
    took = take(addresses, len(sent))
    assert len(took) == len(sent) * len(addresses)
    for at, (status, body, lines) in enumerate(took):
        expected, own = sent[at % len(sent)]
        assert (status, body) == (200, expected)
        long = {name[12:]: lines[name] for name in lines if name.startswith("zbus-header-")}
        found = {**lines, **long}
        if "java" in group:  # Java reads a tab as a space
            own = {name: value.replace(b"\t", b" ") for name, value in own.items()}
        assert {name: found.get(name) for name in own} == own
