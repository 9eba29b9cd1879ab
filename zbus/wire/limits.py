"""How much of anything a peer may send before it is refused."""

from __future__ import annotations

import attrs

from zbus.option import number

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


@attrs.frozen(slots=False, kw_only=True)
class WireLimits:
    """How large a request may be; every limit has a refusal of its own."""

    line_bytes_max: int = number(8 * _KIB, 256, _MIB, "Longest request line or header line.")
    """The request line (414) and each header or trailer line (431), without CRLF."""

    head_bytes_max: int = number(16 * _KIB, 512, _MIB, "Longest request line and headers together.")
    """A whole head without its final blank line, and all trailers of a chunked body (431)."""

    fields_max: int = number(100, 8, 10_000, "Header fields in one request.")
    """Number of header lines, and of trailer lines (431)."""

    body_bytes_max: int = number(16 * _MIB, _KIB, _GIB, "Longest request body, batches included.")
    """A body, however it is framed (413)."""

    bodies_bytes_max: int = number(
        256 * _MIB,
        _KIB,
        1024 * _GIB,
        "Request bodies that have come in part, of all connections; past it, 503 and close.",
    )

    chunk_ext_bytes_max: int = 64
    """Extension of one chunk, semicolon included (400). They have no use; attackers hide there."""


DEFAULT_LIMITS = WireLimits()
