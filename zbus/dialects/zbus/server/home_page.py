"""The page at `/`: what this is, and the first things to try. The icon beside it."""

from __future__ import annotations

import html
from urllib.parse import quote

from zbus.core.api import Topic
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import visible_groups, visible_topics
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Grant
from zbus.edge.connection import Connection
from zbus.edge.guard import PAGE

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<rect width="16" height="16" rx="3" fill="#0a6"/>'
    b'<path d="M4 4h8L4 12h8" fill="none" stroke="#fff" stroke-width="2"/></svg>'
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>zbus</title>
<meta name="viewport" content="width=device-width">
<style>
:root{{color-scheme:light dark;--line:#8884;--green:#07804e;--on:#fff}}
@media(prefers-color-scheme:dark){{:root{{--green:#3c9;--on:#000}}}}
body{{font:16px/1.55 system-ui,sans-serif;max-width:48em;margin:2.5em auto;padding:0 1em}}
h1{{font-size:1.6em;margin:0}}h1 svg{{width:1em;height:1em;vertical-align:-.1em;margin-right:.4em}}
h1 small,.dim{{font-size:.9rem;font-weight:400;opacity:.7}}
h2{{font-size:1.1em;margin:2em 0 .5em}}p{{margin:.5em 0}}
a{{color:var(--green)}}code,pre,input{{font:.9em/1.5 ui-monospace,monospace}}
pre{{border:1px solid var(--line);border-radius:6px;padding:.8em 1em;overflow:auto;margin:0}}
form{{display:flex;gap:.5em;margin:.4em 0}}
input{{flex:1;min-width:4em}}input,button{{padding:.35em .6em;border:1px solid var(--line);
border-radius:6px}}button{{font:inherit;min-width:6em;background:var(--green);color:var(--on)}}
ul{{padding-left:1.2em}}table{{border-collapse:collapse;width:100%}}
td,th{{text-align:left;padding:.35em 1em .35em 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}}th{{font-weight:600;overflow-wrap:normal}}
.wide{{overflow:auto}}
.n{{text-align:right;font-variant-numeric:tabular-nums}}
</style></head><body>
<h1>{icon}zbus <small>{version} at {address}</small></h1>
<p>A message broker for whatever speaks HTTP. Messages are put into topics and kept in order; each
group of readers takes every message once.</p>
<h2>Try it</h2>
<form action="/"><input type="hidden" name="cmd" value="declare">
<button>Make</button><input name="topic" value="MyTopic" aria-label="topic" required></form>
<form action="/"><input type="hidden" name="cmd" value="produce">
<button>Put</button><input name="topic" value="MyTopic" aria-label="topic" required>
<input name="body" value="hello" aria-label="message"></form>
<form action="/"><input type="hidden" name="cmd" value="consume">
<input type="hidden" name="timeout" value="1000">
<button>Take</button><input name="topic" value="MyTopic" aria-label="topic" required></form>
<p class="dim">The reply comes as a page of its own; go back for more. If there is no message to
take, this page stays.</p>
<p>The same in the address bar:</p>
<ul>
<li><a href="/MyTopic?cmd=declare">/MyTopic?cmd=declare</a> makes a topic</li>
<li><a href="/MyTopic?body=hello">/MyTopic?body=hello</a> puts a message</li>
<li><a href="/MyTopic?cmd=consume&amp;timeout=1000">/MyTopic?cmd=consume&amp;timeout=1000</a>
takes one</li>
<li><a href="/MyTopic?cmd=query">/MyTopic?cmd=query</a> tells how things stand</li>
</ul>
<p>And in a shell:</p>
<pre>curl{token} '{url}/MyTopic?cmd=declare'
curl{token} {url}/MyTopic -d hello
curl{token} '{url}/MyTopic?cmd=consume&amp;timeout=1000'
curl{token} -N -H 'accept: text/event-stream' '{url}/MyTopic?cmd=consume'   # watch it</pre>
<p class="dim">All that can be asked is in <a href="/_openapi.json">/_openapi.json</a>.</p>
<h2>Topics</h2>
{topics}{who}</body></html>
"""

_TABLE = """<div class="wide"><table>
<tr><th>topic</th><th class="n">put</th><th>groups, and what waits for them</th>
<th>durability</th></tr>
{rows}</table></div>
"""

_ROWS_MAX = 100
_GROUPS_MAX = 10  # of a topic


class Home:
    """Plan of `/`."""

    def __init__(self, dialect: Context, params: Params) -> None:
        params.policy = PAGE
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        grant, who, settings = peer.grant, "", self._dialect.settings
        if grant is not None:
            who = f'<p>{html.escape(grant.name)} · <a href="/?cmd=logout">log out</a></p>\n'
        address = html.escape(settings.address)
        page = _PAGE.format(
            icon=ICON.decode(),
            version=settings.version,
            address=address,
            url=f"http{'s' * settings.tls}://{address}",
            token="" if self._dialect.rights.access is None else " -H 'token: ...'",
            topics=_topics(visible_topics(self._dialect.broker, grant), grant, settings),
            who=who,
        )
        lines = b"content-type: text/html; charset=utf-8\r\n"
        NativeReply(self._dialect, self._params, peer, id).respond(200, lines, page.encode())


def _topics(topics: list[Topic], grant: Grant | None, settings: ZbusSettings) -> str:
    if not topics:
        return "<p>There are none yet.</p>\n"
    rows = [_row(topic, grant, settings) for topic in topics[:_ROWS_MAX]]
    table = _TABLE.format(rows="".join(rows))
    more = len(topics) - _ROWS_MAX
    return table + (f'<p>And <a href="/?cmd=server">{more} more</a>.</p>\n' if more > 0 else "")


def _row(topic: Topic, grant: Grant | None, settings: ZbusSettings) -> str:
    name, link = html.escape(topic.name), quote(topic.name, safe="")
    groups = visible_groups(topic, grant)
    group_lines = [
        f"{html.escape(group.name)}: {group.ready_count()}" for group in groups[:_GROUPS_MAX]
    ]
    if len(groups) > _GROUPS_MAX:
        group_lines.append(f"and {len(groups) - _GROUPS_MAX} more")
    return (
        f'<tr><td><a href="/?cmd=query&amp;topic={link}">{name}</a></td>'
        f'<td class="n"><a href="/?cmd=read&amp;topic={link}&amp;count=20">{topic.depth()}</a></td>'
        f"<td>{'<br>'.join(group_lines)}</td>"
        f"<td>{settings.effective_durability(topic.options.durability)}</td></tr>\n"
    )


class Icon(Home):
    """Plan of `/favicon.ico`."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        lines = b"content-type: image/svg+xml\r\n"
        NativeReply(self._dialect, self._params, peer, id).respond(200, lines, ICON)
