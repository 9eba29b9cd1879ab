"""Bugs in the broker: what is written, answered, handed out, woken and forgotten, and in which
order."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

BACKLOG = "core/cursor/test_backlog.py"
BROKER = "core/test_broker.py"
CAMPAIGN = "simulation/test_crash_states.py::test_a_campaign"
KEYED = "core/cursor/test_key_order.py"
ONCE = "core/commit/test_idempotent_put_model.py"
STAGED = "core/patterns/test_transactions.py"
RETENTION = "core/upkeep/test_retention_model.py"

BACKLOGS: list[Mutant] = [
    *mutants_of(
        "zbus/core/cursor/backlog.py",
        (
            "floor-above-what-came-back",
            "if offset in dues or offset in places), None)",
            "if offset in dues), None)",
            f"{BACKLOG} core/cursor/test_leases_many.py",
        ),
        (
            "all-leases-end-in-one-turn",
            "self.leased.ended(now_ms, ENDED_MAX)",
            "self.leased.ended(now_ms)",
            "core/cursor/test_leases_many.py",
        ),
        (
            "extend-not-written",
            "        self.leased.set(offset, deadline_ms)\n        self._touch(offset)\n        return",
            "        self.leased.set(offset, deadline_ms)\n        return",
            BACKLOG,
        ),
        (
            "extend-not-written-crash",
            "        self.leased.set(offset, deadline_ms)\n        self._touch(offset)\n        return",
            "        self.leased.set(offset, deadline_ms)\n        return",
            CAMPAIGN,
        ),
        (
            "attempts-of-what-is-done",
            "        self.attempts.pop(offset, None)\n        return True",
            "        return True",
            BACKLOG,
        ),
        (
            "ended-lease-goes-to-the-end",
            '        self._take(offset)\n        self._put(offset, offset)\n\n    @moves("give up")',
            '        self._take(offset)\n        self._put(offset, self.cursor)\n\n    @moves("give up")',
            BACKLOG,
        ),
        (
            "lost-counted-twice",
            "            lost += first - self.cursor - (len(self.ahead) - len(left))",
            "            lost += first - self.cursor",
            BACKLOG,
        ),
        (
            "order-of-changes",
            "        self.touched.pop(offset, None)\n        self.touched[offset] = None",
            "        self.touched[offset] = None",
            "core/test_recovery.py",
        ),
        (
            "skipped-on-the-way",
            "        while self.cursor in self.ahead:",
            "        if self.cursor in self.ahead:",
            BACKLOG,
        ),
        (
            "reset-not-applied",
            "        if reset:\n            self._clear()",
            "        if reset:\n            pass",
            BACKLOG,
        ),
        (
            "floor-too-high",
            "        self.cursor = cursor\n        self._lowest = -1\n        if self.ahead",
            "        self.cursor = self._lowest = cursor\n        if self.ahead",
            BACKLOG,
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/journal.py",
        (
            "reset-not-told",
            "        return attrs.evolve(snapshot(backlog, name, incarnation), reset=True)",
            "        return snapshot(backlog, name, incarnation)",
            BACKLOG,
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/ready_queue.py",
        (
            "two-in-front",
            "        return min(first, 0) - 1",
            "        return min(first, 0)",
            BACKLOG,
        ),
        (
            "cursor-goes-first",
            "        if rank > reached:\n            return None",
            "        if rank >= reached:\n            return None",
            BACKLOG,
        ),
        (
            "looks-behind-all-that-wait",
            "            if rank > reached:\n                return None",
            "            if rank > reached:\n                continue",
            BACKLOG,
        ),
        (
            "front-before-it-is-written",
            "        if offset < end:\n            return offset",
            "        if offset <= end:\n            return offset",
            "core/verbs/test_put_front.py",
        ),
        (
            "put-back-behind-the-end",
            "self.places.items() if place[0] > end]:",
            "self.places.items() if place[0] > end + 1]:",
            BACKLOG,
        ),
        (
            "parked-not-in-the-checkpoint",
            "        if not self.parked_count:",
            "        if True:",
            KEYED,
        ),
        (
            "parked-for-ever",
            "        for offset, place in self.places.items():\n            self.in_line[place] = offset",
            "        pass",
            KEYED,
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/key_order.py",
        (
            "key-with-two-holders",
            "return (not self.leased or self.batch == batch) and",
            "return",
            KEYED,
        ),
        (
            "given-back-behind-its-key",
            " and (not waiting or offset <= waiting[0])",
            "",
            KEYED,
        ),
        (
            "keys-forgotten-by-a-restart",
            "        self.unknown = sorted(handed_out, reverse=True)",
            "        self.unknown: list[int] = []",
            "conformance/test_order_per_key.py",
        ),
        (
            "key-stays-busy",
            "                backlog.unpark(line.waiting[0])\n            else",
            "                pass\n            else",
            "conformance/test_order_per_key.py",
        ),
        (
            "batch-of-one",
            "            backlog.unpark(line.waiting[0])  # it may come along",
            "            pass",
            KEYED,
        ),
    ),
    *mutants_of(
        "zbus/core/timing/deadlines.py",
        (
            "deadlines-not-a-heap",
            "            heapq.heappush(self._heap, due_ms)",
            "            self._heap.append(due_ms)",
            "core/timing/test_deadlines.py",
        ),
        (
            "deadline-a-moment-late",
            "(due_ms := self.next_due()) is not None and due_ms <= now_ms:",
            "(due_ms := self.next_due()) is not None and due_ms < now_ms:",
            "core/timing/test_deadlines.py",
        ),
        (
            "moved-deadline-keeps-its-turn",
            "            del dues[offset]  # so that a moved one is iterated last, too\n",
            "            pass\n",
            "core/timing/test_deadlines.py",
        ),
        (
            "set-twice-to-one-time",
            "for offset in reversed(entries) if",
            "for offset in entries if",
            "core/timing/test_deadlines.py",
        ),
    ),
    *mutants_of(
        "zbus/core/timing/delays.py",
        (
            "page-not-known-as-first",
            "        if page[0] == key:\n            self._push(number, page)",
            "        if len(page) == 1:\n            self._push(number, page)",
            "core/timing/test_delays.py",
        ),
        (
            "rest-of-a-page-forgotten",
            "        if at == 0:\n            self._begins_later",
            "        if at == 0 and len(page) == 0:\n            self._begins_later",
            "core/timing/test_delays.py",
        ),
        (
            "equal-times-out-of-order",
            "other_ms if goes_first else other_ms - 1)",
            "other_ms)",
            "core/timing/test_delays.py",
        ),
        (
            "delayed-top-too-low",
            "        self._top = max(self._top, number * PAGE + PAGE - 1)",
            "        self._top = max(self._top, number * PAGE)",
            "core/timing/test_delays.py",
        ),
        (
            "delays-not-a-heap",
            "        heapq.heapify(heads)\n",
            "",
            "core/timing/test_delays.py",
        ),
        (
            "delays-of-a-cut-page",
            "            self._count -= len(page) - len(kept)",
            "            self._count -= len(page)",
            "core/timing/test_delays.py",
        ),
    ),
    *mutants_of(
        "zbus/core/timing/timers.py",
        (
            "timers-not-a-heap",
            "            heapq.heapify(self.heap)\n",
            "",
            "core/timing/test_timers.py",
        ),
        (
            "timer-a-moment-late",
            "        while heap and heap[0][0] <= now_ms:",
            "        while heap and heap[0][0] < now_ms:",
            "core/timing/test_timers.py",
        ),
        (
            "timer-without-end",
            "            if serial > last:\n                later.append(entry)\n                continue",
            "",
            "core/timing/test_timers.py",
        ),
        (
            "timer-that-was-moved",
            "            if timer.entries.get(item) is not entry:\n                continue\n            if",
            "            if item not in timer.entries:\n                continue\n            if",
            "core/timing/test_timers.py",
        ),
    ),
]

WRITING: list[Mutant] = [
    *mutants_of(
        "zbus/core/log.py",
        (
            "found-one-too-far",
            "        return chunk if offset < chunk.first + len(chunk.bodies) else None",
            "        return chunk if offset <= chunk.first + len(chunk.bodies) else None",
            "core/test_log.py",
        ),
        (
            "read-back-over-what-is-at-hand",
            "        start = max(0, chunks[at - 1].end - chunk.first) if at else 0",
            "        start = 0",
            "core/test_log.py",
        ),
        (
            "time-search-one-too-far",
            "        elif found[0].time_of(found[1]) < self._time_ms:",
            "        elif found[0].time_of(found[1]) <= self._time_ms:",
            "core/test_log.py core/delivery/test_prefetch.py",
        ),
        (
            "memory-not-given-back",
            "            self.recent_bytes -= chunk.held_bytes\n            log.let_go(chunk)",
            "            log.let_go(chunk)",
            "core/test_log.py",
        ),
        (
            "read-twice-for-two",
            "            if begin <= offset < begin + count_max:",
            "            if begin == offset < begin + count_max and not waiting:",
            "core/test_log.py",
        ),
        (
            "told-before-all-is-found",
            "                give(problem if problem and wanted == offset else chunk)",
            "                give(problem or chunk)",
            "core/test_log.py",
        ),
    ),
    *mutants_of(
        "zbus/core/commit/tick.py",
        (
            "lost-told-twice",
            "                backlog.unreported = 0\n",
            "",
            "core/upkeep/test_retention.py conformance/test_retention.py",
        ),
        (
            "acks-told-before-the-sync",
            "if synced and (written[2] or written[3] or partition.visible < partition.end):",
            "if synced and (written[2] or partition.visible < partition.end):",
            CAMPAIGN,
        ),
        (
            "visible-before-the-sync",
            "if synced and (written[2] or written[3] or partition.visible < partition.end):",
            "if synced and (written[2] or written[3]):",
            "core/test_broker.py",
        ),
        (
            "joined-before-the-sync",
            "        if offset < partition.visible:\n            ticket.settle(Stored(partition))",
            "        if offset <= partition.visible:\n            ticket.settle(Stored(partition))",
            ONCE,
        ),
        (
            "refused-put-keeps-its-key",
            "        partition.originals.truncate(first)\n",
            "",
            ONCE,
        ),
        (
            "refused-put-stays-in-groups",
            "            group.backlogs[partition.index].truncate(first)",
            "            pass",
            "core/commit/test_tick.py core/test_broker.py",
        ),
        (
            "change-of-what-found-no-room",
            "            change = None if change is None else change.truncated(first)",
            "            pass",
            "core/commit/test_tick.py core/test_broker.py",
        ),
        (
            "confirmed-without-room",
            "            ticket.settle(FULL_STATE)\n        return []",
            "            pass\n        return confirms",
            "core/commit/test_state_full.py",
        ),
        (
            "changes-behind-forgotten",
            "            for partition in self.behind:\n                self.touch(partition)",
            "            self.behind.clear()",
            "core/commit/test_state_full.py",
        ),
        (
            "half-a-topic-is-born",
            "            at_once = self._refuse_unborn(at_once)\n",
            "",
            "core/commit/test_tick.py core/commit/test_state_full.py",
        ),
        (
            "message-of-another-time",
            "                new.time_ms = staged.time_ms\n",
            "",
            "core/verbs/test_puts.py core/commit/test_tick.py core/commit/test_idempotent_put_model.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/settle.py",
        (
            "window-stays-shut",
            "        if group.waiting or group.aside is not None:\n"
            "            runs.activate(group)  # the window opened",
            "        pass",
            "core/delivery/test_dispatch.py conformance/test_ack_and_redelivery.py "
            "core/test_broker.py",
        ),
        (
            "extended-too-early-a-wake",
            "        runs.schedule_at(group, partition.index, deadline_ms)\n",
            "",
            "core/test_broker.py conformance/test_leases.py",
        ),
        (
            "given-back-for-later-and-not-woken",
            "            runs.schedule_at(group, partition.index, due_ms)\n",
            "            pass\n",
            "core/test_broker.py conformance/test_leases.py",
        ),
        (
            "ack-of-what-was-never-given",
            "    return count + finish_tried(backlog, ranges)",
            "    return count + sum([finish_all(backlog, r) for r in ranges])",
            "conformance/test_ack_and_redelivery.py core/delivery/test_dispatch.py conformance/test_leases.py",
        ),
        (
            "front-in-the-wrong-order",
            "    for offset in reversed(leased) if front and not later else leased:",
            "    for offset in leased:",
            "core/test_broker.py conformance/test_leases.py",
        ),
        (
            "ack-of-what-is-redriven",
            "ranges[0].start in backlog.attempts:",
            "ranges[0].start in backlog.leased.dues:",
            "core/patterns/test_redrive.py core/delivery/test_settle.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/topic.py",
        (
            "partition-of-a-key",
            "            return self.partitions[crc32(key) % len(self.partitions)]",
            "            return self.partitions[(crc32(key) + self.turn) % len(self.partitions)]",
            "conformance/test_idempotent_produce.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/delta.py",
        (
            "snapshot-without-options",
            "        groups.append(attrs.evolve(change, options=group.options, origin=origin))",
            "        groups.append(attrs.evolve(change, origin=origin))",
            "core/test_recovery.py",
        ),
        (
            "removed-groups-not-told",
            "    changes = [GroupChange(name, removed=True) for name in partition.removed_groups]",
            "    changes: list[GroupChange] = []",
            CAMPAIGN,
        ),
    ),
]

ONCE_ONLY: list[Mutant] = [
    *mutants_of(
        "zbus/core/commit/recognition.py",
        (
            "key-with-other-content",
            "        other = known[1].digest != digest or known[1].records != len(chunk)",
            "        other = known[1].records != len(chunk)",
            ONCE,
        ),
        (
            "original-in-the-first-partition",
            "    for partition in topic.partitions:\n        original = ",
            "    for partition in topic.partitions[:1]:\n        original = ",
            "core/commit/test_idempotent_put.py",
        ),
        (
            "original-in-the-first-partition-model",
            "    for partition in topic.partitions:\n        original = ",
            "    for partition in topic.partitions[:1]:\n        original = ",
            ONCE,
        ),
        (
            "original-in-the-first-partition-face",
            "    for partition in topic.partitions:\n        original = ",
            "    for partition in topic.partitions[:1]:\n        original = ",
            "conformance/test_idempotent_produce.py",
        ),
        (
            "put-along-in-this-partition",
            "    if len(partition.topic.partitions) > 1 and _find(partition.topic, name) is not",
            "    if len(partition.topic.partitions) > 1 and partition.originals.find(name) is not",
            "core/commit/test_idempotent_put.py core/verbs/test_puts.py conformance/test_idempotent_produce.py",
        ),
        (
            "twice-in-one-batch",
            "        elif not id or id not in seen:",
            "        else:",
            ONCE,
        ),
    ),
    *mutants_of(
        "zbus/core/verbs/puts.py",
        (
            "told-of-the-wrong-partition",
            "            home, ticket.offset = found.known[0][0], found.known[0][1].offset",
            "            home, ticket.offset = partition, found.known[0][1].offset",
            ONCE,
        ),
        (
            "told-of-the-wrong-partition-face",
            "            home, ticket.offset = found.known[0][0], found.known[0][1].offset",
            "            home, ticket.offset = partition, found.known[0][1].offset",
            "conformance/test_idempotent_produce.py",
        ),
        (
            "duplicate-joins-another-partition",
            "            self._tick.join(home, offset, parts.part())",
            "            self._tick.join(partition, offset, parts.part())",
            "core/commit/test_idempotent_put.py",
        ),
        (
            "conflict-told-before-the-sync",
            "            if partition.end > partition.visible:",
            "            if False:",
            ONCE,
        ),
        (
            "expected-offset-of-a-duplicate",
            "        if new.bodies and self._refuse(partition, ticket, found, options):",
            "        if self._refuse(partition, ticket, found, options):",
            "core/commit/test_idempotent_put.py conformance/test_idempotent_produce.py",
        ),
    ),
    *mutants_of(
        "zbus/core/dedup/window.py",
        (
            "remembered-a-moment-longer",
            "            if originals[name].time_ms > before_ms:",
            "            if originals[name].time_ms >= before_ms:",
            ONCE,
        ),
        (
            "last-stays-the-original",
            "        if originals.setdefault(original[0], original) is not original:\n"
            "            return False\n",
            "        originals[original[0]] = original\n",
            "core/commit/test_idempotent_put.py core/commit/test_idempotent_put_model.py",
        ),
        (
            "one-key-many-puts",
            "                while stop < count and self._key_of(chunk, stop) == key:",
            "                while stop < count and self._key_of(chunk, stop) == key and stop < 1:",
            ONCE,
        ),
        (
            "content-without-its-tag",
            "        digest.update(_lengths(len(tag), len(key), len(body)) + tag + key)",
            "        digest.update(_lengths(0, len(key), len(body)) + key)",
            "core/commit/test_idempotent_put.py",
        ),
        (
            "keys-without-end",
            "        if len(originals) > COUNT_MAX:",
            "        if len(originals) > 2 * COUNT_MAX:",
            "core/commit/test_idempotent_put.py",
        ),
    ),
]

SERVING: list[Mutant] = [
    *mutants_of(
        "zbus/core/topics/delivery_batch.py",
        (
            "attempts-of-another",
            "last.stop == at and last.attempts == attempts:",
            "last.stop == at:",
            "core/delivery/test_dispatch.py core/test_broker.py conformance/test_leases.py",
        ),
        (
            "answer-over-its-bytes",
            "        count = min(bisect_left(totals, self.bytes_left) + 1, stop - start)",
            "        count = stop - start",
            "core/delivery/test_dispatch.py core/delivery/test_prefetch.py conformance/test_batches.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/parked_pulls.py",
        (
            "set-aside-at-the-end",
            "            line = table[name] = OrderedDict()\n        line[pull.key] = pull",
            "            line = table[name] = OrderedDict()\n        line[pull.key] = pull\n"
            "        line.move_to_end(pull.key, last=False)",
            "core/topics/test_parked_pulls.py core/delivery/test_dispatch.py",
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/ranges.py",
        (
            "the-cursor-jumps-and-forgets",
            "    backlog.ahead.difference_update(passed)\n",
            "",
            "core/delivery/test_settle.py core/cursor/test_backlog.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/run_queue.py",
        (
            "nack-not-written",
            "        if not group.backlogs[partition.index].dirty:\n"
            "            self.tick.change(partition, group)\n",
            "",
            f"{BROKER} {CAMPAIGN}",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/pulls.py",
        (
            "ended-pull-gets-a-message",
            "        if pull.group.forget_pull(pull):",
            "        if pull.open:",
            "core/delivery/test_dispatch.py core/verbs/test_disconnect.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/dispatch.py",
        (
            "woken-but-not-written",
            "            self.tick.change(partition, group)\n        budget.woken",
            "            pass\n        budget.woken",
            "core/test_broker.py core/delivery/test_due_messages.py",
        ),
        (
            "handed-out-before-the-sync",
            "            offset = backlog.next(partition.visible)",
            "            offset = backlog.next(partition.end)",
            BROKER,
        ),
        (
            "run-past-what-is-synced",
            "at, at + partition.visible - offset)",
            "at, len(chunk.bodies))",
            f"{BROKER} core/delivery/test_dispatch.py",
        ),
        (
            "expired-a-moment-late",
            "            elif chunk.expires is not None and 0 < chunk.expires[at] <= now_ms:",
            "            elif chunk.expires is not None and 0 < chunk.expires[at] < now_ms:",
            "conformance/test_delay_and_expiry.py core/delivery/test_due_messages.py",
        ),
        (
            "delayed-a-moment-longer",
            "            if due_ms > now_ms and offset == backlog.cursor:",
            "            if due_ms and due_ms >= now_ms and offset == backlog.cursor:",
            "core/delivery/test_due_messages.py conformance/test_delay_and_expiry.py core/test_broker.py",
        ),
        (
            "window-one-too-wide",
            "            count_max = min(count_max, group.options.window - group.leased_count())",
            "            count_max = min(count_max, group.options.window - group.leased_count() + 1)",
            "core/delivery/test_dispatch.py core/test_broker.py",
        ),
        (
            "no-line-before-a-latecomer",
            "index in group.aside.lines:",
            "index not in group.aside.lines:",
            "core/topics/test_parked_pulls.py core/delivery/test_dispatch.py conformance/test_partitions.py",
        ),
        (
            "one-partition-always-first",
            "                    group.turn = index + 1",
            "                    group.turn = index",
            "conformance/test_partitions.py core/delivery/test_dispatch.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/topic.py",
        (
            "done-by-one-group",
            "        return min([backlog.floor()",
            "        return max([backlog.floor()",
            f"core/upkeep/test_retention.py {RETENTION}",
        ),
        (
            "unclaimed-holds-back",
            "if not group.options.unclaimed]",
            "]",
            "conformance/test_unclaimed_groups.py",
        ),
    ),
    *mutants_of(
        "zbus/core/persistence/retention.py",
        (
            "young-segment-goes",
            "        while keep < last and segments[keep + 1].begun_ms <= oldest_ms:",
            "        while keep < last and segments[keep].begun_ms <= oldest_ms:",
            f"core/upkeep/test_retention.py {RETENTION}",
        ),
        (
            "one-segment-too-many-by-count",
            "        keep = max(keep, segments.holding(offset))\n    if options.retention_done",
            "        keep = max(keep, segments.holding(offset) + 1)\n    if options.retention_done",
            f"core/upkeep/test_retention.py {RETENTION}",
        ),
        (
            "one-segment-too-many-by-bytes",
            "            keep = max(keep, newest)\n",
            "            keep = max(keep, newest + 1)\n",
            f"core/upkeep/test_retention.py {RETENTION}",
        ),
        (
            "unsynced-segment-goes",
            "    last = segments.holding(partition.visible)\n    if not last",
            "    last = len(segments) - 1\n    if not last",
            f"{RETENTION} core/upkeep/test_retention.py simulation/test_retention_crash.py",
        ),
    ),
    *mutants_of(
        "zbus/core/upkeep/retention.py",
        (
            "trimmed-before-it-is-said",
            "            self._tick.confirm(partition, _Trim(self, self._storage, partition))",
            "            begin(self, partition, first)\n            self._storage.trim(partition)",
            "simulation/test_retention_crash.py core/upkeep/test_retention_model.py core/upkeep/test_retention.py",
        ),
        (
            "forgotten-newer-than-said",
            "        begin(self._retention, partition, self._first)",
            "        begin(self._retention, partition, partition.purged_to)",
            f"{RETENTION} core/upkeep/test_retention.py simulation/test_retention_crash.py",
        ),
        (
            "fallen-off-and-not-told",
            "                group.unreported = True\n                self._runs.changed(group, partition)",
            "                self._runs.changed(group, partition)",
            "core/upkeep/test_retention.py",
        ),
    ),
]

FENCE = "core/upkeep/test_fencing.py core/upkeep/test_fencing_model.py"

# A partition that failed is closed, read again and opened.
FENCED: list[Mutant] = [
    *mutants_of(
        "zbus/core/commit/tick.py",
        (
            "confirmed-before-decided",
            "            if partition.index and partition.topic.undecided:",
            "            if False:",
            FENCE,
        ),
        (
            "verdict-forgotten",
            "        self.open_commits -= 1\n        if failed:",
            "        self.open_commits -= 1\n        if False:",
            FENCE,
        ),
        (
            "fenced-again-by-an-old-answer",
            "            if why is not None and epoch == partition.epoch and",
            "            if why is not None and",
            FENCE,
        ),
        (
            "written-although-fenced",
            "            if partition.fenced is not None:\n                self.refuse",
            "            if False:\n                self.refuse",
            FENCE,
        ),
        (
            "old-commit-shows-what-is-gone",
            "            if end > partition.visible and epoch == partition.epoch:",
            "            if end > partition.visible:",
            FENCE,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/delta.py",
        (
            "former-incarnation-untold",
            "        for other in known.departing:",
            "        for other in ():",
            FENCE,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/topic.py",
        (
            "turn-of-a-fenced-partition",
            "        return partition if partition.fenced is None else self._serving(partition)",
            "        return partition",
            FENCE,
        ),
    ),
    *mutants_of(
        "zbus/core/upkeep/fencing.py",
        (
            "fenced-and-still-visible",
            "            one.visible = one.first  # so nothing of it can be delivered\n",
            "",
            FENCE,
        ),
        (
            "chunks-of-before",
            "            group.chunks[index] = NO_CHUNK\n",
            "",
            FENCE,
        ),
        (
            "log-of-before",
            "        self._verbs.begin_partition(partition)\n",
            "        log = partition.log\n        self._verbs.begin_partition(partition)\n"
            "        partition.log = log\n",
            FENCE,
        ),
        (
            "staged-when-it-is-read",
            "                self._tick.refuse(one, why)",
            "                pass",
            FENCE,
        ),
        (
            "read-while-it-is-emptied",
            "            if partition is not zero and topic.emptying:",
            "            if False:",
            FENCE,
        ),
        (
            "not-tried-again",
            "                self._retries.set(partitions[0], self._tick.now_ms + RETRY_MS)",
            "                pass",
            FENCE,
        ),
        (
            "only-partition-0",
            "        for one in topic.partitions if partition.index == 0 else [partition]:",
            "        for one in [partition]:",
            FENCE,
        ),
        (
            "followers-not-told",
            "        self._runs.following.end(topic, why)\n",
            "",
            FENCE,
        ),
        (
            "groups-stay",
            "        for group in outcome:\n",
            "        for group in []:\n",
            FENCE,
        ),
    ),
    *mutants_of(
        "zbus/core/log.py",
        (
            "old-read-believed",
            "            if partition.log is not self:",
            "            if False:",
            FENCE,
        ),
    ),
    *mutants_of(
        "zbus/core/persistence/replay.py",
        (
            "departing-not-read-again",
            "            other.backlogs[partition.index] = known or",
            "            known or",
            FENCE,
        ),
    ),
]

RETRIES = "core/delivery/test_retries.py"

RETRIED: list[Mutant] = [
    *mutants_of(
        "zbus/core/delivery/retries.py",
        (
            "lost-leases-in-the-wrong-order",
            "                backlog.put_lost(offset)",
            "                backlog.put_front(offset)",
            "dialects/adf/test_order.py",
        ),
        (
            "leases-outlive-the-broker",
            "leased.set(offset, max(1, now_ms))",
            "leased.set(offset, leased.due_of(offset))",
            RETRIES,
        ),
        (
            "one-attempt-too-many",
            "if limit and attempts >= limit:",
            "if limit and attempts > limit:",
            RETRIES,
        ),
        (
            "pause-of-the-attempt-before",
            "min(attempts - 1, _DOUBLINGS_MAX)",
            "min(max(attempts - 2, 0), _DOUBLINGS_MAX)",
            RETRIES,
        ),
        (
            "no-longest-pause",
            "    return min(longest_ms, first_ms << ",
            "    return max(0, first_ms << ",
            RETRIES,
        ),
        (
            "dead-letters-not-settling",
            "        group.backlogs[index].leased.settle_later(offset)\n",
            "",
            RETRIES,
        ),
        (
            "circle-of-dead-letters",
            "        waiting += targets",
            "        waiting += ()",
            RETRIES,
        ),
        (
            "given-back-backwards",
            "group.backlogs[index].put_lost(offset)",
            "group.backlogs[index].put_front(offset)",
            "dialects/adf/test_order.py",
        ),
        (
            "to-be-redriven-is-an-attempt",
            "    attempts = backlog.attempts.get(offset, 0)\n",
            "    attempts = backlog.attempts.get(offset, 1)\n",
            "core/patterns/test_redrive.py",
        ),
    ),
    *mutants_of(
        "zbus/core/broker.py",
        (
            "dies-before-it-is-settled",
            "            if self._completions.found:  #",
            "            if False:  #",
            "core/patterns/test_dead_letters.py",
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/leases.py",
        (
            "holder-of-what-is-over",
            "            self.holders.pop(offset, None)",
            "            pass",
            "core/cursor/test_leases.py",
        ),
        (
            "settling-in-the-way",
            "            self.settling.discard(offset)\n        if self.unreported:",
            "            pass\n        if self.unreported:",
            "core/cursor/test_leases.py",
        ),
        (
            "lease-not-lengthened",
            "                self.set(offset, due_ms + ms)",
            "                self.set(offset, due_ms)",
            "conformance/test_never_early.py core/delivery/test_dispatch.py",
        ),
        (
            "unseen-ends-by-time",
            "        others = self.settling.union(self.unreported or ())\n",
            "        others = self.settling\n",
            "core/delivery/test_durable.py",
        ),
        (
            "settling-ends-by-time",
            "        others = self.settling.union(self.unreported or ())\n",
            "        others = set(self.unreported or ())\n",
            "core/cursor/test_leases.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/dispatch.py",
        (
            "nobody-is-woken",
            "            self._rates.set(group, self.tick.now_ms + wait_ms)",
            "            pass",
            RETRIES,
        ),
        (
            "rate-not-taken",
            "            group.rate.take(count_max - pieces.count_left)",
            "            pass",
            RETRIES,
        ),
        (
            "one-batch-and-another",
            "        if taken:\n",
            "        if False:\n",
            RETRIES,
        ),
        (
            "at-once-past-the-window",
            "        if len(leased.dues) >= group.options.window or group.aside is not None:",
            "        if group.aside is not None:",
            "conformance/test_leased_at_once.py",
        ),
        (
            "at-once-without-its-own-limit",
            "        if chunk.attempts is not None:\n            return False",
            "        if chunk.attempts is not None:\n            pass",
            "conformance/test_leased_at_once.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/topic.py",
        (
            "told-before-it-is-written",
            'self.recorded = counts and inherited.durability != "memory"',
            "self.recorded = False",
            "core/delivery/test_durable.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/turn_leases.py",
        (
            "lease-of-the-group",
            "(wants.lease_ms or group.options.lease_ms)",
            "group.options.lease_ms",
            RETRIES,
        ),
    ),
]

TRANSACTIONS: list[Mutant] = [
    *mutants_of(
        "zbus/core/patterns/transactions.py",
        (
            "old-batch-is-committed-again",
            "if app.decided is not None and decision.batch <= app.decided.batch:",
            "if app.decided is not None and decision.batch < 0:",
            STAGED,
        ),
        (
            "commit-answered-before-it-is-done",
            "        moved = yield from self._apply(app, ticket)\n        if ticket.open:",
            "        moved = 0\n        if ticket.open:",
            STAGED,
        ),
        (
            "committed-batch-is-aborted",
            "if app.decided is not None and batch <= app.decided.batch:",
            "if app.decided is not None and batch < app.decided.batch:",
            STAGED,
        ),
        (
            "what-was-given-up-stays-staged",
            "                yield from self._drop_others(app, decided)\n",
            "",
            STAGED,
        ),
        (
            "moved-twice",
            "looked < _LOOKED_MAX and backlog.life(at) not in _OPEN:",
            "looked < 0 and backlog.life(at) not in _OPEN:",
            STAGED,
        ),
        (
            "decided-although-it-is-not-staged",
            "        problem = yield from self._problem(app, decision)\n        if problem is None:",
            "        problem = None\n        if problem is None:",
            STAGED,
        ),
    )
]

CORE = [*BACKLOGS, *WRITING, *ONCE_ONLY, *SERVING, *FENCED, *RETRIED, *TRANSACTIONS]
