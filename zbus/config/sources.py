"""Where the values of options come from: a file, the environment, the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zbus.config.options import OPTIONS, Config, ConfigError, Option
from zbus.units import DIGITS_MAX, parse_bytes, parse_ms

ENVIRONMENT_PREFIX: Final = "ZBUS_"
OTHER_VARIABLES: Final = (
    "ZBUS_CA",
    "ZBUS_CERT",
    "ZBUS_CONFIG",
    "ZBUS_SEMQ_SOCKET",
    "ZBUS_SOURCE_PASSWORD",
    "ZBUS_TOKEN",
    "ZBUS_URL",
)
"""Variables of the command line that are not options of a broker: all that `zbus.cli` declares.
A shell with these variables can start a broker, too."""


def _parse(name: str, raw: object, source: str) -> object:
    """Turn what a source says into the option's value, or refuse it."""
    option = OPTIONS[name]
    value = _from_text(option, raw, source) if isinstance(raw, str) else raw
    option.check(value, source)
    return value


def _from_text(option: Option, raw: str, source: str) -> object:
    """The number, flag or folder that a text stands for; a text that stands for none as it is."""
    text = raw.strip()
    if option.kind is bool:
        return {"true": True, "false": False}.get(text.lower(), raw)
    if option.kind is Path:
        if not raw:
            raise ConfigError(f"{source}: must name a folder")
        return Path(raw)
    if option.kind is not int:
        return raw
    if "bytes" in option.name and not text.startswith("-"):
        if (size := parse_bytes(text)) is not None:
            return size
        raise ConfigError(f"{source}: expected bytes such as 65536 or 64 KiB, not {text[:40]!r}")
    if option.name.endswith("_ms") and not text.startswith("-"):
        if (duration_ms := parse_ms(text)) is not None:
            return duration_ms
        raise ConfigError(f"{source}: expected a time such as 500 ms, 5s or 7d, not {text[:40]!r}")
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and len(digits) <= DIGITS_MAX else text


def _from_file(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    values: dict[str, object] = {}
    for key, value in table.items():
        inner = value if isinstance(value, dict) and key not in OPTIONS else {"": value}
        for name, raw in inner.items():  # of a table: `[mqcloud] queues` is `mqcloud_queues`
            option = f"{key}_{name}" if name else key
            if option not in OPTIONS:
                raise ConfigError(f"{path}: unknown option {option!r}")
            if option in values:
                raise ConfigError(f"{path}: the option {option!r} is there twice")
            values[option] = _parse(option, raw, f"{path}, key {option}")
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name not in OPTIONS or variable != variable.upper():
            raise ConfigError(f"environment variable {variable}: unknown option")
        values[name] = _parse(name, text, f"environment variable {variable}")
    return values


def _from_command_line(
    options: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, object]:
    for name in settings:
        if name not in OPTIONS:
            raise ConfigError(f"--set {name}: unknown option")
    values = {name: _parse(name, text, f"--set {name}") for name, text in settings.items()}
    for name, text in options.items():
        values[name] = _parse(name, text, f"option --{name.replace('_', '-')}")
    return values


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Config:
    """Put the sources together: file, then environment, then `--set`, then single options."""
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(environ or {})
    values |= _from_command_line(options or {}, settings or {})
    return Config(**values)
