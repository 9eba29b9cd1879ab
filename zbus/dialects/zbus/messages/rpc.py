"""Calls: a produce to a topic of services, in whatever form (specification, section 8)."""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.core.api import PUT_AGAIN, Silent, Ticket, Topic, make_row
from zbus.dialects.zbus.messages.put_tickets import PutPlan
from zbus.dialects.zbus.replies import CallReply
from zbus.dialects.zbus.request.legacy_flags import RPC, topic_mask
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection


def request_from_url(params: Params, form: str) -> bytes:
    """The JSON request for `/topic/method/args...?module=` or, by setting, `/topic/module/method/
    args...`. With `?module=` the first form holds in any case; with `?method=` too, all segments
    are arguments. Arguments that are JSON are sent as such, others as strings."""
    # The first segment is the topic's place, wherever the topic was named.
    segments = [segment.decode("utf-8", "replace") for segment in params.segments[1:]]
    module, method = params.text(b"module"), params.text(b"method")
    if module is None and form == "module-path" and segments:
        module = segments.pop(0)
    if method is None and segments:
        method = segments.pop(0)
    request: dict[str, Any] = {"module": module or ""}
    if method is not None:
        request["method"] = method
    if segments:
        request["params"] = [_argument(segment) for segment in segments]
    return msgspec.json.encode(request, order="sorted")


def _argument(text: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    if text in ("true", "false", "null") or text[:1] in tuple("-0123456789[{"):
        try:
            msgspec.json.decode(text)
        except NOT_JSON:
            return text
        return msgspec.Raw(text.encode())  # as written: digits are the caller's business
    return text


def call_service(plan: PutPlan, topic: Topic, peer: Connection, id: bytes, body: bytes) -> None:
    """A produce to a topic of services: the reply is what a service routes back."""
    dialect, params = plan.dialect, plan.params
    broker = dialect.broker
    expected = None if plan.rare is None else plan.rare.expected_offset
    if plan.once or plan.idempotent or expected is not None or plan.settles:
        text = "a call takes no idempotency-key, no expected_offset and no ack_topic"
        raise BadRequest(400, f"400: Bad Format, {text}")
    body = body or plan.body
    is_json = not body and not params.named and bool(topic_mask(topic.options) & RPC)
    if is_json:
        body = request_from_url(params, dialect.settings.rpc_url)
    lines = plan.request_lines.of_call(params.head, dialect.rights.access is not None, is_json)
    lines += plan.sender_lines(peer, False)
    timeout_ms = plan.timeout_ms
    silent = plan.quiet and params.multiplexed  # stock callers: they know the answer by its id
    if timeout_ms is None and not silent:
        timeout_ms = dialect.settings.call_timeout_ms
    deadline_ms = 0 if timeout_ms is None else broker.now_ms + timeout_ms
    ticket: Ticket
    if silent:
        ticket = Silent()
        peer.multiplexed = True
        message_id = id or params.id or broker.new_id()
    elif peer.open_waits >= dialect.settings.tickets_per_connection_max:
        raise BadRequest(429, "429: too many open calls and pulls on this connection")
    else:
        ticket = reply = CallReply(dialect, params, peer, id)
        message_id = reply.id
    # No request waits for the answer after the deadline, so no service need work on it.
    row = make_row(message_id, lines, body, plan.tag, plan.key, expires_ms=deadline_ms)
    partition = topic.partition_for(plan.key)
    if silent:
        broker.put(partition, ticket, row, PUT_AGAIN)
    else:
        broker.call(partition, ticket, row, peer, deadline_ms)
