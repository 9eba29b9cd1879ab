"""packaging/install.py: what pip is told, uv is told, too."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

INSTALL = runpy.run_path(str(Path(__file__).parents[1] / "packaging" / "install.py"))


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        ("", {}),
        ("global.index-url='https://u:p@a/simple'", {"UV_DEFAULT_INDEX": "https://u:p@a/simple"}),
        (  # pip's variables count before its files, and a command's section before that of all
            "global.index-url='https://a'\n:env:.index-url='https://c'\ninstall.index-url='https://b'",
            {"UV_DEFAULT_INDEX": "https://c"},
        ),
        (
            "global.index-url='https://a'\ninstall.index-url='https://b'",
            {"UV_DEFAULT_INDEX": "https://b"},
        ),
        ("global.extra-index-url='https://a\\nhttps://b'", {"UV_INDEX": "https://a https://b"}),
        (
            "global.find-links='https://a /nowhere https://b'",
            {"UV_FIND_LINKS": "https://a,https://b"},
        ),
        ("global.extra-index-url='file:///nowhere/simple'", {}),
        (":env:.default-timeout='180'", {"UV_HTTP_TIMEOUT": "180"}),
        ("download.index-url='https://a'\nglobal.no-color='1'", {}),
    ],
)
def test_what_pip_is_told(listed: str, variables: dict[str, str]) -> None:
    assert INSTALL["uv_variables"](listed) == variables
