"""The console's files, who is led to them, and the commands that it is the reason for."""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec
import pytest

from tests.conformance.dialogue import TYPED, Client, World, cmd, document, http, ok
from zbus.dialects.zbus.schema.commands import COMMANDS
from zbus.edge.access import Access, Entry, make_grant
from zbus.server.process.pages import read_own

CONSOLE = read_own("console")
HTML = "accept: text/html,*/*;q=0.8"


def served(access: Access | None = None) -> Client:
    files = {"console": CONSOLE, "client": read_own("javascript")}
    return World(dialects=files, access=access).connect()


@pytest.mark.parametrize("access", [None, Access([])], ids=["open", "with tokens"])
def test_a_browser_at_the_bare_address_is_led_to_it(access: Access | None) -> None:
    client = served(access)
    for lines in ((HTML,), TYPED, ()):
        for target in ("/", "/?cmd=home", "/?x=1"):
            reply = client.request(http(target, *lines))
            assert (reply.status, reply.headers["location"]) == (302, "/_console/")


def test_who_follows_nothing_is_told_where_to_begin() -> None:
    client = served()
    reply = client.request(http("/", "user-agent: curl/8.5.0", "accept: */*"))
    assert reply.headers["content-type"] == "text/plain"
    for target in re.findall(r"curl '?HOST(\S+?)'? ", reply.body.decode()):
        asked = http(target) if "?" in target else http(target, body=b"hello", method="POST")
        last = ok(client, asked)
    assert last.body == b"hello"


def test_its_page_runs_and_loads_nothing_but_its_files() -> None:
    client = served(Access([]))
    reply = ok(client, http("/_console/", *TYPED))
    policy = reply.headers["content-security-policy"]
    assert "unsafe" not in policy
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
    ):
        assert part in policy
    assert "require-trusted-types-for 'script'" in policy
    page = reply.body.decode()
    assert not re.search(r"<style|style=|\son\w+=|https?:", page)
    assert not re.search(r"<script(?![^>]* src=)", page)
    for name in re.findall(r'(?:src|href)="([^"/][^"]*)"', page):
        assert client.request(http(f"/_console/{name}")).status == 200, name


def test_every_module_that_is_imported_is_there() -> None:
    names = {name.decode() for name in CONSOLE.files}
    assert {"index.html", "vendor/LICENSE.uplot", "vendor/LICENSE.preact"} <= names
    for name, page in CONSOLE.files.items():
        folder = name.decode().rpartition("/")[0]
        if not name.endswith(b".js") or folder == "vendor":
            continue
        assert b"javascript" in page.media_type, name
        for said in re.findall(r'from "(\.?/[^"]+)"', page.body.decode()):
            if said.startswith("/"):
                assert served().request(http(said)).status == 200, (name, said)
                continue
            parts = [part for part in f"{folder}/{said}".split("/") if part not in ("", ".")]
            while ".." in parts:
                at = parts.index("..")
                del parts[at - 1 : at + 1]
            assert "/".join(parts) in names, (name, said)


def test_its_scripts_make_no_markup_of_text_and_know_no_other_host() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://"
    )
    for name, page in CONSOLE.files.items():
        if name.endswith((b".js", b".css", b".html")) and not name.startswith(b"vendor/"):
            assert not re.search(forbidden, page.body.decode()), name


def test_a_file_is_sent_once() -> None:
    client = served()
    etag = ok(client, http("/_console/main.js")).headers["etag"]
    assert client.request(http("/_console/main.js", f"if-none-match: {etag}")).status == 304
    assert client.request(http("/_console", "accept: */*")).headers["location"] == "/_console/"
    assert client.request(http("/_console/../index.html")).status == 404


def test_the_description_says_what_each_command_needs() -> None:
    """By it the page leaves out what a token may not do."""
    told = document(ok(served(), http("/_openapi.json")))["x-commands"]
    needed = {name: each["operation"] for name, each in told.items()}
    assert needed == {name: command.operation or None for name, command in COMMANDS.items()}


def test_rights_without_tokens_are_all() -> None:
    told = document(ok(served(), http("/_rights")))
    assert told == {"operations": ["*"], "tokens": False, "topics": {"*": ["*"]}}


def test_rights_are_those_of_the_token() -> None:
    access = Access(
        [
            Entry(make_grant("admin", ["admin"], {}), (_digest(b"a"),)),
            Entry(
                make_grant("b", ["produce", "home"], {"Orders": [], "x*": ["g"]}, 1 << 50),
                (_digest(b"b"),),
            ),
        ]
    )
    client = served(access)
    assert client.request(http("/_rights")).status == 403
    told = document(ok(client, http("/_rights", "token: a")))
    assert (told["operations"], told["topics"], told["name"]) == (["admin"], {"*": ["*"]}, "admin")
    assert document(ok(client, http("/_rights", "cookie: token=b"))) == {
        "expires": 1 << 50,
        "name": "b",
        "operations": ["home", "produce"],
        "tokens": True,
        "topics": {"orders": ["*"], "x*": ["g"]},
    }


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


@pytest.mark.parametrize(
    ("body", "cut", "told"),
    [
        (b"0123456789", 4, {"body": "0123", "size": 10}),
        (b"0123", 4, {"body": "0123", "size": 4}),
        (b"0123", 0, {"body": "", "size": 4}),
        ("aé".encode(), 2, {"body": "a", "size": 3}),  # no half of a character
        (b"ab\xff", 2, {"body": "ab", "size": 3}),
        (b"\xff\xfe\xfd", 2, {"body_base64": "//4=", "size": 3}),
        ("é".encode()[:1], 5, {"body_base64": "ww==", "size": 1}),
    ],
)
def test_a_cut_read(body: bytes, cut: int, told: dict[str, object]) -> None:
    client = World().connect()
    ok(client, cmd("declare", "topic: T"))
    ok(client, cmd("produce", "topic: T", body=body))
    reply = ok(client, http(f"/T?cmd=read&count=1&cut={cut}"))
    assert (reply.headers["first"], reply.headers["end"]) == ("0", "1")
    (found,) = msgspec.json.decode(reply.body)
    assert {name: found[name] for name in told} == told
    (whole,) = msgspec.json.decode(ok(client, http("/T?cmd=read&count=1")).body)
    assert "size" not in whole
