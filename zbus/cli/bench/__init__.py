"""`zbus bench`: put load on a broker and say what it did.

The generator shares the machine with the broker, so its own cost is the first concern: one thread
per process, one loop over non-blocking sockets, requests made of prebuilt bytes, replies counted
rather than parsed. Use it from Python as `run_load(Options(...))`.
"""

from zbus.cli.bench.options import Options
from zbus.cli.bench.report import Phase, Report
from zbus.cli.bench.run import run_load

__all__ = ["Options", "Phase", "Report", "run_load"]
