"""How Spark finds the format `zbus` by itself: it looks for modules of such a name."""

from __future__ import annotations

try:
    from zbus.spark.source.source import ZbusDataSource as DefaultSource
except ImportError:  # a package is missing: Spark must find its other formats still
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
