"""Bugs in the archive: offsets that are there twice, missing, or not durable."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

JOB = "spark/archive/test_job.py::"
UPKEEP = "spark/archive/test_upkeep.py::"
DURABLE = f"{JOB}test_what_is_committed_is_durable_before"
OVERTAKEN = f"{UPKEEP}test_somebody_else_while_it_compacts[compaction]"

ARCHIVE: list[Mutant] = [
    *mutants_of(
        "zbus/spark/archive/commit.py",
        (
            "archive-start-is-not-compared",
            "            self._require_next(piece)\n",
            "",
            f"{JOB}test_somebody_else_at_every_step[archiver]",
        ),
        (
            "archive-transactions-are-not-written",
            "            app_transactions=[each for piece in pieces for each in _transactions(piece)],\n",
            "",
            f"{JOB}test_all_that_there_is_and_then_what_has_come",
        ),
        (
            "archive-offset-is-not-written",
            "        Transaction(lane.next_offset, piece.end),\n",
            "",
            f"{JOB}test_all_that_there_is_and_then_what_has_come",
        ),
        (
            "archive-gap-is-not-written",
            "        *(Transaction(lane.gap(gap.reason, gap.start), gap.end) for gap in piece.gaps),\n",
            "",
            f"{JOB}test_what_was_gone_before_there_was_an_archive_is_a_gap",
        ),
        (
            "archive-log-is-not-synced",
            "        sync_log(self._root, before, table.version())\n",
            "",
            DURABLE,
        ),
        (
            "compaction-on-a-later-version",
            "CommitProperties(max_commit_retries=0)",
            "CommitProperties()",
            OVERTAKEN,
        ),
        (
            "compaction-of-what-is-gone",
            "        if not set(old) <= set(newest.files()):\n            break\n",
            "",
            OVERTAKEN,
        ),
    ),
    *mutants_of(
        "zbus/spark/archive/writer.py",
        (
            "archive-file-is-not-synced",
            "        os.fsync(self.out.fileno())\n",
            "",
            DURABLE,
        ),
        (
            "archive-folder-is-not-synced",
            "            sync(folder)\n",
            "            pass\n",
            DURABLE,
        ),
    ),
    *mutants_of(
        "zbus/spark/archive/upkeep.py",
        (
            "compaction-over-a-gap",
            "last.date, last.end) == (",
            "last.date, file.start) == (",
            f"{UPKEEP}test_files_with_a_gap_between_them_stay_two",
        ),
        (
            "compaction-copies-damage",
            "        for wrong in check_file(file):\n",
            "        for wrong in check_file(file, quick=True):\n",
            f"{UPKEEP}test_what_is_damaged_is_not_copied",
        ),
        (
            "expired-is-no-gap",
            "                commit_properties=CommitProperties(app_transactions=transactions),\n",
            "",
            f"{UPKEEP}test_what_expired_is_a_gap",
        ),
    ),
]
