"""Options that are parameters of the dialect: their names, types and help are those of its table
(`zbus.protocol.parameters`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args

import click

from zbus.cli.units import DURATION, MOMENT, NON_NEGATIVE, POSITIVE, SIZE, SOME_TIME
from zbus.protocol.documents import Compatibility, Level, Loss, Order, State
from zbus.protocol.parameters import REQUIRED, TIMES, Parameter

Command = TypeVar("Command", bound=Callable[..., Any])

_TYPES: dict[str, click.ParamType[Any]] = {
    **dict.fromkeys(("number", "ack window", "mask", "count"), NON_NEGATIVE),
    **dict.fromkeys(("partitions", "push concurrency", "batch", "listed count"), POSITIVE),
    **dict.fromkeys(TIMES - {"pauses", "time to come"}, DURATION),
    **dict.fromkeys(("lifetime", "own lease"), SOME_TIME),
    "time to come": MOMENT,
    "size": SIZE,
    "durability": click.Choice(get_args(Level)),
    "lost leases": click.Choice(get_args(Loss)),
    "order": click.Choice(get_args(Order)),
    "compatibility": click.Choice(get_args(Compatibility)),
    "listed state": click.Choice(get_args(State)),
}
"""By kind. What is of no kind here is text, which the broker judges."""

_METAVARS = {
    **dict.fromkeys(("attempts", "rate"), "N|none"),
    "pauses": "TIME[,TIME]|none",
    "offsets": "OFFSETS",
    "name": "TOPIC",
    "start": "PLACE",
}
_SWITCHES = frozenset(("flag", "flag, true", "switch"))


def takes(
    parameters: Iterable[Parameter], only: str = "", without: str = ""
) -> Callable[[Command], Command]:
    """Give a command the options for these parameters, or some of them. It gets their values by the
    names of their header lines, with `_`; `sent` makes header lines of them."""
    chosen = [
        each
        for each in parameters
        if each.name in (only.split() or (each.name,)) and each.name not in without.split()
    ]

    def give(command: Command) -> Command:
        for each in reversed(chosen):
            command = _option(each)(command)
        return command

    return give


class ParameterOption(click.Option):
    """The option for a parameter."""

    def __init__(self, *names: Any, parameter: Parameter, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*names, **more)
        self.parameter = parameter


def _option(parameter: Parameter) -> Callable[[Command], Command]:
    flags = [_flag(name) for name in (parameter.name, *parameter.former)]
    if parameter.kind in TIMES:
        flags = [form for flag in flags for form in (flag.removesuffix("-ms"), _in_ms(flag))]
    if parameter.kind in _SWITCHES:
        flags = [f"{flags[0]}/--no-{flags[0].removeprefix('--')}"]
    return click.option(
        *dict.fromkeys(flags),
        _field(parameter),
        cls=ParameterOption,
        parameter=parameter,
        type=_TYPES.get(parameter.kind),
        default=None,
        metavar=_METAVARS.get(parameter.kind),
        required=parameter.default == REQUIRED,
        help=parameter.described.replace("`", "").replace("**", ""),
    )


def _flag(name: str) -> str:
    dashed = name.replace("_", "-")
    return "--" + (dashed if dashed.endswith("-mask") else dashed.removeprefix("group-"))


def _in_ms(flag: str) -> str:
    return f"{flag.removesuffix('-ms')}-ms"


def _field(parameter: Parameter) -> str:
    return parameter.line.replace("-", "_")


def sent(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, str | int]:
    """Header lines of the parameters that are given."""
    values = ((each.line, given.get(_field(each))) for each in parameters)
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in values
        if value is not None
    }
