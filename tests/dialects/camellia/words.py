"""Words of the camellia dialect for its tests: what the original's Java client sends."""

from __future__ import annotations

from typing import Any

from tests.conformance.dialogue import http
from tests.dialects.talks import InAWorld, document, post
from zbus.testing.world import Client, Reply

QUEUE = "/camellia/delayQueue/"


def verb(name: str, *lines: str, **fields: object) -> bytes:
    """A request of the Java client."""
    return post(QUEUE + name, *lines, **fields)


class Talk:
    """Somebody who speaks the dialect, to a broker of whatever kind."""

    def request(self, data: bytes) -> Reply:
        raise NotImplementedError

    def poll(self, topic: str = "T", **more: object) -> Poll:
        """Begin a long poll on a connection of its own."""
        raise NotImplementedError

    def wait(self, ms: int) -> None:
        """Time passes; whoever tests restarts does so in the middle of it."""
        raise NotImplementedError

    def ask(self, name: str, *lines: str, **fields: object) -> Any:
        """The document of the reply, which must have the status 200."""
        return document(self.request(verb(name, *lines, **fields)))

    def send(self, topic: str = "T", msg: str = "abc", delayMillis: int = 0, **more: object) -> Any:
        """The message, as it was sent."""
        found = self.ask("sendMsg", topic=topic, msg=msg, delayMillis=delayMillis, **more)
        assert (found["code"], found["msg"]) == (200, "success"), found
        return found["delayMsg"]

    def pull(self, topic: str = "T", **more: object) -> list[Any]:
        return pulled(self.ask("pullMsg", topic=topic, **more))

    def ack(self, message: Any, ack: bool = True) -> None:
        fields = {"topic": message["topic"], "msgId": message["msgId"], "ack": str(ack).lower()}
        assert self.ask("ackMsg", **fields) == {"code": 200, "msg": "success"}

    def nack(self, message: Any) -> None:
        self.ack(message, ack=False)

    def get(self, message: Any) -> Any:
        """None if there is none."""
        found = self.ask("getMsg", topic=message["topic"], msgId=message["msgId"])
        if found["code"] == 404:
            assert found["delayMsg"] is None
            return None
        assert (found["code"], found["msg"]) == (200, "success"), found
        return found["delayMsg"]

    def status(self, message: Any) -> int | None:
        found = self.get(message)
        return None if found is None else found["status"]

    def delete(self, message: Any, **more: object) -> int:
        """The code."""
        code = self.ask("deleteMsg", topic=message["topic"], msgId=message["msgId"], **more)["code"]
        assert code in (200, 404)
        return int(code)

    def look(self, path: str) -> Any:
        """The data of a GET."""
        found = document(self.request(http(QUEUE + path)))
        assert found["code"] == 200
        return found["data"]


class Poll:
    """A long poll on its way."""

    def messages(self) -> list[Any] | None:
        """None if it is not answered yet."""
        raise NotImplementedError


class WorldTalk(InAWorld, Talk):
    """Under virtual time."""

    def poll(self, topic: str = "T", **more: object) -> WorldPoll:
        client = self.world.connect()
        client.send(verb("longPollingMsg", topic=topic, **more))
        self.world.settle()
        return WorldPoll(client)


class WorldPoll(Poll):
    def __init__(self, client: Client) -> None:
        self.client = client

    def messages(self) -> list[Any] | None:
        replies = self.client.replies()
        return pulled(document(replies[0])) if replies else None


def pulled(found: Any) -> list[Any]:
    """The messages of a reply to a pull."""
    assert (found["code"], found["msg"]) == (200, "success"), found
    messages: list[Any] = found["delayMsgList"]
    return messages
