"""The pages of the documentation: where they are, and what is in their fenced blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line of the page that it begins at."""

    language: str
    text: str
    line: int


class Step(NamedTuple):
    """A command of a console block, and what the page says it prints."""

    command: str
    output: list[str]
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of one language."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
        if found[1] == language
    ]


def steps(page: Path) -> list[Step]:
    """All commands of a page's console blocks, in order."""
    found: list[Step] = []
    for block in blocks(page, "console"):
        for number, line in enumerate(block.text.splitlines(), block.line):
            if line.startswith("$ "):
                found.append(Step(line[2:], [], number))
            else:
                assert found, f"{name_of(page)}:{number}: output before any command"
                found[-1].output.append(line)
    return found


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
