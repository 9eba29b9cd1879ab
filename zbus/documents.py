"""JSON documents from elsewhere."""

from __future__ import annotations

from typing import Final

NOT_JSON: Final = (ValueError, RecursionError)
"""What msgspec raises for bytes that are no document of the wanted kind: its own errors and
UnicodeDecodeError, which are ValueErrors, and RecursionError for one that is nested too deeply."""
