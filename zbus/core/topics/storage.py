"""What the broker needs of storage. `zbus.storage.writer` does it over any engine.

Tests: `tests/storage/test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from zbus.core.cursor.state import StateChange
from zbus.core.log import Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.topics.topic import Group, Partition, Topic

Failed: TypeAlias = "Mapping[Partition, BrokerError]"
"""Partitions of which it is not so that all is durable, and why."""

NONE_FAILED: Final[Failed] = MappingProxyType({})


class Storage(Protocol):
    """Turns a tick's messages and changes into batches, and batches back into messages."""

    @property
    def synchronous(self) -> bool:
        """What is written is out of this process's hands: only for `synced` need one ask."""

    @property
    def memory_bytes(self) -> int:
        """What the messages of topics in memory take."""

    def write(
        self, partition: Partition, chunk: Chunk | None, change: StateChange | None, now_ms: int
    ) -> bool:
        """Append messages, then the change. False if there was no room: then nothing of them was
        written. A change that found none is in whatever is written to the partition next. After a
        crash each of the partition's puts is there as a whole, or not at all."""

    def commit(
        self, partitions: Sequence[Partition], synced: bool, done: Callable[[Failed], None]
    ) -> None:
        """Call `done` once it is known what became of everything written so far to these
        partitions: it is durable, but for those that are named. `synced`: on stable storage, else
        only out of this process's hands. One that has failed takes nothing until it is reopened."""

    def reopen(
        self,
        partitions: Sequence[Partition],
        ready: Callable[[], bool],
        done: Callable[[BrokerError | list[Group]], None],
    ) -> None:
        """Read partitions of one topic again, and make them, and the groups of the topic, what is
        stored. Calls `done` with the groups that there are not any more, or with what stands in the
        way: then nothing was changed. With partition 0 come all others of a topic. `ready` is asked
        right before anything is changed; if it says no, that is the end of it."""

    def fetch(
        self, partition: Partition, offset: int, portion: Size, done: Callable[[Found], None]
    ) -> None:
        """Read stored messages from `offset` on; may be late. At least one, if there is any; only
        within a stored batch more than `bytes_max`."""

    def fetch_raw(
        self,
        partition: Partition,
        offset: int,
        bytes_max: int,
        done: Callable[[bytes | BrokerError], None],
    ) -> None:
        """Read stored batches as they are, from the one that holds `offset` on."""

    def holds(self, partition: Partition) -> bool:
        """Whether anything of the partition is stored."""

    def roll_segment(self, partition: Partition, now_ms: int) -> bool:
        """End the newest segment if that serves the topic's retention and there is room for
        another; whether it was to end."""

    def trim_before(self, partition: Partition, now_ms: int) -> int:
        """The offset before which the topic's retention lets go of everything: where some segment
        begins that is whole and durable. 0 = of nothing."""

    def next_expiry_ms(self, partition: Partition) -> int | None:
        """When time alone makes a difference to `roll_segment` or `trim_before`; None = never."""

    def largest(self, chunk: Chunk) -> tuple[Partition, int] | None:
        """There was no room in memory for these messages: the partition in memory that takes most,
        and the offset before which a part of it goes first. None = that would not help."""

    def over_limit(self, partition: Partition) -> int:
        """The offset before which a partition in memory is more than one may keep; 0: it is not."""

    def trim(self, partition: Partition) -> None:
        """Drop whole segments before the partition's first offset, which is durable."""

    def discard(self, partition: Partition, now_ms: int) -> None:
        """Drop what is stored before the partition's first offset, safely against a crash."""

    def remove(self, topic: Topic, done: Callable[[], None]) -> None:
        """Drop a topic: at once here, after a crash wholly or not at all. Calls `done` when it
        cannot come back."""
