"""Bugs in storage: what is synced and when, checksums, where recovery begins, what fits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

CRASH = "simulation/test_crash_states.py"
CAMPAIGN = "simulation/test_crash_states.py::test_a_campaign"
LANDMARKS = "storage/test_high_water_marks.py"
LOCAL = "storage/test_local.py"
OPENING = "storage/test_opening.py"
READER = "storage/test_reader.py"
SYNCER = "storage/test_syncer.py"
BATCH = "storage/test_batch.py"

# What has to be on the disk before something else may happen.
SYNC_RULES: list[Mutant] = [
    *mutants_of(
        "zbus/storage/local/removal.py",
        (
            "trim-before-sync",
            "        if len(lane.leaving) == 1:\n            self._when_durable(lane, partial(self._remove_next, lane))",
            "        if len(lane.leaving) == 1:\n            self._remove_next(lane)",
            CRASH,
        ),
        (
            "removals-at-once",
            "        if lane.leaving:\n            self._when_durable(lane, partial(self._remove_next, lane))",
            "        if lane.leaving:\n            self._remove_next(lane)",
            CRASH,
        ),
        (
            "trims-side-by-side",
            "        if len(lane.leaving) == 1:",
            "        if lane.leaving:",
            CRASH,
        ),
        (
            "removal-not-dirty",
            "        lane.dirty_above(lane.directory)\n",
            "",
            CRASH,
        ),
        (
            "removed-lane-not-synced",
            "        self._syncer.wait(self.round, gone)",
            "        gone()",
            CAMPAIGN,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/lane.py",
        (
            "replaced-name-not-synced",
            "            self._files.sync_directory(path.parent)\n        except",
            "        except",
            CRASH,
        ),
    ),
    *mutants_of(
        "zbus/storage/segments.py",
        (
            "the-segment-with-the-offset-goes",
            "        count = self.holding(offset)",
            "        count = self.holding(offset) + 1",
            "storage/test_contract.py::TestLocal core/upkeep/test_retention.py",
        ),
        (
            "an-empty-segment-is-not-replaced",
            "_base(self[-1]) == _base(segment)",
            "False",
            "storage/test_contract.py::TestLocal",
        ),
    ),
    *mutants_of(
        "examples/sqlite_engine.py",
        (
            "example-found-and-not-durable",
            "        self.commit((), True, lambda _: done(None))",
            "        done(None)",
            "storage/test_contract.py::TestSqlite",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/engine.py",
        (
            "found-and-not-synced",
            "            self._sync_found(self._changed.values(), tails)",
            "            pass",
            "storage/test_contract.py::TestLocalOnASimulatedDisk",
        ),
        (
            "found-again-and-not-synced",
            "        self._when_durable([there[lane] for lane in lanes if lane in there], "
            "lambda: done(None))",
            "        done(None)",
            "storage/test_contract.py::TestLocalOnASimulatedDisk",
        ),
        (
            "commit-without-sync",
            "        self._when_durable(lanes_known, partial(done, verdicts))",
            "        done(verdicts)",
            CAMPAIGN,
        ),
        (
            "landmark-before-sync",
            "        return self._save_later(), partial(",
            "        self._save_later()()\n        return (lambda: None), partial(",
            CAMPAIGN,
        ),
        (
            "found-not-synced",
            "        if self._changed:\n            # What a killed",
            "        if not self._changed:\n            # What a killed",
            CRASH,
        ),
        (
            "found-not-written-again",
            "                self._write_again(segment, position)",
            "                pass",
            "simulation/test_crash_states.py simulation/test_faults.py",
        ),
        (
            "found-directories-not-synced",
            "            files.sync_directory(directory)\n\n    def _write_again",
            "            pass\n\n    def _write_again",
            CRASH,
        ),
        (
            "new-lane-of-a-known-name",
            "            haunted = self._haunted(naming.lane_key(directory))",
            "            haunted = False",
            LANDMARKS,
        ),
        (
            "roll-of-a-known-name",
            "            haunted = begins and self._haunted(known.key)",
            "            haunted = False",
            f"{CRASH} {LANDMARKS}",
        ),
        (
            "write-after-a-failed-sync",
            "            self._failed = self._syncer.failed = True  # a sync after this would lie",
            "            self._failed = True",
            f"{CRASH} simulation/test_faults.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/lane.py",
        (
            "dirty-without-directories",
            "        round_.directories.update(self.dirty_directories)",
            "        pass",
            CAMPAIGN,
        ),
        (
            "dirty-without-closed-newest",
            "            round_.segments.add(self.newest)",
            "            pass",
            CAMPAIGN,
        ),
        (
            "round-not-noted",
            "        self._clean()\n        self.round = round_.number",
            "        self._clean()",
            CAMPAIGN,
        ),
        (
            "cut-off-not-synced",
            "            try:\n                self._files.sync(self.file)\n",
            "            try:\n                pass\n",
            CRASH,
        ),
        (
            "roll-forgets-the-old-segment",
            "                self._hand_over_segments()\n"
            "                self.round = self._syncer.start()",
            "                pass",
            CRASH,
        ),
        (
            "roll-forgets-the-closed-segment",
            "            if self.dirty:\n                # What the old",
            "            if self.dirty and self.file != CLOSED:\n                # What the old",
            CRASH,
        ),
        (
            "new-segment-without-its-name",
            "        self._begin(segment, file, batches)\n        self.dirty_above(self.directory)",
            "        self._begin(segment, file, batches)",
            CAMPAIGN,
        ),
        (
            "new-lane-without-its-names",
            "batches), batches)\n        lane.dirty_above(*lane._above())",
            "batches), batches)",
            CAMPAIGN,
        ),
        (
            "new-lane-without-its-topic",
            "        return self.directory, self.directory.parent, self.directory.parent.parent",
            "        return self.directory, self.directory.parent",
            CAMPAIGN,
        ),
        (
            "names-of-the-last-only",
            "self.dirty_directories = tuple(dict.fromkeys((*self.dirty_directories, *directories)))",
            "self.dirty_directories = directories",
            CRASH,
        ),
        (
            "found-lane-clean",
            "        lane.dirty = not found.durable",
            "        lane.dirty = False",
            f"{CRASH} {LANDMARKS}",
        ),
        (
            "replacement-not-synced",
            "            self._files.sync(file)\n            self._files.rename(unfinished, path)",
            "            self._files.rename(unfinished, path)",
            CRASH,
        ),
        (
            "sync-here-without-names",
            "            self._files.sync_directory(directory)\n        self._clean()",
            "            pass\n        self._clean()",
            LANDMARKS,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/syncer.py",
        (
            "wait-for-the-round-before",
            "        elif number >= self.collecting.number:",
            "        elif number > self.collecting.number:",
            CAMPAIGN,
        ),
        (
            "wait-not-for-the-running",
            "        if self._running is not None and number == self._running.number:",
            "        if self._running is not None and number > self._running.number + 1:",
            CAMPAIGN,
        ),
        (
            "directories-not-synced",
            "                self._files.sync_directory(directory)",
            "                pass",
            CAMPAIGN,
        ),
        (
            "closed-file-not-synced",
            '"write") as file:\n            self._files.sync(file)',
            '"write") as file:\n            pass',
            CAMPAIGN,
        ),
        (
            "let-go-forgets-to-sync",
            "            collecting.segments.add(segment)",
            "            pass",
            CAMPAIGN,
        ),
        (
            "close-under-a-sync",
            "        if self._needed(file):\n            self._retired.add(file)",
            "        if file in self.collecting.files:\n            self._retired.add(file)",
            SYNCER,
        ),
        (
            "also-before-the-sync",
            "            count = len(round_.files) + len(round_.segments) + len(round_.directories)",
            "            while round_.also:\n                round_.also.pop()()\n"
            "            count = len(round_.files) + len(round_.segments) + len(round_.directories)",
            CAMPAIGN,
        ),
        (
            "many-need-no-sync",
            "            if count <= FILES_MAX or not self._sync_all(round_):",
            "            if count <= FILES_MAX:",
            f"{CAMPAIGN} {SYNCER}",
        ),
        (
            "told-although-it-failed",
            "        if round_.error is not None:\n            self.failed = True",
            "        if False:\n            self.failed = True",
            SYNCER + " simulation/test_faults.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/files.py",
        (
            "landmarks-renamed-before-sync",
            "            files.sync(file)\n        files.rename(made, path)",
            "        files.rename(made, path)",
            CAMPAIGN,
        ),
        (
            "landmarks-without-their-name",
            "        raise\n    files.sync_directory(path.parent)",
            "        raise",
            CRASH,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/high_water_marks.py",
        (
            "landmark-of-a-lane-that-was-removed-meanwhile",
            "        left = [mark for mark in marks if mark.lane not in self._removed]",
            "        left = list(marks)",
            LANDMARKS,
        ),
        (
            "ghost-laid-too-early",
            "            if self._ghosts.get(lane) == number:",
            "            if lane in self._ghosts:",
            LANDMARKS,
        ),
        (
            "ghosts-laid-while-they-are-saved",
            "        if any(mark.lane in ghosts for mark in self._saving):",
            "        if False:",
            LANDMARKS,
        ),
        (
            "ghosts-laid-and-kept",
            "            left = [mark for mark in self._known if mark.lane not in ghosts]",
            "            left = self._known",
            f"{CRASH} {LANDMARKS}",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/opening.py",
        (
            "removed-lane-half-gone",
            "                files.sync_directory(directory)  # else half of it might get its name back",
            "                pass",
            CRASH,
        ),
        (
            "later-segments-clean",
            "            self.tails = [(first, start.durable), *((segment, 0) for segment in later)]",
            "            self.tails = [(first, start.durable)]",
            LANDMARKS,
        ),
        (
            "unsynced-end-taken-for-synced",
            "                ends = index == start.segment and newest.size == start.durable",
            "                ends = index == start.segment",
            f"{LANDMARKS} {CRASH}",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/files.py",
        (
            "made-directory-not-synced",
            "    if made:\n        files.sync_directory(path.parent)",
            "    if made:\n        pass",
            CRASH,
        ),
    ),
]

# What is read back: checksums, the chain, positions, limits.
READING: list[Mutant] = [
    *mutants_of(
        "zbus/storage/local/segment.py",
        (
            "walk-trusts-large-batches",
            "not is_intact(window, at, header):",
            "(length <= 4096 and not is_intact(window, at, header)):",
            OPENING,
        ),
        (
            "walk-trusts-large-batches-torn",
            "not is_intact(window, at, header):",
            "(length <= 4096 and not is_intact(window, at, header)):",
            "simulation/test_torn_tails.py",
        ),
        (
            "walk-trusts-large-batches-verify",
            "not is_intact(window, at, header):",
            "(length <= 4096 and not is_intact(window, at, header)):",
            "storage/test_verify.py",
        ),
        (
            "walk-trusts-large-batches-crash",
            "not is_intact(window, at, header):",
            "(length <= 4096 and not is_intact(window, at, header)):",
            CAMPAIGN,
        ),
        (
            "walk-ends-one-batch-early",
            "        if position + length > limit:",
            "        if position + length >= limit:",
            OPENING,
        ),
        (
            "walk-with-a-small-window",
            "            count = max(length, min(window_bytes, limit - position))",
            "            count = min(window_bytes, limit - position)",
            f"{LOCAL} {OPENING}",
        ),
        (
            "located-one-too-far",
            "        return self._positions[index] if index >= 0 else 0",
            "        return self._positions[min(index + 1, len(self._positions) - 1)] if index >= 0"
            " else 0",
            READER,
        ),
        (
            "newer-version-cut-off",
            "            _refuse_newer(files, file, path, position, limit)\n",
            "",
            OPENING,
        ),
    ),
    *mutants_of(
        "zbus/storage/format/batch.py",
        (
            "read-trusts-large-batches",
            "    return header if is_intact(buffer, position, header) else",
            "    return header if header.length > 4096 or is_intact(buffer, position, header) else",
            BATCH,
        ),
        (
            "checksum-without-header",
            "    crc = crc32(view[start : start + header.payload_length], "
            "crc32(view[position : start - 4]))\n    return crc == header.crc",
            "    crc = crc32(view[start : start + header.payload_length], "
            "crc32(view[position : start - 4]))\n    return crc & 0xFF == header.crc & 0xFF",
            BATCH,
        ),
        (
            "chain-not-looked-at",
            "            if found.previous_crc != self.previous_crc:",
            "            if found.previous_crc > found.crc and not found.previous_crc:",
            BATCH,
        ),
        (
            "body-taken-for-a-log",
            "(at >= extent or header.previous_crc == link)",
            "at >= position",
            BATCH,
        ),
        (
            "search-without-bound",
            "            if budget_bytes < 0 or not",
            "            if not",
            BATCH,
        ),
        (
            "link-not-required",
            "    if not batches or batches[0].header.previous_crc != previous_crc:",
            "    if not batches:",
            "storage/test_contract.py",
        ),
        (
            "unknown-flags-read",
            "    if header.records > COUNT_MAX or header.flags & ~columns:",
            "    if header.records > COUNT_MAX:",
            BATCH,
        ),
        (
            "cut-batch-decoded",
            "    if kind is not _DATA and (header.records or header.flags & ~_STATE_FLAGS[kind]):",
            "    if kind is not _DATA and header.flags & ~_STATE_FLAGS[kind]:",
            BATCH,
        ),
    ),
    *mutants_of(
        "zbus/storage/format/columns.py",
        (
            "column-one-too-long",
            "        if after > len(self._raw):",
            "        if after > len(self._raw) + 8:",
            BATCH,
        ),
        (
            "columns-may-leave-a-rest",
            "        if self._at != len(self._raw):",
            "        if self._at > len(self._raw):",
            BATCH,
        ),
        (
            "dictionary-one-too-far",
            "        if used and max(used) >= different:",
            "        if used and max(used) > different:",
            BATCH,
        ),
        (
            "part-begins-one-early",
            "            begin = start + sum(lengths[:first]) if first else start",
            "            begin = start + sum(lengths[: first - 1]) if first else start",
            BATCH,
        ),
        (
            "one-header-for-all",
            "    if first is values[-1] and values.count(first) == count:",
            "    if first is values[-1]:",
            BATCH,
        ),
    ),
    *mutants_of(
        "zbus/storage/format/checkpoint.py",
        (
            "lost-count-not-stored",
            "not (rest or group.skipped or group.dead)",
            "not (rest or group.dead)",
            "storage/test_checkpoint.py core/upkeep/test_retention_model.py",
        ),
        (
            "state-may-leave-a-rest",
            "    if at != len(payload):",
            "    if at > len(payload):",
            "storage/test_checkpoint.py",
        ),
        (
            "reset-not-stored",
            "        group.reset,\n        len(group.entries),",
            "        False,\n        len(group.entries),",
            "storage/test_checkpoint.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/format/vectors.py",
        (
            "entry-state-one-too-far",
            "    if max(states) >= len(EntryState):",
            "    if max(states) > len(EntryState):",
            "storage/test_checkpoint.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/local/opening.py",
        (
            "damage-below-synced-is-cut",
            "        if index == start.segment and segment.size < start.durable and synced:",
            "        if index == start.segment and segment.size > start.durable and synced:",
            LANDMARKS,
        ),
        (
            "torn-at-synced-is-damage",
            "        if index == start.segment and segment.size < start.durable and synced:",
            "        if index == start.segment and segment.size <= start.durable and synced:",
            CRASH,
        ),
        (
            "lane-chain-not-looked-at",
            "            return header.previous_crc == self.last_crc",
            "            return True",
            OPENING,
        ),
        (
            "hole-between-segments",
            "        return header.base_offset == self.end",
            "        return True",
            CRASH,
        ),
        (
            "landmark-of-another-segment",
            "                if crc is not None and (header.crc != crc or not header.is_whole_state):",
            "                if crc is not None and not header.is_whole_state:",
            LANDMARKS,
        ),
        (
            "unknown-lane-read-from-its-end",
            "        if mark is None:  # begun after the landmarks were written\n"
            "            return _Start(0)",
            "        if mark is None:\n            return _Start(len(self.segments) - 1)",
            LANDMARKS,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/reader.py",
        (
            "read-one-batch-early",
            "                if header.end_offset <= wanted:",
            "                if header.end_offset < wanted:",
            READER,
        ),
        (
            "read-without-a-limit",
            "                if parts and total + len(batch) > bytes_max:",
            "                if parts and total > bytes_max:",
            f"storage/test_contract.py {READER}",
        ),
        (
            "read-past-what-was-written",
            "            size = limit if segment is segments[-1] else self._files.size(file)",
            "            size = self._files.size(file)",
            f"{LOCAL} {READER} {CRASH}",
        ),
        (
            "read-another-file-of-that-name",
            "            file = None if segment.removed else self._file(segment)",
            "            file = self._file(segment)",
            CRASH,
        ),
        (
            "reader-one-batch-behind",
            "                self._behind[segment] = wanted, position + header.length",
            "                self._behind[segment] = wanted + 1, position + header.length",
            READER,
        ),
        (
            "gap-between-batches-read",
            "    if base > wanted or (base < wanted and not first):",
            "    if base < wanted and not first:",
            OPENING,
        ),
    ),
]

# A disk or descriptors that run out.
ROOM: list[Mutant] = [
    *mutants_of(
        "zbus/storage/local/engine.py",
        (
            "acks-refused-on-a-full-disk",
            "                if refusable or not self._reserve.free():",
            "                if not refusable or not self._reserve.free():",
            LOCAL,
        ),
        (
            "messages-take-the-reserve",
            "            if refusable:\n                self._reserve.require()",
            "            if not refusable:\n                self._reserve.require()",
            LOCAL,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/reserve.py",
        (
            "reserve-never-made-again",
            "        if self._refused % TRY_EVERY == 0:",
            "        if self._refused % TRY_EVERY == TRY_EVERY:",
            LOCAL,
        ),
        (
            "half-a-reserve",
            "            self._files.remove(self._path)  # gives back what it got of it",
            "            pass",
            LOCAL,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/lane.py",
        (
            "one-handle-too-many",
            "        while len(self._lanes) >= self._segments_max:",
            "        while len(self._lanes) > self._segments_max:",
            LANDMARKS,
        ),
    ),
    *mutants_of(
        "zbus/storage/local/lane.py",
        (
            "half-a-write-stays",
            "            self._files.truncate(self.file, size)\n            self.dirty = True",
            "            self.dirty = True",
            f"{LOCAL} {CRASH}",
        ),
        (
            "segment-in-the-place-of-messages",
            "        if base < old.base or (base == old.base and old.has_data):",
            "        if base < old.base:",
            "storage/test_contract.py storage/test_local.py",
        ),
    ),
]

STORE: list[Mutant] = [
    *mutants_of(
        "zbus/core/persistence/storage.py",
        (
            "state-before-its-messages",
            "            size = self._append(partition, state, batches, now_ms)",
            "            if len(batches) == 2 and change is not None:\n"
            "                own = encode_state(\n"
            "                    Kind.STATE, partition.end, now_ms, encode_change(change),"
            " state.last_crc\n                )\n"
            "                assert chunk is not None\n"
            "                batches = [own, encode_chunk(chunk, own.header.crc)]\n"
            "            size = self._append(partition, state, batches, now_ms)",
            "core/test_recovery.py",
        ),
        (
            "half-a-put-in-a-portion",
            "            if at in begins:",
            "            if at not in begins or begins:",
            "core/commit/test_idempotent_put.py",
        ),
        (
            "checkpoint-of-what-is-to-come",
            "snapshot(partition, now_ms).truncated(first))",
            "snapshot(partition, now_ms))",
            "core/test_recovery.py",
        ),
        (
            "checkpoint-behind-its-messages",
            "                offset = partition.end if chunk is None else chunk.first",
            "                offset = partition.end",
            CAMPAIGN,
        ),
        (
            "behind-forgotten",
            "            state.behind = state.behind or chunk is None",
            "            state.behind = False",
            "core/commit/test_state_full.py",
        ),
        (
            "unsynced-messages-read-raw",
            "                    if header.base_offset >= visible:",
            "                    if header.base_offset > visible + 1000:",
            "core/delivery/test_prefetch.py conformance/test_read.py",
        ),
        (
            "gap-read-over",
            "                    elif chunk.first != found.end:",
            "                    elif chunk.first < found.end:",
            "core/test_log.py core/delivery/test_prefetch.py",
        ),
        (
            "batches-of-a-fetch-skipped",
            "                    skipped = max(0, offset - batch.header.base_offset)",
            "                    skipped = max(0, offset - batch.header.base_offset - 1)",
            "core/test_log.py core/delivery/test_prefetch.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/tools/verify.py",
        (
            "synced-beginning-taken-for-unborn",
            "    if unborn and not was_synced and",
            "    if unborn and",
            "storage/test_verify.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/tools/scan.py",
        (
            "piece-there-twice-given-up-whole",
            "            if run.end > last.first:",
            "            if False:",
            "storage/test_repair_property.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/recovered.py",
        (
            "snapshot-does-not-reset",
            "            self.backlogs.clear()\n            self.origins",
            "            self.origins",
            "core/test_recovery.py",
        ),
        (
            "removed-group-comes-back",
            "                self.backlogs.pop(key, None)",
            "                pass",
            "core/test_recovery.py",
        ),
    ),
    *mutants_of(
        "zbus/core/persistence/replay.py",
        (
            "snapshot-keeps-originals",
            "            self.originals = DedupWindow()\n            self._tick = []",
            "            self._tick = []",
            "core/test_recovery.py",
        ),
        (
            "forgotten-comes-back",
            "        partition.first = max(self.first, self.forgotten)",
            "        partition.first = self.first",
            "core/commit/test_tick.py core/upkeep/test_retention.py",
        ),
        (
            "keys-without-a-topic-window",
            "        if self._remembers_ids or may_have_keys(header, batch):",
            "        if self._remembers_ids:",
            "core/commit/test_idempotent_put_model.py",
        ),
        (
            "ids-of-the-first-tick",
            "            for chunk in self._tick:",
            "            for chunk in ():",
            "core/commit/test_idempotent_put.py core/commit/test_idempotent_put_model.py",
        ),
    ),
]

JOURNAL = [*SYNC_RULES, *READING, *ROOM, *STORE]
