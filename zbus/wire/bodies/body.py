"""What has come of a body, or of a message in fragments, until it is complete.

A buffer that grows is moved to a larger place again and again, and when hundreds grow by turns, the
places that they left are too small for any of them: 400 bodies of 16 MiB within a budget of 256 MiB
took 440 MB. So a body is kept in blocks of one size that never move: where one was, another fits.
What was read in one go is of that size, too: it is such a block as it is, without a copy.
"""

from __future__ import annotations

BLOCK_BYTES = 64 << 10
"""As much as the loop reads at once."""


class Body:
    """Pieces in, bytes out. Small pieces are joined in the blocks, so they cost no object each."""

    __slots__ = ("_full", "_last", "_room", "size")

    def __init__(self) -> None:
        self._full: list[bytes | bytearray | memoryview] = []  # blocks to which nothing is added
        self._last = bytearray()
        self._room = BLOCK_BYTES  # in the last block
        self.size = 0  # bytes so far

    def add(self, piece: bytes | bytearray) -> None:
        """Take what came next."""
        size = len(piece)
        self.size += size
        if size == BLOCK_BYTES and type(piece) is bytes:
            self._end_block()
            self._full.append(piece)
            return
        if size <= self._room and not self._full:  # it grows: most bodies are small
            self._last += piece
            self._room -= size
            return
        at = 0
        while at < size:
            if not (self._room and self._last):
                self._end_block()
                self._last = bytearray(BLOCK_BYTES)
            part = piece[at : at + self._room]
            begin = BLOCK_BYTES - self._room
            self._last[begin : begin + len(part)] = part
            self._room -= len(part)
            at += len(part)

    def _end_block(self) -> None:
        """The last block is as full as it will be."""
        if self._last:
            last = self._last
            self._full.append(memoryview(last)[: BLOCK_BYTES - self._room] if self._room else last)
        self._last, self._room = bytearray(), BLOCK_BYTES

    @property
    def taken(self) -> int:
        """Bytes of memory: the first block grows, others are whole from the start."""
        full = len(self._full)
        return (full + bool(self._last)) * BLOCK_BYTES if full else self.size

    @property
    def data(self) -> bytes:
        """All of it, put together."""
        return b"".join((*self._full, memoryview(self._last)[: BLOCK_BYTES - self._room]))
