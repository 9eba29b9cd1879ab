"""zbus: a durable message broker that anything able to speak HTTP can use.

`zbus.client` is the client; `zbus.connect` and `zbus.connect_async` are short for its functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zbus.client import connect, connect_async

__all__ = ["__version__", "connect", "connect_async"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a module's attribute may be anything
    """The client is imported when it is used: importing zbus stays cheap."""
    if name in ("connect", "connect_async"):
        import zbus.client

        return getattr(zbus.client, name)
    raise AttributeError(f"module 'zbus' has no attribute {name!r}")
