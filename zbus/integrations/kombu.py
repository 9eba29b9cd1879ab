"""A transport of kombu, so that Celery runs over zbus: `broker_url = "zbus://127.0.0.1:15555"`.

A queue is a topic with one group of the same name. What is bound to an exchange is a group of the
exchange's topic, whose filter is the routing key: the broker routes, and no table of bindings is
kept anywhere. Queues that go with their consumer (replies, results, remote control) are temporary
groups of one topic, so that a process that is killed leaves nothing behind.

A message is leased until it is acknowledged, and a thread extends the leases of all that is held
here. A task with `eta` or `countdown` is delayed by the broker. One connection has all pulls and
acknowledgements under way at once; Celery's event loop waits for its socket.
(docs/howto/python-frameworks.md)
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty
from typing import Any
from weakref import WeakKeyDictionary

from amqp.exceptions import RecoverableConnectionError
from amqp.protocol import queue_declare_ok_t
from kombu import Connection
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from zbus.client import Delivery, NotFound, Options, Refused, ZbusError, commands
from zbus.client.errors import ConnectionLost, Full, Overloaded, ProtocolError, Timeout
from zbus.client.links.link import Link
from zbus.client.options import DEFAULT_PORT, resolve
from zbus.client.requests import Request
from zbus.integrations import kombu_alias as kombu_alias  # for who imports this, and not Celery
from zbus.integrations.kombu_leases import CLOSE_S, Leases, Place
from zbus.integrations.kombu_terms import Payload, filter_of, put_options, word

LOG = logging.getLogger("zbus.integrations.kombu")

VISIBILITY_TIMEOUT_S = 60.0
"""After so long, the tasks of a worker that was killed are delivered again."""
BATCH = 100
"""Messages of one pull by a consumer without a limit."""
WAIT_MS = 20_000
WINDOW = 100_000
"""Messages of a queue that all its workers may hold at once."""
TRANSIENT = "kombu.transient"
"""The topic of queues that go with their consumer."""
TRANSIENT_RETENTION_MS = 86_400_000

_HUBS: WeakKeyDictionary[Connection, Hub] = WeakKeyDictionary()
"""The event loops that connections were registered with. When kombu tries a request again, it makes
another transport for its connection, of which neither loop nor consumers know: a worker whose
broker was away while it started would wait for messages for ever."""


class QoS(virtual.QoS):
    """What a channel has delivered: acknowledged or given back at the broker."""

    def _transport(self) -> Transport:
        transport = self.channel.connection
        if not isinstance(transport, Transport):
            raise RecoverableConnectionError("the connection is closed: the message was given back")
        return transport

    def ack(self, delivery_tag: str) -> None:
        self._transport().ack(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        transport = self._transport()
        if requeue:
            transport.leases.give_back([delivery_tag])
        else:
            transport.ack(delivery_tag)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """All of it is delivered again, first."""
        self._flush()
        tags = list(self._delivered)
        self._delivered.clear()
        with suppress(ZbusError, RecoverableConnectionError):  # then when the leases end
            self._transport().leases.give_back(tags)
        return []


class Channel(virtual.Channel):
    """Queues, exchanges and bindings are topics, groups and filters."""

    QoS = QoS
    connection: Transport
    supports_fanout = True

    # -- queues ---------------------------------------------------------------------------

    def prepare_queue_arguments(
        self,
        arguments: Mapping[str, object],
        **kwargs: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """What a queue is declared with, under the names that AMQP has."""
        found: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return found

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
        **_: object,
    ) -> queue_declare_ok_t:
        """Returns the queue's name, how many messages it has, and 0. With the argument
        `x-max-priority`, messages of a higher priority go first. Raises ChannelError for one that
        is not there, if `passive`."""
        queue = queue or f"amq.gen-{self._next_delivery_tag()}"
        transport = self.connection
        if passive:
            try:
                return queue_declare_ok_t(queue, self._size(queue), 0)
            except NotFound:
                raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "404") from None
        temporary = exclusive or auto_delete
        own, *others = transport.places(queue)
        if temporary and own.declared.get("temporary"):
            return queue_declare_ok_t(queue, 0, 0)  # results: before each task that is sent
        place = transport.transient(queue) if temporary else transport.durable(queue)
        if not temporary and arguments and arguments.get("x-max-priority"):
            place.declared["order"] = "priority"
        transport.queues[queue] = [place, *others]
        return queue_declare_ok_t(queue, transport.declare(place), 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: object = None,
        **_: object,
    ) -> None:
        """Raises ChannelError for a key that a filter cannot say."""
        exchange = exchange or "amq.direct"
        kind = self.state.exchanges.get(exchange, {}).get("type", "direct")
        self.connection.bind(queue, exchange, kind, word(routing_key))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: object = None,
        **_: object,
    ) -> None:
        self.connection.unbind(queue, exchange or "amq.direct", word(routing_key))

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: object
    ) -> None:
        if if_empty and self._size(queue):
            return
        transport = self.connection
        for place in transport.places(queue):
            own = place.topic == transport.topic(queue)
            with suppress(NotFound):
                transport.run(commands.remove(place.topic, None if own else place.group))
        transport.queues.pop(queue, None)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        with suppress(NotFound):
            self.connection.run(commands.remove(self.connection.exchange_topic(exchange)))
        self.state.exchanges.pop(exchange, None)

    def _size(self, queue: str) -> int:
        """Messages that are still to be delivered, delayed ones among them."""
        transport = self.connection
        queries = [commands.query(each.topic, each.group) for each in transport.places(queue)]
        return sum(transport.run(query).message_count for query in queries)

    def _purge(self, queue: str) -> int:
        """Forget what no consumer holds; returns how many messages."""
        size = self._size(queue)
        for place in self.connection.places(queue):
            self.connection.run(commands.empty(place.topic, place.group, keep_leased=True))
        return size

    # -- messages -------------------------------------------------------------------------

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **_: object) -> None:
        """Returns when the message is durable. As in AMQP, what no queue is bound to is dropped."""
        self._inplace_augment_message(message, exchange, routing_key)
        transport = self.connection
        where = put_options(message, time.time_ns() // 1_000_000)
        body = dumps(message).encode()
        if exchange:
            where["tag"] = word(routing_key)
            with suppress(NotFound):
                transport.run(commands.produce(transport.exchange_topic(exchange), body, **where))
            return
        topic = transport.topic(routing_key)
        try:
            transport.run(commands.produce(topic, body, **where))
        except NotFound:
            places = transport.queues.get(routing_key)
            if places and places[0].topic == topic:  # it was removed since
                transport.declare(places[0])
                transport.run(commands.produce(topic, body, **where))
                return
            where["tag"] = word(routing_key)
            with suppress(NotFound):
                transport.run(commands.produce(transport.topic(TRANSIENT), body, **where))

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        **kwargs: object,
    ) -> None:
        (self.connection.unacked.add if no_ack else self.connection.unacked.discard)(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self.connection.stop_pulls(queue)

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        for place in self.connection.places(queue):
            for delivery in self.connection.run(self.connection.pull_of(place, 1, 0)):
                payload = self.connection.hold(place, delivery)
                if payload is not None:
                    return payload
        raise Empty

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: object) -> Any:  # noqa: ANN401
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.connection.ack(message.delivery_tag)
        return message


class Transport(virtual.Transport):
    """A connection to a broker.

    `transport_options`: `visibility_timeout` in seconds, and `declare`, which are options of
    `zbus.client`'s `declare` for all durable queues (`max_attempts`, `dead_letter`, `on_loss`).
    The path of the URL stands before all names of topics. The password is the token.
    """

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "zbus"
    driver_name = "zbus"
    connection_errors = (
        *virtual.Transport.connection_errors,
        ConnectionLost,
        Timeout,
        ProtocolError,
        Overloaded,
        Full,
    )
    channel_errors = (*virtual.Transport.channel_errors, Refused)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(("direct", "topic", "fanout"))
    )
    polling_interval = None

    def __init__(self, client: Any, **kwargs: object) -> None:  # noqa: ANN401
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.lease_s = float(options.get("visibility_timeout", VISIBILITY_TIMEOUT_S))
        vhost = (client.virtual_host or "").strip("/")
        self.prefix = f"{vhost}." if vhost else ""
        self.queues: dict[str, list[Place]] = {}
        self.unacked: set[str] = set()  # queues whose consumers never acknowledge
        self._ready: deque[tuple[str, Payload]] = deque()
        self._hub: Hub | None = None
        self._watched = (-1, 0)  # number of a socket, and of which connection it is

    def driver_version(self) -> str:
        import zbus

        return zbus.__version__

    # -- the connection -------------------------------------------------------------------

    def _make_link(self) -> Link:
        client = self.client
        tls = client.ssl if isinstance(client.ssl, dict) else {}
        cert, key = tls.get("certfile"), tls.get("keyfile")
        options = Options(
            token=client.password or None,
            connect_timeout_s=client.connect_timeout or 5.0,
            ca=tls.get("ca_certs"),
            cert=(cert, key) if cert and key else cert,
        )
        host = client.hostname or "localhost"
        host = f"[{host}]" if ":" in host else host
        scheme = "https" if client.ssl else "http"
        return Link(*resolve(f"{scheme}://{host}:{client.port or DEFAULT_PORT}", options))

    def establish_connection(self) -> Transport:
        self.leases = Leases(self._make_link, self.lease_s)
        self.leases.link.open()
        super().establish_connection()
        hub = _HUBS.pop(self.client, None)
        if hub is not None:
            self._hub = hub
            hub.on_tick.add(self._tell_loop)
        return self

    def _tell_loop(self) -> None:
        """Raises ConnectionLost in the event loop, so that Celery begins again with a connection
        that it knows."""
        self._leave_loop()
        raise ConnectionLost("the connection broke, and was made again without its consumers")

    def close_connection(self, connection: object) -> None:
        super().close_connection(connection)
        self._leave_loop()
        self.leases.close()

    def run(self, request: Any) -> Any:  # noqa: ANN401  # what the request gives
        return self.leases.link.run(request)

    # -- names ----------------------------------------------------------------------------

    def topic(self, queue: str) -> str:
        return f"{self.prefix}{queue}"

    def exchange_topic(self, exchange: str) -> str:
        return f"{self.prefix}{exchange}.exchange"

    def places(self, queue: str) -> list[Place]:
        """Where its messages come from. One that was not declared here has a topic of its name."""
        return self.queues.setdefault(queue, [self.durable(queue)])

    def durable(self, queue: str) -> Place:
        """What its workers have finished is forgotten, and nothing else."""
        own = {"ack": True, "window": WINDOW, "retain": True, "retention_done": True}
        own |= self.client.transport_options.get("declare", {})
        return Place(self.topic(queue), queue, **own)

    def transient(self, queue: str) -> Place:
        return Place(
            self.topic(TRANSIENT), queue, filter=filter_of(queue), **self._of_others(temporary=True)
        )

    def _of_others(self, temporary: bool) -> dict[str, Any]:
        """Of a group of a topic that other queues read, too."""
        return {
            "ack": True,
            "window": WINDOW,
            "start": "latest",
            "temporary": temporary,
            "durability": "os",
            "retention_done": True,
            "retention_ms": TRANSIENT_RETENTION_MS,
        }

    def declare(self, place: Place) -> int:
        """Make it, or find it there; returns how many messages it has. This process is a reader of
        it then: a temporary group goes with its last one."""
        info = self.run(commands.declare(place.topic, place.group, **place.declared))
        if place.declared.get("temporary"):
            for one in self.run(self.pull_of(place, 1, 0)):
                self.run(commands.nack(place.topic, place.group, one.offset))
        return int(info.message_count)

    def bind(self, queue: str, exchange: str, kind: str, key: str) -> None:
        """Let what is published to the exchange into the queue. Other processes may have bound it
        by other keys, which stay."""
        topic = self.exchange_topic(exchange)
        places = self.places(queue)
        place = next((each for each in places if each.topic == topic), None)
        if place is None:
            own = places[0].declared
            place = Place(topic, queue, **self._of_others(bool(own.get("temporary"))))
            if "order" in own:
                place.declared["order"] = own["order"]
        if kind != "fanout":
            keys = self._keys(place)
            place.declared["filter"] = ";".join(keys | {filter_of(key, kind == "topic"): None})
        self.declare(place)
        if place not in places:
            places.append(place)

    def unbind(self, queue: str, exchange: str, key: str) -> None:
        topic = self.exchange_topic(exchange)
        for place in self.places(queue):
            if place.topic == topic:
                keys = self._keys(place)
                keys.pop(key, None)
                if keys:
                    place.declared["filter"] = ";".join(keys)
                    self.declare(place)
                else:
                    self.queues[queue].remove(place)
                    with suppress(NotFound):
                        self.run(commands.remove(topic, queue))
                return

    def _keys(self, place: Place) -> dict[str, None]:
        try:
            found = self.run(commands.query(place.topic, place.group)).filter
        except NotFound:
            return {}
        return dict.fromkeys(found.split(";")) if found else {}

    # -- messages out ---------------------------------------------------------------------

    def pull_of(self, place: Place, batch: int, wait_ms: int) -> Request[list[Delivery]]:
        lease_ms = self.leases.lease_ms
        return commands.pull(
            place.topic, place.group, batch=batch, wait_ms=wait_ms, lease_ms=lease_ms
        )

    def hold(self, place: Place, delivery: Delivery) -> Payload | None:
        """What kombu is to get. None for a message that is at work here already, and for one that
        is none of kombu's: that is logged and done, since no worker could do more with it."""
        tag = self.leases.hold(place, delivery)
        if tag is None:
            return None
        try:
            payload: Payload = loads(delivery.body)
            properties, headers = payload["properties"], payload.get("headers") or {}
            properties["delivery_tag"] = tag
            about = properties.setdefault("delivery_info", {})
            about |= {"redelivered": True} if delivery.retry else {}
            self.channels[0].decode_body(payload.get("body") or "", properties.get("body_encoding"))
            if not isinstance(headers, dict):
                raise TypeError("its headers are no object")
        except Exception as error:  # whatever anybody has put there
            LOG.critical("%r is no message of kombu, and is done: %r", delivery, error)
            self.ack(tag)
            return None
        return payload

    def ack(self, tag: str) -> None:
        """At once, or within Celery's event loop together with others. Raises ChannelError for a
        message that is not held, such as one that is acknowledged already."""
        self.leases.ack(tag, at_once=self._hub is None)

    def _ask(self) -> None:
        """Have a pull of each place under way whose consumer takes more."""
        link = self.leases.link
        for channel in self.channels:
            if not channel._active_queues or not channel.qos.can_consume():
                continue
            batch = channel.qos.can_consume_max_estimate() or BATCH
            for queue in channel._active_queues:
                for place in self.places(queue):
                    if place.pull is None:
                        place.pull = link.submit(self.pull_of(place, batch, WAIT_MS))
        link.flush()

    def _take(self) -> None:
        """What the pulls have brought. Raises why there is no connection."""
        for place in [place for places in self.queues.values() for place in places]:
            pull = place.pull
            if pull is None or not self.leases.link.wait(pull, time.monotonic()):
                continue
            place.pull = None
            try:
                deliveries = pull.result()
            except NotFound:  # the broker has forgotten it, or it was removed
                self.declare(place)
                continue
            for delivery in deliveries:
                payload = self.hold(place, delivery)
                if payload is not None:
                    self._ready.append((place.group, payload))

    def _deliver_one(self) -> bool:
        if not self._ready:
            return False
        queue, payload = self._ready.popleft()
        if queue in self.unacked:
            self.ack(payload["properties"]["delivery_tag"])
        self._deliver(payload, queue)
        return True

    def stop_pulls(self, queue: str) -> None:
        """Its consumer has gone: what was fetched for it is given back."""
        link, places = self.leases.link, self.places(queue)
        for place in places:
            if place.pull is not None:
                link.submit(commands.unconsume(place.topic, place.group))
                link.last_time(place.pull)
        link.flush()
        for place in places:
            if place.pull is not None:
                link.wait(place.pull, time.monotonic() + CLOSE_S)
        with suppress(ZbusError):
            self._take()
            mine = [payload for name, payload in self._ready if name == queue]
            self.leases.give_back(each["properties"]["delivery_tag"] for each in mine)
        for place in places:
            place.pull = None
        self._ready = deque(each for each in self._ready if each[0] != queue)

    # -- waiting --------------------------------------------------------------------------

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Deliver one message. Raises TimeoutError if none came for `timeout` seconds."""
        end_s = math.inf if timeout is None else time.monotonic() + timeout
        while not self._deliver_one():
            self._ask()
            self.leases.link.drive(min(end_s, time.monotonic() + 1.0))
            self._take()
            if not self._ready and time.monotonic() >= end_s:
                raise TimeoutError("no message came")

    def register_with_event_loop(self, connection: object, loop: Hub) -> None:
        """Celery's own loop calls `_on_tick` before it waits, and `_on_readable` afterwards."""
        self._hub = loop
        _HUBS[self.client] = loop
        loop.on_tick.add(self._on_tick)

    def _on_tick(self) -> None:
        link = self.leases.link
        self.leases.send_acks(wait=False)
        self._ask()
        if link.fileno() < 0:  # it broke: this waits until there is one again
            link.drive(time.monotonic() + self.client.connect_timeout)
        self._deliver_all()  # what came while the loop did something else
        self._watch(link.fileno(), link.connection_count)

    def _on_readable(self) -> None:
        """Messages are delivered here, not in `_on_tick`: what a delivery leads to (timers, writes
        to the pool) is looked at before the loop waits again."""
        while self.leases.link.drive(time.monotonic()):
            pass
        self._deliver_all()

    def _deliver_all(self) -> None:
        self._take()
        while self._deliver_one():
            pass

    def _watch(self, number: int, connection: int = 0) -> None:
        """Have the loop wake for this socket, and for no other any more. A new one may have the
        number of the one before, and the loop has to be told of it all the same."""
        hub = self._hub
        if hub is None or (number, connection) == self._watched:
            return
        former, _ = self._watched
        # The old number may be that of another file by now.
        if hub.readers.get(former, (None,))[0] == self._on_readable:
            hub.remove(former)
        if number >= 0:
            hub.add_reader(number, self._on_readable)
        self._watched = number, connection

    def _leave_loop(self) -> None:
        if self._hub is not None:
            self._hub.on_tick -= {self._on_tick, self._tell_loop}
            self._watch(-1)
