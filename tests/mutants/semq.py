"""Bugs in SEMQ: the variants of section 16 of its specification, and others that a person could
make. The simulation finds them, if nothing quicker does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SIMULATED = "simulation/test_semq.py::test_worlds"
INBOX = "semq/test_inbox.py"
SPECIFIED = "dialects/semq/test_specification.py"
SAVED = "simulation/test_semq.py::test_what_the_platform_has_saved_survives_a_power_cut"

SEMQ: list[Mutant] = [
    *mutants_of(
        "zbus/dialects/semq/mailboxes.py",
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
            SAVED,
        ),
        (
            "semq-resent-rows-are-forgotten",
            "            self._broker.nack(_Unheard(), mailbox.group, mailbox.partition, ranges)",
            "            self._broker.ack(_Unheard(), mailbox.group, mailbox.partition, ranges)",
            SIMULATED,
        ),
        (
            "semq-others-make-its-ids",
            """    return text.replace(":", "%3A").replace("/", "%2F")""",
            "    return text",
            "dialects/semq/test_topics.py",
        ),
        (
            "semq-a-restored-topic-keeps-its-epoch",
            ' {self.identity}"',
            '"',
            "dialects/semq/test_topics.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/rows.py",
        (
            "semq-frames-that-are-no-utf-8",
            "        _text(line) + b",
            "        line + b",
            "dialects/semq/test_topics.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/context.py",
        (
            "semq-anybody-is-the-platform",
            "        if is_platform(node):",
            "        if False:",
            "dialects/semq/test_bad_input.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/sending.py",
        (
            "semq-ack-save-before-it-is-durable",
            "        lines = MARK + passed_on(given)\n",
            "        lines = MARK + passed_on(given)\n        reply.acked(AckFlag.SAVED)\n",
            SIMULATED,
        ),
        (
            "semq-topics-store-what-is-sent-again",
            "        row = make_row(id, lines,",
            '        row = make_row(b"", lines,',
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/confirming.py",
        (
            "semq-not-received-ends-a-row",
            "            if result:\n",
            "            if True:\n",
            SIMULATED,
        ),
        (
            "semq-ack-by-the-row-alone",
            "about.matches(read_row(now, *answer).mid)",
            "True",
            SPECIFIED,
        ),
        (
            "semq-ack-by-the-mid-alone",
            "    if about.several or about.place is not None:\n        _find",
            "    if about.ranges or about.place is not None:\n        _find",
            SPECIFIED,
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/inquiring.py",
        (
            "semq-any-row-of-that-number",
            "read_row(box, chunk, at).record == about.record",
            "True",
            SPECIFIED,
        ),
        (
            "semq-says-stored-of-what-is-not",
            "    return offset is not None and mailbox.is_durable(offset)",
            "    return True",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/delivering.py",
        (
            "semq-platform-never-asks",
            "        self._asking.sent(link.node)\n",
            "",
            SIMULATED,
        ),
        (
            "semq-any-instance-is-handed-rows",
            "self._links.online(link.node)[:1] == [link] and",
            "link in self._links.online(link.node) and",
            "dialects/semq/test_delivering.py",
        ),
        (
            "semq-sent-what-it-does-not-take",
            "        elif len(body) > min(",
            "        elif False and len(body) > min(",
            "dialects/semq/test_delivering.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/semq/links.py",
        (
            "semq-silent-connections-stay",
            "        if now_ms - link.heard_ms >= SILENCE_MS:",
            "        if False:",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/inbox.py",
        (
            "semq-no-ledger",
            "        if self._ledger.add(mid, void, envelope.skips):\n            if not void:",
            "        seen = self._again(envelope, mid, source_wants)\n"
            "        if self._ledger.add(mid, void) or not seen:\n            if not void:",
            SIMULATED,
        ),
        (
            "semq-no-ack-inquiry",
            "        due_ms = context.now_ms + context.interval_ms if any(needs) else None\n",
            "        due_ms = None\n",
            SIMULATED,
        ),
        (
            "semq-cleaned-before-it-is-done",
            "DELETE FROM tb_0030 WHERE {which} AND app_state = 'DONE' AND NOT {OPEN}",
            "DELETE FROM tb_0030 WHERE {which} AND NOT {OPEN}",
            SIMULATED,
        ),
        (
            "semq-taken-for-ever",
            "        context.execute(\"UPDATE tb_0030 SET app_state = 'NEW' WHERE app_state ="
            " 'TAKEN'\")\n",
            "",
            SIMULATED,
        ),
        (
            "semq-again-is-not-told",
            "SET app_state = 'TAKEN', handed = 1 WHERE",
            "SET app_state = 'TAKEN', handed = 0 WHERE",
            SIMULATED,
        ),
        (
            "semq-released-one-too-early",
            "self._release(mid, self._ledger.of(mid).complete)",
            "self._release(mid, self._ledger.of(mid).complete + 2)",
            SIMULATED,
        ),
        (
            "semq-a-lost-disk-holds-up-for-ever",
            "                for epoch in self._ledger.former(mid):",
            "                for epoch in ():",
            INBOX,
        ),
        (
            "semq-ordered-is-as-any-other",
            '"HELD" if held else "NEW"',
            '"NEW"',
            SIMULATED,
        ),
        (
            "semq-ack2-before-the-commit",
            "        self._acks.clear()\n",
            "",
            INBOX,
        ),
        (
            "semq-who-has-left-keeps-it",
            "        for record in records:\n            row = self._context.execute(\n"
            "                \"UPDATE tb_0030 SET app_state = 'NEW'",
            "        for record in records[:0]:\n            row = self._context.execute(\n"
            "                \"UPDATE tb_0030 SET app_state = 'NEW'",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/received_ids.py",
        (
            "semq-the-oldest-numbers-are-forgotten",
            "            del self.starts[1], self.stops[0]\n",
            "            del self.starts[0], self.stops[0]\n",
            INBOX,
        ),
        (
            "semq-void-is-forgotten",
            "        if void:\n            self.void.add(given)",
            "        if False:\n            self.void.add(given)",
            INBOX,
        ),
        (
            "semq-ledger-in-memory",
            "            self._context.database.executemany(put, rows)\n",
            "",
            SIMULATED,
        ),
        (
            "semq-intervals-do-not-merge",
            "        if begin < end:",
            "        if False:",
            SIMULATED,
        ),
        (
            "semq-a-failed-step-is-remembered",
            "        self._known.clear()\n        self._changed.clear()\n",
            "        self._changed.clear()\n",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/outbox.py",
        (
            "semq-void-dies-of-attempts",
            "if most and row[1] >= most and not row[2]:",
            "if most and row[1] >= most:",
            "semq/test_outbox.py",
        ),
        (
            "semq-literal-clean",
            'if state == "SS_ACK2" or (not row[0] and ',
            'if (state == "SS_ACK2" and row[0]) or (not row[0] and ',
            SIMULATED,
        ),
        (
            "semq-ack-save-ends-what-wants-ack2",
            'if state == "SS_ACK2" or (not row[0] and ',
            'if state in ("SS_ACK2", "SS_ACK") or (not row[0] and ',
            SIMULATED,
        ),
        (
            "semq-row-by-its-mid-alone",
            'FROM tb_0031 WHERE node = ? AND epoch = ?"\n',
            'FROM tb_0031 WHERE (node = ? OR TRUE) AND epoch = ?"\n',
            SIMULATED,
        ),
        (
            "semq-row-of-any-epoch",
            'FROM tb_0031 WHERE node = ? AND epoch = ?"\n',
            'FROM tb_0031 WHERE node = ? AND (epoch = ? OR TRUE)"\n',
            SIMULATED,
        ),
        (
            "semq-ack-fwd-is-ack-save",
            'state = "SS_ACK_FWD" if flag == AckFlag.FORWARDED else "SS_ACK"',
            'state = "SS_ACK"',
            SIMULATED,
        ),
        (
            "semq-dead-leaves-a-gap",
            'missed = row["stream"] == Stream.CONTIGUOUS and ',
            'missed = row["stream"] == Stream.GAPS and ',
            SIMULATED,
        ),
        (
            "semq-level-2-goes-with-its-link",
            'kept = [row for row in rows if way == "platform" or row.confirmed]',
            "kept = [row for row in rows if row.confirmed]",
            "semq/test_outbox.py",
        ),
        (
            "semq-a-direct-backlog-in-one-step",
            "            waiting = len(link.waiting) + link.passed\n",
            "            waiting = len(link.waiting)\n",
            "semq/test_direct.py",
        ),
        (
            "semq-what-expired-was-received",
            '"it expired on its way", "NOT void") if void else None',
            '"it expired on its way", "NOT void") if False else None',
            "semq/test_outbox.py",
        ),
        (
            "semq-all-that-waits-is-sorted",
            "FROM tb_0031 INDEXED BY tb_0031_out",
            "FROM tb_0031",
            "semq/test_cost.py",
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/counters.py",
        (
            "semq-skips-do-not-come-back",
            "        for each in (range(seq, seq + 1), *read_intervals(skips)):",
            "        for each in (range(seq, seq + 1),):",
            "semq/test_counters.py",
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/inquiries.py",
        (
            "semq-asked-in-vain",
            "        elif result:\n            if seqs := ",
            "        elif result or about.single:\n            if seqs := ",
            SIMULATED,
        ),
        (
            "semq-never-asks-the-target",
            "            if (gate := self._gate(party, row[12])) is not None:",
            "            gate = self._gate(party, row[12]) if party == PLATFORM else (None, 0)\n"
            "            if gate is not None:",
            SIMULATED,
        ),
        (
            "semq-says-it-has-what-it-has-not",
            'answers = [({"result": "1"}, there), ({"result": "0"}, missing)]',
            'answers = [({"result": "1"}, there + missing)]',
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/links.py",
        (
            "semq-endpoint-keeps-silent-links",
            "            elif now_ms >= link.heard_ms + SILENCE_MS:",
            "            elif False:",
            SIMULATED,
        ),
    ),
    *mutants_of(
        "zbus/semq/endpoint/schema.py",
        (
            "semq-a-backup-keeps-its-epoch",
            '            meta["epoch"] = _epoch(random)\n',
            "",
            SIMULATED,
        ),
    ),
]
