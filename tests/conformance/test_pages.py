"""Pages of the operator under `/_pages/`: who gets which, and nothing else of the machine."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import TYPED, Client, World, cmd, http, ok
from zbus.edge.access import Access
from zbus.edge.guard import GuardSettings
from zbus.edge.pages import Page, Pages

HTML = b"text/html; charset=utf-8"
FILES = {
    b"index.html": Page(HTML, b'"1"', b"<h1>home</h1>"),
    b"zbus.js": Page(b"text/javascript", b'"2"', b"let x"),
    b"a/index.html": Page(HTML, b'"3"', b"<h1>a</h1>"),
    b"a/b c.txt": Page(b"text/plain", b'"4"', b"b c"),
    "é.txt".encode(): Page(b"text/plain", b'"5"', b"e"),
}


def served(access: Access | None = None) -> Client:
    return World(guard=GuardSettings(), pages=Pages(FILES), access=access).connect()


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/_pages/", b"<h1>home</h1>"),
        ("/_pages/index.html", b"<h1>home</h1>"),
        ("/_pages/zbus.js?v=1", b"let x"),
        ("/_pages/zbus.js?cmd=remove&topic=T", b"let x"),
        ("/_pages/a/", b"<h1>a</h1>"),
        ("/_pages/a/b%20c.txt", b"b c"),
        ("/_pages/%C3%A9.txt", b"e"),
    ],
)
def test_a_page_is_served(target: str, body: bytes) -> None:
    client = served()
    for lines in ((), TYPED, ("sec-fetch-site: same-origin", "sec-fetch-dest: script")):
        reply = ok(client, http(target, *lines))
        assert reply.body == body
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["content-security-policy"].startswith("default-src 'self';")
        assert "script-src" not in reply.headers["content-security-policy"]
    client.send(http(target, method="HEAD"))
    client.world.settle()
    assert b"content-length: %d\r\n" % len(body) in client.received
    assert client.received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "target",
    [
        "/_pages/nothing.html",
        "/_pages/../index.html",
        "/_pages/a/../index.html",
        "/_pages/%2e%2e/%2e%2e/etc/passwd",
        "/_pages/..%2f..%2fetc%2fpasswd",
        "/_pages//etc/passwd",
        "/_pages//index.html",
        "/_pages/./index.html",
        "/_pages/index.html/",
        "/_pages/index.html%00.txt",
        "/_pages/a/index.html/../../x",
        "/_pages/..\\index.html",
        "/_pages/%FF",
        "/_pages/b/",
    ],
)
def test_no_path_leads_elsewhere(target: str) -> None:
    reply = served().request(http(target))
    assert (reply.status, reply.body) == (404, b"404: there is no such page here")


@pytest.mark.parametrize(
    ("target", "location"),
    [("/_pages", "/_pages/"), ("/_pages?x=1", "/_pages/"), ("/_pages/a", "/_pages/a/")],
)
def test_a_folder_is_named_as_one(target: str, location: str) -> None:
    reply = served().request(http(target))
    assert (reply.status, reply.headers["location"]) == (301, location)


def test_a_page_is_sent_once() -> None:
    client = served()
    etag = ok(client, http("/_pages/zbus.js")).headers["etag"]
    client.send(http("/_pages/zbus.js", f"if-none-match: {etag}"))
    client.send(http("/_pages/zbus.js", f'if-none-match: "9", W/{etag}'))
    client.world.settle()
    assert client.received.count(b"HTTP/1.1 304 ") == 2
    client.received = b""
    assert ok(client, http("/_pages/zbus.js", 'if-none-match: "9"')).body == b"let x"


def test_other_files_take_their_place() -> None:
    pages = Pages(FILES)
    client = World(pages=pages).connect()
    ok(client, http("/_pages/zbus.js"))
    pages.files = {b"zbus.js": Page(b"text/javascript", b'"6"', b"let y")}
    assert ok(client, http("/_pages/zbus.js")).body == b"let y"
    assert client.request(http("/_pages/")).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_pages_are_only_read(method: str) -> None:
    reply = served().request(http("/_pages/zbus.js", method=method, body=b"x"))
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("host: evil.example",), 421),
        (("host: localhost", "origin: https://evil.example"), 403),
        (("host: localhost", "sec-fetch-site: cross-site", "sec-fetch-mode: no-cors"), 403),
        (("host: localhost", "sec-fetch-site: cross-site", *TYPED[2:]), 200),
    ],
)
def test_other_sites_may_link_to_a_page_and_no_more(lines: tuple[str, ...], status: int) -> None:
    data = "\r\n".join(("GET /_pages/ HTTP/1.1", *lines, "", "")).encode()
    assert served().request(data).status == status


def test_a_page_needs_no_token_and_takes_its_turn() -> None:
    client = served(Access([]))
    client.send(http("/T?cmd=query") + http("/_pages/zbus.js") + http("/T?cmd=query"))
    client.world.settle()
    assert [reply.status for reply in client.replies()] == [403, 200, 403]


def test_a_connection_is_kept_as_asked() -> None:
    client = served()
    assert ok(client, http("/_pages/")).headers["connection"] == "Keep-Alive"
    assert ok(client, http("/_pages/", "connection: close")).headers["connection"] == "close"
    assert client.closed


def test_without_pages_there_are_none() -> None:
    client = World().connect()
    assert client.request(http("/_pages/index.html")).status == 404
    assert client.request(cmd("ping")).status == 200
