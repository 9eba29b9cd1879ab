"""The commands for a shell against a real broker: files in and out, tail, top, completion."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests import forked
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from zbus.cli import main

Zbus = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("shell") / "data", "--durability", "os") as broker:
        yield broker
        assert broker.stop() == 0


@pytest.fixture
def zbus(broker: BrokerProcess) -> Zbus:
    def run(*args: str, stdin: bytes = b"", code: int = 0) -> Result:
        environment = {"ZBUS_URL": f"http://127.0.0.1:{broker.port}", "NO_COLOR": "1"}
        result = CliRunner().invoke(main, args, input=stdin, env=environment)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def start(broker: BrokerProcess, *args: str, **options: Any) -> forked.Popen[str]:
    url = f"http://127.0.0.1:{broker.port}"
    return forked.start_zbus(*args, env={**os.environ, "ZBUS_URL": url}, **options)


def line_of(pipe: IO[str] | None) -> Any:
    assert pipe is not None
    return msgspec.json.decode(pipe.readline())


BODIES = [b"", b"one", "grüße".encode(), b"\xff\x00\r", b"x" * 100_000]


def test_lines_go_in_and_out(zbus: Zbus, tmp_path: Path) -> None:
    zbus("declare", "Lines", "--partitions", "1")
    lines = [b"line %d" % number for number in range(3_000)]
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"\n".join(lines) + b"\n")
    assert zbus("produce", "Lines", "--file", str(source), "--progress").stdout == "3000 messages\n"
    zbus("consume", "Lines", "--count", "0", "--timeout-ms", "0", "--out", str(target), "--ack")
    assert target.read_bytes() == source.read_bytes()
    nothing = zbus("consume", "Lines", "--timeout-ms", "0", "--json", code=3)
    assert msgspec.json.decode(nothing.stderr) == {
        "error": "nothing in Lines within 0 ms",
        "exit_code": 3,
    }


def test_messages_go_in_and_out_as_they_are(zbus: Zbus, tmp_path: Path) -> None:
    """With keys, over several partitions, through a file."""
    zbus("declare", "From", "--partitions", "3")
    zbus("declare", "To", "--partitions", "3")
    for number, body in enumerate(BODIES):
        arguments = ["--key", f"k{number}", "--tag", "a.b", "--header", "colour: red"]
        zbus("produce", "From", "-", *arguments, stdin=body)
    file = str(tmp_path / "messages")
    zbus("consume", "From", "--count", "5", "--messages", "--out", file)
    zbus("produce", "To", "--file", file, "--messages")
    out = zbus("consume", "To", "--count", "5", "--json", "--batch", "9").stdout
    found = [msgspec.json.decode(line) for line in out.splitlines()]
    assert {item["key"] for item in found} == {f"k{number}" for number in range(5)}
    assert {(item["tag"], item["headers"]["colour"]) for item in found} == {("a.b", "red")}
    assert sum("body_base64" in item for item in found) == 1


def test_a_file_is_put_once(zbus: Zbus) -> None:
    zbus("declare", "Once")
    lines = b"".join(b"%d\n" % number for number in range(1_200))
    arguments = ["produce", "Once", "--stdin", "--idempotency-key", "load-7", "--json"]
    first = msgspec.json.decode(zbus(*arguments, stdin=lines).stdout)
    again = msgspec.json.decode(zbus(*arguments, stdin=lines).stdout)
    assert (first["count"], first["duplicates"]) == (1_200, 0)
    assert (again["count"], again["duplicates"]) == (1_200, 1_200)
    assert msgspec.json.decode(zbus("query", "Once").stdout)["messageDepth"] == 1_200


@pytest.mark.parametrize("form", ["lines", "ndjson", "messages"])
def test_what_comes_of_a_pipe_is_sent_when_it_pauses(
    broker: BrokerProcess, zbus: Zbus, form: str
) -> None:
    """And what has come is stored when it is interrupted."""
    zbus("declare", f"Slow-{form}", "--partitions", "2")
    head = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\noffset: 0\r\n\r\n"
    part = f"{head}1" if form == "messages" else "1\n"
    with start(broker, "produce", f"Slow-{form}", f"--{form}", stdin=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        for _ in range(3):
            sending.stdin.write(part)
            sending.stdin.flush()
            assert zbus("consume", f"Slow-{form}").stdout == "1\n"
        sending.send_signal(signal.SIGINT)
        assert sending.wait(WAIT_S) == 130
        assert sending.stderr is not None
        assert sending.stderr.read() == "zbus: 3 messages stored\n"


def test_whole_and_ndjson(zbus: Zbus) -> None:
    zbus("declare", "Forms")
    zbus("produce", "Forms", "--whole", stdin=b"a\nb\n")  # which means --stdin
    zbus("produce", "Forms", "--stdin", "--ndjson", stdin=b'{"n":1}\n\n[2]\r\n')
    assert zbus("consume", "Forms", "--count", "3").stdout == 'a\nb\n{"n":1}\n[2]\n'
    refused = zbus("produce", "Forms", "--stdin", "--ndjson", stdin=b"1\n{no\n", code=1)
    assert refused.stderr.splitlines()[-1].startswith("zbus: line 2 is not JSON: ")
    zbus("produce", "Forms", "--stdin", "--messages", stdin=b"no message", code=1)
    zbus("produce", "Forms", "body", "--stdin", code=64)


def test_what_was_not_acknowledged_comes_again(zbus: Zbus, tmp_path: Path) -> None:
    zbus("declare", "Work", "G", "--group-mask", "64", "--ack-timeout-ms", "300")
    zbus("produce", "Work", "--stdin", stdin=b"1\n2\n")
    taken = ["consume", "Work", "G", "--count", "2", "--timeout-ms", "3000", "--batch", "2"]
    assert zbus(*taken).stdout == "1\n2\n"
    assert zbus(*taken, "--ack").stdout == "1\n2\n"
    group = msgspec.json.decode(zbus("query", "Work", "G", "--json").stdout)
    assert (group["messageCount"], group["leasedCount"]) == (0, 0)
    zbus("produce", "Work", "3")
    zbus(*taken, "--ack", "--out", str(tmp_path / "no" / "folder"), code=64)
    assert zbus(*taken, "--count", "1").stdout == "3\n"


def test_tail_shows_what_comes_and_disturbs_nobody(broker: BrokerProcess, zbus: Zbus) -> None:
    zbus("declare", "News", "--partitions", "2")
    for number in range(4):
        zbus("produce", "News", f"old {number}", "--partition", str(number % 2))
    shown = zbus("tail", "News", "--last", "1", "--count", "2", "--json").stdout.splitlines()
    assert {msgspec.json.decode(line)["body"] for line in shown} == {"old 2", "old 3"}
    following = start(broker, "tail", "News", "--json", "--from", "begin", "--filter", "a.*")
    zbus("produce", "News", "no")
    zbus("produce", "News", "yes", "--tag", "a.b")
    assert line_of(following.stdout)["body"] == "yes"
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=WAIT_S)
    assert (following.returncode, errors) == (130, "")
    topic = msgspec.json.decode(zbus("query", "News").stdout)
    assert topic["consumeGroupList"][0]["messageCount"] == 6
    assert topic["consumerCount"] == 0


def test_tail_for_people(zbus: Zbus) -> None:
    zbus("declare", "People")
    zbus("produce", "People", '{"a":[1]}', "--tag", "t")
    zbus("produce", "People", "\x1b[31mred")
    text = zbus("tail", "People", "--from", "begin", "--count", "2").stdout
    assert '\n{\n  "a": [\n    1\n  ]\n}\n' in text
    assert "\\x1b[31mred" in text
    assert "\x1b" not in text
    assert zbus("tail", "People", "--from", "2020-01-31T08:00Z", "--count", "2").stdout == text
    for early in ("1969-01-31T08:00", "0001-01-01"):
        assert zbus("tail", "People", "--from", early, "--count", "2").stdout == text
    for nowhere in ("nowhere", "2020-13-31", "time:soon", "time:", "time:-1"):
        zbus("tail", "People", "--from", nowhere, code=64)
    zbus("tail", "NoTopic", code=1)


def test_tail_as_a_group(zbus: Zbus) -> None:
    zbus("declare", "Read", "G", "--group-mask", "64")
    zbus("produce", "Read", "--stdin", stdin=b"1\n2\n")
    assert zbus("tail", "Read", "--group", "G", "--count", "2").stdout.count("-- 0/") == 2
    assert msgspec.json.decode(zbus("query", "Read", "G").stdout)["leasedCount"] == 0


def test_a_reader_that_has_seen_enough(broker: BrokerProcess, zbus: Zbus) -> None:
    zbus("declare", "Pipe")
    zbus("produce", "Pipe", "--stdin", stdin=b"x\n" * 50)
    tail = start(broker, "tail", "Pipe", "--from", "begin")
    assert tail.stdout is not None
    tail.stdout.readline()
    tail.stdout.close()
    zbus("produce", "Pipe", "--stdin", stdin=b"y\n" * 5_000)
    assert tail.wait(WAIT_S) == 0
    assert tail.stderr is not None
    assert tail.stderr.read() == ""
    tail.stderr.close()


def test_top(broker: BrokerProcess, zbus: Zbus) -> None:
    zbus("declare", "Busy", "G")
    top = start(broker, "top", "--json", "--interval", "0.2")
    line_of(top.stdout)
    zbus("produce", "Busy", "--stdin", stdin=b"x\n" * 100)
    while True:
        look = line_of(top.stdout)
        rows = {(row["topic"], row["group"]): row for row in look["rows"]}
        if rows["Busy", ""]["in_rate"] > 0:
            break
    assert rows["Busy", "G"]["lag"] == 100
    assert look["connections"] >= 1
    assert look["memory_bytes"] > 1 << 20
    top.send_signal(signal.SIGINT)
    top.communicate(timeout=WAIT_S)
    assert top.returncode == 130
    text = zbus("top", "--once", "--interval", "0.1", "--sort", "lag").stdout
    assert re.match(r"\d+ connections?, \d+ MiB", text.splitlines()[0])
    assert re.match(r"\d+ connections?, \d+ MiB", text)
    assert text.splitlines()[1].split()[:4] == ["topic", "group", "messages", "put"]
    assert "Busy" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(zbus: Zbus, shell: str) -> None:
    assert f"_ZBUS_COMPLETE={shell}_complete" in zbus("completion", shell).stdout


def completed(broker_url: str, words: str) -> list[str]:
    environment = {
        **os.environ,
        **{"ZBUS_URL": broker_url, "_ZBUS_COMPLETE": "bash_complete"},
        **{"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)},
    }
    code = "from zbus.cli import main; main(prog_name='zbus')"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, timeout=WAIT_S
    )
    assert run.stderr == b""
    return [line.partition(",")[2] for line in run.stdout.decode().split()]


def test_topics_and_groups_are_completed(broker: BrokerProcess, zbus: Zbus) -> None:
    zbus("declare", "Compl1", "Group9")
    url = f"http://127.0.0.1:{broker.port}"
    assert completed(url, "zbus consume Com") == ["Compl1"]
    assert completed(url, "zbus consume Compl1 gr") == ["Group9"]
    assert completed(url, "zbus consume NoTopic g") == []
    assert completed("http://127.0.0.1:1", "zbus consume C") == []


def test_a_put_to_services_is_a_call(zbus: Zbus) -> None:
    """So it has no key of the client's, which calls do not take."""
    zbus("declare", "Services", "--topic-mask", "3")
    late = zbus("produce", "Services", "x", "--header", "timeout: 1", code=1)
    assert late.stderr == "504: no service answered this call in time\n"


def test_errors_as_json(zbus: Zbus) -> None:
    error = msgspec.json.decode(zbus("query", "NoTopic", "--json", code=1).stderr)
    assert error == {"error": "Topic(NoTopic) Not Found", "exit_code": 1, "status": 404}
    unreachable = ["query", "--json", "--url", "unix:/no/such/socket"]
    assert msgspec.json.decode(zbus(*unreachable, code=2).stderr)["exit_code"] == 2
    zbus("declare", "J")
    assert "time_ms" in msgspec.json.decode(zbus("empty", "J", "--json").stdout)
    stored = msgspec.json.decode(zbus("produce", "J", "x", "--json").stdout)
    assert (stored["offset"], stored["durability"]) == (0, "os")
