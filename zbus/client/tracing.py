"""Spans of OpenTelemetry for messages: the work at a message is linked to its producer.

    tracing = Tracing()
    with zbus.client.connect(tracing=tracing) as bus:
        bus.produce("Orders", "two chairs")              # a PRODUCER span; its context travels
        with bus.consume("Orders", "billing") as messages:
            for message in messages:
                with tracing.process(message):           # a CONSUMER span, linked to that one
                    ...

Names and attributes are those of OpenTelemetry's semantic conventions for messaging. Which spans
are kept and where they go is the program's business. It needs the extra `otel`.
(docs/howto/tracing.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer

from zbus import __version__
from zbus.client.messages import Delivery
from zbus.client.requests import line

SYSTEM = "zbus"
_CARRIERS = ("traceparent", "tracestate", "baggage")
_KINDS = {"produce": SpanKind.PRODUCER, "call": SpanKind.CLIENT}
_TYPES = {"produce": "send", "call": "send", "process": "process"}


class Tracing:
    """Give one to `connect`, `Client` or `Service.serve` as `tracing`."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        """`tracer` is the program's own; None: that of the global provider."""
        self._tracer = tracer or trace.get_tracer("zbus.client", __version__)

    def begin(self, operation: str, topic: str, carried: bool) -> tuple[bytes, RequestSpan]:
        """See `zbus.client.spans`."""
        span = self._tracer.start_span(
            f"{operation} {topic}",
            kind=_KINDS[operation],
            attributes=_attributes(operation, topic),
        )
        headers: dict[str, str] = {}
        if not carried:
            inject(headers, trace.set_span_in_context(span))
        lines = [line(name.encode(), value) for name, value in headers.items()]
        return b"".join(lines), RequestSpan(span)

    def headers(self) -> dict[str, str]:
        """What tells of the current span: for messages of a batch, each of which has its own."""
        headers: dict[str, str] = {}
        inject(headers)
        return headers

    @contextmanager
    def process(self, message: Delivery, name: str = "process") -> Iterator[trace.Span]:
        """The work at a message; what the program does within it is below this span. It is linked
        to its producer, which may be long ago. An error that leaves it is recorded."""
        producer = trace.get_current_span(_context_of(message)).get_span_context()
        with self._tracer.start_as_current_span(
            f"{name} {message.topic}",
            kind=SpanKind.CONSUMER,
            attributes={
                **_attributes("process", message.topic),
                "messaging.message.id": message.id,
                "messaging.consumer.group.name": message.group,
                "messaging.message.body.size": len(message.body),
                "messaging.destination.partition.id": str(message.partition),
            },
            links=[Link(producer)] if producer.is_valid else [],
        ) as span:
            yield span

    @contextmanager
    def serve(self, call: Delivery) -> Iterator[trace.Span]:
        """The answering of a call: a part of the caller's trace."""
        with self._tracer.start_as_current_span(
            f"process {call.topic}",
            context=_context_of(call),
            kind=SpanKind.SERVER,
            attributes={**_attributes("process", call.topic), "messaging.message.id": call.id},
        ) as span:
            yield span


class RequestSpan:
    """Of a request under way."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def end(self, error: Exception | None) -> None:
        """See `zbus.client.spans`."""
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
            self._span.set_attribute("error.type", type(error).__name__)
        self._span.end()


def _attributes(operation: str, topic: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": _TYPES[operation],
    }


def _context_of(message: Delivery) -> Context:
    carrier = {
        name: value.decode("utf-8", "replace")
        for name in _CARRIERS
        if (value := message.fields.get(name.encode()))
    }
    return extract(carrier, Context())
