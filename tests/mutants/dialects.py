"""Bugs in what Adf and camellia promise: whose a message is, in which order it comes, and when."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

ADF = "simulation/test_dialects.py::test_adf"
CAMELLIA = "simulation/test_dialects.py::test_camellia"

DIALECTS: list[Mutant] = [
    *mutants_of(
        "zbus/core/cursor/return_order.py",
        (
            "block-returns-in-the-wrong-order",
            "        at = self._back.bisect_left(label)\n        if not at:",
            "        at = self._back.bisect_left(label)\n        if at >= 0:",
            ADF,
        ),
        (
            "what-is-in-front-of-what-came-back-is-behind-it",
            "        if not back or place is None or following < 0:",
            "        if True:",
            "core/cursor/test_return_order.py",
        ),
        (
            "no-label-is-left",
            "        if above - below < 2:",
            "        if False:",
            "core/cursor/test_return_order.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/adf/plans.py",
        (
            "cancel-at-the-other-end",
            "left = self.action is Action.LCANCEL",
            "left = self.action is Action.RCANCEL",
            ADF,
        ),
        (
            "push-at-the-other-end",
            "self.left = asked.action is Action.LPUSH",
            "self.left = asked.action is Action.RPUSH",
            ADF,
        ),
        (
            "requestid-used-twice",
            "if id in scope and in_use(scope, id):",
            "if False:",
            ADF,
        ),
    ),
    *mutants_of(
        "zbus/dialects/adf/request.py",
        (
            "websocket-keeps-what-it-held",
            'WEBSOCKET_WANTS: Final = PullOptions(lease_ms=ENDLESS_MS, on_loss="front")',
            'WEBSOCKET_WANTS: Final = PullOptions(lease_ms=ENDLESS_MS, on_loss="keep")',
            ADF,
        ),
        (
            "http-lease-for-ever",
            'PullOptions(lease_ms=self.lease_ms, on_loss="keep")',
            'PullOptions(lease_ms=ENDLESS_MS, on_loss="keep")',
            ADF,
        ),
    ),
    *mutants_of(
        "zbus/dialects/adf/pulls.py",
        (
            "duplications-one-behind",
            "max(attempts - 1, 0) + first",
            "max(attempts - 2, 0) + first",
            ADF,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/changes.py",
        (
            "made-again-at-the-same-time",
            "return max(now_ms, self.gone_ms + 1)",
            "return now_ms",
            "core/topics/test_made_again.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/camellia/messages.py",
        (
            "delay-a-little-short",
            "due_ms = broker.request_clock.received_ms() + delay_ms if delay_ms else 0",
            "due_ms = broker.request_clock.received_ms() + delay_ms * 9 // 10 if delay_ms else 0",
            CAMELLIA,
        ),
        (
            "ttl-from-the-beginning",
            "expires_ms = min((due_ms or broker.now_ms) + ttl_ms, NEVER_MS)",
            "expires_ms = min(broker.now_ms + ttl_ms, NEVER_MS)",
            CAMELLIA,
        ),
        (
            "one-retry-more",
            "attempts_max = 1 + min(",
            "attempts_max = 2 + min(",
            CAMELLIA,
        ),
        (
            "ack-of-what-nobody-has",
            "if backlog.life(offset) is MessageState.LEASED and offset not in backlog.leased.settling:",
            "if backlog.life(offset) is not MessageState.DONE:",
            CAMELLIA,
        ),
    ),
    *mutants_of(
        "zbus/core/delivery/dispatch.py",
        (
            "expired-and-handed-out",
            "elif chunk.expires is not None and 0 < chunk.expires[at] <= now_ms:",
            "elif False:",
            CAMELLIA,
        ),
    ),
    *mutants_of(
        "zbus/core/topics/topic.py",
        (
            "id-taken-after-the-end",
            "            if backlog.life(offset) is not MessageState.DONE:\n                return TAKEN",
            "            if backlog.life(offset) is not None:\n                return TAKEN",
            CAMELLIA,
        ),
        (
            "id-free-while-it-is-leased",
            "            if backlog.life(offset) is not MessageState.DONE:\n                return TAKEN",
            "            if backlog.life(offset) is MessageState.READY:\n                return TAKEN",
            CAMELLIA,
        ),
    ),
]
