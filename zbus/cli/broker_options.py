"""Options of a broker on the command line, for all commands that take them. Their help texts and
defaults come from `zbus.config`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zbus import config

SINGLE_OPTIONS = (
    "host",
    "port",
    "tls_cert_file",
    "tls_key_file",
    "data_dir",
    "durability",
    "engine",
    "workers",
    "shards",
    "node",
    "token_file",
    "insecure",
)
"""Options of a broker that have an option of their own; all the others go through `--set`."""


def _settings(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not of the form key=value")
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings


def _single_option(name: str) -> click.Option:
    option = config.OPTIONS[name]
    meaning = re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", option.meaning)
    if option.kind is bool:
        return click.Option(
            [f"--{name.replace('_', '-')}"],
            is_flag=True,
            flag_value="true",
            default=None,
            type=str,
            help=meaning,
        )
    return click.Option(
        [f"--{name.replace('_', '-')}"],
        metavar="|".join(option.choices) or ("NUMBER" if option.kind is int else "TEXT"),
        help=f"{meaning}  [default: {option.default or 'none'}]",
    )


Command = Callable[..., None]


file_option = click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="ZBUS_CONFIG",
    show_envvar=True,
    help="TOML file of options.",
)
settings_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="Any option of the configuration; may be repeated.",
)


def configured(function: Command) -> click.Command:
    """A command that is given a broker's configuration, `loaded`, out of a broker's options."""

    @click.command(params=[_single_option(name) for name in SINGLE_OPTIONS])
    @click.option(
        "--listen",
        metavar="ADDRESS",
        multiple=True,
        help="Instead of --host and --port: http://HOST:PORT, https://HOST:PORT or unix:PATH; "
        "may be repeated.",
    )
    @file_option
    @settings_option
    @wraps(function)
    def command(
        file: Path | None,
        settings: dict[str, str],
        listen: tuple[str, ...],
        **options: Any,  # noqa: ANN401 - a broker's, and those of the command
    ) -> None:
        names = [name for name in SINGLE_OPTIONS if name in options]
        given = {name: text for name in names if (text := options.pop(name)) is not None}
        if listen:
            given["listen"] = ", ".join(listen)
        try:
            loaded = config.load(file, os.environ, given, settings)
        except config.ConfigError as error:
            raise click.UsageError(str(error)) from None
        function(loaded, **options)

    return command
