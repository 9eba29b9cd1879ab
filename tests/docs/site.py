"""What the documentation's site is made of: the pages and what they link to, as they lie here.

python -m tests.docs.site build/pages      (make docs)
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tests.docs.pages import PAGES, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
PARTS = ("README.md", "CHANGELOG.md", "LICENSE", "Dockerfile", "docs", "examples", "packaging")


def gather(target: Path) -> None:
    """Copy everything; what was there goes."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)
    for page in PAGES:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / link.partition("#")[0]).resolve()
            if file.is_file() and file.is_relative_to(ROOT):
                copy = target / file.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
