"""What a backlog is, written so that it is obviously right: a list with a record per offset.

Nothing here is fast, and nothing is a shortcut: the next message is looked for in the whole list.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from zbus.core.model.message_state import MessageState


@dataclass
class OneMessage:
    """One offset. `rank` is None for what was never taken: the cursor will come to it."""

    life: MessageState = MessageState.READY
    rank: int | None = None
    time_ms: int = 0  # the deadline of a lease, the end of a delay
    serial: int = 0  # of the last change, to order what is equal otherwise
    attempts: int = 0


class BacklogModel:
    """The log as far as it was ever grown, all of it."""

    def __init__(self) -> None:
        self.log: list[OneMessage] = []
        self.serial = 0

    @property
    def end(self) -> int:
        return len(self.log)

    def lives(self) -> list[MessageState]:
        return [message.life for message in self.log]

    def offsets(self, *lives: MessageState) -> list[int]:
        return [offset for offset, message in enumerate(self.log) if message.life in lives]

    def cursor(self) -> int:
        """The first offset that was never taken."""
        fresh = [
            offset for offset in self.offsets(MessageState.READY) if self.log[offset].rank is None
        ]
        return fresh[0] if fresh else self.end

    def next(self, end: int) -> int | None:
        cursor = self.cursor()
        put_back = sorted(
            (message.rank, message.serial, offset)
            for offset, message in enumerate(self.log)
            if message.life is MessageState.READY and message.rank is not None and offset < end
        )
        if put_back and put_back[0][0] <= cursor:
            return put_back[0][2]
        return cursor if cursor < end else None

    def floor(self) -> int:
        return min(
            self.offsets(MessageState.READY, MessageState.LEASED, MessageState.DELAYED),
            default=self.end,
        )

    def next_wake(self) -> int:
        waiting = self.offsets(MessageState.LEASED, MessageState.DELAYED)
        return min((self.log[offset].time_ms for offset in waiting), default=0)

    # -- steps ----------------------------------------------------------------------------

    def _change(
        self, offset: int, life: MessageState, rank: int | None = None, time_ms: int = 0
    ) -> None:
        self.serial += 1
        message = self.log[offset]
        message.life, message.rank, message.time_ms = life, rank, time_ms
        message.serial = self.serial

    def finish(self, offset: int) -> bool:
        if self.log[offset].life is MessageState.DONE:
            return False
        self._change(offset, MessageState.DONE)
        self.log[offset].attempts = 0
        return True

    def finish_tried(self, offsets: range) -> int:
        tried = [o for o in offsets if o < self.end and self.log[o].attempts]
        return sum([self.finish(offset) for offset in tried])

    def finish_all(self, offsets: range) -> int:
        return sum([self.finish(offset) for offset in offsets])

    def lease(self, offset: int, deadline_ms: int) -> int:
        self._change(offset, MessageState.LEASED, time_ms=deadline_ms)
        self.log[offset].attempts += 1
        return self.log[offset].attempts

    def extend(self, offset: int, deadline_ms: int) -> bool:
        if self.log[offset].life is not MessageState.LEASED:
            return False
        self._change(offset, MessageState.LEASED, time_ms=deadline_ms)
        return True

    def delay(self, offset: int, due_ms: int) -> None:
        self._change(offset, MessageState.DELAYED, time_ms=due_ms)

    def put_front(self, offset: int) -> None:
        others = [
            message.rank
            for at, message in enumerate(self.log)
            if at != offset and message.life is MessageState.READY and message.rank is not None
        ]
        self._change(offset, MessageState.READY, rank=min([0, *others]) - 1)

    def again(self, offset: int) -> None:
        self.put_front(offset)
        self.log[offset].attempts = 0

    def put_end(self, offset: int) -> None:
        self._change(offset, MessageState.READY, rank=self.end)

    def _in_time(self, life: MessageState) -> list[int]:
        """Of equal times, the lease that was set first, and the delay of the lowest offset."""

        def key(offset: int) -> tuple[int, int]:
            message = self.log[offset]
            return message.time_ms, message.serial if life is MessageState.LEASED else offset

        return sorted(self.offsets(life), key=key)

    def wake(self, now_ms: int) -> None:
        ended = [o for o in self._in_time(MessageState.LEASED) if self.log[o].time_ms <= now_ms]
        due = [o for o in self._in_time(MessageState.DELAYED) if self.log[o].time_ms <= now_ms]
        for offset in ended:
            self._change(offset, MessageState.READY, rank=offset)
        for offset in due:
            self.put_end(offset)

    def drop_waiting(self) -> int:
        return sum(
            [
                self.finish(offset)
                for offset in self.offsets(MessageState.READY, MessageState.DELAYED)
            ]
        )

    def seek(self, cursor: int) -> None:
        self.log = [
            OneMessage(MessageState.DONE if offset < cursor else MessageState.READY)
            for offset in range(self.end)
        ]

    def rewind(self, cursor: int) -> None:
        self.log[cursor:] = [OneMessage() for _ in self.log[cursor:]]

    def fall_off(self, first: int) -> int:
        unfinished = self.offsets(MessageState.READY, MessageState.LEASED, MessageState.DELAYED)
        return sum(self.finish(offset) for offset in unfinished if offset < first)

    def truncate(self, end: int) -> None:
        del self.log[end:]
        for message in self.log:
            if message.rank is not None:
                message.rank = min(message.rank, end)

    def become_a_copy(self) -> None:
        """Of itself, as another group starts from it: what was handed out is back at its place."""
        leased = sorted(
            self.offsets(MessageState.LEASED), key=lambda offset: self.log[offset].serial
        )
        for offset in leased:
            self._change(offset, MessageState.READY, rank=offset)
        for message in self.log:
            message.attempts = 0

    def drain(self) -> list[int]:
        """The order in which everything comes from here on, leases and delays ended at last."""
        rest = copy.deepcopy(self)
        order = []
        for now_ms in (0, 1 << 60):
            rest.wake(now_ms)
            while (offset := rest.next(rest.end)) is not None:
                order.append(offset)
                rest.finish(offset)
        return order
