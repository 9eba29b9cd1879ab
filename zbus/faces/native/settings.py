"""What the zbus face is told by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import attrs
from msgspec import Meta

_HOUR_MS = 3_600_000


def _no_certificate() -> str:
    return ""


@attrs.frozen(slots=False, kw_only=True)
class NativeOptions:
    """Those with a description are options of a broker that this face declares."""

    durability: Annotated[
        Literal["memory", "os", "disk"],
        Meta(
            description="What a reply waits for, unless the topic says otherwise: nothing, the "
            "write, the sync."
        ),
    ] = "disk"
    allow_url_token: Annotated[
        bool,
        Meta(
            description="Take a token from the URL, too, where it stays in histories and in "
            "others' logs."
        ),
    ] = False
    navigation_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=_HOUR_MS,
            description="Longest wait of a browser page that asks for a message.",
        ),
    ] = 30_000
    call_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=24 * _HOUR_MS,
            description="Longest wait for an RPC answer, if the call names none.",
        ),
    ] = 30_000
    retention_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=10 * 365 * 24 * _HOUR_MS,
            description="Topics forget what is older, unless they say otherwise; 0 = never.",
        ),
    ] = 0
    retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 50,
            description="A partition forgets what is beyond, unless its topic says otherwise; "
            "0 = nothing.",
        ),
    ] = 0
    reload_window_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=_HOUR_MS,
            description="A page that is loaded again so soon puts its message once; 0 = never.",
        ),
    ] = 2_000
    rpc_url: Annotated[
        Literal["seed", "module-path"],
        Meta(
            description="How a call reads as URL: `/topic/method/args?module=` or "
            "`/topic/module/method/args`."
        ),
    ] = "seed"
    # Declared by the core and by the loop, which keep to them, too.
    batch_messages_max: int = 10_000
    tickets_per_connection_max: int = 1_024


@attrs.frozen(slots=False, kw_only=True)
class NativeSettings(NativeOptions):
    """The options, and what only a running server knows."""

    address: str = "127.0.0.1:15555"  # where clients reach this broker: host:port
    tls: bool = False  # they reach it there by TLS
    certificate: Callable[[], str] = _no_certificate  # as PEM, as it is now; "" = there is none
    # Resident bytes of the process, if the system tells; None = say nothing about the process.
    memory_used: Callable[[], int | None] | None = None
    version: str = "0"
    trackers: tuple[str, ...] = ()  # that this broker reports to: host:port
