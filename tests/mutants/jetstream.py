"""Bugs in the replicated engine: doubt, one batch in flight, claims, replicas that are behind."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

MODEL = "storage/jetstream/test_jetstream_model.py"
DIALOGUE = "storage/jetstream/test_committer.py"
ENGINE = "storage/jetstream/test_engine.py"
OWNERSHIP = "storage/jetstream/test_ownership.py"

JETSTREAM: list[Mutant] = [
    *mutants_of(
        "zbus/storage/copying/streams.py",
        (
            "a-hole-in-a-copy",
            "                follows = header.previous_crc == place.crc\n",
            "                follows = True\n",
            "storage/test_copying.py",
        ),
        (
            "segments-with-a-hole-between",
            "                follows = next_offset in (-1, header.base_offset)\n",
            "                follows = True\n",
            "storage/test_copying.py",
        ),
        (
            "replaced-segments-copied",
            "                if not held or held[0].header.base_offset != header.base_offset:\n",
            "                if True:\n",
            "storage/test_copying.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/nats.py",
        (
            "one-of-five-is-enough",
            "len(fresh) < replicas // 2",
            "not fresh",
            "storage/jetstream/test_nats.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/copying/lanes.py",
        (
            "copied-from-the-beginning-again",
            "        if place == end:\n            return True\n",
            "        if place == end:\n            return False\n",
            "storage/test_copying.py",
        ),
        (
            "another-history-continued",
            "    if there is not None and not _skip(batches, there):\n",
            "    if there is not None and not _skip(batches, there) and False:\n",
            "storage/test_copying.py",
        ),
        (
            "what-the-source-lost-stays",
            "        target.remove(others)\n",
            "",
            "storage/test_copying.py",
        ),
        (
            "a-longer-copy-is-fine",
            "        if next(copies, None) is not None:",
            "        if False:",
            "storage/test_copying.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/committer.py",
        (
            "two-batches-in-flight",
            "        if self._flying or self.stopped:\n",
            "        if self.stopped:\n",
            MODEL,
        ),
        (
            "doubt-taken-as-stored",
            "        elif answer.outcome is Outcome.UNKNOWN:\n            self._doubt(answer.text)\n            self._stream.later(DOUBT_MS, self._ask)\n",
            "        elif answer.outcome is Outcome.UNKNOWN:\n            self._done()\n",
            MODEL,
        ),
        (
            "doubt-taken-as-not-stored",
            "        elif answer.outcome is Outcome.WRONG_SEQUENCE:\n            self._look()\n        elif answer.outcome is Outcome.UNKNOWN:\n",
            "        elif answer.outcome is Outcome.WRONG_SEQUENCE:\n            self._look()\n        elif False:\n",
            MODEL,
        ),
        (
            "sent-again-behind-the-end",
            "        elif state.last == self.last:\n            self._send()\n",
            "        elif state.last >= self.last:\n            self.last = state.last\n            self._send()\n",
            MODEL,
        ),
        (
            "went-back-and-believed",
            "        elif state.last < self.last:\n",
            "        elif False:\n",
            MODEL,
        ),
        (
            "anything-there-is-mine",
            "            if own and all(",
            "            if True or all(",
            MODEL,
        ),
        (
            "another-sequence-confirmed",
            "            if answer.sequence == self.last + len(self._sent):\n",
            "            if True:\n",
            DIALOGUE,
        ),
        (
            "nothing-there-is-another-owner",
            '        elif not got.found:\n            self._doubt("another copy of it is under way")\n            self._stream.later(AGAIN_MS, self._ask)\n',
            '        elif not got.found:\n            self.stop(Failure.TAKEN, "")\n',
            DIALOGUE,
        ),
        (
            "confirmed-with-a-batch-in-flight",
            "        first = self._flying or self._pending\n",
            "        first = self._pending\n",
            MODEL,
        ),
        (
            "confirmed-when-refused-by-another",
            "        settled = self._settled()\n",
            "        settled = self._count\n",
            MODEL,
        ),
        (
            "certain-since-the-last-copy",
            "            self._sent_ms = self._stream.now_ms()\n            self._send()\n        else:",
            "            self._send()\n        else:",
            DIALOGUE,
        ),
        (
            "deleted-after-one-answer",
            "        if self._deleted >= DELETED_TIMES:",
            "        if self._deleted >= 1:",
            DIALOGUE,
        ),
        (
            "last-not-moved",
            "        self.last += len(self._sent)\n",
            "        self.last += 1\n",
            MODEL,
        ),
        (
            "stopped-and-goes-on",
            "    def _answered(self, answer: Published) -> None:\n        if self.stopped:\n            return\n",
            "    def _answered(self, answer: Published) -> None:\n",
            DIALOGUE,
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/ownership.py",
        (
            "an-owner-of-a-replica-behind-believed",
            '        elif got.found and got.known < last:\n            self._again("a replica is behind")\n',
            "",
            OWNERSHIP,
        ),
        (
            "a-shorter-copy-wins",
            "        elif state.last < self._confirmed():\n",
            "        elif False:\n",
            OWNERSHIP,
        ),
        (
            "an-unfinished-copy-served",
            "former.copying != self._owner.copying:",
            "False:",
            "storage/test_copying.py",
        ),
        (
            "claim-without-reading-again",
            "        else:\n            self._again(answer.text)\n\n    def _claimed",
            "        else:\n            self._claimed(answer.sequence)\n\n    def _claimed",
            OWNERSHIP,
        ),
        (
            "epoch-of-the-former",
            "self._former.epoch + 1\n",
            "self._former.epoch\n",
            OWNERSHIP,
        ),
        (
            "own-claim-not-known",
            "        if former.random and former.random == self._owner.random:",
            "        if False:",
            OWNERSHIP,
        ),
        (
            "no-quiet-time",
            "        quiet_until_ms = now_ms + QUIET_MS if needs_quiet else now_ms",
            "        quiet_until_ms = now_ms",
            MODEL,
        ),
        (
            "purged-and-claimed",
            "        elif not got.found and last:\n            self._nameless(last)\n",
            "",
            OWNERSHIP,
        ),
        (
            "taken-from-an-owner-that-is-there",
            "        if not self._is_free(former):",
            "        if False:",
            OWNERSHIP,
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/lane.py",
        (
            "a-piece-is-a-message",
            "        if self._missing or self._first is None:",
            "        if self._first is None:",
            MODEL,
        ),
        (
            "damage-in-the-last-piece-read-from-there",
            "                    self.sequence = begin.sequence\n",
            "                    pass\n",
            "storage/test_copying.py",
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/reading.py",
        (
            "a-replica-behind-believed-at-open",
            "        if got.known < self._last:\n",
            "        if False:\n",
            MODEL,
        ),
        (
            "a-replica-behind-believed-in-a-lane",
            "        elif self._pieces.sequence > self._last:\n",
            "        elif True:\n",
            MODEL,
        ),
        (
            "a-replica-behind-believed-in-a-read",
            "        elif self._is_full or self._end >= self._lane.end:\n",
            "        elif True:\n",
            MODEL,
        ),
        (
            "removed-lanes-come-back",
            "            if lane is not None and message.sequence > self._removed.get(lane, 0):\n",
            "            if lane is not None:\n",
            MODEL,
        ),
        (
            "a-replica-behind-believed-about-removals",
            '        if isinstance(got, Unreachable) or got.known < self._last:\n            text = got.text if isinstance(got, Unreachable) else "a replica is behind"\n            self._again(text, self._ask_removed)\n',
            "        if isinstance(got, Unreachable):\n            self._again(got.text, self._ask_removed)\n",
            MODEL,
        ),
        (
            "a-replica-behind-believed-about-lanes",
            '        if isinstance(got, Unreachable) or got.known < self._last:\n            text = got.text if isinstance(got, Unreachable) else "a replica is behind"\n            self._again(text, self._ask_subjects)\n',
            "        if isinstance(got, Unreachable):\n            self._again(got.text, self._ask_subjects)\n",
            MODEL,
        ),
        (
            "a-damaged-document-believed",
            "            if lanes is None or not is_intact(message):\n",
            "            if lanes is None:\n",
            MODEL,
        ),
        (
            "segments-before-not-known",
            'decode_segments(checkpoint.headers.get(SEGMENTS, ""))',
            'decode_segments("")',
            MODEL,
        ),
        (
            "damage-of-a-checkpoint-believed",
            "                if not is_intact(message):\n",
            "                if False:\n",
            MODEL,
        ),
    ),
    *mutants_of(
        "zbus/storage/format/batch.py",
        (
            "damage-of-a-replica-believed",
            "    if walk.ending is not Ending.CLEAN:\n",
            "    if False:\n",
            MODEL,
        ),
    ),
    *mutants_of(
        "zbus/storage/jetstream/engine.py",
        (
            "opened-while-something-is-under-way",
            "        self._committer.when_settled(partial(self._open, lanes, found, done))\n",
            "        self._open(lanes, found, done)\n",
            MODEL,
        ),
        (
            "purged-before-it-is-stored",
            "        self._committer.add(_Append(None, lambda _: [document], stored=stored, again=True))\n",
            "        self._committer.add(\n            _Append(None, lambda at: stored(at) or [document], again=True)\n        )\n",
            MODEL,
        ),
        (
            "a-removal-not-sent-again",
            "stored=stored, again=True)",
            "stored=stored)",
            MODEL,
        ),
        (
            "purged-for-a-renewal-that-is-not-stored",
            "            owner = msgspec.structs.replace(owner, kept=sequence)\n",
            "            owner = msgspec.structs.replace(owner, kept=sequence)\n            self._purge(self._subjects.owner, sequence)\n",
            MODEL,
        ),
        (
            "left-without-being-stored",
            "done(bool(answers))",
            "done(True)",
            MODEL,
        ),
        (
            "a-lane-made-again-not-purged-before",
            "            if lanes is None and (sequence",
            "            if known is None and lanes is None and (sequence",
            MODEL,
        ),
        (
            "removed-before-a-crash-never-purged",
            "            if lanes is None and (sequence",
            "            if False and (sequence",
            MODEL,
        ),
        (
            "removals-kept-for-ever",
            "            self._purge(self._subjects.removed, sequence)  # by",
            "            # by",
            MODEL,
        ),
        (
            "trimmed-comes-back",
            "                if before is not None:  # what",
            "                if False:  # what",
            ENGINE,
        ),
        (
            "certain-for-ever",
            "        return alive and self.unconfirmed_ms < CERTAIN_MS",
            "        return alive",
            MODEL,
        ),
        (
            "an-idle-owner-forgets-to-renew",
            "        if unconfirmed_ms >= RENEW_MS:",
            "        if False:",
            MODEL,
        ),
        (
            "late-and-waiting-for-ever",
            "            self._give_up(committer.outstanding(), Verdict.LOST)\n",
            "",
            MODEL,
        ),
        (
            "a-purge-not-noticed",
            "            if state.first > self._owner.kept and not self._committer.stopped:",
            "            if False:",
            MODEL,
        ),
        (
            "full-is-durable",
            "        self._give_up(entries, _VERDICTS.get(outcome, Verdict.LOST))\n",
            "",
            MODEL,
        ),
    ),
]
