"""Words of the MQCloud dialect for its tests: what its documented clients send."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from tests.conformance.dialogue import http
from tests.dialects.talks import InAWorld, document, encoded, post
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.testing.world import Reply, World

TOPIC, PRODUCER, CONSUMER = "orders", "orders-producer", "billing"


def get(path: str, *lines: str, **fields: object) -> bytes:
    return http(f"{path}?{encoded(fields).decode()}" if fields else path, *lines)


def opened(request_id: str) -> list[str]:
    """The fields of a requestId."""
    return urlsafe_b64decode(request_id).decode().split(",")


def closed(fields: list[str]) -> str:
    return urlsafe_b64encode(",".join(fields).encode()).decode()


def forged(request_id: str, field: int, value: object) -> str:
    """The same with another field."""
    fields = opened(request_id)
    fields[field] = str(value)
    return closed(fields)


class Talk:
    """Somebody who speaks the dialect, to a broker of whatever kind."""

    def request(self, data: bytes) -> Reply:
        raise NotImplementedError

    def wait(self, ms: int) -> None:
        """Time passes; whoever tests restarts does so in the middle of it."""
        raise NotImplementedError

    def ask(self, data: bytes) -> Any:
        """The envelope of the reply, which must have the status 200."""
        return document(self.request(data))

    def begin(self, way: int = 0, queues: int = 1, **more: object) -> None:
        """A topic with so many queues, a producer, and a consumer."""
        declare = f"/{TOPIC}?cmd=declare&partitions={queues}"
        assert self.request(http(declare)).status == 200
        self.register(producer=PRODUCER)
        self.register(consumer=CONSUMER, consumeWay=way, **more)

    def register(self, **fields: object) -> None:
        assert self.ask(post("/mq/register", topic=TOPIC, **fields)) == {"status": 200}

    def produce(self, message: str = "abc", **more: object) -> Any:
        """The result."""
        found = self.ask(post("/mq/produce", producer=PRODUCER, message=message, **more))
        assert found["status"] == 200, found
        assert found["result"]["sendStatus"] == "SEND_OK"
        return found["result"]

    def message(self, request_id: str = "", *lines: str, **more: object) -> Any:
        """The result."""
        found = self.try_message(request_id, *lines, **more)
        assert found["status"] == 200, found
        result = found["result"]
        assert result["msgListSize"] == len(result.get("msgList", ()))
        assert result["retryMsgListSize"] == len(result.get("retryMsgList", ()))
        assert None not in result.values()
        return result

    def try_message(self, request_id: str = "", *lines: str, **more: object) -> Any:
        """The envelope."""
        fields: dict[str, object] = {"topic": TOPIC, "consumer": CONSUMER, **more}
        if request_id:
            fields["requestId"] = request_id
        return self.ask(get("/mq/message", *lines, **fields))

    def bodies(self, request_id: str = "", **more: object) -> list[str]:
        return told(self.message(request_id, **more))

    def ack(self, request_id: str, **more: object) -> Any:
        fields: dict[str, object] = {"topic": TOPIC, "consumer": CONSUMER, **more}
        return self.ask(get("/mq/ack", requestId=request_id, **fields))

    def unlock(self, request_id: str, **more: object) -> Any:
        fields: dict[str, object] = {"topic": TOPIC, "consumer": CONSUMER, **more}
        return self.ask(get("/mq/unlock", requestId=request_id, **fields))

    def configure(self, **settings: object) -> Any:
        body = msgspec.json.encode({"consumer": CONSUMER, **settings})
        lines = "content-type: application/json"
        return self.ask(http("/mq/consumer/config", lines, body=body, method="POST"))

    def config(self) -> Any:
        found = self.ask(get(f"/mq/config/{CONSUMER}"))
        assert found["status"] == 200
        return found["result"]

    def offsets(self) -> Any:
        found = self.ask(get("/mq/clustering/queue/offset", consumer=CONSUMER))
        assert found["status"] == 200
        return found["result"]

    def committed(self) -> list[int]:
        return [queue["committedOffset"] for queue in self.offsets()]

    def drain(self) -> list[str]:
        """All there is, acknowledged."""
        found: list[str] = []
        for _ in range(1_000):
            result = self.message()
            if "requestId" in result:
                found += told(result)
                assert self.ack(result["requestId"])["status"] == 200
            elif all(queue["maxOffset"] == queue["committedOffset"] for queue in self.offsets()):
                return found
        raise AssertionError("there is no end")


class WorldTalk(InAWorld, Talk):
    """Under virtual time."""

    def __init__(
        self,
        world: World | None = None,
        restarts: bool = False,
        settings: MqcloudSettings | None = None,
    ) -> None:
        super().__init__(world, restarts, {"mqcloud": settings or MqcloudSettings()})


def told(result: Any) -> list[str]:
    """Of messages that are delivered for the first time."""
    return [message["message"] for message in result.get("msgList", ())]


def told_again(result: Any) -> list[str]:
    return [message["message"] for message in result.get("retryMsgList", ())]
