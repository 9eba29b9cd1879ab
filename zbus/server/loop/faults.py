"""What becomes of a mistake in the program, in a running broker: it is logged, with names, and
costs the connection that it came from, or what `zbus.core.upkeep.fencing` says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from zbus.core.api import Containment, Fault, Group, InDoubt, Partition, Session, Topic
from zbus.server.loop.socket_connection import SocketConnection

log = logging.getLogger("zbus")


def names(culprit: object) -> dict[str, object]:
    """What a culprit is called."""
    if isinstance(culprit, Session):
        return {"peer": culprit.address}
    if isinstance(culprit, Partition):
        return {"topic": culprit.topic.name, "partition": culprit.index}
    if isinstance(culprit, Group):
        return {"topic": culprit.topic.name, "group": culprit.name}
    return {"topic": culprit.name} if isinstance(culprit, Topic) else {}


def report(fault: Fault) -> None:
    """Write it to the log, with where it came from."""
    log.error("an internal error", extra=names(fault.culprit), exc_info=fault.error)


def each(calls: Iterable[Callable[[], None]]) -> None:
    """What is done now and then: if one part fails the others are done all the same."""
    for call in calls:
        try:
            call()
        except InDoubt:
            raise
        except Exception:
            part = getattr(call, "__qualname__", repr(call))
            log.exception("upkeep failed", extra={"part": part})


class FaultyLinks:
    """Ends connections in which something went wrong, whatever goes wrong in ending them."""

    def __init__(self, drop: Callable[[SocketConnection], None], faults: Containment) -> None:
        self._drop = drop
        self._faults = faults

    def failed(self, link: SocketConnection) -> None:
        """To be called where the exception is handled."""
        log.exception("a connection failed", extra=names(link))
        self.drop(link)

    def drop(self, session: Any) -> None:  # noqa: ANN401 - the broker's sessions are links here
        try:
            self._drop(session)
        except Exception as error:
            self._faults.quarantine(None, error)
