"""What has come of a body, or of a message in fragments, until it is complete.

A buffer that grows is moved to a larger place again and again, and when hundreds grow by turns, the
places that they left are too small for any of them: 400 bodies of 16 MiB within a budget of 256 MiB
took 440 MB. So a body is kept in blocks of one size that never move: where one was, another fits.
"""

from __future__ import annotations

BLOCK_BYTES = 64 << 10
"""As much as the loop reads at once."""


class Body:
    """Pieces in, bytes out. Pieces are joined in the blocks, so small ones cost no object each."""

    __slots__ = ("_blocks", "_room", "size")

    def __init__(self) -> None:
        self._blocks = [bytearray()]
        self._room = BLOCK_BYTES  # in the last block
        self.size = 0  # bytes so far

    def add(self, piece: bytes | bytearray) -> None:
        """Take what came next."""
        size = len(piece)
        self.size += size
        if size <= self._room and len(self._blocks) == 1:  # it grows: most bodies are small
            self._blocks[0] += piece
            self._room -= size
            return
        at = 0
        while at < size:
            if not self._room:
                self._blocks.append(bytearray(BLOCK_BYTES))
                self._room = BLOCK_BYTES
            part = piece[at : at + self._room]
            begin = BLOCK_BYTES - self._room
            self._blocks[-1][begin : begin + len(part)] = part
            self._room -= len(part)
            at += len(part)

    @property
    def taken(self) -> int:
        """Bytes of memory: the first block grows, others are whole from the start."""
        blocks = len(self._blocks)
        return self.size if blocks == 1 else blocks * BLOCK_BYTES

    @property
    def data(self) -> bytes:
        """All of it, put together."""
        if len(self._blocks) == 1:
            return bytes(self._blocks[0])
        *full, last = self._blocks
        return b"".join((*full, memoryview(last)[: BLOCK_BYTES - self._room]))
