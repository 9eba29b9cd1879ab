"""The one exception of the wire: bytes that are not acceptable HTTP."""

from __future__ import annotations


class WireError(Exception):
    """What came is refused; answer `status` with `text`, then close.

    After it nothing later on the connection can be trusted, because sender and receiver may
    disagree about where one request ends and the next begins.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status  # HTTP status of the refusal
        self.text = text  # one ASCII sentence for people

    def __str__(self) -> str:
        return f"{self.status}: {self.text}"

    def bare(self) -> WireError:
        """The same to be kept: without the traceback, which keeps all that was under way."""
        return WireError(self.status, self.text)


def quoted(value: bytes) -> str:
    """The beginning of some untrusted bytes, as harmless ASCII for a refusal."""
    return repr(value[:40])[1:]
