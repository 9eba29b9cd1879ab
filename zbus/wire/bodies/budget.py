"""How much the bodies that are on their way in may take, of all connections together."""

from __future__ import annotations


class Budget:
    """Bytes. One more connection is always let in; only a body that would grow past the budget is
    refused, and gives back what it took: so those that are further along come to their end."""

    __slots__ = ("bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0

    def take(self, count: int) -> bool:
        """Count `count` more bytes as held; False, and nothing is counted, if that is too many."""
        if self.bytes_used + count > self.bytes_max:
            return False
        self.bytes_used += count
        return True

    def give_back(self, count: int) -> None:
        self.bytes_used -= count
