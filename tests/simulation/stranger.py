"""A client that speaks another dialect: what all of them do with their bytes."""

from __future__ import annotations

from random import Random

from zbus.testing.simulation.network import Connection


class Stranger:
    """It pipelines, sends bytes in any pieces, and reads late."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.unsent = bytearray()
        self.received = bytearray()
        self.reads = True  # False: takes no replies for a while
        self.replies = 0

    def ask(self) -> None:
        """One request of any kind."""
        raise NotImplementedError

    def read(self) -> None:
        """Take the replies that are whole out of what was received."""
        raise NotImplementedError

    def overdue(self, now_ms: int) -> list[str]:
        """Requests that should have been answered, if the broker had all bytes and time."""
        raise NotImplementedError

    def move(self, random: Random, everything: bool = False) -> None:
        """Some bytes go out, and some replies are read."""
        if self.unsent:
            count = len(self.unsent)
            if not everything and random.random() < 0.6:
                count = random.randint(0, count)
            self.connection.send(bytes(self.unsent[:count]))
            del self.unsent[:count]
        if everything or (self.reads and random.random() < 0.9):
            few = None if everything or random.random() < 0.8 else random.randint(1, 400)
            self.received += self.connection.receive(few)
            self.read()

    def reply(self) -> tuple[int, bytes] | None:
        """Status and body of the next reply of HTTP, if it is whole; in one chunk, perhaps."""
        head, found, rest = bytes(self.received).partition(b"\r\n\r\n")
        if not found:
            return None
        size, end = 0, 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length: "):
                size = int(line[16:])
            elif line == b"transfer-encoding: chunked":
                digits, found, rest = rest.partition(b"\r\n")
                if not found:
                    return None
                size, end = int(digits, 16), len(b"\r\n0\r\n\r\n")
        if len(rest) < size + end:
            return None
        self.received[:] = rest[size + end :]
        return int(head.split()[1]), rest[:size]
