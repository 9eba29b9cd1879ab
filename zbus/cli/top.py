"""`zbus top`: what goes in and out of the topics, now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs
import click
import msgspec

from zbus.cli.keys import View, each_key, has_keys, watch_keys
from zbus.cli.remote import json_option, opened, url_option
from zbus.cli.units import Seconds
from zbus.protocol.documents import ServerInfo, TopicInfo

if TYPE_CHECKING:
    from rich.table import Table

ROWS_MAX = 200
"""Rows of `--once` and of the table; of `--json` there are all."""


IDLE_TIMES = 20
"""A look at many topics keeps the broker busy: the pause is that many times as long as the look."""


@attrs.define
class Row:
    """A topic, or a group of it; rates are per second since the sample before."""

    topic: str
    group: str  # empty: the topic itself
    messages: int  # stored in the topic
    put: int  # ever, into the topic
    finished: int  # ever, by the group; of a topic, by the slowest one
    in_rate: float
    out_rate: float
    lag: int  # ready to be delivered
    leased: int
    delayed: int
    consumers: int


COLUMNS = [field.name for field in attrs.fields(Row)]
SORTS = [name for name in COLUMNS if name not in ("topic", "group")]


def rows_of(
    topics: Iterable[TopicInfo], before: dict[tuple[str, str], Row], seconds: float
) -> list[Row]:
    """One row for each topic and each of its groups."""
    found: list[Row] = []

    def rate(topic: str, group: str, column: str, now: int) -> float:
        last = before.get((topic, group))
        # A topic that was removed and made again begins from nothing.
        return max(0.0, (now - getattr(last, column)) / seconds) if last and seconds > 0 else 0.0

    for topic in topics:
        name, stored, depth = topic.name, topic.stored_count, topic.message_depth
        coming = rate(name, "", "put", depth)
        groups = []
        for group in topic.groups:
            counts = (group.message_count, group.leased_count, group.delayed_count)
            done = depth - sum(counts)
            going = rate(name, group.name, "finished", done)
            figures = (stored, depth, done, coming, going, *counts, group.consumer_count)
            groups.append(Row(name, group.name, *figures))
        # A group that no consumer has asked for does not hold up its topic.
        unclaimed = {group.name for group in topic.groups if group.unclaimed}
        read = [row for row in groups if row.group not in unclaimed] or groups
        lag = max((row.lag for row in read), default=0)
        leased = sum(row.leased for row in groups)
        delayed = max((row.delayed for row in read), default=0)
        done = min((row.finished for row in read), default=0)
        going = sum(row.out_rate for row in groups)
        figures = (stored, depth, done, coming, going, lag, leased, delayed, topic.consumer_count)
        found.append(Row(name, "", *figures))
        found.extend(groups)
    return found


def ordered(rows: list[Row], sort: str, reverse: bool = False, pattern: str = "") -> list[Row]:
    """Topics by the column, each with its groups behind it; those whose name has the pattern."""
    sign = 1 if reverse else -1
    rank = {row.topic: sign * getattr(row, sort) for row in rows if not row.group}
    chosen = [row for row in rows if pattern.lower() in row.topic.lower()]
    return sorted(chosen, key=lambda row: (rank[row.topic], row.topic, row.group))


def summary(server: ServerInfo) -> str:
    """What the broker reports of itself; empty for a token that may not see everything."""
    status_text = []
    if (connections := server.connection_count) is not None:
        status_text.append(f"{connections:,} connection{'s' * (connections != 1)}")
    if (memory_bytes := server.memory_bytes) is not None:
        status_text.append(f"{memory_bytes / (1 << 20):,.0f} MiB")
    return ", ".join(status_text)


def _table(rows: list[Row], rows_max: int, title: str) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False
    )
    for name in COLUMNS:
        table.add_column(
            name.replace("_rate", "/s"), justify="left" if name in COLUMNS[:2] else "right"
        )
    for row in rows[:rows_max]:
        numbers = [
            f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
            for value in attrs.astuple(row)[2:]
        ]
        table.add_row("" if row.group else escape(row.topic), escape(row.group), *numbers)
    if len(rows) > rows_max:
        table.caption = f"{len(rows) - rows_max} rows more"
    return table


class _Screen:
    """A table that is renewed in place, and what keys do to it."""

    def __init__(self, stack: ExitStack, view: View) -> None:
        from rich.live import Live

        self._live = Live(auto_refresh=False, screen=True)
        self.view = view
        self.rows: list[Row] = []
        self.title = ""
        self._keys = sys.stdin.fileno() if has_keys() else -1
        stack.enter_context(self._live)
        if self._keys >= 0:
            stack.enter_context(each_key(self._keys))

    def show(self) -> None:
        view, height = self.view, self._live.console.height
        rows = ordered(self.rows, view.sort, view.reverse, view.pattern)
        title = "   ".join(part for part in (self.title, view.status_text()) if part)
        self._live.update(_table(rows, max(1, height - 3), title), refresh=True)

    def wait(self, seconds: float) -> None:
        if self._keys < 0:
            time.sleep(seconds)
        else:
            watch_keys(self.view, seconds, self.show, self._keys)


@click.command()
@click.option(
    "--interval",
    type=Seconds(least=0.1),
    default=2.0,
    show_default=True,
    help="Time between two looks; a plain number is seconds.",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="in_rate",
    show_default=True,
    help="The column that the topics are ordered by.",
)
@click.option("--once", is_flag=True, help="Print the table once and exit; takes one interval.")
@json_option
@url_option
def top(interval: float, sort: str, once: bool, as_json: bool, url: str) -> None:
    """Show topics and groups: rates, lag, leased and delayed messages, consumers.

    Keys: s sorts by the next column (S by the one before), r turns the order round, / asks for a
    part of a topic's name to show those alone (Esc: all), q quits.
    """
    before: dict[tuple[str, str], Row] = {}
    rows: list[Row] = []
    version = 0
    with opened(url) as bus, ExitStack() as stack:
        view = View(SORTS, sort)
        plain = once or as_json or not sys.stdout.isatty()
        screen = None if plain else _Screen(stack, view)
        for look in range(2 if once else 1 << 62):
            asked_s = time.monotonic()
            server = bus.query()
            now_s = time.monotonic()
            # Microseconds of the broker's time. It tells a long document more than once.
            if server.info_version != version:
                seconds = (server.info_version - version) / 1e6 if look else 0.0
                rows = rows_of(server.topics.values(), before, seconds)
                before = {(row.topic, row.group): row for row in rows}
                version = server.info_version
            if screen is not None:
                screen.rows, screen.title = rows, summary(server)
                screen.show()
            elif look or not once:
                _print(ordered(rows, sort), server, as_json)
            pause_s = max(interval, (now_s - asked_s) * IDLE_TIMES)
            if screen is not None:
                screen.wait(pause_s)
            elif not once or not look:
                time.sleep(pause_s)
            if view.done:
                return


def _print(rows: list[Row], server: ServerInfo, as_json: bool) -> None:
    if as_json:
        document = {
            "server": server.address.address,
            "connections": server.connection_count,
            "memory_bytes": server.memory_bytes,
            "rows": rows,
        }
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        sys.stdout.buffer.flush()
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 160).print(
            _table(rows, ROWS_MAX, summary(server))
        )
