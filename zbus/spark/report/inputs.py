"""What a report is asked for, and the messages that it is about."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from zbus.spark.commands import Common
from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.io import names_option
from zbus.spark.report import measure, tables
from zbus.spark.report.tables import DAY_MS, HISTORY_DAYS, Report
from zbus.units import parse_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS_MAX: Final = 5_000
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_NEEDED: Final = ("topic", "partition", "timestamp", "tag", "key", "body")


@attrs.frozen(kw_only=True)
class Wanted:
    topics: tuple[str, ...]
    pattern: str | None
    archive: str | None
    since_ms: int
    until_ms: int
    bucket_ms: int
    out: Path
    data: Path | None
    groups: bool
    sent_header: str | None
    show_keys: bool

    @classmethod
    def of(
        cls,
        common: Common,
        *,
        topics: str | None,
        pattern: str | None,
        archive: str | None,
        since: str,
        until: str | None,
        bucket: str,
        out: Path,
        data: Path | None,
        groups: bool | None,
        sent_header: str | None,
        show_keys: bool,
    ) -> Wanted:
        from zbus.spark.times import moment_ms

        now_ms = time.time_ns() // 1_000_000
        names = tuple(name.strip() for name in (topics or "").split(",") if name.strip())
        since_ms = moment_ms(since, "--since", now_ms)
        until_ms = now_ms if until is None else moment_ms(until, "--until", now_ms)
        bucket_ms = parse_ms(bucket) or 0
        problems = [
            (
                bool(names) == (pattern is not None),
                "say which topics: --topics A,B or --pattern RE",
            ),
            (not _is_pattern(pattern), f"--pattern {pattern} is not a regular expression"),
            (bucket_ms < 1_000, f"--bucket {bucket}: it is like 5m, 1h or 1d, at least 1s"),
            (since_ms >= until_ms, "--since is not before --until"),
            (
                bucket_ms > 0 and (until_ms - since_ms) // max(1, bucket_ms) > BUCKETS_MAX,
                f"that is more than {BUCKETS_MAX} buckets: take a larger --bucket",
            ),
            (
                sent_header is not None and _HEADER.fullmatch(sent_header) is None,
                f"--sent-header {sent_header} is no name of a header",
            ),
            (
                bool(groups) and common.data_dir is not None,
                "groups are known to a broker alone: leave --groups or --data-dir out",
            ),
        ]
        for wrong, text in problems:
            if wrong:
                raise Usage(text)
        return cls(
            topics=names,
            pattern=pattern,
            archive=archive,
            since_ms=since_ms,
            until_ms=until_ms,
            bucket_ms=bucket_ms,
            out=out,
            data=data,
            groups=groups if groups is not None else common.data_dir is None and archive is None,
            sent_header=sent_header,
            show_keys=show_keys,
        )


def _is_pattern(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except re.error:
        return False
    return True


class Input:
    """The messages that a report is about."""

    def __init__(self, common: Common, wanted: Wanted) -> None:
        self._common, self._wanted = common, wanted
        self.topics = self._names()

    def _names(self) -> list[str]:
        wanted = self._wanted
        if wanted.archive is not None:
            from zbus.spark.archive.table import Archive

            known = Archive(wanted.archive).topics()
        else:
            with self._common.where().open() as log:
                known = log.topics()
                for name in wanted.topics:
                    log.spans(name)  # raises UnknownTopic
        if wanted.pattern is not None:
            found = [name for name in known if re.fullmatch(wanted.pattern, name)]
        else:
            lower = {name.lower(): name for name in known}
            found = [lower.get(name.lower(), name) for name in wanted.topics]
            if missing := [name for name in found if name not in known]:
                raise Usage(f"there is no topic {missing[0]}")
        if not found:
            raise Usage(f"no topic matches {wanted.pattern}")
        return found

    def _rows(
        self, since_ms: int, columns: tuple[str, ...], topics: Sequence[str] | None = None
    ) -> DataFrame:
        """Of the time asked for, from `since_ms` on."""
        from pyspark.sql import functions as F

        wanted = self._wanted
        topics = self.topics if topics is None else topics
        if wanted.archive is not None:
            from zbus.spark.archive.spark import open_archive

            rows = open_archive(self._common.session(), wanted.archive).select(*columns)
            rows = rows.where(F.col("topic").isin(list(topics)))
            millis = F.unix_millis("timestamp")
            return rows.where((millis >= since_ms) & (millis < wanted.until_ms))
        options = {
            **self._common.options(),
            "topics": names_option(topics),
            "startingTimestamp": str(since_ms),
            "endingTimestamp": str(wanted.until_ms),
            "columns": ",".join(columns),
        }
        return self._common.session().read.format("zbus").options(**options).load()

    def report(self) -> Report:
        """Raises SparkProblem."""
        from zbus.spark.io import problem_of

        try:
            return self._report()
        except SparkProblem:
            raise
        except Exception as error:
            raise problem_of(error) from error

    def _report(self) -> Report:
        wanted = self._wanted
        now_ms = time.time_ns() // 1_000_000
        made = Report(
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            bucket_ms=wanted.bucket_ms,
            made_ms=now_ms,
            topics=self.topics,
            source=wanted.archive or str(self._common.where()),
        )
        columns = _NEEDED if wanted.sent_header is None else (*_NEEDED, "headers")
        rows = self._rows(wanted.since_ms, columns)
        count = rows.count()
        exact = count <= measure.EXACT_MAX
        made.traffic = measure.traffic(rows, wanted.bucket_ms, exact)
        if delaying := self._delaying():
            # Stored long ago, it may still be to come.
            delayed = self._rows(0, ("topic", "deliver_at"), delaying)
            made.pending = measure.pending(delayed, now_ms, wanted.bucket_ms)
        if wanted.sent_header is not None:
            made.latency = measure.latency(rows, wanted.sent_header, wanted.bucket_ms, exact)
        if wanted.show_keys:
            made.keys = measure.keys(rows)
        if wanted.groups:
            made.backlog = measure.backlog(self._common.where(), self.topics)
        if not exact:
            share = 1 / measure.ACCURACY
            made.notes.append(
                f"Percentiles are estimates; their rank is wrong by {share:.2%} at most."
            )
        self._add_anomalies(made)
        made.notes += self._missing()
        return made

    def _delaying(self) -> list[str]:
        """The topics that may have messages that are still to come: these are read from their
        beginning."""
        if self._wanted.archive is not None or self._common.data_dir is not None:
            return self.topics
        return measure.delaying(self._common.where(), self.topics)

    def _add_anomalies(self, made: Report) -> None:
        wanted = self._wanted
        before_ms = wanted.since_ms - wanted.since_ms % wanted.bucket_ms - HISTORY_DAYS * DAY_MS
        if DAY_MS % wanted.bucket_ms:
            made.notes.append("Nothing is compared with other days: a day has no whole buckets.")
            return
        rows = self._rows(before_ms, ("topic", "timestamp"))
        history = measure.counts(rows, wanted.bucket_ms)
        made.anomalies = tables.anomalies(
            history, wanted.since_ms, wanted.until_ms, wanted.bucket_ms
        )

    def _missing(self) -> list[str]:
        """What a reader may look for, and why it is not there."""
        wanted = self._wanted
        notes = []
        if wanted.sent_header is None:
            notes.append(
                "How long messages took from their producer is not known without --sent-header."
            )
        notes.append(
            "The broker keeps no times of deliveries, so how late a message was read is in no log:"
            " see the backlog of its group."
        )
        return notes
