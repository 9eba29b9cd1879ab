"""Where a page of results ends: the next one begins after it.

Results are in the order of topic, partition, time and offset. In a partition times do not go back;
that they come before offsets puts the messages of a topic that was made again behind the older.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import msgspec

from zbus.spark.errors import Usage

ORDER = ("topic", "partition", "timestamp", "offset")
"""The columns that results are sorted by."""


class Cursor(NamedTuple):
    """The place of a message."""

    topic: str
    partition: int
    time_ms: int
    offset: int

    def encode(self) -> str:
        """A word that can be given to a shell."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """What `encode` made. Raises Usage."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return msgspec.json.decode(data, type=cls)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            start = text[:40]
            raise Usage(f"--after {start}: not a cursor of a previous search") from error
