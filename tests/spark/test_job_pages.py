"""The pages of jobs name each of their options."""

from __future__ import annotations

import click
import pytest

from tests.docs.pages import DOCS
from zbus.spark.commands import Common, takes
from zbus.spark.dedup.command import dedup
from zbus.spark.dlq.command import dlq
from zbus.spark.etl.command import etl
from zbus.spark.replay.command import replay


@click.command()
@takes()
def _shared(common: Common) -> None: ...


COMMANDS: list[tuple[str, click.Command]] = [
    ("dedup", dedup),
    ("etl", etl),
    ("replay", replay),
    *(("dlq", each) for each in dlq.commands.values()),
]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_option_is_on_its_page(page: str, command: click.Command) -> None:
    text = (DOCS / f"reference/spark-{page}.md").read_text("utf-8")
    shared = {param.name for param in _shared.params}
    options = [each for each in command.params if isinstance(each, click.Option)]
    missing = [each.opts[0] for each in options if each.name not in shared]
    assert [option for option in missing if f"`{option}`" not in text] == []
