"""`semq_hello`, `semq_bye`, `heartbeat` and `semq_lookup`: who is there, and where."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from zbus.core.api import Outcome
from zbus.dialects.semq.context import OFFLINE, UNKNOWN, Refused, SemqCall, SemqReply
from zbus.dialects.semq.links import Hello
from zbus.dialects.semq.settings import WINDOW_MAX
from zbus.edge.access import Bearer
from zbus.option import HOST
from zbus.semq.protocol.tickets import key_of, make_ticket
from zbus.semq.protocol.words import (
    PLATFORM,
    Malformed,
    read_address,
    read_epoch,
    read_node,
    read_number,
)

VERSION: Final = "1"

_STORES_MAX: Final = 64
_ADDRESSES_MAX: Final = 8
_ADDRESS = re.compile(rf"{HOST}:\d{{1,5}}\Z")
_ADDRESS_LENGTH_MAX: Final = 255
_CERT = re.compile(r"[0-9A-Fa-f:]{0,200}\Z")
_VERSION_LENGTH_MAX: Final = 64


def hello(call: SemqCall) -> None:
    """`semq_hello`."""
    context, fields = call.context, call.fields
    node = read_node(fields.required("node"))
    call.refuse_platform(node)
    if fields.text("src", node).partition("/")[0] != node:
        raise Refused(403, "forbidden", "src is not the node that sent semq_hello")
    greeting = _read(call)
    link = call.link
    if link is not None:
        if link.node != node:
            raise Refused(403, "forbidden", f"this connection is of {link.node}, for good")
        if link.hello.semq_ids != greeting.semq_ids:
            raise Refused(403, "forbidden", "the instances of a connection stay as they are")
        link.hello = greeting
        context.delivering.wake(node)
        _welcome(call, call.reply(), node)
        return
    if call.asked.head.keep_alive is False:
        raise Malformed("semq_hello needs a persistent connection")
    bearer, reply = call.peer.asker, call.reply()
    opens = partial(_open, call, node, greeting, bearer, reply)
    if context.mailboxes.find(node) is None:  # it was not known before
        context.mailboxes.make(reply.step(opens), node)
    else:
        opens()


def _open(
    call: SemqCall,
    node: str,
    greeting: Hello,
    bearer: Bearer | None,
    reply: SemqReply,
    made: Outcome | None = None,
) -> None:
    """Its mailbox is there: from now on it is online."""
    context, peer = call.context, call.peer
    mailbox = context.mailboxes.find(node)
    if peer.closed or peer.leaving or mailbox is None:
        reply.refuse(503, "stopping", "the connection is closed, or the mailbox removed")
        return
    if context.links.of(peer) is not None:  # it has said hello twice before it was answered
        reply.refuse(409, "conflict", "this connection is saying hello already")
        return
    link = context.links.add(peer, node, greeting, bearer)
    _welcome(call, reply, node)
    context.delivering.opened(link, mailbox)


def _welcome(call: SemqCall, reply: SemqReply, node: str) -> None:
    settings, context = call.context.settings, call.context
    reply.ok(
        {
            "platform": PLATFORM,
            "version": VERSION,
            "interval": str(settings.semq_interval_ms),
            "max_size": str(context.body_bytes_max),
            "store_always": str(int(settings.semq_store_always)),
            "ticket_key": key_of(settings.secret, node),
        }
    )


def _read(call: SemqCall) -> Hello:
    """What it says of itself. Raises Malformed."""
    fields = call.fields
    epoch, listen, cert = fields.text("epoch"), fields.text("listen"), fields.text("cert")
    if epoch:
        read_epoch(epoch)
    addresses = [address.strip() for address in listen.split(",")] if listen else []
    long = any(len(address) > _ADDRESS_LENGTH_MAX for address in addresses)
    if len(addresses) > _ADDRESSES_MAX or long or not all(map(_ADDRESS.match, addresses)):
        raise Malformed(f"listen is at most {_ADDRESSES_MAX} of host:port, with commas between")
    if _CERT.match(cert) is None:
        raise Malformed("cert is the fingerprint of a certificate: hexadecimal digits")
    if len(fields.text("version")) > _VERSION_LENGTH_MAX:
        raise Malformed(f"version has at most {_VERSION_LENGTH_MAX} characters")
    window = fields.number("window", call.context.settings.semq_window, 1, WINDOW_MAX)
    semq_ids = _read_stores(fields.text("semq", "1/1"))
    max_size = fields.number("max_size", 0)
    return Hello(semq_ids, epoch, ",".join(addresses), cert, window, max_size)


def _read_stores(text: str) -> frozenset[int]:
    """`1/1,1/2`: the instances among them."""
    stores = text.split(",", _STORES_MAX)
    if len(stores) > _STORES_MAX:
        raise Malformed(f"a connection has at most {_STORES_MAX} stores")
    found = set()
    for store in stores:
        semq, slash, db = store.strip().partition("/")
        if not slash:
            raise Malformed("semq is stores: <semq_id>/<semq_db_id>, with commas between")
        read_number("semq", db, 1)
        found.add(read_number("semq", semq, 1))
    return frozenset(found)


def bye(call: SemqCall) -> None:
    """`semq_bye`: it is offline from now on, and ends the connection when it likes."""
    if call.link is not None:
        call.context.links.remove(call.link)
    call.reply().ok({})


def heartbeat(call: SemqCall) -> None:
    """`heartbeat`."""
    if call.link is not None:
        call.link.sent_ms = call.context.broker.now_ms
    call.reply().ok({})


def lookup(call: SemqCall) -> None:
    """`semq_lookup`: where a node is to be reached, and a ticket to show there."""
    context = call.context
    asker = call.source()
    target = read_address(call.fields.required("dst")).node
    if context.mailboxes.find(target) is None:
        raise Refused(404, UNKNOWN, f"unknown node {target}")
    context.links.watch(call.link, target)
    links = [link for link in context.links.online(target) if link.hello.listen]
    if not links:
        raise Refused(404, OFFLINE, f"{target} is not online, or listens nowhere")
    greeting = links[0].hello
    own = key_of(context.settings.secret, target)
    ticket, key = make_ticket(own, asker, target, context.broker.now_ms)
    lookup = {"node": target, "listen": greeting.listen, "ticket": ticket, "key": key}
    if greeting.cert:
        lookup["cert"] = greeting.cert
    call.reply().ok(lookup)
