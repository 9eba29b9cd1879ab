"""Bugs in what settles something elsewhere: dead letters, redriving, results of deliveries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SETTLING = "core/patterns/test_put_and_ack.py"

SETTLED: list[Mutant] = [
    *mutants_of(
        "zbus/core/persistence/storage.py",
        (
            "settlement-behind-its-messages",
            "            if change is not None and (change.settlements or change.settled):\n",
            "            if False:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/pending_acks.py",
        (
            "settlement-without-its-messages",
            "            if settlement.end <= end:\n",
            "            if True:\n",
            SETTLING,
        ),
    ),
    *mutants_of(
        "zbus/core/patterns/put_and_ack.py",
        (
            "dead-letter-twice",
            "            known.add(settlement)\n",
            "",
            "core/patterns/test_dead_letters.py",
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
