"""When batches of a stream begin, and how large they are."""

from __future__ import annotations

from typing import Any

import pytest

from zbus.spark.etl.pace import Pace


@pytest.mark.parametrize(
    ("said", "trigger", "options"),
    [
        ({}, {}, {}),
        ({"once": True}, {"availableNow": True}, {}),
        ({"interval": "5m"}, {"processingTime": "300000 milliseconds"}, {}),
        (
            {"once": True, "batch_bytes": "2KiB"},
            {"availableNow": True},
            {"maxBytesPerTrigger": "2048"},
        ),
        (
            {"rate": "1KiB/s"},
            {"processingTime": "1000 milliseconds"},
            {"maxBytesPerTrigger": "1024"},
        ),
        (
            {"rate": "1KiB", "interval": "30s"},
            {"processingTime": "30000 milliseconds"},
            {"maxBytesPerTrigger": "30720"},
        ),
        (
            {"rate": "1", "interval": "1ms"},
            {"processingTime": "1 milliseconds"},
            {"maxBytesPerTrigger": "1"},
        ),
    ],
)
def test_what_spark_is_told(
    said: dict[str, Any], trigger: dict[str, Any], options: dict[str, str]
) -> None:
    pace = Pace(checkpoint="c", **said)
    pace.check_pace()
    assert (pace.trigger(), pace.source_options()) == (trigger, options)
