"""What holds for everything that the broker knows, whatever happened. Tests ask.

Tests: `tests/core/test_broker.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.topics.topic import Topic


def check_topics(topics: Collection[Topic], pulls: WaitingPulls) -> None:
    """Assert the invariants."""
    groups = {group for topic in topics for group in topic.groups.values()}
    groups.update(pulls.cancelled)  # some of these are gone
    assert pulls.count == sum([len(list(group.pulls())) for group in groups])
    for topic in topics:
        for partition in topic.partitions:
            assert partition.first <= partition.visible <= partition.end
            partition.originals.check()
            if partition.ids is not None:
                partition.ids.check()
            partition.log.check()
        if topic.followed is not None:
            topic.followed.check()
        for partition in topic.partitions:
            for group in topic.groups.values():
                backlog = group.backlogs[partition.index]
                backlog.check()
                assert partition.first <= backlog.floor()
                # What is staged for a fenced partition is refused, and its backlogs read again.
                assert backlog.cursor <= partition.end or partition.fenced is not None
        for group in topic.groups.values():
            assert all(group in (session.groups or ()) for session in group.readers)
            if group.aside is not None:
                assert len(group.aside) > 0
                group.aside.check()
