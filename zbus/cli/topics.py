"""Topics and groups: `list`, `declare`, `seek`, `query`, `remove`, `empty`, `pause`, `resume`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic, of_group
from zbus.cli.remote import Remote, Reply, json_option, url_option
from zbus.cli.units import DURATION, LOSS, SIZE
from zbus.cli.words import print_time
from zbus.documents import NOT_JSON

Command = TypeVar("Command", bound=Callable[..., Any])
NON_NEGATIVE = click.IntRange(min=0)


PLACE = "earliest, latest, an offset, or a time: 2027-01-15T08:00:00Z, time:<epoch ms>."


def _switches(*options: tuple[str, str, str]) -> Callable[[Command], Command]:
    """`--ack/--no-ack` and the like; each is absent, 1 or 0."""

    def give(command: Command) -> Command:
        for name, field, text in reversed(options):
            flags = f"{name}/--no-{name.removeprefix('--')}"
            command = click.option(flags, field, default=None, help=text)(command)
        return command

    return give


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@_switches(
    ("--ack", "group_ack", "Lease messages of the group until they are acknowledged."),
    ("--exclusive", "exclusive", "One consumer of the group at a time."),
    ("--temporary", "temporary", "Remove the group with its last consumer."),
    ("--paused", "paused", "Hold the group's deliveries back."),
)
@click.option(
    "--lease",
    "--ack-timeout",
    "--ack-timeout-ms",
    "group_lease",
    help="How long a lease is: 30s, 5m.",
)
@click.option(
    "--window",
    "--ack-window",
    "group_window",
    type=NON_NEGATIVE,
    help="Most unacknowledged messages at once.",
)
@click.option("--filter", "group_filter", help='Tags the group wants: "a.*;b.#"; "": all.')
@click.option("--from", "from", help=f"Where a new group begins: {PLACE}")
@click.option(
    "--start-copy", "group_start_copy", metavar="GROUP", help="Start at the position of this group."
)
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions.")
@_switches(("--rpc", "rpc", "A topic for RPC calls, in memory unless --durability is given."))
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
@_switches(("--retention-done", "retention_done", "Drop what all groups have finished."))
@click.option(
    "--dedupe",
    "--dedupe-ms",
    "dedupe_ms",
    type=DURATION,
    help="Store an id once within this time; 0: off.",
)
@click.option(
    "--settled",
    "--settled-ms",
    "settled_ms",
    type=DURATION,
    help="Remember how messages ended (acked, dead, expired) for this long; 0: off.",
)
@_switches(
    ("--dedupe-live", "dedupe_live", "Store an id once while its message is not finished."),
    ("--sender-headers", "sender_headers", "Store the sender's headers with each message."),
    ("--topic-ack", "topic_ack", "Default of --ack for groups of this topic."),
    ("--topic-exclusive", "topic_exclusive", "Default of --exclusive for groups of this topic."),
    ("--topic-temporary", "topic_temporary", "Default of --temporary for groups of this topic."),
    ("--topic-paused", "topic_paused", "Default of --paused for groups of this topic."),
)
@click.option(
    "--order",
    "group_order",
    type=click.Choice(["none", "key"]),
    help="key: deliver messages of one key one at a time, in order.",
)
@click.option(
    "--max-attempts",
    "group_max_attempts",
    metavar="N|none",
    help="Dead-letter a message after this many deliveries without an ack.",
)
@click.option(
    "--backoff",
    "group_backoff",
    metavar="MS[,MS]|none",
    help="Pause before the second delivery, doubled for each further one; and the longest pause.",
)
@click.option(
    "--dead-letter",
    "group_dead_letter",
    metavar="TOPIC",
    help='Topic for dead letters; "": drop dead messages.',
)
@click.option(
    "--on-loss",
    "group_on_loss",
    type=LOSS,
    help="When a connection ends: keep its leases, or requeue the messages in front.",
)
@click.option(
    "--rate",
    "group_rate",
    metavar="N|none",
    help="Deliver at most this many messages a second.",
)
@_switches(
    (
        "--one-batch",
        "group_one_batch",
        "Deliver the next batch of a partition only when the last one is acknowledged.",
    ),
    (
        "--keep-attempts",
        "group_keep_attempts",
        "Write the delivery count to disk before delivering.",
    ),
    ("--retain", "group_retain", "Retention keeps what the group has not finished."),
)
@click.option("--push-url", metavar="URL|none", help="Send the group's messages to this webhook.")
@click.option(
    "--push-secret", metavar="WHSEC|none", help="Secret that signs the requests of the webhook."
)
@click.option(
    "--push-concurrency", type=click.IntRange(1, 100), help="Requests that may be open at once."
)
@click.option("--push-timeout", type=DURATION, help="Longest time of a request.")
@click.option(
    "--topic-mask",
    type=NON_NEGATIVE,
    help="Options of the topic as a bit mask, for scripts of the original.",
)
@click.option(
    "--group-mask",
    type=NON_NEGATIVE,
    help="Options of the group as a bit mask, for scripts of the original.",
)
@json_option
@url_option
def declare(
    topic: str,
    group: str | None,
    as_json: bool,
    url: str,
    **words: str | int | None,
) -> None:
    """Create TOPIC (and GROUP), or change the given options; print the result.

    A GROUP that exists stays where it is: `zbus seek` moves it.
    """
    given = {name: int(word) if isinstance(word, bool) else word for name, word in words.items()}
    with Remote(url) as remote:
        fields = {"cmd": "declare", "topic": topic, "consume_group": group, **given}
        reply = remote.request(fields)
    _print_json(reply, as_json)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", shell_complete=complete_group)
@click.option("--from", "place", required=True, help=f"Where to: {PLACE}")
@click.option("--partition", type=NON_NEGATIVE, help="This partition only; default: all.")
@json_option
@url_option
def seek(
    topic: str, group: str, place: str, partition: int | None, as_json: bool, url: str
) -> None:
    """Move GROUP to another position and print its state. Outstanding leases are dropped."""
    fields = {"cmd": "seek", "topic": topic, "consume_group": group, "from": place}
    with Remote(url) as remote:
        reply = remote.request({**fields, "partition": partition})
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
@of_group
def remove(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Delete TOPIC with all its messages, or only its GROUP."""
    print_time(_answer("remove", topic, group, url).body, as_json)


@click.command()
@of_group
@click.option("--keep-leased", is_flag=True, help="With GROUP: keep the messages that are leased.")
def empty(topic: str, group: str | None, keep_leased: bool, as_json: bool, url: str) -> None:
    """Drop all messages of TOPIC, or all that GROUP has still to get."""
    kept = {"keep_leased": 1} if keep_leased else {}
    print_time(_answer("empty", topic, group, url, **kept).body, as_json)


@click.command()
@of_group
def pause(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Hold the deliveries of GROUP back; print it as JSON."""
    _print_json(_answer("pause", topic, group, url), as_json)


@click.command()
@of_group
def resume(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Go on with the deliveries of GROUP; print it as JSON."""
    _print_json(_answer("resume", topic, group, url), as_json)


def _answer(word: str, topic: str, group: str | None, url: str, **more: int) -> Reply:
    with Remote(url) as remote:
        return remote.request({"cmd": word, "topic": topic, "consume_group": group, **more})


def _print_json(reply: Reply, as_json: bool) -> None:
    """One line of it; or for people, indented. What is no JSON is shown as it is."""
    if as_json:
        click.echo(reply.body)
        return
    try:
        click.echo(msgspec.json.format(reply.body, indent=2))
    except NOT_JSON:
        click.echo(reply.body)
