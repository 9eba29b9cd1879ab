"""The methods of both clients and of their pipelines, as editors and type checkers see them.

`python -m tests.docs.signatures` makes this of `commands`: do not edit it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from zbus.client.async_client import AsyncPending
from zbus.client.blocking import Pending
from zbus.client.documents import GroupInfo, ServerInfo, TopicInfo, TrackerInfo
from zbus.client.managing import Level, Loss, Retries
from zbus.client.messages import Body, Delivery, Message, Stored, StoredBatch
from zbus.client.positions import Start
from zbus.client.requests import Acks, Offsets
from zbus.client.scheduling import Scheduled
from zbus.client.single import Document, Listed, Redriven, State

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
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> TopicInfo:
        """Create a topic and a group, or change them; what is not given stays as it is.

        Without `group` the group named like the topic is meant. Of the group:
        - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
          `window` (0 to 1,000,000) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes
          all.
        - `exclusive`: lets in one consumer at a time. `temporary`: goes with its last consumer.
          `paused`: delivers nothing. `order` "key": messages of one key, one after another.
        - A new one starts at `start` (`"earliest"`, `"latest"`, an offset, a time), or where the group
          `start_copy` stands. One that exists stays where it is: `seek` moves it.
        - `retries` are those of `Retries`, such as `max_attempts` and `dead_letter`.

        Of the topic: `partitions` and `durability` are fixed at creation. `rpc` is for calls, in memory
        if no `durability` is given. `retention_ms`, `retention_bytes` and `retention_count` (of each
        partition) drop old messages, `retention_done` what all groups have finished. `dedupe_ms`: how
        long ids are remembered; `settled_ms`: how long what became of messages; 0: no such limit, or
        not at all. `dedupe_live`: an id is taken until its message is finished in every group.
        `sender_headers` stores with each message how it came.

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
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> GroupInfo: ...
    @overload
    def declare(
        self,
        topic: str,
        group: str | None = None,
        *,
        ack: bool | None = None,
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> TopicInfo | GroupInfo: ...
    def seek(
        self,
        topic: str,
        group: str | None,
        start: Start,
        *,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> GroupInfo:
        """Move a group: it forgets its leases and reads on at `start` (`"earliest"`, `"latest"`, an
        offset, offsets of all partitions, a time), in one `partition` or in all. Returns the group.

        Raises NotFound for a group that is not there, BadRequest for an offset past the end.
        """

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
        self,
        topic: str,
        group: str | None = None,
        *,
        keep_leased: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Forget what a group has still to do; without `group`, of all groups, and the messages. With
        `keep_leased`, what a group has leased stays so.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    def pause(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> GroupInfo:
        """Hold the deliveries of a group back, until `resume`. Raises NotFound, Forbidden."""

    def resume(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> GroupInfo:
        """Go on with the deliveries of a group. Raises NotFound, Forbidden."""

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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch) hold it back, `ttl_ms`
        lets it expire, `front` puts it before all that is ready. With `expected_offset` it is stored
        there or not at all. Without an ack it is delivered `max_attempts` times at most. `acks` are
        deliveries of one group and partition that are acknowledged by it: both or neither.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), NotLeased (`acks` have
        ended, or were done before), BadRequest, TooLarge, TooMany, Full or Overloaded: then nothing was
        stored; ConnectionLost or Timeout, whose `unknown` says whether it may have been; TypeError and
        ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own, and is stored once. If you give
        an `id`, a lost answer is a ConnectionLost with `unknown`: send it again, if the topic remembers
        ids (`dedupe_ms`).
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> StoredBatch:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 100,000
        messages and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`,
        that is left to you. Times, `acks` and errors are those of `produce`.
        """

    def pull(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int = 1,
        wait_ms: int = 0,
        partition: int | None = None,
        lease_ms: int | None = None,
        on_loss: Loss | None = None,
        standby: bool = False,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Take up to `batch` messages of a group, waiting up to `wait_ms` milliseconds for the first.
        They are leased for `lease_ms` milliseconds, or as long as the group says. `on_loss` says what
        becomes of the leases when the connection ends, if that is not what the group says. If another
        reads the exclusive group, `standby` waits until that one has left.

        Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
        group waits at a time: a second one ends the first with nothing. A pull that is cancelled, or
        ends by `timeout_s` or Ctrl-C, loses nothing: messages that come for it are given back, and of a
        group without acknowledgements the next pull of this client has them. Raises NotFound (declare
        the group first), Forbidden (also if another reads the exclusive group), TooMany, Overloaded.
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

        An offset that is acknowledged already, or was not delivered, is none of them that come again
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
        NotLeased if none is leased any more, NotFound if there is no such topic, group or partition.
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

    def delete(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        forget: bool = False,
        timeout_s: float | None = None,
    ) -> int:
        """Finish messages that a group has not finished, whatever their state; returns how many.

        A message is named by its offset, or by its id if the topic remembers ids (`dedupe_ms`). Without
        `group` all groups of the topic are meant. With `forget` it is not even kept what became of
        them, nor of those that are finished. Raises NotFound if there is nothing to finish.
        """

    def cancel(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> int:
        """The same, only while they are delayed: when this returns they were not delivered and never
        will be. Raises Conflict if they are not delayed, such as one that was just delivered."""

    def fire(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> int:
        """Messages that are delayed are due now; returns how many. Raises Conflict as `cancel` does."""

    def reschedule(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Messages that are delayed are due in `delay_ms`, or at `deliver_at_ms` (epoch); returns how
        many. Raises Conflict as `cancel` does."""

    def redrive(
        self,
        topic: str,
        group: str | None = None,
        *,
        count: int | None = None,
        offsets: Offsets | None = None,
        partition: int | None = None,
        to: str | None = None,
        timeout_s: float | None = None,
    ) -> Redriven:
        """Put messages of a group of a dead-letter topic back to where they come from, or into the
        topic `to`, each once: the first `count` (1,000), or those at `offsets` of one `partition`.

        Where as many were moved as were asked for there may be more: do it again. Raises NotFound,
        Forbidden, BadRequest for a group that is paused.
        """

    def peek(
        self,
        topic: str,
        group: str | None = None,
        *,
        state: State = "ready",
        key: str | None = None,
        tag: str | None = None,
        count: int = 100,
        after: str = "",
        body: bool = False,
        timeout_s: float | None = None,
    ) -> Listed:
        """List what a group has `delayed`, `leased` or `ready`: by due time, by the end of the lease,
        or by offset. `key` and `tag` (a filter) choose; `after` is the `next` of the page before.
        Changes nothing."""

    def why(
        self,
        topic: str,
        group: str | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> Document:
        """Why a message is not with the consumers of a group: a document whose `text` is a sentence and
        whose `state` is one word. Changes nothing."""

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

    def schedule(
        self,
        topic: str,
        id: str,
        cron: str,
        body: Body = b"",
        *,
        zone: str = "UTC",
        tag: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Scheduled:
        """Put a message again and again, at the times that the `cron` expression names in a time zone
        (`"Europe/Berlin"`); returns when the schedule is durable.

        There is one schedule of an `id`; `cancel(f"cron.{topic}", id=id)` ends it. Raises NotFound,
        BadRequest for an expression or a zone that is none, TooMany.
        """

class AsyncMethods:
    @overload
    async def declare(
        self,
        topic: str,
        group: None = None,
        *,
        ack: bool | None = None,
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> TopicInfo:
        """Create a topic and a group, or change them; what is not given stays as it is.

        Without `group` the group named like the topic is meant. Of the group:
        - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
          `window` (0 to 1,000,000) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes
          all.
        - `exclusive`: lets in one consumer at a time. `temporary`: goes with its last consumer.
          `paused`: delivers nothing. `order` "key": messages of one key, one after another.
        - A new one starts at `start` (`"earliest"`, `"latest"`, an offset, a time), or where the group
          `start_copy` stands. One that exists stays where it is: `seek` moves it.
        - `retries` are those of `Retries`, such as `max_attempts` and `dead_letter`.

        Of the topic: `partitions` and `durability` are fixed at creation. `rpc` is for calls, in memory
        if no `durability` is given. `retention_ms`, `retention_bytes` and `retention_count` (of each
        partition) drop old messages, `retention_done` what all groups have finished. `dedupe_ms`: how
        long ids are remembered; `settled_ms`: how long what became of messages; 0: no such limit, or
        not at all. `dedupe_live`: an id is taken until its message is finished in every group.
        `sender_headers` stores with each message how it came.

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
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> GroupInfo: ...
    @overload
    async def declare(
        self,
        topic: str,
        group: str | None = None,
        *,
        ack: bool | None = None,
        exclusive: bool | None = None,
        temporary: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        window: int | None = None,
        filter: str | None = None,
        order: Literal["none", "key"] | None = None,
        start: Start | None = None,
        start_copy: str | None = None,
        partitions: int | None = None,
        durability: Level | None = None,
        rpc: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_count: int | None = None,
        retention_done: bool | None = None,
        dedupe_ms: int | None = None,
        dedupe_live: bool | None = None,
        settled_ms: int | None = None,
        sender_headers: bool | None = None,
        timeout_s: float | None = None,
        **retries: Unpack[Retries],
    ) -> TopicInfo | GroupInfo: ...
    async def seek(
        self,
        topic: str,
        group: str | None,
        start: Start,
        *,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> GroupInfo:
        """Move a group: it forgets its leases and reads on at `start` (`"earliest"`, `"latest"`, an
        offset, offsets of all partitions, a time), in one `partition` or in all. Returns the group.

        Raises NotFound for a group that is not there, BadRequest for an offset past the end.
        """

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
        self,
        topic: str,
        group: str | None = None,
        *,
        keep_leased: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Forget what a group has still to do; without `group`, of all groups, and the messages. With
        `keep_leased`, what a group has leased stays so.

        Returns when that is durable. Raises NotFound, Forbidden.
        """

    async def pause(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> GroupInfo:
        """Hold the deliveries of a group back, until `resume`. Raises NotFound, Forbidden."""

    async def resume(
        self, topic: str, group: str | None = None, *, timeout_s: float | None = None
    ) -> GroupInfo:
        """Go on with the deliveries of a group. Raises NotFound, Forbidden."""

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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch) hold it back, `ttl_ms`
        lets it expire, `front` puts it before all that is ready. With `expected_offset` it is stored
        there or not at all. Without an ack it is delivered `max_attempts` times at most. `acks` are
        deliveries of one group and partition that are acknowledged by it: both or neither.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), NotLeased (`acks` have
        ended, or were done before), BadRequest, TooLarge, TooMany, Full or Overloaded: then nothing was
        stored; ConnectionLost or Timeout, whose `unknown` says whether it may have been; TypeError and
        ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own, and is stored once. If you give
        an `id`, a lost answer is a ConnectionLost with `unknown`: send it again, if the topic remembers
        ids (`dedupe_ms`).
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> StoredBatch:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 100,000
        messages and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`,
        that is left to you. Times, `acks` and errors are those of `produce`.
        """

    async def pull(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int = 1,
        wait_ms: int = 0,
        partition: int | None = None,
        lease_ms: int | None = None,
        on_loss: Loss | None = None,
        standby: bool = False,
        timeout_s: float | None = None,
    ) -> list[Delivery]:
        """Take up to `batch` messages of a group, waiting up to `wait_ms` milliseconds for the first.
        They are leased for `lease_ms` milliseconds, or as long as the group says. `on_loss` says what
        becomes of the leases when the connection ends, if that is not what the group says. If another
        reads the exclusive group, `standby` waits until that one has left.

        Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
        group waits at a time: a second one ends the first with nothing. A pull that is cancelled, or
        ends by `timeout_s` or Ctrl-C, loses nothing: messages that come for it are given back, and of a
        group without acknowledgements the next pull of this client has them. Raises NotFound (declare
        the group first), Forbidden (also if another reads the exclusive group), TooMany, Overloaded.
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

        An offset that is acknowledged already, or was not delivered, is none of them that come again
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
        NotLeased if none is leased any more, NotFound if there is no such topic, group or partition.
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

    async def delete(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        forget: bool = False,
        timeout_s: float | None = None,
    ) -> int:
        """Finish messages that a group has not finished, whatever their state; returns how many.

        A message is named by its offset, or by its id if the topic remembers ids (`dedupe_ms`). Without
        `group` all groups of the topic are meant. With `forget` it is not even kept what became of
        them, nor of those that are finished. Raises NotFound if there is nothing to finish.
        """

    async def cancel(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> int:
        """The same, only while they are delayed: when this returns they were not delivered and never
        will be. Raises Conflict if they are not delayed, such as one that was just delivered."""

    async def fire(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> int:
        """Messages that are delayed are due now; returns how many. Raises Conflict as `cancel` does."""

    async def reschedule(
        self,
        topic: str,
        group: str | None = None,
        offsets: Offsets | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Messages that are delayed are due in `delay_ms`, or at `deliver_at_ms` (epoch); returns how
        many. Raises Conflict as `cancel` does."""

    async def redrive(
        self,
        topic: str,
        group: str | None = None,
        *,
        count: int | None = None,
        offsets: Offsets | None = None,
        partition: int | None = None,
        to: str | None = None,
        timeout_s: float | None = None,
    ) -> Redriven:
        """Put messages of a group of a dead-letter topic back to where they come from, or into the
        topic `to`, each once: the first `count` (1,000), or those at `offsets` of one `partition`.

        Where as many were moved as were asked for there may be more: do it again. Raises NotFound,
        Forbidden, BadRequest for a group that is paused.
        """

    async def peek(
        self,
        topic: str,
        group: str | None = None,
        *,
        state: State = "ready",
        key: str | None = None,
        tag: str | None = None,
        count: int = 100,
        after: str = "",
        body: bool = False,
        timeout_s: float | None = None,
    ) -> Listed:
        """List what a group has `delayed`, `leased` or `ready`: by due time, by the end of the lease,
        or by offset. `key` and `tag` (a filter) choose; `after` is the `next` of the page before.
        Changes nothing."""

    async def why(
        self,
        topic: str,
        group: str | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> Document:
        """Why a message is not with the consumers of a group: a document whose `text` is a sentence and
        whose `state` is one word. Changes nothing."""

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

    async def schedule(
        self,
        topic: str,
        id: str,
        cron: str,
        body: Body = b"",
        *,
        zone: str = "UTC",
        tag: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Scheduled:
        """Put a message again and again, at the times that the `cron` expression names in a time zone
        (`"Europe/Berlin"`); returns when the schedule is durable.

        There is one schedule of an `id`; `cancel(f"cron.{topic}", id=id)` ends it. Raises NotFound,
        BadRequest for an expression or a zone that is none, TooMany.
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> Pending[Stored]:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch) hold it back, `ttl_ms`
        lets it expire, `front` puts it before all that is ready. With `expected_offset` it is stored
        there or not at all. Without an ack it is delivered `max_attempts` times at most. `acks` are
        deliveries of one group and partition that are acknowledged by it: both or neither.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), NotLeased (`acks` have
        ended, or were done before), BadRequest, TooLarge, TooMany, Full or Overloaded: then nothing was
        stored; ConnectionLost or Timeout, whose `unknown` says whether it may have been; TypeError and
        ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own, and is stored once. If you give
        an `id`, a lost answer is a ConnectionLost with `unknown`: send it again, if the topic remembers
        ids (`dedupe_ms`).
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> Pending[StoredBatch]:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 100,000
        messages and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`,
        that is left to you. Times, `acks` and errors are those of `produce`.
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

        An offset that is acknowledged already, or was not delivered, is none of them that come again
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
        NotLeased if none is leased any more, NotFound if there is no such topic, group or partition.
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> AsyncPending[Stored]:
        """Store one message; returns when it is durable, and says where it is.

        `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
        partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch) hold it back, `ttl_ms`
        lets it expire, `front` puts it before all that is ready. With `expected_offset` it is stored
        there or not at all. Without an ack it is delivered `max_attempts` times at most. `acks` are
        deliveries of one group and partition that are acknowledged by it: both or neither.

        Raises NotFound (declare the topic first), Conflict (`expected_offset`), NotLeased (`acks` have
        ended, or were done before), BadRequest, TooLarge, TooMany, Full or Overloaded: then nothing was
        stored; ConnectionLost or Timeout, whose `unknown` says whether it may have been; TypeError and
        ValueError for what cannot be sent.

        With `retries` the message gets an idempotency key of its own, and is stored once. If you give
        an `id`, a lost answer is a ConnectionLost with `unknown`: send it again, if the topic remembers
        ids (`dedupe_ms`).
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
        front: bool = False,
        max_attempts: int | None = None,
        acks: Acks | None = None,
        timeout_s: float | None = None,
    ) -> AsyncPending[StoredBatch]:
        """Store many messages in one request, all or none, at consecutive offsets of one partition.

        `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
        different partitions are refused: send a batch for each key. A batch has at most 100,000
        messages and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`,
        that is left to you. Times, `acks` and errors are those of `produce`.
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

        An offset that is acknowledged already, or was not delivered, is none of them that come again
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
        NotLeased if none is leased any more, NotFound if there is no such topic, group or partition.
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
