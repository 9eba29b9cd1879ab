"""What the description of the HTTP surface says of refusals: the reasons that a status can have."""

from __future__ import annotations

from zbus.core.api import Refusal
from zbus.dialects.zbus.replies import TEXTS
from zbus.edge.status import STATUS

ANYWHERE: dict[int, str] = {
    400: "The request is not well-formed",
    403: "A browser sends this for a page that may not",
    405: "HEAD or OPTIONS, and it would change something",
    408: "Head or body did not come in time",
    411: "A body without a length",
    413: "The body is over `body_bytes_max`",
    414: "The request line is over `line_bytes_max`",
    421: "The `Host` is none of this broker",
    425: "A browser asks ahead of time",
    417: "An expectation other than `100-continue`",
    426: "A WebSocket of another version than 13",
    431: "The headers are over their limits",
    503: "Unfinished bodies of all connections take `bodies_bytes_max`",
    505: "Neither HTTP/1.0 nor HTTP/1.1",
}
"""What any request can get, whatever it asks for: from the wire, and from what guards browsers."""


OF_BODIES = {415: "The coding or the character set of the body is not understood"}
"""What a request can get whose body is read."""


def refusal_text(status: int, refusals: tuple[Refusal, ...]) -> str:
    """One line for each reason that this status can have."""
    general = ANYWHERE | OF_BODIES
    lines = [f"{general[status]}."] if status in general else []
    for refusal in refusals:
        if STATUS[refusal] == status:
            text = f": `{TEXTS[refusal].format('…')}`" if refusal in TEXTS else ""
            lines.append(f"{refusal.value.capitalize()}{text}.")
    return " ".join(lines)
