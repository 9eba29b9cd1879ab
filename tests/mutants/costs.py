"""Bugs in what a mistake of the program costs, and in what may be used a second."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

FAULTS = "server/test_faults.py"
QUOTAS = "core/model/test_rate_limit.py"
DIALOGUES = "conformance/test_quotas.py"

MISTAKES: list[Mutant] = [
    *mutants_of(
        "zbus/core/commit/tick.py",
        (
            "puts-of-a-fault-never-answered",
            "            if ticket.open:\n                ticket.settle(why)\n",
            "            pass\n",
            FAULTS,
        ),
        (
            "unborn-after-a-fault",
            "        if partition.topic.born or self._storage.holds(partition):",
            "        if True:",
            FAULTS,
        ),
    ),
    *mutants_of(
        "zbus/core/model/ticket.py",
        (
            "answer-without-a-guard",
            "        except Exception as error:\n            self.failed(error)",
            "        except ZeroDivisionError as error:\n            self.failed(error)",
            FAULTS,
        ),
    ),
    *mutants_of(
        "zbus/core/upkeep/fencing.py",
        (
            "faulty-session-stays",
            "            self.to_drop.append(culprit)\n",
            "",
            FAULTS,
        ),
        (
            "faulty-group-waits-on",
            "            self._pulls.cancel(culprit, fenced(*zero.lane, INTERNAL))\n",
            "",
            FAULTS,
        ),
    ),
    *mutants_of(
        "zbus/core/model/containment.py",
        (
            "doubt-passed-over",
            "            self.doubt = InDoubt(",
            "            self.told = InDoubt(",
            FAULTS,
        ),
    ),
    *mutants_of(
        "zbus/core/persistence/storage.py",
        (
            "memory-read-from-the-disk",
            "        engine = self._engine(partitions[0])\n        engine.commit(lanes, False",
            "        engine = self._durable\n        engine.commit(lanes, False",
            FAULTS,
        ),
    ),
]

USE: list[Mutant] = [
    *mutants_of(
        "zbus/core/model/rate_limit.py",
        (
            "an-hour-saved-up",
            "min(self.per_s * _PARTS, self._level + passed_ms * self.per_s)",
            "self._level + passed_ms * self.per_s",
            QUOTAS,
        ),
        (
            "batch-costs-one",
            "        self._level -= count * _PARTS",
            "        self._level -= min(count, 1) * _PARTS",
            QUOTAS,
        ),
    ),
    *mutants_of(
        "zbus/edge/quotas.py",
        (
            "closed-connections-count",
            "        self._connections.pop(session, None)",
            "        pass",
            DIALOGUES,
        ),
    ),
    *mutants_of(
        "zbus/edge/access.py",
        (
            "connections-forgotten-with-the-table",
            "self._meters.get(grant.name) or Meter(grant.limits)",
            "Meter(grant.limits)",
            DIALOGUES,
        ),
    ),
]

COSTS = [*MISTAKES, *USE]
