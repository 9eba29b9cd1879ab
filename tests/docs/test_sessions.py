"""What the pages show of a shell is what a shell shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of, steps
from tests.docs.shell import Shell, alike

PLAYED = [page for page in PAGES if steps(page)]
FRESH = {ROOT / "README.md", ROOT / "docs/quickstart.md"}
"""What a newcomer reads first: it says all that has to be done."""
STARTS_ITSELF = {
    ROOT / "docs/quickstart.md",
    ROOT / "docs/howto/tokens.md",
    ROOT / "docs/howto/quotas.md",
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages are about curl")
@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    with Shell(tmp_path, fresh=page in FRESH) as shell:
        if page not in STARTS_ITSELF:
            shell.serve()
        for step in steps(page):
            printed = shell.play(step)
            assert alike(step.output, printed), (
                f"{name_of(page)}:{step.line}\n$ {step.command}\n"
                + "\n".join(["--- page", *step.output, "--- printed", *printed])
            )


TOPIC = re.compile(
    r"localhost:15555/(\w[\w.]*)"
    r"|\btopic=(\w+)"
    r"|\bzbus (?:declare|produce|tail|call) (\w+)"
    r"|\bbus\.\w+\(\s*\"(\w[\w.]*)\""
)
NOT_TOPICS = {"camellia", "metrics", "mq", "queue"}  # paths of other dialects
SHARED = {"myrpc"}  # the service of examples/rpc_service.py, which remembers nothing
WITH_TOKENS = {ROOT / "docs/howto/tokens.md", ROOT / "docs/howto/quotas.md"}
"""What they name is in the files of tokens that they show."""


def test_pages_can_be_read_one_after_another() -> None:
    """On one broker: none meets a topic as another page left it."""
    pages: dict[str, set[str]] = {}
    for page in set(PAGES) - WITH_TOKENS:
        commands = [step.command for step in steps(page)]
        for text in (*commands, *(block.text for block in blocks(page, "python"))):
            for names in TOPIC.findall(text):
                pages.setdefault("".join(names).lower(), set()).add(name_of(page))
    shared = {name for name, found in pages.items() if len(found) > 1}
    assert len(pages) > 30
    assert {name: sorted(pages[name]) for name in shared - NOT_TOPICS - SHARED} == {}


def test_the_pages_that_show_a_shell_are_these() -> None:
    """So that a page cannot drop out because its blocks are not recognised any more."""
    names = {name_of(page) for page in PLAYED}
    howtos = {"batches", "benchmark", "delay-and-expiry", "partitions", "reliable-consumer", "rpc"}
    howtos |= {
        "browser-and-cors",
        "cloudevents",
        "coming-from-adf",
        "coming-from-camellia",
        "coming-from-mqcloud",
        "coming-from-kafka",
        "coming-from-rabbitmq",
        "coming-from-sqs",
        "console",
        "consume-transform-produce",
        "idempotent-produce",
        "import",
        "last-value-per-key",
        "monitor",
        "order-per-key",
        "priorities",
        "production",
        "quotas",
        "retention",
        "retries",
        "schedules",
        "schemas",
        "server-sent-events",
        "shell",
        "tokens",
        "tracing",
        "transactions",
        "why-is-my-message-not-there",
    }
    assert names == {"README.md", "docs/quickstart.md"} | {f"docs/howto/{x}.md" for x in howtos}


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "d"], True),
        (["a", "..."], ["a"], True),
        (["...", "c"], ["a", "b"], False),
        (["x ... y"], ["x 1 y"], True),
        (["x ... y"], ["x 1 z"], False),
        (["1795270469628"], ["1801234567890"], True),
        (["1795270469628"], ["oops"], False),
        (["a.c"], ["abc"], False),
        (["a", ""], ["a"], True),
    ],
)
def test_comparing(shown: list[str], printed: list[str], same: bool) -> None:
    assert alike(shown, printed) is same
