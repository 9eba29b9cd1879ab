"""The text of OpenMetrics 1.0: families of samples, with their types, units and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


Fold = Callable[[float, float], float]


def merge_texts(texts: Iterable[bytes], fold_of: Callable[[str], Fold]) -> bytes:
    """One text of several, without an end: a sample that several have is put together as `fold_of`
    says of its family."""
    heads: dict[bytes, list[bytes]] = {}  # of families, in their order
    samples: dict[bytes, dict[bytes, float]] = {}
    family = b""
    fold: Fold = max
    for line in [line for text in texts for line in text.split(b"\n")]:
        if line.startswith(b"# EOF") or not line:
            continue
        if line.startswith(b"#"):
            family = line.split(b" ")[2]
            fold = fold_of(family.decode())
            known = heads.setdefault(family, [])
            if line not in known:
                known.append(line)
            samples.setdefault(family, {})
            continue
        name, _, value = line.rpartition(b" ")
        of_family, number = samples[family], float(value)
        of_family[name] = fold(of_family[name], number) if name in of_family else number
    lines: list[bytes] = []
    for family, head in heads.items():
        lines += head
        lines += [b"%b %b" % (name, _shown(value)) for name, value in samples[family].items()]
    return b"\n".join([*lines, b""])


def _shown(value: float) -> bytes:
    return b"%d" % value if value == int(value) else repr(value).encode()
