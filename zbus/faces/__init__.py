"""The dialects that a broker speaks, and the edge that all of them stand behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from zbus.core.broker import Broker
from zbus.faces.access import Access
from zbus.faces.adf.face import build as build_adf
from zbus.faces.adf.settings import AdfSettings
from zbus.faces.camellia.face import CamelliaFace
from zbus.faces.camellia.settings import CamelliaSettings
from zbus.faces.face import Face, Parts
from zbus.faces.front import Front
from zbus.faces.guard import Guard
from zbus.faces.mqcloud.face import MqcloudFace
from zbus.faces.mqcloud.settings import MqcloudSettings
from zbus.faces.native.face import POLICY as NATIVE_POLICY
from zbus.faces.native.face import build as build_native
from zbus.faces.native.settings import NativeSettings
from zbus.faces.pages import build as build_pages
from zbus.faces.pages import build_console
from zbus.faces.proxied import Proxies
from zbus.faces.rights import Rights
from zbus.faces.semq.face import SemqFace
from zbus.faces.semq.settings import SemqSettings
from zbus.wire.heads import Heads

FACES: Final[dict[str, Callable[[Parts], Face]]] = {
    "semq": SemqFace,  # before the one that takes all that has a `cmd`
    "native": build_native,
    "pages": build_pages,
    "console": build_console,
    "adf": build_adf,
    "camellia": CamelliaFace,
    "mqcloud": MqcloudFace,
}
"""Each dialect, and what builds it."""

SETTINGS: Final[dict[str, type]] = {
    "native": NativeSettings,
    "adf": AdfSettings,
    "camellia": CamelliaSettings,
    "mqcloud": MqcloudSettings,
    "semq": SemqSettings,
}
"""What they are told: options, and what a running server knows."""

MARKS: Final = frozenset((NATIVE_POLICY.mark,))
"""Fields that tell that the others are those of a message, and say nothing of the connection."""


def build_front(
    broker: Broker,
    heads: Heads,
    settings: Mapping[str, object],
    guard: Guard | None = None,
    access: Access | None = None,
    *,
    allow_url_token: bool = False,
    trusted_proxies: str = "",
) -> Front:
    """The edge of a broker, with all faces behind it; `settings` are theirs, by name. Without a
    table of tokens everybody may do everything."""
    guard = guard or Guard()
    rights = Rights(broker, guard, access, allow_url_token=allow_url_token)
    faces = {
        name: build(Parts(broker, heads, guard, rights, settings.get(name)))
        for name, build in FACES.items()
    }
    return Front(faces, guard, rights, Proxies(trusted_proxies))
