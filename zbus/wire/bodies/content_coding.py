"""Bodies that were compressed by their sender (RFC 9110, section 8.4), made plain within bounds.

A few bytes can stand for gigabytes, so the size is known before it is taken: a body that grows past
1 MiB is decoded twice. The first pass only counts, and ends at the limit of the reader; the second
one keeps. So what is refused never takes more memory than 1 MiB and a piece of output, beside the
window of the library, and what is accepted is accepted at any ratio: a legitimate body may well
shrink to a thousandth.

Decoding is a generator. Each step takes a small piece of the input, gives a small piece of the
output, and tells its work, so that a large body does not keep other connections waiting.

One coding of a body is undone. Several are refused: no sender needs them, and each one multiplies
what a byte can do.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, Final

from zbus.wire.bodies.budget import Budget
from zbus.wire.errors import WireError, quoted

STREAMS_MAX: Final = 10_000
"""Streams one after another in a body of gzip or zstd; `bgzip` makes one of each 64 KiB."""

_KEPT_BYTES: Final = 1 << 20  # a body over this is counted first
_INPUT_BYTES: Final = 4 << 10  # of a step; a stream may take long for bytes that give nothing
_OUTPUT_BYTES: Final = 32 << 10
_ZSTD_INPUT_BYTES: Final = 32  # which give 1 MiB at most: the library has no limit for its output
_ZSTD_WINDOW_BYTES: Final = 8 << 20  # that a receiver of HTTP has to take (RFC 9659)
_WORK_BITS: Final = 8  # 256 bytes of output are about a microsecond of work


class UnknownCoding(WireError):
    """A coding that is not undone here. The reply lists those that are (RFC 9110, 15.5.16)."""

    def __init__(self, text: str) -> None:
        accepted = ", ".join(accepted_codings())
        super().__init__(415, f"{text}; understood here: {accepted}")
        self.line = b"accept-encoding: %b\r\n" % accepted.encode()


def coding_of(value: bytes) -> str:
    """The coding that a content-encoding field names; "" = none. Raises UnknownCoding."""
    names = [name.strip(b" \t").lower() for name in value.split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if not names:
        return ""
    if len(names) > 1:
        raise UnknownCoding("the body has several content codings, and one is undone")
    name = names[0].removeprefix(b"x-") if names[0] == b"x-gzip" else names[0]
    if not name.isascii() or (coding := name.decode()) not in accepted_codings():
        raise UnknownCoding(f"the content coding {quoted(names[0])} is not understood")
    return coding


@cache
def accepted_codings() -> tuple[str, ...]:
    """The codings that are undone here: those of the standard library, and those for which a
    library is installed."""
    found = ["gzip", "deflate"]
    # Before 1.2 it cannot stop amid its output.
    if hasattr(getattr(_library("brotli"), "Decompressor", None), "can_accept_more_data"):
        found.append("br")
    if _library("zstandard") is not None:
        found.append("zstd")
    return tuple(found)


def decode_in_steps(
    coding: str, body: bytes, bytes_max: int, budget: Budget | None = None
) -> Generator[int, None, bytes]:
    """The plain body, in steps; each tells its work in microseconds or so. What is kept before the
    body is whole counts in `budget`. Raises WireError: 400 for a body that is damaged, 413 for one
    over `bytes_max`, 503 if the budget is used up."""
    pieces: list[bytes] = []
    size = kept = 0
    base = 1 if coding == "zstd" else 16  # of a step: its work beside that for the output
    try:
        for piece in _pieces(coding, body):
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if size <= _KEPT_BYTES:
                kept += _hold(budget, len(piece))
                pieces.append(piece)
            elif pieces:
                pieces.clear()
            yield base + (len(piece) >> _WORK_BITS)
        if size > _KEPT_BYTES:
            kept += _hold(budget, size - kept)
            for piece in _pieces(coding, body):
                pieces.append(piece)
                yield base + (len(piece) >> _WORK_BITS)
        return b"".join(pieces)
    finally:
        if budget is not None:
            budget.give_back(kept)


def _hold(budget: Budget | None, size: int) -> int:
    if budget is not None and not budget.take(size):
        raise WireError(503, "bodies being decompressed use all their memory; retry in 1 s")
    return size


def _too_large(bytes_max: int) -> WireError:
    return WireError(413, f"the decoded body is over {bytes_max} bytes")


def _pieces(coding: str, body: bytes) -> Iterator[bytes]:
    """The output of a decoder, piece by piece; a piece may be empty."""
    try:
        yield from _DECODERS[coding](body)
    except WireError:
        raise
    except Exception as error:  # each library has exceptions of its own
        reason = ascii(str(error))[1:-1][:80]
        raise WireError(400, f"the body is damaged, or is not {coding}: {reason}") from None


def _inflate(coding: str, body: bytes, wbits: int, streams_max: int) -> Iterator[bytes]:
    """Streams of zlib, one after another. What stands behind the last one has to be another."""
    decoder, streams = zlib.decompressobj(wbits), 1
    for data in _slices(body, _INPUT_BYTES):
        more = True
        while more:
            if decoder.eof:
                _check_another(coding, streams, streams_max)
                decoder, streams = zlib.decompressobj(wbits), streams + 1
            piece = decoder.decompress(data, _OUTPUT_BYTES)
            yield piece
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            # With the output at its bound, there may be more that needs no input.
            more = bool(data) or (len(piece) == _OUTPUT_BYTES and not decoder.eof)
    _check_end(coding, decoder.eof)


def _gunzip(body: bytes) -> Iterator[bytes]:
    return _inflate("gzip", body, 16 + zlib.MAX_WBITS, STREAMS_MAX)


def _undeflate(body: bytes) -> Iterator[bytes]:
    """In the format of zlib, as the standard says, or bare, as some send it. A bare stream never
    begins as the other does: that would be a stored block with bits set that are not used."""
    zlib_format = len(body) > 1 and body[0] & 0x8F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflate("deflate", body, zlib.MAX_WBITS if zlib_format else -zlib.MAX_WBITS, 1)


def _unbrotli(body: bytes) -> Iterator[bytes]:
    decoder = _library("brotli").Decompressor()
    for data in _slices(body, _INPUT_BYTES):
        more = True
        while more:
            piece = decoder.process(data, output_buffer_limit=_OUTPUT_BYTES)
            yield piece
            data = b""
            # Output may be left whose input it has taken: then it gives something for nothing.
            more = not decoder.is_finished() and bool(piece or not decoder.can_accept_more_data())
    _check_end("br", decoder.is_finished())


def _unzstd(body: bytes) -> Iterator[bytes]:
    reader = _library("zstandard").ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    decoder, frames = reader.decompressobj(), 1
    for data in _slices(body, _ZSTD_INPUT_BYTES):
        while data:
            if decoder.eof:
                _check_another("zstd", frames, STREAMS_MAX)
                decoder, frames = reader.decompressobj(), frames + 1
            yield decoder.decompress(data)
            data = decoder.unused_data if decoder.eof else b""
    _check_end("zstd", decoder.eof)


_DECODERS: Final[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": _gunzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}


def _slices(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def _check_another(coding: str, streams: int, most: int) -> None:
    """Bytes stand behind the end of a stream."""
    if most == 1:
        raise WireError(400, f"bytes stand behind the end of the {coding} body")
    if streams >= most:
        raise WireError(400, f"the {coding} body has more than {most} streams")


def _check_end(coding: str, ended: bool) -> None:
    if not ended:
        raise WireError(400, f"the {coding} body is cut short")


def _library(name: str) -> Any:  # noqa: ANN401  # it may be absent
    """A module that may be installed; imported when the first body needs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
