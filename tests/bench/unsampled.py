"""A broker that takes no samples of times, to compare with: `tests/bench/metrics_cost.py`."""

from __future__ import annotations

from typing import Any

from zbus.__main__ import main
from zbus.server.process import serve


def nothing(timings: object) -> Any:
    """Instead of a sampler."""
    return None


if __name__ == "__main__":
    vars(serve)["Sampler"] = nothing
    main()
