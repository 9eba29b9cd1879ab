"""`zbus serve`: run a broker."""

from __future__ import annotations

import sys

from zbus import config
from zbus.cli.broker_options import configured


@configured
def serve(loaded: config.Config) -> None:
    """Run a broker until SIGINT or SIGTERM."""
    # Here: the other commands need neither trio nor the broker.
    if loaded.shards > 1:
        from zbus.workers.cluster.node import run
    elif loaded.workers > 1:
        from zbus.workers.local import run
    else:
        from zbus.server.process.serve import run
    sys.exit(run(loaded))
