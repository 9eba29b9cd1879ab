"""How other threads reach the broker's: they post callables, and wake the loop."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Callables from other threads, run at the beginning of the next turn."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], None]] = deque()
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)
        self._signalled = False

    def post(self, call: Callable[[], None]) -> None:
        """Thread-safe."""
        self._posted.append(call)
        if not self._signalled:
            self._signalled = True
            try:
                self._sender.send(b"\0")
            except OSError:
                pass  # full: the loop is awake anyway; closed: there is no loop any more

    def close(self) -> None:
        self.receiver.close()
        self._sender.close()

    @property
    def signalled(self) -> bool:
        return self._signalled

    def run(self) -> None:
        """Run what was posted."""
        # First the flag, then the byte, then the calls: a post in between signals again. Its byte
        # may also come after its call was run; then `receiver` is readable for nothing, once.
        self._signalled = False
        try:
            self.receiver.recv(4096)
        except BlockingIOError:
            pass
        while self._posted:
            self._posted.popleft()()
