"""How much of anything a peer may send before it is refused."""

from __future__ import annotations

from typing import Annotated

import attrs
from msgspec import Meta

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


@attrs.frozen(slots=False, kw_only=True)
class WireLimits:
    """Every one has a refusal of its own. Those with a description are options of a broker."""

    line_bytes_max: Annotated[
        int, Meta(ge=256, le=_MIB, description="Longest request line or header line.")
    ] = 8 * _KIB
    """The request line (414) and each header or trailer line (431), without CRLF."""

    head_bytes_max: Annotated[
        int, Meta(ge=512, le=_MIB, description="Longest request line and headers together.")
    ] = 16 * _KIB
    """A whole head without its final blank line, and all trailers of a chunked body (431)."""

    fields_max: Annotated[
        int, Meta(ge=8, le=10_000, description="Header fields in one request.")
    ] = 100
    """Number of header lines, and of trailer lines (431)."""

    body_bytes_max: Annotated[
        int, Meta(ge=_KIB, le=_GIB, description="Longest request body, batches included.")
    ] = 16 * _MIB
    """A body, however it is framed (413)."""

    bodies_bytes_max: Annotated[
        int,
        Meta(
            ge=_KIB,
            le=1024 * _GIB,
            description="Request bodies that have come in part, of all connections; past it, "
            "503 and close.",
        ),
    ] = 256 * _MIB

    chunk_ext_bytes_max: int = 64
    """Extension of one chunk, semicolon included (400). Nobody needs them; attackers hide there."""


DEFAULT_LIMITS = WireLimits()
