"""Permissions (specification, section 10): what each command needs."""

from __future__ import annotations

from zbus.faces.access import Needs
from zbus.faces.native.events import follows_topic
from zbus.faces.native.params import Params

FREE = frozenset((b"heartbeat", b"login", b"logout", b"icon", b"js", b"css", b"img", b"page"))
"""Commands that are not asked for a token."""

OPERATION: dict[bytes, str] = {
    b"produce": "produce",
    b"consume": "consume",
    b"unconsume": "consume",
    b"nack": "consume",
    b"extend": "consume",
    b"read": "consume",
    b"route": "route",
    b"query": "query",
    b"declare": "declare",
    b"empty": "empty",
    b"remove": "remove",
    b"track_pub": "track_pub",
    b"track_sub": "track_sub",
    b"tracker": "tracker",
    b"server": "server",
    b"ssl": "ssl",
    b"home": "home",
}
"""The operation that a command needs. All others need a known token and the topic, no more."""

NO_OPERATION = frozenset((b"ack", b"ping", b"version", b"openapi"))
"""Commands of which that is known: the original asks no operation of an `ack` either. (It asks for
no group either; here what is read by others is not for everybody to settle.)"""

_GROUPED = frozenset((b"consume", b"unconsume", b"ack", b"nack", b"extend", b"declare"))
"""Commands on one group, by default the one named like the topic."""

_WHOLE = frozenset((b"remove", b"empty"))
"""Commands that without a group are about all groups of the topic."""


def needs_of(params: Params) -> Needs:
    """What a command needs. A query has no need of its topic: what may not be seen is unknown."""
    cmd, topic = params.cmd, params.topic
    operation, name = OPERATION.get(cmd, ""), shown_command(cmd)
    if cmd == b"query":
        return Needs(operation, command=name)
    if cmd in _WHOLE:
        groups = [params.group] if params.group else []
        return Needs(operation, topic, tuple(groups), whole=not groups, command=name)
    if cmd == b"read":
        return Needs(operation, topic, whole=True, command=name)  # every group's messages are in it
    if cmd not in _GROUPED:
        return Needs(operation, topic, command=name)
    groups = [params.group or topic]
    if cmd == b"declare":
        if params.flag(b"group_name_auto"):
            # The broker takes the topic's name, perhaps with a number behind it.
            groups = [topic + "*"]
        if copied := params.text(b"group_start_copy"):
            groups.append(copied)  # the new group would tell where that one stands
    # At an offset, or in a stream without a group, the log is read: that of all groups.
    whole = cmd == b"consume" and (b"offset" in params.fields or follows_topic(params))
    return Needs(operation, topic, tuple(groups), whole, name)


def shown_command(command: bytes) -> str:
    """As text for people, whatever it is."""
    return command.strip(b"\0")[:40].decode("utf-8", "replace")
