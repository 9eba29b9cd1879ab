"""What has the name of something gone is told from it by when it was made."""

from __future__ import annotations

from tests.core.support import Box, CrashJournal, Probe
from zbus.core.cursor.state import GroupOptions, TopicOptions


def test_topics_and_groups_of_one_name_within_a_millisecond() -> None:
    box = Box(CrashJournal())
    made: list[tuple[int, int]] = []
    for _ in range(3):
        box.declare(TopicOptions("T"), "g", GroupOptions())
        topic, group = box.broker.topics["t"], box.group("g")
        made.append((topic.options.created_ms, group.options.created_ms))
        box.broker.remove_group(Probe(), group)
        box.broker.remove_topic(Probe(), topic)
    assert made[0][0] < made[1][0] < made[2][0]
    assert made[0][1] < made[1][1] < made[2][1]
