"""A strict decoder of chunked bodies, fed with whatever pieces arrive.

    chunk   = 1*8HEXDIG [ ";" extension ] CRLF  that many bytes  CRLF
    body    = *chunk  1*8"0" [ ";" extension ] CRLF  *( trailer line CRLF )  CRLF

Everything between the data is a line with a small limit, so a decoder holds the body so far and
at most one unfinished line. Extensions and trailers are checked and dropped. Each byte is looked
at once, however many chunks there are.
"""

from __future__ import annotations

from zbus.wire.bodies.body import Body
from zbus.wire.errors import WireError, quoted
from zbus.wire.heads.fields import HEX, PRINTABLE, split_field
from zbus.wire.limits import WireLimits

_SIZE, _END, _TRAILER = range(3)
_SIZE_DIGITS_MAX = 8
_EXTENSION = PRINTABLE.replace(b'"', b"")
_LINES_PER_STEP = 64


class ChunkedBody(Body):
    """One chunked body on its way in."""

    __slots__ = (
        "_expects",
        "_held",
        "_limits",
        "_missing",
        "_trailer_bytes",
        "_trailers",
        "finished",
        "spent",
    )

    def __init__(self, limits: WireLimits) -> None:
        super().__init__()
        self._limits = limits
        self._expects = _SIZE  # which kind of line comes next, after the missing data
        self._missing = 0  # bytes of the current chunk's data still to come
        self._held = bytearray()  # beginning of an unfinished line
        self._trailers = 0
        self._trailer_bytes = 0
        self.finished = False
        self.spent = 0  # work since the owner set it to 0, in units of about a microsecond

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to this body from `data[at:]`, or some of it; return how far that was.
        Many small chunks need several calls."""
        enough = self.spent + _LINES_PER_STEP
        while at < len(data) and not self.finished and self.spent < enough:
            if self._missing:
                piece = data[at : at + self._missing]
                self.add(piece)
                self._missing -= len(piece)
                at += len(piece)
            else:
                at = self._take_line(data, at)
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        self.spent += 1
        held = self._held
        window_end = at + self._line_bytes_max() + 2 - len(held)
        stop = data.find(b"\n", at, window_end)
        if stop < 0:
            held += data[at:window_end]
            if window_end <= len(data):
                self._refuse_long_line()
            if self._expects == _END and held != b"\r":
                raise WireError(400, "the data of a chunk must be followed by CR LF")
            return len(data)
        line = bytes(held) + data[at : stop + 1]
        held.clear()
        if not line.endswith(b"\r\n") or line.count(b"\r") > 1:
            raise WireError(400, "a line of a chunked body must end with CR LF")
        if self._expects == _SIZE:
            self._take_size(line[:-2])
        elif self._expects == _TRAILER:
            self._take_trailer(line[:-2])
        elif len(line) == 2:
            self._expects = _SIZE
        else:
            raise WireError(400, "the data of a chunk must be followed by CR LF")
        return stop + 1

    def _line_bytes_max(self) -> int:
        if self._expects == _SIZE:
            return _SIZE_DIGITS_MAX + self._limits.chunk_ext_bytes_max
        return self._limits.line_bytes_max if self._expects == _TRAILER else 0

    def _refuse_long_line(self) -> None:
        if self._expects == _TRAILER:
            raise WireError(431, f"a trailer line is over {self._limits.line_bytes_max} bytes")
        raise WireError(400, "a chunk must have a size of 1 to 8 hexadecimal digits, then CR LF")

    def _take_size(self, line: bytes) -> None:
        digits = line.partition(b";")[0]
        extension = line[len(digits) :]
        if not 0 < len(digits) <= _SIZE_DIGITS_MAX or digits.translate(None, HEX):
            raise WireError(400, f"the chunk size {quoted(digits)} is not 1 to 8 hex digits")
        if len(extension) > self._limits.chunk_ext_bytes_max:
            raise WireError(400, "the extension of a chunk is too long")
        if extension.translate(None, _EXTENSION):
            raise WireError(400, "a chunk extension may not hold quotes or control bytes")
        size = int(digits, 16)
        if self.size + size > self._limits.body_bytes_max:
            raise WireError(413, f"the body is over {self._limits.body_bytes_max} bytes")
        self._missing = size
        self._expects = _END if size else _TRAILER

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.finished = True
            return
        split_field(line)
        self._trailers += 1
        self._trailer_bytes += len(line) + 2
        if self._trailers > self._limits.fields_max:
            raise WireError(431, f"there are more than {self._limits.fields_max} trailer lines")
        if self._trailer_bytes > self._limits.head_bytes_max:
            raise WireError(431, f"the trailers are over {self._limits.head_bytes_max} bytes")
