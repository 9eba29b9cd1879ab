"""The page at `/`: what this is, and the first things to try. The icon beside it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from zbus.faces.guard import PAGE
from zbus.faces.peer import Peer
from zbus.faces.zbus.info import visible_groups, visible_topics
from zbus.faces.zbus.params import Params
from zbus.faces.zbus.replies import ZbusReply

if TYPE_CHECKING:
    from zbus.faces.zbus.face import ZbusFace

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<rect width="16" height="16" rx="3" fill="#0a6"/>'
    b'<path d="M4 4h8L4 12h8" fill="none" stroke="#fff" stroke-width="2"/></svg>'
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>zbus</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em}}
td,th{{text-align:left;padding:.2em 1em .2em 0}}code{{background:#eee;padding:.1em .3em}}</style>
</head><body><h1>zbus {version}</h1>
<p>A message broker for whatever speaks HTTP. This address bar will do:</p>
<ul>
<li><a href="/MyTopic?cmd=declare">/MyTopic?cmd=declare</a> makes a topic</li>
<li><a href="/MyTopic?body=hello">/MyTopic?body=hello</a> puts a message</li>
<li><a href="/MyTopic?cmd=consume&amp;timeout=1000">/MyTopic?cmd=consume&amp;timeout=1000</a>
takes one</li>
<li><a href="/MyTopic?cmd=query">/MyTopic?cmd=query</a> looks at it</li>
</ul>
<table><tr><th>topic</th><th>messages</th><th>groups</th><th>durability</th></tr>
{rows}</table>{who}</body></html>
"""

_ROWS_MAX = 100


class Home:
    """Plan of `/`."""

    def __init__(self, face: ZbusFace, params: Params) -> None:
        params.policy = PAGE
        self._face = face
        self._params = params

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        grant, who = peer.grant, ""
        if grant is not None:
            who = f'<p>{html.escape(grant.name)} · <a href="/?cmd=logout">log out</a></p>'
        rows = "".join(
            f"<tr><td>{html.escape(topic.name)}</td><td>{topic.depth()}</td>"
            f"<td>{len(visible_groups(topic, grant))}</td>"
            f"<td>{topic.options.durability}</td></tr>\n"
            for topic in visible_topics(self._face.broker, grant)[:_ROWS_MAX]
        )
        page = _PAGE.format(version=self._face.settings.version, rows=rows, who=who)
        lines = b"content-type: text/html; charset=utf-8\r\n"
        ZbusReply(self._face, self._params, peer, id).tell(200, lines, page.encode())


class Icon(Home):
    """Plan of `/favicon.ico`."""

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        lines = b"content-type: image/svg+xml\r\ncache-control: max-age=86400\r\n"
        ZbusReply(self._face, self._params, peer, id).tell(200, lines, ICON)
