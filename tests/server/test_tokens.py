"""The file of tokens: what is read from it, what is refused, when it is taken over."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.edge.access import NEVER_MS, NOTHING
from zbus.edge.quotas import Limits
from zbus.server.process.tokens import (
    DIGESTS_MAX,
    FILE_BYTES_MAX,
    BadTokens,
    TokenFile,
    loose_permissions,
    parse_tokens,
    read_tokens,
)


def hexdigest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


A, B = hexdigest("a"), hexdigest("b")

WHOLE = f"""
# What a file may hold.
[[token]]
name = "billing"
sha256 = ["{A}", "{B.upper()}"]
principal = "billing.example"
operations = ["produce", "consume"]
expires = 2027-01-01T01:00:00.5+01:00
[token.topics]
Orders = ["Billing", "audit*"]
"Été.*" = []

[[token]]
name = "all"
sha256 = "{hexdigest("all")}"
principal = ["a", "b"]
anonymous = true
operations = ["*"]
topics = {{ "*" = ["*"] }}
"""


def test_operations_of_the_originals_pages_are_taken_and_grant_nothing() -> None:
    """Its sample names them; here pages are for everybody."""
    text = f"""
[[token]]
name = "admin"
sha256 = "{A}"
operations = ["home", "js", "css", "img", "page"]
"""
    (entry,) = parse_tokens(text)
    assert entry.grant.may("home")
    assert not entry.grant.may("produce")


def test_everything_that_a_file_may_hold() -> None:
    billing, everybody = parse_tokens(WHOLE)
    assert billing.grant.name == "billing"
    assert billing.grant.operations == {"produce", "consume"}
    assert billing.grant.topics == (("orders", ("billing", "audit*")), ("été.*", ("*",)))
    assert billing.grant.expires_ms == 1_798_761_600_500
    assert billing.digests == (bytes.fromhex(A), bytes.fromhex(B))
    assert (billing.principals, billing.anonymous) == (("billing.example",), False)
    assert everybody.grant.expires_ms == NEVER_MS
    assert everybody.digests == (bytes.fromhex(hexdigest("all")),)
    assert (everybody.principals, everybody.anonymous) == (("a", "b"), True)
    assert everybody.grant.sees_all("anything")


def test_limits_of_an_entry() -> None:
    (limited,) = parse_tokens(entry(requests_per_s="1", bytes_per_s="1_099_511_627_776"))
    assert limited.grant.limits == Limits(1, 1 << 40, 0)
    (free,) = parse_tokens(entry())
    assert not free.grant.limits.any


def entry(**values: str) -> str:
    """One entry as text; values are TOML. An empty one leaves the key out."""
    values = {"name": '"x"', "sha256": f'"{A}"', "operations": '["produce"]'} | values
    lines = [f"{key} = {value}" for key, value in values.items() if value]
    return "\n".join(["[[token]]", *lines, ""])


BAD = [
    ("", "has no entry, so every request would be refused; an entry begins with [[token]]"),
    (
        "token = []",
        "has no entry, so every request would be refused; an entry begins with [[token]]",
    ),
    ("[token]\nname = 'x'", "entries begin with [[token]], in two pairs of brackets"),
    ("token = [1]", "entries begin with [[token]], in two pairs of brackets"),
    ("token = 1", "entries begin with [[token]], in two pairs of brackets"),
    ("tokens = 1", "unknown key 'tokens'; entries begin with [[token]]"),
    ("a = ", "is not TOML: Invalid value (at end of document)"),
    (
        entry(topic='"Orders"'),
        "entry 1 (x): unknown key 'topic'; known: name, sha256, principal, anonymous, "
        "operations, topics, expires, requests_per_s, bytes_per_s, connections_max",
    ),
    (entry(name=""), "entry 1: name is a text of printable characters, not None"),
    (entry(name="7"), "entry 1: name is a text of printable characters, not 7"),
    (entry(name='" "'), "entry 1 ( ): name is a text of printable characters, not ' '"),
    (entry(name=f'"{"é" * 101}"'), f"entry 1 ({'é' * 101}): name has at most 200 bytes"),
    (
        entry(sha256=""),
        "entry 1 (x): it matches no client: it needs sha256, principal or anonymous = true",
    ),
    (
        entry(sha256="[]", anonymous="false"),
        "entry 1 (x): it matches no client: it needs sha256, principal or anonymous = true",
    ),
    (entry(sha256="7"), "entry 1 (x): sha256 is a text or a list of texts"),
    (entry(sha256="[7]"), "entry 1 (x): sha256 is a text or a list of texts"),
    *(
        (
            entry(sha256=f'"{text}"'),
            "entry 1 (x): sha256 is 64 hexadecimal digits: the hash of a token, never the token",
        )
        for text in ("", A[:-1], A + "0", "g" + A[1:], f" {A}", "my secret", "\u0660" * 64)
    ),
    (
        entry(sha256=f'"{hexdigest("")}"'),
        "entry 1 (x): this sha256 is that of the empty token; write anonymous = true instead",
    ),
    (
        entry(sha256=f'["{A}", "{A}"]'),
        "entry 1 (x): the same sha256 or principal is listed twice",
    ),
    (entry(principal='""'), "entry 1 (x): principal is a text of printable characters, not ''"),
    (entry(principal="1"), "entry 1 (x): principal is a text or a list of texts"),
    (entry(anonymous="1"), "entry 1 (x): anonymous is true or false"),
    *(
        (
            entry(operations=text),
            "entry 1 (x): operations is a list of at least one, such as "
            '["produce", "consume"]',
        )
        for text in ("", "[]", '"produce"')
    ),
    (
        entry(operations='["produce", "pub"]'),
        "entry 1 (x): unknown operation 'pub'; known: produce, consume, route, query, "
        "declare, empty, remove, track_pub, track_sub, tracker, server, ssl, disconnect, "
        "move, admin, *",
    ),
    (
        entry(topics='["Orders"]'),
        "entry 1 (x): topics is a table of topics and their groups",
    ),
    (
        entry(topics='{Orders = "g"}'),
        "entry 1 (x): topic 'Orders': groups are a list; [] is all of them",
    ),
    (
        entry(topics="{Orders = true}"),
        "entry 1 (x): topic 'Orders': groups are a list; [] is all of them",
    ),
    (
        entry(topics='{"" = []}'),
        "entry 1 (x): a topic or group is a text of printable characters, not ''",
    ),
    (
        entry(topics="{Orders = [1]}"),
        "entry 1 (x): a topic or group is a text of printable characters, not 1",
    ),
    (
        entry(topics='{"*.eu" = []}'),
        "entry 1 (x): '*.eu': * is allowed only at the end, as a prefix match",
    ),
    (
        entry(topics="{Orders = [], ORDERS = []}"),
        "entry 1 (x): two topics differ in case only, which is the same topic",
    ),
    *(
        (
            entry(expires=text),
            "entry 1 (x): expires is a time with its zone, such as 2027-01-01T00:00:00Z",
        )
        for text in ("2027-01-01", "2027-01-01T00:00:00", "10:00:00", '"2027-01-01T00:00:00Z"', "1")
    ),
    *(
        (
            entry(**{key: text}),
            f"entry 1 (x): {key} is a whole number from 1 to 1099511627776",
        )
        for key in ("requests_per_s", "bytes_per_s", "connections_max")
        for text in ("0", "-1", "true", "1.0", '"1"', "[1]", "1099511627777", f"0x{'f' * 9_000}")
    ),
    (entry() + entry(sha256=f'"{B}"'), "entry 2 (x): another entry has the same name"),
    (entry() + entry(name='"y"'), "entry 2 (y): another entry has the same sha256"),
    (
        entry(principal='"p"') + entry(name='"y"', sha256="", principal='["q", "p"]'),
        "entry 2 (y): another entry has the same principal",
    ),
    (
        entry(anonymous="true") + entry(name='"y"', sha256="", anonymous="true"),
        "entry 2 (y): another entry has the same anonymous",
    ),
    (
        entry(sha256=str([hexdigest(str(n)) for n in range(DIGESTS_MAX + 1)])),
        f"has more than {DIGESTS_MAX} tokens",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), BAD, ids=range(len(BAD)))
def test_what_is_not_understood_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadTokens) as caught:
        parse_tokens(text)
    assert str(caught.value) == problem
    file = tmp_path / "tokens.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadTokens) as caught:
        read_tokens(file)
    assert str(caught.value) == f"{file}: {problem}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "is not UTF-8"),
        (b"#" * (FILE_BYTES_MAX + 1), f"has more than {FILE_BYTES_MAX} bytes"),
        (b"a = " + b"[" * 100_000, "is not TOML: "),
        (b"a = " + b"9" * 10_000, "is not TOML: "),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(content)
    with pytest.raises(BadTokens) as caught:
        read_tokens(file)
    assert str(caught.value).startswith(f"{file}: {problem}")


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadTokens, match="cannot be read: "):
        read_tokens(tmp_path / name)


@given(st.text(max_size=200))
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        parse_tokens(text)
    except BadTokens:
        pass


# -- a file that changes --------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.write_text(entry())
    path.chmod(0o600)
    return path


class Lines(logging.Handler):
    """Log lines as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    logger, handler = logging.getLogger("zbus"), Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(level)


def events(lines: list[logging.LogRecord]) -> list[str]:
    found = [f"{line.levelname} {line.getMessage()}" for line in lines]
    lines.clear()
    return found


def rewrite(path: Path, text: str, mtime_ns: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def test_a_changed_file_is_taken_over_when_it_has_settled(
    file: Path, lines: list[logging.LogRecord]
) -> None:
    tokens = TokenFile(file)
    a, b = tokens.access.of_token(b"a"), entry(sha256=f'"{B}"')
    tokens.look()
    tokens.look()
    assert a.grant.name == "x"
    rewrite(file, b[:30], 1)  # half of it is written
    tokens.look()
    rewrite(file, b, 2)
    tokens.look()
    assert a.grant.name == "x"
    tokens.look()
    assert (a.grant, tokens.access.of_token(b"b").grant.name) == (NOTHING, "x")
    tokens.look()
    assert events(lines) == ["INFO tokens taken over"]


def test_a_file_of_the_same_size_and_time_in_its_place_is_another(file: Path) -> None:
    os.utime(file, ns=(1, 1))
    tokens = TokenFile(file)
    new = file.with_name("new")
    rewrite(new, entry(sha256=f'"{B}"'), 1)
    assert new.stat().st_size == file.stat().st_size
    new.replace(file)
    tokens.look()
    tokens.look()
    assert tokens.access.of_token(b"b").grant.name == "x"


def test_a_bad_file_keeps_the_old_table(file: Path, lines: list[logging.LogRecord]) -> None:
    tokens = TokenFile(file)
    bearer = tokens.access.of_token(b"a")
    rewrite(file, "[[token]", 1)
    for _ in range(5):
        tokens.look()
    assert bearer.grant.name == "x"
    assert events(lines) == ["ERROR token file rejected, keeping the previous one"]
    file.unlink()
    for _ in range(5):
        tokens.look()
    assert bearer.grant.name == "x"
    assert events(lines) == ["ERROR token file rejected, keeping the previous one"]
    rewrite(file, entry(name='"y"'), 2)
    file.chmod(0o600)
    for _ in range(5):
        tokens.look()
    assert bearer.grant.name == "y"
    assert events(lines) == ["INFO tokens taken over"]


def test_reload_is_at_once(file: Path, lines: list[logging.LogRecord]) -> None:
    tokens = TokenFile(file)
    rewrite(file, entry(name='"y"'), 1)
    tokens.reload()
    assert tokens.access.of_token(b"a").grant.name == "y"
    tokens.look()
    tokens.look()
    assert events(lines) == ["INFO tokens taken over"]
    file.unlink()
    tokens.reload()
    tokens.reload()
    assert len(events(lines)) == 2, "whoever asks is told each time"
    assert tokens.access.of_token(b"a").grant.name == "y"


def test_a_bad_file_is_no_start(file: Path) -> None:
    file.write_text("")
    with pytest.raises(BadTokens):
        TokenFile(file)


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (0o600, ""),
        (0o640, ""),
        (0o644, "everybody may read it"),
        (0o660, "others than its owner may change it"),
        (0o666, "others than its owner may change it"),
    ],
)
def test_careless_permissions(
    file: Path, mode: int, problem: str, lines: list[logging.LogRecord]
) -> None:
    file.chmod(mode)
    assert loose_permissions(file) == problem
    TokenFile(file)
    assert events(lines) == ["WARNING careless permissions"] * bool(problem)


def test_no_token_in_what_is_logged(file: Path, lines: list[logging.LogRecord]) -> None:
    """Somebody may have written the token itself where its hash belongs."""
    tokens = TokenFile(file)
    rewrite(file, entry(sha256='"my secret token"'), 1)
    tokens.reload()
    assert "secret" not in repr([vars(line) for line in lines])
