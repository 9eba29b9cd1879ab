"""The methods of both clients and of their pipelines, as editors and type checkers see them.

`python -m tests.docs.signatures` makes this of `commands`: do not edit it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, overload

from zbus.client.async_client import AsyncPending
from zbus.client.blocking import Pending
from zbus.client.commands import Offsets
from zbus.client.documents import GroupInfo, ServerInfo, TopicInfo, TrackerInfo
from zbus.client.managing import Level
from zbus.client.messages import Body, Delivery, Message, Stored, StoredBatch

ALWAYS: tuple[str, ...]
PIPED: tuple[str, ...]

class BlockingMethods:
    @overload
    def declare(
        self,
        topic: str,
        group: None = None,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> TopicInfo:
        """Create a topic and a group, or change them; what is not given stays as it is.

        Without `group` the group named like the topic is meant. Of the group:
        - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
          `window` (0 to 999) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes all.
        - `exclusive`: lets in one consumer at a time. `delete_on_exit`: goes with its last consumer.
          `paused`: hands out nothing. Who gives one of these and `ack` sets all four, to off if not on.
        - A new one starts at `start_offset` (0: all history), with `start_partition` in that one alone,
          with `start_id` only if the message has it; or at `start_time_ms` (epoch milliseconds); or
          where the group `start_copy` stands.

        Of the topic:
        - `partitions` and `durability` are fixed at creation. `rpc`: for calls, in memory.
        - `retention_ms`, `retention_bytes` and `retention_count` (of each partition) drop old messages;
          0: no such limit. `retention_done` drops what all groups have finished.
        - `dedupe_ms`: how long ids are remembered, milliseconds; 0: they are not looked at.

        Returns the group if one was named, else the topic. Raises BadRequest for what cannot be changed
        or never be, TooMany, Forbidden; TypeError for options that contradict each other.
        """

    @overload
    def declare(
        self,
        topic: str,
        group: str,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> GroupInfo: ...
    @overload
    def declare(
        self,
        topic: str,
        group: str | None = None,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> TopicInfo | GroupInfo: ...
    @overload
    def query(
        self, topic: None = None, group: None = None, *, timeout_s: float | None = None
    ) -> ServerInfo:
        """What a group, a topic, or without arguments the whole broker is like now. It changes nothing.

        Raises NotFound, also for what the token may not see; TypeError for a group without its topic.
        """

    @overload
    def query(
        self, topic: str, group: None = None, *, timeout_s: float | None = None
    ) -> TopicInfo: ...
    @overload
    def query(self, topic: str, group: str, *, timeout_s: float | None = None) -> GroupInfo: ...
    @overload
    def query(
        self, topic: str | None = None, group: str | None = None, *, timeout_s: float | None = None
    ) -> ServerInfo | TopicInfo | GroupInfo: ...
    def server(self, *, timeout_s: float | None = None) -> ServerInfo:
        """What the broker is like now, with all topics and groups. Raises Forbidden.

        With many topics this is a long document, up to a second old: `query` one topic if that will do.
        """

    def tracker(self, *, timeout_s: float | None = None) -> TrackerInfo:
        """The brokers that this one knows of, itself among them. Raises Forbidden."""

    def remove(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Delete a group, or without `group` the topic with its groups and messages.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    def empty(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Forget what a group has still to do; without `group`, of all groups, and the messages.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    def ping(self, *, timeout_s: float | None = None) -> int:
        """The broker's time, epoch milliseconds. Raises ConnectionLost or Timeout if it is away."""

    def version(self, *, timeout_s: float | None = None) -> str:
        """The broker's version, such as `0.1.0`."""

    def produce(
        self,
        topic: str,
        body: Body = b"",
        *,
        json: object = ...,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch milliseconds) hold it
        back, `ttl_ms` lets it expire. With `expected_offset` it is stored there or not at all.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), BadRequest, TooLarge,
        TooMany, Full or Overloaded: then nothing was stored; ConnectionLost or Timeout, whose `unknown`
        says whether it may have been; TypeError and ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own: however often it had to be sent,
        it is stored once. If you give an `id`, that is left to you, since a topic may remember ids
        (`dedupe_ms`): then a lost answer is a ConnectionLost with `unknown`, and you may send it again.
        """

    def produce_many(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> StoredBatch:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 10,000 messages
        and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`, that is
        left to you. Times and errors are those of `produce`.
        """

    def pull(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int = 1,
        wait_ms: int = 0,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Take up to `batch` messages of a group, waiting up to `wait_ms` milliseconds for the first.

        Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
        group waits at a time: a second one ends the first with nothing. Raises NotFound (declare the
        group first), Forbidden (also if another reads the exclusive group), TooMany, Overloaded.
        """

    def ack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        """Acknowledge deliveries of one partition: when this returns, they do not come again.

        An offset that is acknowledged already, or was not handed out, is none of them that come again
        either, so it is no error: an ack may be repeated. Raises NotFound if there is no such topic,
        group or partition, since then nothing was acknowledged at all.
        """

    def nack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        delay_ms: int | None = None,
        front: bool = True,
        timeout_s: float | None = None,
    ) -> int:
        """Give deliveries back before their lease ends; returns how many were.

        They come again first; or at the end (`front=False`); or after `delay_ms` milliseconds. Raises
        NotFound if none is leased any more, or there is no such topic, group or partition.
        """

    def extend(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        lease_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Keep deliveries for `lease_ms` milliseconds from now, or for the group's own time.

        Returns how many leases were moved. Raises NotFound as `nack` does.
        """

    def read(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int | None = None,
        count: int = 100,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Look at up to `count` stored messages from `offset` on (the oldest there is).

        This needs no group and changes nothing. At the end of the log the list is empty. Raises
        NotFound for an offset that was dropped, and for a topic or partition that is not there.
        """

    def call(
        self,
        topic: str,
        method: str,
        /,
        *params: object,
        module: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **named: object,
    ) -> Any:
        """Call a method of a service and return its answer, of JSON, or bytes of another type.

        `params` and `named` are its arguments, all of them what JSON holds; a service needs zbus 0.1 or
        newer to understand `named`. `headers` travel with the call, such as `traceparent`. It waits for
        `timeout_s` seconds (30) and is never sent twice.

        Raises RpcError for the service's own error, Unanswered if none answered in time, NotFound if
        there never was such a service, ConnectionLost or Timeout if it may have been called or not.
        """

class AsyncMethods:
    @overload
    async def declare(
        self,
        topic: str,
        group: None = None,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> TopicInfo:
        """Create a topic and a group, or change them; what is not given stays as it is.

        Without `group` the group named like the topic is meant. Of the group:
        - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
          `window` (0 to 999) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes all.
        - `exclusive`: lets in one consumer at a time. `delete_on_exit`: goes with its last consumer.
          `paused`: hands out nothing. Who gives one of these and `ack` sets all four, to off if not on.
        - A new one starts at `start_offset` (0: all history), with `start_partition` in that one alone,
          with `start_id` only if the message has it; or at `start_time_ms` (epoch milliseconds); or
          where the group `start_copy` stands.

        Of the topic:
        - `partitions` and `durability` are fixed at creation. `rpc`: for calls, in memory.
        - `retention_ms`, `retention_bytes` and `retention_count` (of each partition) drop old messages;
          0: no such limit. `retention_done` drops what all groups have finished.
        - `dedupe_ms`: how long ids are remembered, milliseconds; 0: they are not looked at.

        Returns the group if one was named, else the topic. Raises BadRequest for what cannot be changed
        or never be, TooMany, Forbidden; TypeError for options that contradict each other.
        """

    @overload
    async def declare(
        self,
        topic: str,
        group: str,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> GroupInfo: ...
    @overload
    async def declare(
        self,
        topic: str,
        group: str | None = None,
        *,
        ack: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        exclusive: bool | None = None,
        delete_on_exit: bool | None = None,
        paused: bool | None = None,
        start_offset: int | None = None,
        start_id: str | None = None,
        start_partition: int | None = None,
        start_time_ms: int | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> TopicInfo | GroupInfo: ...
    @overload
    async def query(
        self, topic: None = None, group: None = None, *, timeout_s: float | None = None
    ) -> ServerInfo:
        """What a group, a topic, or without arguments the whole broker is like now. It changes nothing.

        Raises NotFound, also for what the token may not see; TypeError for a group without its topic.
        """

    @overload
    async def query(
        self, topic: str, group: None = None, *, timeout_s: float | None = None
    ) -> TopicInfo: ...
    @overload
    async def query(
        self, topic: str, group: str, *, timeout_s: float | None = None
    ) -> GroupInfo: ...
    @overload
    async def query(
        self, topic: str | None = None, group: str | None = None, *, timeout_s: float | None = None
    ) -> ServerInfo | TopicInfo | GroupInfo: ...
    async def server(self, *, timeout_s: float | None = None) -> ServerInfo:
        """What the broker is like now, with all topics and groups. Raises Forbidden.

        With many topics this is a long document, up to a second old: `query` one topic if that will do.
        """

    async def tracker(self, *, timeout_s: float | None = None) -> TrackerInfo:
        """The brokers that this one knows of, itself among them. Raises Forbidden."""

    async def remove(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Delete a group, or without `group` the topic with its groups and messages.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    async def empty(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Forget what a group has still to do; without `group`, of all groups, and the messages.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    async def ping(self, *, timeout_s: float | None = None) -> int:
        """The broker's time, epoch milliseconds. Raises ConnectionLost or Timeout if it is away."""

    async def version(self, *, timeout_s: float | None = None) -> str:
        """The broker's version, such as `0.1.0`."""

    async def produce(
        self,
        topic: str,
        body: Body = b"",
        *,
        json: object = ...,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch milliseconds) hold it
        back, `ttl_ms` lets it expire. With `expected_offset` it is stored there or not at all.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), BadRequest, TooLarge,
        TooMany, Full or Overloaded: then nothing was stored; ConnectionLost or Timeout, whose `unknown`
        says whether it may have been; TypeError and ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own: however often it had to be sent,
        it is stored once. If you give an `id`, that is left to you, since a topic may remember ids
        (`dedupe_ms`): then a lost answer is a ConnectionLost with `unknown`, and you may send it again.
        """

    async def produce_many(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> StoredBatch:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 10,000 messages
        and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`, that is
        left to you. Times and errors are those of `produce`.
        """

    async def pull(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int = 1,
        wait_ms: int = 0,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Take up to `batch` messages of a group, waiting up to `wait_ms` milliseconds for the first.

        Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
        group waits at a time: a second one ends the first with nothing. Raises NotFound (declare the
        group first), Forbidden (also if another reads the exclusive group), TooMany, Overloaded.
        """

    async def ack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        """Acknowledge deliveries of one partition: when this returns, they do not come again.

        An offset that is acknowledged already, or was not handed out, is none of them that come again
        either, so it is no error: an ack may be repeated. Raises NotFound if there is no such topic,
        group or partition, since then nothing was acknowledged at all.
        """

    async def nack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        delay_ms: int | None = None,
        front: bool = True,
        timeout_s: float | None = None,
    ) -> int:
        """Give deliveries back before their lease ends; returns how many were.

        They come again first; or at the end (`front=False`); or after `delay_ms` milliseconds. Raises
        NotFound if none is leased any more, or there is no such topic, group or partition.
        """

    async def extend(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        lease_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Keep deliveries for `lease_ms` milliseconds from now, or for the group's own time.

        Returns how many leases were moved. Raises NotFound as `nack` does.
        """

    async def read(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int | None = None,
        count: int = 100,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Look at up to `count` stored messages from `offset` on (the oldest there is).

        This needs no group and changes nothing. At the end of the log the list is empty. Raises
        NotFound for an offset that was dropped, and for a topic or partition that is not there.
        """

    async def call(
        self,
        topic: str,
        method: str,
        /,
        *params: object,
        module: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **named: object,
    ) -> Any:
        """Call a method of a service and return its answer, of JSON, or bytes of another type.

        `params` and `named` are its arguments, all of them what JSON holds; a service needs zbus 0.1 or
        newer to understand `named`. `headers` travel with the call, such as `traceparent`. It waits for
        `timeout_s` seconds (30) and is never sent twice.

        Raises RpcError for the service's own error, Unanswered if none answered in time, NotFound if
        there never was such a service, ConnectionLost or Timeout if it may have been called or not.
        """

class PipelineMethods:
    def produce(
        self,
        topic: str,
        body: Body = b"",
        *,
        json: object = ...,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> Pending[Stored]:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch milliseconds) hold it
        back, `ttl_ms` lets it expire. With `expected_offset` it is stored there or not at all.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), BadRequest, TooLarge,
        TooMany, Full or Overloaded: then nothing was stored; ConnectionLost or Timeout, whose `unknown`
        says whether it may have been; TypeError and ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own: however often it had to be sent,
        it is stored once. If you give an `id`, that is left to you, since a topic may remember ids
        (`dedupe_ms`): then a lost answer is a ConnectionLost with `unknown`, and you may send it again.
        """

    def produce_many(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> Pending[StoredBatch]:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 10,000 messages
        and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`, that is
        left to you. Times and errors are those of `produce`.
        """

    def ack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> Pending[None]:
        """Acknowledge deliveries of one partition: when this returns, they do not come again.

        An offset that is acknowledged already, or was not handed out, is none of them that come again
        either, so it is no error: an ack may be repeated. Raises NotFound if there is no such topic,
        group or partition, since then nothing was acknowledged at all.
        """

    def nack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        delay_ms: int | None = None,
        front: bool = True,
        timeout_s: float | None = None,
    ) -> Pending[int]:
        """Give deliveries back before their lease ends; returns how many were.

        They come again first; or at the end (`front=False`); or after `delay_ms` milliseconds. Raises
        NotFound if none is leased any more, or there is no such topic, group or partition.
        """

    def extend(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        lease_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> Pending[int]:
        """Keep deliveries for `lease_ms` milliseconds from now, or for the group's own time.

        Returns how many leases were moved. Raises NotFound as `nack` does.
        """

    def call(
        self,
        topic: str,
        method: str,
        /,
        *params: object,
        module: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **named: object,
    ) -> Pending[Any]:
        """Call a method of a service and return its answer, of JSON, or bytes of another type.

        `params` and `named` are its arguments, all of them what JSON holds; a service needs zbus 0.1 or
        newer to understand `named`. `headers` travel with the call, such as `traceparent`. It waits for
        `timeout_s` seconds (30) and is never sent twice.

        Raises RpcError for the service's own error, Unanswered if none answered in time, NotFound if
        there never was such a service, ConnectionLost or Timeout if it may have been called or not.
        """

class AsyncPipelineMethods:
    async def produce(
        self,
        topic: str,
        body: Body = b"",
        *,
        json: object = ...,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncPending[Stored]:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch milliseconds) hold it
        back, `ttl_ms` lets it expire. With `expected_offset` it is stored there or not at all.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), BadRequest, TooLarge,
        TooMany, Full or Overloaded: then nothing was stored; ConnectionLost or Timeout, whose `unknown`
        says whether it may have been; TypeError and ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own: however often it had to be sent,
        it is stored once. If you give an `id`, that is left to you, since a topic may remember ids
        (`dedupe_ms`): then a lost answer is a ConnectionLost with `unknown`, and you may send it again.
        """

    async def produce_many(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        tag: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        ttl_ms: int | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncPending[StoredBatch]:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 10,000 messages
        and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`, that is
        left to you. Times and errors are those of `produce`.
        """

    async def ack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncPending[None]:
        """Acknowledge deliveries of one partition: when this returns, they do not come again.

        An offset that is acknowledged already, or was not handed out, is none of them that come again
        either, so it is no error: an ack may be repeated. Raises NotFound if there is no such topic,
        group or partition, since then nothing was acknowledged at all.
        """

    async def nack(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        delay_ms: int | None = None,
        front: bool = True,
        timeout_s: float | None = None,
    ) -> AsyncPending[int]:
        """Give deliveries back before their lease ends; returns how many were.

        They come again first; or at the end (`front=False`); or after `delay_ms` milliseconds. Raises
        NotFound if none is leased any more, or there is no such topic, group or partition.
        """

    async def extend(
        self,
        topic: str,
        group: str | None,
        offsets: Offsets,
        *,
        partition: int = 0,
        lease_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncPending[int]:
        """Keep deliveries for `lease_ms` milliseconds from now, or for the group's own time.

        Returns how many leases were moved. Raises NotFound as `nack` does.
        """

    async def call(
        self,
        topic: str,
        method: str,
        /,
        *params: object,
        module: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **named: object,
    ) -> AsyncPending[Any]:
        """Call a method of a service and return its answer, of JSON, or bytes of another type.

        `params` and `named` are its arguments, all of them what JSON holds; a service needs zbus 0.1 or
        newer to understand `named`. `headers` travel with the call, such as `traceparent`. It waits for
        `timeout_s` seconds (30) and is never sent twice.

        Raises RpcError for the service's own error, Unanswered if none answered in time, NotFound if
        there never was such a service, ConnectionLost or Timeout if it may have been called or not.
        """
