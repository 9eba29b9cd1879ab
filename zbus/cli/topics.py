"""Topics and consume groups: `zbus declare`, `query`, `remove`, `empty`, `pause`, `resume`."""

from __future__ import annotations

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic
from zbus.cli.remote import Remote, Reply, json_option, url_option
from zbus.cli.words import print_time

NON_NEGATIVE = click.IntRange(min=0)
LOSSES = ("keep", "front")


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions.")
@click.option("--topic-mask", type=NON_NEGATIVE, help="Sum of bits: 1 memory, 2 RPC, ...")
@click.option("--group-mask", type=NON_NEGATIVE, help="Sum of bits: 16 exclusive, 64 ack, ...")
@click.option("--filter", "group_filter", help='Tags the group wants: "a.*;b.#"; "": all.')
@click.option("--durability", type=click.Choice(["memory", "os", "disk"]))
@click.option("--retention-ms", type=NON_NEGATIVE, help="Drop messages older than this; 0: never.")
@click.option(
    "--retention-bytes", type=NON_NEGATIVE, help="Keep about this many bytes of each partition."
)
@click.option(
    "--retention-count", type=NON_NEGATIVE, help="Keep about this many messages of each partition."
)
@click.option(
    "--retention-done/--no-retention-done", default=None, help="Drop what all groups have finished."
)
@click.option(
    "--dedupe-ms", type=NON_NEGATIVE, help="Store an id once within this many ms; 0: off."
)
@click.option(
    "--ack-window",
    "group_ack_window",
    type=NON_NEGATIVE,
    help="Most unacknowledged messages at once.",
)
@click.option(
    *("--ack-timeout-ms", "group_ack_timeout"),
    type=NON_NEGATIVE,
    help="Redeliver a message without an ack after this.",
)
@click.option(
    *("--max-attempts", "group_max_attempts"),
    metavar="N|none",
    help="Give a message up after so many deliveries without an ack.",
)
@click.option(
    *("--backoff", "group_backoff"),
    metavar="MS[,MS]|none",
    help="Pause before the second delivery, doubled for each further one; and the longest pause.",
)
@click.option(
    *("--dead-letter", "group_dead_letter"),
    metavar="TOPIC",
    help='Put messages that are given up there; "": drop them.',
)
@click.option(
    *("--on-loss", "group_on_loss"),
    type=click.Choice(LOSSES),
    help="Leases of a connection that ends: keep them, or give them back in front.",
)
@click.option(
    *("--rate", "group_rate"), metavar="N|none", help="Hand out at most so many messages a second."
)
@click.option(
    "--one-batch/--no-one-batch",
    "group_one_batch",
    default=None,
    help="Settle what was handed out of a partition before there is more of it.",
)
@click.option(
    *("--start-copy", "group_start_copy"), metavar="GROUP", help="Begin where this group stands."
)
@click.option(
    *("--start-offset", "group_start_offset"),
    type=NON_NEGATIVE,
    help="Begin at this offset; 0: the oldest message.",
)
@click.option(
    *("--start-time", "group_start_time"),
    type=NON_NEGATIVE,
    help="Begin at this time, in ms since 1970.",
)
@json_option
@url_option
def declare(
    topic: str,
    group: str | None,
    as_json: bool,
    url: str,
    **options: str | int | None,
) -> None:
    """Create TOPIC (and GROUP), or change the given options; print the result."""
    words = {
        name: int(value) if isinstance(value, bool) else value for name, value in options.items()
    }
    fields = {"cmd": "declare", "topic": topic, "consume_group": group, **words}
    with Remote(url) as remote:
        reply = remote.request(fields)
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


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def pause(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Hold the deliveries of GROUP back; print it as JSON."""
    _set("pause", topic, group, as_json, url)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def resume(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Go on with the deliveries of GROUP; print it as JSON."""
    _set("resume", topic, group, as_json, url)


def _set(word: str, topic: str, group: str | None, as_json: bool, url: str) -> None:
    with Remote(url) as remote:
        reply = remote.request({"cmd": word, "topic": topic, "consume_group": group})
    _print_json(reply, as_json)


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
