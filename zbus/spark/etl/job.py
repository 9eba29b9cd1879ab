"""Options of an etl job: of the command, or by a file of TOML with the same names.

    from = "flights"
    parse = "json"
    schema = "carrier string, dep_delay int"
    sql = "select value.carrier as key, value.dep_delay from input where value.dep_delay > 60"
    to = "late"
    bad-rows = "flights.bad"

An option on the command line wins over the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import attrs
import click

from zbus.spark.commands import option, options_of
from zbus.spark.errors import Usage, refuse
from zbus.spark.etl.pace import Pace
from zbus.spark.times import interval

PARSERS: Final = ("json", "csv", "text")
MODES: Final = ("append", "update")


@attrs.frozen(kw_only=True)
class Job(Pace):
    """None, False and () are what was not said."""

    sources: tuple[str, ...] = option("--from TOPIC", "Read it; may be repeated.", default=())
    sql: str | None = option("--sql QUERY", "SQL query over the view `input`.")
    transform: str | None = option(
        "--transform PKG.MOD:FN", "Function of a DataFrame, applied after the query."
    )
    parse: str | None = option(
        "--parse", "What bodies are: the column `value`.", type=click.Choice(PARSERS)
    )
    schema: str | None = option("--schema DDL", "Of what is parsed: 'carrier string, delay int'.")
    delimiter: str = option("--delimiter", "Of csv.", default=",")
    event_time: str | None = option("--event-time EXPR", "A row's time; by default `timestamp`.")
    watermark: str | None = option("--watermark TIME", "How late a row may be: '10 minutes'.")
    mode: str = option(
        "--mode", "Of a stream with aggregates.", default="append", type=click.Choice(MODES)
    )
    to: str | None = option("--to TOPIC", "Where results go.")
    route: bool = option("--route", "Route each result by its column `topic`.", default=False)
    files: str | None = option("--files DIR", "Results go into Parquet files.")
    bad_rows: str | None = option("--bad-rows TOPIC", "Where goes what cannot be parsed.")
    allow_change: bool = option(
        "--allow-change", "Go on with another query on this checkpoint.", default=False
    )

    def check(self) -> Job:
        """The job itself. Raises Usage, which says what does not fit together."""
        refuse(self._problems())
        self.check_pace()
        if self.watermark is not None:
            interval(self.watermark, "--watermark")
        if self.transform is not None and not all(self.transform.partition(":")):
            raise Usage(f"--transform {self.transform}: it is like package.module:function")
        return self

    @property
    def targets(self) -> list[str]:
        """Topics that are written to, as far as that is known before."""
        return [name for name in (self.to, self.bad_rows) if name is not None]

    def _problems(self) -> list[tuple[bool, str]]:
        sinks = [self.to is not None, self.route, self.files is not None]
        targets = {name.lower() for name in self.targets}
        loops = sorted(name for name in self.sources if name.lower() in targets)
        has_schema, needs_schema = self.schema is not None, self.parse in ("json", "csv")
        return [
            (not self.sources, "missing source: --from TOPIC"),
            (sum(sinks) != 1, "missing target: --to TOPIC, --route or --files DIR"),
            (bool(loops), f"{', '.join(loops)} would be read and written"),
            (self.to is not None and self.to == self.bad_rows, "--to and --bad-rows are the same"),
            (not (self.sql or self.transform), "missing query: --sql QUERY or --transform"),
            (self.parse not in (None, *PARSERS), f"--parse is one of {', '.join(PARSERS)}"),
            (self.mode not in MODES, f"--mode is one of {', '.join(MODES)}"),
            (
                needs_schema and not self.schema,
                f"--parse {self.parse} needs --schema, as in 'carrier string, dep_delay int'",
            ),
            (has_schema and not needs_schema, "--schema is for --parse json or csv"),
            (
                self.bad_rows is not None and self.parse is None,
                "--bad-rows is for rows that cannot be parsed: add --parse",
            ),
            (
                self.files is not None and self.mode != "append",
                "--files has no --mode update: a file is not changed",
            ),
            (
                self.checkpoint is None and self.mode != "append",
                "--mode is of streams: add --checkpoint DIR",
            ),
            (
                self.event_time is not None and self.watermark is None,
                "--event-time needs --watermark",
            ),
        ]


_FIELDS: Final = {flag.removeprefix("--"): name for name, flag in options_of(Job).items()}
"""By the name in a file."""

_TYPES: Final = get_type_hints(Job)


def read_file(path: Path) -> dict[str, Any]:
    """What a job file says, by field of Job. Raises Usage."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"the job file {path} cannot be read: {error}") from error
    return parse_file(text, str(path))


def parse_file(text: str, name: str) -> dict[str, Any]:
    """The same, of its text."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Usage(f"{name} is not TOML: {error}") from error
    found: dict[str, Any] = {}
    for key, value in document.items():
        field = _FIELDS.get(key)
        if field is None:
            raise Usage(
                f"{name}: there is no option {key!r}; they are {', '.join(sorted(_FIELDS))}"
            )
        found[field] = _fitting(field, value, f"{name}: {key}")
    return found


def merge(options: Job, file: Mapping[str, Any]) -> Job:
    """A job of both; options win where they are not their default."""
    fields = attrs.fields(Job)
    given = {each.name for each in fields if getattr(options, each.name) != each.default}
    said = {name: value for name, value in file.items() if name not in given}
    return attrs.evolve(options, **said).check()


def _fitting(field: str, value: object, place: str) -> object:
    if field == "sources":
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list) and all(isinstance(one, str) for one in values):
            return tuple(values)
        raise Usage(f"{place} is a topic, or a list of them")
    types = get_args(_TYPES[field]) or (_TYPES[field],)
    if type(value) not in types:
        raise Usage(f"{place} is {'true or false' if bool in types else 'a text'}, not {value!r}")
    return value
