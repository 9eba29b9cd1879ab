"""`zbus declare`, `zbus query`, `zbus remove`, `zbus empty`: topics and their consume groups."""

from __future__ import annotations

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic
from zbus.cli.remote import Remote, Reply, json_option, url_option
from zbus.cli.words import print_time

NON_NEGATIVE = click.IntRange(min=0)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--partitions", type=click.IntRange(min=1), help="Logs to spread the topic over.")
@click.option("--topic-mask", type=NON_NEGATIVE, help="Sum of bits: 1 memory, 2 RPC, ...")
@click.option("--group-mask", type=NON_NEGATIVE, help="Sum of bits: 16 exclusive, 64 ack, ...")
@click.option("--filter", "group_filter", help='Tags the group wants: "a.*;b.#"; "" is all.')
@click.option("--durability", type=click.Choice(["memory", "os", "disk"]))
@click.option("--retention-ms", type=NON_NEGATIVE, help="Forget what is older; 0 is never.")
@click.option("--retention-bytes", type=NON_NEGATIVE, help="Keep so many bytes of each partition.")
@click.option("--retention-count", type=NON_NEGATIVE, help="Keep so many messages of each.")
@click.option("--retention-done/--no-retention-done", default=None, help="Forget what is done.")
@click.option("--dedupe-ms", type=NON_NEGATIVE, help="Store an id once within so long; 0 is off.")
@click.option("--ack-window", type=NON_NEGATIVE, help="Unacknowledged messages at once.")
@click.option("--ack-timeout-ms", type=NON_NEGATIVE, help="Hand out again what has no ack by then.")
@click.option("--start-copy", metavar="GROUP", help="Start where this group stands.")
@click.option("--start-offset", type=NON_NEGATIVE, help="First message the group gets.")
@click.option("--start-time", type=NON_NEGATIVE, help="The same by time: ms since 1970; 0 is all.")
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
    ack_window: int | None,
    ack_timeout_ms: int | None,
    start_copy: str | None,
    start_offset: int | None,
    start_time: int | None,
    as_json: bool,
    url: str,
) -> None:
    """Make TOPIC (and GROUP) or change what is given; print what it is now."""
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
    """Print what the broker, or TOPIC, or its GROUP is."""
    with Remote(url) as remote:
        reply = remote.request({"cmd": "query", "topic": topic, "consume_group": group})
    _print_json(reply, as_json)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def remove(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Delete TOPIC with all its messages, or its GROUP alone."""
    _order("remove", topic, group, as_json, url)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def empty(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Drop what is in TOPIC, or what GROUP has not read yet."""
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
