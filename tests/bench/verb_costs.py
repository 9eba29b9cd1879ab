"""What a request costs the broker as programs send it, beside one that is always the same.

    python -m tests.bench.verb_costs [COMMIT] [--rounds 15] [--only WORD]     (make bench-cpu)

Processor time of the broker, kernel included, durability `os`; 200 requests are pipelined on one
connection, and the generator takes turns with the broker on one core (`tests/bench/lockstep.py`
says why that is steady). Rounds are short, and the least counts. With a commit each round measures
that version, too. Prints a table for docs/explanation/performance.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from tests.bench.lockstep import one_core
from tests.bench.measure import Server, checkout, run_seconds
from tests.bench.templates import MESSAGES, Template, client_lines, crowd, get, post
from tests.process.broker import BrokerProcess, Wire
from tests.process.pipe import Pipe, Reply, header
from tests.process.websocket import WebSocket
from tests.wire.websocket_frames import frame

PIPELINED = 200
ROUND = 900  # requests: a group hands out no more than 999 at once
TOPICS = "ABCDEFGHR"
FORM = "content-type: application/x-www-form-urlencoded"
Given = dict[str, bytes]
"""Values for the slots of a request, beside those that it makes itself."""


class Link(Protocol):
    """A connection that pipelines."""

    def send(self, data: bytes) -> None: ...

    def read(self) -> Reply: ...

    def close(self) -> None: ...


class JsonSocket:
    """JSON objects over a WebSocket."""

    def __init__(self, port: int) -> None:
        self._socket = WebSocket(Wire(port))

    def send(self, data: bytes) -> None:
        self._socket.wire.send(data)

    def read(self) -> Reply:
        reply = self._socket.read_json()
        return Reply(reply["status"], b"", b"")

    def close(self) -> None:
        self._socket.wire.close()


def exchange(link: Link, requests: Iterable[bytes]) -> Iterator[Reply]:
    """Send all of them, `PIPELINED` at once; each must be a success."""
    left = iter(requests)
    while some := list(islice(left, PIPELINED)):
        link.send(b"".join(some))
        for _ in some:
            reply = link.read()
            assert reply.status == 200, reply
            yield reply


# -- requests ----------------------------------------------------------------------------------


def pull(place: str) -> bytes:
    return get(f"/{place}?cmd=consume&timeout=0")


def nothing(pipe: Pipe, number: int) -> list[Given]:
    """For a request that needs nothing in place."""
    return [{}] * number


def put_before(*texts: bytes, group: str = "") -> Callable[[Pipe, int], list[Given]]:
    """Puts the messages that the requests then take. A `group` begins at the first of them, and
    forgets its leases."""
    templates = [Template.of(text) for text in texts]

    def put(pipe: Pipe, number: int) -> list[Given]:
        random = Random()
        if group:
            list(exchange(pipe, [get(f"/{group}?cmd=seek&from=latest")]))
        for template in templates:
            list(exchange(pipe, [template.fill(n, random) for n in range(number)]))
        return [{}] * number

    return put


def stored(pipe: Pipe, number: int) -> list[Given]:
    """Places of messages, at random."""
    random = Random()
    return [{"place": b"%d" % random.randrange(100_000)} for _ in range(number)]


def leased(topic: str) -> Callable[[Pipe, int], list[Given]]:
    """Messages that are leased out, by their offsets."""
    puts = put_before(post(f"/{topic}", "key: {id}"), group=f"{topic}/g")

    def lease(pipe: Pipe, number: int) -> list[Given]:
        puts(pipe, number)
        pulls = [pull(f"{topic}/g")] * number
        return [{"offset": header(one.head, b"offset") or b""} for one in exchange(pipe, pulls)]

    return lease


def taken_by_camellia(pipe: Pipe, number: int) -> list[Given]:
    """The ids of messages that its client has taken."""
    put_before(SEND)(pipe, number)
    found = []
    for reply in exchange(pipe, [TAKE] * number):
        at = reply.body.index(b'"msgId":"') + 9
        found.append({"msg": reply.body[at : reply.body.index(b'"', at)]})
    return found


def taken_by_mqcloud(pipe: Pipe, number: int) -> list[Given]:
    """The ids of batches of one message that its consumer has taken."""
    put_before(PRODUCE)(pipe, number)
    found = []
    for reply in exchange(pipe, [BATCH] * number):
        at = reply.body.index(b'"requestId":"') + 13
        found.append({"request": reply.body[at : reply.body.index(b'"', at)]})
    return found


CLOUD_EVENT = (
    "ce-specversion: 1.0",
    "ce-type: com.example.order.created",
    "ce-source: /orders/{kind}",
    "ce-id: {id}",
    "content-type: application/json",
)
TRACE = "traceparent: 00-{trace}-{span}-01"
KEYED = post("/K", "key: {id}")
ACK_LINES = ("cmd: ack", "topic: L", "consume_group: g", "offset: {offset}")
LINES_OF_A_SERVICE = (TRACE, "x-request-id: {id}", "x-user: {user}", "user-agent: curl/8.11.0")
NDJSON_TYPE = "content-type: application/x-ndjson"
NDJSON = "\n".join(f'{{"i":{number}}}' for number in range(100))
JSON = b'{"cmd":"produce","topic":"A","id":"{id}",%b"body":"hello {span}"}'
LEASES = "cmd=declare&ack=true&group_ack_window=999&group_ack_timeout=3600000"
DECLARED = (
    *(get(f"/{topic}?cmd=declare") for topic in TOPICS),
    get(f"/L/g?{LEASES}"),
    get(f"/K/g?{LEASES}&group_order=key"),
    get("/F/g?cmd=declare&group_filter=a.*"),
    post("/mq/register", FORM, body="topic=M&producer=M-producer"),
    post("/mq/register", FORM, body="topic=M&consumer=M"),
    post("/mq/consumer/config", body='{"consumer":"M","rateLimitEnabled":0}'),
    *([post("/R", NDJSON_TYPE, body=NDJSON)] * 1_000),
)
SEND = post("/camellia/delayQueue/sendMsg", FORM, body="topic=C&delayMillis=0&msg=hello-{id}")
TAKE = post("/camellia/delayQueue/pullMsg", FORM, body="topic=C&batch=1")
DONE = post("/camellia/delayQueue/ackMsg", FORM, body="topic=C&msgId={msg}")
PRODUCE = post("/mq/produce", FORM, body="producer=M-producer&message=hello-{id}")
OF_CONSUMER = "topic=M&consumer=M&pop=true"
BATCH = get(f"/mq/message?{OF_CONSUMER}&maxPullSize=1")
BATCH_DONE = get(f"/mq/ack?{OF_CONSUMER}&requestId={{request}}")


class Verb(NamedTuple):
    """A kind of request."""

    name: str
    texts: Sequence[bytes]  # sent in turn
    before: Callable[[Pipe, int], list[Given]] = nothing
    connect: Callable[[int], Link] = Pipe
    wrapped: Callable[[bytes], bytes] = bytes  # one on the wire
    part: int = 1  # a round has one in `part` as many: each does the work of many


def verb(name: str, *texts: bytes, before: Callable[[Pipe, int], list[Given]] = nothing) -> Verb:
    return Verb(name, texts, before)


def json(name: str, members: bytes = b"") -> Verb:
    """A put over a WebSocket."""
    return Verb(name, [JSON % members], nothing, JsonSocket, partial(frame, 1))


def crowd_of_clients() -> list[bytes]:
    """One message after the other from each of them."""
    return [text for texts in crowd("/A", "localhost", len(client_lines())) for text in texts]


PUT, PULL = "put, one fixed request", "pull, one fixed request"
VERBS = (
    verb(PUT, post("/A")),
    verb("put, bodies differ in length", post("/A", body="{body}")),
    verb("put, `tag` of 20 kinds", post("/A", "tag: {kind}")),
    verb("put, `id` differs", post("/A", "id: {id}")),
    verb("put, `key` differs", post("/A", "key: {user}")),
    verb("put, `?body=` differs", get("/A?body=hello{n}")),
    verb("put, `idempotency-key` differs", post("/A", "idempotency-key: {id}")),
    verb("put, `traceparent` and three more lines", post("/A", *LINES_OF_A_SERVICE)),
    verb("put, `delay` differs", get("/D?delay={delay}&body=hello")),
    verb("put, CloudEvents in header lines", post("/A", *CLOUD_EVENT)),
    verb("put, all in header lines", post("/", "cmd: produce", "topic: A", "id: {id}")),
    verb("put, three of these in turn", *(post("/A", *lines) for lines in MESSAGES)),
    verb("put, the same from 21 clients in turn", *crowd_of_clients()),
    verb("put, eight topics in turn", *(post(f"/{topic}") for topic in TOPICS[:8])),
    verb("put, a header name that is new each time", post("/A", "x-{span}: 1")),
    Verb("put, a batch of 100 as NDJSON", [post("/A", NDJSON_TYPE, body=NDJSON)], part=20),
    json("put over a WebSocket in JSON, `id` and `body` differ"),
    json("put over a WebSocket in JSON, `key` too", b'"key":"{user}",'),
    verb("camellia: `sendMsg`, message differs", SEND),
    verb("MQCloud: produce, message differs", PRODUCE),
    verb(PULL, pull("A"), before=put_before(post("/A"))),
    verb("pull, messages have a `traceparent`", pull("A"), before=put_before(post("/A", TRACE))),
    verb("pull by a filter", pull("F/g"), before=put_before(post("/F", "tag: a.b"))),
    verb("pull with a lease", pull("L/g"), before=put_before(post("/L"), group="L/g")),
    verb("pull in order of each key", pull("K/g"), before=put_before(KEYED, group="K/g")),
    verb("camellia: `pullMsg`", TAKE, before=put_before(SEND)),
    verb("MQCloud: message of one", BATCH, before=put_before(PRODUCE)),
    verb("read of one message by its offset", get("/R?cmd=consume&offset={place}"), before=stored),
    verb("ack by URL", get("/L/g?cmd=ack&offset={offset}"), before=leased("L")),
    verb("ack in header lines", post("/", *ACK_LINES, body=""), before=leased("L")),
    verb("ack, order of each key", get("/K/g?cmd=ack&offset={offset}"), before=leased("K")),
    verb("nack", get("/L/g?cmd=nack&offset={offset}&delay=3600000"), before=leased("L")),
    verb("extend", get("/L/g?cmd=extend&offset={offset}&group_lease=60000"), before=leased("L")),
    verb("camellia: `ackMsg`", DONE, before=taken_by_camellia),
    verb("MQCloud: ack", BATCH_DONE, before=taken_by_mqcloud),
    verb("query of a topic", get("/A?cmd=query")),
    verb("ping", get("/?cmd=ping")),
)


# -- measuring ---------------------------------------------------------------------------------


def cost_us(server: Server, verb: Verb, number: int = ROUND) -> float:
    """Of one request, in one round."""
    number = max(1, number // verb.part)
    templates, random = [Template.of(text) for text in verb.texts], Random()
    first = random.getrandbits(40)  # numbers of this round were in none before
    with closing(Pipe(server.port)) as pipe:
        given = verb.before(pipe, number)
        requests = [
            verb.wrapped(templates[n % len(templates)].fill(first + n, random, **values))
            for n, values in enumerate(given)
        ]
    with closing(verb.connect(server.port)) as link:
        list(exchange(link, requests[:1]))
        before = run_seconds(server.pid)
        list(exchange(link, requests[1:]))
        return (run_seconds(server.pid) - before) / max(1, number - 1) * 1e6


@contextmanager
def brokers(folder: Path, commit: str, *options: str) -> Iterator[list[Server]]:
    """This version, and the one of the commit if there is one; both with all topics."""
    with ExitStack() as stack:
        checkouts = [None, *([stack.enter_context(checkout(commit))] if commit else [])]
        found = []
        for number, files in enumerate(checkouts):
            data = folder / f"data-{number}"
            broker = BrokerProcess(data, "--durability", "os", *options, checkout=files)
            stack.enter_context(broker)
            with closing(Pipe(broker.port)) as pipe:
                list(exchange(pipe, (Template.of(text).fill(0, Random()) for text in DECLARED)))
            found.append(Server.of(broker))
        yield found


def measure(servers: Sequence[Server], verb: Verb, rounds: int) -> list[float]:
    """For each server the least of all rounds."""
    taken: list[list[float]] = [[] for _ in servers]
    for _ in range(rounds):
        for server, found in zip(servers, taken, strict=True):
            found.append(cost_us(server, verb))
    return [min(found) for found in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="rows with this in their names")
    chosen = parser.parse_args()
    print(
        "| request | µs | beside the fixed one |" + " before | now / before |" * bool(chosen.commit)
    )
    print("|---|---|---|" + "---|---|" * bool(chosen.commit))
    with (
        tempfile.TemporaryDirectory(prefix="zbus-verbs-") as folder,
        brokers(Path(folder), chosen.commit) as servers,
        one_core(*(server.pid for server in servers)),
    ):
        fixed = 0.0
        for verb in VERBS:
            if verb.name not in (PUT, PULL) and chosen.only not in verb.name:
                continue
            us, *before = measure(servers, verb, chosen.rounds)
            fixed = us if verb.name in (PUT, PULL) else fixed
            then = "".join(f" {other:.1f} | {us / other:.2f} |" for other in before)
            print(f"| {verb.name} | {us:.1f} | {us / fixed:.2f} |{then}", flush=True)


if __name__ == "__main__":
    main()
