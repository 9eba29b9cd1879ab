"""The file of tokens: read strictly, watched, and taken over while the broker runs.

    [[token]]
    name = "billing"
    sha256 = ["9f86d081884c7d65..."]        # two while one replaces the other
    operations = ["produce", "consume"]
    requests_per_s = 500                    # of all who have the token, together
    expires = 2027-01-01T00:00:00Z
    [token.topics]
    Orders = ["billing"]                    # groups; none = all of them

Every word of it is explained in docs/reference/access.md. What is not understood is refused, with
the file and the entry: a misspelled right must not become a missing lock.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import stat
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

from zbus.core.api import RATE_MAX
from zbus.edge.access import ADMIN, ALL, NEVER_MS, OPERATIONS, Access, Entry, make_grant
from zbus.edge.quotas import Limits
from zbus.server.exits import CannotStart

FILE_BYTES_MAX = 1 << 20
DIGESTS_MAX = 1_000
"""A token is compared with each of them: this bounds what an unknown one costs."""

NAME_BYTES_MAX = 200

IDLE = ("home", "js", "css", "img", "page")
"""Operations of the original's own pages, which its tokens have. They grant nothing here."""

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_OF_NOTHING = sha256(b"").hexdigest()
_LIMITS = ("requests_per_s", "bytes_per_s", "connections_max")
_KEYS = (
    "name",
    "sha256",
    "principal",
    "anonymous",
    "operations",
    "topics",
    "expires",
    *_LIMITS,
)

Mark = tuple[int, int, int]
"""Whether a file is still the same: modified (ns), size, inode."""

log = logging.getLogger("zbus")


class BadTokens(CannotStart):
    """The file cannot be taken as it is; the text names it, the entry, and what is wrong."""


def parse_tokens(text: str) -> list[Entry]:
    """The entries of a file; BadTokens if there is anything in it that is not understood."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTokens(f"is not TOML: {error}") from None
    if unknown := sorted(set(document) - {"token"}):
        raise BadTokens(f"unknown key {unknown[0]!r}; entries begin with [[token]]")
    tables = document.get("token", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadTokens("entries begin with [[token]], in two pairs of brackets")
    if not tables:
        raise BadTokens(
            "has no entry, so every request would be refused; an entry begins with [[token]]"
        )
    seen: set[tuple[str, object]] = set()
    entries = []
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        label = f"entry {number} ({name})" if isinstance(name, str) else f"entry {number}"
        try:
            entry = _entry(table)
            for what in _once(entry):
                if what in seen:
                    raise BadTokens(f"another entry has the same {what[0]}")
                seen.add(what)
        except BadTokens as error:
            raise BadTokens(f"{label}: {error}") from None
        entries.append(entry)
    if sum(len(entry.digests) for entry in entries) > DIGESTS_MAX:
        raise BadTokens(f"has more than {DIGESTS_MAX} tokens")
    return entries


def _once(entry: Entry) -> list[tuple[str, object]]:
    """What only one entry of a file may have."""
    once: list[tuple[str, object]] = [("name", entry.grant.name)]
    once += [("sha256", digest) for digest in entry.digests]
    once += [("principal", name) for name in entry.principals]
    return once + [("anonymous", True)] * entry.anonymous


def _entry(table: dict[str, Any]) -> Entry:
    for key in table:
        if key not in _KEYS:
            raise BadTokens(f"unknown key {key!r}; known: {', '.join(_KEYS)}")
    name = _name(table.get("name"), "name")
    digests = tuple(_digest(text) for text in _texts(table, "sha256"))
    principals = tuple(_name(text, "principal") for text in _texts(table, "principal"))
    anonymous = table.get("anonymous", False)
    if not isinstance(anonymous, bool):
        raise BadTokens("anonymous is true or false")
    if not (digests or principals or anonymous):
        raise BadTokens("it matches no client: it needs sha256, principal or anonymous = true")
    if len(set(digests)) < len(digests) or len(set(principals)) < len(principals):
        raise BadTokens("the same sha256 or principal is listed twice")
    limits = Limits(*[_limit(table, key) for key in _LIMITS])
    grant = make_grant(name, _operations(table), _topics(table), _expires(table), limits)
    return Entry(grant, digests, principals, anonymous)


def _texts(table: dict[str, Any], key: str) -> list[str]:
    """A text or a list of texts; empty if the key is absent."""
    value = table.get(key, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadTokens(f"{key} is a text or a list of texts")
    return texts


def _name(value: object, key: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise BadTokens(f"{key} is a text of printable characters, not {value!r}")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise BadTokens(f"{key} has at most {NAME_BYTES_MAX} bytes")
    return value


def _digest(text: str) -> bytes:
    if not _DIGEST.fullmatch(text):
        # Perhaps it is the token itself: it is not repeated, this goes to a log.
        raise BadTokens("sha256 is 64 hexadecimal digits: the hash of a token, never the token")
    if text.lower() == _OF_NOTHING:
        raise BadTokens("this sha256 is that of the empty token; write anonymous = true instead")
    return bytes.fromhex(text)


def _operations(table: dict[str, Any]) -> list[str]:
    operations = table.get("operations")
    if not isinstance(operations, list) or not operations:
        raise BadTokens('operations is a list of at least one, such as ["produce", "consume"]')
    for operation in operations:
        if operation not in (*OPERATIONS, *IDLE, ADMIN, ALL):
            known = ", ".join((*OPERATIONS, ADMIN, ALL))
            raise BadTokens(f"unknown operation {operation!r}; known: {known}")
    return operations


def _topics(table: dict[str, Any]) -> dict[str, list[str]]:
    topics = table.get("topics", {})
    if not isinstance(topics, dict):
        raise BadTokens("topics is a table of topics and their groups")
    for topic, groups in topics.items():
        _pattern(topic)
        if not isinstance(groups, list):
            raise BadTokens(f"topic {topic!r}: groups are a list; [] is all of them")
        for group in groups:
            _pattern(group)
    if len({topic.lower() for topic in topics}) < len(topics):
        raise BadTokens("two topics differ in case only, which is the same topic")
    return topics


def _pattern(value: object) -> None:
    name = _name(value, "a topic or group")
    if "*" in name[:-1]:
        raise BadTokens(f"{name!r}: * is allowed only at the end, as a prefix match")


def _limit(table: dict[str, Any], key: str) -> int:
    """0 = there is none."""
    if key not in table:
        return 0
    value = table[key]
    if type(value) is not int or not 1 <= value <= RATE_MAX:
        raise BadTokens(f"{key} is a whole number from 1 to {RATE_MAX}")
    return value


def _expires(table: dict[str, Any]) -> int:
    if "expires" not in table:
        return NEVER_MS
    expires = table["expires"]
    if not isinstance(expires, datetime.datetime) or expires.tzinfo is None:
        raise BadTokens("expires is a time with its zone, such as 2027-01-01T00:00:00Z")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return max(0, (expires - epoch) // datetime.timedelta(milliseconds=1))


def read_tokens(path: Path) -> tuple[list[Entry], Mark]:
    """The entries of a file, and what it was like when it was read; BadTokens if it is bad."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadTokens(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        if len(content) > FILE_BYTES_MAX:
            raise BadTokens(f"has more than {FILE_BYTES_MAX} bytes")
        entries = parse_tokens(content.decode())
    except UnicodeDecodeError:
        raise BadTokens(f"{path}: is not UTF-8") from None
    except BadTokens as error:
        raise BadTokens(f"{path}: {error}") from None
    return entries, _mark(status)


def loose_permissions(path: Path) -> str:
    """What is careless about who may read or write the file; "" = nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others than its owner may change it"
    return "everybody may read it" if mode & stat.S_IROTH else ""


def _mark(status: os.stat_result) -> Mark:
    return status.st_mtime_ns, status.st_size, status.st_ino


class TokenFile:
    """The file of a running broker, and the table that is made of it."""

    def __init__(self, path: Path, parts: int = 1) -> None:
        """BadTokens if it cannot be taken. Each of so many processes counts its part of limits."""
        self._path = path
        self._parts = parts
        entries, mark = self._read()
        self.access = Access(entries)
        self._taken: Mark | None = mark  # the file that was last looked into, good or bad
        self._seen: Mark | None = mark
        self._warn()

    def look(self) -> None:
        """Take the file over if it is another one than last time. To be called now and then: one
        that is being written is left alone until it looks the same twice."""
        try:
            mark: Mark | None = _mark(self._path.stat())
        except OSError:
            mark = None
        settled, self._seen = mark == self._seen, mark
        if settled and mark != self._taken:
            self._taken = mark
            self.reload()

    def reload(self) -> None:
        """Take it over now. If it is bad the old table stays, and the log says why."""
        try:
            entries, self._taken = self._read()
        except BadTokens as error:
            log.error("token file rejected, keeping the previous one", extra={"why": str(error)})
            return
        self.access.update(entries)
        log.info("tokens taken over", extra={"file": self._path, "entries": len(entries)})
        self._warn()

    def _read(self) -> tuple[list[Entry], Mark]:
        entries, mark = read_tokens(self._path)
        return [each.shared(self._parts) for each in entries], mark

    def _warn(self) -> None:
        if loose := loose_permissions(self._path):
            log.warning("careless permissions", extra={"file": self._path, "why": loose})
