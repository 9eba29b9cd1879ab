"""Parameters with `-` and with `_` in their names; one grammar of durations, sizes and times."""

from __future__ import annotations

import msgspec
import pytest

from tests.conformance.dialogue import World, cmd, declared, document, http, ok, pull, put, refused
from tests.conformance.websocket_client import connected
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.schema.commands import CHECKED, GROUP_COMMANDS, SPELLINGS, TABLE
from zbus.testing.world import EPOCH_MS
from zbus.units import parse_time_ms
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads

ROWS = [(command, *pair) for command in TABLE for pair in TABLE[command].spellings.items()]
IDS = [f"{command.decode()}-{name.decode()}" for command, _, name in ROWS]


def params(target: str, *lines: str) -> Params:
    raw = "\r\n".join((f"GET {target} HTTP/1.1", "host: h", *lines)).encode()
    return Params(Heads().read(raw)[0])


def value_of(found: Params, name: bytes) -> bytes | None:
    """Where it is kept, which may be by the newer name."""
    if name == b"consume_group":
        return found.group.encode()
    return found.fields.get(TABLE[found.cmd].former.get(name, name))


@pytest.mark.parametrize(("command", "dashed", "name"), ROWS, ids=IDS)
def test_every_parameter_has_both(command: bytes, dashed: bytes, name: bytes) -> None:
    asked = f"/T?cmd={command.decode()}"
    for spelled in (dashed.decode(), name.decode()):
        for found in (
            params(f"{asked}&{spelled}=7"),
            params(asked, f"{spelled}: 7"),
            params("/", f"cmd: {command.decode()}", "topic: T", f"{spelled}: 7"),
        ):
            assert value_of(found, name) == b"7"
            assert not found.problem
            assert dashed not in found.fields
            found.check_names()


@pytest.mark.parametrize("command", sorted(CHECKED))
def test_an_unknown_name_in_a_query_is_refused(command: bytes) -> None:
    """A message may have header lines of any name, and stock clients send some with any command."""
    client = World().connect()
    asked = f"/T?cmd={command.decode()}"
    said = "400: Bad Format, unknown parameter 'zqx'"
    assert refused(client, http(f"{asked}&zqx=1")) == (400, said)
    taken = [http(f"{asked}&_zqx=1&token=1&window=1&accept=*/*"), http(asked, "zqx: 1")]
    if command not in (b"declare", b"seek"):
        taken.append(http("/T?zqx=1", f"cmd: {command.decode()}", "id: 1"))
    for request in taken:
        assert b"unknown parameter" not in client.request(request).body
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/T?zqx=1", body=b"x", method="POST"))
    ok(client, http("/T?cmd=produce&zqx=1", body=b"x", method="POST"))


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("nack&offset=0&dealy=5s", "'dealy'; did you mean delay?"),
        ("consume&timout=100", "'timout'; did you mean timeout?"),
        ("nack&ofset=0", "'ofset'; did you mean offset?"),
        ("extend&offset=0&leese=5m", "'leese'; did you mean lease?"),
        ("ack&offset=0&stirct=1", "'stirct'; did you mean strict?"),
        ("consume&batsh=5", "'batsh'; did you mean batch?"),
        ("consume&group_lease=5m", "'group_lease'"),
    ],
)
def test_what_it_may_be(query: str, hint: str) -> None:
    _, client = declared("T/g?ack=true")
    assert hint in refused(client, http(f"/T/g?cmd={query}"))[1]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("delya=5s", "delya is stored as a header; did you mean delay?"),
        ("deliver-aat=1", "deliver-aat is stored as a header; did you mean deliver-at?"),
        (
            "idempotency_kye=1",
            "idempotency_kye is stored as a header; did you mean idempotency_key?",
        ),
        ("colour=red", None),
        ("x-dealy=5s&_dealy=5s", None),
        ("tag=a&key=k&window=1", None),
        ("d" * 4_000 + "=1", None),
        ("delya%ff=1", "refused"),
    ],
)
def test_a_typing_error_in_the_query_of_a_message_is_told(query: str, hint: str | None) -> None:
    """It is a header of the message all the same, and a header line of that name is no error."""
    _, client = declared("T")
    for _ in range(2):  # the second time its plan is known
        reply = client.request(http(f"/T?{query}", body=b"x", method="POST"))
        if hint == "refused":
            assert reply.status == 400
            continue
        assert (reply.status, reply.headers.get("note")) == (200 if len(query) < 99 else 431, hint)
    name = query.partition("=")[0]
    if hint not in (None, "refused"):
        assert pull(client, "T").headers[f"zbus-header-{name}"]
        assert "note" not in client.request(http("/T", f"{name}: 1", body=b"x")).headers
        assert "note" not in client.request(http("/T", body=b"x")).headers


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("group-max-atempts: 3", "'group-max-atempts'; did you mean group-max-attempts?"),
        ("retention_m: 3", "'retention_m'; did you mean retention_ms?"),
        ("topic_maks: 64", "'topic_maks'; did you mean topic_mask?"),
        ("groupp: g", None),
        ("x-group-max-atempts: 3", None),
        ("topic_marks: 3", "'topic_marks'; did you mean topic_mask?"),
        ("leese: 3", None),
        ("retention-policy: none", None),
    ],
)
def test_a_header_of_a_declare_that_is_nearly_an_option(line: str, hint: str | None) -> None:
    """Other header lines are of proxies and of stock clients."""
    world = World()
    client = world.connect()
    for request in (
        http("/T?cmd=declare", line),
        cmd("declare", "topic: T", line),
        http("/", "cmd: declare", "topic: T", line),
    ):
        if hint is None:
            ok(client, request)
        else:
            assert hint in refused(client, request)[1]
            assert not world.broker.topics
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/T?cmd=query", line))


@pytest.mark.parametrize("command", sorted(CHECKED))
def test_a_path_that_leads_too_far_is_refused(command: bytes) -> None:
    """The original passes over what it does not read, and so may who names the command in a header.
    A message may have been sent to any path."""
    client, name = World().connect(), command.decode()
    read = "/T/g" if command in GROUP_COMMANDS else "/T"
    form = "/<topic>/<group>" if command in GROUP_COMMANDS else "/<topic>"
    said = f"400: Bad Format, unknown path part 'c%d': {name} reads {form}"
    assert refused(client, http(f"{read}/c%25d/e?cmd={name}")) == (400, said)
    for request in (http(f"{read}//?cmd={name}"), http(f"{read}/c", f"cmd: {name}", "id: 1")):
        assert b"unknown path part" not in client.request(request).body
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/T/g/c/d", body=b"x", method="POST"))
    ok(client, http("/T/g/c/d?cmd=produce", body=b"x", method="POST"))


@pytest.mark.parametrize("command", sorted(CHECKED))
def test_an_unknown_name_in_json_is_refused(command: bytes) -> None:
    socket = connected(World())
    said = socket.ask({"cmd": command.decode(), "topic": "T", "zqx": 1})
    assert (said["status"], said["body"]) == (400, "400: Bad Format, unknown parameter 'zqx'")
    said = socket.ask({"cmd": "declare", "topic": "T", "group_leese": "5m"})
    assert "did you mean group_lease?" in said["body"]
    for free in (
        {"_zqx": 1},
        {"token": "x"},
        {"window": 1},
        {"headers": {"User-Agent": "a", "x-b": "c"}},
    ):
        frame = msgspec.json.encode({"cmd": command.decode(), "topic": "T", **free}).decode()
        assert not any(
            b"unknown parameter" in told.data for told in socket.exchange(socket.frame(frame))
        )
    socket = connected(World())
    assert socket.ask({"cmd": "declare", "topic": "T"})["status"] == 200
    assert socket.ask({"cmd": "produce", "topic": "T", "zqx": 1})["status"] == 200


@pytest.mark.parametrize("name", ["lease", "group_lease", "group-lease", "group_ack_timeout"])
def test_an_extend_takes_the_name_that_a_consume_has(name: str) -> None:
    world, client = declared("T/g?ack=true&group_lease=1s")
    put(client, "T", b"0")
    for request in (
        http(f"/T/g?cmd=extend&offset=0&{name}=1h"),
        http("/T/g?cmd=extend&offset=0", f"{name}: 1h"),
        cmd("extend", "topic: T", "consume_group: g", "offset: 0", f"{name}: 3600000"),
    ):
        assert pull(client, "/T/g").body == b"0"
        ok(client, request)
        world.advance(1_000_000)
        assert pull(client, "/T/g").status == 204
        world.advance(4_000_000)


@pytest.mark.parametrize(("command", "dashed", "name"), ROWS, ids=IDS)
def test_two_spellings_at_once(command: bytes, dashed: bytes, name: bytes) -> None:
    asked, one, other = f"/T?cmd={command.decode()}", dashed.decode(), name.decode()
    assert not params(f"{asked}&{one}=7&{other}=7").problem
    assert not params(asked, f"{one}: 7", f"{other}: 7").problem
    text = f"{one} and {other} are one: give one of them"
    assert params(f"{asked}&{one}=7&{other}=8").problem == text
    assert params(asked, f"{one}: 7", f"{other}: 8").problem == text
    for line, key in ((one, other), (other, one), (one, one), (other, other)):
        found = params(f"{asked}&{key}=8", f"{line}: 7")  # the header line wins
        assert (value_of(found, name), found.problem) == (b"7", "")


@pytest.mark.parametrize("frame", ["json", "http"])
@pytest.mark.parametrize(
    ("ack", "window"), [("group-ack", "group-window"), ("group_ack", "group_window")]
)
def test_frames(frame: str, ack: str, window: str) -> None:
    world, _ = declared("T")
    socket = connected(world)
    members = {"cmd": "declare", "topic": "T", "consume-group": "g", ack: "true", window: "3"}
    text = msgspec.json.encode(members).decode()
    if frame == "http":
        lines = [f"{name}: {value}" for name, value in members.items()]
        text = "\r\n".join(("GET / HTTP/1.1", *lines, "", ""))
    socket.exchange(socket.frame(text))
    group = document(ok(world.connect(), http("/T/g?cmd=query")))
    assert (group["mask"], group["window"]) == (64, 3)


def test_a_proxy_that_drops_underscores() -> None:
    client = World().connect()
    lines = ("group-ack: true", "group-max-attempts: 3", "group-filter: a%20b", "retention-ms: 7d")
    group = document(ok(client, http("/T/g?cmd=declare", *lines)))
    assert (group["mask"], group["filter"]) == (64, "a b")
    assert document(ok(client, http("/T?cmd=query")))["retentionMs"] == 7 * 86_400_000
    text = "group-ack and group_ack are one: give one of them"
    request = http("/T/g?cmd=declare", "group-ack: true", "group_ack: false")
    assert refused(client, request) == (400, f"400: Bad Format, {text}")
    request = http("/T/g?cmd=declare", "group-max-attempts: x")
    assert "group-max-attempts is a number" in refused(client, request)[1]
    request = http("/T/g?cmd=declare&group-max-attempt=3")
    assert refused(client, request)[1].endswith("did you mean group-max-attempts?")


OF_PRODUCE = (
    "ack_group",
    "ack_topic",
    "cron_zone",
    "deliver_at",
    "expected_offset",
    "max_attempts",
)


@pytest.mark.parametrize("name", OF_PRODUCE)
def test_neither_spelling_is_stored(name: str) -> None:
    _, client = declared("T")
    spelled = name.replace("_", "-")
    member = f"POST / HTTP/1.1\r\n{spelled}: 1\r\n{name}: 1\r\nx-mine: 1\r\n\r\n".encode()
    ok(client, http("/T", "content-type: application/vnd.zbus.messages", body=member))
    headers = pull(client, "/T").headers
    assert headers["zbus-header-x-mine"] == "1"
    assert not {name, spelled} & headers.keys()


def test_headers_of_the_application_keep_their_names() -> None:
    """They are parameters of other commands, or lines that the broker writes."""
    _, client = declared("T")
    ok(
        client,
        http("/T", "group-ack: 1", "push-url: 2", "dead-reason: 3", "origin-url: 4", body=b"x"),
    )
    headers = pull(client, "/T").headers
    names = ("group-ack", "push-url", "dead-reason", "origin-url")
    assert [headers[f"zbus-header-{name}"] for name in names] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("spelled", ["idempotency-key", "idempotency_key"])
def test_a_key_of_a_put_counts_in_both_spellings(spelled: str) -> None:
    _, client = declared("T")
    for request in (
        http(f"/T?cmd=produce&{spelled}=k", body=b"x"),
        http("/T?cmd=produce", f"{spelled}: k", body=b"x"),
        cmd("produce", "topic: T", f"{spelled}: k", body=b"x"),
    ):
        ok(client, request)
    assert b'"storedCount":1,' in client.request(http("/T?cmd=query")).body


def test_no_two_parameters_are_spelled_alike() -> None:
    assert not SPELLINGS.keys() & {name for command in TABLE.values() for name in command.kinds}


@pytest.mark.parametrize(
    ("connection", "line", "status"),
    [
        ("close, cmd", "cmd: produce", 400),
        ("token", "token: x", 400),
        ("keep-alive, Deliver-At", "deliver-at: 0", 400),
        ("authorization", "authorization: Bearer x", 400),
        ("cmd", "x: y", 200),  # nothing that is there
        ("keep-alive", "keep-alive: timeout=5", 200),
        ("Upgrade, HTTP2-Settings", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA", 200),
        ("TE", "te: trailers", 200),
        ("close", "x: y", 200),
    ],
)
def test_what_a_proxy_would_remove(connection: str, line: str, status: int) -> None:
    raw = f"GET /T HTTP/1.1\r\nhost: h\r\nconnection: {connection}\r\n{line}".encode()
    if status == 200:
        Heads().read(raw)
        return
    with pytest.raises(WireError, match="which a proxy would remove") as error:
        Heads().read(raw)
    assert error.value.status == status
    Heads().contained.read(raw)  # of a message in a body the connection means nothing


@pytest.mark.parametrize(
    ("query", "row", "value"),
    [
        ("retention_ms=7d", "retentionMs", 604_800_000),
        ("retention_ms=1.5h", "retentionMs", 5_400_000),
        ("retention_ms=2w", "retentionMs", 1_209_600_000),
        ("retention_ms=7", "retentionMs", 7),
        ("retention_bytes=1GiB", "retentionBytes", 1 << 30),
        ("retention_bytes=10+MiB", "retentionBytes", 10 << 20),
        ("retention_bytes=65536", "retentionBytes", 65_536),
        ("dedupe_ms=10m", "dedupeMs", 600_000),
        ("settled_ms=1h", "settledMs", 3_600_000),
    ],
)
def test_quantities_of_a_topic(query: str, row: str, value: int) -> None:
    client = World().connect()
    ok(client, http(f"/T?cmd=declare&{query}"))
    assert document(ok(client, http("/T?cmd=query")))[row] == value


@pytest.mark.parametrize("query", ["delay=1s", "delay=1000ms", "delay=1000", "deliver_at={}"])
def test_when_it_is_due(query: str) -> None:
    world, client = declared("T")
    for time in (str(EPOCH_MS + 1_000), "2027-01-15T08:00:01Z", "2027-01-15T09:00:01+01:00"):
        assert parse_time_ms(time) == EPOCH_MS + 1_000
        ok(client, http(f"/T?{query.format(time)}", body=b"x"))
    assert client.request(http("/T?cmd=consume&timeout=0")).status == 204
    world.advance(1_000)
    assert pull(client, "/T").body == b"x"


SECONDS = "looks like seconds"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (http("/T?deliver_at=1800000000", body=b"x"), SECONDS),
        (http("/T?cmd=reschedule&offset=0&deliver_at=1800000000"), SECONDS),
        (http("/T/n?cmd=declare&group_start_time=1800000000"), SECONDS),
        (http("/T/n?cmd=declare&from=time:1800000000"), SECONDS),
        (http("/T/g?cmd=seek&from=time:1800000000"), SECONDS),
        (http("/T?cmd=consume&group_start_time=1800000000", "accept: text/event-stream"), SECONDS),
        (http("/T?deliver_at=tomorrow", body=b"x"), "is epoch milliseconds or ISO 8601"),
        (http("/T?delay=tomorrow", body=b"x"), "is milliseconds, or a number with a unit"),
        (cmd("declare", "topic: T", "retention_bytes: 1GB"), "is bytes, or a number with a unit"),
    ],
)
def test_what_is_no_time(request_: bytes, text: str) -> None:
    _, client = declared("T", "T/g")
    status, found = refused(client, request_)
    assert (status, text in found) == (400, True), found
