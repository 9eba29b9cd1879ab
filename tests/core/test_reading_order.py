"""The lists of `zbus/core/README.md` are the files that a put, a pull and an ack go through."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.conformance.dialogue import World

CORE = Path(__file__).parent.parent.parent / "zbus/core"

REQUESTS = {
    "a put": b"POST /T?tag=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello",
    "a pull": b"GET /T/g?cmd=consume HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an acknowledgement": b"GET /T/g?cmd=ack&offset=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


def listed(kind: str) -> list[str]:
    text = (CORE / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"## Reading order: {kind}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. ([^:]+):", section, re.MULTILINE)
    return [name for step in steps for name in re.findall(r"`([^`]+)`", step)]


def entered(kind: str) -> list[str]:
    """The files of the core in the order in which the request enters them first."""
    client = World().connect()
    client.exchange(b"GET /T?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n")
    client.exchange(b"GET /T/g?cmd=declare&ack=true HTTP/1.1\r\nhost: localhost\r\n\r\n")
    for earlier in REQUESTS:
        if earlier == kind:
            break
        client.exchange(REQUESTS[earlier])
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _value: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(CORE):
            found.setdefault(path.relative_to(CORE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        client.exchange(REQUESTS[kind])
    finally:
        sys.setprofile(before)
    return list(found)


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_files_of_a_request_are_in_reading_order(kind: str) -> None:
    assert listed(kind) == entered(kind)
