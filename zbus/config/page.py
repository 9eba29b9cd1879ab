"""The reference page of all options."""

from __future__ import annotations

from pathlib import Path

from zbus.config.options import DECLARATIONS, Option
from zbus.config.server import GIB, KIB, MIB
from zbus.config.sources import OTHER_VARIABLES

_VARIABLES = ", ".join(f"`{name}`" for name in OTHER_VARIABLES)

INTRODUCTION = f"""\
# Configuration

This page is printed by `python -m zbus.config`; do not edit it.

An option is set, each source overriding the one before, in

1. a TOML file, named by `zbus serve --config FILE` or by `ZBUS_CONFIG`: `port = 15600`. Options
   that begin alike may be in a table: `queues = 4` in `[mqcloud]` is `mqcloud_queues = 4`;
2. the environment, in capitals after `ZBUS_`: `ZBUS_PORT=15600`;
3. the command line: `zbus serve --port 15600`, or for any option `--set idle_timeout_ms=60000`.

An unknown name or a bad value stops the start with a sentence that says where it stands. This
holds for every variable that begins with `ZBUS_`, except those of the
[command line](command-line.md#environment): {_VARIABLES}.
In Kubernetes, set `enableServiceLinks: false` or do not call the service `zbus`.

Units are part of the names: `_ms` is milliseconds, `bytes` is bytes. Both may also be written as
text with another unit: sizes as `"64 MiB"` (`KiB`, `MiB`, `GiB`, `TiB`), times as `"5s"` or `"7d"`
(`ms`, `s`, `m`, `h`, `d`, `w`).
"""


_HEAD = "| option | default | allowed | meaning |\n|---|---|---|---|\n"


def documentation() -> str:
    """The reference page: an introduction, and a table for each part that declares options."""
    tables = [
        f"\n{str(owner.__doc__).partition(chr(10))[0]}\n\n{_HEAD}"
        + "".join(_row(option) + "\n" for option in declared.values())
        for owner, declared in DECLARATIONS.items()
    ]
    return INTRODUCTION + "".join(tables)


def _amount(name: str, value: float | None) -> str:
    """A number as people read it: `64 MiB` where that is exact, else its digits."""
    if "bytes" in name and value:
        for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if value % factor == 0:
                return f"{value // factor} {unit}"
    return str(value)


def _row(option: Option) -> str:
    name, default, meta = option.name, option.default, option.meta
    if option.kind is int:
        shown = _amount(name, default)
        allowed = f"{_amount(name, meta.ge)} to {_amount(name, meta.le)}"
    elif option.kind is bool:
        shown, allowed = str(default).lower(), "true, false"
    else:
        shown = f"`./{default}`" if isinstance(default, Path) else f"`{default}`" * bool(default)
        allowed = ", ".join(f"`{choice}`" for choice in option.choices) or "text"
    return f"| `{name}` | {shown or 'none'} | {allowed} | {option.meaning} |"
