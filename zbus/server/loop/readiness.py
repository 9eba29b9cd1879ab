"""Which sockets are ready, cheaply: epoll itself where there is one, `selectors` elsewhere.

`selectors` builds an object for every event that it reports. Here an event is the registered
target and a mask, which saves a tenth of what the loop costs for a request.
"""

from __future__ import annotations

import selectors
import sys
from typing import Any

READ = 1
WRITE = 4
"""The bits of an event, the ones of epoll. An error or hang-up counts as READ: reading tells."""

GONE = 1 << 13
"""The peer sends no more, whatever of it is not read yet. Only Linux tells that."""

Events = list[tuple[Any, int]]
"""What is ready: target and mask."""

if sys.platform == "linux":
    import select

    assert (READ, WRITE, GONE) == (select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP)

    class Readiness:
        def __init__(self) -> None:
            self._epoll = select.epoll()
            self._targets: dict[int, object] = {}

        def fileno(self) -> int:
            """Readable when anything is ready."""
            return self._epoll.fileno()

        def watch(self, file: int, events: int, target: object) -> None:
            """Report these events of a file, from now on instead of any before; 0 = none."""
            if not events:
                if self._targets.pop(file, None) is not None:
                    self._epoll.unregister(file)
            elif file in self._targets:
                self._epoll.modify(file, events)
            else:
                self._epoll.register(file, events)
                self._targets[file] = target

        def wait(self, seconds: float, events_max: int) -> Events:
            """What is ready, at most that many, after at most that long."""
            targets = self._targets
            return [(targets[file], mask) for file, mask in self._epoll.poll(seconds, events_max)]

        def close(self) -> None:
            self._epoll.close()

else:

    class Readiness:
        def __init__(self) -> None:
            self._selector: Any = selectors.DefaultSelector()

        def fileno(self) -> int:
            return int(self._selector.fileno())

        def watch(self, file: int, events: int, target: object) -> None:
            known = file in self._selector.get_map()
            wanted = (selectors.EVENT_READ if events & READ else 0) | (
                selectors.EVENT_WRITE if events & WRITE else 0
            )
            if not wanted:
                if known:
                    self._selector.unregister(file)
            elif known:
                self._selector.modify(file, wanted, target)
            else:
                self._selector.register(file, wanted, target)

        def wait(self, seconds: float, events_max: int) -> Events:
            ready = self._selector.select(seconds)[:events_max]
            return [
                (
                    key.data,
                    (READ if mask & selectors.EVENT_READ else 0)
                    | (WRITE if mask & selectors.EVENT_WRITE else 0),
                )
                for key, mask in ready
            ]

        def close(self) -> None:
            self._selector.close()
