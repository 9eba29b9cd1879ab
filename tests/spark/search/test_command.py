"""`zbus spark search`: what it refuses, and how it says what it has found."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.spark.archive import harness
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.commands import Common
from zbus.spark.commands import spark as group
from zbus.spark.errors import NoSpark

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    log = MemoryLog()
    bodies = [b'{"n": 1}', b"\xff\x00", "zwölf\t\x1b[31m".encode(), b"x" * 255 + "ö".encode(), b""]
    for number, body in enumerate(bodies):
        log.put(
            "orders",
            [body],
            time_ms=TIME_MS + number * 1_000,
            ids=[b"id-%d" % number],
            tags=[b"eu"],
            keys=[b"k%d" % number],
            headers=[b"kind: a,b\r\n"],
        )
    log.put("pay", [b"paid"])
    root = tmp_path_factory.mktemp("command") / "archive"
    harness.run(root, log)
    return str(root)


def run(*words: str) -> Result:
    return CliRunner().invoke(group, ["search", *words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--colour red", 2, "No such option '--colour'"),
        ("something", 2, "unexpected extra argument"),
        ("--since", 2, "'--since' requires an argument"),
        ("--since yesterday", 2, "--since yesterday: it is like 24h (ago), 2026-11-23T12:00"),
        ("--since 2026-13-01", 2, "--since 2026-13-01: it is like"),
        ("--since -5", 2, "--since -5: it is like"),
        ("--until 99999999999999999999", 2, "--until 99999999999999999999: it is like"),
        ("--since 99999999w", 2, "--since 99999999w: it is like"),
        ("--since 2h --until 3h", 2, "--until is not after --since"),
        ("--header kind", 2, "--header kind: it is name=value"),
        ("--header =x", 2, "--header =x: it is name=value"),
        ("--contains ''", 2, "--contains: it is empty"),
        ("--regex (", 2, "--regex: Invalid regular expression: missing ): (; it is written as RE2"),
        ("--regex (?=a)", 2, "--regex: Invalid regular expression"),
        (r"--regex (a)\1", 2, "--regex: Invalid regular expression"),
        ("--regex a{1001}", 2, "--regex: Invalid regular expression"),
        (f"--regex {'a' * 10_001}", 2, "--regex: it has more than 10000 bytes"),
        ("--json-path a.b", 2, "--json-path a.b: it is like $.order"),
        ("--json-path $.", 2, "--json-path $.: it is like"),
        ("--json-path $[x]", 2, "--json-path $[x]: it is like"),
        ("--json-path $..a", 2, "--json-path $..a: it is like"),
        (f"--json-path ${'[0]' * 101}", 2, "it is like"),
        ("--equals 5", 2, "an --equals belongs to each --json-path"),
        ("--json-path $.a --json-path $.b --equals 5", 2, "there are 2 --json-path and 1 --equals"),
        ("--limit -1", 2, "'--limit'"),
        ("--limit x", 2, "'--limit'"),
        ("--after nonsense", 2, "--after nonsense: not a cursor of a previous search"),
        ("--after WyJhIl0", 2, "--after WyJhIl0: not a cursor"),
        ("--format xml", 2, "'--format'"),
        ("--format parquet", 2, "--format parquet needs --out FILE"),
        ("--out {tmp}/no/file", 1, "cannot be written"),
        ("--body some", 2, "'--body'"),
        ("--engine fast", 2, "'--engine'"),
        ("--engine local --where true", 2, "--where is SQL: it needs --engine spark"),
        ("--topics orders,nobody", 2, "there is no topic nobody"),
        ("--topics orders --pattern o", 2, "two ways to say the same"),
        ("--pattern (", 2, "--pattern: it is not a regular expression"),
        ("--pattern a)|(b", 2, "--pattern: it is not a regular expression"),
        ("--data-dir {tmp}", 2, "add --live"),
        ("--live --data-dir {tmp}/no", 2, "{tmp}/no"),
        ("--live --data-dir {tmp} --to-topic x", 2, "--to-topic needs a broker"),
        ("--to-topic orders", 2, "--to-topic orders: it is searched itself"),
        ("--conf x", 2, "not of the form key=value"),
        ("--live --token-file {tmp}/no", 2, "token file"),
    ],
)
def test_what_cannot_be(archive: str, tmp_path: Path, words: str, code: int, text: str) -> None:
    given = [word.format(tmp=tmp_path) if "{tmp}" in word else word for word in words.split()]
    given = ["" if word == "''" else word for word in given]
    if "--conf" in given:
        given += ["--where", "true"]
    found = run("--in", archive, *given)
    assert (found.exit_code, found.stdout) == (code, "")
    assert text.format(tmp=tmp_path) if "{tmp}" in text else text in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--in {tmp}/no", 2, "no"),
        ("--in {tmp}", 2, "not an archive"),
        ("--in s3://bucket/x", 2, "object stores are not supported"),
        ("--in {tmp}/damaged", 5, "damaged"),
    ],
)
def test_what_is_no_archive(archive: str, tmp_path: Path, words: str, code: int, text: str) -> None:
    copy = tmp_path / "damaged"
    for file in Path(archive).rglob("*"):
        if file.is_file():
            goal = copy / file.relative_to(archive)
            goal.parent.mkdir(parents=True, exist_ok=True)
            damaged = "_delta_log" in file.parts
            goal.write_bytes(b"{" if damaged else file.read_bytes())
    found = run(*(word.format(tmp=tmp_path) for word in words.split()))
    assert (found.exit_code, found.stdout) == (code, ""), found.stderr
    assert text in found.stderr


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    ("where", "text"),
    [("colour = 1", "UNRESOLVED_COLUMN"), ("offset >", "PARSE_SYNTAX_ERROR")],
)
def test_sql_that_is_none(spark: Any, archive: str, where: str, text: str) -> None:
    found = run("--in", archive, "--where", where)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("zbus: --where: ")
    assert text in found.stderr


@pytest.mark.xdist_group("spark")
def test_sql(spark: Any, archive: str) -> None:
    found = run("--in", archive, "--where", "cast(body AS string) = 'paid'", "--json")
    assert [json.loads(line)["topic"] for line in found.stdout.splitlines()] == ["pay"]
    assert json.loads(found.stderr)["engine"] == "spark"


@pytest.mark.parametrize(
    ("words", "hint"),
    [("--engine spark", "; --engine local does without\n"), ("--where true", "\n")],
)
def test_without_java(archive: str, monkeypatch: pytest.MonkeyPatch, words: str, hint: str) -> None:
    def session(common: Common) -> None:
        raise NoSpark("there is no Java")

    monkeypatch.setattr(Common, "session", session)
    found = run("--in", archive, *words.split())
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == f"zbus: there is no Java{hint}"


# -- formats --------------------------------------------------------------------------------------


def test_json_lines(archive: str) -> None:
    found = run("--in", archive, "--json")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert rows[0] == {
        "id": "id-0",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": TIME_MS,
        "tag": "eu",
        "key": "k0",
        "headers": {"kind": "a,b"},
        "size": 8,
        "body": '{"n": 1}',
    }
    assert base64.b64decode(rows[1]["body_base64"]) == b"\xff\x00"
    assert rows[2]["body"] == "zwölf\t\x1b[31m"
    assert (rows[3]["size"], rows[3]["body"]) == (257, "x" * 255)  # no half of a character
    assert (rows[5]["id"], "tag" in rows[5]) == ("0-0", False)
    said = json.loads(found.stderr)
    assert (said["results"], said["after"], said["engine"]) == (6, None, "local")


def test_csv(archive: str) -> None:
    found = run("--in", archive, "--format", "csv", "--topics", "orders", "--body", "full")
    rows = list(csv.DictReader(io.StringIO(found.stdout, newline="")))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert rows[0]["timestamp"] == "2027-01-15T08:00:00.000Z"
    assert json.loads(rows[0]["headers"]) == {"kind": "a,b"}
    assert (rows[1]["body"], rows[1]["body_base64"]) == ("", "/wA=")
    assert rows[2]["body"] == "zwölf\t\x1b[31m"
    assert found.stderr.startswith("5 results in ")


def test_parquet(archive: str, tmp_path: Path) -> None:
    path = tmp_path / "found.parquet"
    run("--in", archive, "--format", "parquet", "--out", str(path), "--body", "full")
    table = pq.read_table(path)
    assert table.column("body").to_pylist()[1] == b"\xff\x00"
    assert table.num_rows == 6
    assert [each.name for each in tmp_path.iterdir()] == ["found.parquet"]


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_to_a_file(archive: str, tmp_path: Path, form: str) -> None:
    path = tmp_path / "found"
    words = ("--in", archive, "--format", form)
    assert run(*words, "--out", str(path)).stdout == ""
    assert path.read_bytes() == run(*words).stdout_bytes


def test_a_table_does_not_steer_a_terminal(archive: str) -> None:
    found = run("--in", archive, "--key", "k2")
    assert "zwölf\\t\\x1b[31m" in found.stdout
    assert "\x1b" not in found.stdout
    assert "orders 0/2" in found.stdout
    assert "2027-01-15 08:00:02.000" in found.stdout


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_without_bodies_and_without_results(archive: str, form: str) -> None:
    words = ("--in", archive, "--format", form)
    assert "paid" in run(*words).stdout
    assert "paid" not in run(*words, "--body", "none").stdout
    found = run(*words, "--id", "nobody")
    assert (found.exit_code, found.stderr[:12]) == (0, "0 results in")


def test_pages(archive: str) -> None:
    first = run("--in", archive, "--limit", "4", "--json")
    after = json.loads(first.stderr)["after"]
    second = run("--in", archive, "--limit", "4", "--json", "--after", after)
    whole = run("--in", archive, "--limit", "0", "--json")
    assert first.stdout + second.stdout == whole.stdout
    assert json.loads(second.stderr)["after"] is None
    assert f"; more: --after {after}\n" in run("--in", archive, "--limit", "4").stderr


def test_a_dry_run(archive: str, tmp_path: Path) -> None:
    words = ("--in", archive, "--id", "id-1", "--topics", "orders", "--dry-run")
    said = msgspec.json.decode(run(*words, "--json").stdout)
    assert (said["engine"], said["live_messages"]) == ("local", 0)
    assert said["files"] >= 2
    assert "id-1" in said["conditions"]
    assert "engine: local\n" in run(*words).stdout
    assert run(*words, "--format", "parquet").exit_code == 0
