"""Log lines: an event and its fields, as text for people or JSON for machines, on stderr."""

from __future__ import annotations

import logging
import time

import msgspec

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _time(record: logging.LogRecord) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{stamp}.{int(record.msecs):03d}Z"


def _shown(value: object) -> str:
    """Without line breaks and control characters, which others may have sent."""
    text = str(value)
    return text if text.isprintable() else ascii(text)[1:-1]


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO listening address=127.0.0.1:15555`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry |= {name: str(value) for name, value in _fields(record).items()}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def set_up(level: str, form: str) -> logging.Logger:
    """The broker's logger, writing in the given form (text or json)."""
    logger = logging.getLogger("zbus")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    return logger
