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

from zbus.spark.errors import Usage
from zbus.spark.etl.pace import Pace
from zbus.spark.times import between_ms, interval

PARSERS: Final = ("json", "csv", "text")
MODES: Final = ("append", "update")
_OTHER_NAMES: Final = {"from": "sources"}  # words of Python itself


@attrs.frozen(kw_only=True)
class Job:
    """None, False and () are what was not said."""

    sources: tuple[str, ...] = ()  # topics
    sql: str | None = None  # over the view `input`
    transform: str | None = None  # package.module:function, of a DataFrame
    parse: str | None = None  # one of PARSERS
    schema: str | None = None  # of what is parsed, as DDL
    delimiter: str = ","  # of csv
    event_time: str | None = None  # an expression; without it a row's time is `timestamp`
    watermark: str | None = None  # how late a row may be
    mode: str = "append"  # one of MODES
    to: str | None = None  # the topic of all results
    route: bool = False  # the topic of each result is in its column `topic`
    files: str | None = None  # a directory of Parquet files
    bad_rows: str | None = None  # the topic of what cannot be parsed
    checkpoint: str | None = None  # with one the job is a stream
    once: bool = False  # end when everything that was there at the start is done
    interval: str | None = None  # between batches
    rate: str | None = None  # bytes a second
    batch_bytes: str | None = None  # of a batch, about
    group: str | None = None  # it is moved along
    since: str | None = None
    until: str | None = None
    allow_change: bool = False

    def check(self) -> Job:
        """The job itself. Raises Usage, which says what does not fit together."""
        for wrong, text in self._problems():
            if wrong:
                raise Usage(text)
        self.pace.check()
        between_ms(self.since, self.until)
        if self.watermark is not None:
            interval(self.watermark, "--watermark")
        if self.transform is not None and not all(self.transform.partition(":")):
            raise Usage(f"--transform {self.transform}: it is like package.module:function")
        return self

    @property
    def pace(self) -> Pace:
        """How it goes, if it is a stream."""
        return Pace(
            checkpoint=self.checkpoint,
            once=self.once,
            interval=self.interval,
            rate=self.rate,
            batch_bytes=self.batch_bytes,
            group=self.group,
        )

    @property
    def targets(self) -> list[str]:
        """Topics that are written to, as far as that is known before."""
        return [name for name in (self.to, self.bad_rows) if name is not None]

    def _problems(self) -> list[tuple[bool, str]]:
        sinks = [self.to is not None, self.route, self.files is not None]
        streams = self.checkpoint is not None
        targets = {name.lower() for name in self.targets}
        loops = sorted(name for name in self.sources if name.lower() in targets)
        return [
            (not self.sources, "missing source: --from TOPIC"),
            (sum(sinks) != 1, "missing target: --to TOPIC, --route or --files DIR"),
            (bool(loops), f"{', '.join(loops)} would be read and written"),
            (self.to is not None and self.to == self.bad_rows, "--to and --bad-rows are the same"),
            (not (self.sql or self.transform), "missing query: --sql QUERY or --transform"),
            (self.parse not in (None, *PARSERS), f"--parse is one of {', '.join(PARSERS)}"),
            (self.mode not in MODES, f"--mode is one of {', '.join(MODES)}"),
            (
                self.parse in ("json", "csv") and not self.schema,
                f"--parse {self.parse} needs --schema, as in 'carrier string, dep_delay int'",
            ),
            (
                self.schema is not None and self.parse not in ("json", "csv"),
                "--schema is for --parse json or csv",
            ),
            (
                self.bad_rows is not None and self.parse is None,
                "--bad-rows is for rows that cannot be parsed: add --parse",
            ),
            (
                streams and self.until is not None,
                "a stream has no --until: leave --checkpoint out to read a range",
            ),
            (
                self.files is not None and self.mode != "append",
                "--files has no --mode update: a file is not changed",
            ),
            (
                not streams and self.mode != "append",
                "--mode is of streams: add --checkpoint DIR",
            ),
            (
                self.event_time is not None and self.watermark is None,
                "--event-time needs --watermark",
            ),
        ]


FIELDS: Final = {field.name: field for field in attrs.fields(Job)}
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
        field = _OTHER_NAMES.get(key, key.replace("-", "_"))
        if field not in FIELDS or key == "sources":
            raise Usage(f"{name}: there is no option {key!r}; they are {', '.join(_names())}")
        found[field] = _fitting(field, value, f"{name}: {key}")
    return found


def merge(options: Mapping[str, Any], file: Mapping[str, Any]) -> Job:
    """A job of both; options win where they are not their default."""
    given = {name: value for name, value in options.items() if value != FIELDS[name].default}
    return Job(**{**file, **given}).check()


def _names() -> list[str]:
    others = {field: name for name, field in _OTHER_NAMES.items()}
    return sorted(others.get(name, name.replace("_", "-")) for name in FIELDS)


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
