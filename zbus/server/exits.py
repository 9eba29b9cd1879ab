"""How a broker ends: the exit codes of its process, and what keeps it from starting."""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1  # the journal failed while serving
EXIT_CANNOT_START: Final = 3  # the address or the data cannot be had
EXIT_WENT_BACK: Final = 74  # EX_IOERR: the stream has less than was confirmed
EXIT_TAKEN: Final = 75  # EX_TEMPFAIL: another broker owns the data; start again, as its standby


class CannotStart(Exception):
    """Says what stands in the way, and what to do about it."""

    def __init__(self, text: str, exit_code: int = EXIT_CANNOT_START) -> None:
        super().__init__(text)
        self.exit_code = exit_code
