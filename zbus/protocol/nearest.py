"""The known name that is nearest to an unknown one, for refusals."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

NAME_LENGTH_MAX = 40
"""A longer name is not compared: it may be a whole head of the wire, and no typing error."""


def did_you_mean(name: str, known: Iterable[str], near_at: float = 0.6) -> str:
    """The end of a refusal of `name`: `; did you mean delay?`, or "" if none of `known` is so near.
    `near_at` is from 0 (anything) to 1 (the same)."""
    near = get_close_matches(name, known, 1, near_at) if len(name) <= NAME_LENGTH_MAX else ()
    return f"; did you mean {near[0]}?" if near else ""
