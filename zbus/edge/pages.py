"""Pages: files, as a folder held them when it was read. Under `/_pages/` those of the operator,
under `/_console/` the broker's own console, under `/_client/` the client in JavaScript.

A page from here is of the broker's own site, so its scripts may do what the user of the browser
may: over `fetch`, `EventSource` or WebSocket. Nothing is looked up in a file system here, so no
path leads out of the folder: a name is known, or it is not. Anybody may read them: they hold
nothing of the broker, and a page that asks for a token has to come from somewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes

import attrs

from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts
from zbus.edge.guard import Guard
from zbus.edge.http_reply import TEXT, HttpDialect, PlainHead, PlainReply, compose
from zbus.wire.heads.heads import Head

PREFIX = b"_pages"
CONSOLE = b"_console"
CLIENT = b"_client"
INDEX = b"index.html"

_POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline';"
    b" object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Scripts out of files of this site; none in a page itself, where a message may have put them."""

_CONSOLE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Not even styles stand in a page, and no text ever becomes markup: messages are shown there."""

_LINES = (
    b"cache-control: no-cache\r\ncontent-security-policy: %b\r\nx-content-type-options: nosniff\r\n"
    b"x-frame-options: DENY\r\ncross-origin-resource-policy: same-origin\r\n"
    b"referrer-policy: same-origin\r\n"
)


@attrs.frozen
class Page:
    """One file."""

    media_type: bytes
    etag: bytes  # in its quotes
    body: bytes


class Pages:
    """The files by their paths, `a/b.html`; another table may take the place of `files` at any
    time."""

    def __init__(self, files: Mapping[bytes, Page]) -> None:
        self.files = files


class PagesFace(HttpDialect):
    def __init__(self, prefix: bytes, policy: bytes, guard: Guard, pages: Pages) -> None:
        self.prefixes = frozenset((prefix,))
        self.prefix = prefix
        self.lines = _LINES % policy
        self.guard = guard
        self.pages = pages

    def read(self, head: Head) -> Show:
        return Show(head, self)


def build(parts: Parts) -> PagesFace:
    """The dialect, as `zbus.dialects.registry.DIALECTS` has it. Without pages there are none."""
    return PagesFace(PREFIX, _POLICY, parts.guard, _pages_of(parts))


def build_console(parts: Parts) -> PagesFace:
    """The same for the console."""
    return PagesFace(CONSOLE, _CONSOLE_POLICY, parts.guard, _pages_of(parts))


def build_client(parts: Parts) -> PagesFace:
    """The same for the client in JavaScript."""
    return PagesFace(CLIENT, _POLICY, parts.guard, _pages_of(parts))


def _pages_of(parts: Parts) -> Pages:
    pages = parts.settings
    return pages if isinstance(pages, Pages) else Pages({})


class Show(PlainHead):
    """How a page is shown. The file is looked for each time: there may be another by then."""

    def __init__(self, head: Head, dialect: PagesFace) -> None:
        super().__init__(head, dialect.guard)
        self._dialect = dialect
        path = head.target.partition(b"?")[0].removeprefix(b"/").removeprefix(dialect.prefix)
        self._path = unquote_to_bytes(path)

    def changes(self) -> bool:
        return False

    def needs(self) -> None:
        return None

    def plan(self) -> Plan:
        return self

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        status, lines, sent = self._answer()
        cached = status in (200, 304)
        reply = compose(self.head, self.browser, status, lines, sent, cached=cached)
        PlainReply(self, peer).send(reply)

    def _answer(self) -> tuple[int, bytes, bytes]:
        if self.head.method not in (b"GET", b"HEAD"):
            return 405, TEXT + b"allow: GET, HEAD\r\n", b"405: pages are read with GET"
        dialect, path = self._dialect, self._path
        files = dialect.pages.files
        name = path[1:]
        page = files.get(name + INDEX if path.endswith(b"/") else name) if path else None
        if page is None:
            # Links in a page are relative to its folder, so it has to be named as one.
            folder = name + b"/" if name else b""
            if not path.endswith(b"/") and folder + INDEX in files:
                return 301, b"location: /%b/%b\r\n" % (dialect.prefix, quote(folder).encode()), b""
            return 404, TEXT, b"404: there is no such page here"
        lines = b"content-type: %b\r\netag: %b\r\n%b" % (page.media_type, page.etag, dialect.lines)
        if page.etag in self.head.fields.get(b"if-none-match", b""):
            return 304, lines, b""
        return 200, lines, page.body
