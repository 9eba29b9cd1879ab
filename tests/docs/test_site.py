"""The documentation's site has every page. `make docs` builds it, and checks links."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES, ROOT


def test_every_page_is_in_its_contents() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- ([\w./-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT)) for page in PAGES)
