"""The examples in Python of the pages about the client run, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks, name_of
from tests.examples.broker_process import BrokerProcess

URL = "http://127.0.0.1:15555"
HOWTO = DOCS / "howto"
EXAMPLES = [
    (page, block)
    for page in (ROOT / "README.md", HOWTO / "python-client.md", *sorted(HOWTO.glob("coming-*.md")))
    for block in blocks(page, "python")
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


def test_they_are_found() -> None:
    assert len(EXAMPLES) == 20


@pytest.mark.parametrize(
    ("page", "block"), EXAMPLES, ids=lambda value: str(getattr(value, "line", "at"))
)
def test_an_example(broker: BrokerProcess, page: Path, block: Block) -> None:
    code = compile(block.text.replace(URL, broker.url), f"{name_of(page)}:{block.line}", "exec")
    exec(code, {"__name__": "page"})
