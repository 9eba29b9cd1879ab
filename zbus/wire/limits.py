"""How much of anything a peer may send before it is refused."""

from __future__ import annotations

import attrs


@attrs.frozen
class WireLimits:
    """Sizes in bytes unless the name says otherwise; every one has a refusal of its own."""

    line_bytes_max: int = 8192
    """The request line (414) and each header or trailer line (431), without CRLF."""

    head_bytes_max: int = 16384
    """A whole head without its final blank line, and all trailers of a chunked body (431)."""

    fields_max: int = 100
    """Number of header lines, and of trailer lines (431)."""

    body_bytes_max: int = 16 * 1024 * 1024
    """A body, however it is framed (413)."""

    chunk_ext_bytes_max: int = 64
    """Extension of one chunk, semicolon included (400). Nobody needs them; attackers hide there."""


DEFAULT_LIMITS = WireLimits()
