"""`zbus import` against real brokers: what is stored, once, whatever ends in the middle."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests import forked
from tests.bench.others import redis_server
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from zbus import client
from zbus.cli import main
from zbus.client import Delivery

Zbus = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("import")
    with BrokerProcess(folder / "data", "--durability", "os") as broker:
        yield broker
        assert broker.stop() == 0


def url_of(broker: BrokerProcess) -> str:
    return f"http://127.0.0.1:{broker.port}"


@pytest.fixture
def zbus(broker: BrokerProcess) -> Zbus:
    def run(*args: str, stdin: bytes = b"", code: int = 0) -> Result:
        result = CliRunner().invoke(main, args, input=stdin, env={"ZBUS_URL": url_of(broker)})
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def messages(broker: BrokerProcess, topic: str) -> list[Delivery]:
    """All of a topic of one partition."""
    with client.connect(url_of(broker)) as bus:
        bus.declare(topic, "all", start="earliest")
        found: list[Delivery] = []
        while part := bus.pull(topic, "all", batch=1_000, wait_ms=0):
            found += part
        bus.remove(topic, "all")
        return found


def bodies(broker: BrokerProcess, topic: str) -> list[str]:
    return [message.text for message in messages(broker, topic)]


# -- files ----------------------------------------------------------------------------------------

BIG = b'"%b"' % (b"x" * ((16 << 20) - 2))
LONG_KEY = b'{"k":"%b"}' % (b"k" * 1_025)
MANY = [b"%d" % number for number in range(1_200)]


@pytest.mark.parametrize(
    ("args", "content", "stored", "reports"),
    [
        (["ndjson"], b"1\n{\n2\n", ["1", "2"], ["line 2: it is not a JSON text: "]),
        (["ndjson"], b"1\n%b\n2\n" % BIG, ["1", "2"], ["line 2: 413: "]),
        (
            ["ndjson", "--key", "k"],
            b'{"k":"a"}\n%b\n{"k":"b"}\n' % LONG_KEY,
            ['{"k":"a"}', '{"k":"b"}'],
            ["line 2: key length should be <= 1024"],
        ),
        (
            ["ndjson"],
            b"\n".join([*MANY[:700], b"\xff", *MANY[700:]]),
            [text.decode() for text in MANY],
            ["line 701: it is not UTF-8"],
        ),
        (
            ["csv", "--id", "i", "--body", "b"],
            b"i,b\n1,x\n%b,y\n3,z\n4\n5,a\x00\n" % (b"2" * 40),
            ["x", "z", "a\x00"],
            ["line 3: Message.Id length should be <= 39", "line 5: it has 1 columns"],
        ),
        (
            ["csv", "--header", "h=i", "--body", "b"],
            b'i,b\n"1\n",x\n%b,y\n3,z\n' % (b"2" * 4_000),
            ["z"],
            ["line 2: h may not hold control characters", "line 4: 431: "],
        ),
        (["sqs"], b'{"Body":"x"}\n{\n', ["x"], ["line 2: the document is cut short"]),
    ],
    ids=["json", "too large", "key", "utf-8", "id", "headers", "sqs"],
)
def test_what_is_refused_is_reported(
    broker: BrokerProcess,
    zbus: Zbus,
    request: pytest.FixtureRequest,
    args: list[str],
    content: bytes,
    stored: list[str],
    reports: list[str],
) -> None:
    """And the import stops before it, or goes on behind it."""
    topic = f"Bad-{abs(hash((*args, content)))}"
    zbus("declare", topic)
    command = ["import", args[0], topic, "-", *args[1:]]
    stopped = zbus(*command, stdin=content, code=1)
    assert stopped.stderr.startswith(f"zbus: {reports[0]}")
    assert "mend it or pass --on-error skip" in stopped.stderr
    before = bodies(broker, topic)
    assert before == stored[: len(before)]
    skipped = zbus(*command, "--on-error", "skip", "--json", stdin=content)
    said = sorted(skipped.stderr.splitlines())  # what the broker refuses is told a little later
    for text, wanted in zip([text for text in said if ": line " in text], reports, strict=True):
        assert text.startswith(f"zbus: {wanted}")
    told = msgspec.json.decode(skipped.stdout)
    assert (told["stored"], told["refused"]) == (len(stored) - len(before), len(reports))
    assert bodies(broker, topic) == stored


def test_a_file_is_stored_once_and_may_grow(
    broker: BrokerProcess, zbus: Zbus, tmp_path: Path
) -> None:
    zbus("declare", "Grown")
    lines = b"".join(b'{"n":%d}\n' % number for number in range(6_000))
    file = tmp_path / "rows"
    command = ["import", "ndjson", "Grown", str(file), "--json"]
    for size, stored, known in ((5_500, 5_500, 0), (5_500, 0, 5_500), (6_000, 500, 5_500)):
        file.write_bytes(b"".join(lines.splitlines(keepends=True)[:size]))
        told = msgspec.json.decode(zbus(*command).stdout)
        assert (told["stored"], told["known"]) == (stored, known)
    assert bodies(broker, "Grown") == lines.decode().splitlines()
    file.write_bytes(lines.replace(b"3000", b"x")[:40_000])
    refused = zbus("import", "ndjson", "Grown", str(file), code=3).stderr
    assert "does not begin with the rows that were stored as import-" in refused
    assert zbus(*command[:-1], "--name", "other", "--on-error", "skip").stdout[:4].isdecimal()


def test_labels_and_an_unknown_topic(broker: BrokerProcess, zbus: Zbus) -> None:
    row = b"i,k,t,w,colour,b\r\n7,Ann,a.b,2027-01-15T08:00:00Z,red,two chairs\r\n"
    options = "--id i --key k --tag t --timestamp w --body b --header colour --rate 5 --progress"
    missing = zbus("import", "csv", "Labels", "-", stdin=row, code=1)
    assert missing.stderr.splitlines()[1] == "zbus: `zbus declare Labels` makes it"
    zbus("declare", "Labels")
    done = zbus("import", "csv", "Labels", "-", *options.split(), stdin=row)
    assert done.stderr.startswith("zbus: 1 message, ")
    (found,) = messages(broker, "Labels")
    assert (found.id, found.key, found.tag, found.text) == ("7", "Ann", "a.b", "two chairs")
    assert found.headers["colour"] == "red"
    assert found.headers["source-timestamp"] == "1800000000000"


# -- kills ----------------------------------------------------------------------------------------


def started(broker: BrokerProcess, *args: str) -> forked.Popen[str]:
    return forked.start_zbus("import", *args, env={**os.environ, "ZBUS_URL": url_of(broker)})


def wait_for_rows(broker: BrokerProcess, topic: str, count: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    with client.connect(url_of(broker)) as bus:
        while bus.query(topic).message_depth < count:
            assert time.monotonic() < deadline_s, "the import stores nothing"
            time.sleep(0.01)


@pytest.mark.parametrize("killed", ["broker", "importer"])
def test_each_row_is_there_once_after_a_kill(tmp_path: Path, killed: str) -> None:
    rows = [f'{{"n":{number}}}' for number in range(30_000)]
    file = tmp_path / "rows"
    file.write_text("\n".join(rows))
    with BrokerProcess(tmp_path / "data") as first:
        with client.connect(url_of(first)) as bus:
            bus.declare("Killed")
        port = first.port
        with started(first, "ndjson", "Killed", str(file)) as importing:
            wait_for_rows(first, "Killed", 5_000)
            if killed == "importer":
                importing.kill()
                importing.wait(WAIT_S)
            first.kill()
            with BrokerProcess(tmp_path / "data", port=port) as again:
                # A client connects again for some seconds, so the run may end well.
                assert importing.wait(WAIT_S) in ((0, 2) if killed == "broker" else (-9,))
                with started(again, "ndjson", "Killed", str(file)) as second:
                    assert second.wait(WAIT_S) == 0
                assert bodies(again, "Killed") == rows
                assert again.stop() == 0


# -- Redis ----------------------------------------------------------------------------------------

with_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="there is no redis-server"
)


@contextmanager
def redis_at(folder: Path) -> Iterator[tuple[Any, int, str]]:
    import redis

    with redis_server(folder, "always") as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        with redis.Redis.from_url(url) as known:
            yield known, server.pid, url


@with_redis
def test_a_stream_of_redis(broker: BrokerProcess, zbus: Zbus, tmp_path: Path) -> None:
    zbus("declare", "Stream")
    with redis_at(tmp_path / "redis") as (known, _, url):
        for number in range(250):
            known.xadd("events", {"user": "ann", "n": number}, id=f"1800000000000-{number}")
        command = ["import", "redis", "Stream", url, "events", "--key", "user"]
        assert zbus(*command).stdout.startswith("250 messages (")
        known.xtrim("events", maxlen=10)
        known.xadd("events", {b"user": b"\xff"}, id="1800000000001-0")
        known.xadd("events", {"user": "bob"}, id="1800000000001-1")
        refused = zbus(*command, code=1).stderr
        assert "entry 1800000000001-0: the field 'user' is not UTF-8" in refused
        assert zbus(*command, "--on-error", "skip").stdout.endswith("/s), 1 refused\n")
        found = messages(broker, "Stream")
        assert [msgspec.json.decode(each.body)["user"] for each in found] == ["ann"] * 250 + ["bob"]
        assert (found[249].id, found[249].key) == ("1800000000000-249", "ann")
        assert found[249].headers["source-timestamp"] == "1800000000000"
        known.set("text", "x")
        known.xadd("odd", {"a": 1}, id="5-2000000")
        for key, text in (
            ("none", "has no key 'none'"),
            ("text", "has no stream or list, but a string, at 'text'"),
            ("odd", "entry 5-2000000: it has too large an id"),
        ):
            assert text in zbus(*command[:4], key, code=3).stderr
    assert "Error 111 connecting" in zbus(*command, code=3).stderr
    assert "must specify one of" in zbus(*command[:3], "http://a", "k", code=64).stderr


@with_redis
def test_a_list_of_redis(broker: BrokerProcess, zbus: Zbus, tmp_path: Path) -> None:
    zbus("declare", "List")
    with redis_at(tmp_path / "redis") as (known, _, url):
        known.lpush("jobs", *(f'{{"id":"j{number}"}}' for number in range(250)))
        known.rpush("turned", "a", b"\xff", "b")
        command = ["import", "redis", "List", url, "jobs"]
        assert zbus(*command, "--id", "id").stdout.startswith("250 messages (")
        assert zbus(*command).stdout == "0 messages (0/s), 250 known\n"
        known.lpush("jobs", "later")
        assert zbus(*command).stdout.startswith("1 message (")
        turned = [*command[:4], "turned", "--oldest", "left"]
        assert zbus(*turned).stdout.startswith("3 messages (")
        found = messages(broker, "List")
        assert [each.id for each in found[:250]] == [f"j{number}" for number in range(250)]
        assert [each.body for each in found[250:]] == [b"later", b"a", b"\xff", b"b"]
        known.rpop("jobs")
        assert "it has changed, or is another one" in zbus(*command, code=3).stderr


@with_redis
def test_redis_is_gone_in_the_middle(broker: BrokerProcess, zbus: Zbus, tmp_path: Path) -> None:
    zbus("declare", "Gone")
    rows = [str(number) for number in range(2_000)]
    with redis_at(tmp_path / "redis") as (known, pid, url):
        known.lpush("jobs", *rows)
        with started(
            broker, "redis", "Gone", url, "jobs", "--rate", "200", "--name", "gone"
        ) as importing:
            wait_for_rows(broker, "Gone", 100)
            os.kill(pid, signal.SIGKILL)
            assert importing.wait(WAIT_S) == 3
            assert importing.stderr is not None
            assert importing.stderr.read().startswith(f"zbus: Redis at {url}: ")
    with redis_at(tmp_path / "redis") as (_, _, url):
        told = zbus("import", "redis", "Gone", url, "jobs", "--name", "gone", "--json").stdout
        assert msgspec.json.decode(told)["known"] >= 100
    assert bodies(broker, "Gone") == rows


# -- RabbitMQ -------------------------------------------------------------------------------------

LOGIN = "Basic " + base64.b64encode(b"ann:s/cret").decode()


class Management(BaseHTTPRequestHandler):
    """What the management API of RabbitMQ 3.13 and 4 answers to `/api/queues/{vhost}/{name}/get`,
    by its documentation."""

    protocol_version = "HTTP/1.1"
    queues: ClassVar[dict[str, list[dict[str, Any]]]] = {}

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        wanted = msgspec.json.decode(self.rfile.read(size))
        assert wanted.keys() == {"count", "ackmode", "encoding"}
        assert (wanted["ackmode"], wanted["encoding"]) == ("ack_requeue_true", "auto")
        if self.headers["authorization"] != LOGIN:
            self.answer(401, {"error": "not_authorized", "reason": "Login failed"})
        elif "page" in self.path:
            self.answer(200, "<html>A console</html>")
        elif "broken" in self.path:
            self.answer(500, {"error": "Internal Server Error"})
        elif "cut" in self.path:
            self.send_response(200)
            self.send_header("content-length", "99")
            self.end_headers()
            self.wfile.write(b"[{")
            self.close_connection = True
        elif self.path in self.queues:
            queue = self.queues[self.path]
            found = queue[: wanted["count"]]
            left = range(len(queue) - 1, -1, -1)
            self.answer(200, [{**one, "message_count": n} for one, n in zip(found, left)])  # noqa: B905
        else:
            self.answer(404, {"error": "Object Not Found", "reason": "Not Found"})

    def answer(self, status: int, document: object) -> None:
        body = document.encode() if isinstance(document, str) else msgspec.json.encode(document)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def rabbit() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Management) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://ann@127.0.0.1:{server.server_port}"
        server.shutdown()


def queued(payload: str, encoding: str = "string", **properties: Any) -> dict[str, Any]:
    return {
        **{"payload_bytes": len(payload), "redelivered": False, "exchange": "shop"},
        **{"routing_key": "order.new", "payload": payload, "payload_encoding": encoding},
        "properties": properties or [],  # as Erlang writes an empty one
    }


def test_a_queue_of_rabbitmq(broker: BrokerProcess, zbus: Zbus, rabbit: str) -> None:
    zbus("declare", "Rabbit")
    celery = {"id": "7", "x-death": [{"count": 1}], "Authorization": "x", "colour": "red"}
    Management.queues["/api/queues/%2F/a%2Fb/get"] = [
        queued("two chairs", message_id="m-1", timestamp=1_800_000_000, headers=celery,
               content_type="text/plain", correlation_id="c-1", delivery_mode=2),
        queued("/wA=", "base64"),
        queued("no", "base64"),
        queued("the same"),
        queued("the same"),
    ]  # fmt: skip
    command = ["import", "rabbitmq", "Rabbit", rabbit, "a/b", "--password", "s/cret"]
    assert zbus(*command, code=1).stderr.startswith("zbus: message 3: Incorrect padding; mend it")
    told = zbus(*command, "--on-error", "skip", "--count", "4")
    assert told.stdout.endswith("/s), 2 known, 1 refused\n")
    assert "there is 1 message more in the queue: --count 5 takes them, too" in told.stderr
    assert zbus(*command, "--on-error", "skip").stdout.startswith("1 message (")
    first, second, *others = messages(broker, "Rabbit")
    assert (first.text, first.id, first.tag) == ("two chairs", "m-1", "order.new")
    own = {
        **{"source-id": "7", "x-death": '[{"count":1}]', "source-authorization": "x"},
        **{"colour": "red", "content-type": "text/plain", "correlation-id": "c-1"},
        "source-timestamp": "1800000000000",
    }
    assert first.headers.items() >= own.items()
    assert (second.body, [each.text for each in others]) == (b"\xff\x00", ["the same"] * 2)


@pytest.mark.parametrize(
    ("url", "args", "code", "text"),
    [
        ("", ["q", "--password", "x"], 3, "user 'ann' may not read it (status 401)"),
        ("", ["q", "--vhost", "v"], 3, "there is no queue 'q' in the vhost 'v'"),
        ("", ["page"], 3, "RabbitMQ answered with '<html>A console</html>': is 127.0.0.1:"),
        ("", ["broken"], 3, "answered with status 500"),
        ("", ["cut"], 3, "peer closed connection"),
        ("http://127.0.0.1:1", ["q"], 3, "RabbitMQ at 127.0.0.1:1: "),
        (
            "amqp://127.0.0.1",
            ["q"],
            64,
            "the URL of RabbitMQ is of the form http://user@host:15672",
        ),
        ("http://[", ["q"], 64, "the URL of RabbitMQ"),
        ("http://a:x", ["q"], 64, "the URL of RabbitMQ"),
    ],
)
def test_what_the_management_api_may_answer(
    zbus: Zbus, rabbit: str, url: str, args: list[str], code: int, text: str
) -> None:
    secret = () if "--password" in args else ("--password", "s/cret")
    command = ("import", "rabbitmq", "T", url or rabbit, *args, *secret)
    assert text in zbus(*command, code=code).stderr.splitlines()[-1]
