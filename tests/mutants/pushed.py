"""Bugs in what webhooks and schedules promise."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

PUSHING = "server/test_pushing.py"
NETWORKS = "wire/test_networks.py"
SCHEDULES = "conformance/test_schedules.py"

PUSHED: list[Mutant] = [
    *mutants_of(
        "zbus/server/push/pushing.py",
        (
            "webhook-failure-is-done",
            "        if not reply.error:\n            broker.ack(",
            "        if True:\n            broker.ack(",
            PUSHING,
        ),
        (
            "webhook-outage-uses-up-attempts",
            "        if self.state.streak >= STREAK:\n            most = 1",
            "        if False:\n            most = 1",
            PUSHING,
        ),
        (
            "webhook-forgets-an-open-request",
            "            pushed.open.discard((attempt.partition, attempt.offset))\n",
            "            pass\n",
            PUSHING,
        ),
        (
            "webhook-keeps-what-is-under-way-at-a-stop",
            "        for index, offset in self.open:\n",
            "        for index, offset in ():\n",
            PUSHING,
        ),
        (
            "webhook-lease-ends-before-its-request",
            "lease_ms = push.timeout_ms + LEASE_SPARE_MS",
            "lease_ms = 1_000",
            PUSHING,
        ),
    ),
    *mutants_of(
        "zbus/server/push/request.py",
        (
            "webhook-signature-without-time",
            'signed_bytes = b"%b.%d.%b" % (id, time_s, body)',
            'signed_bytes = b"%b.%b" % (id, body)',
            PUSHING,
        ),
        (
            "webhook-redirect-is-done",
            "if 200 <= status < 300:",
            "if 200 <= status < 400:",
            PUSHING,
        ),
    ),
    *mutants_of(
        "zbus/wire/networks.py",
        (
            "webhook-into-a-mapped-address",
            "        if mapped is not None:\n            address = mapped\n",
            "",
            NETWORKS,
        ),
        (
            "webhook-through-a-tunnel",
            "and not address.is_multicast and not odd",
            "and not address.is_multicast",
            NETWORKS,
        ),
    ),
    *mutants_of(
        "zbus/core/patterns/schedules.py",
        (
            "schedule-goes-on-by-itself",
            "self._completions.put_leased(into, due, occurrence, [source])",
            "self._puts.put_all(into, due, occurrence)\n        self.finish(due)",
            "core/patterns/test_schedules.py",
        ),
        (
            "schedule-ends-when-the-disk-is-full",
            "now_ms + AGAIN_MS)\n\n    def due",
            "now_ms + 9**15)\n\n    def due",
            SCHEDULES,
        ),
        (
            "schedule-reads-what-is-not-its-own",
            "if topic is not None and topic.options.notes != NOTES:",
            "if False:",
            SCHEDULES,
        ),
        (
            "schedule-into-any-partition",
            "into = target.partition_for(key) if key else known[due.at % len(known)]",
            "into = target.partition_for(key)",
            SCHEDULES,
        ),
        (
            "occurrence-is-a-schedule-when-passed-on",
            "headers = without_lines(chunk.headers[at])",
            "headers = chunk.headers[at]",
            SCHEDULES,
        ),
    ),
]
