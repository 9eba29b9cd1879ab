"""The examples of JSON and the binary layouts, as the original's documents have them: byte for
byte, and member for member."""

from __future__ import annotations

import json
import struct

import pytest

from tests.dialects.adf.broker import broker, new_id, pull, push, queue
from tests.dialects.adf.speakers import BINARY, TEXT, Http, Speaker, WebSocket, binary
from tests.process.broker import BrokerProcess
from zbus.dialects.adf.actions import Action
from zbus.dialects.adf.forms import Binary, Json

__all__ = ["broker", "queue"]

UUID = "88bea088837d4743af67a2d49e6d08d1"
BODY = "this is a test message."


def test_codes() -> None:
    assert {action.name: int(action) for action in Action} == {
        **{"LPUSH": 1, "RPUSH": 2, "DELETE": 3, "PULL": 4, "CLEAR": 5, "COUNT": 6},
        **{"LCANCEL": 7, "RCANCEL": 8, "CREATEQUEUE": 9, "DELETEQUEUE": 10},
    }


@pytest.mark.parametrize("word", ["lpush", "rpush"])
def test_the_json_examples(broker: BrokerProcess, queue: str, word: str) -> None:
    """In the order of the document: a push, then everything else, with the ids of its replies."""
    socket = WebSocket(broker.port, "/queue/json")

    def ask(action: str, **more: object) -> dict[str, object]:
        request = {"action": action, "requestid": UUID, "queue": queue, **more}
        socket.tell(TEXT, json.dumps(request).encode())
        kind, data = socket.read()
        assert kind == TEXT
        told = json.loads(data)
        assert isinstance(told, dict)
        return told

    common = {"requestid": UUID, "queue": queue, "result": "ok"}
    assert ask("createqueue") == {"action": "createqueue", **common}
    pushed = ask(word, body=BODY)
    id = pushed.pop("messageid")
    assert isinstance(id, int)
    assert pushed == {"action": word, **common}
    assert ask("count") == {"action": "count", **common, "count": 1}
    message = {"body": BODY, "messageid": id}
    assert ask("pull") == {"action": "pull", **common, **message, "duplications": 0}
    assert ask("lcancel") == {"action": "lcancel", **common}
    assert ask("pull") == {"action": "pull", **common, **message, "duplications": 1}
    assert ask("rcancel") == {"action": "rcancel", **common}
    assert ask("pull") == {"action": "pull", **common, **message, "duplications": 2}
    assert ask("delete") == {"action": "delete", **common}
    assert ask("clear") == {"action": "clear", **common, "count": 0}
    assert ask("deletequeue") == {"action": "deletequeue", **common}


def sized(text: bytes) -> bytes:
    return struct.pack("!H", len(text)) + text


@pytest.mark.parametrize("word", ["lpush", "rpush"])
def test_the_binary_layouts(broker: BrokerProcess, queue: str, word: str) -> None:
    """Each field where the tables have it."""
    socket, name, id, body = WebSocket(broker.port, "/queue/bin"), queue.encode(), b"p1", b"hi"
    codes = {action.name.lower(): bytes((action,)) for action in Action}

    def ask(action: str, more: bytes = b"") -> bytes:
        """What follows the fields that all replies have."""
        socket.tell(BINARY, codes[action] + sized(id) + sized(name) + more)
        kind, data = socket.read()
        begin = codes[action] + sized(id) + sized(name) + sized(b"ok")
        assert (kind, data[: len(begin)]) == (BINARY, begin)
        return data[len(begin) :]

    assert ask("createqueue") == b""
    messageid = ask(word, sized(body))
    assert len(messageid) == 8
    assert ask("count") == struct.pack("!i", 1)
    assert ask("pull") == sized(body) + struct.pack("!H", 0) + messageid
    assert ask("lcancel") == b""
    assert ask("pull") == sized(body) + struct.pack("!H", 1) + messageid
    assert ask("rcancel") == b""
    assert ask("pull") == sized(body) + struct.pack("!H", 2) + messageid
    assert ask("delete") == b""
    assert ask("clear") == struct.pack("!i", 0)
    assert ask("deletequeue") == b""


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (binary("lpush", b"7", b"/q", b"hi"), "01 0001 37 0002 2f71 0002 6869"),
        (
            Binary(1, Action.LPUSH, b"/q").number(b"7", 3),
            "01 0001 37 0002 2f71 0002 6f6b 0000000000000003",
        ),
        (binary("pull", b"p1", b"/q"), "04 0002 7031 0002 2f71"),
        (
            Binary(4, Action.PULL, b"/q").message(b"p1", b"hi", 0, 3),
            "04 0002 7031 0002 2f71 0002 6f6b 0002 6869 0000 0000000000000003",
        ),
        (
            Binary(6, Action.COUNT, b"/q").number(b"c", 5),
            "06 0001 63 0002 2f71 0002 6f6b 00000005",
        ),
        (
            Binary(3, Action.DELETE, b"/q").failed(b"p1", "message was not pulled."),
            "03 0002 7031 0002 2f71 0017" + b"message was not pulled.".hex(),
        ),
        (
            Binary(4, Action.PULL, b"/q").failed(b"p1", "x"),
            "04 0002 7031 0002 2f71 0001 78",
        ),
        (
            Binary(6, Action.COUNT, b"").number(b"", 1 << 40),
            "06 0000 0000 0002 6f6b 7fffffff",
        ),
    ],
)
def test_worked_bytes(made: bytes, shown: str) -> None:
    assert made == bytes.fromhex(shown)


def test_json_is_written_for_its_readers() -> None:
    """No surrogates are escaped, whatever the text; what is no text is replaced."""
    form = Json(b"pull", Action.PULL, b'/"q\\')
    body = "中😀\x01\u2028".encode() + b"\xff"
    data = form.message(b"1", body, 65_535, (1 << 53) - 1)
    assert "中😀".encode() in data
    assert json.loads(data) == {
        **{"action": "pull", "queue": '/"q\\', "requestid": "1", "result": "ok"},
        **{"body": "中😀\x01\u2028\ufffd", "duplications": 65_535},
        "messageid": (1 << 53) - 1,
    }


PATHS = ("rpush", "lpush", "pull", "delete", "lcancel", "rcancel", "count", "clear")


@pytest.mark.parametrize("suffix", ["json", "bin"])
def test_the_paths_of_http(broker: BrokerProcess, queue: str, suffix: str) -> None:
    """All of the table, in its order, on one connection."""
    http, kind = Http(broker.port), "Content-Type: application/octet-stream"
    for action in (*PATHS[:4], "rpush", "pull", *PATHS[4:5], "pull", *PATHS[5:]):
        target = f"/queue/{action}.{suffix}?queue={queue}&requestid={UUID}"
        pushes = action in PATHS[:2]
        status, _, data = http.ask(
            "POST" if pushes else "GET", target, kind, body=BODY.encode() if pushes else None
        )
        assert status == 200
        assert (b'"result":"ok"' if suffix == "json" else sized(b"ok")) in data, action


def test_both_paths_of_websockets(broker: BrokerProcess, queue: str) -> None:
    """And several pulls at once on one of them."""
    one, other = Speaker(broker.port, "ws-json"), Speaker(broker.port, "ws-bin")
    asked = [other.tell("pull", str(number), queue) for number in range(3)]
    push(one, queue, b"0", b"1", b"2")
    assert [waiting.take().body for waiting in asked] == [b"0", b"1", b"2"]
    push(other, queue, b"3")
    assert pull(one, queue, new_id()) == [b"3"]
