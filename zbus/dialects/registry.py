"""The dialects that a broker speaks, and the edge that all of them stand behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from zbus.core.api import Broker
from zbus.dialects.adf.dialect import AdfDialect
from zbus.dialects.adf.settings import AdfSettings
from zbus.dialects.camellia.dialect import CamelliaDialect
from zbus.dialects.camellia.settings import CamelliaSettings
from zbus.dialects.mqcloud.dialect import VERBS as MQCLOUD_VERBS
from zbus.dialects.mqcloud.dialect import MqcloudDialect
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.dialects.semq.dialect import SemqDialect
from zbus.dialects.semq.settings import SemqSettings
from zbus.dialects.verbs import free_names
from zbus.dialects.zbus.dialect import POLICY as NATIVE_POLICY
from zbus.dialects.zbus.dialect import build as build_native
from zbus.dialects.zbus.request.slots import may_differ as may_differ_in_native
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Access
from zbus.edge.dialect import Dialect, Parts
from zbus.edge.guard import Guard
from zbus.edge.pages import build as build_pages
from zbus.edge.pages import build_client, build_console
from zbus.edge.proxies import Proxies
from zbus.edge.rights import Rights
from zbus.edge.router import Router
from zbus.wire.heads.heads import Heads

DIALECTS: Final[dict[str, Callable[[Parts], Dialect]]] = {
    "semq": SemqDialect,  # before the one that takes all that has a `cmd`
    "native": build_native,
    "pages": build_pages,
    "console": build_console,
    "client": build_client,
    "adf": AdfDialect,
    "camellia": CamelliaDialect,
    "mqcloud": MqcloudDialect,
}
"""Each dialect, and what builds it."""

SETTINGS: Final[dict[str, type]] = {
    "native": ZbusSettings,
    "adf": AdfSettings,
    "camellia": CamelliaSettings,
    "mqcloud": MqcloudSettings,
    "semq": SemqSettings,
}
"""Their settings: options, and what a running server knows."""

MARKS: Final = frozenset((NATIVE_POLICY.mark,))
"""Fields that tell that the others are those of a message, and say nothing of the connection."""


_FREE_NAMES: Final = free_names(MQCLOUD_VERBS.values())


def may_differ(name: bytes, in_query: bool) -> bool:
    """Whether a value of this name may be free in some head (`zbus.wire.heads.shapes`)."""
    return (in_query and name in _FREE_NAMES) or may_differ_in_native(name, in_query)


def build_router(
    broker: Broker,
    heads: Heads,
    settings: Mapping[str, object],
    guard: Guard | None = None,
    access: Access | None = None,
    *,
    allow_url_token: bool = False,
    trusted_proxies: str = "",
) -> Router:
    """The edge of a broker, with all dialects behind it; `settings` are theirs, by name. Without a
    table of tokens everybody may do everything."""
    guard = guard or Guard()
    rights = Rights(broker, guard, access, allow_url_token=allow_url_token)
    dialects = {
        name: build(Parts(broker, heads, guard, rights, settings.get(name)))
        for name, build in DIALECTS.items()
    }
    return Router(dialects, guard, rights, Proxies(trusted_proxies))
