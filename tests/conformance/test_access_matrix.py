"""Every command, grant, topic, group and kind of token against a model that is obviously right.

The model knows no patterns and no folding: it goes by what is written out here for each grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import product

import attrs
import pytest

from tests.conformance.dialogue import EPOCH_MS, Client, World, http, ok
from tests.limits import share
from zbus.dialects.zbus.schema.commands import COMMANDS
from zbus.edge.access import OPERATIONS, Access, Entry, make_grant

TOPICS = ("Orders", "Other")
GROUPS = ("Orders", "billing", "audit")  # of Orders
EVERYTHING = frozenset(GROUPS) | {"Other", "and all others"}

COMMAND_NAMES = sorted({*COMMANDS, "no_such_command"})

# What the specification says, command by command.
SINGLE = ("delete", "cancel", "fire", "reschedule")

NEEDS_OPERATION = {
    **dict.fromkeys(
        ("consume", "unconsume", "nack", "extend", "redrive", "read", "get"), "consume"
    ),
    **dict.fromkeys(("pause", "resume"), "declare"),
    **dict.fromkeys((*SINGLE, "peek", "why"), "consume"),
    **{name: name for name in OPERATIONS if name != "consume"},
    "seek": "declare",
    **dict.fromkeys(("schema", "asyncapi"), "query"),
    **dict.fromkeys(("stats", "metrics", "history", "connections", "cluster"), "server"),
    **dict.fromkeys(("txn_stage", "txn_commit", "txn_abort", "txn_query"), "produce"),
}
ON_ALL_GROUPS = {"remove", "empty", "history", *SINGLE}  # if they name none
ON_A_GROUP = {
    "consume",
    "unconsume",
    "ack",
    "nack",
    "extend",
    "redrive",
    "declare",
    "seek",
    "peek",
    "why",
    *ON_ALL_GROUPS,
}
ON_A_GROUP |= {"pause", "resume"}
ON_EVERYTHING = {"connections", "cluster"}
FREE_FOR_ALL = {"heartbeat", "home", "login", "logout", "icon", "health"}


@attrs.frozen
class Case:
    """A grant as it is written, and what it comes to."""

    operations: tuple[str, ...]
    topics: dict[str, list[str]]  # as in the file
    sees: dict[str, frozenset[str]]  # topic: its groups
    expires_ms: int = EPOCH_MS + 1_000

    @property
    def everything(self) -> bool:
        """All groups of all topics, those to come included."""
        return any(topic == "*" and set(groups) <= {"*"} for topic, groups in self.topics.items())


CASES = {
    "nothing of a topic": Case(("*",), {}, {}),
    "one group": Case(
        ("produce", "consume"), {"orders": ["BILLING"]}, {"Orders": frozenset({"billing"})}
    ),
    "own group": Case(
        ("consume", "remove", "empty", "query"),
        {"Orders": ["Orders"]},
        {"Orders": frozenset({"Orders"})},
    ),
    "a prefix of groups": Case(
        ("declare", "remove", "query", "consume"),
        {"Orders": ["b*", "a*"]},
        {"Orders": frozenset({"billing", "audit"})},
    ),
    "a topic": Case(OPERATIONS, {"Orders": []}, {"Orders": EVERYTHING}),
    "a prefix of topics": Case(("*",), {"ord*": ["*"]}, {"Orders": EVERYTHING}),
    "all topics": Case(
        ("server", "query", "produce"), {"*": []}, dict.fromkeys(TOPICS, EVERYTHING)
    ),
    "all topics, one group": Case(
        ("*",), {"*": ["audit"]}, {"Orders": frozenset({"audit"}), "Other": frozenset({"audit"})}
    ),
    "admin": Case(("admin",), {}, dict.fromkeys(TOPICS, EVERYTHING)),
    "expired": Case(("admin",), {}, {}, expires_ms=EPOCH_MS),
}


def allowed(case: Case | None, command: str, topic: str, group: str) -> bool:
    """The model."""
    if command in FREE_FOR_ALL:
        return True
    if case is None or case.expires_ms <= EPOCH_MS:
        return False
    if "admin" in case.operations:
        return True
    operation = NEEDS_OPERATION.get(command)
    if operation is not None and not {operation, "*"} & set(case.operations):
        return False
    if command in ON_EVERYTHING and not case.everything:
        return False
    if command == "history" and not (topic or group) and not case.everything:
        return False  # that of the whole server
    if not topic or command in ("query", "schema"):  # these say that it is unknown
        return True
    if topic not in case.sees:
        return False
    seen = case.sees[topic]
    if command in ("read", "get") or (command in ON_ALL_GROUPS and not group):
        return seen == EVERYTHING
    return command not in ON_A_GROUP or (group or topic) in seen or seen == EVERYTHING


def visible(case: Case, topic: str, group: str) -> bool:
    """What a query finds."""
    seen = case.sees.get(topic)
    return seen is not None and (not group or group in seen or seen == EVERYTHING)


def digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def world_of(case: Case, url_allowed: bool = True) -> World:
    grant = make_grant("tested", case.operations, case.topics, case.expires_ms)
    access = Access(
        [
            Entry(make_grant("admin", ["admin"], {}), (digest("admin"),)),
            Entry(grant, (digest("old"), digest("new"))),
        ]
    )
    world = World(access=access, allow_url_token=url_allowed)
    admin = world.connect()
    for path in ("Orders", "Orders/billing", "Orders/audit", "Other"):
        ok(admin, http(f"/{path}?cmd=declare", "token: admin"))
    return world


def outcome(client: Client, data: bytes, command: str) -> str:
    reply = client.request(data)
    if reply.status == 403:
        assert reply.body.decode().startswith(f"403: Command({command})"), reply
        return "refused"
    return "unknown" if reply.status == 404 else "done"


def cells() -> Iterator[tuple[str, str]]:
    yield from ((topic, group) for topic in ("", *TOPICS) for group in ("", *GROUPS))


def target(command: str, topic: str, group: str) -> str:
    named = f"&consume_group={group}" if group else ""
    offset = "" if command == "consume" else "&offset=0"  # there it would be a look at the log
    return f"/{topic}?cmd={command}{named}{offset}&timeout=0&recver=x"


@pytest.mark.parametrize("command", COMMAND_NAMES)
@pytest.mark.parametrize("name", CASES)
def test_every_command_and_grant(name: str, command: str) -> None:
    case = CASES[name]
    client = world_of(case).connect()
    for topic, group in share([*cells()], [*CASES].index(name) + COMMAND_NAMES.index(command)):
        if command in ("declare", "remove", "empty"):
            client = world_of(case).connect()  # as it was
        for shown in ("new", "unknown"):
            holder = case if shown == "new" else None
            found = outcome(client, http(target(command, topic, group), f"token: {shown}"), command)
            what = f"{shown}: {command} {topic}/{group}"
            assert (found != "refused") is allowed(holder, command, topic, group), what
            if command == "query" and topic and found != "refused":
                there = topic == "Orders" or group in ("", "Other")
                expected = there and visible(case, topic, group)
                assert (found == "done") is expected, what


SOURCES = {
    "header": ("", "token: {}"),
    "spelled header": ("", "ToKeN:   {}"),
    "coded header": ("", "token: {:%>}"),
    "cookie": ("", "cookie: a=b; token={}; c=d"),
    "lone cookie": ("", "cookie: token={}"),
    "URL": ("&token={}", ""),
    "coded URL": ("&t%6Fken={}", ""),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shown", ["old", "new", "wrong", "OLD"])
def test_where_a_token_may_stand(source: str, shown: str) -> None:
    query, line = SOURCES[source]
    case = CASES["one group"]
    text = (
        line.format(shown)
        if "%" not in line
        else "token: " + "".join(f"%{byte:02x}" for byte in shown.encode())
    )
    lines = (text,) if line else ()
    clients = {allowed: world_of(case, allowed).connect() for allowed in (True, False)}
    for url_allowed, (topic, group) in product((True, False), cells()):
        client = clients[url_allowed]
        data = http(target("consume", topic, group) + query.format(shown), *lines)
        reply = client.request(data)
        if "URL" in source and not url_allowed:
            assert (reply.status, reply.body) == (
                403,
                b"403: a token in the URL is not taken here: send it as a header or cookie",
            )
        else:
            holder = case if shown in ("old", "new") else None
            assert (reply.status != 403) is allowed(holder, "consume", topic, group)


@pytest.mark.parametrize(
    ("lines", "query", "passes"),
    [
        (["token: new", "cookie: token=wrong"], "token=wrong", True),
        (["token: wrong", "cookie: token=new"], "token=new", False),
        (["cookie: token=new"], "token=wrong", True),
        (["cookie: token=wrong"], "token=new", False),
        (["token: ", "cookie: token=new"], "", True),  # empty is none
        (["cookie: token=; token=new"], "", True),
        (["cookie: xtoken=new"], "", False),
        (["cookie: a=token=new"], "", False),
        (["cookie: Token=new"], "", False),  # cookies are case-sensitive
        ([], "cookie=token%3Dnew", False),  # a query is no cookie
        ([], "token=wrong&token=new", True),  # the last one, as with all parameters
        ([], "", False),
    ],
)
def test_the_first_place_decides(lines: list[str], query: str, passes: bool) -> None:
    client = world_of(CASES["a topic"]).connect()
    reply = client.request(http(f"/Orders?cmd=ping&{query}", *lines))
    assert (reply.status == 200) is passes, reply


def test_every_command_is_decided_on() -> None:
    """The column of the table is what is written out here, for a new command as well."""
    asked = {name: command.operation for name, command in COMMANDS.items()}
    expected = {name: NEEDS_OPERATION.get(name, "") for name in COMMANDS}
    assert asked == {**expected, **dict.fromkeys(FREE_FOR_ALL)}
    assert {operation for operation in asked.values() if operation} == set(OPERATIONS)
