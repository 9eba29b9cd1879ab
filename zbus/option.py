"""How an option of a broker is declared: a field that says what is allowed and what it means.

The part that uses it declares it, in a class of its own: `core`, `wire`, a dialect, the server.
`zbus.config` collects these classes, checks what it is given with msgspec, and prints the page of
all options.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from msgspec import Meta

DECLARED: Final = "option"
"""Where the metadata of a field has its `Meta`."""

HOST: Final = r"(?:[^\s:/,\[\]]+|\[[0-9A-Fa-f:.]+\])"
"""Pattern of a name or address, without a port."""

_PORT = r"(?:\d{1,4}|[0-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
ADDRESSES: Final = rf"^(?:{HOST}:{_PORT}(?:,{HOST}:{_PORT})*)?\Z"
"""Pattern of `host:port,host:port`."""


def number(default: int, low: int, high: int, meaning: str) -> Any:  # noqa: ANN401 - as attrs.field
    """A whole number within these bounds."""
    meta = Meta(ge=low, le=high, description=meaning)
    return attrs.field(default=default, metadata={DECLARED: meta})


def option(
    default: object, meaning: str, pattern: str | None = None, wrong: str | None = None
) -> Any:  # noqa: ANN401 - as attrs.field
    """Anything else that the type of the field allows; a text may have to be of a form. `wrong`
    says what is wrong with one that is not: `{!r}` stands for the text, `{item!r}` for the bad one
    of several."""
    meta = Meta(description=meaning, pattern=pattern, title=wrong)
    return attrs.field(default=default, metadata={DECLARED: meta})


def listed(text: str) -> tuple[str, ...]:
    """The items of an option that takes several, separated by commas."""
    return tuple(item.strip() for item in text.split(",") if item.strip())
