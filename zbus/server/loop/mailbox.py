"""How other threads reach the broker's, and what it puts off: callables are posted, and wake the
loop."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Callables, run at the beginning of the next turn."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], None]] = deque()
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)
        self._signalled = False
        self.rang = False  # `receiver` was readable

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
        return self._signalled or self.rang

    def run(self) -> None:
        """Run what was posted."""
        # First the byte, then the flag, then the calls. A post before the flag falls is run below;
        # one after it signals again, and if it is run below, `receiver` is readable for nothing,
        # once. The other way round, the byte of a post in between is lost while the flag is up, and
        # nothing wakes the loop any more.
        try:
            self.receiver.recv(4096)
        except BlockingIOError:
            pass
        self._signalled = self.rang = False
        for _ in range(len(self._posted)):  # what these post is for the next turn
            self._posted.popleft()()
