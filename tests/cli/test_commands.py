"""What each command sends, what it prints, and with which code it exits."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.commands import COMMANDS as COMMANDS_OF_SHELL
from tests.cli.commands import LEAVES
from tests.cli.conftest import TIME_MS, Answer, Asked, FakeBroker, Zbus
from zbus import client
from zbus.cli import OTHERS_WORDS, PLACES
from zbus.cli.messages.files import Unit, send
from zbus.cli.messages.show import Reader, local_time
from zbus.cli.remote import MESSAGES_TYPE
from zbus.cli.top import summary
from zbus.client import Delivery, Message
from zbus.protocol.documents import ServerInfo
from zbus.wire.responses import Response

# Arguments, then the headers that must be sent (and no others, host and length apart).
SENT = [
    (["produce", "T", "hello"], {"cmd": "produce", "topic": "T"}),
    (
        [
            "produce",
            "T",
            "x",
            "--tag",
            "a.b",
            "--key",
            "k",
            "--id",
            "i",
            "--partition",
            "2",
            "--delay-ms",
            "5",
            "--ttl-ms",
            "9",
            "--header",
            "Colour: red:blue",
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
            "declare",
            "T",
            "G",
            "--partitions",
            "4",
            "--topic-mask",
            "0",
            "--group-mask",
            "64",
            "--filter",
            "a.*",
            "--durability",
            "os",
            "--from",
            "0",
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "partitions": "4"},
            **{"topic_mask": "0", "group_mask": "64", "group_filter": "a.*", "durability": "os"},
            **{"from": "0"},
        },
    ),
    (
        [
            "declare",
            "T",
            "--retention-ms",
            "5",
            "--retention-bytes",
            "6",
            "--retention-count",
            "0",
            "--retention-done",
        ],
        {
            **{"cmd": "declare", "topic": "T", "retention_ms": "5", "retention_bytes": "6"},
            **{"retention_count": "0", "retention_done": "1"},
        },
    ),
    (
        [
            "declare",
            "T",
            "G",
            "--dedupe-ms",
            "5",
            "--ack-window",
            "6",
            "--ack-timeout-ms",
            "7",
            "--start-copy",
            "H",
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "dedupe_ms": "5"},
            **{"group_window": "6", "group_lease": "7", "group_start_copy": "H"},
        },
    ),
    (
        [
            "declare",
            "T",
            "G",
            "--ack",
            "--no-exclusive",
            "--temporary",
            "--paused",
            "--lease",
            "30s",
            "--window",
            "5",
            "--rpc",
            "--no-topic-ack",
            "--from",
            "2027-01-15T08:00:00Z",
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "group_ack": "1"},
            **{"exclusive": "0", "temporary": "1", "paused": "1", "group_lease": "30000"},
            **{"group_window": "5", "rpc": "1", "topic_ack": "0", "from": "2027-01-15T08:00:00Z"},
        },
    ),
    (
        ["seek", "T", "G", "--from", "earliest"],
        {"cmd": "seek", "topic": "T", "consume_group": "G", "from": "earliest"},
    ),
    (
        ["seek", "T", "G", "--from", "3,5", "--partition", "1"],
        {
            **{"cmd": "seek", "topic": "T", "consume_group": "G", "from": "3,5"},
            "partition": "1",
        },
    ),
    (
        [
            "declare",
            "T",
            "G",
            "--max-attempts",
            "5",
            "--backoff",
            "1000,60000",
            "--dead-letter",
            "50%",
            "--on-loss",
            "front",
            "--rate",
            "none",
            "--one-batch",
            "--order",
            "key",
        ],
        {
            **{"cmd": "declare", "topic": "T", "consume_group": "G", "group_max_attempts": "5"},
            **{"group_backoff": "1000,60000", "group_dead_letter": "50%", "group_rate": "none"},
            **{"group_on_loss": "front", "group_one_batch": "1", "group_order": "key"},
        },
    ),
    (
        ["declare", "T", "--no-one-batch", "--dead-letter", ""],
        {"cmd": "declare", "topic": "T", "group_one_batch": "0", "group_dead_letter": ""},
    ),
    (
        [
            "produce",
            "T",
            "x",
            "--ack-topic",
            "S",
            "--ack-group",
            "G",
            "--ack-offset",
            "3,5-9",
            "--ack-partition",
            "0",
        ],
        {
            **{"cmd": "produce", "topic": "T", "ack_topic": "S", "ack_group": "G"},
            **{"ack_offset": "3,5-9", "ack_partition": "0"},
        },
    ),
    (["redrive", "T"], {"cmd": "redrive", "topic": "T"}),
    (
        [
            "redrive",
            "T",
            "G",
            "--count",
            "5",
            "--offset",
            "3,5-9",
            "--partition",
            "0",
            "--to",
            "R",
        ],
        {
            **{"cmd": "redrive", "topic": "T", "consume_group": "G", "count": "5"},
            **{"offset": "3,5-9", "partition": "0", "to": "R"},
        },
    ),
    (
        ["redrive", "T", "--only-group"],
        {"cmd": "redrive", "topic": "T", "only_group": "1"},
    ),
    (["pause", "T", "G"], {"cmd": "pause", "topic": "T", "consume_group": "G"}),
    (["resume", "T"], {"cmd": "resume", "topic": "T"}),
    (
        ["produce", "T", "x", "--idempotency-key", "k-1", "--expected-offset", "0"],
        {"cmd": "produce", "topic": "T", "idempotency-key": "k-1", "expected_offset": "0"},
    ),
    (
        ["ack", "T", "G", "17"],
        {"cmd": "ack", "topic": "T", "consume_group": "G", "offset": "17", "strict": "1"},
    ),
    (
        ["ack", "T", "G", "0", "--partition", "3"],
        {
            **{"cmd": "ack", "topic": "T", "consume_group": "G"},
            **{"offset": "0", "partition": "3", "strict": "1"},
        },
    ),
    (
        ["nack", "T", "G", "3,5-9", "--delay", "5s", "--no-front"],
        {
            **{"cmd": "nack", "topic": "T", "consume_group": "G", "offset": "3,5-9"},
            **{"delay": "5000", "front": "0"},
        },
    ),
    (
        ["extend", "T", "G", "3", "--lease", "5m"],
        {
            **{"cmd": "extend", "topic": "T", "consume_group": "G", "offset": "3"},
            "group_lease": "300000",
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
    (
        ["delete", "T", "G", "--offset", "3,5-9", "--partition", "1"],
        {
            **{"cmd": "delete", "topic": "T", "consume_group": "G"},
            **{"offset": "3,5-9", "partition": "1"},
        },
    ),
    (["cancel", "T", "--id", "a"], {"cmd": "cancel", "topic": "T", "msgid": "a"}),
    (["fire", "T", "--offset", "0"], {"cmd": "fire", "topic": "T", "offset": "0"}),
    (
        ["reschedule", "T", "--offset", "0", "--delay-ms", "0"],
        {"cmd": "reschedule", "topic": "T", "offset": "0", "delay": "0"},
    ),
    (
        ["reschedule", "T", "--offset", "0", "--deliver-at-ms", "1800000000007"],
        {"cmd": "reschedule", "topic": "T", "offset": "0", "deliver_at": "1800000000007"},
    ),
    (
        ["reschedule", "T", "--offset", "0", "--deliver-at", "2027-01-15T08:00:00.007Z"],
        {"cmd": "reschedule", "topic": "T", "offset": "0", "deliver_at": "1800000000007"},
    ),
    (["query"], {"cmd": "query"}),
    (["query", "T", "G"], {"cmd": "query", "topic": "T", "consume_group": "G"}),
    (["remove", "T"], {"cmd": "remove", "topic": "T"}),
    (["empty", "T", "G"], {"cmd": "empty", "topic": "T", "consume_group": "G"}),
    (
        ["empty", "T", "G", "--keep-leased"],
        {**{"cmd": "empty", "topic": "T", "consume_group": "G"}, "keep_leased": "1"},
    ),
    (
        ["produce", "T", "x", "--front", "--max-attempts", "3"],
        {"cmd": "produce", "topic": "T", "front": "1", "max_attempts": "3"},
    ),
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
        (["produce", "T"], b"x\n", b"x\n"),
        (["produce", "T", ""], b"ignored", b""),
        (["produce", "T", "x"], b"ignored", b"x"),
        (["produce", "T", "-"], b"", b""),
        (["produce", "T", "--tag", "a"], b"x", b"x"),
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


def test_a_schema_comes_from_a_file(zbus: Zbus, broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"type": "object"}')
    for args, said, body in (
        (["--schema", str(file)], "body", b'{"type": "object"}'),
        (["--schema", "-"], "body", b"true"),
        (["--no-schema"], "none", b""),
    ):
        broker.asked.clear()
        assert zbus("declare", "T", *args, stdin=b"true").exit_code == 0
        assert (broker.asked[0].headers["schema"], broker.asked[0].body) == (said, body)


def test_prints_json_indented_and_other_text_as_it_is(zbus: Zbus, broker: FakeBroker) -> None:
    assert zbus("query", "T").stdout == '{\n  "topicName": "T"\n}\n'
    broker.answers.append(Answer(body=b"fine"))
    assert zbus("declare", "T").stdout == "fine\n"
    assert zbus("produce", "T", "x").stdout == TIME_MS.decode() + "\n"


def consumes(broker: FakeBroker) -> list[dict[str, str]]:
    return [asked.headers for asked in broker.asked if asked.headers["cmd"] == "consume"]


def test_consume_one_message(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.extend([b"one", b"two\n"])
    assert zbus("consume", "T").stdout_bytes == b"one\n"
    assert zbus("consume", "T", "G").stdout_bytes == b"two\n"
    first, second = consumes(broker)
    assert "consume_group" not in first
    assert "timeout" not in first
    assert second["consume_group"] == "G"


def test_consume_says_how_long_it_leases(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.extend([b"one", b"two"])
    assert zbus("consume", "T").exit_code == 0
    assert zbus("consume", "T", "--lease-ms", "500").exit_code == 0
    assert [headers.get("lease") for headers in consumes(broker)] == [None, "500"]


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
    assert [headers["batch"] for headers in consumes(broker)] == ["2", "1"]
    assert broker.asked[0].headers["accept"] == MESSAGES_TYPE
    assert list(broker.messages) == [b"4"]


def test_produce_says_what_was_there_before(zbus: Zbus, broker: FakeBroker) -> None:
    broker.answers.append(Answer(headers=(("duplicate", "1"),)))
    result = zbus("produce", "T", "x", "--id", "a")
    assert result.stdout == TIME_MS.decode() + "\n"
    assert result.stderr == "zbus: there is one of this id, and nothing has changed\n"
    due = (("duplicate", "1"), ("due", TIME_MS.decode()), ("schedule", "cron.T"))
    broker.answers.extend([Answer(headers=due), Answer(headers=due)])
    wanted = ("produce", "T", "x", "--id", "a", "--cron", "0 9 * * *")
    when = local_time(int(TIME_MS), 0)
    assert zbus(*wanted).stderr.endswith(f" has changed; it is due {when}\n")
    shown = json.loads(zbus(*wanted, "--json").stdout)
    assert shown == {"id": "a", "duplicate": 1, "due": int(TIME_MS), "schedule": "cron.T"}


@pytest.mark.parametrize("count", [0, 1])
def test_consume_of_a_broker_that_stops(zbus: Zbus, broker: FakeBroker, count: int) -> None:
    broker.messages.extend([b"1"] * count)
    broker.answers.extend([broker.consume(Asked({}, b""))] * count)
    broker.answers.append(Answer(204, b"", (("empty", "stopping"),)))
    result = zbus("consume", "T", "--count", "0")
    assert (result.exit_code, result.stdout) == (2, "1\n" * count)
    assert result.stderr == "zbus: the broker stopped\n"


@pytest.mark.parametrize("asked", [b'{"ack":true}', b'{"ack":false}', b"403: no"])
@pytest.mark.parametrize("args", [[], ["--ack"], ["--timeout-ms", "1"]])
def test_consume_says_what_is_leased(
    zbus: Zbus, broker: FakeBroker, args: list[str], asked: bytes
) -> None:
    told = Answer(403 if asked.startswith(b"4") else 200, asked)
    broker.answers.extend([Answer(body=b"1", headers=(("offset", "0"),)), told])
    result = zbus("consume", "T", "a b", *args)
    said = "zbus: leased until `zbus ack T 'a b' OFFSETS` (-v shows them), or consume with --ack\n"
    if "--ack" not in args:
        assert result.stderr == (said if b"true" in asked else "")
        assert (result.exit_code, result.stdout) == (0, "1\n")
    else:
        assert said not in result.stderr


def test_what_was_gathered_is_sent_when_a_file_is_interrupted(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def units() -> Iterator[Unit]:
        yield Message(b"1"), 2
        raise KeyboardInterrupt

    broker.answers.extend([Answer(body=b"{}"), Answer(headers=(("count", "1"),))])
    with client.connect(broker.url) as bus, pytest.raises(KeyboardInterrupt):
        send(bus, "T", units(), {}, None, lambda size: None)
    assert broker.asked[-1].body.endswith(b"\r\n\r\n1")
    assert capsys.readouterr().err == "zbus: 1 message stored\n"


@pytest.mark.parametrize("word", ["nack", "extend"])
def test_how_many_were_settled(zbus: Zbus, broker: FakeBroker, word: str) -> None:
    broker.answers.extend([Answer(headers=(("count", "2"),))] * 2)
    assert zbus(word, "T", "G", "1,2").stdout == "2 messages\n"
    assert zbus(word, "T", "G", "1,2", "--json").stdout == '{"count":2}\n'


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
            "403: Command(route) Topic(T) Forbidden\n"
            "zbus: the token is unknown or lacks this right; give another: --token or ZBUS_TOKEN\n",
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
    ("args", "status", "text", "advice"),
    [
        (
            ["consume", "T", "a b"],
            404,
            "404: ConsumeGroup(a b) Not Found",
            "`zbus declare T 'a b'` makes it",
        ),
        (
            ["consume", "T", "g"],
            401,
            "ConsumeGroup(g) exclusive, forbbiden",
            "--standby waits until the other has left",
        ),
        (["tail", "nope"], 404, "404: Topic(nope) Not Found", "`zbus declare nope` makes it"),
    ],
)
def test_what_helps_is_named(
    zbus: Zbus, broker: FakeBroker, args: list[str], status: int, text: str, advice: str
) -> None:
    broker.answers.extend([Answer(status, text.encode())] * 3)
    assert zbus(*args).stderr.splitlines()[1:] == [f"zbus: {advice}"]


def test_list_is_names(zbus: Zbus, broker: FakeBroker) -> None:
    for args, topic in (((), None), (("Orders",), "Orders")):
        broker.answers.append(Answer(200, b'["jobs","Orders"]'))
        assert zbus("list", *args).stdout == "jobs\nOrders\n"
        asked = broker.asked[-1].headers
        assert (asked["cmd"], asked["names"], asked.get("topic")) == ("query", "1", topic)
    broker.answers.append(Answer(200, b'["jobs"]'))
    assert zbus("list", "--json").stdout == '["jobs"]\n'
    broker.answers.append(Answer(404, b"404: Topic(x) Not Found"))
    assert zbus("list", "x").exit_code == 1


def test_list_is_a_table(zbus: Zbus, broker: FakeBroker) -> None:
    """For users of `rabbitmqctl list_queues` and of `kafka-consumer-groups --describe`."""
    group = b'{"topicName":"jobs","groupName":"g","messageCount":7,"leasedCount":2,"delayedCount":1'
    group += b',"consumerCount":3,"filter":"","ack":true}'
    topic = b'{"topicName":"jobs","messageDepth":12,"storedCount":11,"consumerCount":3'
    topic += b',"consumeGroupList":[%b]}' % group
    broker.answers.append(Answer(200, topic))
    assert zbus("list", "jobs", "--long").stdout.splitlines() == [
        "topic  group  messages  lag  leased  delayed  consumers",
        "jobs                11    7       2        1          3",
        "jobs   g            11    7       2        1          3",
    ]
    broker.answers.append(Answer(200, topic))
    assert json.loads(zbus("list", "jobs", "-l", "--json").stdout)[1] == {
        **{"topic": "jobs", "group": "g", "messages": 11, "lag": 7, "leased": 2, "delayed": 1},
        "consumers": 3,
    }
    broker.answers.append(Answer(404, b"404: Topic(x) Not Found"))
    assert zbus("list", "x", "--long").exit_code == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["prodcue"], "there is no command 'prodcue'; did you mean produce?"),
        (["Consume"], "there is no command 'Consume'; did you mean consume?"),
        (["publish", "T", "x"], "there is no command 'publish'; did you mean produce?"),
        (["list_queues"], "there is no command 'list_queues'; did you mean list --long?"),
        (["zzz"], "there is no command 'zzz'"),
        (["c\x1bonsume"], "there is no command 'c\\x1bonsume'; did you mean consume?"),
        (["x" * 100_000], f"there is no command '{'x' * 40}'"),
        (["semq", "rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["produce", "T", "--dealy", "5s"], "--delay"),
    ],
)
def test_what_is_misspelt_is_named(
    zbus: Zbus, broker: FakeBroker, args: list[str], said: str
) -> None:
    result = zbus(*args)
    last = result.stderr.splitlines()[-1]
    assert result.exit_code == 64
    assert last == f"zbus: {said}" if said[0] != "-" else said in last
    assert not broker.asked


def test_what_commands_are_called_elsewhere() -> None:
    assert {word.split()[0] for word in OTHERS_WORDS.values()} <= PLACES.keys()
    assert not OTHERS_WORDS.keys() & PLACES.keys()


def test_consume_stands_by(zbus: Zbus, broker: FakeBroker) -> None:
    broker.messages.append(b"x")
    assert zbus("consume", "T", "g", "--standby").stdout == "x\n"
    assert consumes(broker)[-1]["standby"] == "1"


SHOWN = Delivery(
    Response(
        200,
        {b"offset": b"7", b"timestamp": b"1763730000000", b"tag": b"a.b", b"x-app": b"1\x1b[2J"},
        b"hello",
    )
)


def test_tail_shows_headers_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Reader().show(SHOWN)
    plain = capsys.readouterr().out
    assert "x-app" not in plain
    Reader(verbose=True).show(SHOWN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == plain.splitlines()[0]
    assert "x-app: 1\\x1b[2J" in lines
    assert lines[-2:] == ["", "hello"]


@pytest.mark.parametrize(
    ("zone", "now_s", "shown"),
    [
        ("UTC", 1_763_730_000, "13:00:00"),
        ("UTC", 1_763_730_000 + 86_400, "2025-11-21 13:00:00"),
        ("Etc/GMT-12", 1_763_730_000, "2025-11-22 01:00:00"[11:]),
        ("Etc/GMT-12", 1_763_730_000 - 7_200, "2025-11-22 01:00:00"),
    ],
)
def test_times_are_those_of_the_reader(
    monkeypatch: pytest.MonkeyPatch, zone: str, now_s: float, shown: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_time(1_763_730_000_000, now_s) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("word", LEAVES)
def test_every_option_says_what_it_is_for(word: str) -> None:
    """In words that a stranger understands."""
    command = LEAVES[word]
    options = [each for each in command.params if isinstance(each, click.Option)]
    for option in options:
        assert option.help, option.name
        assert not re.search(r"\bso (many|long|much)\b|is one\.", option.help), option.help
        assert not re.search(r"\]\(|original|Sec-Fetch", option.help), option.help


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
        ["consume", "T", "--lease-ms", "0"],
        ["declare", "T", "--on-loss", "drop"],
        ["query", "--url", "ftp://127.0.0.1"],
        ["query", "--url", "http://127.0.0.1:port"],
        ["query", "--url", "unix:"],
        ["serve", "--port", "x"],
        ["serve", "--set", "no_such=1"],
        ["serve", "--set", "port"],
        ["serve", "--config", "/no/such/file"],
        ["bench", "sideways"],
        ["delete", "T"],
        ["cancel", "T", "--offset", "1", "--id", "a"],
        ["reschedule", "T", "--offset", "1"],
        ["reschedule", "T", "--offset", "1", "--delay-ms", "1", "--deliver-at-ms", "1"],
        ["peek", "T", "--state", "dead"],
        ["why", "T"],
        ["redrive", "T", "--count", "0"],
        ["redrive", "T", "--partition", "-1"],
        ["produce", "T"],
        ["produce", "T", "--tag", "a"],
        ["produce", "T", "x", "--lines"],
        ["produce", "T", "-", "--ndjson"],
        ["produce", "T", "--whole", "--id", "a"],
        ["produce", "T", "--stdin", "--ack-topic", "S"],
        ["produce", "T", "--stdin", "--ack-partition", "0"],
    ],
)
def test_usage_errors_have_their_own_code(zbus: Zbus, broker: FakeBroker, args: list[str]) -> None:
    result = zbus(*args)
    assert result.exit_code == 64, result.output
    assert result.stderr.splitlines()[-1].startswith("zbus: ")
    assert not broker.asked


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ((("count", "1"), ("stayed", "0")), "1 message\n"),
        ((("count", "1000"), ("stayed", "2")), "1000 messages, 2 stayed\n"),
        ((("count", "0"), ("stayed", "1")), "0 messages, 1 stayed\n"),
    ],
)
def test_what_was_put_back(
    zbus: Zbus, broker: FakeBroker, headers: tuple[tuple[str, str], ...], shown: str
) -> None:
    broker.answers.extend([Answer(200, headers=headers)] * 2)
    result = zbus("redrive", "T")
    assert (result.stdout, result.exit_code) == (shown, 3 if shown.startswith("0") else 0)
    assert ("--to TOPIC names another\n" in result.stderr) is ("stayed" in shown)
    told = json.loads(zbus("redrive", "T", "--json").stdout)
    assert told == {name: int(value) for name, value in headers}


def test_what_could_not_go_back_to_its_group(zbus: Zbus, broker: FakeBroker) -> None:
    broker.answers.append(Answer(200, headers=(("count", "1"), ("stayed", "2"))))
    result = zbus("redrive", "T", "--only-group")
    assert result.stdout == "1 message, 2 stayed\n"
    assert "their topic has them no more, or their group has them now" in result.stderr


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
