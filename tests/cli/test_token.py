"""`zbus token`, and how the other commands show theirs."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.conftest import FakeBroker, Zbus
from zbus.cli import main
from zbus.cli.bench.options import Options, Requests
from zbus.edge.access import Entry
from zbus.server.process.tokens import parse_tokens


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["token", *args])


def made(*args: str) -> tuple[str, Entry]:
    """The token, and its entry."""
    result = run(*args)
    assert result.exit_code == 0, result.output
    first, _, rest = result.stdout.partition("\n\n")
    (entry,) = parse_tokens(rest)
    return first.removeprefix("token: "), entry


def test_a_token_and_its_entry() -> None:
    token, entry = made(
        "--name",
        'Bill "B" \\ Ing',
        "--operations",
        "consume, query",
        "--group",
        "billing",
        "--topic",
        "Orders",
        "--topic",
        "x.*",
        "--expires",
        "2027-01-01T00:00:00Z",
    )
    assert re.fullmatch(r"[\w-]{43}", token), "256 bits"
    assert entry.digests == (sha256(token.encode()).digest(),)
    grant = entry.grant
    assert grant.name == 'Bill "B" \\ Ing'
    assert grant.operations == {"consume", "query"}
    assert grant.topics == (("orders", ("billing",)), ("x.*", ("billing",)))
    assert grant.expires_ms == 1_798_761_600_000


def test_each_token_is_another() -> None:
    assert len({made("--name", "x")[0] for _ in range(20)}) == 20


def test_defaults() -> None:
    _, entry = made("--name", "x", "--topic", "*")
    assert entry.grant.operations == {"produce", "consume"}
    assert entry.grant.sees_all("anything")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "--name is missing"),
        (["--name", "x", "--operations", "pub"], "unknown operation 'pub'"),
        (["--name", "x", "--operations", ""], "unknown operation ''"),
        (["--name", "x", "--group", "g"], "--group needs --topic"),
        (["--name", "x\n"], "cannot be printed"),
        (["--name", "x", "--topic", "a*b"], "* is allowed only at the end"),
        (["--name", "x", "--topic", ""], "printable"),
        (["--name", "x", "--expires", "2027-01-01"], "expires is a time with its zone"),
        (
            ["--name", "x", "--expires", "tomorrow"],
            "'tomorrow' is not a time such as 2027-01-01T00:",
        ),
        (["--name", "x", "--expires", "7"], "'7' is not a time such as 2027-01-01T00:00:00Z"),
        (["--name", "x", "--expires", "2027-13-01T00:00:00Z"], "is not a time such as"),
        (["--name", "x", "--expires", "2027-01-01T00:00:00Z\nname='y'"], "is not a time such as"),
    ],
)
def test_what_makes_no_entry(args: list[str], problem: str) -> None:
    result = run(*args)
    assert result.exit_code == 64
    assert problem in result.stderr
    assert "token:" not in result.stdout
    assert "TOML" not in result.stderr


def test_checking_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    digest = sha256(b"t").hexdigest()
    file.write_text(
        f'[[token]]\nname = "a"\nsha256 = "{digest}"\noperations = ["admin"]\n'
        "expires = 2001-01-01T00:00:00Z\n"
        '[[token]]\nname = "b"\nprincipal = "p"\nanonymous = true\noperations = ["query", "home"]\n'
        'topics = {Orders = ["g", "h"], "x.*" = []}\nexpires = 2999-01-01T00:00:00+01:00\n'
    )
    file.chmod(0o600)
    result = run("--check", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "a: 1 token",
        "  admin",
        "  no topic",
        "  expired 2001-01-01T00:00:00Z",
        "b: certificate p, clients without a token",
        "  home, query",
        "  orders (g, h); x.*",
        "  until 2998-12-31T23:00:00Z",
    ]
    file.chmod(0o644)
    result = run("--check", str(file))
    assert (result.exit_code, result.stderr) == (0, f"zbus: {file}: everybody may read it\n")
    file.write_text("[[token]]")
    result = run("--check", str(file))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"zbus: {file}: entry 1: ")


# -- the token of a command -----------------------------------------------------------------------


def test_commands_show_their_token(broker: FakeBroker, zbus: Zbus) -> None:
    assert zbus("produce", "T", "x").exit_code == 0
    assert "token" not in broker.asked[-1].headers
    for command in (
        ("produce", "T", "x"),
        ("consume", "T"),
        ("ack", "T", "G", "7"),
        ("nack", "T", "G", "7"),
        ("extend", "T", "G", "7"),
        ("declare", "T"),
        ("query",),
        ("remove", "T"),
        ("empty", "T"),
        ("call", "T", "m"),
    ):
        assert zbus(*command, "--token", "s%41").exit_code == 0
        assert broker.asked[-1].headers["token"] == "s%2541", "as a broker decodes it"


def test_the_environment_has_a_token(broker: FakeBroker) -> None:
    env = {"ZBUS_URL": broker.url, "ZBUS_TOKEN": "secret"}
    assert CliRunner().invoke(main, ["query"], env=env).exit_code == 0
    assert broker.asked[-1].headers["token"] == "secret"
    assert CliRunner().invoke(main, ["query", "--token", "other"], env=env).exit_code == 0
    assert broker.asked[-1].headers["token"] == "other"
    assert CliRunner().invoke(main, ["query"], env=env | {"ZBUS_TOKEN": ""}).exit_code == 0
    assert "token" not in broker.asked[-1].headers


def test_a_token_with_control_characters(zbus: Zbus) -> None:
    result = zbus("query", "--token", "secret\r\nx: y")
    assert (result.exit_code, "secret" in result.output) == (64, False)


def test_a_load_run_shows_its_token(broker: FakeBroker, zbus: Zbus, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    args = ("-n", "5", "-c", "1", "--json", str(report), "--token", "sec%41 ret")
    assert zbus("bench", *args).exit_code == 0
    tokens = [asked.headers["token"] for asked in broker.asked]
    assert tokens == ["sec%2541 ret", *["sec%2541%20ret"] * 5]
    assert "ret" not in report.read_text().replace("retr", "")
    assert "secret" not in repr(Options(token="secret"))
    assert b"token: a\r\n" in Requests(Options(token="a"), "consume").block(1)
