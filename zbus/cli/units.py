"""Types of options: counts; durations and sizes, with a unit or as plain milliseconds and bytes."""

from __future__ import annotations

from collections.abc import Callable

import click

from zbus.units import parse_bytes, parse_ms, parse_time_ms


class Amount(click.ParamType[int]):
    """A number, perhaps with a unit."""

    def __init__(
        self, name: str, parse: Callable[[str], int | None], like: str, least: int = 0
    ) -> None:
        self.name = name
        self._parse = parse
        self._like = like
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = value if isinstance(value, int) else self._parse(str(value))
        if found is None:
            self.fail(f"{str(value)[:40]!r} is not of the form {self._like}", param, ctx)
        if found < self._least:
            self.fail(f"it must be at least {self._least}", param, ctx)
        return found


class Moment(click.ParamType[int]):
    """A time: epoch milliseconds or ISO 8601."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return value if isinstance(value, int) else parse_time_ms(str(value))
        except ValueError as error:
            self.fail(f"it {error}", param, ctx)


class Seconds(click.ParamType[float]):
    """A time whose plain numbers are seconds, as it was before there were units."""

    name = "seconds"

    def __init__(self, least: float) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        found_ms = parse_ms(f"{text}s" if text[-1:].isdecimal() else text)
        if found_ms is None:
            self.fail(f"{text[:40]!r} is not of the form 2, 0.5 or 500ms", param, ctx)
        if found_ms < self._least * 1_000:
            self.fail(f"it must be at least {self._least} seconds", param, ctx)
        return found_ms / 1_000


DURATION = Amount("time", parse_ms, "5s, 250ms, 1.5h or 7d")
SOME_TIME = Amount("time", parse_ms, "5s, 250ms, 1.5h or 7d", least=1)
MOMENT = Moment()
SIZE = Amount("size", parse_bytes, "65536, 64KiB or 10MiB")
POSITIVE = click.IntRange(min=1)
NON_NEGATIVE = click.IntRange(min=0)
