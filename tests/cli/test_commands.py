"""What each command sends, what it prints, and with which code it exits."""

from __future__ import annotations

import json
import socket

import pytest

from tests.cli.commands import COMMANDS as COMMANDS_OF_SHELL
from tests.cli.conftest import TIME_MS, Answer, FakeBroker, Zbus
from zbus.cli.remote import MESSAGES_TYPE
from zbus.cli.top import summary
from zbus.client.documents import ServerInfo

# Arguments, then the headers that must be sent (and no others, host and length apart).
SENT = [
    (["produce", "T", "hello"], {"cmd": "produce", "topic": "T"}),
    (
        [
            *("produce", "T", "x", "--tag", "a.b", "--key", "k", "--id", "i", "--partition", "2"),
            *("--delay-ms", "5", "--ttl-ms", "9", "--header", "Colour: red:blue"),
        ],
        {
            **{"cmd": "produce", "topic": "T", "tag": "a.b", "key": "k", "id": "i"},
            **{"partition": "2", "delay": "5", "ttl": "9", "colour": "red:blue"},
        },
    ),
    # A literal %41 would be decoded by the broker in these headers, and only in these.
    (
        ["produce", "100%41", "x", "--key", "%41"],
        {"cmd": "produce", "topic": "100%2541", "key": "%41"},
    ),
    (["declare", "T"], {"cmd": "declare", "topic": "T"}),
    (
        [
            *("declare", "T", "G", "--partitions", "4", "--topic-mask", "0", "--group-mask", "64"),
            *("--filter", "a.*", "--durability", "os", "--start-offset", "0", "--start-time", "7"),
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "partitions": "4"},
            **{"topic_mask": "0", "group_mask": "64", "group_filter": "a.*", "durability": "os"},
            **{"group_start_offset": "0", "group_start_time": "7"},
        },
    ),
    (
        [
            *("declare", "T", "--retention-ms", "5", "--retention-bytes", "6"),
            *("--retention-count", "0", "--retention-done"),
        ],
        {
            **{"cmd": "declare", "topic": "T", "retention_ms": "5", "retention_bytes": "6"},
            **{"retention_count": "0", "retention_done": "1"},
        },
    ),
    (
        [
            *("declare", "T", "G", "--dedupe-ms", "5", "--ack-window", "6"),
            *("--ack-timeout-ms", "7", "--start-copy", "H"),
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "dedupe_ms": "5"},
            **{"group_ack_window": "6", "group_ack_timeout": "7", "group_start_copy": "H"},
        },
    ),
    (
        ["produce", "T", "x", "--idempotency-key", "k-1", "--expected-offset", "0"],
        {"cmd": "produce", "topic": "T", "idempotency-key": "k-1", "expected_offset": "0"},
    ),
    (
        ["ack", "T", "G", "17"],
        {"cmd": "ack", "topic": "T", "consume_group": "G", "offset": "17"},
    ),
    (
        ["ack", "T", "G", "0", "--partition", "3"],
        {
            **{"cmd": "ack", "topic": "T", "consume_group": "G"},
            **{"offset": "0", "partition": "3"},
        },
    ),
    (
        ["declare", "T", "--no-retention-done"],
        {"cmd": "declare", "topic": "T", "retention_done": "0"},
    ),
    (
        ["declare", "T", "G", "--filter", ""],
        {**{"cmd": "declare", "topic": "T"}, "consume_group": "G", "group_filter": ""},
    ),
    (["query"], {"cmd": "query"}),
    (["query", "T", "G"], {"cmd": "query", "topic": "T", "consume_group": "G"}),
    (["remove", "T"], {"cmd": "remove", "topic": "T"}),
    (["empty", "T", "G"], {"cmd": "empty", "topic": "T", "consume_group": "G"}),
    (
        ["call", "T", "plus", "1", "2"],
        {
            **{"cmd": "produce", "topic": "T", "timeout": "30000"},
            "content-type": "application/json",
        },
    ),
]


@pytest.mark.parametrize(("args", "headers"), SENT, ids=lambda value: str(value)[:40])
def test_sends_these_headers(
    zbus: Zbus, broker: FakeBroker, args: list[str], headers: dict[str, str]
) -> None:
    result = zbus(*args)
    assert result.exit_code == 0, result.output
    (asked,) = broker.asked
    own = {"host", "content-length", "id", "idempotency-key", "idempotent"} - set(
        headers
    )  # the client's
    assert {name: value for name, value in asked.headers.items() if name not in own} == headers


@pytest.mark.parametrize(
    ("args", "stdin", "body"),
    [
        (["produce", "T", "grüße"], b"", "grüße".encode()),
        (["produce", "T", "-"], b"\x00\xff\r\n\r\n", b"\x00\xff\r\n\r\n"),
        (["produce", "T"], b"ignored", b""),
        (
            ["call", "T", "plus", "1", "x", '{"a": [null]}', "--module", "m"],
            b"",
            b'{"module":"m","method":"plus","params":[1,"x",{"a":[null]}]}',
        ),
    ],
)
def test_sends_this_body(
    zbus: Zbus, broker: FakeBroker, args: list[str], stdin: bytes, body: bytes
) -> None:
    assert zbus(*args, stdin=stdin).exit_code == 0
    assert broker.asked[0].body == body


def test_prints_json_indented_and_other_text_as_it_is(zbus: Zbus, broker: FakeBroker) -> None:
    assert zbus("query", "T").stdout == '{\n  "topicName": "T"\n}\n'
    broker.answers.append(Answer(body=b"fine"))
    assert zbus("declare", "T").stdout == "fine\n"
    assert zbus("produce", "T", "x").stdout == TIME_MS.decode() + "\n"


def test_consume_one_message(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.extend([b"one", b"two\n"])
    assert zbus("consume", "T").stdout_bytes == b"one\n"
    assert zbus("consume", "T", "G").stdout_bytes == b"two\n"
    assert "consume_group" not in broker.asked[0].headers
    assert "timeout" not in broker.asked[0].headers
    assert broker.asked[1].headers["consume_group"] == "G"


def test_consume_shows_headers_when_asked(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.append(b"one")
    lines = zbus("consume", "T", "-v").stdout.splitlines()
    assert "origin_id: m-1" in lines
    assert lines[-2:] == ["", "one"]


@pytest.mark.parametrize("args", [["--count", "0"], ["--count", "9", "--batch", "2"]])
def test_consume_until_nothing_comes(zbus: Zbus, broker: FakeBroker, args: list[str]) -> None:
    broker.messages.extend([b"1", b"2", b"3"])
    result = zbus("consume", "T", "--timeout-ms", "50", *args)
    assert (result.exit_code, result.stdout) == (0, "1\n2\n3\n")
    assert broker.asked[0].headers["timeout"] == "50"


def test_consume_asks_for_no_more_than_it_needs(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.extend([b"1", b"2", b"3", b"4"])
    assert zbus("consume", "T", "--count", "3", "--batch", "2").stdout == "1\n2\n3\n"
    assert [asked.headers["batch"] for asked in broker.asked] == ["2", "1"]
    assert broker.asked[0].headers["accept"] == MESSAGES_TYPE
    assert list(broker.messages) == [b"4"]


def test_consume_nothing_has_its_own_code(zbus: Zbus) -> None:
    result = zbus("consume", "T", "--timeout-ms", "1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "zbus: nothing in T within 1 ms\n"


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, b"404: Topic(T) Not Found", "404: Topic(T) Not Found\n"),
        (404, b"404: ConsumeGroup(T) Not Found", "404: ConsumeGroup(T) Not Found\n"),
        (404, b"", "zbus: the broker answered with status 404\n"),
        (600, b'"no such method"', '"no such method"\n'),
        (507, b"", "zbus: the broker answered with status 507\n"),
        (
            403,
            b"403: Command(route) Topic(T) Forbbiden",
            "403: Command(route) Topic(T) Forbidden\n",
        ),
        (401, b"ConsumeGroup(g) exclusive, forbbiden", "ConsumeGroup(g) exclusive, forbidden\n"),
        (404, b"404: ConsumeGroup(Forbbiden", "404: ConsumeGroup(Forbbiden\n"),
        (600, b"Forbbiden", "Forbbiden\n"),
    ],
)
def test_refusal_is_shown_as_it_came(
    zbus: Zbus, broker: FakeBroker, status: int, body: bytes, text: str
) -> None:
    """But for the spelling of the original's protocol."""
    broker.answers.append(Answer(status, body))
    result = zbus("call", "T", "plus", "1")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", text)


@pytest.mark.parametrize("args", [["produce", "a b", "x"], ["consume", "a b"]])
def test_without_the_topic_the_next_command_is_named(
    zbus: Zbus, broker: FakeBroker, args: list[str]
) -> None:
    text = "404: Topic(a b) Not Found"
    broker.answers.append(Answer(404, text.encode()))
    assert zbus(*args).stderr == f"{text}\nzbus: `zbus declare 'a b'` makes it\n"
    broker.answers.append(Answer(404, text.encode()))
    assert zbus("remove", "a b").stderr == f"{text}\n"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b"404: Topic(T) Not Found", "Topic(T) Not Found"),
        (401, b"ConsumeGroup(g) exclusive, forbbiden", "ConsumeGroup(g) exclusive, forbidden"),
        (404, b"404", "404"),
    ],
)
def test_a_refusal_as_json_says_its_status_once(
    zbus: Zbus, broker: FakeBroker, status: int, body: bytes, error: str
) -> None:
    broker.answers.append(Answer(status, body))
    told = json.loads(zbus("query", "T", "--json").stderr)
    assert told == {"error": error, "exit_code": 1, "status": status}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("command", [["query"], ["bench"], ["bench", "consume"]])
def test_absent_broker_is_named(zbus: Zbus, command: list[str]) -> None:
    port = free_port()
    result = zbus(*command, url=f"127.0.0.1:{port}")
    assert result.exit_code == 2
    assert result.stderr == (
        f"zbus: cannot connect to a broker at 127.0.0.1:{port}: Connection refused\n"
    )


@pytest.mark.parametrize(
    "args",
    [
        ["produce"],
        ["no-such-command"],
        ["--no-such-option"],
        ["produce", "T", "x", "--header", "no colon"],
        ["produce", "T", "x", "--key", "a\r\nb: c"],
        ["consume", "T", "--batch", "0"],
        ["query", "--url", "ftp://127.0.0.1"],
        ["query", "--url", "http://127.0.0.1:port"],
        ["query", "--url", "unix:"],
        ["serve", "--port", "x"],
        ["serve", "--set", "no_such=1"],
        ["serve", "--set", "port"],
        ["serve", "--config", "/no/such/file"],
        ["bench", "sideways"],
    ],
)
def test_usage_errors_have_their_own_code(zbus: Zbus, broker: FakeBroker, args: list[str]) -> None:
    result = zbus(*args)
    assert result.exit_code == 64, result.output
    assert result.stderr.splitlines()[-1].startswith("zbus: ")
    assert not broker.asked


def test_a_url_that_is_none_is_told_the_forms(zbus: Zbus) -> None:
    assert zbus("query", "--url", "ftp://127.0.0.1").stderr.splitlines()[-1] == (
        "zbus: --url: 'ftp://127.0.0.1' is not of the form http://host:port, https://host:port or"
        " unix:/path/of/socket"
    )


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 connection, 2 MiB"), (1_200, "1,200 connections, 2 MiB")]
)
def test_top_counts_connections(count: int, text: str) -> None:
    assert summary(ServerInfo(connection_count=count, memory_bytes=2 << 20)) == text


def test_the_name_alone_is_help_once(zbus: Zbus) -> None:
    result = zbus()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == zbus("--help").stdout
    assert result.stdout.count("Usage:") == 1


def test_help_names_every_command(zbus: Zbus) -> None:
    text = zbus("--help").stdout
    for word in COMMANDS_OF_SHELL:
        assert f"  {word} " in text
        assert zbus(word, "--help").exit_code == 0
