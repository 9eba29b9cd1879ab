"""Options of this dialect."""

from __future__ import annotations

import attrs

from zbus.core.api import DELAY_MS_MAX
from zbus.option import number, option

_DAY_MS = 86_400_000


@attrs.frozen(slots=False, kw_only=True)
class AdfOptions:
    """The dialect of Adf."""

    adf_auto_create: bool = option(True, "Adf: a push or pull creates a queue that does not exist.")
    adf_body_bytes_max: int = number(
        65_535,
        1,
        64 << 20,
        "Adf: longest body of a message. Longer ones than 65535 are pulled as JSON only.",
    )
    adf_requestid_length_max: int = number(32, 1, 65_535, "Adf: longest requestid, in characters.")
    adf_first_duplications: int = number(
        0, 0, 1, "Adf: `duplications` of a message that is pulled for the first time."
    )
    adf_http_lease_ms: int = number(
        300_000,
        0,
        DELAY_MS_MAX,
        "Adf: a message pulled over HTTP returns to the left if it is not settled within this "
        "time; 0 = never.",
    )
    adf_pull_timeout_ms: int = number(
        0, 0, _DAY_MS, "Adf: longest wait of a pull that names none; 0 = for ever."
    )


@attrs.frozen(slots=False, kw_only=True)
class AdfSettings(AdfOptions):
    """The options, and what others declare that it keeps to, too."""

    durability: str = "disk"
