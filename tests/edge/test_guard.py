"""What a head alone tells of who had it sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.dialects.zbus.request.header_lines import page, shown
from zbus.edge.guard import (
    PAGE,
    SANDBOX,
    Answer,
    Browser,
    Guard,
    GuardSettings,
    Policy,
)
from zbus.wire.heads.heads import Head, Heads

SETTINGS = GuardSettings(
    hosts=("Broker.Example.", "zbus"),
    cors_origins=("https://app.example", "http://localhost:3000"),
)
FIREFOX = "user-agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/60.0"
PAGES = "accept: text/html,application/xhtml+xml,*/*;q=0.8"
TYPED = (
    "sec-fetch-site: none",
    "sec-fetch-mode: navigate",
    "sec-fetch-user: ?1",
    "sec-fetch-dest: document",
)
LINKED = ("sec-fetch-mode: navigate", "sec-fetch-user: ?1", "sec-fetch-dest: document")
SAME = "sec-fetch-site: same-origin"
CROSS = "sec-fetch-site: cross-site"


POLICY = Policy(by_address=True, mark=b"cmd")


def head_of(*lines: str, method: str = "GET", host: str = "127.0.0.1:15555") -> Head:
    start = f"{method} /T HTTP/1.1"
    fields = [f"host: {host}"] * bool(host) + list(lines)
    return Heads().read("\r\n".join((start, *fields)).encode("latin-1"))[0]


def check(
    head: Head, changes: bool = True, settings: GuardSettings = SETTINGS, policy: Policy = POLICY
) -> int:
    """The status of the answer; 0 if the head may be planned."""
    answer = Guard(settings).check(head, lambda: changes, policy)
    if answer is None:
        return 0
    assert answer.text.startswith(f"{answer.status}: ") or answer.status == 204
    return answer.status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 0),
        ("localhost:15555", 0),
        ("LocalHost.", 0),
        ("tenant.localhost:1", 0),
        ("127.0.0.1", 0),
        ("10.1.2.3:80", 0),
        ("[::1]:15555", 0),
        ("[2001:db8::1]", 0),
        ("broker.example:15555", 0),
        ("BROKER.EXAMPLE.", 0),
        ("zbus", 0),
        ("", 0),  # stock clients name none: browsers always do
        ("evil.example", 421),
        ("evil.example:15555", 421),
        ("localhost.evil.example", 421),
        ("evil-localhost", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.1", 421),
        ("2130706433", 421),
        ("0x7f.0.0.1", 421),
        ("127.0.0.01", 421),
        ("broker.example.evil", 421),
        ("xbroker.example", 421),
        ("broker.example..", 421),
        ("%6cocalhost", 421),
    ],
)
def test_host(host: str, status: int) -> None:
    for changes in (True, False):
        assert check(head_of(host=host), changes) == status
    typed = head_of(*TYPED, host=host) if host else head_of(host=host)
    assert check(typed) == status


FETCHED = ("cmd: produce", "accept: */*", "accept-encoding: gzip, deflate")
"""The least that a browser says when a script has it send a command: of a page whose name was
rebound, by plain http, without a Referer. The script may choose the method and the User-Agent."""


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "X"])
@pytest.mark.parametrize("lines", [(), (FIREFOX,), ("user-agent: curl/8.5.0",), ("topic: T",)])
def test_a_cmd_header_does_not_excuse_a_host(method: str, lines: tuple[str, ...]) -> None:
    """A page whose name was rebound may send any header."""
    body = ("content-length: 5",) if method not in ("GET", "HEAD") else ()
    assert check(head_of(*FETCHED, *lines, *body, host="evil.example", method=method)) == 421
    origin = ("origin: http://evil.example", "content-length: 5")
    if method not in ("GET", "HEAD"):
        assert check(head_of("cmd: a", *lines, *origin, host="evil.example", method=method)) == 421


DELIVERED = (FIREFOX, PAGES, "accept-encoding: gzip", *TYPED, "origin: http://evil.example")
"""What a message that came from a browser may have among its headers."""


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("GET", ("content-length: 0",)),
        ("GET", ("content-length: 5", *DELIVERED)),
        ("GET", ()),
        ("POST", ("content-length: 5", "user-agent: curl/8.5.0", "accept: */*")),
        ("PUT", ("content-length: 0",)),
    ],
)
def test_the_host_of_a_message(method: str, lines: tuple[str, ...]) -> None:
    """A delivery that is published again, or a reply with its target's headers: no browser sends
    a GET with a length, nor anything without Accept-Encoding."""
    head = head_of("cmd: route", *lines, method=method, host="other.example:15555")
    assert check(head) == 0
    assert check(head, policy=Policy(by_address=True)) == 421, "of a dialect without such messages"
    plain = head_of("topic: T", *lines, method=method, host="other.example:15555")
    assert check(plain) == 421


@pytest.mark.parametrize("line", ["origin: https://app.example", SAME, "sec-fetch-site: none"])
def test_no_browser_is_without_host(line: str) -> None:
    assert check(head_of(line, host=""), changes=False) == 400


def test_any_host() -> None:
    assert check(head_of(host="evil.example"), settings=GuardSettings(hosts=("*",))) == 0


UPGRADE = ("upgrade: websocket", "connection: Upgrade")
ASKS = "access-control-request-method: POST"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:15555", 0),
        ("https://127.0.0.1:15555", 0),  # a proxy before the broker speaks TLS
        ("HTTP://127.0.0.1:15555", 0),
        ("https://app.example", 0),
        ("HTTPS://App.Example", 0),
        ("http://localhost:3000", 0),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:15556", 403),
        ("http://localhost:15555", 403),
        ("http://localhost:3001", 403),
        ("http://app.example", 403),
        ("https://app.example:444", 403),
        ("https://app.example.evil", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://", 403),
        ("chrome-extension://127.0.0.1:15555", 403),
        ("http://127.0.0.1:15555/", 403),
        ("http://127.0.0.1:15555, http://evil.example", 403),
    ],
)
@pytest.mark.parametrize(
    "lines", [(), UPGRADE, (CROSS, "sec-fetch-mode: cors", "sec-fetch-dest: empty"), TYPED]
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "DELETE"])
def test_origin(origin: str, status: int, lines: tuple[str, ...], method: str) -> None:
    if origin.endswith("//127.0.0.1:15555") and lines and lines != UPGRADE:
        status = 403  # the browser says that it is of another site: of another scheme
    for changes in (True, False):
        assert check(head_of(f"origin: {origin}", *lines, method=method), changes) == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("broker.example", "http://broker.example", 0),
        ("broker.example", "https://broker.example", 0),
        ("broker.example:443", "https://broker.example", 0),
        ("broker.example", "http://broker.example:80", 0),
        ("broker.example:80", "https://broker.example", 403),
        ("broker.example:15555", "http://broker.example", 403),
        ("[::1]:15555", "http://[::1]:15555", 0),
        ("[::1]", "http://[::1]", 0),
        ("[::1]", "http://[::1]:15555", 403),
        ("", "http://127.0.0.1:15555", 403),
    ],
)
def test_origin_and_host_with_their_ports(host: str, origin: str, status: int) -> None:
    assert check(head_of(f"origin: {origin}", host=host)) == status


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_page_of_our_name_and_another_scheme(site: str) -> None:
    """The browser knows better than the fields of the address do."""
    page = head_of("origin: http://localhost", f"sec-fetch-site: {site}", host="localhost")
    assert check(page) == 403
    assert check(page, settings=GuardSettings(cors_origins=("http://localhost",))) == 0
    own = head_of("origin: http://localhost", "sec-fetch-site: same-origin", host="localhost")
    assert check(own) == 0


def test_any_origin() -> None:
    settings = GuardSettings(cors_origins=("*",))
    for origin in ("https://evil.example", "null", "file://"):
        assert check(head_of(f"origin: {origin}"), settings=settings) == 0
        assert check(head_of(f"origin: {origin}", "cookie: a=b"), settings=settings) == 0
        assert check(head_of(f"origin: {origin}", "cookie: a=b; token=c"), settings=settings) == 403
        others = head_of(f"origin: {origin}", "cookie: csrftoken=c; xtoken=d")
        assert check(others, settings=settings) == 0, "cookies of other programs on this host"
    assert check(head_of(CROSS, "sec-fetch-mode: no-cors"), settings=settings) == 403
    assert check(head_of("origin: null", CROSS)) == 403
    assert check(head_of("origin: file://", *UPGRADE)) == 403
    both = GuardSettings(cors_origins=("*", "https://app.example"))
    assert check(head_of("origin: https://app.example", "cookie: token=c"), settings=both) == 0


def test_a_page_out_of_a_file() -> None:
    """Any site can make a page without an address, so it is nobody in particular, as with `*`."""
    settings = GuardSettings(cors_origins=("null", "https://app.example"))
    for origin in ("null", "file://"):
        for lines in (UPGRADE, (CROSS, "sec-fetch-mode: cors", "sec-fetch-dest: empty")):
            head = head_of(f"origin: {origin}", *lines)
            assert check(head, settings=settings) == 0
            assert Guard(settings).is_anybodys(head)
            assert check(head_of(f"origin: {origin}", "cookie: token=c"), settings=settings) == 403
            fields = covered(browser(f"origin: {origin}", *lines, settings=settings))
            assert fields["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in fields
    for origin in ("https://evil.example", "file:///etc", ""):
        assert check(head_of(f"origin: {origin}"), settings=settings) == 403
    assert not Guard(settings).is_anybodys(head_of("origin: https://app.example"))


@pytest.mark.parametrize(
    ("lines", "changing", "looking"),
    [
        (TYPED, 0, 0),
        ((SAME, "sec-fetch-mode: cors", "sec-fetch-dest: empty"), 0, 0),
        ((SAME, *LINKED), 0, 0),
        ((*TYPED, "referer: http://evil.example/"), 403, 0),
        ((CROSS, *LINKED), 403, 0),
        (("sec-fetch-site: same-site", *LINKED), 403, 0),
        (("sec-fetch-site: none", "sec-fetch-mode: navigate", "sec-fetch-dest: document"), 403, 0),
        ((*TYPED[:2], "sec-fetch-user: ?0", TYPED[3]), 403, 0),
        ((*TYPED[:3], "sec-fetch-dest: iframe"), 403, 403),
        ((*TYPED[:3], "sec-fetch-dest: object"), 403, 403),
        (TYPED[:3], 403, 403),
        (TYPED[:1], 403, 403),
        # Node's own fetch and WebSocket: a browser that says any of these says the site, too.
        (("sec-fetch-mode: cors", "accept: */*", "user-agent: node"), 0, 0),
        (("sec-fetch-mode: websocket", "accept: */*"), 0, 0),
        ((CROSS, "sec-fetch-mode: no-cors", "sec-fetch-dest: image"), 403, 403),
        ((CROSS, "sec-fetch-mode: no-cors", "sec-fetch-dest: script"), 403, 403),
        (("sec-fetch-site: same-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: x"), 403, 403),
        (("sec-fetch-site: Same-Origin", "sec-fetch-mode: cors"), 403, 403),
        (("sec-fetch-site:", "sec-fetch-mode: cors"), 403, 403),
    ],
)
def test_sec_fetch(lines: tuple[str, ...], changing: int, looking: int) -> None:
    for method in ("GET", "HEAD", "POST"):
        assert check(head_of(*lines, method=method)) == changing
        assert check(head_of(*lines, method=method), changes=False) == looking


OPENS = (FIREFOX, PAGES, "upgrade-insecure-requests: 1")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (OPENS, 0),
        ((*OPENS, "referer: http://127.0.0.1:15555/"), 0),
        ((FIREFOX, "accept: */*", "referer: http://127.0.0.1:15555/a?b#c"), 0),
        ((*OPENS, "referer: http://127.0.0.1:15556/"), 403),
        ((*OPENS, "referer: http://127.0.0.1:15555.evil.example/"), 403),
        ((*OPENS, "referer: http://127.0.0.1:15555@evil.example/"), 403),
        ((*OPENS, "referer: about:blank"), 403),
        ((*OPENS, "referer:"), 403),
        ((FIREFOX, PAGES), 403),  # a script may say Accept, and no more
        ((FIREFOX, "accept: image/png,*/*"), 403),
        ((FIREFOX, "accept: */*"), 403),
        # No browser, whatever it says of itself: PowerShell sends this.
        (("user-agent: Mozilla/5.0 (Windows NT; en-US) WindowsPowerShell/5.1",), 0),
        (("user-agent: curl/8.5.0", "accept: */*"), 0),
        (("accept: */*",), 0),
        ((), 0),
    ],
)
def test_without_sec_fetch(lines: tuple[str, ...], status: int) -> None:
    assert check(head_of(*lines)) == status
    assert check(head_of(*lines), changes=False) == 0


NAMES = st.sampled_from(
    [
        "origin",
        "referer",
        "user-agent",
        "accept",
        "upgrade-insecure-requests",
        "cookie",
        "purpose",
        "sec-purpose",
        "sec-fetch-site",
        "sec-fetch-mode",
        "sec-fetch-user",
        "sec-fetch-dest",
        "x-moz",
        "cmd",
        "topic",
        "access-control-request-method",
        "access-control-request-headers",
    ]
)
VALUES = st.sampled_from(
    [
        "",
        "1",
        "null",
        "same-origin",
        "none",
        "navigate",
        "document",
        "?1",
        "cors",
        "cross-site",
        "Mozilla/5.0",
        "*/*",
        "text/html",
        "http://127.0.0.1:15555",
        "http://127.0.0.1:15555/x",
        "https://app.example",
        "https://evil.example",
        "prefetch",
        "websocket",
        "token=a",
        "POST",
    ]
) | st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))
HEADS = st.dictionaries(NAMES, VALUES.map(str.strip).filter(lambda v: v.isprintable()))


@given(HEADS, st.sampled_from(["GET", "POST", "OPTIONS"]), st.booleans())
def test_whatever_is_sent(fields: dict[str, str], method: str, changes: bool) -> None:
    lines = [f"{name}: {value}" for name, value in fields.items()]
    lines.append("accept-encoding: gzip")  # whatever a script does
    assert check(head_of(*lines, method=method, host="evil.example"), changes) == 421
    head = head_of(*lines, method=method)
    status = check(head, changes)
    origin = fields.get("origin")
    if origin is not None and origin.lower() not in (
        "https://app.example",
        "http://localhost:3000",
        "http://127.0.0.1:15555",
        "https://127.0.0.1:15555",
    ):
        assert status == 403
    if "sec-fetch-site" in fields and changes and origin is None:
        typed = all(line in lines for line in TYPED) and "referer" not in fields
        assert status != 0 or typed or SAME in lines
    told = Guard(SETTINGS).browser(head)
    if told is None:
        assert origin is None
        assert status == 0
    elif covered(told).get("access-control-allow-origin"):
        assert origin is not None
        assert origin.lower() in ("https://app.example", "http://localhost:3000")


def test_an_old_browsers_form_names_its_page() -> None:
    form = (*OPENS, "content-length: 0")
    assert check(head_of(*form, method="POST")) == 403
    assert check(head_of(*form, "referer: http://127.0.0.1:15555/", method="POST")) == 0


@pytest.mark.parametrize("says", [TYPED, OPENS, (SAME, *LINKED)])
@pytest.mark.parametrize(
    "line",
    [
        "sec-purpose: prefetch",
        "sec-purpose: prefetch;prerender",
        "sec-purpose: prefetch;anonymous-client-ip",
        "purpose: prefetch",
        "Purpose: Preview",
        "x-purpose: preview",
        "x-moz: prefetch",
    ],
)
def test_ahead_of_time(says: tuple[str, ...], line: str) -> None:
    assert check(head_of(*says, line)) == 425
    assert check(head_of(*says, line), changes=False) == 0


def test_the_purpose_of_a_program_is_its_own() -> None:
    assert check(head_of("purpose: prefetch")) == 0
    assert check(head_of(*TYPED, "purpose: testing")) == 0


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (TYPED, 403),
        (OPENS, 403),
        ((SAME, *LINKED), 0),
        (("origin: https://app.example", CROSS), 0),
        ((*OPENS, "referer: http://127.0.0.1:15555/"), 0),
        (("user-agent: curl/8.5.0", "accept: */*"), 0),
    ],
)
def test_browser_get_off(lines: tuple[str, ...], status: int) -> None:
    settings = GuardSettings(cors_origins=("https://app.example",), browser_get=False)
    assert check(head_of(*lines), settings=settings) == status
    assert check(head_of(*lines), changes=False, settings=settings) == 0
    # The same for a dialect in which no address changes anything.
    policy = Policy(by_address=False)
    listed = GuardSettings(cors_origins=settings.cors_origins)
    assert check(head_of(*lines), settings=listed, policy=policy) == status


# -- pages that are listed ------------------------------------------------------------------------


def preflight(*lines: str, settings: GuardSettings = SETTINGS) -> Answer | None:
    head = head_of("origin: https://app.example", *lines, method="OPTIONS")
    return Guard(settings).check(head, lambda: True, POLICY)


def test_preflight() -> None:
    answer = preflight(
        "access-control-request-method: PUT", "access-control-request-headers: cmd,x-mine"
    )
    assert answer is not None
    assert answer.status == 204
    assert answer.lines == (
        b"access-control-max-age: 7200\r\naccess-control-allow-methods: PUT\r\n"
        b"access-control-allow-headers: cmd,x-mine\r\n"
    )
    answer = preflight(ASKS, "access-control-request-private-network: true")
    assert answer is not None
    assert b"access-control-allow-private-network: true\r\n" in answer.lines
    assert preflight() is None, "an OPTIONS request as any other"


@pytest.mark.parametrize("method", ["a b", "", "\xe9"])
def test_preflight_says_nothing_of_nonsense(method: str) -> None:
    answer = preflight(
        f"access-control-request-method: {method}", "access-control-request-headers: \xe9"
    )
    assert answer is not None
    assert answer.lines == b"access-control-max-age: 7200\r\n"


def browser(*lines: str, settings: GuardSettings = SETTINGS) -> Browser:
    found = Guard(settings).browser(head_of(*lines))
    assert found is not None
    return found


def covered(
    one: Browser,
    lines: bytes = b"",
    body: bytes = b"x",
    policy: bytes = SANDBOX,
) -> dict[str, str]:
    pairs = [
        line.split(": ", 1) for line in one.cover(lines, body, policy).decode().split("\r\n")[:-1]
    ]
    fields = {name: value for name, value in pairs}
    assert len(fields) == len(pairs), "nothing is said twice"
    return fields


CLOSED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
    "vary": "origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": SANDBOX.decode(),
    "referrer-policy": "no-referrer",
}


def test_programs_are_told_nothing_more() -> None:
    guard = Guard(SETTINGS)
    assert guard.browser(head_of()) is None
    assert guard.browser(head_of("user-agent: curl/8.5.0", "accept: */*")) is None
    assert guard.browser(head_of(host="")) is None


def test_what_every_browser_is_told() -> None:
    text = {"content-type": "text/plain; charset=utf-8"}
    for lines in (TYPED, OPENS, ("origin: https://evil.example",)):
        assert covered(browser(*lines)) == CLOSED | text
        assert covered(browser(*lines), body=b"") == CLOSED


def test_what_the_broker_says_itself_stays() -> None:
    own = b"content-type: image/svg+xml\r\ncache-control: max-age=5\r\nretry-after: 1\r\n"
    fields = covered(browser(*TYPED), own)
    assert fields["content-type"] == "image/svg+xml"
    assert fields["cache-control"] == "max-age=5"
    assert fields["retry-after"] == "1"


def test_the_brokers_own_page() -> None:
    fields = covered(browser(*TYPED), policy=PAGE)
    assert "sandbox" not in fields["content-security-policy"]
    assert "script-src" not in fields["content-security-policy"]
    assert fields["content-security-policy"].startswith("default-src 'none'")
    assert fields["referrer-policy"] == "same-origin"


def test_a_listed_page_is_told_that_it_may_read() -> None:
    fields = covered(browser("origin: https://app.example"), b"origin_id: 1\r\nx: 2\r\n")
    assert fields["access-control-allow-origin"] == "https://app.example"
    assert fields["access-control-allow-credentials"] == "true"
    assert fields["cross-origin-resource-policy"] == "cross-origin"
    exposed = fields["access-control-expose-headers"]
    assert exposed == "*, content-length, origin_id", "of the broker's lines those that are there"
    assert fields["vary"] == "origin"


def test_any_page_is_told_that_it_may_read_without_cookies() -> None:
    settings = GuardSettings(cors_origins=("*",))
    fields = covered(browser("origin: https://evil.example", settings=settings))
    assert fields["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in fields


@pytest.mark.parametrize(
    ("stored", "message", "answer"),
    [
        ("text/plain", "text/plain", "text/plain"),
        ("text/plain; charset=gbk", "text/plain; charset=gbk", "text/plain; charset=gbk"),
        ("application/json", "application/json", "application/json"),
        ("Image/PNG", "Image/PNG", "Image/PNG"),
        ("text/html", "text/plain", "text/html"),
        ("TEXT/HTML ; charset=gbk", "text/plain; charset=gbk", "TEXT/HTML ; charset=gbk"),
        ("text/javascript", "text/plain", "text/plain"),
        ("image/svg+xml", "text/plain", "text/plain"),
        ("application/xhtml+xml", "text/plain", "text/plain"),
        ("text/xml", "text/plain", "text/plain"),
        ("application/pdf", "text/plain", "text/plain"),
        (
            "multipart/x-mixed-replace; boundary=x",
            "text/plain; boundary=x",
            "text/plain; boundary=x",
        ),
        ("text/html,text/plain", "text/plain", "text/plain"),
        ("", "text/plain", "text/plain"),
    ],
)
def test_types(stored: str, message: str, answer: str) -> None:
    lines = f"content-type: {stored}\r\n".encode()
    assert covered(browser(*TYPED), shown(lines))["content-type"] == message
    assert covered(browser(*TYPED), page(lines))["content-type"] == answer


@pytest.mark.parametrize(
    "line",
    [
        "set-cookie: token=mine",
        "refresh: 0; url=http://evil.example/",
        "link: </T?cmd=remove>; rel=prefetch",
        "location: /T?cmd=remove",
        "clear-site-data: *",
        "access-control-allow-origin: *",
        "access-control-allow-credentials: true",
        "content-security-policy: default-src *",
        "cross-origin-resource-policy: cross-origin",
        "x-frame-options: ALLOWALL",
        "x-content-type-options: sniff",
        "strict-transport-security: max-age=31536000",
        "alt-svc: h2=evil.example",
        "speculation-rules: /rules",
        "service-worker-allowed: /",
        "cache-control: max-age=1000",
        "referrer-policy: unsafe-url",
        "content-disposition: attachment; filename=x.exe",
    ],
)
def test_a_message_does_not_steer_the_browser(line: str) -> None:
    lines = f"a: b\r\n{line}\r\nx-mine: c\r\ntag: d\r\n".encode()
    fields = covered(browser(*TYPED), shown(lines))
    name, _, value = line.partition(": ")
    told = {"a": "b", name: value, "x-mine": "c", "tag": "d"}
    text = {"content-type": "text/plain; charset=utf-8"}
    assert fields == CLOSED | text | {f"zbus-header-{name}": told[name] for name in told}
