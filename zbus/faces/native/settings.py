"""What the native face is told by the configuration."""

from __future__ import annotations

from collections.abc import Callable

import attrs


def _no_certificate() -> str:
    return ""


@attrs.frozen
class NativeSettings:
    """See `zbus.config` for meaning and limits of the options of the same names."""

    address: str = "127.0.0.1:15555"  # where clients reach this broker: host:port
    tls: bool = False  # they reach it there by TLS
    certificate: Callable[[], str] = _no_certificate  # as PEM, as it is now; "" = there is none
    # Resident bytes of the process, if the system tells; None = say nothing about the process.
    memory_used: Callable[[], int | None] | None = None
    version: str = "0"
    trackers: tuple[str, ...] = ()  # that this broker reports to: host:port
    tracker_token: str = ""  # that it shows there
    durability: str = "disk"  # of topics that do not choose their own
    retention_ms: int = 0  # likewise
    retention_bytes: int = 0  # likewise
    navigation_timeout_ms: int = 30_000
    call_timeout_ms: int = 30_000
    waits_per_connection_max: int = 1_024
    batch_messages_max: int = 10_000
    reload_window_ms: int = 2_000
    rpc_url: str = "seed"  # /topic/method/args or (module-path) /topic/module/method/args
