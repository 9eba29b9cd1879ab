"""What is accepted can be delivered: every way in at all its limits at once, with every way out.

nginx as it comes takes a reply's head of 4,096 bytes. What was stored leaves in 3,900, whatever
the names, and with all lines of the application.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote, unquote

import pytest

from tests.conformance.dialogue import TYPED, Client, World, cmd, http, ok, put, restart
from tests.conformance.websocket_client import upgraded
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.guard import GuardSettings

HEAD_BYTES_MAX = 3_900
BYTES_MAX = 2_048

TOPIC = "%41" * 66 + "Tt"
SHORTER = "%41" * 65  # `cron.` is before it
GROUP = "%42" * 66 + "Gg"
FAR = "中" * 66 + "Dd"  # where dead letters come from
SHORTER_FAR = "中" * 64 + "Dd"
ALL_TOPICS = (TOPIC, SHORTER, FAR, SHORTER_FAR, f"cron.{SHORTER}", f"cron.{SHORTER_FAR}")
FAR_GROUP = "文" * 66 + "Ee"
ORIGIN = f"https://{'o' * 60}.{'e' * 23}.example"
PAGE = (f"origin: {ORIGIN}", "sec-fetch-mode: cors")
LABELS = {"tag": "%2541" * 42 + "x", "id": "i" * 39}
ONCE = {"idempotency-key": "y" * 255}
KEY = {"key": "k" * 1_024}
SHORT = {f"x-{number:02}": "v" for number in range(38)}
TYPE = {"content-type": f"text/html; charset=utf-8; x={'p' * 600}"}

Lines = dict[str, str]
MESSAGES: dict[str, Lines] = {
    "many lines": {**LABELS, **ONCE, **SHORT},
    "a long key": {**LABELS, **ONCE, **KEY},
    "an unsafe type": {**LABELS, **ONCE, **TYPE},
    "one long line": LABELS,
}


def path(*names: str) -> str:
    return "".join("/" + quote(name, safe="") for name in names)


def world() -> Client:
    """A broker with a name at its limit, and a topic and a group with those, too."""
    guard = GuardSettings(hosts=("*",), cors_origins=(ORIGIN,))
    settings = ZbusSettings(address="h" * 94 + ":15555", reload_window_ms=2_000)
    client = World(settings=settings, guard=guard).connect()
    assert len(TOPIC) == len(GROUP) == len(FAR.encode()) == len(FAR_GROUP.encode()) == 200
    prepare(client, TOPIC)
    return client


def prepare(client: Client, topic: str, query: str = "") -> None:
    """A topic, and a group of it for each way out."""
    for way_out in WAYS_OUT:
        declare(client, topic, group_of(way_out), query)


def declare(client: Client, topic: str, group: str, query: str = "") -> None:
    words = "partitions=9&ack=true&from=earliest"
    ok(client, http(f"{path(topic, group)}?cmd=declare&{words}&{query}"))


# -- ways in -------------------------------------------------------------------------------------


def longest(lines: Lines, send: Callable[[Lines], tuple[int, bytes] | None]) -> None:
    """Send it with as long a line as is accepted, which refusals say; None = it waits."""
    length = BYTES_MAX
    for _ in range(3):
        reply = send({**lines, "x-fill": "f" * length})
        if reply is None or reply[0] == 200:
            assert length < BYTES_MAX, "the first is refused"
            return
        assert reply[0] == 431, reply
        length -= int(reply[1].split()[-1]) - BYTES_MAX
    raise AssertionError("it is refused for what it is not")


def filled(client: Client, lines: Lines, make: Callable[[Lines], bytes]) -> None:
    def send(lines: Lines) -> tuple[int, bytes] | None:
        replies = client.exchange(make(lines))
        return (replies[0].status, replies[0].body) if replies else None

    longest(lines, send)


def written(lines: Lines) -> list[str]:
    return [f"{name}: {value}" for name, value in lines.items()]


def posted(topic: str, *more: str, query: str = "") -> Callable[[Lines], bytes]:
    target = f"{path(topic)}?{query}"
    return lambda lines: http(target, *written(lines), *more, body=b"x", method="POST")


def at(target: str, *more: str) -> Callable[[Lines], bytes]:
    """The topic is not named by the target."""
    topic = f"topic: {quote(TOPIC)}"
    return lambda lines: http(target, topic, *written(lines), *more, body=b"x", method="POST")


def by_header(client: Client, lines: Lines) -> None:
    """The target is as long as one is that is stored unasked."""
    filled(client, lines, at("/" + "p" * 255))


def with_its_way(client: Client, lines: Lines) -> None:
    prepare(client, TOPIC, "sender-headers=1")
    way = (f"user-agent: {'u' * 900}", f"accept: {'a' * 900}")
    filled(client, lines, at("/" + "p" * 4_000, *way))


def with_a_part_of_its_way(client: Client, lines: Lines) -> None:
    """There is room for more, and the target takes it."""
    prepare(client, TOPIC, "sender-headers=1")
    ok(client, at("/" + "p" * 1_000, f"user-agent: {'u' * 900}")(lines))


def by_command(client: Client, lines: Lines) -> None:
    filled(
        client,
        lines,
        lambda all: cmd("produce", f"topic: {quote(TOPIC)}", *written(all), body=b"x"),
    )


def by_container(client: Client, lines: Lines) -> None:
    lines = {name: value for name, value in lines.items() if name != "idempotency-key"}
    kind = "content-type: application/vnd.zbus.messages"

    def make(all: Lines) -> bytes:
        row = cmd("produce", *written(all), body=b"x")
        return http(path(TOPIC), kind, *written(ONCE), body=row, method="POST")

    filled(client, lines, make)


def of_lines(client: Client, lines: Lines) -> None:
    """The keys of ndjson."""
    kind = "content-type: application/x-ndjson"
    line = written({name: lines[name] for name in lines if name in ("key", "idempotency-key")})
    ok(client, http(path(TOPIC), kind, *line, body=b'{"a":1}\n', method="POST"))


def by_json_frame(client: Client, lines: Lines) -> None:
    socket = upgraded(client.world.connect())
    given = {"cmd": "produce", "topic": quote(TOPIC), "body": "x"}

    def send(lines: Lines) -> tuple[int, bytes]:
        reply = socket.ask({**given, "headers": lines})
        return reply["status"], reply["body"].encode()

    longest(lines, send)


def by_transaction(client: Client, lines: Lines) -> None:
    lines = {name: value for name, value in lines.items() if name != "idempotency-key"}
    filled(client, lines, posted(TOPIC, query="cmd=txn_stage&txn=app"))
    places = [{"topic": TOPIC, "offsets": "0"}]
    target = "/?cmd=txn_commit&txn=app&batch=0"
    body = json.dumps({"stages": places}).encode()
    ok(client, http(target, body=body, method="POST"))


def by_schedule(client: Client, lines: Lines) -> str:
    prepare(client, SHORTER)
    schedule(client, SHORTER, lines)
    return SHORTER


def schedule(client: Client, topic: str, lines: Lines) -> None:
    lines = {name: value for name, value in lines.items() if name != "idempotency-key"}
    filled(client, lines, posted(topic, query="cron=*%20*%20*%20*%20*"))
    ok(client, http(f"{path('cron.' + topic)}?cmd=fire&id={lines['id']}"))


def opened_in_a_browser(client: Client, lines: Lines) -> None:
    """Under a key of the broker's own."""
    named = "&".join(f"{name}={quote(lines[name])}" for name in lines if name == "key")
    ok(client, http(f"{path(TOPIC)}?body=x&{named}", *TYPED))


def by_id(client: Client, lines: Lines) -> None:
    """The id is the key."""
    lines = {name: value for name, value in lines.items() if name != "idempotency-key"}
    filled(client, lines, posted(TOPIC, query="idempotent=1"))


def by_death(client: Client, lines: Lines) -> None:
    die_from(client, FAR, lambda: filled(client, lines, posted(FAR)))


def by_death_of_a_schedule(client: Client, lines: Lines) -> None:
    die_from(client, SHORTER_FAR, lambda: schedule(client, SHORTER_FAR, lines))


def die_from(client: Client, topic: str, put: Callable[[], None]) -> None:
    """It is handed out there once, and given back."""
    query = f"group-max-attempts=1&group-dead-letter={quote(TOPIC, safe='')}&sender-headers=1"
    declare(client, topic, FAR_GROUP, query)
    put()
    taken = ok(client, http(f"{path(topic, FAR_GROUP)}?cmd=consume&timeout=10s"))
    give_back(client, path(topic, FAR_GROUP), taken.headers)


def give_back(client: Client, target: str, headers: Lines) -> None:
    place = f"partition={headers['partition']}&offset={headers['offset']}"
    ok(client, http(f"{target}?cmd=nack&{place}"))


WayIn = Callable[[Client, Lines], str | None]
"""It stores one message, and names its topic if that is another."""

WAYS_IN: list[WayIn] = [
    by_header,
    with_its_way,
    with_a_part_of_its_way,
    by_command,
    by_container,
    of_lines,
    by_json_frame,
    by_transaction,
    by_schedule,
    opened_in_a_browser,
    by_id,
    by_death,
    by_death_of_a_schedule,
]

WITHOUT_LINES = (of_lines, opened_in_a_browser, with_a_part_of_its_way)

# -- ways out ------------------------------------------------------------------------------------


WayOut = Callable[[str, str], bytes]


def taken(topic: str, group: str, *lines: str) -> bytes:
    return http(f"{path(topic, group)}?cmd=consume&id={'c' * 39}&timeout=10s", *lines)


def plainly(topic: str, group: str) -> bytes:
    return taken(topic, group)


def by_a_command(topic: str, group: str) -> bytes:
    names = f"topic: {quote(topic)}", f"consume-group: {quote(group)}", "id: " + "c" * 39
    return http("/", "cmd: consume", *names, "timeout: 10s")


def the_last(topic: str, group: str) -> bytes:
    return taken(topic, group, "connection: close")


def to_a_browser(topic: str, group: str) -> bytes:
    return taken(topic, group, *TYPED)


def to_a_page(topic: str, group: str) -> bytes:
    return taken(topic, group, *PAGE)


WAYS_OUT: list[WayOut] = [plainly, by_a_command, the_last, to_a_browser, to_a_page]


def group_of(way_out: WayOut) -> str:
    return GROUP[:-1] + "abcde"[WAYS_OUT.index(way_out)]


def head_of(client: Client, data: bytes) -> bytes:
    """As it is on the wire."""
    client.send(data)
    client.world.settle()
    received, client.received = client.received, b""
    return received.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def read_lines(head: bytes) -> Lines:
    _, *lines = head.decode().split("\r\n")[:-2]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("way_in", WAYS_IN)
def test_what_is_accepted_fits(way_in: WayIn, message: str) -> None:
    client = world()
    topic = way_in(client, MESSAGES[message]) or TOPIC
    for way_out in WAYS_OUT:
        group = group_of(way_out)
        first = head_of(client.world.connect(), way_out(topic, group))
        assert first.startswith(b"HTTP/1.1 200 "), (way_out, first)
        give_back(client, path(topic, group), read_lines(first))
        again = head_of(client.world.connect(), way_out(topic, group))
        assert b"\r\nretry: 1\r\n" in again, (way_out, again)
        assert max(len(first), len(again)) <= HEAD_BYTES_MAX, (way_out, len(first), again)
        if way_in not in WITHOUT_LINES:
            own = [name.encode() for name in MESSAGES[message] if name.startswith("x-")]
            assert b"x-fill: fff" in again
            assert all(name in again for name in own), "no line of the application is left out"


def test_labels_alone_have_the_limit_of_the_lines() -> None:
    client = World(settings=ZbusSettings(message_headers_bytes_max=256)).connect()
    ok(client, http("/T?cmd=declare"))
    for length, status in ((249, 200), (250, 431)):
        reply = client.request(http("/T", f"key: {'k' * length}", body=b"x", method="POST"))
        assert reply.status == status, reply


def test_what_was_accepted_with_a_larger_limit_is_delivered_whole() -> None:
    """The broker leaves out lines of its own, and none of the application."""
    larger = World(settings=ZbusSettings(message_headers_bytes_max=65_536))
    ok(larger.connect(), http("/T?cmd=declare&sender-headers=1"))
    line = f"x-a: {'v' * 6_000}"
    ok(larger.connect(), http("/T/p?cmd=produce", line, body=b"x", method="POST"))
    for lines, named in (((), {"topic"}), (TYPED, set())):
        taken = ok(restart(larger).connect(), http("/T?cmd=consume", *lines))
        assert taken.headers["zbus-header-x-a"] == "v" * 6_000
        rest = taken.headers.keys() & {"topic", "consume_group", "sender", "host", "origin_url"}
        assert rest == named | {"sender"}


@pytest.mark.parametrize("name", [FAR, "ü %41%", "%" * 200, "%41" * 66, "中" * 40 + "%41%zz%"])
def test_the_origin_of_a_dead_letter_can_be_decoded(name: str) -> None:
    """A name is percent-encoded unless it were three times as long then."""
    client = world()
    die_from(client, name, lambda: put(client, path(name)[1:], b"x"))
    letter = ok(client, plainly(TOPIC, group_of(plainly))).headers
    assert (unquote(letter["dead_topic"]), unquote(letter["dead_group"])) == (name, FAR_GROUP)
    assert len(letter["dead_topic"].encode()) <= 340
    why = client.request(http(f"/_why{path(name)}?group={quote(FAR_GROUP)}&offset=0"))
    assert b"after 1 attempt" in why.body, "the letter is found by its lines"


# -- calls ---------------------------------------------------------------------------------------

SERVICE = "%43" * 66 + "Ss"
SECRETS = {"authorization": f"Bearer {'s' * 300}", "cookie": "c=" + "d" * 200}
WAY = "user-agent: " + "u" * 900
CALLS: dict[str, Callable[[Lines], bytes]] = {
    "in the path": lambda lines: http(f"{path(TOPIC)}/m/{'p' * 4_000}", *written(lines), WAY),
    "a short target": at("/" + "p" * 255, WAY),
    "a long target": at("/" + "p" * 900, WAY),
}


@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_fits(call: str, way_out: WayOut) -> None:
    client = world()
    service = client.world.connect()
    ok(client, http(f"{path(TOPIC)}?cmd=remove"))
    group = group_of(way_out)
    ok(client, http(f"{path(TOPIC, group)}?cmd=declare&rpc=true&from=earliest"))
    filled(client, {"tag": LABELS["tag"], **SECRETS}, CALLS[call])
    head = head_of(service, way_out(TOPIC, group))
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert b"authorization: Bearer sss" in head
    assert b"\r\nsender: " in head
    assert (b"\r\norigin_url: /" in head) is (call != "in the path")
    assert len(head) <= HEAD_BYTES_MAX, head


@pytest.mark.parametrize("lines", [(), TYPED, PAGE], ids=["program", "browser", "page"])
@pytest.mark.parametrize("answer", [{}, SHORT, TYPE], ids=["one", "many", "type"])
def test_an_answer_fits(answer: Lines, lines: tuple[str, ...]) -> None:
    """What is over the limit is refused, and the caller is not left waiting."""
    client = world()
    ok(client, http(f"{path(SERVICE)}?cmd=declare&rpc=true"))
    for over_bytes in (0, 1):
        service, caller = client.world.connect(), client.world.connect()
        caller.send(http(f"{path(SERVICE)}?id={'c' * 39}", *lines, body=b"x", method="POST"))
        client.world.settle()
        taken = ok(service, http(f"{path(SERVICE)}?cmd=consume"))
        recver = f"recver: {taken.headers['sender']}", f"id: {'c' * 39}", "origin_status: 599"
        count_bytes = sum(len(f"zbus-header-{name}: {answer[name]}\r\n") for name in answer)
        fill_bytes = BYTES_MAX - count_bytes - 40 * ("content-type" in answer) - 22 + over_bytes
        own = written({**answer, "x-fill": "f" * fill_bytes})
        routed = service.exchange(cmd("route", *recver, f"topic: {quote(TOPIC)}", *own, body=b"y"))
        assert [reply.status for reply in routed] == [431] * over_bytes
        client.world.settle()
        head = caller.received.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        assert head.startswith((b"HTTP/1.1 599 ", b"HTTP/1.1 502 ")[over_bytes]), head
        assert len(head) <= HEAD_BYTES_MAX, head
