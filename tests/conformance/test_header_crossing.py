"""Every way of a message's header lines into the broker, with every way out (ADR 41).

What comes out is what went in, and no field of an HTTP reply is the producer's under a name on
which anything could act. A way in stores one message with these lines; a way out gives them back by
name, and says which names stood in the head of an HTTP reply.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import pytest

from tests.client.peer import Joined
from tests.conformance.dialogue import TYPED, Client, cmd, declared, document, http, ok, pull
from tests.conformance.test_events import events, stream
from tests.conformance.websocket_client import read_http, upgraded
from tests.limits import share
from zbus.client import commands
from zbus.client.messages import Message
from zbus.core.model.chunk import Chunk
from zbus.core.model.webhook import Push
from zbus.dialects.zbus.request.header_lines import LINES_MAX
from zbus.server.push.request import attempt_of, lines_of
from zbus.spark.logs import Span
from zbus.spark.source.arrows import record_batches
from zbus.wire.heads.heads import Heads
from zbus.wire.messages import parse_in_steps


def words(text: str) -> list[str]:
    return text.split()


STEERING = words(
    "x-accel-redirect x-accel-expires x-sendfile x-reproxy-url surrogate-control set-cookie "
    "location content-encoding content-range content-disposition content-md5 etag expires "
    "last-modified age vary link refresh retry-after www-authenticate proxy-authenticate "
    "alt-svc clear-site-data access-control-allow-origin content-security-policy "
    "strict-transport-security x-frame-options x-content-type-options cdn-cache-control "
    "cloudflare-cdn-cache-control allow date server status warning upgrade connection "
    "keep-alive te trailer transfer-encoding content-length http2-settings proxy-connection "
    "expect cache-control pragma via user-agent accept referer x-forwarded-for"
)
"""Names that mean something to HTTP, a proxy, a cache or a browser."""

OWN = words(
    "x-app dead_line colour a.b_c `|~^!#$%&'*+-. count durability duplicate reason empty end"
    " first x"
)
STANDARD = words("traceparent tracestate baggage ce-id ce-type ce-specversion")

VALUES = [
    "1",
    "/victim?cmd=remove",
    "user=Am%C3%A9lie",
    "100%41 %zz %",
    "a  b\tc",
    "naïve 中文 Å…",
    "",
    '"quoted"; a=b, c',
    "=?utf-8?q?x?=",
    "\\r\\n",
    "+",
    "%0D%0Aevil: 1",
    "{}<>&#x0a;",
    "x" * 200,
]

TOLD = frozenset(
    words(
        "connection content-length topic id offset origin_id timestamp consume_group partition "
        "retry tag key origin_method origin_url sender idempotency-key content-type cron_id "
        "cron_time dead_topic dead_group dead_partition dead_offset dead_attempts dead_reason "
        "cache-control count"
    )
)
"""Fields of replies that are the broker's own, or its word for the type of a body."""
BROWSERS = frozenset(
    words(
        "content-security-policy cross-origin-resource-policy referrer-policy vary "
        "x-content-type-options x-frame-options x-robots-tag"
    )
)

UNSTEERED = frozenset(
    words("via user-agent accept referer x-forwarded-for server date allow status warning")
)
"""Names that say something in a request, and names that nothing acts on."""

Lines = dict[str, str]


class Out(NamedTuple):
    """A message as it came."""

    lines: Lines  # by the application's names
    fields: frozenset[str] = frozenset()  # names in the head of a plain HTTP reply


def prefixed(lines: Lines) -> list[str]:
    return [f"zbus-header-{name}: {value}" for name, value in lines.items()]


def taken_off(headers: Lines) -> Lines:
    """What somebody reads who takes the prefix off; what has it wins."""
    long = {name[12:]: value for name, value in headers.items() if name.startswith("zbus-header-")}
    return {name: headers[name] for name in headers if not name.startswith("zbus-header-")} | long


# -- ways in -------------------------------------------------------------------------------------


def by_header(client: Client, lines: Lines) -> None:
    ok(client, http("/T", *prefixed(lines), body=b"x", method="POST"))


def by_query(client: Client, lines: Lines) -> None:
    def quoted(text: str) -> str:
        return "".join(f"%{byte:02X}" for byte in text.encode())

    query = "&".join(f"{quoted('zbus-header-' + name)}={quoted(lines[name])}" for name in lines)
    ok(client, http(f"/T?{query}", body=b"x"))


def by_command(client: Client, lines: Lines) -> None:
    ok(client, cmd("produce", "topic: T", *prefixed(lines), body=b"x"))


def by_container(client: Client, lines: Lines) -> None:
    row = cmd("produce", *prefixed(lines), body=b"x")
    kind = "content-type: application/vnd.zbus.messages"
    ok(client, http("/T", kind, body=row, method="POST"))


def by_frame(client: Client, lines: Lines) -> None:
    reply = upgraded(client.world.connect()).request(
        cmd("produce", "topic: T", *prefixed(lines), body=b"x")
    )
    assert reply.status == 200, reply


def by_json_frame(client: Client, lines: Lines) -> None:
    headers = {f"zbus-header-{name}": value for name, value in lines.items()}
    socket = upgraded(client.world.connect())
    reply = socket.ask({"cmd": "produce", "topic": "T", "headers": headers, "body": "x"})
    assert reply["status"] == 200, reply


def by_client(client: Client, lines: Lines) -> None:
    Joined(client.world).run(commands.produce("T", b"x", headers=lines))


def by_clients_batch(client: Client, lines: Lines) -> None:
    Joined(client.world).run(commands.produce_many("T", [Message(b"x", headers=lines)]))


def by_transaction(client: Client, lines: Lines) -> None:
    target = "/T?cmd=txn_stage&txn=app"
    ok(client, http(target, *prefixed(lines), body=b"x", method="POST"))
    stages = {"stages": [{"topic": "T", "offsets": "0"}]}
    target = "/?cmd=txn_commit&txn=app&batch=0"
    ok(client, http(target, body=json.dumps(stages).encode(), method="POST"))


def by_schedule(client: Client, lines: Lines) -> None:
    target = "/T?cron=*%20*%20*%20*%20*"
    ok(client, http(target, *prefixed(lines), body=b"x", method="POST"))
    client.world.advance(61_000)


def by_death(client: Client, lines: Lines) -> None:
    """It was a message of another topic, and nobody acknowledged it."""
    words = "group_mask=64&group_max_attempts=1&group_dead_letter=T&group_ack_timeout=1000"
    ok(client, http(f"/U/g?cmd=declare&{words}"))
    ok(client, http("/U", *prefixed(lines), body=b"x", method="POST"))
    ok(client, http("/U/g?cmd=consume"))
    client.world.advance(2_000)


def by_redrive(client: Client, lines: Lines) -> None:
    """It was dead."""
    ok(client, http("/D/D?cmd=declare&group_mask=64"))
    words = "group_mask=64&group_max_attempts=1&group_dead_letter=D&group_ack_timeout=1000"
    ok(client, http(f"/T/g?cmd=declare&{words}"))
    ok(client, http("/T", *prefixed(lines), body=b"x", method="POST"))
    ok(client, http("/T/g?cmd=consume"))
    assert pull(client).status == 200
    client.world.advance(2_000)
    ok(client, http("/D/D?cmd=redrive"))


def sent_on(client: Client, lines: Lines) -> None:
    """It is what a program read from another topic, and sent as it came."""
    ok(client, http("/U?cmd=declare"))
    ok(client, http("/U", *prefixed(lines), body=b"x", method="POST"))
    found = ok(client, http("/U?cmd=consume"))
    own = [f"{name}: {value}" for name, value in found.headers.items() if name != "topic"]
    own = [line for line in own if not line.startswith(("content-length", "connection"))]
    ok(client, http("/T", *own, body=found.body, method="POST"))


WAYS_IN: list[Callable[[Client, Lines], None]] = [
    by_header,
    by_query,
    by_command,
    by_container,
    by_frame,
    by_json_frame,
    by_client,
    by_clients_batch,
    by_transaction,
    by_schedule,
    by_death,
    by_redrive,
    sent_on,
]

# -- ways out ------------------------------------------------------------------------------------


def plainly(client: Client) -> Out:
    reply = ok(client, http("/T?cmd=consume"))
    return Out(taken_off(reply.headers), frozenset(reply.headers))


def to_a_browser(client: Client) -> Out:
    reply = ok(client, http("/T?cmd=consume", *TYPED))
    return Out(taken_off(reply.headers), frozenset(reply.headers) - BROWSERS)


def at_an_offset(client: Client) -> Out:
    found = ok(client, http("/T?cmd=read&offset=0", "accept: application/json"))
    offset = document(found)[-1]["offset"]
    replies = client.exchange(http(f"/T?cmd=consume&offset={offset}")) or client.replies()
    client.world.advance(1)
    (reply,) = replies or client.replies()
    return Out(taken_off(reply.headers), frozenset(reply.headers))


def by_a_command(client: Client) -> Out:
    """As stock clients of the original read it. A library or a proxy may be between them."""
    reply = ok(client, cmd("consume", "topic: T"))
    steering = frozenset(reply.headers) & frozenset(STEERING) - UNSTEERED
    return Out(taken_off(reply.headers), steering)


def in_a_container(client: Client) -> Out:
    accept = "accept: application/vnd.zbus.messages"
    reply = ok(client, http("/T?cmd=consume&batch=1", accept))
    list(parse_in_steps(reply.body, Heads(), 100))
    return Out(taken_off(read_http(reply.body).headers), frozenset(reply.headers))


def in_json(client: Client) -> Out:
    reply = ok(client, http("/T?cmd=consume&batch=1", "accept: application/json"))
    return Out(document(reply)[0]["headers"], frozenset(reply.headers))


def in_lines(client: Client) -> Out:
    reply = ok(client, http("/T?cmd=consume&batch=1", "accept: application/x-ndjson"))
    return Out(json.loads(reply.body)["headers"], frozenset(reply.headers))


def in_a_frame(client: Client) -> Out:
    reply = upgraded(client.world.connect()).request(cmd("consume", "topic: T"))
    return Out(taken_off(reply.headers))


def in_a_json_frame(client: Client) -> Out:
    reply = upgraded(client.world.connect()).ask({"cmd": "consume", "topic": "T"})
    return Out(reply["headers"])


def as_an_event(client: Client) -> Out:
    *_, event = events(stream(client.world, "/T?cmd=consume&envelope=json&from=earliest"))
    return Out(json.loads(event["data"])["headers"])


def by_looking(client: Client) -> Out:
    reply = ok(client, http("/T?cmd=read&offset=0", "accept: application/json"))
    return Out(document(reply)[-1]["headers"], frozenset(reply.headers) - {"first", "end"})


def by_a_client(client: Client) -> Out:
    (delivery,) = Joined(client.world).run(commands.pull("T", "T"))
    return Out(delivery.headers)


def by_a_webhook(client: Client) -> Out:
    """The request to an endpoint."""
    topic = client.world.broker.topics["t"]
    found: list[tuple[Chunk, int]] = []
    topic.partitions[0].log.get(topic.partitions[0].visible - 1, found.append)  # type: ignore[arg-type]
    client.world.settle()
    chunk, at = found[0]
    group = topic.groups["t"]
    attempt = attempt_of(None, group, Push("https://x/"), 0, chunk, at, 1)
    lines = {name.decode(): value.decode() for name, value in lines_of(attempt, 0)}
    of_hook = {name for name in lines if name.startswith(("webhook-", "zbus-"))}
    return Out(taken_off(lines), frozenset(lines) - of_hook)


def in_spark(client: Client) -> Out:
    """The rows of a reader."""
    reply = ok(client, http("/T?cmd=read&offset=0"))
    end = int(reply.headers["end"])
    batches = record_batches(iter([reply.body]), Span("T", 0, "1", 0, end, 0), 0, end)
    *_, found = [row for each in batches for row in each.to_pylist()]
    return Out(dict(found["headers"]))


WAYS_OUT: list[Callable[[Client], Out]] = [
    plainly,
    to_a_browser,
    at_an_offset,
    by_a_command,
    in_a_container,
    in_json,
    in_lines,
    in_a_frame,
    in_a_json_frame,
    as_an_event,
    by_looking,
    by_a_client,
    by_a_webhook,
    in_spark,
]

# -- the table -----------------------------------------------------------------------------------


def messages() -> list[Lines]:
    """All names, with values in turn so that each value has many names, in messages of a few."""
    names = [*STEERING, *OWN, *STANDARD]
    pairs = [
        (name, VALUES[(at + turn) % len(VALUES)])
        for turn in range(3)
        for at, name in enumerate(names)
    ]
    return [dict(pairs[at : at + 24]) for at in range(0, len(pairs), 24)] + [
        {f"x-{at}": "1" for at in range(LINES_MAX)},
        {"x-long": "v" * 2_000},
        {"content-type": "text/html; charset=utf-8"},
        {"content-type": "Application/CloudEvents+JSON; charset=utf-8", "ce-id": "%41"},
    ]


MESSAGES = messages()


_REFUSED = ("content-length", "transfer-encoding")


@pytest.mark.parametrize(("enter", "leave"), [*product(WAYS_IN, WAYS_OUT)])
def test_what_comes_out_is_what_went_in(
    enter: Callable[[Client, Lines], None], leave: Callable[[Client], Out]
) -> None:
    for lines in share(MESSAGES, WAYS_IN.index(enter) + WAYS_OUT.index(leave)):
        if enter in (by_client, by_clients_batch):  # which refuses these
            lines = {name: lines[name] for name in lines if name not in _REFUSED}
        _, client = declared("T")
        enter(client, lines)
        out = leave(client)
        own = {name: out.lines.get(name) for name in lines}
        assert own == lines
        told = {name for name in out.fields if not name.startswith("zbus-header-")}
        assert told <= TOLD | frozenset(STANDARD), "a producer's field"


def test_a_binary_value() -> None:
    """Bytes that are no UTF-8 are taken for Latin-1 where text is wanted."""
    _, client = declared("T")
    raw = b"POST /T HTTP/1.1\r\nhost: x\r\nx-app: \xe9\xff\r\ncontent-length: 1\r\n\r\nx"
    ok(client, raw)
    assert in_json(client).lines["x-app"] == "éÿ"
    assert in_spark(client).lines["x-app"] == "éÿ"
    ok(client, raw)
    assert by_a_client(client).lines["x-app"] == "éÿ"
    ok(client, raw)
    client.send(http("/T?cmd=consume"))
    client.world.settle()
    assert b"\r\nzbus-header-x-app: \xe9\xff\r\n" in client.received


def test_bodies_are_not_touched() -> None:
    _, client = declared("T")
    body = base64.b64decode("H4sIAAAAAAAAAwMAAAAAAAAAAAA=")
    ok(client, http("/T", "content-encoding: gzip", body=body, method="POST"))
    reply = ok(client, http("/T?cmd=consume"))
    assert (reply.body, reply.headers["zbus-header-content-encoding"]) == (body, "gzip")
    assert "content-encoding" not in reply.headers


# -- calls ---------------------------------------------------------------------------------------

SERVICE = "S?topic_mask=3"


def called(caller: Client, service: Client, *lines: str) -> Lines:
    """A call, as the service gets it."""
    service.send(cmd("consume", "topic: S"))
    caller.send(http("/S", *lines, body=b"x", method="POST"))
    caller.world.settle()
    (call,) = service.replies()
    return call.headers


def answer_by_command(service: Client, call: Lines, lines: list[str]) -> None:
    route = (f"recver: {call['sender']}", f"id: {call['origin_id']}")
    service.exchange(cmd("route", *route, *lines, body=b"y"))


def answer_by_http(service: Client, call: Lines, lines: list[str]) -> None:
    words = f"recver={call['sender']}&id={call['origin_id']}"
    service.exchange(http(f"/?cmd=route&{words}", *lines, body=b"y", method="POST"))


def answer_by_json_frame(service: Client, call: Lines, lines: list[str]) -> None:
    headers = dict(line.split(": ", 1) for line in lines)
    request = {"cmd": "route", "recver": call["sender"], "id": call["origin_id"], "body": "y"}
    socket = upgraded(service.world.connect())
    socket.exchange(socket.frame(json.dumps({**request, "headers": headers})))


ANSWERS = [answer_by_command, answer_by_http, answer_by_json_frame]


def calls_plainly(caller: Client, answer: Callable[[Lines], None]) -> Out:
    answer(called(caller, caller.world.connect()))
    (reply,) = caller.replies()
    return Out(taken_off(reply.headers), frozenset(reply.headers))


def calls_as_a_browser(caller: Client, answer: Callable[[Lines], None]) -> Out:
    answer(called(caller, caller.world.connect(), "origin: http://localhost"))
    (reply,) = caller.replies()
    return Out(taken_off(reply.headers), frozenset(reply.headers) - BROWSERS)


def calls_by_command(caller: Client, answer: Callable[[Lines], None]) -> Out:
    service = caller.world.connect()
    service.send(cmd("consume", "topic: S"))
    caller.send(cmd("produce", "topic: S", "id: c", "ack: 0", body=b"x"))
    caller.world.settle()
    answer(service.replies()[0].headers)
    (reply,) = caller.replies()
    steering = frozenset(reply.headers) & frozenset(STEERING) - UNSTEERED
    return Out(taken_off(reply.headers), steering)


def calls_by_json_frame(caller: Client, answer: Callable[[Lines], None]) -> Out:
    service, socket = caller.world.connect(), upgraded(caller)
    service.send(cmd("consume", "topic: S"))
    socket.exchange(socket.frame(json.dumps({"cmd": "produce", "topic": "S", "id": "c", "ack": 0})))
    answer(service.replies()[0].headers)
    caller.world.settle()
    (message,) = socket.messages()
    return Out(json.loads(message.data)["headers"])


CALLERS = [calls_plainly, calls_as_a_browser, calls_by_command, calls_by_json_frame]


def answers(
    answer: Callable[[Client, Lines, list[str]], None], service: Client, lines: Lines
) -> Callable[[Lines], None]:
    return lambda call: answer(service, call, prefixed(lines))


@pytest.mark.parametrize(("answer", "call"), [*product(ANSWERS, CALLERS)])
def test_what_a_service_answers_comes_as_it_is(
    answer: Callable[[Client, Lines, list[str]], None],
    call: Callable[[Client, Callable[[Lines], None]], Out],
) -> None:
    for lines in MESSAGES:
        world, caller = declared(SERVICE)
        service = world.connect()
        out = call(caller, answers(answer, service, lines))
        assert {name: out.lines.get(name) for name in lines} == lines
        told = {name for name in out.fields if not name.startswith("zbus-header-")}
        assert told <= TOLD | {"host"} | frozenset(STANDARD), "a service's field"


def test_lines_of_a_call_come_to_the_service() -> None:
    for lines in MESSAGES:
        world, caller = declared(SERVICE)
        found = taken_off(called(caller, world.connect(), *prefixed(lines)))
        assert {name: found.get(name) for name in lines} == lines
