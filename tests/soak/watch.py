"""What a broker takes over time: resident memory, processor time, descriptors."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.bench.measure import cpu_seconds, resident_bytes

LOOK_S: Final = 0.1


class Look(NamedTuple):
    at_s: float  # of the monotonic clock
    resident_bytes: int
    cpu_s: float
    descriptors: int


class Watch(threading.Thread):
    """Looks ten times a second."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.looks: list[Look] = []
        self._over = threading.Event()
        self._clock = clock

    def look(self) -> Look:
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        return Look(self._clock(), resident_bytes(self.pid), cpu_seconds(self.pid), descriptors)

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self.looks.append(self.look())
            except OSError:
                return  # the broker is gone: whoever started it says so

    def between(self, begin_s: float, end_s: float) -> list[Look]:
        return [look for look in self.looks if begin_s <= look.at_s <= end_s]

    def forget(self, before_s: float) -> None:
        self.looks = [look for look in self.looks if look.at_s >= before_s]

    def peak_bytes(self, begin_s: float, end_s: float) -> int:
        return max((look.resident_bytes for look in self.between(begin_s, end_s)), default=0)

    def median_bytes(self, begin_s: float, end_s: float) -> int:
        found = [look.resident_bytes for look in self.between(begin_s, end_s)]
        return int(statistics.median(found)) if found else 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self.join()
