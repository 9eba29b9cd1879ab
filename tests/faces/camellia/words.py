"""Words of the camellia dialect for its tests: what the original's Java client sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from tests.conformance.dialogue import http
from zbus.testing.world import Client, Reply

__all__ = ["Client", "Reply", "Talk", "form", "verb"]

QUEUE = "/camellia/delayQueue/"
FORM = "content-type: application/x-www-form-urlencoded; charset=utf-8"

Fields = Mapping[str, object]


def form(fields: Fields) -> bytes:
    """As `URLEncoder` writes it."""
    return urlencode({name: str(value) for name, value in fields.items()}).encode()


def verb(name: str, *lines: str, **fields: object) -> bytes:
    """A request of the Java client."""
    return http(QUEUE + name, FORM, *lines, body=form(fields) or b"&", method="POST")


class Talk:
    """A client that speaks the dialect."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.world = client.world

    def ask(self, name: str, *lines: str, **fields: object) -> Any:
        """The document of the reply, which must have the status 200."""
        return document(self.client.request(verb(name, *lines, **fields)))

    def send(self, topic: str = "T", msg: str = "abc", delayMillis: int = 0, **more: object) -> Any:
        """The message, as it was sent."""
        fields = {"topic": topic, "msg": msg, "delayMillis": delayMillis, **more}
        found = self.ask("sendMsg", **fields)
        assert (found["code"], found["msg"]) == (200, "success"), found
        return found["delayMsg"]

    def pull(self, topic: str = "T", **more: object) -> list[Any]:
        found = self.ask("pullMsg", topic=topic, **more)
        assert (found["code"], found["msg"]) == (200, "success"), found
        return found["delayMsgList"]

    def ack(self, message: Any, ack: bool = True) -> None:
        fields = {"topic": message["topic"], "msgId": message["msgId"], "ack": str(ack).lower()}
        assert self.ask("ackMsg", **fields) == {"code": 200, "msg": "success"}

    def get(self, message: Any) -> Any:
        """None if there is none."""
        found = self.ask("getMsg", topic=message["topic"], msgId=message["msgId"])
        if found["code"] == 404:
            assert found["delayMsg"] is None
            return None
        assert (found["code"], found["msg"]) == (200, "success"), found
        return found["delayMsg"]

    def delete(self, message: Any, **more: object) -> int:
        """The code."""
        return self.ask("deleteMsg", topic=message["topic"], msgId=message["msgId"], **more)["code"]

    def look(self, path: str) -> Any:
        """Of a GET."""
        return document(self.client.request(http(QUEUE + path)))


def document(reply: Reply) -> Any:
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/json;charset=UTF-8"
    return msgspec.json.decode(reply.body)
