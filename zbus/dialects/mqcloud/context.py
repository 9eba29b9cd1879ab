"""What the verbs of this dialect are given: the state around them, and the request."""

from __future__ import annotations

from typing import Final

from zbus.dialects.mqcloud.ids import Ids
from zbus.dialects.mqcloud.locks import Locks
from zbus.dialects.mqcloud.registry import Found, Registry
from zbus.dialects.mqcloud.replies import FAILED, MqcloudReply
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.dialects.verbs import Call
from zbus.edge.dialect import Context, Parts

_CLIENT_LENGTH_MAX: Final = 64


def not_registered(kind: str, name: str) -> str:
    """Why nothing was done with this producer or consumer."""
    return f"{kind}:{name} haven't registered"


class MqcloudContext(Context[MqcloudSettings]):
    """One broker, and what the requests of this dialect share around it."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, MqcloudSettings)
        self.registry = Registry(self.broker, self.settings)
        self.locks = Locks()
        self.ids = Ids(self.settings.address, self.broker.new_id())

    def begin(self) -> None:
        self.registry.configure()


class MqcloudCall(Call[MqcloudContext]):
    """One request while it is done."""

    __slots__ = ()

    def reply(self) -> MqcloudReply:
        return MqcloudReply(self.asked, self.peer)

    def fail(self, text: str) -> None:
        """It is not done."""
        self.reply().respond_status(FAILED, text)

    def consumer(self, name: str) -> Found | None:
        """A consumer that the caller may see; None if the request was refused."""
        found = self.context.registry.consumer(name, self.peer)
        if found is None:
            self.fail(not_registered("consumer", name))
            return None
        return found if self.may(found.topic.name, name) else None

    def client_ip(self) -> str:
        """The address of the client, or what it gives as such: it is only shown to people."""
        if address := self.params.optional(b"clientIp").strip():
            return address.decode("utf-8", "replace")[:_CLIENT_LENGTH_MAX]
        return self.peer.address.rpartition(":")[0]
