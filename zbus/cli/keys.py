"""What keys do in a view that is renewed again and again (`zbus top`)."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

HELP = "s sort, r reverse, / filter, q quit"

_ENTER, _ESCAPE, _CONTROL_C, _BACKSPACE = "\r\n", "\x1b", "\x03", "\x7f\b"


class View:
    """How the rows are chosen and ordered, and what keys make of that."""

    def __init__(self, columns: Sequence[str], sort: str) -> None:
        self._columns = columns
        self.sort = sort
        self.reverse = False  # the least first
        self.pattern = ""  # topics whose name has this in it
        self.typing = False  # a pattern is being typed
        self.done = False

    def press(self, keys: str) -> None:
        """These keys were pressed."""
        if len(keys) > 1 and keys[0] == _ESCAPE:
            return  # an arrow, or the like
        for key in keys:
            self._press(key)

    def _press(self, key: str) -> None:
        if key == _CONTROL_C:
            self.done = True
        elif self.typing:
            self._type(key)
        elif key in "qQ":
            self.done = True
        elif key in "sS":
            at = self._columns.index(self.sort) + (1 if key == "s" else -1)
            self.sort = self._columns[at % len(self._columns)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.typing, self.pattern = True, ""
        elif key == _ESCAPE:
            self.pattern = ""

    def _type(self, key: str) -> None:
        if key in _ENTER:
            self.typing = False
        elif key == _ESCAPE:
            self.typing, self.pattern = False, ""
        elif key in _BACKSPACE:
            self.pattern = self.pattern[:-1]
        elif key.isprintable():
            self.pattern += key

    def status_text(self) -> str:
        """A line about it, for under the table."""
        order = f"by {self.sort}{', least first' if self.reverse else ''}"
        chosen = f"/{self.pattern}{'_' if self.typing else ''}" if self.chooses else ""
        return "   ".join(part for part in (order, chosen, HELP) if part)

    @property
    def chooses(self) -> bool:
        return self.typing or bool(self.pattern)


@contextmanager
def each_key(fd: int) -> Iterator[None]:
    """Keys come as they are pressed, and are not shown."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def watch_keys(view: View, seconds: float, changed: Callable[[], None], fd: int) -> None:
    """Wait that long, and do what keys ask for meanwhile; at the end of input just wait."""
    until_s = time.monotonic() + seconds
    while not view.done and (left_s := until_s - time.monotonic()) > 0:
        if not select.select([fd], [], [], left_s)[0]:
            return
        pressed = os.read(fd, 64)
        if not pressed:
            time.sleep(max(0.0, until_s - time.monotonic()))
            return
        view.press(pressed.decode("utf-8", "ignore"))
        changed()


def has_keys() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
