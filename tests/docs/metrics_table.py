"""The table of docs/reference/metrics.md, made of the families.

python -m tests.docs.metrics_table
"""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from zbus.dialects.zbus.documents.metrics import FAMILIES

PAGE = ROOT / "docs/reference/metrics.md"
_BLOCK = re.compile(r"(?<=<!-- begin metrics -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def table() -> str:
    """Markdown."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
        lines.append(f"| `{family.name}{suffix}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """A page with the table as it is now."""
    return _BLOCK.sub(lambda _: table(), text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
