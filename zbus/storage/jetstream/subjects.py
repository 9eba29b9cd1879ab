"""Subjects of the stream of one shard (`scale.md`, section 4.1).

    zb.<cluster>.<shard>.l.<topic>.<partition>.c    a CHECKPOINT: a segment begins
                                              .p    a STATE with all there is (SNAPSHOT)
                                              .d    DATA, and STATE beside it
                                              .s    only STATE
    zb.<cluster>.<shard>.o                          who owns the shard: the fence
    zb.<cluster>.<shard>.x                          lanes that were removed
    zb.<cluster>.live.<id>                          heartbeats; they are not stored

A topic is its lower-case name in base32: subjects may not hold all that topic names may.
"""

from __future__ import annotations

from base64 import b32decode, b32encode

from zbus.storage.port import Lane

CHECKPOINT, SNAPSHOT, DATA, STATE = "c", "p", "d", "s"


class Subjects:
    """Those of one shard."""

    def __init__(self, cluster: str, shard: int = 0) -> None:
        self._cluster = cluster
        self.shard = shard
        self.stream = f"zbus-{cluster}-{shard}"
        self._prefix = f"zb.{cluster}.{shard}."
        self.all = f"{self._prefix}>"
        self.owner = f"{self._prefix}o"
        self.removed = f"{self._prefix}x"
        self.checkpoints = f"{self._prefix}l.*.*.{CHECKPOINT}"

    def heartbeat(self, random: str) -> str:
        return f"zb.{self._cluster}.live.{random}"

    def lane(self, lane: Lane, kind: str) -> str:
        """Of one kind of messages of a lane; `*` is all of them."""
        return f"{self._prefix}l.{encode_topic(lane[0])}.{lane[1]}.{kind}"

    def kind_of(self, subject: str) -> str:
        return subject.rpartition(".")[2]

    def lane_of(self, subject: str) -> Lane | None:
        """The lane of a subject; None if it is none of a lane. The topic is in lower case."""
        parts = subject.removeprefix(self._prefix).split(".")
        if len(parts) != 4 or parts[0] != "l" or not parts[2].isdigit() or len(parts[2]) > 5:
            return None
        topic = decode_topic(parts[1])
        return None if topic is None else (topic, int(parts[2]))


def encode_topic(topic: str) -> str:
    return encode_name(topic.lower())


def encode_name(name: str) -> str:
    return b32encode(name.encode()).decode().rstrip("=").lower()


def decode_topic(token: str) -> str | None:
    padded = token.upper() + "=" * (-len(token) % 8)
    try:
        return b32decode(padded).decode()
    except ValueError:
        return None
