"""Permissions (specification, section 10): what each command needs."""

from __future__ import annotations

from zbus.dialects.zbus.messages.events import follows_topic
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.schema.commands import NO_COMMAND, TABLE, Groups
from zbus.edge.access import Needs


def needs_of(params: Params) -> Needs:
    """What a command needs, by the columns of its row."""
    cmd, topic = params.cmd, params.topic
    command, name = TABLE.get(cmd, NO_COMMAND), shown_command(cmd)
    operation = command.operation or ""
    match command.groups:
        case Groups.UNKNOWN:
            return Needs(operation, command=name)
        case Groups.NONE:
            also = _settled(params) if cmd == b"produce" else None
            return Needs(operation, topic, command=name, also=also)
        case Groups.ALL:
            return Needs(operation, topic, whole=True, command=name)
        case Groups.NAMED:
            named = (params.group,) if params.group else ()
            return Needs(operation, topic, named, whole=not named, command=name)
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


def _settled(params: Params) -> Needs | None:
    """What it needs to settle deliveries along with a put."""
    if not (topic := params.text(b"ack_topic")):
        return None
    return Needs("consume", topic, (params.text(b"ack_group") or topic,))


def shown_command(command: bytes) -> str:
    """As text for people, whatever it is."""
    return command.strip(b"\0")[:40].decode("utf-8", "replace")
