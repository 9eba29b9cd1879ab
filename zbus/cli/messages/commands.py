"""`zbus produce`, `consume`, `get`, `ack`, `nack`, `extend` and `call`: messages in and out, and
settled; questions answered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from shlex import quote
from typing import IO, Any

import attrs
import click
import msgspec
from click.core import ParameterSource

from zbus import client
from zbus.cli.completion import complete_group, complete_topic
from zbus.cli.messages import show
from zbus.cli.messages.files import Out, progress_bar, read_body, read_units, send
from zbus.cli.parameters import sent, takes
from zbus.cli.remote import (
    GRACE_S,
    MESSAGES_TYPE,
    as_deliveries,
    ask,
    command,
    json_option,
    opened,
    request,
    url_option,
)
from zbus.cli.units import NON_NEGATIVE, SOME_TIME
from zbus.cli.words import Nothing, counted, print_json, print_time
from zbus.client import Delivery
from zbus.client.messages import number
from zbus.protocol.parameters import CONSUME, EXTEND, NACK, PRODUCE, PUT, SETTLE

FILE_BATCH = 100
"""Messages that are fetched at once if they are acknowledged or go to a file."""


_NOT_TAKEN = "idempotent timeout module method body"
"""Parameters of a produce that are of calls, or of URLs."""


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
@click.argument("topic", shell_complete=complete_topic)
@click.argument("body", required=False)
@takes(PRODUCE, without=_NOT_TAKEN)
@click.option(
    "--header",
    "headers",
    metavar="NAME:VALUE",
    multiple=True,
    callback=_headers,
    help="Any other header; may be repeated.",
)
@click.option("--file", type=click.File("rb"), help="Produce the messages of a file.")
@click.option(
    "--stdin", "file", flag_value="-", type=click.File("rb"), help="The same from standard input."
)
@click.option(
    "--lines", "form", flag_value="lines", default="lines", help="Each line is a message."
)
@click.option("--whole", "form", flag_value="whole", help="The whole file is one message.")
@click.option("--ndjson", "form", flag_value="ndjson", help="Each line is a message in JSON.")
@click.option(
    "--messages", "form", flag_value="messages", help="The file is what `consume --messages` wrote."
)
@click.option("--progress", is_flag=True, help="Show a bar on stderr.")
@json_option
@url_option
def produce(
    topic: str,
    body: str | None,
    headers: dict[str, str],
    file: IO[bytes] | None,
    form: str,
    progress: bool,
    as_json: bool,
    url: str,
    **labels: Any,  # noqa: ANN401 - the options that are the message's
) -> None:
    """Put a message into TOPIC and print the broker's time.

    BODY is the text to send. "-", or no BODY and a pipe, reads it from standard input: all of it is
    one message. '' is an empty message. --file and --stdin send many messages in batches, and
    print how many were stored; --lines, --whole, --ndjson and --messages mean --stdin without them.
    """
    file = file or _named_by_form(form, body)
    given = sent(PRODUCE, labels)
    if file is not None:
        if body is not None or headers or not given.keys() <= _OF_FILES:
            raise click.UsageError(
                "--file cannot be used with BODY, --id, --expected-offset, --cron, --ack-… or "
                "--header"
            )
        _produce_file(topic, file, form, progress, as_json, url, given)
        return
    content = read_body(body)
    reply = request(url, {**headers, "cmd": "produce", "topic": topic, **given}, content)
    if as_json:
        told = {
            name.decode(): value.decode("utf-8", "replace")
            for name, value in reply.fields.items()
            if name in _SHOWN
        }
        print_json(
            {
                name: int(text) if text.isdecimal() and name != "id" else text
                for name, text in told.items()
            }
        )
    else:
        _print(reply.body)
        if b"duplicate" in reply.fields:
            due = reply.fields.get(b"due")
            next = f"; it is due {show.local_time(int(due), 0)}" if due else ""
            click.echo(f"zbus: there is one of this id, and nothing has changed{next}", err=True)


_SHOWN = b"id offset partition durability duplicate schedule due".split()
_OF_FILES = {each.line for each in PUT} - {"expected_offset"}
"""Parameters that messages of a file may have."""


def _named_by_form(form: str, body: str | None) -> IO[bytes] | None:
    """Standard input, if the command line says in which form messages are in it."""
    if click.get_current_context().get_parameter_source("form") is not ParameterSource.COMMANDLINE:
        return None
    if body is not None:
        raise click.UsageError(f"--{form} is for --file and --stdin, and not for BODY")
    return sys.stdin.buffer


def _produce_file(
    topic: str,
    file: IO[bytes],
    form: str,
    progress: bool,
    as_json: bool,
    url: str,
    given: dict[str, Any],
) -> None:
    own = {each.python: given[each.line] for each in PUT if each.line in given}
    once = own.pop("idempotency_key", None)
    with opened(url) as bus, progress_bar(file, progress) as advance:
        units = read_units(file, form)
        sent = send(bus, topic, units, own, once, advance)
    if as_json:
        print_json(attrs.asdict(sent))
    else:
        known = f", {sent.duplicates} of them known" if sent.duplicates else ""
        click.echo(f"{counted(sent.count, 'message')}{known}")


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@click.option(
    "--count",
    type=NON_NEGATIVE,
    default=1,
    show_default=True,
    help="Stop after this many messages; 0: never.",
)
@takes(CONSUME, "timeout standby batch lease on_loss")
@click.option("--ack", "acks", is_flag=True, help="Acknowledge each message once it is printed.")
@click.option("--out", metavar="FILE", help="Append to this file, synced before any ack.")
@click.option(
    "--lines",
    "form",
    flag_value="lines",
    default="lines",
    help="Write each body as a line (default).",
)
@click.option(
    "--messages", "form", flag_value="messages", help="Write what `produce --messages` reads."
)
@click.option("-v", "--verbose", is_flag=True, help="Print each message's headers, too.")
@json_option
@url_option
def consume(
    topic: str,
    group: str | None,
    count: int,
    acks: bool,
    out: str | None,
    form: str,
    verbose: bool,
    as_json: bool,
    url: str,
    **options: Any,  # noqa: ANN401 - how to take them
) -> None:
    """Take messages from TOPIC as GROUP, and print the body of each on a line."""
    if options["batch"] is None and (acks or out):
        options["batch"] = FILE_BATCH
    timeout_ms: int | None = options["timeout"]
    wanted = {"cmd": "consume", "topic": topic, "consume_group": group, **sent(CONSUME, options)}
    encode = show.FORMS["json" if as_json else form]
    taken = 0
    target = Out(out, show.as_verbose if verbose and not as_json else encode)
    try:
        with opened(url) as bus:
            for messages in _deliveries(bus, wanted, count, timeout_ms, options["batch"]):
                target.write(messages)
                if acks:
                    acknowledge(bus, topic, group, messages)
                taken += len(messages)
            if taken and not acks and _leases(bus, topic, group):
                how = f"`zbus ack {quote(topic)} {quote(group or topic)} OFFSETS` (-v shows them)"
                click.echo(f"zbus: leased until {how}, or consume with --ack", err=True)
    finally:
        target.close()
    if not taken:
        raise Nothing(f"nothing in {topic} within {timeout_ms} ms")


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("key")
@click.option("-v", "--verbose", is_flag=True, help="Print the message's headers, too.")
@json_option
@url_option
def get(topic: str, key: str, verbose: bool, as_json: bool, url: str) -> None:
    """Print the newest message of KEY, of a TOPIC that was declared with --compact."""
    with opened(url) as bus:
        message = bus.get(topic, key)
    show_as = show.as_json if as_json else show.as_verbose if verbose else show.as_line
    click.echo(show_as(message), nl=False)


def _leases(bus: client.BlockingClient, topic: str, group: str | None) -> bool:
    try:
        return bus.query(topic, group or topic).ack
    except client.Refused:
        return False  # this token may not ask


def acknowledge(
    bus: client.BlockingClient, topic: str, group: str | None, messages: list[Delivery]
) -> None:
    """One request for each partition."""
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message.partition, []).append(message.offset)
    for partition, of in offsets.items():
        bus.ack(topic, group, of, partition=partition)


def _deliveries(
    bus: client.BlockingClient,
    wanted: dict[str, str | int | None],
    count: int,
    timeout_ms: int | None,
    batch: int | None,
) -> Iterator[list[Delivery]]:
    """Pull until there were `count` messages (0: for ever) or one pull came back empty."""
    left = count
    while left or not count:
        most = None if batch is None else min(batch, left) if count else batch
        fields = {
            **wanted,
            "batch": most,
            "accept": None if batch is None else MESSAGES_TYPE,
        }
        timeout_s = None if timeout_ms is None else timeout_ms / 1000 + GRACE_S
        messages = bus.run(command(fields, as_deliveries, timeout_s=timeout_s))
        if not messages:
            return
        left -= len(messages)
        yield messages


def _of_deliveries(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command a topic, a group and offsets of its deliveries."""
    topic = click.argument("topic", shell_complete=complete_topic)
    group = click.argument("group", shell_complete=complete_group)
    offsets = click.argument("offset", metavar="OFFSETS")
    return topic(group(offsets(takes(SETTLE, "partition")(json_option(url_option(function))))))


@click.command()
@_of_deliveries
def ack(as_json: bool, url: str, **named: Any) -> None:  # noqa: ANN401 - what it is about
    """Acknowledge the messages at OFFSETS (3,5-9,12) of TOPIC for GROUP."""
    print_time(ask(url, "ack", **named, strict=1).body, as_json)


@click.command()
@_of_deliveries
@takes(NACK)
def nack(**options: Any) -> None:  # noqa: ANN401
    """Give the messages at OFFSETS (3,5-9,12) of TOPIC back: GROUP gets them again."""
    _settle("nack", **options)


@click.command()
@_of_deliveries
@takes(EXTEND)
def extend(**options: Any) -> None:  # noqa: ANN401
    """Keep the messages at OFFSETS (3,5-9,12) of TOPIC leased by GROUP: longer, or shorter."""
    _settle("extend", **options)


def _settle(
    word: str,
    topic: str,
    group: str,
    as_json: bool,
    url: str,
    **named: Any,  # noqa: ANN401
) -> None:
    given = sent((*SETTLE, *NACK, *EXTEND), named)
    count = number(ask(url, word, topic, group, **given).fields, b"count")
    if as_json:
        print_json({"count": count})
    else:
        click.echo(counted(count, "message"))


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("method")
@click.argument("args", nargs=-1)
@click.option("--module", default="", help="Module of the service.")
@click.option(
    "--timeout",
    "--timeout-ms",
    "timeout_ms",
    type=SOME_TIME,
    default="30s",
    show_default=True,
    help="Wait this long for the answer.",
)
@json_option
@url_option
def call(
    topic: str,
    method: str,
    args: tuple[str, ...],
    module: str,
    timeout_ms: int,
    as_json: bool,
    url: str,
) -> None:
    """Ask the service on TOPIC to run METHOD and print its answer.

    An argument that is valid JSON (3, true, '{"a": 1}') is sent as JSON, any other as text.
    """
    question = {"module": module, "method": method, "params": [_argument(arg) for arg in args]}
    fields: dict[str, str | int | None] = {"cmd": "produce", "topic": topic}
    fields |= {"content-type": "application/json", "timeout": timeout_ms}
    timeout_s = timeout_ms / 1000 + GRACE_S
    reply = request(url, fields, msgspec.json.encode(question), timeout_s)
    if as_json and not reply.fields.get(b"content-type", b"").startswith(b"application/json"):
        print_json(reply.body.decode("utf-8", "replace"))
    else:
        _print(reply.body)


def _argument(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _print(body: bytes) -> None:
    """As it came, and a line end if it has none."""
    click.echo(body, nl=not body.endswith(b"\n"))
