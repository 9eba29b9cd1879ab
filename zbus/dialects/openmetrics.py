"""The text of OpenMetrics 1.0: families of samples, with their types, units and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import attrs

from zbus.core.api import Histogram

CONTENT_TYPE = b"content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"

Kind = Literal["counter", "gauge", "histogram", "info"]

_SUFFIX: dict[str, str] = {"counter": "_total", "gauge": "", "info": "_info"}


@attrs.frozen
class Family:
    """One metric. The name of one with a unit ends in that."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    def head(self) -> str:
        """What stands before its samples."""
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        text = self.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return f"# TYPE {self.name} {self.kind}\n{unit}# HELP {self.name} {text}\n"

    def sample(self, value: float, *labels: str) -> str:
        """One of it, with the values of its labels."""
        shown = labels_of(self.labels, labels)
        return f"{self.name}{_SUFFIX[self.kind]}{shown} {value_of(value)}\n"

    def histogram(self, found: Histogram, scale: float, *labels: str) -> Iterable[str]:
        """All samples of one; `scale` is the metric's unit, in that of the histogram."""
        count = 0
        for bound, more in zip((*found.bounds, float("inf")), found.counts, strict=True):
            count += more
            le = "+Inf" if bound == float("inf") else value_of(float(bound / scale))
            shown = labels_of((*self.labels, "le"), (*labels, le))
            yield f"{self.name}_bucket{shown} {count}\n"
        shown = labels_of(self.labels, labels)
        yield f"{self.name}_count{shown} {count}\n"
        yield f"{self.name}_sum{shown} {value_of(float(found.total / scale))}\n"


def value_of(value: float) -> str:
    """A number as the text has it."""
    return repr(value) if isinstance(value, float) else str(int(value))


def labels_of(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """`{topic="Orders"}`."""
    if not names:
        return ""
    pairs = [f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def escaped(value: str) -> str:
    """The value of a label."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


END = "# EOF\n"

Samples = Mapping[Family, list[str]]
