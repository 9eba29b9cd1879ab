"""`zbus produce`, `consume`, `ack` and `call`: messages in, messages out, questions answered."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator

import click
import msgspec

from zbus.cli.remote import (
    GRACE_S,
    MESSAGES_TYPE,
    Remote,
    Reply,
    split_messages,
    url_option,
)

EXIT_NOTHING = 3
STDIN = "-"

NON_NEGATIVE = click.IntRange(min=0)
POSITIVE = click.IntRange(min=1)


def _headers(
    _context: click.Context, _parameter: click.Parameter, lines: tuple[str, ...]
) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{line!r} is not of the form name:value")
        headers[name.strip().lower()] = value.strip()
    return headers


@click.command()
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--tag", help="Dotted words that filters match.")
@click.option("--key", help="Messages of one key stay in order.")
@click.option("--id", "message_id", help="The message's id; the broker makes one otherwise.")
@click.option("--partition", type=NON_NEGATIVE, help="Where to put it; the broker chooses.")
@click.option("--delay-ms", type=NON_NEGATIVE, help="Deliver it not before so long from now.")
@click.option("--ttl-ms", type=POSITIVE, help="Forget it if nobody took it for so long.")
@click.option(
    "--idempotency-key", help="Of this request: however often it is sent, it is put once."
)
@click.option("--expected-offset", type=NON_NEGATIVE, help="Put it only if it gets this offset.")
@click.option(
    "--header",
    "headers",
    metavar="NAME:VALUE",
    multiple=True,
    callback=_headers,
    help="Any other header; may be repeated.",
)
@url_option
def produce(
    topic: str,
    body: str | None,
    tag: str | None,
    key: str | None,
    message_id: str | None,
    partition: int | None,
    delay_ms: int | None,
    ttl_ms: int | None,
    idempotency_key: str | None,
    expected_offset: int | None,
    headers: dict[str, str],
    url: str,
) -> None:
    """Put a message into TOPIC and print the broker's time.

    BODY is the text to send; "-" reads it from standard input; none is an empty message.
    """
    content = sys.stdin.buffer.read() if body == STDIN else (body or "").encode()
    options: dict[str, str | int | None] = {
        "cmd": "produce",
        "topic": topic,
        "id": message_id,
        "tag": tag,
        "key": key,
        "partition": partition,
        "delay": delay_ms,
        "ttl": ttl_ms,
        "idempotency-key": idempotency_key,
        "expected_offset": expected_offset,
    }
    # An option that was not given must not hide a --header of its name.
    given = {name: value for name, value in options.items() if value is not None}
    with Remote(url) as remote:
        _print(remote.request({**headers, **given}, content))


@click.command()
@click.argument("topic")
@click.argument("group", required=False)
@click.option("--count", type=NON_NEGATIVE, default=1, show_default=True, help="0 is no end.")
@click.option("--timeout-ms", type=NON_NEGATIVE, help="Stop if nothing comes for so long.")
@click.option("--batch", type=POSITIVE, help="Fetch up to so many messages at once.")
@click.option("-v", "--verbose", is_flag=True, help="Print each message's headers, too.")
@url_option
def consume(
    topic: str,
    group: str | None,
    count: int,
    timeout_ms: int | None,
    batch: int | None,
    verbose: bool,
    url: str,
) -> None:
    """Take messages from TOPIC, as GROUP, and print each body as a line."""
    taken = 0
    with (
        Remote(url) as remote,
        contextlib.closing(
            _deliveries(remote, topic, group, count, timeout_ms, batch)
        ) as deliveries,
    ):
        for message in deliveries:
            taken += 1
            _print(message, verbose)
    if not taken:
        click.echo(f"zbus: nothing in {topic} within {timeout_ms} ms", err=True)
        sys.exit(EXIT_NOTHING)


def _deliveries(
    remote: Remote,
    topic: str,
    group: str | None,
    count: int,
    timeout_ms: int | None,
    batch: int | None,
) -> Generator[Reply, None, None]:
    """Pull until there were `count` messages (0: for ever) or one pull came back empty."""
    left = count
    while left or not count:
        wanted = None if batch is None else min(batch, left) if count else batch
        reply = remote.request(
            {
                "cmd": "consume",
                "topic": topic,
                "consume_group": group,
                "timeout": timeout_ms,
                "batch": wanted,
                "accept": None if batch is None else MESSAGES_TYPE,
            },
            timeout_s=None if timeout_ms is None else timeout_ms / 1000 + GRACE_S,
        )
        if reply.status == 204:
            return
        is_batch = reply.headers.get("content-type", "").startswith(MESSAGES_TYPE)
        messages = split_messages(reply.body) if is_batch else [reply]
        if not messages:
            return
        left -= len(messages)
        yield from messages


@click.command()
@click.argument("topic")
@click.argument("group")
@click.argument("offset", type=NON_NEGATIVE)
@click.option("--partition", type=NON_NEGATIVE, help="Where the message is; default 0.")
@url_option
def ack(topic: str, group: str, offset: int, partition: int | None, url: str) -> None:
    """Tell that GROUP is done with the message at OFFSET of TOPIC."""
    with Remote(url) as remote:
        reply = remote.request(
            {
                "cmd": "ack",
                "topic": topic,
                "consume_group": group,
                "offset": offset,
                "partition": partition,
            }
        )
    _print(reply)


@click.command()
@click.argument("topic")
@click.argument("method")
@click.argument("args", nargs=-1)
@click.option("--module", default="", help="Module of the service.")
@click.option("--timeout-ms", type=POSITIVE, default=30_000, show_default=True)
@url_option
def call(
    topic: str, method: str, args: tuple[str, ...], module: str, timeout_ms: int, url: str
) -> None:
    """Ask the service on TOPIC to run METHOD and print its answer.

    Each of ARGS is JSON if it reads as JSON (3, true, '{"a": 1}'), otherwise text.
    """
    question = {"module": module, "method": method, "params": [_argument(arg) for arg in args]}
    with Remote(url) as remote:
        reply = remote.request(
            {
                "cmd": "produce",
                "topic": topic,
                "content-type": "application/json",
                "timeout": timeout_ms,
            },
            msgspec.json.encode(question),
            timeout_s=timeout_ms / 1000 + GRACE_S,
        )
    _print(reply)


def _argument(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _print(reply: Reply, verbose: bool = False) -> None:
    """Write a body as it came, and a line end if it has none."""
    if verbose:
        for name, value in reply.headers.items():
            click.echo(f"{name}: {value}")
        click.echo()
    click.echo(reply.body, nl=not reply.body.endswith(b"\n"))
