"""Calls from other threads wake the loop, whenever they come: `zbus.server.loop.mailbox`."""

from __future__ import annotations

import select
import socket
from typing import cast

import pytest

from zbus.server.loop.mailbox import Mailbox


class Between:
    """A receiver during whose `recv` another thread posts, before or after the byte is read."""

    def __init__(self, mailbox: Mailbox, done: list[str], before: bool) -> None:
        self._mailbox = mailbox
        self._sock = mailbox.receiver
        self._done = done
        self._before = before

    def recv(self, size: int) -> bytes:
        if self._before:
            self._post()
        try:
            return self._sock.recv(size)
        finally:
            if not self._before:
                self._post()

    def _post(self) -> None:
        self._mailbox.post(lambda: self._done.append("between"))


def is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize("signalled", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_post_while_the_mailbox_runs_is_run_and_the_next_one_wakes(
    before: bool, signalled: bool
) -> None:
    mailbox, done = Mailbox(), list[str]()
    if signalled:
        mailbox.post(lambda: done.append("first"))
    receiver = mailbox.receiver
    mailbox.receiver = cast("socket.socket", Between(mailbox, done, before))
    mailbox.run()
    mailbox.receiver = receiver
    assert "between" in done or is_readable(receiver)
    mailbox.post(lambda: done.append("next"))
    assert is_readable(receiver)
    mailbox.run()
    assert done[-1] == "next"
    mailbox.close()
