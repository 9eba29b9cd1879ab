"""What has come of a body, or of a message in fragments, until it is complete.

A buffer that grows is moved to a larger place again and again, and when hundreds grow by turns the
places that they left are too small for any of them: then memory is lost that nobody holds. So what
came is kept in blocks that never move. Pieces that are smaller than a block are joined into one,
so many small pieces cost no object each; and the whole is put together once, at the end.
"""

from __future__ import annotations

BLOCK_BYTES = 64 << 10
"""As much as the loop reads at once. Blocks of one size fit into the places of other blocks."""

_ALONE_BYTES_MIN = BLOCK_BYTES // 4
"""A piece of so much is a block by itself, without a copy."""


class Body:
    """Pieces in, bytes out."""

    __slots__ = ("_blocks", "_tail", "size")

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._tail = bytearray()  # a block that is not full
        self.size = 0
        """Bytes so far. What is taken is this, and at most an eighth of a block for each body."""

    def add(self, piece: bytes | bytearray) -> None:
        """Take what came next."""
        size = len(piece)
        self.size += size
        tail = self._tail
        if size >= _ALONE_BYTES_MIN:
            self._seal()
            self._blocks.append(bytes(piece))
        else:
            tail += piece
            if len(tail) >= BLOCK_BYTES:
                self._seal()

    @property
    def data(self) -> bytes:
        """All of it, put together."""
        self._seal()
        if len(self._blocks) != 1:
            self._blocks = [b"".join(self._blocks)]
        return self._blocks[0]

    def _seal(self) -> None:
        """Begin a new block."""
        if self._tail:
            self._blocks.append(bytes(self._tail))
            self._tail.clear()
