"""What clients do on the wire, the stock one above all, and what is wrong with it (15, 16, 18)."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from tests.dialects.adf.broker import broker, form, ids, pull, push, queue, speaker
from tests.dialects.adf.speakers import (
    BINARY,
    CLOSE,
    FORMS,
    KEY,
    PING,
    PONG,
    TEXT,
    Http,
    Socket,
    Speaker,
    WebSocket,
    binary,
    handshake,
    read_binary,
    read_json,
)
from tests.process.broker import BrokerProcess
from tests.wire.websocket_frames import frame

__all__ = ["broker", "form", "queue", "speaker"]

ACCEPT = base64.b64encode(
    hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
).decode()


# -- the handshake -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/queue/json", "/queue/bin", "/queue/json?a=b", "/queue/bin?"])
@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=["CRLF", "LF"])
def test_the_stock_handshake(broker: BrokerProcess, path: str, end: str) -> None:
    """With a key that is not 16 bytes in Base64, and on Linux with bare line feeds. The answer is
    read by splitting lines at their colons, and its names are compared as they are spelled."""
    socket = Socket(broker.port)
    socket.send(handshake(path, end=end))
    first, *lines = socket.until(b"\r\n\r\n").decode("ascii").split("\r\n")
    assert first.startswith("HTTP/1.1 101 ")
    assert all(":" in line for line in lines)
    assert f"Sec-WebSocket-Accept: {ACCEPT}" in lines
    assert not any(line.lower().startswith("sec-websocket-ext") for line in lines)


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (404, handshake("/queue/text")),
        (404, handshake("/queue/JSON")),
        (404, handshake("/queue/pull")),
        (404, handshake("/queue/json/more")),
        (404, handshake("/queue")),
        (400, handshake("/queue/json", key="")),
        (426, handshake("/queue/json").replace(b"13", b"8")),
        (426, b"GET /queue/json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    ],
)
def test_no_handshake(broker: BrokerProcess, status: int, data: bytes) -> None:
    http = Http(broker.port)
    http.send(data)
    assert http.read_head()[0] == status


def test_a_ping_is_answered(broker: BrokerProcess) -> None:
    socket = WebSocket(broker.port, "/queue/json")
    socket.tell(PING, b"")  # as the stock client sends one every minute
    assert socket.read() == (PONG, b"")
    socket.tell(PING, b"payload")
    assert socket.read() == (PONG, b"payload")


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_message_in_fragments(broker: BrokerProcess, form: str, queue: str) -> None:
    """The stock client sends none and can read none, but others send them."""
    speaker = Speaker(broker.port, form)
    socket = speaker.socket
    assert socket is not None
    data = binary("rpush", b"1", queue.encode(), b"x" * 60_000)
    if form == "ws-json":
        request = {"action": "rpush", "requestid": "1", "queue": queue, "body": "x" * 60_000}
        data = json.dumps(request).encode()
    kind = BINARY if form == "ws-bin" else TEXT
    socket.send(frame(kind, data[:10], fin=False) + frame(0, data[10:], fin=True))
    assert speaker.next().result == "ok"
    assert pull(speaker, queue, "1") == [b"x" * 60_000], "in one frame"


def test_large_answers_are_one_frame_each(broker: BrokerProcess, queue: str) -> None:
    speaker = Speaker(broker.port, "ws-json")
    for _ in range(20):
        push(speaker, queue, b"\x01" * 65_535)  # six bytes each as JSON
    asked = [speaker.tell("pull", id, queue) for id in ids(20)]
    assert {one.take().body for one in asked} == {b"\x01" * 65_535}


# -- messages that are wrong -------------------------------------------------------------------

JSON_PROBLEMS: tuple[tuple[str, str | None, str], ...] = (
    # what is sent, the result, the id
    ('{"action":"x","requestid":"1","queue":"/q"}', "action unknown.", "1"),
    ('{"action":"PULL","requestid":"1","queue":"/q"}', "action unknown.", "1"),
    ('{"requestid":"1","queue":"/q"}', "action unknown.", "1"),
    ('{"action":7,"requestid":"1","queue":"/q"}', "action unknown.", "1"),
    ('{"action":"count","requestid":"1"}', "queue empty.", "1"),
    ('{"action":"count","requestid":"1","queue":""}', "queue empty.", "1"),
    ('{"action":"count","requestid":"1","queue":7}', "queue empty.", "1"),
    ('{"action":"count","requestid":"1","queue":null}', "queue empty.", "1"),
    ('{"action":"createqueue","requestid":"1"}', "no set queue name.", "1"),
    ('{"action":"rpush","requestid":"1","queue":"/q"}', "body empty.", "1"),
    ('{"action":"rpush","requestid":"1","queue":"/q","body":7}', "body empty.", "1"),
    ('{"action":"lpush","requestid":"1","queue":"/q","body":null}', "body empty.", "1"),
    ('{"action":"lpush","requestid":"1","queue":"/q","body":["x"]}', "body empty.", "1"),
    ('{"action":"rpush","requestid":"1","queue":"/q","body":"\\ud800"}', "body invalid.", "1"),
    ('{"action":"count","requestid":"1","queue":"\\udc00"}', "queue invalid.", "1"),
    ('{"action":"count","requestid":"","queue":"/q"}', "requestid invalid.", ""),
    (
        '{"action":"count","requestid":"%s","queue":"/q"}' % ("x" * 33),
        "requestid invalid.",
        "x" * 33,
    ),
    ('{"action":"count","requestid":7,"queue":"/never"}', "queue not exists.", "7"),
    ('{"action":"count","requestid":-1.5,"queue":"/never"}', "queue not exists.", "-1.5"),
    ('{"action":"pull","requestid":"1","queue":"/q","timeout":-1}', "timeout invalid.", "1"),
    ('{"action":"pull","requestid":"1","queue":"/q","timeout":[]}', "timeout invalid.", "1"),
    (
        '{"action":"count","requestid":"1","queue":"/never","more":{"a":[]}}',
        "queue not exists.",
        "1",
    ),
    (' {"queue":"/never","action":"count","requestid":"\\u0031"} ', "queue not exists.", "1"),
    ('{"action":"count","requestid":"1","queue":"/ne\x01ver"}', "queue invalid.", "1"),
    ("", None, ""),
    ("no JSON", None, ""),
    ("[]", None, ""),
    ('["action"]', None, ""),
    ("7", None, ""),
    ("null", None, ""),
    ("{}", None, ""),
    ('{"action":"count","queue":"/q"}', None, ""),
    ('{"action":"count","requestid":null,"queue":"/q"}', None, ""),
    ('{"action":"count","requestid":true,"queue":"/q"}', None, ""),
    ('{"action":"count","requestid":["1"],"queue":"/q"}', None, ""),
    ('{"action":"count","requestid":"\\ud800","queue":"/q"}', None, ""),
    ('{"action":"count","requestid":"1","queue":"/q"', None, ""),
    ("[" * 100_000, None, ""),
)


@pytest.mark.parametrize(("sent", "result", "id"), JSON_PROBLEMS, ids=range(len(JSON_PROBLEMS)))
def test_messages_that_are_wrong(
    broker: BrokerProcess, sent: str, result: str | None, id: str
) -> None:
    """They are answered if that can be matched with what was sent, and harm nothing."""
    socket = WebSocket(broker.port, "/queue/json")
    socket.tell(TEXT, sent.encode())
    socket.tell(TEXT, b'{"action":"count","requestid":"next","queue":"/never"}')
    told = [read_json(socket.read()[1])]
    if result is not None:
        assert (told[0].result, told[0].id) == (result, id)
        told.append(read_json(socket.read()[1]))
    assert told[-1].id == "next"


def test_controls_that_are_not_escaped(broker: BrokerProcess, queue: str) -> None:
    """As the stock client writes them."""
    speaker = Speaker(broker.port, "ws-json")
    assert speaker.socket is not None
    request = f'"action":"rpush","requestid":"1","queue":"{queue}","body":"a\x01\x1f\tb"'
    speaker.socket.tell(TEXT, b"{%b}" % request.encode())
    assert speaker.next().result == "ok"
    assert pull(speaker, queue, "1") == [b"a\x01\x1f\tb"]


BINARY_PROBLEMS = (
    (binary(99, b"1", b"/q"), "action unknown."),
    (binary(0, b"1", b"/q"), "action unknown."),
    (binary("count", b"1", b""), "queue empty."),
    (binary("createqueue", b"1", b""), "no set queue name."),
    (binary("count", b"", b"/q"), "requestid invalid."),
    (binary("count", b"x" * 33, b"/q"), "requestid invalid."),
    (binary("pull", "ä".encode() * 33, b"/q"), "requestid invalid."),
    (binary("count", "ä".encode() * 32, b"/never"), "queue not exists."),
    (binary("count", b"1", b"/never") + b"more", "queue not exists."),
    (binary("count", b"1", b"x" * 65_535), "queue invalid."),
)


@pytest.mark.parametrize(("sent", "result"), BINARY_PROBLEMS, ids=range(len(BINARY_PROBLEMS)))
def test_binary_messages_that_are_wrong(broker: BrokerProcess, sent: bytes, result: str) -> None:
    socket = WebSocket(broker.port, "/queue/bin")
    socket.tell(BINARY, sent)
    assert read_binary(socket.read()[1]).result == result
    socket.tell(BINARY, binary("count", b"next", b"/never"))
    assert read_binary(socket.read()[1]).id == "next"


@pytest.mark.parametrize("id", [b"\xff\xfe", b"\xc3"])
def test_bytes_that_are_no_text_are_given_back(broker: BrokerProcess, id: bytes) -> None:
    socket = WebSocket(broker.port, "/queue/bin")
    for sent, result in (
        (binary("count", id, b"/q"), b"requestid invalid."),
        (binary("count", b"1", id), b"queue invalid."),
    ):
        socket.tell(BINARY, sent)
        assert socket.read() == (BINARY, sent + len(result).to_bytes(2) + result)


WHOLE = binary("rpush", b"id", b"/cut", b"body")


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_message_that_is_cut(broker: BrokerProcess, size: int) -> None:
    """Before its queue ends, nobody can say what it was."""
    socket = WebSocket(broker.port, "/queue/bin")
    socket.tell(BINARY, WHOLE[:size])
    kind, data = socket.read()
    if size < len(binary("rpush", b"id", b"/cut")):
        assert (kind, data[:2]) == (CLOSE, (1007).to_bytes(2))
        assert socket.is_closed()
    else:
        assert read_binary(data).result == "body length invalid."
    assert Speaker(broker.port, "ws-bin").ask("count", "1", "/cut").result == "queue not exists."


@pytest.mark.parametrize("form", FORMS[:2])
def test_messages_of_the_other_kind_are_passed_over(broker: BrokerProcess, form: str) -> None:
    speaker = Speaker(broker.port, form)
    assert speaker.socket is not None
    wrong = TEXT if speaker.is_binary else BINARY
    speaker.socket.tell(wrong, b'{"action":"count","requestid":"1","queue":"/q"}')
    speaker.socket.tell(wrong, b"")
    assert speaker.ask("count", "next", "/never").id == "next"


# -- HTTP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".json", ".bin"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_suffixes_and_methods(broker: BrokerProcess, queue: str, suffix: str, method: str) -> None:
    http = Http(broker.port)
    query = f"?queue={queue}&requestid=1"
    pushed = "application/octet-stream"
    lines = (f"Content-Type: {pushed}", "Expect: 100-continue")
    http.request("POST", f"/queue/rpush{suffix}{query}", *lines, "Content-Length: 2")
    assert http.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
    http.send(b"hi")
    _, headers = http.read_head()
    read = read_binary if suffix == ".bin" else read_json
    assert headers["content-type"] == (pushed if suffix == ".bin" else "application/json")
    assert read(http.read_body(headers)).result == "ok"
    body = None if method == "GET" else b"ignored"
    for action in ("count", "pull", "delete", "clear", "deletequeue", "createqueue"):
        status, _, data = http.ask(method, f"/queue/{action}{suffix}{query}", body=body)
        assert (status, read(data).result) == (200, "ok"), "on one connection"


@pytest.mark.parametrize(
    "query",
    [
        "queue=/q/%E4%B8%AD%20%2B&requestid=1",
        "QUEUE=%2fq%2F%e4%b8%ad+%2B&RequestID=%31",
        "requestid=1&queue=/q/%E4%B8%AD+%2b&other=x",
        "queue=/q/%E4%B8%AD+%2b&requestid=1&queue=second",
    ],
)
def test_parameters(broker: BrokerProcess, query: str) -> None:
    status, _, data = Http(broker.port).ask("GET", f"/queue/delete?{query}")
    told = read_json(data)
    assert (status, told.id, told.queue) == (200, "1", "/q/中 +")


HTTP_PROBLEMS: tuple[tuple[int, str, str, tuple[str, ...], bytes | None], ...] = (
    (404, "GET", "/queue", (), None),
    (404, "GET", "/queue/", (), None),
    (404, "GET", "/queue/x?queue=/q&requestid=1", (), None),
    (404, "GET", "/queue/Count?queue=/q&requestid=1", (), None),
    (404, "GET", "/queue/count.xml?queue=/q&requestid=1", (), None),
    (404, "GET", "/queue/count.?queue=/q&requestid=1", (), None),
    (404, "GET", "/queue/count/json?queue=/q&requestid=1", (), None),
    (405, "GET", "/queue/rpush?queue=/q&requestid=1", (), None),
    (405, "PUT", "/queue/rpush?queue=/q&requestid=1", (), b"x"),
    (405, "HEAD", "/queue/count?queue=/q&requestid=1", (), None),
    (405, "HEAD", "/queue/pull?queue=/q&requestid=1", (), None),
    (405, "DELETE", "/queue/delete?queue=/q&requestid=1", (), None),
    (411, "POST", "/queue/rpush?queue=/q&requestid=1", (), None),
    (411, "POST", "/queue/lpush?queue=/q&requestid=1", (), b""),
    (
        400,
        "POST",
        "/queue/rpush?queue=/q&requestid=1",
        ("Content-Type: multipart/form-data",),
        b"x",
    ),
)


@pytest.mark.parametrize(("status", "method", "target", "lines", "body"), HTTP_PROBLEMS)
def test_what_http_has_a_status_for(
    broker: BrokerProcess,
    status: int,
    method: str,
    target: str,
    lines: tuple[str, ...],
    body: bytes | None,
) -> None:
    http = Http(broker.port)
    http.request(method, target, *lines, body=body)
    assert http.read_head()[0] == status


def test_a_chunked_body(broker: BrokerProcess, queue: str) -> None:
    http = Http(broker.port)
    target = f"/queue/rpush?queue={queue}&requestid=1"
    http.request("POST", target, "Transfer-Encoding: chunked")
    http.send(b"2\r\nhi\r\n0\r\n\r\n")
    _, headers = http.read_head()
    assert read_json(http.read_body(headers)).result == "ok"
    http.request("POST", target, "Transfer-Encoding: chunked")
    http.send(b"0\r\n\r\n")
    assert http.read_head()[0] == 400, "there is nothing in it"


def test_a_body_over_the_limit_of_the_edge(broker: BrokerProcess, queue: str) -> None:
    http = Http(broker.port)
    target = f"/queue/rpush?queue={queue}&requestid=1"
    http.request("POST", target, f"Content-Length: {17 << 20}")
    assert http.read_head()[0] == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "x"])
def test_any_type_of_content(broker: BrokerProcess, queue: str, kind: str) -> None:
    """Tools of HTTP set their own."""
    target = f"/queue/rpush?queue={queue}&requestid=1"
    lines = f"Content-Type: {kind}"
    _, _, data = Http(broker.port).ask("POST", target, lines, body=b"a=b&queue=x")
    assert read_json(data).result == "ok"
    assert pull(Speaker(broker.port, "ws-bin"), queue, "1") == [b"a=b&queue=x"]


FAILURES = (
    ("delete", "queue=/never&requestid=1", "queue not exists."),
    ("count", "queue=/never", "requestid invalid."),
    ("count", "queue=/never&requestid=", "requestid invalid."),
    ("count", f"queue=/never&requestid={'x' * 33}", "requestid invalid."),
    ("count", "requestid=1", "queue empty."),
    ("createqueue", "requestid=1", "no set queue name."),
    ("count", "queue=%ff&requestid=1", "queue invalid."),
    ("pull", "queue=/never&requestid=1&timeout=x", "timeout invalid."),
)


@pytest.mark.parametrize(("action", "query", "result"), FAILURES)
def test_failures_are_results(broker: BrokerProcess, action: str, query: str, result: str) -> None:
    """The stock client takes any other status for a broken server."""
    status, _, data = Http(broker.port).ask("GET", f"/queue/{action}?{query}")
    assert (status, read_json(data).result) == (200, result)


def test_a_connection_that_closes(broker: BrokerProcess, queue: str) -> None:
    http = Http(broker.port)
    target = f"/queue/rpush?queue={queue}&requestid=1"
    _, headers, data = http.ask("POST", target, "Connection: close", body=b"hi")
    assert (headers["connection"], read_json(data).result) == ("close", "ok")
    assert http.is_closed()
