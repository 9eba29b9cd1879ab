"""What a browser is made to send by a page that is not ours must not do anything.

Here a URL can change things: that is the point of it, and an invitation. Any page can have a
browser fetch `<img src="http://127.0.0.1:15555/T?cmd=remove">`. So each head is asked four
questions, whatever its dialect, before it is planned; the answers depend on the head alone.

1. `Host`: is it a name of ours? A name of another party's that leads here makes his page one of
   this "site" (DNS rebinding). Nothing else in the head could tell.
2. `Origin`: does a page say that it asks, and is it ours or listed in `cors_origins`?
3. `Sec-Purpose` and its forerunners: is it a prefetch?
4. `Sec-Fetch-Site` and its like: did a person type it, or a page of ours ask? Browsers send these
   fields to https and loopback addresses alone; without them, the fields of old are taken for
   signs.

Programs that are no browsers send neither `Origin` nor `Sec-Fetch-Site`, and notice nothing but the
first. (Node's `fetch` sends `Sec-Fetch-Mode`, and is no browser.) One without `Host` is a program.

A dialect may keep a message's own header fields in the head. Then `host` and all others are the
message's, as far as it is certain that no page had a browser send it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Literal

import attrs

from zbus.option import listed, option
from zbus.wire.heads.fields import PRINTABLE, TOKEN
from zbus.wire.heads.heads import Head

_PREFLIGHT_MAX_AGE_S = 7200

_ADDRESSLESS = {b"null": b"null", b"file://": b"null"}
"""The origin of a page out of a file, and how it is listed: some browsers say `file://`."""

_ASKS = b"access-control-request-method"

_EARLY = (b"sec-purpose", b"purpose", b"x-purpose", b"x-moz")
_EARLY_WORDS = (b"prefetch", b"prerender", b"preview")

_TEXT = b"content-type: text/plain; charset=utf-8\r\n"

SANDBOX = b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Policy of what others wrote: shown, but as of no site, without scripts, loading nothing."""

PAGE = (
    b"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'self';"
    b" base-uri 'none'"
)
"""Policy of the broker's own pages."""

_EXPOSED = (
    b"consume_group count duplicate durability empty end id key offset origin_id origin_method"
    b" origin_status origin_url partition reason retry retry-after sender skipped tag timestamp"
    b" topic"
).split()

_HOSTS = r"^\s*(?:(?:[^\s:/,*]+|\*)\s*)?(?:,\s*(?:(?:[^\s:/,*]+|\*)\s*)?)*\Z"
_ORIGIN = r"(?:https?://(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+)(?::\d{1,5})?|null|\*)"
_ORIGINS = rf"^\s*(?:{_ORIGIN}\s*)?(?:,\s*(?:{_ORIGIN}\s*)?)*\Z"


@attrs.frozen(slots=False, kw_only=True)
class GuardOptions:
    """What browsers may do, and pages of other sites."""

    allowed_hosts: str = option(
        "",
        "Names that clients know this broker by, separated by commas, beside "
        "`localhost`, addresses, this machine's name, `host` and `server_name`; `*` is "
        "any.",
        _HOSTS,
        "{item!r} is not of the form name, without a port",
    )
    cors_origins: str = option(
        "",
        "Pages that may use this broker, separated by commas: "
        "`https://app.example.org`; `null` is those out of files, `*` is any, both without "
        "cookies.",
        _ORIGINS,
        "{item!r} is not of the form https://host:port",
    )
    browser_get: Literal["on", "off"] = option(
        "on", "Whether an address that a person opens in a browser may change something."
    )


@attrs.frozen
class GuardSettings:
    """What the options come to, with the names that a running server knows it has."""

    hosts: tuple[str, ...] = ()  # names of this broker, beside localhost and addresses; `*` = any
    # Pages that may ask: `https://host:port`; `null` = those without an address; `*` = any.
    cors_origins: tuple[str, ...] = ()
    browser_get: bool = True  # a URL that a person opens may change something

    @classmethod
    def of(cls, options: GuardOptions, names: Iterable[str]) -> GuardSettings:
        """`names` are those that the server knows itself by."""
        return cls(
            hosts=(*filter(None, names), *listed(options.allowed_hosts)),
            cors_origins=listed(options.cors_origins),
            browser_get=options.browser_get == "on",
        )


@attrs.frozen
class Policy:
    """In what dialects differ."""

    by_address: bool = False  # an address that a person opens may change something
    mark: bytes = b""  # with a field of this name, the fields are those of a message
    any_key: bool = False  # the key of a WebSocket's handshake may be any text


@attrs.frozen
class Answer:
    """What is answered instead of doing what the head asks for."""

    status: int
    text: str = ""
    lines: bytes = b""


class Guard:
    def __init__(self, settings: GuardSettings | None = None) -> None:
        settings = settings or GuardSettings()
        self._hosts = {host.lower().rstrip(".").encode() for host in settings.hosts}
        listed = {origin.lower().encode() for origin in settings.cors_origins}
        self._origins = listed - {b"*", b"null"}  # of which it is known whose they are
        self._anybody = b"*" in listed
        self._nobody = b"null" in listed
        self._browser_get = settings.browser_get

    def check(self, head: Head, changes: Callable[[], bool], policy: Policy) -> Answer | None:
        """What to answer instead, None if the head may be planned. `changes` says whether it
        asks for more than looking."""
        fields = head.fields
        if policy.mark in fields and _is_of_no_browser(head):
            return None
        host, origin = fields.get(b"host"), fields.get(b"origin")
        if host is not None and not self._is_ours(host):
            return Answer(
                421,
                f"421: there is no {_shown(host)} here; if it is a name of this broker, add it to"
                " the option allowed_hosts",
            )
        if origin is not None and not (self._lists(fields) or _is_same(origin, host)):
            return Answer(
                403,
                f"403: pages of {_shown(_ADDRESSLESS.get(origin, origin))} may not use this broker;"
                " if they are to, add it to the option cors_origins",
            )
        same_site = fields.get(b"sec-fetch-site", b"same-origin") == b"same-origin"
        if origin is not None and not (same_site or self._lists(fields)):
            return _FOREIGN  # it is one of our name, and not of our scheme
        if host is None and (origin is not None or b"sec-fetch-site" in fields):
            return _NAMELESS
        if origin is not None and head.method == b"OPTIONS" and _ASKS in fields:
            return Answer(204, lines=_preflight(fields))
        if not is_browser(fields):
            return None
        if _is_early(fields) and changes():
            return Answer(425, "425: prefetch refused: this URL changes data; open it itself")
        if origin is not None:
            return None
        by_address = policy.by_address and self._browser_get
        if b"sec-fetch-site" in fields:
            return self._check_fetch(head, changes, by_address)
        return self._check_signs(head, changes, by_address)

    def _check_fetch(
        self, head: Head, changes: Callable[[], bool], by_address: bool
    ) -> Answer | None:
        """A browser that says whence the request comes."""
        fields = head.fields
        site = fields.get(b"sec-fetch-site")
        if site == b"same-origin":
            return None
        mode, dest = fields.get(b"sec-fetch-mode"), fields.get(b"sec-fetch-dest")
        if mode != b"navigate" or dest != b"document":
            return _FOREIGN
        if not changes():
            return None
        # What a page has fetched ahead of time is of site `none` too, but names the page.
        typed = site == b"none" and fields.get(b"sec-fetch-user") == b"?1"
        if not typed or b"referer" in fields:
            return _FOREIGN
        return None if by_address else _OFF

    def _check_signs(
        self, head: Head, changes: Callable[[], bool], by_address: bool
    ) -> Answer | None:
        """An old browser, or one that reaches us by plain http and not on its own machine."""
        fields = head.fields
        if not changes():
            return None
        referer = fields.get(b"referer")
        if referer is not None:
            origin = b"/".join(referer.split(b"/", 3)[:3])
            return None if _is_same(origin, fields.get(b"host")) else _FOREIGN
        # Only when it opens a page does a browser ask for https; a script cannot have it ask.
        opens = head.method == b"GET" and fields.get(b"upgrade-insecure-requests") == b"1"
        if not opens:
            return _FOREIGN
        return None if by_address else _OFF

    def browser(self, head: Head) -> Browser | None:
        """How to speak to the browser that sent this head; None if none did."""
        if not is_browser(head.fields):
            return None
        origin = head.fields.get(b"origin", b"")
        if not self._lists(head.fields):
            return Browser(head, _CLOSED)
        if origin.lower() in self._origins:
            return Browser(head, (*_OPEN, (b"access-control-allow-origin", origin), _CREDENTIALS))
        return Browser(head, (*_OPEN, (b"access-control-allow-origin", b"*")))

    def is_anybodys(self, head: Head) -> bool:
        """Whether it is of a page that may ask only because any page may. What such a page cannot
        show itself, but a browser adds to its requests, must not count."""
        origin, fields = head.fields.get(b"origin"), head.fields
        if origin is None or not self._is_of_anybody(origin):
            return False
        return not (origin.lower() in self._origins or _is_same(origin, fields.get(b"host")))

    def _is_ours(self, host: bytes) -> bool:
        if b"*" in self._hosts:
            return True
        name = _without_port(host).lower()
        if name.startswith(b"["):
            return True  # the wire has checked that it is an address
        name = name.removesuffix(b".")
        if name == b"localhost" or name.endswith(b".localhost") or name in self._hosts:
            return True
        try:
            ipaddress.IPv4Address(name.decode())
        except ValueError:
            return False
        return True

    def _lists(self, fields: dict[bytes, bytes]) -> bool:
        origin = fields.get(b"origin")
        if origin is None:
            return False
        # A page of any site must not use a token: browsers add it to handshakes unasked.
        if origin.lower() in self._origins:
            return True
        cookies = fields.get(b"cookie", b"").split(b";")
        shown = any(cookie.strip().startswith(b"token=") for cookie in cookies)
        return self._is_of_anybody(origin) and not shown

    def _is_of_anybody(self, origin: bytes) -> bool:
        """A page of any site. Pages without an address are of an unknown site: any site can make
        one of its frames such a page."""
        return self._anybody or (self._nobody and origin in _ADDRESSLESS)


class Browser:
    """What a reply says to a browser beside what it says to everybody."""

    __slots__ = ("_fields", "navigates")

    def __init__(self, head: Head, fields: tuple[tuple[bytes, bytes], ...]) -> None:
        self._fields = fields
        mode = head.fields.get(b"sec-fetch-mode")
        if mode is None:
            self.navigates = b"upgrade-insecure-requests" in head.fields
        else:
            self.navigates = mode == b"navigate"  # opens a page, by hand or by a link

    def cover(self, lines: bytes, body: bytes, policy: bytes) -> bytes:
        """The header lines for a reply that has these, and this policy. Lines that others wrote are
        in a form of `zbus.dialects.zbus.request.header_lines` already."""
        # A form of a page that keeps its address to itself would come from an origin `null`.
        referrer = b"same-origin" if policy is PAGE else b"no-referrer"
        fields = (
            *self._fields,
            (b"content-security-policy", policy),
            (b"referrer-policy", referrer),
        )
        added = [b"%b: %b\r\n" % field for field in fields if not _has(lines, field[0])]
        if self._fields is not _CLOSED:
            shown = [name for name in _EXPOSED if _has(lines, name)]
            exposed = b", ".join([b"*", b"content-length", *shown])
            added.append(b"access-control-expose-headers: %b\r\n" % exposed)
        if body and not _has(lines, b"content-type"):
            added.append(_TEXT)
        return b"".join(added) + lines


_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-robots-tag", b"noindex"),
    (b"vary", b"origin"),
)
_CLOSED = (*_ALWAYS, (b"cross-origin-resource-policy", b"same-origin"))
_OPEN = (*_ALWAYS, (b"cross-origin-resource-policy", b"cross-origin"))
_CREDENTIALS = (b"access-control-allow-credentials", b"true")

_FOREIGN = Answer(
    403,
    "403: a page of another site sent this request; open the URL yourself, or add its origin"
    " to the option cors_origins",
)
_NAMELESS = Answer(400, "400: missing Host header")
_OFF = Answer(403, "403: this broker refuses changes by GET from a browser (browser_get=off)")


def is_browser(fields: dict[bytes, bytes]) -> bool:
    """Whether a browser sent these fields. (There are programs that call themselves Mozilla; but
    no browser is without Accept.)"""
    if b"origin" in fields or b"sec-fetch-site" in fields:
        return True
    return b"accept" in fields and fields.get(b"user-agent", b"").startswith(b"Mozilla/")


def _is_of_no_browser(head: Head) -> bool:
    """Whether no page can have made a browser send this, even one of a name that was rebound: such
    a page may choose the method and most fields. But no browser gives a GET a length, and none goes
    without Accept-Encoding; scripts can change neither."""
    fields = head.fields
    if head.method in (b"GET", b"HEAD") and b"content-length" in fields:
        return True
    return b"accept-encoding" not in fields and not is_browser(fields)


def _is_early(fields: dict[bytes, bytes]) -> bool:
    values = [fields[name].lower() for name in _EARLY if name in fields]
    return any(value.startswith(_EARLY_WORDS) for value in values)


def _is_same(origin: bytes, host: bytes | None) -> bool:
    """Whether a page of `origin` came from where this request goes. The scheme is not looked at
    but for its port: a proxy before the broker may speak TLS."""
    scheme, _, authority = origin.lower().partition(b"://")
    port = {b"http": b":80", b"https": b":443"}.get(scheme)
    if port is None or host is None:
        return False
    host = host.lower()
    return _with_port(authority, port) == _with_port(host, port)


def _with_port(authority: bytes, port: bytes) -> bytes:
    return authority if _without_port(authority) != authority else authority + port


def _without_port(authority: bytes) -> bytes:
    name, colon, port = authority.rpartition(b":")
    return name if colon and not port.endswith(b"]") else authority


def _preflight(fields: dict[bytes, bytes]) -> bytes:
    """Header lines that let a listed page send what it asks to send."""
    method = fields[_ASKS]
    names = fields.get(b"access-control-request-headers", b"")
    lines = b"access-control-max-age: %d\r\n" % _PREFLIGHT_MAX_AGE_S
    if method and not method.translate(None, TOKEN):
        lines += b"access-control-allow-methods: %b\r\n" % method
    if names and not names.translate(None, PRINTABLE):
        lines += b"access-control-allow-headers: %b\r\n" % names
    if fields.get(b"access-control-request-private-network") == b"true":
        lines += b"access-control-allow-private-network: true\r\n"
    return lines


def _has(lines: bytes, name: bytes) -> bool:
    return lines.startswith(name + b": ") or b"\r\n" + name + b": " in lines


def _shown(value: bytes) -> str:
    return value[:100].decode("latin-1")
