"""What a checkpoint was begun with: a job that is another one by now may not go on with it.

Spark compares little. A changed filter, another sink or another schema would go on silently with
old positions and old state. So the job is written down in the checkpoint, and compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from zbus.spark import io as ends
from zbus.spark.errors import Usage
from zbus.spark.etl.place import Place
from zbus.spark.source.location import Where
from zbus.spark.times import moment_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "zbus-job.json"
"""Of the file, in the checkpoint."""

Facts = Mapping[str, str | None]
"""What of a job may not change, by option."""

_SHOWN: Final = 80
_QUOTED_OR_SPACE: Final = re.compile(r"""('[^']*'|"[^"]*"|`[^`]*`)|\s+""")


def one_line(sql: str) -> str:
    """A query without what does not matter: space between words, outside of quotes."""
    text = sql.strip().rstrip(";").strip()
    return _QUOTED_OR_SPACE.sub(lambda found: found[1] or " ", text)


class First(msgspec.Struct, frozen=True):
    """Where the first batch of a checkpoint begins. It is written down before it does: a job that
    ends between begins there again, and not at what `24h` is by then."""

    since: str | None  # as it was said
    offsets: str  # as an option of the source

    def options(self) -> dict[str, str]:
        """For the source."""
        return {"startingOffsets": self.offsets}

    def is_of(self, topics: Sequence[str], since: str | None) -> bool:
        """Whether it was said for these."""
        named = json.loads(self.offsets) if self.offsets.startswith("{") else ()
        return since == self.since and _lower(named) == _lower(topics)


class Note(msgspec.Struct, kw_only=True):
    """What is kept."""

    v: Literal[1] = 1
    job: dict[str, str]
    first: First | None = None


def first(
    spark: SparkSession, checkpoint: str, where: Where, topics: Sequence[str], since: str | None
) -> First:
    """As it was written down, or what is to be. Raises SparkProblem."""
    kept = Place(spark, checkpoint).read(NAME)
    known = None if kept is None else _note(kept).first
    if known is not None and known.is_of(topics, since):
        return known
    if since is None:
        return First(None, "earliest")
    found = ends.find_range(where, topics, moment_ms(since, "--since"))
    return First(since, found.options()["startingOffsets"])


def _lower(names: Iterable[str]) -> list[str]:
    return sorted(name.lower() for name in names)


def text_of(facts: Facts, first: First | None = None) -> str:
    """As it is kept: the same facts are the same text."""
    known = {key: value for key, value in facts.items() if value is not None}
    text = msgspec.json.encode(Note(job=known, first=first), order="sorted")
    return msgspec.json.format(text, indent=1).decode() + "\n"


def _note(kept: str) -> Note:
    """Raises Usage for a text that this program cannot have written."""
    try:
        return msgspec.json.decode(kept, type=Note)
    except msgspec.MsgspecError as error:
        raise Usage(f"{NAME} in the checkpoint is damaged: {error}") from error


def digest(facts: Facts) -> str:
    """A short name for such a job."""
    return hashlib.sha256(text_of(facts).encode()).hexdigest()[:16]


def differences(kept: str, facts: Facts) -> list[str]:
    """What is another one now, in words. Raises Usage."""
    old = _note(kept).job
    pairs = [(key, old.get(key), facts.get(key)) for key in sorted({*old, *facts})]
    return [
        f"{key} was {_shown(before)} and is {_shown(now)}"
        for key, before, now in pairs
        if before != now
    ]


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    return repr(value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…")


def agree(
    spark: SparkSession,
    checkpoint: str,
    facts: Facts,
    first: First | None = None,
    allow_change: bool = False,
) -> None:
    """Write down what the job is, or compare it with what was written. A job that has not begun
    any batch may become another one. Raises Usage."""
    place = Place(spark, checkpoint)
    kept = place.read(NAME)
    if place.has_any("offsets"):
        if kept is None:
            if not allow_change:
                raise Usage(
                    f"the checkpoint {checkpoint} was not begun by this job: take another one,"
                    " or go on with --allow-change"
                )
        elif changes := differences(kept, facts):
            has_state = place.exists("state")
            if has_state or not allow_change:
                advice = (
                    "its state is of the old one, so take another --checkpoint"
                    if has_state
                    else "take another --checkpoint, or go on from there with --allow-change"
                )
                text = "; ".join(changes)
                raise Usage(f"the checkpoint {checkpoint} is of another job: {text}. {advice}")
        else:
            return
    place.write(NAME, text_of(facts, first))


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """What Spark calls the query of a checkpoint, as long as that is there."""
    text = Place(spark, checkpoint).read("metadata")
    if text is None:
        raise Usage(f"the checkpoint {checkpoint} has no metadata: its query has not begun")
    return str(json.loads(text)["id"])
