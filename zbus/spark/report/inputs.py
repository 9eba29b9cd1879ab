"""What a report is asked for, and the messages that it is about."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from zbus.spark.commands import FILE, FOLDER, Common, Ranged, option
from zbus.spark.errors import Usage, refuse
from zbus.spark.io import names_option
from zbus.spark.report import measure, tables
from zbus.spark.report.tables import DAY_MS, HISTORY_DAYS, Report
from zbus.spark.times import between_ms, moment_ms
from zbus.units import parse_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS_MAX: Final = 5_000
PAGE: Final = Path("report.html")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_NEEDED: Final = ("topic", "partition", "timestamp", "tag", "key", "body")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.frozen(kw_only=True)
class Wanted(Ranged):
    """What a report is asked for."""

    topics: str | None = option("--topics A,B", "These topics.")
    pattern: str | None = option("--pattern RE", "The topics whose whole name matches.")
    archive: str | None = option("--from DIR", "Read an archive instead.")
    since: str = option("--since TIME", "24h (ago), or a time.", default="24h")
    until: str = option("--until TIME", "Messages stored before it.", default="now")
    bucket: str = option("--bucket TIME", "5m, 1h, 1d, ...", default="1h")
    out: Path = option("--out FILE", "The page.", default=PAGE, type=FILE)
    data: Path | None = option(
        "--data DIR",
        "Write the tables there as Parquet and CSV. Backlogs of reports before are kept.",
        type=FOLDER,
    )
    groups: bool | None = option("--groups/--no-groups", "Ask the broker how far groups are.")
    sent_header: str | None = option(
        "--sent-header NAME",
        "A header with the producer's time, epoch ms: how long it took until it was stored.",
    )
    show_keys: bool = option("--show-keys", "The keys of most messages, too.", default=False)
    now_ms: int = attrs.field(factory=_now_ms)

    def check(self, common: Common) -> Wanted:
        """Itself. Raises Usage."""
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            text = f"--pattern {self.pattern} is not a regular expression: {error}"
            raise Usage(text) from error
        between_ms(self.since, self.until, self.now_ms)
        refuse(self._problems(common))
        return self

    def _problems(self, common: Common) -> list[tuple[bool, str]]:
        bucket_ms = self.bucket_ms
        return [
            (
                bool(self.names) == (self.pattern is not None),
                "say which topics: --topics A,B or --pattern RE",
            ),
            (bucket_ms < 1_000, f"--bucket {self.bucket}: it is like 5m, 1h or 1d, at least 1s"),
            (
                bucket_ms > 0 and (self.until_ms - self.since_ms) // bucket_ms > BUCKETS_MAX,
                f"that is more than {BUCKETS_MAX} buckets: take a larger --bucket",
            ),
            (
                self.sent_header is not None and _HEADER.fullmatch(self.sent_header) is None,
                f"--sent-header {self.sent_header} is no name of a header",
            ),
            (
                bool(self.groups) and common.data_dir is not None,
                "groups are known to a broker alone: leave --groups or --data-dir out",
            ),
        ]

    @property
    def names(self) -> list[str]:
        """Of the topics, as they were said."""
        return [name.strip() for name in (self.topics or "").split(",") if name.strip()]

    @property
    def since_ms(self) -> int:
        """Raises Usage."""
        return moment_ms(self.since, "--since", self.now_ms)

    @property
    def until_ms(self) -> int:
        """Raises Usage."""
        return moment_ms(self.until, "--until", self.now_ms)

    @property
    def bucket_ms(self) -> int:
        return parse_ms(self.bucket) or 0


class Input:
    """The messages that a report is about."""

    def __init__(self, common: Common, wanted: Wanted) -> None:
        self._common, self._wanted = common, wanted.check(common)
        self.topics = self._names()

    def _names(self) -> list[str]:
        wanted = self._wanted
        if wanted.archive is not None:
            from zbus.spark.archive.table import Archive

            known = Archive(wanted.archive).topics()
        else:
            with self._common.where().open() as log:
                known = log.topics()
                for name in wanted.names:
                    log.spans(name)  # raises UnknownTopic
        if wanted.pattern is not None:
            found = [name for name in known if re.fullmatch(wanted.pattern, name)]
        else:
            lower = {name.lower(): name for name in known}
            found = [lower.get(name.lower(), name) for name in wanted.names]
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
        wanted, common = self._wanted, self._common
        made = Report(
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            bucket_ms=wanted.bucket_ms,
            made_ms=_now_ms(),
            topics=self.topics,
            source=wanted.archive or str(common.where()),
        )
        columns = _NEEDED if wanted.sent_header is None else (*_NEEDED, "headers")
        rows = self._rows(wanted.since_ms, columns)
        exact = rows.count() <= measure.EXACT_MAX
        made.traffic = measure.traffic(rows, wanted.bucket_ms, exact)
        if delaying := self._delaying():
            # Stored long ago, it may still be to come.
            delayed = self._rows(0, ("topic", "deliver_at"), delaying)
            made.pending = measure.pending(delayed, made.made_ms, wanted.bucket_ms)
        if wanted.sent_header is not None:
            made.latency = measure.latency(rows, wanted.sent_header, wanted.bucket_ms, exact)
        if wanted.show_keys:
            made.keys = measure.keys(rows)
        if self._asks_groups:
            made.backlog = measure.backlog(common.where(), self.topics)
        if not exact:
            share = 1 / measure.ACCURACY
            made.notes.append(
                f"Percentiles are estimates; their rank is wrong by {share:.2%} at most."
            )
        self._add_anomalies(made)
        if wanted.sent_header is None:
            made.notes.append(
                "How long messages took from their producer is not known without --sent-header."
            )
        made.notes.append(
            "The broker keeps no times of deliveries, so how late a message was read is in no log:"
            " see the backlog of its group."
        )
        return made

    @property
    def _asks_groups(self) -> bool:
        """A broker is asked about groups, unless something else is read."""
        if self._wanted.groups is not None:
            return self._wanted.groups
        return self._wanted.archive is None and self._common.data_dir is None

    def _delaying(self) -> list[str]:
        """The topics that may have messages that are still to come: these are read from their
        beginning."""
        if self._wanted.archive is not None or self._common.data_dir is not None:
            return self.topics
        return measure.delaying(self._common.where(), self.topics)

    def _add_anomalies(self, made: Report) -> None:
        bucket_ms = made.bucket_ms
        if DAY_MS % bucket_ms:
            made.notes.append("Nothing is compared with other days: a day has no whole buckets.")
            return
        before_ms = made.since_ms - made.since_ms % bucket_ms - HISTORY_DAYS * DAY_MS
        history = measure.counts(self._rows(before_ms, ("topic", "timestamp")), bucket_ms)
        made.anomalies = tables.anomalies(history, made.since_ms, made.until_ms, bucket_ms)
