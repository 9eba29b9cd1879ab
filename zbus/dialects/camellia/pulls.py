"""Tickets of both pulls: messages, or an empty list."""

from __future__ import annotations

from typing import Final

from zbus.core.api import DONE, Delivered, Done, Empty, Group, Outcome, PullOptions, Slice
from zbus.dialects.camellia.message import DelayMsg, Status, show
from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.replies import CamelliaAnswering
from zbus.edge.connection import Connection
from zbus.edge.http_reply import PlainHead, PlainPull

EMPTY: Final = DONE
"""There is not even a group to read from."""


class PullReply(CamelliaAnswering, PlainPull):
    __slots__ = ("empty", "monitor", "topic")

    def __init__(
        self, asked: PlainHead, peer: Connection, wants: PullOptions, topic: str, monitor: Monitor
    ) -> None:
        super().__init__(asked, peer, wants)
        self.empty = "delayMsgList"
        self.topic = topic
        self.monitor = monitor

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            found = [
                message for piece in outcome.pieces for message in self._show(outcome.group, piece)
            ]
            self.peer.work -= 5 * len(found)
            self.respond_success(delayMsgList=found)
        elif isinstance(outcome, Empty | Done):
            self.respond_success(delayMsgList=[])
        else:
            super().answer(outcome)

    def _show(self, group: Group, piece: Slice) -> list[DelayMsg]:
        index, chunk, start, stop, attempts = piece
        messages = [
            show(group, group.topic, index, chunk, at, Status.CONSUMING, attempts)
            for at in range(start, stop)
        ]
        for message in messages:
            self.monitor.pulled(group, message.trigger_time)
        return messages
