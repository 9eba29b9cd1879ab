"""Parameters of a request: of its query and of its form, mixed as the sender likes.

They are converted as the original converts them: what cannot be is refused with HTTP 400 before
anything is done. An empty number is one that was not given.
"""

from __future__ import annotations

from typing import Final

from zbus.wire.numbers import parse_number

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1

_FLAGS: Final = {
    **dict.fromkeys((b"true", b"on", b"yes", b"1"), True),
    **dict.fromkeys((b"false", b"off", b"no", b"0"), False),
}


class BadParameter(Exception):
    """It is missing, or not what it has to be: a sentence for its sender."""


class Params:
    __slots__ = ("_fields",)

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields

    def required(self, name: bytes) -> bytes:
        value = self._fields.get(name)
        if value is None:
            raise BadParameter(f"Required parameter '{name.decode()}' is not present.")
        return value

    def optional(self, name: bytes) -> bytes:
        """Empty if it was not given."""
        return self._fields.get(name, b"")

    def text(self, name: bytes) -> str:
        """Without space around it; empty if it was not given."""
        return self.optional(name).decode("utf-8", "replace").strip()

    def name(self, name: bytes) -> str:
        """The same, and there must be some."""
        value = self.required(name).decode("utf-8", "replace").strip()
        if not value:
            raise BadParameter(f"{name.decode()} must not be blank")
        return value

    def number(self, name: bytes, largest: int, default: int | None = None) -> int:
        """A whole number, perhaps negative; without a default it must be given."""
        value = self.required(name) if default is None else self._fields.get(name)
        if not value or not (value := value.strip()):
            if default is not None:
                return default
            value = b""
        negative = value.startswith(b"-")
        digits = value[1:] if negative or value.startswith(b"+") else value
        number = parse_number(digits, largest + negative)
        if number is None:
            raise BadParameter(f"Parameter '{name.decode()}' is not a whole number in its range.")
        return -number if negative else number

    def flag(self, name: bytes, default: bool) -> bool:
        value = self._fields.get(name)
        if not value or not (value := value.strip().lower()):
            return default
        flag = _FLAGS.get(value)
        if flag is None:
            raise BadParameter(f"Parameter '{name.decode()}' is not true or false.")
        return flag
