"""Bugs in what MQCloud promises: who holds a queue, and what a requestId is worth."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SIMULATED = "simulation/test_dialects.py::test_mqcloud"
LOCKS = "dialects/mqcloud/test_locks.py"
HOLDERS = "dialects/mqcloud/test_holders.py"

MQCLOUD: list[Mutant] = [
    *mutants_of(
        "zbus/dialects/mqcloud/acking.py",
        (
            "unlock-by-a-stale-id",
            "if lock.pending or asked.lock_ms != lock.at_ms or asked.offset != lock.begin:",
            "if lock.pending:",
            SIMULATED,
        ),
        (
            "ack-by-a-stale-id",
            "elif asked.lock_ms < lock.at_ms:",
            "elif False:",
            SIMULATED,
        ),
        (
            "ack-believes-the-next-offset",
            "taken = [o for o in mine if o < ends]",
            "taken = list(range(lock.begin, min(ends, partition.visible)))",
            SIMULATED,
        ),
        (
            "ack-of-another-offset",
            "elif asked.offset != lock.begin or not mine:",
            "elif not mine:",
            SIMULATED,
        ),
        (
            "ack-settles-after-a-reset",
            "mine = lock.open(group.progress(partition.index))",
            "mine = list(lock.offsets)",
            SIMULATED,
        ),
        (
            "ack-keeps-the-lock",
            "        _unlock(queue, lock)\n        mine =",
            "        mine =",
            SIMULATED,
        ),
        (
            "rest-of-a-batch-is-not-given-back",
            "            release(context, group, partition, [o for o in mine if o >= ends])\n",
            "",
            HOLDERS,
        ),
        (
            "unlock-gives-nothing-back",
            "    release(context, group, partition, lock.open(group.progress(partition.index)))\n",
            "",
            SIMULATED,
        ),
        (
            "restart-and-any-id-reaches-all",
            "    known |= leased.settling\n",
            "    known = leased.settling\n",
            HOLDERS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/mqcloud/locks.py",
        (
            "ack-settles-what-another-was-handed-since",
            "            if attempts.get(offset) == count\n            and ",
            "            if attempts.get(offset)\n            and ",
            HOLDERS,
        ),
        (
            "ack-settles-what-another-holds",
            "leased.holders.get(offset, holder) == holder",
            "offset not in leased.settling",
            HOLDERS,
        ),
        (
            "ack-settles-what-was-handed-out-after-a-reset",
            "if leased is not self._leased:",
            "if self._leased is None:",
            HOLDERS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/mqcloud/consuming.py",
        (
            "lock-kept-when-paused",
            "        if group.paused:\n",
            "        if group.paused:\n"
            "            queue.lock = Lock(broker.now_ms, broker.now_ms + self._lease_ms)\n"
            "            queue.lock.pending = False\n",
            SIMULATED,
        ),
        (
            "lock-kept-when-empty",
            "        self.give_up()\n        if not isinstance(outcome, Empty):",
            "        if not isinstance(outcome, Empty):",
            SIMULATED,
        ),
        (
            "lock-kept-when-nobody-is-there",
            "        super().drop()\n        self._consumption.give_up()",
            "        super().drop()",
            SIMULATED,
        ),
        (
            "queue-taken-that-is-held",
            "        while self._left and not self._is_free(self._left[-1]):",
            "        while False:",
            HOLDERS,
        ),
        (
            "request-id-without-messages",
            "        self.give_up()\n        if not isinstance(outcome, Empty):\n",
            "        lock = self._lock\n        self.give_up()\n"
            "        if isinstance(outcome, Empty) and outcome.reason is EmptyReason.DRAINED:\n"
            "            self._respond(NO_NEW_MSG, lock)\n"
            "        elif not isinstance(outcome, Empty):\n",
            SIMULATED,
        ),
        (
            "next-one-short",
            "lock.next = max(lock.offsets) + 1",
            "lock.next = max(lock.offsets)",
            SIMULATED,
        ),
        (
            "begins-when-it-was-asked-for",
            "lock.begin_at(now_ms, now_ms + self._lease_ms, backlog, self.reply.peer.id)",
            "lock.begin_at(lock.at_ms, lock.ends_ms, backlog, self.reply.peer.id)",
            HOLDERS,
        ),
        (
            "consume-timeout-is-the-groups",
            "lease_ms = timeout_s * 1_000 or consumer.consume_timeout_ms",
            "lease_ms = consumer.consume_timeout_ms",
            LOCKS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/mqcloud/locks.py",
        (
            "lock-that-never-lapses",
            "return self.pending or now_ms < self.ends_ms",
            "return True",
            SIMULATED,
        ),
        (
            "range-keeps-what-others-have",
            "if not taken.isdisjoint(other.offsets):",
            "if not taken.isdisjoint(other.offsets) and not other.held(now_ms):",
            HOLDERS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/mqcloud/ids.py",
        (
            "order-id-without-its-sign",
            "return abs(java_hash(order_id)) % queues",
            "return (java_hash(order_id) & 0xFFFFFFFF) % queues",
            "dialects/mqcloud/test_ids.py dialects/test_rows.py",
        ),
    ),
]
