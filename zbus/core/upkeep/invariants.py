"""What holds for everything that the broker knows, whatever happened. Tests ask.

Tests: `tests/core/test_broker.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from zbus.core.delivery.dispatch import Dispatch
from zbus.core.topics.topic import Topic


def check_topics(topics: Collection[Topic], dispatch: Dispatch) -> None:
    """Assert the invariants."""
    groups = {group for topic in topics for group in topic.groups.values()}
    groups.update(dispatch.endings.groups)  # some of these are gone
    assert dispatch.waiting == sum([len(list(group.pulls())) for group in groups])
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
