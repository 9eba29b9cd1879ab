"""What is done for each action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from zbus.core.api import PUT_IN_FRONT, PUT_PLAIN, Changed, Group, Opening, Partition
from zbus.dialects.adf import actions
from zbus.dialects.adf.actions import PUSHES, Action
from zbus.dialects.adf.frames import Frames
from zbus.dialects.adf.line import AdfOrder
from zbus.dialects.adf.pulls import FramePull, HttpPull
from zbus.dialects.adf.request import AdfReply, AdfRequest, Fail, HttpAsked
from zbus.dialects.adf.scope import Held, Scope, in_use
from zbus.edge.bodies import reading_body
from zbus.edge.connection import Connection, Plan
from zbus.edge.guard import Answer
from zbus.edge.http_reply import TEXT, PlainHead
from zbus.edge.websocket import WebSocket


class AdfPlan:
    """Of one action on one queue."""

    __slots__ = ("asked", "broker", "context", "id", "queues", "topic")

    def __init__(self, asked: AdfRequest) -> None:
        self.asked = asked
        self.context = context = asked.context
        self.broker = context.broker
        self.queues = context.queues
        self.topic = asked.topic
        self.id = asked.id if isinstance(asked, HttpAsked) else None  # None: of the request

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        id = id if self.id is None else self.id
        if self.asked.wrong_id(id):
            self.asked.fail(peer, id, actions.REQUESTID_INVALID)
        else:
            self.do(peer, id, body)

    def do(self, peer: Connection, id: bytes, body: bytes) -> None:
        raise NotImplementedError

    def scope(self, peer: Connection) -> Scope:
        """Where the requestids of pulls are looked for."""
        if self.id is not None:
            return self.context.leases.scope
        assert isinstance(peer.framing, WebSocket)
        return cast("Frames", peer.framing.codec).line

    def refuse(self, peer: Connection, id: bytes, problem: str) -> None:
        """There is no queue, for this reason."""
        if problem is actions.FORBIDDEN:
            self.asked.forbid("", known=True).run(peer, id, b"")
        else:
            self.asked.fail(peer, id, problem)

    def make(self, peer: Connection, known: bool = False) -> str:
        """Make the queue if it is missing; why that failed, or "". `known`: it exists, and was not
        used so far."""
        if not known and not self.context.settings.adf_auto_create:
            return actions.QUEUE_UNKNOWN
        if not known and not self.asked.may_make(peer):
            return actions.FORBIDDEN
        made = Opening()
        self.queues.make(made, self.topic)
        return "" if made.problem is None else actions.text_of(made.problem)


EMPTY: Final = Answer(400, "400: the body of a push is the message", TEXT)
"""Answers of plain HTTP alone: on a WebSocket a message may be empty."""


class Push(AdfPlan):
    """`rpush`, `lpush`."""

    __slots__ = ("bytes_max", "left")

    def __init__(self, asked: AdfRequest) -> None:
        super().__init__(asked)
        self.left = asked.action is Action.LPUSH
        self.bytes_max = self.context.settings.adf_body_bytes_max

    def do(self, peer: Connection, id: bytes, body: bytes) -> None:
        if not body and self.id is not None:
            self.asked.refuse(EMPTY).run(peer, id, body)
            return
        if len(body) > self.bytes_max:
            self.asked.fail(peer, id, actions.BODY_TOO_LONG)
            return
        topic = self.broker.topics.get(self.topic.lower())
        if topic is None or topic.group(self.topic) is None:
            if problem := self.make(peer):
                self.refuse(peer, id, problem)
                return
            topic = self.broker.topics[self.topic.lower()]
        reply, partition = AdfReply(self.asked, peer, id), topic.partitions[0]
        if topic.options.calls:
            reply.fail(actions.WITHOUT_TRANSACTIONS)
        else:
            row = b"", b"", body
            self.broker.put(partition, reply, row, PUT_IN_FRONT if self.left else PUT_PLAIN)


class PullPlan(AdfPlan):
    """`pull`."""

    __slots__ = ()

    def do(self, peer: Connection, id: bytes, body: bytes) -> None:
        asked, scope = self.asked, self.scope(peer)
        if id in scope and in_use(scope, id):
            asked.fail(peer, id, actions.REQUESTID_EXISTS)
            return
        group = self.queues.find(self.topic)
        if group is None or group.options.unclaimed:
            problem = self.make(peer, known=group is not None)
            group = self.queues.find(self.topic)
            if problem or group is None:
                self.refuse(peer, id, problem or actions.QUEUE_UNKNOWN)
                return
        if not group.lease:
            asked.fail(peer, id, actions.WITHOUT_TRANSACTIONS)
            return
        pull = (
            HttpPull(asked, peer, id, scope)
            if isinstance(asked, HttpAsked)
            else FramePull(asked, peer, id, scope)
        )
        scope[id] = pull
        timeout_ms = asked.timeout_ms
        deadline_ms = self.broker.now_ms + timeout_ms if timeout_ms else None
        self.broker.pull(group, pull, deadline_ms)


class Following(AdfPlan):
    """What goes by the pulls before it: those of one WebSocket may come together with the pushes
    that they are for."""

    __slots__ = ()

    def do(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply, scope = AdfReply(self.asked, peer, id), self.scope(peer)
        if isinstance(scope, AdfOrder):
            scope.do(self, reply)
        else:
            self.finish(reply, scope)

    def awaited(self, reply: AdfReply, scope: Scope) -> Partition | None:
        """Where something is being written that may serve a pull before it."""
        return None

    def finish(self, reply: AdfReply, scope: Scope) -> None:
        """Do it now."""
        group = self.queues.find(self.topic)
        if group is None:
            reply.fail(actions.QUEUE_UNKNOWN)
        else:
            self.act(reply, scope, group)

    def act(self, reply: AdfReply, scope: Scope, group: Group) -> None:
        raise NotImplementedError


class Settle(Following):
    """`delete`, `lcancel`, `rcancel`: of what was pulled with this requestid."""

    __slots__ = ("action",)

    def __init__(self, asked: AdfRequest) -> None:
        super().__init__(asked)
        self.action = asked.action

    def awaited(self, reply: AdfReply, scope: Scope) -> Partition | None:
        pull = scope.get(reply.requestid)
        if pull is None or isinstance(pull, Held):
            return None
        group = pull.group
        self.broker.serve(group)
        taken = not pull.credit  # it is being written that it was
        if pull.open and (taken or group.ready_count()):
            return group.topic.partitions[0]
        return None

    def act(self, reply: AdfReply, scope: Scope, group: Group) -> None:
        held = scope.get(reply.requestid)
        if isinstance(held, Held) and held.group is group and held.lasts():
            del scope[reply.requestid]
            ranges = [range(held.offset, held.offset + 1)]
            if self.action is Action.DELETE:
                self.broker.ack(reply, group, held.partition, ranges)
            else:
                left = self.action is Action.LCANCEL
                self.broker.nack(reply, group, held.partition, ranges, left)
        else:
            reply.fail(actions.NOT_PULLED)


class Count(Following):
    """`count`."""

    __slots__ = ()

    def act(self, reply: AdfReply, scope: Scope, group: Group) -> None:
        # Pulls that came before it have theirs, though they are served at the end of the turn.
        count = group.ready_count()
        if group.waiting and not (group.paused or group.window_full()):
            count = max(0, count - len(group.waiting))
        reply.settle(Changed(count))


class Clear(Following):
    """`clear`."""

    __slots__ = ()

    def awaited(self, reply: AdfReply, scope: Scope) -> Partition | None:
        group = self.queues.find(self.topic)
        if group is None or not group.waiting:
            return None
        self.broker.serve(group)  # pulls that came before it have theirs
        partitions = group.topic.partitions if group.waiting else ()
        return next((one for one in partitions if one.visible < one.end), None)

    def act(self, reply: AdfReply, scope: Scope, group: Group) -> None:
        self.broker.drop_waiting(reply, group)


class Create(Following):
    """`createqueue`."""

    __slots__ = ()

    def finish(self, reply: AdfReply, scope: Scope) -> None:
        if self.queues.find(self.topic) is not None:
            reply.fail(actions.QUEUE_EXISTS)
        else:
            self.queues.make(reply, self.topic)


class Remove(Following):
    """`deletequeue`: waiting pulls are answered, and leases of its messages are void."""

    __slots__ = ()

    def finish(self, reply: AdfReply, scope: Scope) -> None:
        topic = self.broker.topic(self.topic)
        if topic is None:
            reply.fail(actions.QUEUE_UNKNOWN)
        else:
            self.broker.remove_topic(reply, topic)


_PLANS: Final[dict[Action, Callable[[AdfRequest], AdfPlan]]] = {
    Action.LPUSH: Push,
    Action.RPUSH: Push,
    Action.PULL: PullPlan,
    Action.DELETE: Settle,
    Action.LCANCEL: Settle,
    Action.RCANCEL: Settle,
    Action.COUNT: Count,
    Action.CLEAR: Clear,
    Action.CREATEQUEUE: Create,
    Action.DELETEQUEUE: Remove,
}


def plan_of(asked: PlainHead) -> Plan:
    """How it is done, what was asked in this dialect."""
    assert isinstance(asked, AdfRequest)
    if asked.action is None or asked.problem:
        return Fail(asked, asked.problem)
    plan = _PLANS[asked.action](asked)
    if asked.action in PUSHES and not asked.head.contained:
        # Its messages have no header lines, so none could say what coding a body has.
        return reading_body(asked, plan, asked.head.fields, text=False)
    return plan
