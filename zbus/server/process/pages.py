"""The folder of the option `pages`: read at the start and at SIGHUP, not while a request waits. The
files of the console and of the client in JavaScript, which are part of the package: read at the
start."""

from __future__ import annotations

import logging
import os
from hashlib import sha256
from importlib.resources import as_file, files
from mimetypes import MimeTypes
from pathlib import Path

from zbus.edge.pages import Page, Pages
from zbus.server.exits import CannotStart

FILE_BYTES_MAX = 1 << 20
"""As large as the largest message by default: for a slow reader the broker holds it."""
ALL_BYTES_MAX = 64 << 20
FILES_MAX = 10_000

_TYPES = MimeTypes()  # what Python knows; a machine's own tables would differ
_UTF_8 = ("text/", "application/javascript")

log = logging.getLogger("zbus")


class BadPages(CannotStart):
    """The folder cannot be taken as it is; the text says why."""


def read_pages(folder: Path) -> dict[bytes, Page]:
    """Its files, by their paths below it. What is hidden, is no file or lies elsewhere (a link) is
    left out; what is too large is refused, so that it is not missed later."""
    try:
        root = folder.resolve(strict=True)
        if not root.is_dir():
            raise BadPages(f"pages: {folder} is not a folder")
        return _read(root)
    except OSError as error:
        raise BadPages(f"pages: cannot read {error.filename}: {error.strerror}") from None
    except RuntimeError:  # so says Python before 3.13
        raise BadPages(f"pages: {folder} is a link that leads to itself") from None


def _read(root: Path) -> dict[bytes, Page]:
    pages: dict[bytes, Page] = {}
    bytes_left = ALL_BYTES_MAX
    for folder, folders, names in os.walk(root, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(names):
            path = Path(folder, name)
            place = Path(os.path.realpath(path)) if path.is_symlink() else path
            if name.startswith(".") or not (place.is_file() and place.is_relative_to(root)):
                continue
            with place.open("rb") as file:
                body = file.read(FILE_BYTES_MAX + 1)
            bytes_left -= len(body)
            if len(body) > FILE_BYTES_MAX:
                raise BadPages(f"pages: {path} has more than {FILE_BYTES_MAX} bytes")
            if bytes_left < 0 or len(pages) == FILES_MAX:
                limits = f"{ALL_BYTES_MAX} bytes or {FILES_MAX} files"
                raise BadPages(f"pages: there are more than {limits} in {root}")
            etag = b'"%b"' % sha256(body).hexdigest()[:32].encode()
            pages[os.fsencode(path.relative_to(root))] = Page(_media_type(name), etag, body)
    return pages


def _fail(error: OSError) -> None:
    raise error


def _media_type(name: str) -> bytes:
    kind, encoding = _TYPES.guess_type(name, strict=False)
    if kind is None or encoding is not None:
        return b"application/octet-stream"
    return (f"{kind}; charset=utf-8" if kind.startswith(_UTF_8) else kind).encode()


def read_own(name: str) -> Pages:
    """The files of a folder of the package, `console` or `javascript`, wherever the package is."""
    with as_file(files("zbus") / name) as folder:
        return Pages(read_pages(folder))


class PageFolder:
    """The folder of a running broker."""

    def __init__(self, folder: Path) -> None:
        """BadPages if it cannot be taken."""
        self._folder = folder
        self.pages = Pages(read_pages(folder))

    def reload(self) -> None:
        """Read it again, which may take a while; if it is bad, the old pages stay."""
        try:
            self.pages.files = read_pages(self._folder)
        except BadPages as error:
            log.error("pages not taken over, the old ones stay", extra={"why": str(error)})
