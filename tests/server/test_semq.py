"""What the face of SEMQ is told by a server."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.server.test_nothing_left_of_a_connection import Turns, ask


def epoch(data_dir: Path) -> str:
    """Of what the platform numbers itself in a mailbox, as a message of it says."""
    turns = Turns(data_dir)
    client = turns.connect(ask("/semq/1:7?cmd=semq_poll"), ask("/semq.1:7?cmd=produce", body="m"))
    client.close()
    client = turns.connect(ask("/semq/1:7?cmd=semq_poll&wait=1"))
    said = turns.receive(client).decode()
    client.close()
    turns.server.close()
    return said.partition("epoch: ")[2].partition("\r\n")[0]


def test_a_directory_with_another_identity_has_other_epochs(tmp_path: Path) -> None:
    """As a restored one: there other messages get the same places, and endpoints must not take
    them for those that they have had."""
    before = epoch(tmp_path / "one")
    assert len(before) == 16
    assert epoch(tmp_path / "one") == before
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "data" / "identity").unlink()
    assert epoch(tmp_path / "two") not in ("", before)
