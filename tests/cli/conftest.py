"""A broker made of the standard library: keeps what it was sent, answers what it was told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner, Result

from zbus.cli import main
from zbus.cli.remote import MESSAGES_TYPE

TIME_MS = b"1763730000000"


class Asked(NamedTuple):
    """A request as the broker sees it: headers, and what the URL adds to them."""

    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    status: int = 200
    body: bytes = TIME_MS
    headers: tuple[tuple[str, str], ...] = ()


def batch(bodies: list[bytes]) -> bytes:
    return b"".join(
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\noffset: %d\r\n\r\n%b" % (len(body), i, body)
        for i, body in enumerate(bodies)
    )


class FakeBroker:
    """One list of messages for all topics; `answers` go first, then what a broker would say."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: deque[Answer] = deque()
        self.messages: deque[bytes] = deque()
        self.lock = threading.Lock()
        self.url = ""

    def answer(self, asked: Asked) -> Answer:
        with self.lock:
            self.asked.append(asked)
            if self.answers:
                return self.answers.popleft()
            word = asked.headers.get("cmd")
            if word == "produce":
                return self.produce(asked)
            if word == "consume":
                return self.consume(asked)
            return Answer(body=b'{"topicName":"T"}')

    def produce(self, asked: Asked) -> Answer:
        rest = asked.body
        if asked.headers.get("content-type") != MESSAGES_TYPE:
            self.messages.append(rest)
            return Answer()
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            start, length = head.split(b"\r\n")
            assert start == b"POST / HTTP/1.1"
            size = int(length.removeprefix(b"content-length: "))
            self.messages.append(rest[:size])
            rest = rest[size:]
        return Answer()

    def consume(self, asked: Asked) -> Answer:
        if not self.messages:
            return Answer(204, b"")
        wanted = int(asked.headers.get("batch", 0))
        if not wanted:
            return Answer(200, self.messages.popleft(), (("origin_id", "m-1"),))
        taken = [self.messages.popleft() for _ in range(min(wanted, len(self.messages)))]
        return Answer(200, batch(taken), (("content-type", MESSAGES_TYPE),))


def handler(broker: FakeBroker) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # a reply leaves as one piece

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers = dict(parse_qsl(url.query)) | headers
            path = [name for name in url.path.split("/") if name]
            headers |= dict(zip(("topic", "consume_group"), path, strict=False))
            body = self.rfile.read(int(headers.get("content-length", 0)))
            asked = Asked(headers, body)
            answer = broker.answer(asked)
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("id", asked.headers.get("id", "made"))):
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(fake))
    server.daemon_threads = False  # join them, so that no socket outlives the test
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


Zbus = Callable[..., Result]


@pytest.fixture
def zbus(broker: FakeBroker) -> Zbus:
    """Run the command line against the fake broker."""

    def run(*args: str, stdin: bytes = b"", url: str = broker.url) -> Result:
        return CliRunner().invoke(main, args, input=stdin, env={"ZBUS_URL": url})

    return run
