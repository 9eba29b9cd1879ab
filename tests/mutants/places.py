"""Bugs in where a group begins, what moves it, and what words and masks say of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

SEEK = "core/verbs/test_seek.py"
DIALOGUES = "conformance/test_seek.py"
WORDS = "conformance/test_words.py"
STARTS = "conformance/test_groups_and_filters.py"

PLACES: list[Mutant] = [
    *mutants_of(
        "zbus/core/verbs/seek.py",
        (
            "seek-told-before-it-is-durable",
            "self._runs.tick.confirm_all(topic, ticket, Declared(topic, group))",
            "ticket.settle(Declared(topic, group))",
            SEEK,
        ),
        (
            "seek-of-what-is-gone",
            "if topic.partitions[0].removed or group.gone:",
            "if False:",
            DIALOGUES,
        ),
        (
            "seek-in-all-partitions",
            "chosen if start.partition is None else [chosen[start.partition]]:",
            "chosen:",
            f"{SEEK} conformance/test_partitions.py",
        ),
        (
            "seek-half-refused",
            "            self._left = 0\n            self._done(place)\n            return",
            "            self._left -= 1\n            return",
            SEEK,
        ),
        (
            "seek-wakes-nobody",
            "        runs.activate(group)",
            "        pass",
            f"{DIALOGUES} {STARTS}",
        ),
        ("latest-is-earliest", "self._found(index, partition.end)", "self._found(index, 0)", SEEK),
    ),
    *mutants_of(
        "zbus/core/verbs/declare.py",
        (
            "declare-moves-a-group",
            "        if places and not is_new and wish.start.moves:",
            "        if places and not is_new:",
            "conformance/test_declare_while_reading.py",
        ),
        (
            "declare-looks-for-a-place-in-vain",
            "(start.moves or topic is None or topic.group(self.name) is None)",
            "True",
            STARTS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/topics/declared.py",
        (
            "any-head-moves-a-group",
            "check is not None and offset is not None and params.seed",
            "offset is not None and params.seed",
            STARTS,
        ),
        (
            "a-mask-contradicts",
            "        if bool(mask & known[word]) != value:",
            "        if False:",
            WORDS,
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/params.py",
        (
            "ack-of-the-original",
            '            fields.pop(b"ack", None)  # in',
            "            pass  # in",
            WORDS,
        ),
        (
            "two-names-two-values",
            "            if (known := fields.get(name)) and known != value:",
            "            if False:",
            WORDS,
        ),
    ),
]
