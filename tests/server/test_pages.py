"""The folder of pages: what of it is served, and what is not."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from zbus.server.process.pages import FILE_BYTES_MAX, BadPages, PageFolder, read_pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.txt").write_text("x")
    folder = tmp_path / "pages"
    (folder / "a/b").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>home</h1>")
    (folder / "a/b/c d.js").write_text("let x")
    return folder


def test_files_and_what_they_are(folder: Path) -> None:
    for name in ("x.css", "x.json", "x.svg", "x.png", "x.mjs", "x.unknown", "x.js.gz", "X.HTML"):
        (folder / name).write_bytes(b"")
    types = {name.decode(): page.media_type.decode() for name, page in read_pages(folder).items()}
    script = types.pop("a/b/c d.js")
    assert script in ("application/javascript; charset=utf-8", "text/javascript; charset=utf-8")
    assert types.pop("x.mjs") == script
    assert types == {
        "index.html": "text/html; charset=utf-8",
        "X.HTML": "text/html; charset=utf-8",
        "x.css": "text/css; charset=utf-8",
        "x.json": "application/json",
        "x.svg": "image/svg+xml",
        "x.png": "image/png",
        "x.unknown": "application/octet-stream",
        "x.js.gz": "application/octet-stream",
    }


def test_what_is_hidden_or_elsewhere_is_left_out(folder: Path) -> None:
    (folder / ".env").write_text("secret")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("secret")
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "out").symlink_to(folder.parent / "elsewhere")
    (folder / "up").symlink_to(folder.parent)
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nothing")
    (folder / "within.html").symlink_to("index.html")
    os.mkfifo(folder / "pipe")
    assert sorted(read_pages(folder)) == [b"a/b/c d.js", b"index.html", b"within.html"]


def test_the_tag_follows_the_content(folder: Path) -> None:
    before = read_pages(folder)[b"index.html"]
    assert read_pages(folder)[b"index.html"] == before
    (folder / "index.html").write_text("<h1>HOME</h1>")
    assert read_pages(folder)[b"index.html"].etag != before.etag


def test_what_is_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large").write_bytes(b"x" * FILE_BYTES_MAX)
    assert len(read_pages(folder)[b"large"].body) == FILE_BYTES_MAX
    (folder / "large").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    with pytest.raises(BadPages, match=r"pages: .*/large has more than 1048576 bytes"):
        read_pages(folder)
    (folder / "large").unlink()
    monkeypatch.setattr("zbus.server.process.pages.FILES_MAX", 1)
    with pytest.raises(BadPages, match="more than 67108864 bytes or 1 files"):
        read_pages(folder)


def test_folders_that_are_none(folder: Path) -> None:
    for name in ("nothing", "index.html"):
        with pytest.raises(BadPages, match=f"pages: .*{name}"):
            read_pages(folder / name)


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(BadPages):
        PageFolder(loop)


def test_it_is_read_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = PageFolder(folder)
    pages = kept.pages
    (folder / "new.txt").write_text("new")
    assert b"new.txt" not in pages.files
    kept.reload()
    assert b"new.txt" in pages.files
    folder.rename(folder.with_name("moved"))
    with caplog.at_level(logging.ERROR):
        kept.reload()
    assert "pages not taken over" in caplog.text
    assert b"new.txt" in pages.files
