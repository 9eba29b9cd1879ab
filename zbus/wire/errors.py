"""The one exception of the wire: bytes that are not acceptable HTTP."""

from __future__ import annotations


class WireError(Exception):
    """What came is refused; answer `status` with `text`, then close.

    After it nothing later on the connection can be trusted, because sender and receiver may
    disagree about where one request ends and the next begins.
    """

    def __init__(self, status: int, text: str, id: bytes = b"") -> None:
        super().__init__(status, text)
        self.status = status  # HTTP status of the refusal
        self.text = text  # one ASCII sentence for people
        self.id = id  # of the request, if that much of it was understood

    def __str__(self) -> str:
        return f"{self.status}: {self.text}"

    def bare(self) -> WireError:
        """The same to be kept: without the traceback, which keeps all that was under way."""
        return WireError(self.status, self.text, self.id)


BAD_LINE_END = "a line of the head must end with CR LF, and hold no other (nc -C sends both)"


def quoted(value: bytes) -> str:
    """The beginning of some untrusted bytes, as harmless ASCII for a refusal."""
    return repr(value[:40])[1:]
