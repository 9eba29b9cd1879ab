"""What stands in the way of a broker on this machine, before it is started: for `zbus doctor`.

Each check looks at one thing and says what is so, how bad that is, and what to do about it. Nothing
is changed but a file that is written beside the data and removed.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import queue
import resource
import select
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from zbus.config import Config
from zbus.edge.quotas import share
from zbus.server.exits import CannotStart
from zbus.server.loop.sockets import Address, BadAddress, addresses_of, exposed, split_address
from zbus.server.process.certificates import BadCertificate, Certificates
from zbus.server.process.nodes import Nodes
from zbus.server.process.replicated import Watcher, node_name, read_access
from zbus.server.process.shards import check_shards, check_workers
from zbus.server.process.tokens import BadTokens, TokenFile, loose_permissions
from zbus.server.watch.system_stats import OsStats, SystemStats
from zbus.storage.jetstream.client import Access, NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.settings import Cluster, find_problems
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.local.files import OsFiles
from zbus.storage.local.naming import SEGMENT_SUFFIX
from zbus.storage.local.shards import find_shards
from zbus.storage.port import JournalError

SYNCS = 20
SYNC_BYTES = 4_096
SYNC_S_MIN = 0.000_03
"""No device makes bytes durable in less: what says so keeps them in a cache that may be lost."""

SYNC_S_MAX = 0.05
MEMORY_BYTES_MIN = 256 << 20
WORKER_BYTES_MIN = 100 << 20
DISK_SHARE_MIN = 20
CERTIFICATE_DAYS_MIN = 21
CONNECT_S = 2.0
TIMEOUT_S = 5.0
LISTEN_S = 1.5
"""Each process is heard three times."""
_VARZ_BYTES_MAX = 1 << 20

_DAY_S = 86_400
_TIME_ERROR = 5  # of adjtimex(2)
_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"))
_VOLATILE = frozenset(("tmpfs", "ramfs"))


Level = Literal["ok", "warning", "problem"]


@attrs.frozen
class Finding:
    """What is so, how bad that is, and what to do about it."""

    check: str
    level: Level
    text: str
    advice: str = ""


@attrs.frozen
class Machine:
    """What the checks look at; tests have their own."""

    gauges: SystemStats = attrs.Factory(OsStats)
    mounts: Path = Path("/proc/self/mounts")
    files_max: Callable[[], int] = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    sync_s: Callable[[Path], list[float]] = lambda folder: measured(folder)
    write_cache: Callable[[Path], str] = lambda path: write_cache(path)
    clock_state: Callable[[], int] = lambda: clock_state()
    cores: Callable[[], int] = lambda: len(os.sched_getaffinity(0))
    may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)
    now_s: Callable[[], float] = time.time


def examine(
    config: Config, machine: Machine | None = None, monitor_port: int = 8_222
) -> Iterator[Finding]:
    """All checks, one after another. `monitor_port`: of the servers of a remote engine."""
    machine = Machine() if machine is None else machine
    yield Finding("python", "ok", f"Python {sys.version.split()[0]} on {sys.platform}")
    if config.engine == "files":
        yield from folder(config, machine)
    else:
        yield from engine(config, monitor_port)
    yield from workers(config, machine)
    yield from descriptors(config, machine)
    yield from memory(config, machine)
    yield from clock(machine)
    yield from tokens(config)
    yield from certificate(config, machine)
    yield from ports(config)


# -- the disk ---------------------------------------------------------------------------------


def folder(config: Config, machine: Machine) -> Iterator[Finding]:
    """The data directory and its disk."""
    path = config.data_dir.absolute()
    there = path
    while not there.exists():
        there = there.parent
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        advice = f"let the account that runs the broker write there: chown it to uid {os.getuid()}"
        yield Finding("data", "problem", f"{there} cannot be written", advice)
        return
    try:
        check_shards(path, config.workers)
        shards = find_shards(OsFiles(), path) if path.is_dir() else []
    except (CannotStart, JournalError) as error:
        advice = "docs/howto/several-cores.md says how directories of several workers are made"
        yield Finding("data", "problem", str(error), advice)
        return
    for lane in (lane for shard in shards for lane in shard.glob("*/[0-9]*")):
        newest = max(lane.glob(f"[0-9]*{SEGMENT_SUFFIX}"), default=lane)
        if wrong := [str(each) for each in (lane, newest) if not machine.may_write(each)]:
            advice = f"chown -R all of {path} to uid {os.getuid()}, as after a restore as root"
            yield Finding("data", "problem", f"{wrong[0]} cannot be written", advice)
            return
    kind = file_system(machine.mounts, there)
    if kind in _VOLATILE:
        advice = "choose a data_dir on a disk: files here are lost when the machine stops"
        yield Finding("data", "problem", f"{path} is in memory ({kind})", advice)
    elif kind in _NETWORK:
        advice = "choose a disk of this machine: a network file system may sync late, or not at all"
        yield Finding("data", "warning", f"{path} is on the network ({kind})", advice)
    else:
        yield Finding("data", "ok", f"{path} on {kind or 'a disk'}")
    space = machine.gauges.disk(there)
    if space is not None:
        part = 100 * space.free // max(1, space.total)
        text = f"{space.free >> 20:,} MiB free, {part} % of the disk"
        low = part < DISK_SHARE_MIN
        advice = "make room: with too little the broker refuses messages (disk_free_bytes_min)"
        yield Finding("space", "warning" if low else "ok", text, advice if low else "")
    yield from _syncing(machine, there, kind)


def _syncing(machine: Machine, there: Path, kind: str) -> Iterator[Finding]:
    try:
        taken_s = statistics.median(machine.sync_s(there))
    except OSError as error:
        text = f"a file in {there} cannot be synced: {error.strerror or error}"
        yield Finding("sync", "problem", text, "look at the disk, and at the system's log")
        return
    text = f"{SYNC_BYTES >> 10} KiB are synced in {taken_s * 1000:.3f} ms"
    if machine.write_cache(there) == "write through":
        # Right for a disk without a cache or with a battery; else a sync is no sync.
        text += "; the system takes the disk for one without a cache, and asks for no flush"
    if taken_s < SYNC_S_MIN and kind not in _VOLATILE:
        text += ": no disk can do that"
        advice = (
            "the disk says that it has written what is in a cache; a power cut may lose"
            " acknowledged messages. Turn the cache off, or use a disk that keeps it by battery"
        )
        yield Finding("sync", "warning", text, advice)
    elif taken_s > SYNC_S_MAX:
        advice = "each acknowledgement waits for this: use a faster disk, or durability os"
        yield Finding("sync", "warning", text, advice)
    else:
        yield Finding("sync", "ok", text)


def measured(folder: Path) -> list[float]:
    """Seconds that each of some syncs takes, of a file that is removed. Raises OSError."""
    path = folder / f".zbus-doctor-{os.getpid()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        found = []
        for number in range(SYNCS):
            os.pwrite(file, os.urandom(SYNC_BYTES), number * SYNC_BYTES)
            began_s = time.perf_counter()
            os.fdatasync(file)
            found.append(time.perf_counter() - began_s)
        return found
    finally:
        os.close(file)
        path.unlink()


def write_cache(path: Path, devices: Path = Path("/sys/dev/block")) -> str:
    """`write back` if the system has the disk's cache flushed by a sync, `write through` if it does
    not; empty if it does not tell."""
    number = path.stat().st_dev
    device = devices / f"{os.major(number)}:{os.minor(number)}"
    for folder in (device.resolve(), device.resolve().parent):  # a partition has that of its disk
        with suppress(OSError, UnicodeDecodeError):
            return (folder / "queue/write_cache").read_text(encoding="ascii").strip()
    return ""


def file_system(mounts: Path, path: Path) -> str:
    """What kind the path is on; empty if the system does not tell."""
    best, kind = -1, ""
    with suppress(OSError, UnicodeDecodeError):
        for line in mounts.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) < 3:
                continue
            point = words[1].replace("\\040", " ")
            if path.is_relative_to(point) and len(point) >= best:
                best, kind = len(point), words[2]
    return kind


# -- the servers of a remote engine ------------------------------------------------------------


def engine(config: Config, monitor_port: int) -> Iterator[Finding]:
    """Nothing is changed: a stream that is not there is not made."""
    try:
        access, cluster = read_access(config)
    except CannotStart as error:
        yield Finding("engine", "problem", str(error), "correct the options engine and engine_*")
        return
    shards = [Subjects(cluster, number) for number in range(config.shards)]
    answers: list[list[Document | Unreachable]] = [[] for _ in shards]
    for host, port in access.servers:
        place = f"{host}:{port}"
        _, problem = ask(access, (host, port), f"STREAM.INFO.{shards[0].stream}")
        if problem:
            advice = "start it, or look at addresses, users and certificates"
            yield Finding("server", "problem", f"{place}: {problem}", advice)
            continue
        yield Finding("server", "ok", f"{place} answers")
        yield _server_syncing(host, port, monitor_port)
        for subjects, found in zip(shards, answers, strict=True):
            found.append(ask(access, (host, port), f"STREAM.INFO.{subjects.stream}")[0])
    wanted = Cluster(cluster, config.engine_replicas, config.engine_bytes_max, shards=config.shards)
    for subjects, found in zip(shards, answers, strict=True):
        if found:
            yield from _stream(found, wanted, subjects)
    if any(answers):
        yield from _nodes(config)


def _nodes(config: Config) -> Iterator[Finding]:
    """Those of the cluster that are heard, and whether clients and other nodes reach them from
    here."""
    watcher = Watcher(config)
    until_s = time.monotonic() + LISTEN_S
    while (left_s := until_s - time.monotonic()) > 0:
        select.select([watcher.mailbox.receiver], [], [], left_s)
        watcher.mailbox.run()
    found = Nodes(watcher.membership, node_name(config)).document()
    watcher.close()
    watcher.mailbox.close()
    if not found.nodes:
        return  # none is running
    for each in found.nodes:
        ports = [each.address]
        if each.relay and each.shards:
            host, port = split_address(each.relay)
            ports.append(f"{host}:{port + each.shards[0]}")
        closed = [place for place in ports if not _reaches(place)]
        text = f"{each.node} {each.version} at {each.address}, shards {each.shards}"
        if closed:
            text += f": {' and '.join(closed)} cannot be reached from here"
            yield Finding("node", "problem", text, "look at firewalls between the machines")
        else:
            yield Finding("node", "ok", text)
    for warning in found.warnings:
        yield Finding("cluster", "warning", warning, "docs/howto/cluster.md")


def _reaches(place: str) -> bool:
    host, port = split_address(place)
    try:
        socket.create_connection((host, port), TIMEOUT_S).close()
    except (OSError, OverflowError, UnicodeError):  # a heartbeat may say what is no address
        return False
    return True


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
    answers: list[Document | Unreachable], wanted: Cluster, subjects: Subjects
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
    if problems := find_problems(found.config, wanted, subjects):
        advice = "the broker does not serve with it; make another stream, or change it with nats"
        yield Finding("stream", "problem", f"{name}: {'; '.join(problems)}", advice)
        return
    size = 0 if found.state is None else found.state.bytes
    yield Finding("stream", "ok", f"{name} fits, {size >> 20:,} MiB")
    cluster = found.cluster
    if cluster is None or wanted.replicas == 1:
        return
    behind = [one.name for one in cluster.replicas if not one.current or one.offline]
    count = 1 + len(cluster.replicas)
    if behind:
        text = f"{count - len(behind)} of {count} replicas are current; {', '.join(behind)} not"
        advice = "stop no other server before all are: docs/howto/replace-a-nats-server.md"
        yield Finding("replicas", "warning", text, advice)
    else:
        yield Finding("replicas", "ok", f"{count} of {count} are current, {cluster.leader} leads")


def _server_syncing(host: str, port: int, monitor_port: int) -> Finding:
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


# -- the machine ------------------------------------------------------------------------------


def descriptors(config: Config, machine: Machine) -> Iterator[Finding]:
    """How many connections may be open."""
    files_max, count = machine.files_max(), config.workers
    possible = wanted = share(config.connections_max, count)  # of each process
    if files_max != resource.RLIM_INFINITY:
        possible = files_max * 3 // 4 if files_max >= 1_024 else files_max // 2
    text = f"{min(possible, wanted) * count:,} connections may be open"
    if possible < wanted:
        advice = f"allow more files: LimitNOFILE={wanted * 2}, or ulimit -n"
        yield Finding("files", "warning", f"{text}, not {config.connections_max:,}", advice)
    else:
        yield Finding("files", "ok", text)


def workers(config: Config, machine: Machine) -> Iterator[Finding]:
    """Whether there may be several, and whether there are cores for them."""
    if config.workers == 1:
        return
    cores = machine.cores()
    text = f"{config.workers} workers on {cores} core{'s' * (cores != 1)}"
    try:
        check_workers(config)
    except CannotStart as error:
        yield Finding(
            "workers",
            "problem",
            str(error),
            "start without --workers, with files, or with --shards",
        )
        return
    if config.workers > cores:
        advice = f"set workers={cores}: more of them share cores, and each takes 100 MiB"
        yield Finding("workers", "warning", text, advice)
    else:
        yield Finding("workers", "ok", text)


def memory(config: Config, machine: Machine) -> Iterator[Finding]:
    """What the process could have, or all workers together."""
    total = machine.gauges.memory_total()
    if total is None:
        return
    text = f"{total >> 20:,} MiB for {'this process' if config.workers == 1 else 'all workers'}"
    needed = max(MEMORY_BYTES_MIN, config.workers * WORKER_BYTES_MIN)
    if total < needed:
        advice = (
            f"give it {needed >> 20} MiB or more, or set memory_limit_bytes and cache_bytes_max"
        )
        yield Finding("memory", "warning", text, advice)
    else:
        yield Finding("memory", "ok", text)


def clock(machine: Machine) -> Iterator[Finding]:
    """Delays, expiry and retention go by it."""
    state = machine.clock_state()
    now = formatdate(machine.now_s(), usegmt=True)
    if state == _TIME_ERROR:
        advice = "run chrony or systemd-timesyncd: delays and retention go by this clock"
        yield Finding("clock", "warning", f"{now}, and no time service synchronizes it", advice)
    else:
        yield Finding("clock", "ok", now)


def clock_state() -> int:
    """What adjtimex(2) says; -1 where there is none."""
    try:
        found: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (AttributeError, OSError):
        return -1
    return found


# -- who may come, and where ------------------------------------------------------------------


def tokens(config: Config) -> Iterator[Finding]:
    """Whether the wrong people may do everything."""
    if not config.token_file:
        outside: list[Address] = []
        with suppress(BadAddress):
            outside = exposed(addresses_of(config))
        if outside and not config.insecure:
            text = f"{outside[0]} is reachable from other machines, and no token file is set"
            yield Finding("tokens", "problem", text, "name a file of tokens: docs/howto/tokens.md")
        elif outside:
            text = "anyone who can reach this machine has full access (insecure)"
            yield Finding("tokens", "warning", text, "name a file of tokens: docs/howto/tokens.md")
        else:
            yield Finding("tokens", "ok", "none; only this machine can reach the broker")
        return
    path = Path(config.token_file)
    try:
        TokenFile(path)
    except BadTokens as error:
        yield Finding("tokens", "problem", str(error), "correct the file")
        return
    if loose := loose_permissions(path):
        yield Finding("tokens", "warning", f"{path}: {loose}", f"chmod g-w,o= {path}")
    else:
        yield Finding("tokens", "ok", f"{path}")


def certificate(config: Config, machine: Machine) -> Iterator[Finding]:
    """Of TLS: whether it can be used, and how long."""
    if not config.tls_cert_file:
        return
    try:
        context = Certificates(config).context
    except BadCertificate as error:
        yield Finding("tls", "problem", str(error), "correct the files: docs/howto/tls.md")
        return
    try:
        until_s = valid_until_s(context, config.tls_cert_file)
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason
        text = f"{config.tls_cert_file}: {why}"
        yield Finding("tls", "problem", text, "renew it, then send the broker SIGHUP")
        return
    days = int((until_s - machine.now_s()) // _DAY_S)
    text = f"{config.tls_cert_file} is valid for {days} days"
    low = days < CERTIFICATE_DAYS_MIN
    advice = "renew it, then send the broker SIGHUP" if low else ""
    yield Finding("tls", "warning" if low else "ok", text, advice)


def valid_until_s(context: ssl.SSLContext, path: str) -> float:
    """Epoch seconds until which a server's certificate is valid, as a client finds out. Raises
    SSLError if it is not valid now."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    asking.load_verify_locations(path)
    context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    found = client.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def ports(config: Config) -> Iterator[Finding]:
    """Whether it can listen."""
    try:
        addresses = addresses_of(config)
    except BadAddress as error:
        yield Finding("port", "problem", str(error), "correct host, port or listen")
        return
    for address in addresses:
        if address.kind == "tcp" and address.port:
            yield _port(address)


def _port(address: Address) -> Finding:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address.host, address.port))
        except OSError as error:
            running = None if address.tls else _running(address)
            if running is not None:
                return Finding("port", "ok", f"a broker runs at {address}: {running}")
            advice = "stop what listens there, or choose another port"
            text = f"{address}: {error.strerror or error}"
            return Finding("port", "problem", text, advice)
    return Finding("port", "ok", f"{address} is free")


def _running(address: Address) -> str | None:
    """What a broker there says of its health; None: it is none."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    asked = http.client.HTTPConnection(host, address.port, timeout=CONNECT_S)
    try:
        asked.request("GET", "/_health/ready")
        answer = asked.getresponse()
        return answer.read(1_000).decode("utf-8", "replace") if answer.getheader("id") else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        asked.close()
