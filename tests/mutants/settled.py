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
            "return backlog.attempts.get(offset, 0) == self.attempts - (not leased)",
            "return True",
            SETTLING,
        ),
        (
            "not-delayed-when-its-lease-was-lost",
            " - (not leased)",
            "",
            SETTLING,
        ),
        (
            "not-delayed-when-it-was-held",
            "if not self.due_ms or offset in backlog.leased.settling:",
            "if not self.due_ms:",
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
