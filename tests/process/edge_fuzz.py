"""The edge of a real broker: requests of a grammar over TCP and TLS, judged by h11 and wsproto.

    python -m tests.process.edge_fuzz --seconds 60 --seed 1

Every request is answered, by replies that the judges take, or its connection is closed, within
a bound. Nothing is an internal error, what was acknowledged is stored, and memory does not grow
without bound. A case is made by the seed and its number: `--first N --cases 1` repeats it on a
fresh broker, and `--cases N+1` with all that came before it.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import h11
from wsproto.connection import Connection as WebSocketJudge
from wsproto.connection import ConnectionType
from wsproto.utilities import RemoteProtocolError as WebSocketFault

from tests.authority import client_context
from tests.bench.measure import resident_bytes
from tests.limits import SLOWNESS
from tests.process.broker import Wire, request
from tests.process.edge_grammar import ADMIN, COUNTED, TOPICS, Case, EdgeGrammar, document
from tests.process.test_tls import TlsBroker
from zbus.dialects.zbus.request.header_lines import WRITTEN

REPLY_S = 4.0 * SLOWNESS
"""Within which a case is answered or its connection is closed. No case waits for messages."""
GROWTH_BYTES_MAX = 256 << 20
"""That the broker may take more at the end of a run than at its start, and for each case:"""
GROWTH_BYTES_PER_CASE = 500
FAILURES_MAX = 20
TOKEN_FILE = Path(__file__).parents[2] / "examples" / "tokens.toml"

PLAIN_REPLY_NAMES = WRITTEN | frozenset(
    b"accept-encoding allow cache-control connection consume_group content-length"
    b" content-security-policy content-type count cross-origin-resource-policy due duplicate"
    b" durability empty end etag first id key next offset origin_id partition reason"
    b" referrer-policy retry retry-after schedule skipped tag timestamp topic transfer-encoding"
    b" unseen vary www-authenticate x-accel-buffering x-content-type-options x-frame-options"
    b" x-robots-tag access-control-allow-origin access-control-expose-headers location traceparent"
    b" tracestate baggage".split()
)
"""What a reply without `cmd` may have beside the lines of the next row (ADR 41)."""
PLAIN_REPLY_PREFIXES = (b"ce-", b"zbus-header-")


class Fault(AssertionError):
    """What must not be."""


@dataclass
class Counts:
    """Of a run."""

    requests: int = 0
    seconds: float = 0.0
    acknowledged: int = 0  # messages of COUNTED
    unknown: int = 0  # produces of COUNTED that got no reply: stored or not
    stored: int = 0
    grown_bytes: int = 0
    dialects: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def summary(self) -> str:
        classes = Counter({f"{status // 100}xx": 0 for status in self.statuses})
        for status, count in self.statuses.items():
            classes[f"{status // 100}xx"] += count
        lines = [
            f"{self.seconds:.0f} s, {self.requests:,} requests,"
            f" {self.statuses.total():,} replies, {len(self.failures)} failures",
            "dialects: " + _shown(self.dialects),
            "statuses: " + _shown(classes) + "; " + _shown(self.statuses),
            f"{COUNTED}: {self.acknowledged:,} acknowledged, {self.unknown:,} without a reply,"
            f" {self.stored:,} stored; memory grew by {self.grown_bytes >> 20} MiB",
        ]
        return "\n".join([*lines, *self.failures])


def _shown(counts: Counter[str] | Counter[int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


class Exchange:
    """One case on a connection of its own."""

    def __init__(self, broker: TlsBroker, case: Case, trust: ssl.SSLContext | None) -> None:
        self.case = case
        self.received = bytearray()
        self.statuses: list[int] = []
        self.fields: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        port = broker.port if trust else broker.plain_port
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=REPLY_S)
        if trust:
            self.sock = trust.wrap_socket(self.sock, server_hostname="localhost")
        self.tls = trust is not None
        self.deadline = time.monotonic() + REPLY_S

    def run(self) -> None:
        try:
            self._send(self.case.data)
            if not self.case.complete:
                self._end()
            self._read()
        finally:
            self.sock.close()

    def _send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except (ConnectionError, OSError):
            return  # refused while it was sent: the reply says why

    def _end(self) -> None:
        """Half a close: what is missing never comes."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _receive(self) -> bytes:
        self.sock.settimeout(max(0.001, self.deadline - time.monotonic()))
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            raise Fault(f"no reply within {REPLY_S} s, only {bytes(self.received)!r}") from None
        except OSError:
            data = b""
        self.received += data
        return data

    def _read(self) -> None:
        judge = h11.Connection(h11.CLIENT)
        upgrade = [("connection", "upgrade"), ("upgrade", "websocket")] * bool(self.case.frames)
        judge.send(
            h11.Request(method=self.case.method, target="/", headers=[("host", "a"), *upgrade])
        )
        judge.send(h11.EndOfMessage())
        while True:
            event = judge.next_event()
            if event is h11.NEED_DATA:
                data = self._receive()
                if not data and not self.received:
                    return  # closed without a reply
                judge.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    self._head(event)
                    self._frames(judge.trailing_data[0])
                    return
            elif isinstance(event, h11.Response):
                self._head(event)
            elif isinstance(event, h11.Data):
                self.body += event.data
            else:
                return

    def _head(self, event: h11.Response | h11.InformationalResponse) -> None:
        self.statuses.append(event.status_code)
        self.fields = list(event.headers)

    def _frames(self, data: bytes) -> None:
        judge = WebSocketJudge(ConnectionType.CLIENT)
        self._send(self.case.frames)
        while True:
            if data:
                judge.receive_data(data)
            for _ in judge.events():
                pass
            data = self._receive()
            if not data:
                return


class Campaign:
    """A broker and the cases."""

    def __init__(self, broker: TlsBroker, seed: int, first: int = 0) -> None:
        self.broker = broker
        self.seed = seed
        self.number = first
        self.counts = Counts()
        self._trust = client_context()
        for topic in (*TOPICS, COUNTED, "T/g", "U/g"):
            assert self._admin(f"/{topic}?cmd=declare")[0] == 200
        for role in ("producer=p", "consumer=c"):
            assert self._admin(f"/mq/register?topic=T&{role}", "POST")[0] == 200
        self._rest_bytes = resident_bytes(broker.process.pid)

    def _admin(self, target: str, method: str = "GET") -> tuple[int, bytes]:
        wire = Wire(self.broker.plain_port)
        sent = request(target, "token: " + ADMIN.decode(), "connection: close")
        wire.send(sent.replace(b"GET", method.encode(), 1))
        answer = wire.read()
        return answer.status, answer.body

    def next(self) -> None:
        random = Random(f"{self.seed}:{self.number}")
        case = EdgeGrammar(random).case()
        tls = random.random() < 0.3 and case.complete  # half a close is of TCP alone
        self.counts.requests += 1
        self.counts.dialects[case.dialect + "+tls" * tls] += 1
        exchange = Exchange(self.broker, case, self._trust if tls else None)
        try:
            exchange.run()
            self._judge(exchange)
        except (Fault, h11.RemoteProtocolError, WebSocketFault) as error:
            self._failed(error, exchange)
        self._count(exchange)
        self.number += 1

    def _failed(self, error: Exception, exchange: Exchange) -> None:
        case = exchange.case
        self.counts.failures.append(
            f"seed {self.seed}, case {self.number}, {case.dialect}, tls {exchange.tls}: {error!r}\n"
            f"  sent {case.data[:1_500]!r} {case.frames!r}\n"
            f"  got {bytes(exchange.received[:800])!r}"
        )

    def _judge(self, exchange: Exchange) -> None:
        self.counts.statuses.update(exchange.statuses)
        if 500 in exchange.statuses or b"nternal error" in exchange.received:
            raise Fault("an internal error")
        case = exchange.case
        if case.dialect == "zbus" and not case.command:
            for name, _ in exchange.fields:
                if name not in PLAIN_REPLY_NAMES and not name.startswith(PLAIN_REPLY_PREFIXES):
                    raise Fault(f"a plain reply has {name!r}")

    def _count(self, exchange: Exchange) -> None:
        if not exchange.case.counted:
            return
        if not exchange.statuses:
            self.counts.unknown += 1
        elif exchange.statuses[-1] == 200:
            fields = dict(exchange.fields)
            self.counts.acknowledged += int(fields.get(b"count", b"1"))

    def finish(self) -> None:
        """The broker is alive, and has what it acknowledged."""
        counts, failures = self.counts, self.counts.failures
        status, body = self._admin(f"/{COUNTED}?cmd=query")
        depth = document(body)["messageDepth"]
        assert status == 200
        assert isinstance(depth, int)
        counts.stored = depth
        if not 0 <= counts.stored - counts.acknowledged <= counts.unknown:
            failures.append(f"stored is not what was acknowledged, seed {self.seed}")
        counts.grown_bytes = resident_bytes(self.broker.process.pid) - self._rest_bytes
        if counts.grown_bytes > GROWTH_BYTES_MAX + GROWTH_BYTES_PER_CASE * counts.requests:
            failures.append(f"memory grew by {counts.grown_bytes:,} bytes, seed {self.seed}")
        log = self.broker.log()
        if " ERROR " in log or "Traceback" in log:
            at = max(
                0, min(log.find(word) % (len(log) + 1) for word in (" ERROR ", "Traceback")) - 200
            )
            failures.append(f"it was logged, seed {self.seed}: {log[at : at + 3_000]}")


def run(folder: Path, seconds: float, seed: int, first: int = 0, cases: int = 1 << 60) -> Counts:
    """Until the time is over, the cases are done, or too much has failed."""
    settings = ("mqcloud_auto_register=true", "cache_bytes_max=4MiB", "history_bytes_max=4MiB")
    options = ["--token-file", str(TOKEN_FILE)]
    for setting in settings:
        options += ("--set", setting)
    with TlsBroker(folder, *options) as broker:
        campaign = Campaign(broker, seed, first)
        counts = campaign.counts
        begun = time.monotonic()
        while time.monotonic() - begun < seconds and counts.requests < cases:
            campaign.next()
            if len(counts.failures) >= FAILURES_MAX or broker.process.poll() is not None:
                break
        counts.seconds = time.monotonic() - begun
        if broker.process.poll() is not None:
            counts.failures.append(f"the broker ended: {broker.log()[-3_000:]}")
        else:
            campaign.finish()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=1 << 60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = run(Path(folder), options.seconds, options.seed, options.first, options.cases)
    print(counts.summary())
    return bool(counts.failures)


if __name__ == "__main__":
    sys.exit(main())
