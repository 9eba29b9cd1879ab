"""`zbus token`: make a token and the entry of the token file that goes with it, or check a file."""

from __future__ import annotations

import datetime
import secrets
import tomllib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import click

from zbus.cli.words import Cannot, counted
from zbus.edge.access import NEVER_MS, Entry
from zbus.server.process.tokens import BadTokens, loose_permissions, parse_tokens, read_tokens

TOKEN_BYTES = 32


@click.command()
@click.option("--name", help="Name of the program or person that the token is for.")
@click.option(
    "--operations",
    default="produce,consume",
    show_default=True,
    help="Permitted operations, separated by commas; *: all.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Permitted topic; Orders.* matches a prefix; may be repeated.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Group of these topics it may use; default: all; repeatable.",
)
@click.option("--expires", metavar="TIME", help="The token expires then: 2027-01-01T00:00:00Z.")
@click.option(
    "--check",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Check this token file instead, and print what it grants.",
)
def token(
    name: str | None,
    operations: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    expires: str | None,
    file: Path | None,
) -> None:
    """Make a token and the entry for the broker's token file. The token is shown only once."""
    if file is not None:
        _check(file)
        return
    if not name:
        raise click.UsageError("--name is missing: it names the user of the token")
    if groups and not topics:
        raise click.UsageError("--group needs --topic: a group belongs to a topic")
    made = secrets.token_urlsafe(TOKEN_BYTES)
    lines = [
        "[[token]]",
        f"name = {_quoted(name)}",
        f'sha256 = ["{sha256(made.encode()).hexdigest()}"]',
        f"operations = {_list(part.strip() for part in operations.split(','))}",
    ]
    if expires:
        lines.append(f"expires = {_time(expires)}")
    if topics:
        lines.append("[token.topics]")
        lines += [f"{_quoted(topic)} = {_list(groups)}" for topic in topics]
    text = "\n".join(lines)
    try:
        parse_tokens(text)
    except BadTokens as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"token: {made}\n\n{text}")


def _quoted(text: str) -> str:
    """A string of TOML."""
    if not text.isprintable():
        raise click.UsageError(f"{text!r} has characters that cannot be printed")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _time(text: str) -> str:
    """A time of TOML; that it has a zone is checked with the entry."""
    try:
        tomllib.loads(f"time = {text}")
        datetime.datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is not a time such as 2027-01-01T00:00:00Z"
        raise click.BadParameter(problem, param_hint="'--expires'") from None
    return text


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(_quoted(text) for text in texts) + "]"


def _check(file: Path) -> None:
    try:
        entries, _ = read_tokens(file)
    except BadTokens as error:
        raise Cannot(str(error)) from None
    for entry in entries:
        click.echo(_describe(entry))
    if loose := loose_permissions(file):
        click.echo(f"zbus: {file}: {loose}", err=True)


def _describe(entry: Entry) -> str:
    grant = entry.grant
    who = [counted(len(entry.digests), "token")] if entry.digests else []
    who += [f"certificate {name}" for name in entry.principals]
    who += ["clients without a token"] * entry.anonymous
    what = ", ".join(sorted(grant.operations))
    where = "; ".join(
        topic if groups == ("*",) else f"{topic} ({', '.join(groups)})"
        for topic, groups in grant.topics
    )
    head = f"{grant.name}: {', '.join(who)}"
    return "\n  ".join([head, what, where or "no topic", *_most(entry), *_until(grant.expires_ms)])


def _most(entry: Entry) -> list[str]:
    limits = entry.grant.limits
    most = [f"{limits.requests_per_s} requests a second"] if limits.requests_per_s else []
    most += [f"{limits.bytes_per_s} bytes a second"] if limits.bytes_per_s else []
    most += [f"{limits.connections_max} connections"] if limits.connections_max else []
    return [f"at most {', '.join(most)}"] if most else []


def _until(expires_ms: int) -> list[str]:
    if expires_ms == NEVER_MS:
        return []
    time = datetime.datetime.fromtimestamp(expires_ms / 1000, datetime.UTC)
    over = time <= datetime.datetime.now(datetime.UTC)
    return [f"{'expired' if over else 'until'} {time:%Y-%m-%dT%H:%M:%SZ}"]
