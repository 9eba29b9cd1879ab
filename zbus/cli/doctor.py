"""`zbus doctor`: what stands in the way of a broker on this machine."""

from __future__ import annotations

import sys

import attrs
import click
import msgspec

from zbus.cli.broker_options import configured
from zbus.config import Config

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--monitor-port",
    type=click.IntRange(1, 65_535),
    default=8_222,
    show_default=True,
    help="With --engine nats://: the monitoring port of the NATS servers.",
)
@configured
def doctor(loaded: Config, as_json: bool, monitor_port: int) -> None:
    """Check disk, limits, clock, tokens, certificate and port for a broker with these options.

    Exit code 1 if something has to be mended before the broker can do its work.
    """
    from zbus.server.doctor import examine  # here: it needs the broker's parts

    findings = []
    for found in examine(loaded, monitor_port=monitor_port):
        findings.append(found)
        if not as_json:
            level = click.style(f"{found.level:8}", fg=_COLOURS[found.level])
            click.echo(f"{level} {found.check:7} {found.text}")
            if found.advice:
                click.echo(f"{'':16} {found.advice}")
    if as_json:
        click.echo(msgspec.json.encode([attrs.asdict(found) for found in findings]))
    sys.exit(any(found.level == "problem" for found in findings))
