"""Spans of what is produced, consumed, called and answered; and how contexts travel."""

from __future__ import annotations

import re
import subprocess
import sys

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import zbus.client
from tests.conformance.dialogue import cmd, declared, http, ok, pull
from tests.docs.pages import ROOT
from tests.limits import WAIT_S
from zbus.client import Message, NotFound, Service
from zbus.client.tracing import Tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A tracing, and what became of it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("tests")
        self.tracing = Tracing(self.tracer)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return re.sub(r"\W", "_", request.node.name)


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def test_a_consumer_is_linked_to_its_producer(url: str, topic: str, traced: Traced) -> None:
    with zbus.client.connect(url, tracing=traced.tracing) as bus:
        bus.declare(topic, "g", ack=True)
        with traced.tracer.start_as_current_span("shop") as shop:
            bus.produce(topic, "one", headers={"x": "y"})
        with bus.consume(topic, "g") as messages:
            for message in messages:
                work = traced.tracer.start_as_current_span("work")
                with traced.tracing.process(message), work:
                    pass
                break
    [produced] = traced.spans(SpanKind.PRODUCER)
    [consumed] = traced.spans(SpanKind.CONSUMER)
    assert produced.name == f"produce {topic}"
    assert produced.parent is not None
    assert produced.parent.span_id == shop.get_span_context().span_id
    assert [link.context.span_id for link in consumed.links] == [id_of(produced)]
    assert consumed.attributes is not None
    assert (
        dict(consumed.attributes).items()
        >= {
            "messaging.system": "zbus",
            "messaging.destination.name": topic,
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": "g",
            "messaging.message.body.size": 3,
        }.items()
    )
    [within] = [span for span in traced.exporter.get_finished_spans() if span.name == "work"]
    assert within.parent is not None
    assert within.parent.span_id == id_of(consumed)


def test_batches_and_contexts_of_ones_own(url: str, topic: str, traced: Traced) -> None:
    with zbus.client.connect(url, tracing=traced.tracing) as bus:
        bus.declare(topic)
        with traced.tracer.start_as_current_span("shop") as shop:
            bus.produce_many(topic, [Message("a", headers=traced.tracing.headers()), "b"])
        bus.produce(topic, "c", headers={"traceparent": PARENT})
        with bus.pipeline() as pipe:
            pipe.produce(topic, "d")
        messages = bus.pull(topic, batch=10)
    assert len(traced.spans(SpanKind.PRODUCER)) == 3
    told = [message.traceparent for message in messages]

    assert f"{shop.get_span_context().span_id:016x}" in told[0]
    assert (told[1], told[2]) == ("", PARENT)
    assert told[3]


def test_a_refusal_and_an_error_are_told(url: str, topic: str, traced: Traced) -> None:
    with zbus.client.connect(url, tracing=traced.tracing) as bus:
        with pytest.raises(NotFound):
            bus.produce(topic, "x")
        bus.declare(topic)
        bus.produce(topic, "x")
        [message] = bus.pull(topic)
        with pytest.raises(ZeroDivisionError), traced.tracing.process(message):
            raise ZeroDivisionError
    refused, stored = traced.spans(SpanKind.PRODUCER)
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "NotFound"
    assert stored.status.status_code is StatusCode.UNSET
    [consumed] = traced.spans(SpanKind.CONSUMER)
    assert consumed.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
def test_a_call_is_one_trace(url: str, topic: str, traced: Traced, anyio_backend: str) -> None:
    service = Service(topic)
    seen = []

    @service.method
    async def add(a: int, b: int) -> int:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        return a + b

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(
                lambda *, task_status: service.serve(
                    url, tracing=traced.tracing, task_status=task_status
                )
            )
            async with zbus.client.connect_async(url, tracing=traced.tracing) as bus:
                assert await bus.call(topic, "add", 1, 2) == 3
            tasks.cancel_scope.cancel()

    anyio.run(run, backend=anyio_backend)
    [call] = traced.spans(SpanKind.CLIENT)
    [answer] = traced.spans(SpanKind.SERVER)
    assert answer.parent is not None
    assert answer.parent.span_id == id_of(call)
    context = call.get_span_context()
    assert context is not None
    assert seen == [context.trace_id]


@pytest.mark.parametrize("strange", ["", "x", "00-0-0-0", "00-" + "f" * 400, "\u00fc"])
def test_what_is_no_context_is_no_link(url: str, topic: str, traced: Traced, strange: str) -> None:
    with zbus.client.connect(url) as bus:
        bus.declare(topic)
        bus.produce(topic, "x", headers={"traceparent": strange})
        [message] = bus.pull(topic)
    with traced.tracing.process(message):
        pass
    [consumed] = traced.spans(SpanKind.CONSUMER)
    assert len(consumed.links) == 0


def test_nothing_is_imported_that_nobody_asked_for() -> None:
    program = (
        "import sys, zbus.client; print({'asyncio', 'opentelemetry', 'trio'} & {*sys.modules})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        cwd=ROOT,
    )
    assert ended.stdout == "set()\n"


@pytest.mark.parametrize("way", ["url", "header", "json"])
def test_a_context_travels_whichever_way_a_message_comes(way: str) -> None:
    """It is a header like others, to every kind of consumer."""
    world, client = declared("T", "T/g")
    lines = (f"traceparent: {PARENT}", "tracestate: a=b")
    if way == "header":
        client.send(cmd("produce", "topic: T", "id: 1", *lines, body=b"x"))
    else:
        client.send(http("/T", *lines, body=b"x", method="POST"))
    world.settle()
    assert client.replies()[0].status == 200
    delivered = pull(client, "T/g")
    assert delivered.headers["traceparent"] == PARENT
    assert delivered.headers["tracestate"] == "a=b"
    read = ok(client, http("/_log/T?count=1", "accept: application/json"))
    assert PARENT.encode() in read.body
