"""What a checkpoint was begun with: a job that is another one by now may not go on with it.

Spark compares little. A changed filter, another sink or another schema would go on silently with
old positions and old state. So the job is written down in the checkpoint, and compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from zbus.spark import io as ends
from zbus.spark.errors import Usage
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


@attrs.frozen
class First:
    """Where the first batch of a checkpoint begins. It is written down before it does: a job that
    ends between begins there again, and not at what `24h` is by then."""

    since: str | None  # as it was said
    offsets: str  # as an option of the source

    def options(self) -> dict[str, str]:
        """For the source."""
        return {"startingOffsets": self.offsets}


def first(
    spark: SparkSession, checkpoint: str, where: Where, topics: Sequence[str], since: str | None
) -> First:
    """As it was written down, or what is to be. Raises SparkProblem."""
    kept = _Place(spark, checkpoint).read(NAME)
    if kept is not None:
        row = _document(kept).get("first")
        if row is not None and row["since"] == since and _names(row) == _lower(topics):
            return First(**row)
    if since is None:
        return First(None, "earliest")
    found = ends.find_range(where, topics, moment_ms(since, "--since"))
    return First(since, found.options()["startingOffsets"])


def _names(row: Mapping[str, str]) -> list[str]:
    offsets = row["offsets"]
    return _lower(json.loads(offsets)) if offsets.startswith("{") else []


def _lower(names: Iterable[str]) -> list[str]:
    return sorted(name.lower() for name in names)


def text_of(facts: Facts, first: First | None = None) -> str:
    """As it is kept: the same facts are the same text."""
    known = {key: value for key, value in facts.items() if value is not None}
    document: dict[str, Any] = {"v": 1, "job": known}
    if first is not None:
        document["first"] = attrs.asdict(first)
    return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def _document(kept: str) -> dict[str, Any]:
    """Raises Usage for a text that this program cannot have written."""
    try:
        document = json.loads(kept)
        if document["v"] != 1 or not isinstance(document["job"], dict):
            raise ValueError("it is of another version")
    except (ValueError, KeyError, TypeError) as error:
        raise Usage(f"{NAME} in the checkpoint is damaged: {error}") from error
    return dict(document)


def digest(facts: Facts) -> str:
    """A short name for such a job."""
    return hashlib.sha256(text_of(facts).encode()).hexdigest()[:16]


def differences(kept: str, facts: Facts) -> list[str]:
    """What is another one now, in words. Raises Usage."""
    old = _document(kept)["job"]
    found = []
    for key in sorted({*old, *facts}):
        before, now = old.get(key), facts.get(key)
        if before != now:
            found.append(f"{key} was {_shown(before)} and is {_shown(now)}")
    return found


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
    place = _Place(spark, checkpoint)
    kept = place.read(NAME)
    if not place.has_any("offsets"):
        place.write(NAME, text_of(facts, first))
        return
    if kept is None:
        if not allow_change:
            raise Usage(
                f"the checkpoint {checkpoint} was not begun by this job: take another one,"
                " or go on with --allow-change"
            )
        place.write(NAME, text_of(facts, first))
        return
    changes = differences(kept, facts)
    if not changes:
        return
    has_state = place.has("state")
    if not allow_change or has_state:
        advice = (
            "its state is of the old one, so take another --checkpoint"
            if has_state
            else "take another --checkpoint, or go on from there with --allow-change"
        )
        text = "; ".join(changes)
        raise Usage(f"the checkpoint {checkpoint} is of another job: {text}. {advice}")
    place.write(NAME, text_of(facts, first))


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """What Spark calls the query of a checkpoint, as long as that is there."""
    text = _Place(spark, checkpoint).read("metadata")
    if text is None:
        raise Usage(f"the checkpoint {checkpoint} has no metadata: its query has not begun")
    return str(json.loads(text)["id"])


class _Place:
    """A directory as Hadoop sees it: on this disk, or wherever the URI says."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm = spark._jvm
        assert self._jvm is not None
        self._root = self._jvm.org.apache.hadoop.fs.Path(uri)
        self._fs = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, name: str) -> object:
        assert self._jvm is not None
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def has(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def has_any(self, name: str) -> bool:
        """Whether there is a directory with something in it; checksums are nothing."""
        if not self.has(name):
            return False
        found = self._fs.listStatus(self._path(name))
        return any(not each.getPath().getName().startswith(".") for each in found)

    def read(self, name: str) -> str | None:
        if not self.has(name):
            return None
        assert self._jvm is not None
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Whole or not at all."""
        new = self._path(f"_{name}.new")
        stream = self._fs.create(new, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.delete(self._path(name), False)
        self._fs.rename(new, self._path(name))
