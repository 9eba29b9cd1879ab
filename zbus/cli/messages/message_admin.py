"""What is asked about single messages of a group: `zbus delete`, `cancel`, `fire`, `reschedule`,
`redrive`, `peek` and `why`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from zbus.cli.completion import of_group
from zbus.cli.parameters import sent, takes
from zbus.cli.remote import ask, opened
from zbus.cli.units import NON_NEGATIVE, POSITIVE
from zbus.cli.words import Nothing, counted, print_json
from zbus.protocol.documents import State
from zbus.protocol.parameters import PEEK, REDRIVE, RESCHEDULE, SINGLE
from zbus.wire.responses import Response

PAGE = 1_000

Function = TypeVar("Function", bound=Callable[..., Any])


def _named(function: Function) -> Function:
    """The options that name a message."""
    id = click.option("--id", "message_id", help="The message's id, if the topic remembers ids.")
    return id(takes(SINGLE, "partition")(function))


_offsets = click.option("--offset", help="Of the message; of many: 3,5-9,12.")


def _order(
    word: str,
    topic: str,
    group: str | None,
    offset: str | None,
    message_id: str | None,
    partition: int | None,
    as_json: bool,
    url: str,
    **more: int | None,
) -> None:
    """Have it done, and say to how many."""
    if (offset is None) == (message_id is None):
        raise click.UsageError("name messages by --offset, or one by --id")
    named: dict[str, Any] = {"offset": offset, "msgid": message_id, "partition": partition}
    number = _number(ask(url, word, topic, group, **named, **more), b"count")
    if as_json:
        print_json({"count": number})
    else:
        click.echo(counted(number, "message"))


@click.command()
@of_group
@_named
@_offsets
def delete(topic: str, group: str | None, **named: Any) -> None:  # noqa: ANN401 - options
    """Finish messages of TOPIC that GROUP has not finished, whatever their state.

    Without GROUP all groups are meant. A message is counted in each of them.
    """
    _order("delete", topic, group, **named)


@click.command()
@of_group
@_named
@_offsets
def cancel(topic: str, group: str | None, **named: Any) -> None:  # noqa: ANN401 - options
    """Finish messages of TOPIC that are delayed, so that they are never delivered.

    What was just delivered is refused. Without GROUP all groups are meant.
    """
    _order("cancel", topic, group, **named)


@click.command()
@of_group
@_named
@_offsets
def fire(topic: str, group: str | None, **named: Any) -> None:  # noqa: ANN401 - options
    """Deliver messages of TOPIC that are delayed now.

    Without GROUP all groups are meant.
    """
    _order("fire", topic, group, **named)


@click.command()
@of_group
@_named
@_offsets
@takes(RESCHEDULE)
def reschedule(
    topic: str,
    group: str | None,
    delay: int | None,
    deliver_at: int | None,
    **named: Any,  # noqa: ANN401 - options
) -> None:
    """Deliver messages of TOPIC that are delayed at another time.

    Without GROUP all groups are meant.
    """
    if (delay is None) == (deliver_at is None):
        raise click.UsageError("give one of --delay and --deliver-at")
    _order("reschedule", topic, group, **named, delay=delay, deliver_at=deliver_at)


@click.command()
@of_group
@takes(REDRIVE)
def redrive(
    topic: str, group: str | None, as_json: bool, url: str, **fields: str | int | None
) -> None:
    """Move dead letters back to the topics they came from.

    With --only-group each goes back to the group in which it died, as long as the log of its topic
    still has it.
    """
    reply = ask(url, "redrive", topic, group, **sent(REDRIVE, fields))
    count, stayed = _number(reply, b"count"), _number(reply, b"stayed")
    if as_json:
        print_json({"count": count, "stayed": stayed})
    else:
        click.echo(counted(count, "message") + (f", {stayed} stayed" if stayed else ""))
    if stayed:
        why = "the topic that they come from is gone, or takes none; --to TOPIC names another"
        if fields.get("only_group"):
            why = "their topic has them no more, or their group has them now; see redrive --help"
        if not count:
            raise Nothing(why)
        click.echo(f"zbus: {why}", err=True)


def _number(reply: Response, name: bytes) -> int:
    digits = reply.fields.get(name, b"")
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0


@click.command()
@of_group
@takes(PEEK, "state key tag body")
@click.option("--count", type=POSITIVE, default=100, show_default=True, help="At most this many.")
def peek(
    topic: str,
    group: str | None,
    state: State | None,
    key: str | None,
    tag: str | None,
    body: bool | None,
    count: int,
    as_json: bool,
    url: str,
) -> None:
    """List what GROUP of TOPIC has delayed, leased or ready; nothing changes by it."""
    left, after = count, ""
    with opened(url) as bus:
        while left:
            page = bus.peek(
                topic,
                group,
                state=state or "ready",
                key=key,
                tag=tag,
                count=min(left, PAGE),
                after=after,
                body=bool(body),
            )
            for row in page.messages:
                if as_json:
                    print_json(row)
                else:
                    click.echo(_line(row))
            left -= len(page.messages)
            after = page.next
            if not after:
                break
    if page.unseen and not as_json:
        text = f"{counted(page.unseen, 'message')} may be delayed, which the group has not come to"
        click.echo(f"zbus: {text}", err=True)


def _line(row: dict[str, Any]) -> str:
    """A message for people."""
    parts = [f"{row['partition']}:{row['offset']}", row["state"]]
    if "until" in row:
        parts.append(f"until {_time(row['until'])}")
    parts.append(f"id={row['id']}")
    names = ("key", "tag", "attempts", "holder", "size", "body", "body_base64")
    parts += [f"{name}={row[name]}" for name in names if name in row]
    return "  ".join(parts)


def _time(time_ms: int) -> str:
    try:
        time = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms after 1970"
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


@click.command()
@of_group
@_named
@click.option("--offset", type=NON_NEGATIVE, help="Of the message.")
def why(
    topic: str,
    group: str | None,
    offset: int | None,
    message_id: str | None,
    partition: int | None,
    as_json: bool,
    url: str,
) -> None:
    """Say why a message of TOPIC is not with the consumers of GROUP."""
    if (offset is None) == (message_id is None):
        raise click.UsageError("name a message by --offset or --id")
    with opened(url) as bus:
        found = bus.why(topic, group, offset, id=message_id, partition=partition or 0)
    if as_json:
        print_json(found)
    else:
        click.echo(found.get("text", ""))
