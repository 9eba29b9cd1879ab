"""Bugs in what settles something elsewhere: dead letters, redriving, results of deliveries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SETTLING = "core/patterns/test_completions.py"

SETTLED: list[Mutant] = [
    *mutants_of(
        "zbus/core/persistence/storage.py",
        (
            "completion-behind-its-messages",
            "            if change is not None and (change.completions or change.completed):\n",
            "            if False:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/open_completions.py",
        (
            "completion-without-its-messages",
            "            if completion.end <= end:\n",
            "            if True:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/patterns/completions.py",
        (
            "dead-letter-twice",
            "            known.add(completion)\n",
            "",
            "core/patterns/test_dead_letters.py",
        ),
        (
            "delayed-again-after-it-was-fired",
            "if attempts.get(offset, 0) <= self.attempts]",
            "]",
            SETTLING,
        ),
        (
            "given-back-without-being-counted",
            "                backlog.attempts[offset] = attempts + 1\n",
            "",
            SETTLING,
        ),
        (
            "settling-for-ever",
            "        known = partition.completions\n        is_open",
            "        known = None if partition.removed else partition.completions\n        is_open",
            "core/patterns/test_completions_fenced.py",
        ),
        (
            "moved-time-for-the-next-occurrence",
            "                    group.moved.pop(offset, None)\n",
            "                    pass\n",
            "core/patterns/test_schedules.py",
        ),
    ),
    *mutants_of(
        "zbus/core/topics/open_completions.py",
        (
            "closed-by-its-number",
            "        if self.open.get(completion.number) == completion:\n            del",
            "        if completion.number in self.open:\n            del",
            "core/patterns/test_completions_fenced.py",
        ),
    ),
    *mutants_of(
        "zbus/core/upkeep/fencing.py",
        (
            "dead-before-it-is-done",
            "        self._verbs.complete()",
            "        pass",
            "core/patterns/test_completions_fenced.py",
        ),
    ),
    *mutants_of(
        "zbus/core/cursor/key_order.py",
        (
            "key-for-two",
            "(not self.leased or self.batch == batch)",
            "True",
            "core/cursor/test_key_order.py",
        ),
    ),
    *mutants_of(
        "zbus/core/patterns/redrive.py",
        (
            "redriven-before-its-time",
            "        if due_ms > now_ms:\n",
            "        if False:\n",
            "core/patterns/test_redrive.py",
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/retries.py",
        (
            "pause-too-short",
            "runs.tick.now_ms + pause_ms(options, attempts))",
            "runs.tick.now_ms + pause_ms(options, attempts) - 5)",
            "core/delivery/test_retries.py",
        ),
    ),
]
