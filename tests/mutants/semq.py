"""Bugs in SEMQ: the variants of section 16 of its specification, and others that a person could
make. The simulation finds them, if nothing quicker does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SIMULATED = "simulation/test_semq.py::test_worlds"

SEMQ: list[Mutant] = [
    *mutants_of(
        "zbus/faces/semq/mailboxes.py",
        (
            "semq-volatile-platform-store",
            "    options = TopicOptions(name) if topic",
            '    options = TopicOptions(name, durability="memory") if topic',
            SIMULATED,
        ),
        (
            "semq-volatile-until-the-next-sync",
            "    options = TopicOptions(name) if topic",
            '    options = TopicOptions(name, durability="os") if topic',
            SIMULATED,
        ),
        (
            "semq-resent-rows-are-forgotten",
            "            self._broker.nack(_Unheard(), mailbox.group, mailbox.partition, ranges)",
            "            self._broker.ack(_Unheard(), mailbox.group, mailbox.partition, ranges)",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/faces/semq/sending.py",
        (
            "semq-ack-save-before-it-is-durable",
            "        lines = MARK + passed_on(said)\n",
            "        lines = MARK + passed_on(said)\n        reply.acked(AckFlag.SAVED)\n",
            SIMULATED,
        ),
        (
            "semq-level-1-is-stored",
            "    elif envelope.level == Level.DROP:",
            "    elif envelope.level == Level.DROP and not envelope.mid:",
            SIMULATED,
        ),
        (
            "semq-topics-store-what-is-sent-again",
            "    elif topic.options.remembers_ids:",
            "    elif False:",
            SIMULATED,
        ),
        (
            "semq-forwards-what-it-stores",
            "    if stored is None and not (always or late) and",
            "    if not (always or late) and",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/faces/semq/confirming.py",
        (
            "semq-not-received-ends-a-row",
            "        if result:\n",
            "        if True:\n",
            SIMULATED,
        ),
        (
            "semq-asked-for-another-row",
            "            offsets = [offset for offset in offsets if offset == offset_of(lk1)]",
            "            offsets = [offset_of(lk1) or 0]",
            SIMULATED,
        ),
        (
            "semq-says-stored-of-what-is-not",
            "    return offset is not None and mailbox.is_durable(offset)",
            "    return True",
            SIMULATED,
        ),
        (
            "semq-no-reack",
            '    _tell(call, "semq_reack", source, echoed(call.said))\n',
            "",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/faces/semq/delivering.py",
        (
            "semq-platform-never-asks",
            "        self._asking.sent(link.node)\n",
            "",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/faces/semq/links.py",
        (
            "semq-silent-connections-stay",
            "        if now_ms - link.heard_ms >= SILENCE_MS:",
            "        if False:",
            SIMULATED,
        ),
    ),
]
