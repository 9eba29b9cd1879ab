"""What `zbus doctor` finds, and what of a replicated engine: servers, stream, and how they sync."""

from __future__ import annotations

import http.client
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import attrs
import msgspec

from zbus.config import Config
from zbus.server.exits import CannotStart
from zbus.server.process.replicated import read_access
from zbus.storage.jetstream.client import Access, NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.settings import Shard, find_problems
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects

Level = Literal["ok", "warning", "problem"]


@attrs.frozen
class Finding:
    """What is so, how bad that is, and what to do about it."""

    check: str
    level: Level
    text: str
    advice: str = ""


MONITOR_PORT: Final = 8_222
TIMEOUT_S: Final = 5.0
_VARZ_BYTES_MAX: Final = 1 << 20


def engine(config: Config, monitor_port: int) -> Iterator[Finding]:
    """Nothing is changed: a stream that is not there is not made."""
    try:
        access, cluster = read_access(config)
    except CannotStart as error:
        yield Finding("engine", "problem", str(error), "correct the options engine and engine_*")
        return
    subjects = Subjects(cluster)
    answers: list[Document | Unreachable] = []
    for host, port in access.servers:
        place = f"{host}:{port}"
        answer, problem = ask(access, (host, port), f"STREAM.INFO.{subjects.stream}")
        if problem:
            advice = "start it, or look at addresses, users and certificates"
            yield Finding("server", "problem", f"{place}: {problem}", advice)
            continue
        yield Finding("server", "ok", f"{place} answers")
        yield _syncing(host, port, monitor_port)
        answers.append(answer)
    if answers:
        shard = Shard(cluster, config.engine_replicas, config.engine_bytes_max)
        yield from _stream(answers, shard, subjects)


def ask(
    access: Access, server: tuple[str, int], command: str
) -> tuple[Document | Unreachable, str]:
    """What one server answers, and why it cannot be reached if so."""
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    alone = Access([server], access.user, access.password, access.token, access.tls)
    client = NatsClient(alone, posted.put)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while client.problem and time.monotonic() < deadline_s:
            if ": " in client.problem:  # it was tried
                break
            time.sleep(0.01)
        if client.problem:
            return Unreachable(client.problem), client.problem.partition(": ")[2]
        answers: list[Document | Unreachable] = []
        NatsStream(client, "").ask(command, {}, answers.append)
        while not answers:
            posted.get(timeout=2 * TIMEOUT_S)()
        return answers[0], ""
    finally:
        client.close()


def _stream(
    answers: list[Document | Unreachable], shard: Shard, subjects: Subjects
) -> Iterator[Finding]:
    name = subjects.stream
    documents = [one for one in answers if isinstance(one, Document)]
    found = next((one for one in documents if one.error is None), None)
    if found is None:
        why = documents[0].error if documents else None
        if why is not None and why.code == 404:
            text = f"there is no stream {name} yet: the first broker makes it"
            yield Finding("stream", "ok", text)
            return
        text = why.description if why is not None else str(answers[0])
        advice = "wait, or start the other servers: a majority is needed"
        yield Finding("stream", "problem", f"{name}: {text}", advice)
        return
    if problems := find_problems(found.config, shard, subjects):
        advice = "the broker does not serve with it; make another stream, or change it with nats"
        yield Finding("stream", "problem", f"{name}: {'; '.join(problems)}", advice)
        return
    size = 0 if found.state is None else found.state.bytes
    yield Finding("stream", "ok", f"{name} fits, {size >> 20:,} MiB")
    cluster = found.cluster
    if cluster is None or shard.replicas == 1:
        return
    behind = [one.name for one in cluster.replicas if not one.current or one.offline]
    count = 1 + len(cluster.replicas)
    if behind:
        text = f"{count - len(behind)} of {count} replicas are current; {', '.join(behind)} not"
        advice = "stop no other server before all are: docs/howto/replace-a-nats-server.md"
        yield Finding("replicas", "warning", text, advice)
    else:
        yield Finding("replicas", "ok", f"{count} of {count} are current, {cluster.leader} leads")


def _syncing(host: str, port: int, monitor_port: int) -> Finding:
    """Whether the server syncs each write, if its monitoring port can be reached."""
    place = f"{host}:{port}"
    config = _varz(host, monitor_port, port)
    if config is None:
        text = f"{place}: not known, for its monitoring port {monitor_port} does not answer"
        advice = "look for `sync_interval: always` in its configuration, or give --monitor-port"
        return Finding("sync", "warning", text, advice)
    if config.get("sync_always"):
        return Finding("sync", "ok", f"{place} syncs every write")
    text = f"{place} does not sync every write: a power cut may lose acknowledged messages"
    return Finding("sync", "problem", text, "set `sync_interval: always` in its jetstream block")


def _varz(host: str, monitor_port: int, port: int) -> dict[str, Any] | None:
    """The configuration of JetStream, if the server of this port has that monitoring port."""
    connection = http.client.HTTPConnection(host, monitor_port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/varz")
        found = msgspec.json.decode(connection.getresponse().read(_VARZ_BYTES_MAX))
        if not isinstance(found, dict) or found.get("port") != port:
            return None
        config = found["jetstream"]["config"]
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError, TypeError):
        return None
    finally:
        connection.close()
    return config if isinstance(config, dict) else None
