"""What order per key costs: a group that has it beside one with leases alone, in the same run.

Consumers take messages and acknowledge them, on a World: without sockets and disks, so that the
difference is all there is to see. Two kinds of load: many keys that are all cold, and one hot key
that every second message has.
"""

from __future__ import annotations

import time

import pytest

from tests.bench.measure import show
from tests.core.support import Box, CrashJournal, Probe, PullProbe, ranges
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.model.pull_options import PullOptions

pytestmark = pytest.mark.bench

CONSUMERS = 32
MESSAGES = 6_000
ROUNDS = 5

COLD = [b"key %d" % number for number in range(1_000)]
LOADS = {
    "cold keys": [COLD[number % 1_000] for number in range(MESSAGES)],
    "a hot key": [
        b"hot" if number % 2 else COLD[number // 2 % 1_000] for number in range(MESSAGES)
    ],
}
RATIOS_MAX = [
    ("cold keys", 1, 1.5),
    ("cold keys", 20, 1.6),
    ("a hot key", 20, 3.5),
    ("a hot key", 1, 6.0),  # a turn for each hot message: the next is free when one is settled
]


def spent_s(order: str, keys: list[bytes], batch: int) -> float:
    """Processor time until all is handed out and acknowledged."""
    box = Box(CrashJournal())
    options = GroupOptions(lease=True, lease_ms=10**9, window=999, order=order)
    box.declare(TopicOptions("T", durability="os"), "g", options)
    box.broker.finish()
    group, partition = box.group(), box.partition()
    sessions = [box.session() for _ in range(CONSUMERS)]
    messages = [Message(b"", key=key, body=b"x" * 100) for key in keys]
    box.broker.begin(box.now_ms + 1)
    box.broker.put_all(partition, Probe(), Chunk.of(messages))
    box.broker.finish()
    left, waiting = len(keys), {}
    started = time.process_time()
    while left:
        box.broker.begin(box.now_ms + 100)
        for session in sessions:
            if session not in waiting:
                waiting[session] = pull = PullProbe(session, PullOptions(batch))
                box.broker.pull(group, pull, None)
        box.broker.finish()
        box.broker.begin(box.now_ms)
        for session, pull in list(waiting.items()):
            if not pull.open:
                del waiting[session]
                offsets = [record.offset for record in pull.records]
                left -= box.broker.ack(Probe(), group, partition, ranges(offsets))
        box.broker.finish()
    return time.process_time() - started


@pytest.mark.parametrize(("load", "batch", "ratio_max"), RATIOS_MAX)
def test_order_per_key_beside_leases_alone(load: str, batch: int, ratio_max: float) -> None:
    plain, keyed = [], []
    for _ in range(ROUNDS):
        plain.append(spent_s("", LOADS[load], batch))
        keyed.append(spent_s("key", LOADS[load], batch))
    each = [min(spent) / MESSAGES * 1e6 for spent in (plain, keyed)]
    ratio = each[1] / each[0]
    show(load=load, batch=batch, leases_us=each[0], order_us=each[1], ratio=ratio)
    assert ratio <= ratio_max
