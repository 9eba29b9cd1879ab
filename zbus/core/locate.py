"""Finding a place in a partition's log, by offset or by time, while the log is read elsewhere.

Reads answer now or later, so a search is a small object that goes on when its read came.
"""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.errors import BrokerError, offset_outside, offset_unknown
from zbus.core.message import Message
from zbus.core.recorder import Found, Recorder, Size
from zbus.core.topic import Partition

_ONE = Size(bytes_max=1, count_max=1)


def lookup(
    recorder: Recorder,
    partition: Partition,
    offset: int,
    done: Callable[[Message | BrokerError], None],
) -> None:
    """The message at an offset."""
    if offset < partition.first:
        done(offset_outside(partition.index, partition.first, partition.visible))
        return
    if offset >= partition.visible:
        done(offset_unknown(offset))
        return
    message = partition.cache.get(offset)
    if message is not None:
        done(message)
        return

    def found(messages: Found) -> None:
        if isinstance(messages, BrokerError):
            done(messages)
        elif messages and messages[0][0] <= offset <= messages[-1][0]:
            done(messages[offset - messages[0][0]][1])
        elif offset < partition.first:
            done(offset_outside(partition.index, partition.first, partition.visible))
        else:
            done(offset_unknown(offset))

    recorder.fetch(partition, offset, _ONE, found)


class TimeSearch:
    """Binary search for the first message produced at or after `time_ms`; `done` gets its offset,
    the end of the log if there is none. Produced times never fall along a log."""

    def __init__(
        self,
        recorder: Recorder,
        partition: Partition,
        time_ms: int,
        done: Callable[[int | BrokerError], None],
    ) -> None:
        self._recorder = recorder
        self._partition = partition
        self._time_ms = time_ms
        self._done = done
        self._low = partition.first  # everything before it is older
        self._high = partition.visible  # it, and everything after it, is not
        self._step()

    def _step(self) -> None:
        if self._low >= self._high:
            self._done(self._low)
            return
        self._middle = (self._low + self._high) // 2
        lookup(self._recorder, self._partition, self._middle, self._found)

    def _found(self, message: Message | BrokerError) -> None:
        if isinstance(message, BrokerError):
            if self._middle >= self._partition.first:
                self._done(message)
                return
            self._low = self._partition.first  # forgotten meanwhile
        elif message.produced_ms < self._time_ms:
            self._low = self._middle + 1
        else:
            self._high = self._middle
        self._step()
