"""What a browser asks for by itself: the bare address, which leads to the console, and the icon."""

from __future__ import annotations

from zbus.dialects.zbus.replies import TEXT, NativeReply

HOME = b"""\
This is zbus, a message broker. Its console is at /_console/, and all that can be asked of it is in
/_openapi.json. In a shell, with this address for HOST:

  curl 'HOST/MyTopic?cmd=declare'                # make a topic
  curl HOST/MyTopic -d hello                     # put a message
  curl 'HOST/MyTopic?cmd=consume&timeout=1000'   # take it
"""

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<rect width="16" height="16" rx="3" fill="#0a6"/>'
    b'<path d="M4 4h8L4 12h8" fill="none" stroke="#fff" stroke-width="2"/></svg>'
)


def home(reply: NativeReply) -> None:
    """`/`. Programs that follow nothing, such as curl, show what there is to know."""
    reply.respond(302, b"location: /_console/\r\n" + TEXT, HOME)


def icon(reply: NativeReply) -> None:
    """`/favicon.ico`."""
    reply.respond(200, b"content-type: image/svg+xml\r\n", ICON)
