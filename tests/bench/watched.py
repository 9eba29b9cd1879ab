"""`zbus` with an eye on its collector: python -m tests.bench.watched serve ...

On SIGUSR1 it says in a line of JSON how many objects the collector looks after, how often it ran
and how long it stopped everything at most, since it was asked last.
"""

from __future__ import annotations

import gc
import json
import signal
import time
from types import FrameType

from zbus.cli import main


class Watch:
    """What the collector did."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.runs = 0
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0  # of its own, without what other processes took meanwhile
        self._began = self._began_cpu = 0.0

    def look(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began, self._began_cpu = time.perf_counter(), time.thread_time()
            return
        self.runs += 1
        self.longest_s = max(self.longest_s, time.perf_counter() - self._began)
        self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - self._began_cpu)

    def say(self, number: int, frame: FrameType | None) -> None:
        said = {
            "tracked": len(gc.get_objects()),
            "runs": self.runs,
            "longest_ms": self.longest_s * 1e3,
            "longest_cpu_ms": self.longest_cpu_s * 1e3,
        }
        self.clear()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    watch = Watch()
    gc.callbacks.append(watch.look)
    signal.signal(signal.SIGUSR1, watch.say)
    main(prog_name="zbus")
