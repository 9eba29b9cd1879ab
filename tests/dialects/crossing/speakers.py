"""Who speaks each dialect over a real socket, so that what one puts another can take.

A speaker says `put`, `take`, `give_back` and `finish` in its own words, and tells what it was told:
nothing is looked up behind the broker's back. All of them use the group named like the topic.
"""

from __future__ import annotations

import itertools
import json
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlencode

import attrs

from tests.dialects.adf.speakers import Speaker as Client
from tests.dialects.adf.speakers import Told
from tests.limits import WAIT_S

PATIENCE_S: Final = 20


@attrs.define
class Message:
    """As its sender wants it, or as its receiver is told; None: a dialect has no word for it."""

    body: bytes
    id: str | None = None
    tag: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    attempts: int | None = None
    attempts_max: int | None = None
    front: bool | None = None
    handle: str = ""  # by which its receiver settles it


class Speaker(ABC):
    """One dialect, and what a sender can say in it."""

    name: str
    can_say: frozenset[str]

    def __init__(self, port: int) -> None:
        # One connection for all: its end might be the end of what is held.
        self._connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)

    def make(self, topic: str) -> None:  # noqa: B027  # most have nothing to do
        """What has to be done before a first put."""

    @abstractmethod
    def put(self, topic: str, message: Message) -> str:
        """The id that the sender knows the message by."""

    @abstractmethod
    def take(self, topic: str) -> Message:
        """The next one; waits for it."""

    @abstractmethod
    def give_back(self, topic: str, taken: Message) -> None: ...

    @abstractmethod
    def finish(self, topic: str, taken: Message) -> None: ...

    def ask(
        self, method: str, target: str, body: bytes = b"", **headers: str
    ) -> tuple[dict[str, str], bytes]:
        self._connection.request(method, target, body or None, headers)
        reply = self._connection.getresponse()
        found = reply.read()
        assert reply.status == 200, f"{target}: {reply.status} {found!r}"
        return {
            name.lower().removeprefix("zbus-header-"): value for name, value in reply.getheaders()
        }, found

    def close(self) -> None:
        self._connection.close()


class Native(Speaker):
    """zbus over plain HTTP."""

    name = "zbus"
    can_say = frozenset(attrs.fields_dict(Message)) - {"attempts", "handle"}

    def make(self, topic: str) -> None:
        self.ask("GET", f"/{topic}/{topic}?cmd=declare&ack=true&dedupe_live=true")

    def put(self, topic: str, message: Message) -> str:
        said = {
            "id": message.id,
            "key": message.key,
            "delay": message.delay_ms,
            "ttl": message.ttl_ms,
            "max_attempts": message.attempts_max,
            "front": message.front and "true",
        }
        query = urlencode({name: value for name, value in said.items() if value is not None})
        headers = {**(message.headers or {}), **({"tag": message.tag} if message.tag else {})}
        told, _ = self.ask("POST", f"/{topic}?{query}", message.body, **headers)
        return message.id or told["id"]

    def take(self, topic: str) -> Message:
        wait_ms = PATIENCE_S * 1_000
        told, body = self.ask("GET", f"/{topic}/{topic}?cmd=consume&timeout={wait_ms}&lease=60000")
        return Message(
            body,
            id=told["origin_id"],
            tag=told.get("tag"),
            key=told.get("key"),
            headers={name: told[name] for name in told if name.startswith("x-trip")},
            attempts=int(told.get("retry", "0")) + 1,
            handle=f"{told['offset']}&partition={told.get('partition', 0)}",
        )

    def give_back(self, topic: str, taken: Message) -> None:
        self.ask("GET", f"/{topic}/{topic}?cmd=nack&offset={taken.handle}")

    def finish(self, topic: str, taken: Message) -> None:
        self.ask("GET", f"/{topic}/{topic}?cmd=ack&offset={taken.handle}")

    def now_ms(self) -> int:
        return int(self.ask("GET", "/?cmd=ping")[1])


class Adf(Speaker):
    """Adf in one of its binary forms; a body that is no text cannot be told in the others."""

    name = "Adf"
    can_say = frozenset({"body", "front"})

    _ids = itertools.count()  # no two pulls over HTTP may have one

    def __init__(self, port: int, form: str) -> None:
        super().__init__(port)
        self._client = Client(port, form)

    def put(self, topic: str, message: Message) -> str:
        action = "lpush" if message.front else "rpush"
        return str(self._ask(action, topic, "put", message.body).messageid)

    def take(self, topic: str) -> Message:
        id = f"pull-{next(self._ids)}"
        told = self._ask("pull", topic, id)
        assert told.body is not None
        assert told.duplications is not None
        return Message(told.body, id=str(told.messageid), attempts=told.duplications + 1, handle=id)

    def give_back(self, topic: str, taken: Message) -> None:
        self._ask("lcancel", topic, taken.handle)

    def finish(self, topic: str, taken: Message) -> None:
        self._ask("delete", topic, taken.handle)

    def close(self) -> None:
        super().close()
        self._client.close()

    def _ask(self, action: str, topic: str, id: str, body: bytes | None = None) -> Told:
        told = self._client.ask(action, id, topic, body)
        assert told.result == "ok", told
        return told


class Camellia(Speaker):
    """camellia's delay queue."""

    name = "camellia"
    can_say = frozenset({"body", "id", "delay_ms", "ttl_ms", "attempts_max"})

    def put(self, topic: str, message: Message) -> str:
        said = {
            "msg": message.body,
            "msgId": message.id,
            "delayMillis": message.delay_ms or 0,
            "ttlMillis": message.ttl_ms,
            "maxRetry": None if message.attempts_max is None else message.attempts_max - 1,
        }
        told = self._ask("sendMsg", topic, said)["delayMsg"]
        assert told["status"] in (1, 2)
        return str(told["msgId"])

    def take(self, topic: str) -> Message:
        said = {"longPollingTimeoutMillis": PATIENCE_S * 1_000, "ackTimeoutMillis": 60_000}
        (told,) = self._ask("longPollingMsg", topic, said)["delayMsgList"]
        return Message(
            told["msg"].encode(),
            id=told["msgId"],
            delay_ms=told["triggerTime"] - told["produceTime"],
            ttl_ms=told["expireTime"] - told["produceTime"],
            attempts=told["retry"],
            attempts_max=told["maxRetry"] + 1,
            handle=told["msgId"],
        )

    def give_back(self, topic: str, taken: Message) -> None:
        self._ask("ackMsg", topic, {"msgId": taken.handle, "ack": "false"})

    def finish(self, topic: str, taken: Message) -> None:
        self._ask("ackMsg", topic, {"msgId": taken.handle, "ack": "true"})

    def _ask(self, verb: str, topic: str, said: dict[str, Any]) -> dict[str, Any]:
        form = {"topic": topic, **{name: each for name, each in said.items() if each is not None}}
        kind = {"content-type": "application/x-www-form-urlencoded;charset=utf-8"}
        path = f"/camellia/delayQueue/{verb}"
        answer: dict[str, Any] = json.loads(
            self.ask("POST", path, urlencode(form).encode(), **kind)[1]
        )
        assert answer["code"] == 200, answer
        return answer


class Mqcloud(Speaker):
    """MQCloud, in pop mode: another dialect may have a message in its hands as well."""

    name = "MQCloud"
    can_say = frozenset({"body", "key", "delay_ms"})

    def make(self, topic: str) -> None:
        self._ask("POST", "/mq/register", {"topic": topic, "producer": f"{topic}-producer"})
        self._join(topic)

    def put(self, topic: str, message: Message) -> str:
        said: dict[str, Any] = {
            "producer": f"{topic}-producer",
            "message": message.body,
            "keys": message.key,
        }
        if message.delay_ms is None:
            said["orderId"] = "one"  # else the order of two queues is none
        else:
            said["deliveryTimestamp"] = int(time.time() * 1_000) + message.delay_ms + 200
        return str(self._ask("POST", "/mq/produce", said)["msgId"])

    def take(self, topic: str) -> Message:
        self._join(topic)
        said = {"topic": topic, "consumer": topic, "pop": "true", "maxPullSize": 1}
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            told = self._ask("GET", "/mq/message", said)
            found = [*told.get("msgList", ()), *told.get("retryMsgList", ())]
            if found:
                break
        (message,) = found
        # In the words of its console: who holds what, for which time.
        listed = self._ask("GET", "/mq/clustering/pop/ack", {"consumer": topic})["list"]
        times = {one["requestId"]: one["retryTimes"] for one in listed}
        base64 = message.get("messageBase64")
        return Message(
            message["message"].encode() if base64 is None else b64decode(base64),
            id=message["messageId"],
            attempts=times[told["requestId"]] + 1,
            handle=told["requestId"],
        )

    def give_back(self, topic: str, taken: Message) -> None:
        self._settle("unlock", topic, taken)

    def finish(self, topic: str, taken: Message) -> None:
        self._settle("ack", topic, taken)

    def _settle(self, verb: str, topic: str, taken: Message) -> None:
        said = {"topic": topic, "consumer": topic, "pop": "true", "requestId": taken.handle}
        self._ask("GET", f"/mq/{verb}", said)

    def _join(self, topic: str) -> None:
        self._ask("POST", "/mq/register", {"topic": topic, "consumer": topic})

    def _ask(self, method: str, path: str, said: dict[str, Any]) -> Any:
        form = urlencode({name: each for name, each in said.items() if each is not None})
        kind = {"content-type": "application/x-www-form-urlencoded;charset=utf-8"}
        if method == "GET":
            _, answer = self.ask(method, f"{path}?{form}")
        else:
            _, answer = self.ask(method, path, form.encode(), **kind)
        told = json.loads(answer)
        assert told["status"] == 200, told
        return told.get("result")


NAMES: Final = (Native.name, Adf.name, Camellia.name, Mqcloud.name)


def speak(port: int, adf_form: str) -> dict[str, Speaker]:
    """One of each dialect."""
    found = (Native(port), Adf(port, adf_form), Camellia(port), Mqcloud(port))
    return {each.name: each for each in found}
