"""Acknowledging a batch by its requestId, and giving it up (specification, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from zbus.core.api import BrokerError, Group, Outcome, Partition, Ranges, Silent
from zbus.dialects.mqcloud.context import MqcloudContext
from zbus.dialects.mqcloud.locks import Queue
from zbus.dialects.mqcloud.replies import BAD, FAILED, OK, MqcloudReply
from zbus.dialects.mqcloud.request_id import BROKER, RequestId, read_request_id


class AckInfo(NamedTuple):
    """What came of a requestId."""

    status: int
    message: str


Done = Callable[[AckInfo], None]

NO_ACK: Final = AckInfo(BAD, "ack illegal, there is no requestId")
_MALFORMED: Final = "requestId is not one that was given out here"


def acknowledge(
    context: MqcloudContext, reply: MqcloudReply, group: Group, value: bytes, pop: bool, done: Done
) -> None:
    """Settle what a requestId names, as far as it is the client's; tells when that is durable. Any
    requestId is answered, and none of them settles what was not delivered."""
    asked = read_request_id(value)
    if asked is None:
        done(AckInfo(FAILED, _MALFORMED))
    elif asked.problem:
        done(AckInfo(BAD, asked.problem))
    else:
        _acknowledge(context, reply, group, asked, pop, done)


def _acknowledge(
    context: MqcloudContext,
    reply: MqcloudReply,
    group: Group,
    asked: RequestId,
    pop: bool,
    done: Done,
) -> None:
    found = _find(context, group, asked, pop)
    if found is None:
        done(AckInfo(OK, f"lock not exist {asked}"))
        return
    partition, queue = found
    if partition.fenced is not None:
        done(AckInfo(FAILED, partition.fenced.text))
        return
    lock = queue.ranges.get(asked.offset) if pop else queue.lock
    if lock is None:
        # A restart has forgotten the lock, and knows the leases.
        left = _forgotten(group, partition, queue, asked, context.broker.now_ms)
        if left:
            _settle(context, reply, group, partition, left, asked, done)
        else:
            done(AckInfo(OK, f"lock not exist {asked}"))
    elif lock.pending:
        done(AckInfo(OK, f"lock not exist {asked}"))
    elif asked.lock_ms < lock.at_ms:
        done(AckInfo(OK, f"ack lockTime small than {lock.at_ms} {asked}"))
    else:
        queue.unlock(lock)
        mine = lock.open(group.progress(partition.index))
        if lock.forced:
            done(AckInfo(OK, f"ok {asked}"))
        elif asked.offset != lock.begin or not mine:
            release(context, group, partition, mine)
            text = "offset has committed" if asked.offset < lock.begin else "not the locked batch"
            done(AckInfo(OK, f"{text} {asked}"))
        else:
            # Never more than was delivered; and no more than the requestId says.
            ends = max(asked.next_offset, asked.offset)
            taken = [o for o in mine if o < ends]
            release(context, group, partition, [o for o in mine if o >= ends])
            _settle(context, reply, group, partition, taken, asked, done)


def unlock(context: MqcloudContext, group: Group, value: bytes, pop: bool) -> AckInfo:
    """Give a batch up: the next client gets it. Only the one that the requestId names, not one
    that another client has by now."""
    asked = read_request_id(value)
    if not value.strip():
        return NO_ACK
    if asked is None:
        return AckInfo(BAD, _MALFORMED)
    if asked.problem:
        return AckInfo(BAD, asked.problem)
    found = _find(context, group, asked, pop)
    if found is None:
        return AckInfo(OK, f"{asked} unlock:false")
    partition, queue = found
    lock = queue.ranges.get(asked.offset) if pop else queue.lock
    if lock is None:
        left = _forgotten(group, partition, queue, asked, context.broker.now_ms)
        release(context, group, partition, left)
        return AckInfo(OK, f"{asked} unlock:{'true' if left else 'false'}")
    if lock.pending or asked.lock_ms != lock.at_ms or asked.offset != lock.begin:
        return AckInfo(OK, f"{asked} unlock:false")
    queue.unlock(lock)
    release(context, group, partition, lock.open(group.progress(partition.index)))
    return AckInfo(OK, f"{asked} unlock:true")


def release(
    context: MqcloudContext, group: Group, partition: Partition, offsets: Iterable[int]
) -> None:
    """Hand these out again as soon as can be, in their places."""
    leased = group.progress(partition.index).leased
    left = [offset for offset in offsets if offset in leased]
    if left and partition.fenced is None:
        now_ms = context.broker.now_ms
        context.broker.extend(Silent(), group, partition, ranges_of(left), now_ms)


def ranges_of(offsets: Iterable[int]) -> Ranges:
    """Neighbours together."""
    found: list[range] = []
    for offset in sorted(offsets):
        if found and found[-1].stop == offset:
            found[-1] = range(found[-1].start, offset + 1)
        else:
            found.append(range(offset, offset + 1))
    return found


def _find(
    context: MqcloudContext, group: Group, asked: RequestId, pop: bool
) -> tuple[Partition, Queue] | None:
    """The queue that a requestId names, if there is one."""
    partitions = group.topic.partitions
    if asked.broker != BROKER or not 0 <= asked.queue < len(partitions):
        return None
    return partitions[asked.queue], context.locks.of(group)[asked.queue]


def _forgotten(
    group: Group, partition: Partition, queue: Queue, asked: RequestId, now_ms: int
) -> list[int]:
    """Those that are leased by a batch of which only the leases are known: the broker has been
    restarted since."""
    leased = group.progress(partition.index).leased
    known = {offset for lock in queue.locks() for offset in lock.offsets}
    known |= leased.settling
    ends = min(asked.next_offset, partition.recovered)
    open = [o for o in leased if asked.offset <= o < ends and o not in known]
    return [offset for offset in open if leased.due_of(offset) > now_ms]


def _settle(
    context: MqcloudContext,
    reply: MqcloudReply,
    group: Group,
    partition: Partition,
    offsets: list[int],
    asked: RequestId,
    done: Done,
) -> None:
    """A refusal is what came of the acknowledgement, and no refusal of the request."""

    def settled(outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            done(AckInfo(FAILED, outcome.text))
        else:
            done(AckInfo(OK, f"ok {asked}"))

    ticket = reply.step(settled, refusals=True)
    context.broker.ack(ticket, group, partition, ranges_of(offsets))
