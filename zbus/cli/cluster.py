"""`zbus cluster` and `zbus move`: which node owns which shard."""

from __future__ import annotations

import time

import click
import msgspec

from zbus.cli.remote import ask, json_option, opened, url_option
from zbus.cli.remote import command as request
from zbus.cli.units import Seconds
from zbus.cli.words import Nothing, print_json
from zbus.client import ZbusError
from zbus.protocol.documents import ClusterInfo, NodeInfo, ShardInfo

_LOOK_S = 0.2


@click.command()
@json_option
@url_option
def cluster(as_json: bool, url: str) -> None:
    """Print the nodes of a cluster and the owners of its shards.

    They are told as the node that is asked knows them. Exit code 1 if there are warnings.
    """
    reply = ask(url, "cluster")
    found = msgspec.json.decode(reply.body, type=ClusterInfo)
    if as_json:
        click.echo(reply.body)
    else:
        click.echo(f"cluster {found.cluster}, as node {found.asked} knows it\n")
        _print_table(
            ["node", "address", "version", "", "spares", "shards"],
            [_node_row(node) for node in found.nodes],
        )
        click.echo()
        _print_table(
            ["shard", "owner", "epoch", "sequence", ""],
            [_shard_row(shard) for shard in found.shards],
        )
        for warning in found.warnings:
            click.echo(click.style(f"\n{warning}", fg="yellow"), nl=False)
        click.echo(nl=bool(found.warnings))
    click.get_current_context().exit(1 if found.warnings else 0)


@click.command()
@click.argument("shard", type=click.IntRange(0, 255))
@click.argument("node")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1),
    default=30.0,
    help="How long to wait until the node owns the shard. [default: 30s]",
)
@json_option
@url_option
def move(shard: int, node: str, timeout_s: float, as_json: bool, url: str) -> None:
    """Move SHARD to NODE, where it stays until its process ends.

    Its owner answers what is open, and gives it up. Requests that come meanwhile wait. Exit code 3
    if the node does not own it in time.
    """
    begun_s = time.monotonic()
    with opened(url) as bus:
        look = request({"cmd": "cluster"}, lambda reply: reply.body)

        def ask() -> ClusterInfo:
            return msgspec.json.decode(bus.run(look), type=ClusterInfo)

        addresses = {each.node: each.address for each in ask().nodes}
        bus.run(request({"cmd": "move", "shard": shard, "to": node}, lambda reply: reply))
        owner = ""
        while owner != node:
            time.sleep(_LOOK_S)
            took_s = time.monotonic() - begun_s
            try:
                owner = ask().shards[shard].node
            except ZbusError as error:  # of one shard the former owner is a standby now
                if addresses.get(node, "\0") not in str(error):
                    raise
                owner = node
            if owner != node and took_s > timeout_s:
                where = f"node {owner} owns it" if owner else "it has no owner"
                raise Nothing(f"shard {shard} is not at node {node} after {took_s:.1f} s: {where}")
    if as_json:
        print_json({"shard": shard, "node": node, "seconds": round(took_s, 3)})
    else:
        click.echo(f"node {node} owns shard {shard} after {took_s:.1f} s")


def _node_row(node: NodeInfo) -> list[str]:
    seconds = node.since_ms // 1_000
    state = f"live for {seconds:,} s" if node.live else f"gone for {seconds:,} s"
    shards = ", ".join(map(str, node.shards)) or "none"
    return [node.node, node.address, node.version, state, str(node.spares), shards]


def _shard_row(shard: ShardInfo) -> list[str]:
    notes = [f"on its way to {shard.moving_to}"] if shard.moving_to else []
    if shard.opening:
        notes.append(f"{shard.opening} reads it")
    if shard.moved:
        notes.append("moved by hand")
    if shard.late_ms:
        notes.append(f"nothing is confirmed for {shard.late_ms / 1_000:.1f} s")
    figures = [f"{shard.epoch:,}", f"{shard.sequence:,}"] if shard.node else ["", ""]
    return [str(shard.shard), shard.node or "none", *figures, "; ".join(notes)]


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[at]) for row in [columns, *rows]) for at in range(len(columns))]
    for row in [columns, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
