"""Bugs in what settles something elsewhere: dead letters, redriving, results of deliveries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SETTLING = "core/test_settling.py"

SETTLED: list[Mutant] = [
    *mutants_of(
        "zbus/store/writer.py",
        (
            "settlement-behind-its-messages",
            "            if change is not None and (change.settlements or change.settled):\n",
            "            if False:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/settlements.py",
        (
            "settlement-without-its-messages",
            "            if settlement.end <= end:\n",
            "            if True:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/settling.py",
        (
            "dead-letter-twice",
            "            known.add(settlement)\n",
            "",
            "core/test_dead_letters.py",
        ),
    ),
    *mutants_of(
        "zbus/core/keyed.py",
        (
            "key-for-two",
            "(not self.leased or self.batch == batch)",
            "True",
            "core/test_keyed.py",
        ),
    ),
    *mutants_of(
        "zbus/core/redriving.py",
        (
            "redriven-before-its-time",
            "        if due_ms > now_ms:\n",
            "        if False:\n",
            "core/test_redriving.py",
        ),
    ),
    *mutants_of(
        "zbus/core/retries.py",
        (
            "pause-too-short",
            "dispatch.tick.now_ms + pause_ms(options, attempts))",
            "dispatch.tick.now_ms + pause_ms(options, attempts) - 5)",
            "core/test_retries.py",
        ),
    ),
]
