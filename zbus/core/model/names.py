"""Which names topics and groups may have."""

from __future__ import annotations

NAME_BYTES_MAX = 200


def name_problem(name: str) -> str | None:
    """Why a name is refused, None if it is fine.

    Anything printable is allowed but what has a meaning in a path or hides in a log. Names are
    compared without regard to case; the first spelling is kept.
    """
    if not name:
        return "the name is empty"
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        return f"the name is longer than {NAME_BYTES_MAX} bytes"
    if name in (".", "..") or "/" in name or "\\" in name:
        return "the name has path characters"
    if not name.isprintable() or name != name.strip():
        return "the name has control characters or space around it"
    return None
