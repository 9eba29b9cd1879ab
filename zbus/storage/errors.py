"""What a journal raises."""

from __future__ import annotations

from zbus.core.model.errors import InDoubt


class JournalError(InDoubt):
    """Something the journal cannot do; the text is for people."""


class JournalFull(JournalError):
    """No space left: nothing was written."""


class JournalDamage(JournalError):
    """Stored bytes are not what was written; names the file and offset."""
