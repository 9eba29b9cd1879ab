"""`login`, `logout` and `rights`: a token in a browser's cookie (specification, section 5.14), and
what it permits.

Scripts of the page cannot read the cookie, and no other site can make a browser send it.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes

import msgspec

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.edge.access import ALL, NEVER_MS, Grant
from zbus.edge.connection import Connection
from zbus.edge.forms import read_form
from zbus.edge.guard import PAGE
from zbus.protocol.documents import RightsInfo

_PLAIN = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""What a cookie's value may hold beside letters and digits; all else is percent-encoded in it."""

_ATTRIBUTES = b"; HttpOnly; SameSite=Strict; Path=/"

_PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>zbus: log in</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:24em;margin:4em auto;padding:0 1em}
input,button{font:inherit;padding:.3em;width:100%%;box-sizing:border-box;margin:.3em 0}</style>
</head><body><h1>zbus</h1>%b
<form method="post" action="/?cmd=login">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus>
</label><button>Log in</button></form></body></html>
"""


_UNKNOWN = b"""
<p role="alert">This broker does not know that token, or its time is over.</p>"""

_HTML = b"content-type: text/html; charset=utf-8\r\n"

FORM = b"location: /?cmd=login\r\n"
"""Where a browser is sent that has to show a token."""


class Login:
    """Without a body the form; with one, `token=<token>`, the cookie, or the form again."""

    def __init__(self, dialect: Context, params: Params) -> None:
        params.policy = PAGE
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._dialect, self._params, peer, id)
        if not body:
            reply.respond(200, _HTML, _PAGE % b"")
            return
        token = read_form(body).get(b"token", b"")
        if token and self._dialect.rights.knows(token):
            value = quote_from_bytes(token, safe=_PLAIN).encode()
            secure = b"; Secure" if peer.secure else b""
            cookie = b"set-cookie: token=%b%b%b\r\n" % (value, _ATTRIBUTES, secure)
            reply.respond(302, b"location: /\r\n" + cookie)
        elif self._params.opened:
            reply.respond(403, _HTML, _PAGE % _UNKNOWN)
        else:
            reply.respond(302, FORM)


class Logout(Login):
    """The cookie ends."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        cookie = b"set-cookie: token=%b; Max-Age=0\r\n" % _ATTRIBUTES
        reply = NativeReply(self._dialect, self._params, peer, id)
        reply.respond(302, FORM + cookie)


def rights(reply: NativeReply) -> None:
    """What the caller may do, as JSON. A page shows by it what it need not offer."""
    reply.respond(200, JSON, msgspec.json.encode(_rights(reply.peer.grant)))


def _rights(grant: Grant | None) -> RightsInfo:
    """Without a table of tokens there is no grant, and everybody may do everything."""
    if grant is None:
        return RightsInfo(operations=[ALL], tokens=False, topics={ALL: [ALL]})
    return RightsInfo(
        name=grant.name,
        operations=sorted(grant.operations),
        tokens=True,
        topics={ALL: [ALL]} if grant.admin else {n: [*groups] for n, groups in grant.topics},
        expires=None if grant.expires_ms == NEVER_MS else grant.expires_ms,
    )
