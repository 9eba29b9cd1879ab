"""Every option of a broker, collected from those who declare them, and checked."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import attrs
import msgspec

from zbus.config.server import (
    ClusterOptions,
    EngineOptions,
    LoopLimits,
    Marks,
    ServerOptions,
    Timeouts,
    WorkerOptions,
)
from zbus.core.api import DEFAULT_LIMITS, Limits
from zbus.dialects.adf.settings import AdfOptions
from zbus.dialects.camellia.settings import CamelliaOptions
from zbus.dialects.mqcloud.settings import MqcloudOptions
from zbus.dialects.semq.settings import SemqOptions
from zbus.dialects.zbus.settings import NativeOptions
from zbus.edge.guard import GuardOptions
from zbus.edge.proxies import Proxies, ProxyOptions
from zbus.edge.rights import RightsOptions
from zbus.option import DECLARED, listed
from zbus.wire.limits import WireLimits
from zbus.wire.networks import parse_networks

_Part = TypeVar("_Part")


class ConfigError(Exception):
    """An option is unknown or its value is bad; the text names the option and the source."""


@attrs.frozen
class Option:
    """One option, as it was declared."""

    name: str
    kind: Any  # its type
    default: Any
    meta: msgspec.Meta  # what else is checked
    checked: Any  # both, for msgspec

    @property
    def meaning(self) -> str:
        return self.meta.description or ""

    @property
    def choices(self) -> tuple[str, ...]:
        """What it may be, if that is one of a few words."""
        return typing.get_args(self.kind)

    def check(self, value: object, source: str) -> None:
        """Refuse what the option does not allow."""
        if not isinstance(value, str | Path) or _is_clean(str(value)):
            try:
                msgspec.convert(value, self.checked)
                return
            except msgspec.ValidationError:
                pass
        raise ConfigError(f"{source}: {self._refusal(value)}")

    def _refusal(self, value: object) -> str:
        """What is wrong with it, in words."""
        meta = self.meta
        if isinstance(value, int) and value.bit_length() > 64:
            return "the number is too large"
        if isinstance(value, dict | list) and value:
            return "expected one value, not several"
        if isinstance(value, Path):
            return f"{str(value)!r} cannot be used"
        if self.kind is bool:
            return f"expected true or false, not {value!r}"
        if self.kind is int:
            if type(value) is not int:
                return f"expected a whole number, not {value!r}"
            return f"{value} is not between {meta.ge} and {meta.le}"
        if not isinstance(value, str):
            return f"expected text, not {value!r}"
        if self.choices:
            return f"{value!r} is not one of {', '.join(self.choices)}"
        wrong = (item for item in listed(value) if not re.search(meta.pattern or "", item))
        title = meta.title or "{!r} cannot be used"
        return title.format(value, item=next(wrong, value))


@attrs.frozen(slots=False, kw_only=True)
class Config(
    ServerOptions,
    EngineOptions,
    WorkerOptions,
    ClusterOptions,
    LoopLimits,
    Timeouts,
    Marks,
    WireLimits,
    Limits,
    GuardOptions,
    ProxyOptions,
    RightsOptions,
    NativeOptions,
    AdfOptions,
    CamelliaOptions,
    MqcloudOptions,
    SemqOptions,
):
    """All options of one broker. It is given as it is to those who declare some of them."""

    def __attrs_post_init__(self) -> None:
        for name, option in OPTIONS.items():
            option.check(getattr(self, name), name)
        _at_least(self, "head_bytes_max", "line_bytes_max")
        if self.message_bytes_max != DEFAULT_LIMITS.message_bytes_max:  # else the body's holds, too
            _at_least(self, "body_bytes_max", "message_bytes_max")
        _at_least(self, "bodies_bytes_max", "body_bytes_max")
        try:
            name = "push_networks"
            parse_networks(listed(self.push_networks))
            name = "trusted_proxies"
            Proxies(self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None

    def part(self, kind: type[_Part], **more: object) -> _Part:
        """An object of this class: of the options, and of what else is known, what it has a field
        of the same name for."""
        names = {field.name for field in attrs.fields(kind)}  # type: ignore[arg-type]  # of attrs
        given = {name: getattr(self, name) for name in names & OPTIONS.keys()}
        return kind(**given, **{name: more[name] for name in names & more.keys()})


def _declared() -> dict[type, dict[str, Option]]:
    hints = typing.get_type_hints(Config)

    def option(field: Any) -> Option:  # noqa: ANN401  # attrs.Attribute of any type
        kind, meta = hints[field.name], field.metadata[DECLARED]
        return Option(field.name, kind, field.default, meta, Annotated[kind, meta])

    return {
        owner: {
            field.name: option(field) for field in attrs.fields(owner) if DECLARED in field.metadata
        }
        for owner in Config.__bases__
    }


DECLARATIONS: Final[Mapping[type, Mapping[str, Option]]] = _declared()
"""By the class that declares them, in the order in which the page shows them."""

OPTIONS: Final[Mapping[str, Option]] = {
    name: option for declared in DECLARATIONS.values() for name, option in declared.items()
}


def _at_least(config: Config, larger: str, smaller: str) -> None:
    high, low = getattr(config, larger), getattr(config, smaller)
    if high < low:
        raise ConfigError(f"{larger} ({high}) must not be less than {smaller} ({low})")


def _is_clean(text: str) -> bool:
    """Bytes that are no text, or end one, come from files and the environment."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
