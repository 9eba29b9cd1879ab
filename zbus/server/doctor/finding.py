"""One line of what `zbus doctor` reports."""

from __future__ import annotations

from typing import Literal

import attrs

Level = Literal["ok", "warning", "problem"]


@attrs.frozen
class Finding:
    """What is so, how bad that is, and what to do about it."""

    check: str
    level: Level
    text: str
    advice: str = ""
