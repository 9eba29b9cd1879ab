"""All planted bugs, as they stand in the texts beside this file:

== the file
its-name: the tests that have to notice, named from tests/ on
-what stands in the file exactly once
+what takes its place
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant

BUG: Final = re.compile(r"^([a-z0-9-]+): (.+)\n((?:-.*\n)+)((?:\+.*\n)*)", re.MULTILINE)


def bugs_of(text: str) -> Iterator[Mutant]:
    """Those of one text. A line that begins with # is for who reads it."""
    for part in re.split(r"^== ", re.sub(r"(?m)^(#.*)?\n", "", text), flags=re.MULTILINE)[1:]:
        file, _, rest = part.partition("\n")
        assert not (odd := BUG.sub("", rest)), f"this is no bug of {file}:\n{odd}"
        for name, tests, old, new in BUG.findall(rest):
            paths = tuple(f"tests/{path}" for path in tests.split())
            yield Mutant(name, file, without_signs(old), without_signs(new), paths)


def without_signs(lines: str) -> str:
    return "\n".join(line[1:] for line in lines.split("\n")[:-1])


MUTANTS: Final = [
    bug
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for bug in bugs_of(path.read_text(encoding="utf-8"))
]
