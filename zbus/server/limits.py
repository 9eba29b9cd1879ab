"""What one turn of the loop, and one connection, may take."""

from __future__ import annotations

import attrs


@attrs.frozen
class LoopLimits:
    """See `zbus.config` for the options of the same names."""

    tick_events_max: int = 1_024
    tickets_per_connection_max: int = 1_024
    output_bytes_max: int = 256 << 10
    drain_timeout_ms: int = 5_000
