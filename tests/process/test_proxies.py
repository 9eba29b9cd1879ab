"""A broker behind proxies, as docs/howto/behind-a-proxy.md has them and as Debian ships them.

The programs come with `make system-packages`. One that is not here is skipped by name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPConnection
from itertools import count
from typing import NamedTuple

import pytest

from tests.dialects.adf.speakers import KEY, Speaker
from tests.examples.broker_process import ROOT
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, Wire, request
from tests.process.proxies import CONFIGURATIONS, KINDS, OF_THE_PAGE, Kind, Proxy, program_of
from tests.process.websocket import WebSocket

PAGE = ROOT / "docs/howto/behind-a-proxy.md"
TRUSTED = ("--set", "trusted_proxies=127.0.0.1")

_topics = (f"/T{number}" for number in count())


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Proxy]]:
    """All that are here, in front of one broker."""
    folder = tmp_path_factory.mktemp("proxies")
    with BrokerProcess(folder / "data", *TRUSTED) as broker:
        running: dict[str, Proxy] = {}
        try:
            for kind in KINDS:
                if program_of(kind) is not None:
                    running[kind.name] = Proxy(kind, folder / kind.name, broker.port)
            for proxy in running.values():
                proxy.wait()
            yield running
        finally:
            for proxy in running.values():
                proxy.stop()


def _skips(kind: Kind) -> pytest.MarkDecorator:
    reason = f"{kind.program} is not installed: make system-packages"
    return pytest.mark.skipif(program_of(kind) is None, reason=reason)


@pytest.fixture(params=[pytest.param(k.name, id=k.name, marks=_skips(k)) for k in KINDS])
def proxy(request: pytest.FixtureRequest, proxies: dict[str, Proxy]) -> Proxy:
    return proxies[request.param]


@pytest.fixture(
    params=[
        pytest.param(k.name, id=k.name, marks=_skips(k)) for k in KINDS if k.name in OF_THE_PAGE
    ]
)
def set_up(request: pytest.FixtureRequest, proxies: dict[str, Proxy]) -> Proxy:
    """One that is configured as the page says."""
    return proxies[request.param]


@pytest.fixture
def topic(proxies: dict[str, Proxy]) -> str:
    """The path of a new topic."""
    path = next(_topics)
    assert get(next(iter(proxies.values())), f"{path}?cmd=declare").status == 200
    return path


class Answer(NamedTuple):
    """A reply; the names of its headers in any spelling, as proxies have them."""

    status: int
    headers: Message
    body: bytes


def get(proxy: Proxy, target: str, *lines: str, body: bytes | None = None) -> Answer:
    """A GET, or with a body a POST."""
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=WAIT_S)
    try:
        headers = {"host": "localhost"} | dict(line.split(": ", 1) for line in lines)
        connection.request("GET" if body is None else "POST", target, body, headers)
        reply = connection.getresponse()
        return Answer(reply.status, reply.headers, reply.read())
    finally:
        connection.close()


def post(proxy: Proxy, target: str, body: bytes, *lines: str) -> Answer:
    return get(proxy, target, *lines, body=body)


def read_until(wire: Wire, end: bytes) -> bytes:
    """Bytes as they come: proxies cut a reply into chunks of their own."""
    seen = b""
    while end not in seen:
        data = wire.sock.recv(1 << 16)
        assert data, seen
        seen += data
    return seen


def test_every_consume_gives_another_message(proxy: Proxy, topic: str) -> None:
    """By GET, which a cache would answer by itself."""
    for body in (b"a", b"b", b"c", b"d"):
        assert post(proxy, topic, body).status == 200
    answers = [get(proxy, f"{topic}?cmd=consume&timeout=0") for _ in "abcd"]
    assert [answer.body for answer in answers] == [b"a", b"b", b"c", b"d"]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    assert get(proxy, f"{topic}?cmd=consume&timeout=0").status == 204


def test_the_same_address_stores_twice(proxy: Proxy, topic: str) -> None:
    offsets = [get(proxy, f"{topic}?body=hello").headers["offset"] for _ in range(2)]
    assert offsets == ["0", "1"]


def bare(proxies: dict[str, Proxy], name: str) -> Proxy:
    if name not in proxies:
        pytest.skip(f"{name} is not here: make system-packages")
    return proxies[name]


def test_nginx_drops_a_name_with_an_underscore(proxies: dict[str, Proxy]) -> None:
    nginx, path = bare(proxies, "nginx-bare"), next(_topics)
    assert get(nginx, f"{path}?cmd=declare").status == 200
    assert get(nginx, f"{path}/g?cmd=declare", "group_ack: true").status == 200
    assert b'"ack":true' not in get(nginx, f"{path}/g?cmd=query").body


def test_nginx_passes_a_name_with_a_dash(proxies: dict[str, Proxy]) -> None:
    nginx, path = bare(proxies, "nginx-bare"), next(_topics)
    assert get(nginx, f"{path}?cmd=declare").status == 200
    assert get(nginx, f"{path}/g?cmd=declare", "group-ack: true").status == 200
    assert b'"ack":true' in get(nginx, f"{path}/g?cmd=query").body


@pytest.mark.parametrize("query", ["cmd=consume", "cmd=consume&timeout=0", "cmd=consume&offset=0"])
def test_a_producer_steers_no_proxy(proxies: dict[str, Proxy], topic: str, query: str) -> None:
    """nginx would do another request in place of the reply, with the rights of the consumer."""
    nginx, victim = bare(proxies, "nginx-bare"), next(_topics)
    assert get(nginx, f"{victim}?cmd=declare").status == 200
    steers = f"x-accel-redirect: {victim}?cmd=remove"
    assert post(nginx, topic, b"x", steers).status == 200
    assert get(nginx, f"{topic}?{query}").body == b"x"
    assert get(nginx, f"{victim}?cmd=query").status == 200


@pytest.mark.parametrize(
    "sizes", [(64, 8), (16, 100), (64, 24), (64, 120), (99, 1), (1, 2_000), (1, 6_000)]
)
def test_what_is_accepted_is_delivered(
    proxies: dict[str, Proxy], topic: str, sizes: tuple[int, int]
) -> None:
    """As many and as long lines as are accepted, through nginx, which takes 4 KiB of head: what
    does not fit must have been refused when it was produced."""
    nginx = bare(proxies, "nginx-bare")
    count_of_lines, length = sizes
    lines = [f"x-{number:02}: {'v' * length}" for number in range(count_of_lines)]
    stored = post(nginx, topic, b"x", *lines)
    taken = get(nginx, f"{topic}?cmd=consume&timeout=0")
    assert (stored.status, taken.status) in ((200, 200), (400, 204), (431, 204))


def test_a_consumer_waits(proxy: Proxy, topic: str) -> None:
    waiting = proxy.connect()
    waiting.send(request(f"{topic}?cmd=consume&timeout=50000"))
    # It waits in the broker once the group has a reader: nothing is asked for twice.
    deadline = time.monotonic() + WAIT_S
    while b'"waitingRequests":1' not in get(proxy, "/?cmd=connections").body:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert post(proxy, topic, b"late").status == 200
    assert b"late" in read_until(waiting, b"late")
    waiting.close()


def test_events_come_one_by_one(proxy: Proxy, topic: str) -> None:
    if proxy.name == "varnish-bare":
        pytest.skip("holds the first event back: the page has `pipe` for events")
    wire = proxy.connect()
    wire.send(request(f"{topic}?cmd=consume", "accept: text/event-stream"))
    read_until(wire, b"retry: ")
    for body in (b"first", b"second"):
        assert post(proxy, topic, body).status == 200
        assert b"data: " + body in read_until(wire, body)
    wire.close()


def test_websocket(set_up: Proxy, topic: str) -> None:
    socket = WebSocket(set_up.connect())
    name = topic[1:]
    assert socket.ask({"cmd": "produce", "topic": name, "body": "hello"})["status"] == 200
    assert socket.ask({"cmd": "consume", "topic": name})["body"] == "hello"
    socket.close()
    socket.wire.close()


@pytest.mark.parametrize("form", ["ws-json", "ws-bin", "http-bin"])
def test_adf(set_up: Proxy, topic: str, form: str) -> None:
    # HAProxy refuses the 16 characters of the stock client: the page has `mode tcp` for those.
    key = "dGhlIHNhbXBsZSBub25jZQ==" if set_up.name == "haproxy" else KEY
    speaker = Speaker(set_up.port, form, key=key)
    assert speaker.ask("rpush", f"p{topic}", topic, b"hello").result == "ok"
    assert speaker.ask("pull", f"q{topic}", topic).body == b"hello"
    if speaker.socket is not None:
        speaker.socket.close()


def test_the_console_in_a_browser(set_up: Proxy) -> None:
    """The broker sees the name that the browser asked for, so its own page may do everything."""
    assert get(set_up, "/", "accept: text/html").headers["location"] == "/_console/"
    page = get(set_up, "/_console/")
    assert (page.status, page.headers["cache-control"]) == (200, "no-cache")
    script = ("origin: http://localhost", "sec-fetch-site: same-origin", "accept: */*")
    assert get(set_up, "/?cmd=ping", *script).status == 200


def test_large_bodies(set_up: Proxy, topic: str) -> None:
    body = b"x" * (2 << 20)
    assert post(set_up, topic, body).status == 200
    assert get(set_up, f"{topic}?cmd=consume").body == body


def test_large_heads(set_up: Proxy, topic: str) -> None:
    """What can be put can be taken."""
    lines = [f"x-{number}: {'v' * 80}" for number in range(20)]
    assert post(set_up, topic, b"x", *lines).status == 200
    answer = get(set_up, f"{topic}?cmd=consume")
    assert answer.status == 200
    assert len(str(answer.headers)) > 20 * 80


def test_the_address_of_the_client(set_up: Proxy) -> None:
    """The connection would have a port."""
    path = next(_topics)
    assert get(set_up, f"{path}?cmd=declare&sender_headers=1").status == 200
    assert post(set_up, path, b"x").status == 200
    assert get(set_up, f"{path}?cmd=consume").headers["remote-addr"] == "/127.0.0.1:0"


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGURATIONS.iterdir()))
def test_the_page_shows_what_runs_here(name: str) -> None:
    assert f"\n{(CONFIGURATIONS / name).read_text()}```" in PAGE.read_text()
