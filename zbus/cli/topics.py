"""`zbus list`, `declare`, `query`, `remove`, `empty`: topics and their consume groups."""

from __future__ import annotations

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic
from zbus.cli.remote import Remote, Reply, json_option, url_option
from zbus.cli.units import DURATION, SIZE
from zbus.cli.words import print_time

NON_NEGATIVE = click.IntRange(min=0)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions.")
@click.option("--topic-mask", type=NON_NEGATIVE, help="Sum of bits: 1 memory, 2 RPC, ...")
@click.option("--group-mask", type=NON_NEGATIVE, help="Sum of bits: 16 exclusive, 64 ack, ...")
@click.option("--filter", "group_filter", help='Tags the group wants: "a.*;b.#"; "": all.')
@click.option(
    "--durability",
    type=click.Choice(["memory", "os", "disk"]),
    help="What a produce waits for: nothing, the write, the sync.",
)
@click.option(
    "--retention",
    "--retention-ms",
    "retention_ms",
    type=DURATION,
    help="Drop messages older than this; 0: never.",
)
@click.option("--retention-bytes", type=SIZE, help="Keep about this much of each partition.")
@click.option(
    "--retention-count", type=NON_NEGATIVE, help="Keep about this many messages of each partition."
)
@click.option(
    "--retention-done/--no-retention-done", default=None, help="Drop what all groups have finished."
)
@click.option(
    "--dedupe",
    "--dedupe-ms",
    "dedupe_ms",
    type=DURATION,
    help="Store an id once within this time; 0: off.",
)
@click.option(
    "--sender-headers/--no-sender-headers",
    default=None,
    help="Store the sender's address and HTTP headers with each message.",
)
@click.option("--ack-window", type=NON_NEGATIVE, help="Most unacknowledged messages at once.")
@click.option(
    "--ack-timeout",
    "--ack-timeout-ms",
    "ack_timeout_ms",
    type=DURATION,
    help="Redeliver a message without an ack after this time.",
)
@click.option("--start-copy", metavar="GROUP", help="Begin where this group stands.")
@click.option(
    "--start-offset", type=NON_NEGATIVE, help="Begin at this offset; 0: the oldest message."
)
@click.option("--start-time", type=NON_NEGATIVE, help="Begin at this time, in ms since 1970.")
@json_option
@url_option
def declare(
    topic: str,
    group: str | None,
    partitions: int | None,
    topic_mask: int | None,
    group_mask: int | None,
    group_filter: str | None,
    durability: str | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    retention_count: int | None,
    retention_done: bool | None,
    dedupe_ms: int | None,
    sender_headers: bool | None,
    ack_window: int | None,
    ack_timeout_ms: int | None,
    start_copy: str | None,
    start_offset: int | None,
    start_time: int | None,
    as_json: bool,
    url: str,
) -> None:
    """Create TOPIC (and GROUP), or change the given options; print the result."""
    with Remote(url) as remote:
        reply = remote.request(
            {
                "cmd": "declare",
                "topic": topic,
                "consume_group": group,
                "partitions": partitions,
                "topic_mask": topic_mask,
                "group_mask": group_mask,
                "group_filter": group_filter,
                "durability": durability,
                "retention_ms": retention_ms,
                "retention_bytes": retention_bytes,
                "retention_count": retention_count,
                "retention_done": None if retention_done is None else int(retention_done),
                "dedupe_ms": dedupe_ms,
                "sender_headers": None if sender_headers is None else int(sender_headers),
                "group_ack_window": ack_window,
                "group_ack_timeout": ack_timeout_ms,
                "group_start_copy": start_copy,
                "group_start_offset": start_offset,
                "group_start_time": start_time,
            }
        )
    _print_json(reply, as_json)


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def query(topic: str | None, group: str | None, as_json: bool, url: str) -> None:
    """Print the state of the broker, of TOPIC, or of its GROUP, as JSON."""
    with Remote(url) as remote:
        reply = remote.request({"cmd": "query", "topic": topic, "consume_group": group})
    _print_json(reply, as_json)


@click.command(name="list")
@click.argument("topic", required=False, shell_complete=complete_topic)
@json_option
@url_option
def list_names(topic: str | None, as_json: bool, url: str) -> None:
    """Print the names of all topics, or of the groups of TOPIC, one on a line."""
    with Remote(url) as remote:
        reply = remote.request({"cmd": "query", "topic": topic, "names": 1})
    if as_json:
        click.echo(reply.body)
        return
    for name in msgspec.json.decode(reply.body, type=list[str]):
        click.echo(name)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def remove(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Delete TOPIC with all its messages, or only its GROUP."""
    _order("remove", topic, group, as_json, url)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def empty(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Drop all messages of TOPIC, or all that GROUP has still to get."""
    _order("empty", topic, group, as_json, url)


def _order(word: str, topic: str, group: str | None, as_json: bool, url: str) -> None:
    with Remote(url) as remote:
        reply = remote.request({"cmd": word, "topic": topic, "consume_group": group})
    print_time(reply.body, as_json)


def _print_json(reply: Reply, as_json: bool) -> None:
    """One line of it; or for people, indented. What is no JSON is shown as it is."""
    if as_json:
        click.echo(reply.body)
        return
    try:
        click.echo(msgspec.json.format(reply.body, indent=2))
    except msgspec.DecodeError:
        click.echo(reply.body)
