"""`metrics` and `health`: what a monitoring system reads."""

from __future__ import annotations

import json
import random
import re
from base64 import b64encode
from typing import Any

import attrs
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.conformance.dialogue import Client, World, cmd, declared, document, http, ok, pull, put
from tests.conformance.test_access_matrix import digest
from tests.docs.metrics_table import PAGE, with_table
from tests.docs.pages import ROOT
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.histogram import Histogram
from zbus.dialects.zbus.documents.metrics import FAMILIES
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Access, Entry, make_grant
from zbus.edge.guard import GuardSettings
from zbus.testing.world import Reply

MONITORING = ROOT / "examples/monitoring"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(client: Client, *lines: str) -> Samples:
    reply = ok(client, http("/_metrics", *lines))
    found: Samples = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def of(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def topics_of(found: Samples) -> set[str]:
    return {dict(labels)["topic"] for name, labels in found if name == "zbus_topic_messages_total"}


def later(world: World) -> None:
    """The text of before is not good any more."""
    world.advance(1_000)


def test_the_text() -> None:
    world, client = declared("T", "T/g?group_mask=64")
    put(client, "T", b"0", b"1", b"2")
    pull(client, "T/g")
    reply = ok(client, http("/_metrics"))
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert reply.headers["content-type"] == kind
    assert reply.body.endswith(b"\n# EOF\n")
    found = scraped(client)
    assert of(found, "zbus_topic_messages_total", topic="T") == 3
    assert of(found, "zbus_group_ready_messages", topic="T", group="g") == 2
    assert of(found, "zbus_group_leased_messages", topic="T", group="g") == 1
    assert of(found, "zbus_build_info", version="0") == 1
    put(client, "T", b"3")
    assert scraped(client) == found, "a text is good for a second"
    later(world)
    assert of(scraped(client), "zbus_topic_messages_total", topic="T") == 4
    assert ok(client, http("/?cmd=metrics")).body.endswith(b"# EOF\n")


def test_lateness_of_delayed_messages() -> None:
    world, client = declared("T", "T/g")
    put(client, "T", b"0", b"1", query="delay=5000")
    assert pull(client, "T/g").status == 204
    world.advance(5_000)
    found = scraped(client)
    assert of(found, "zbus_delivery_lateness_seconds_count") == 2
    assert of(found, "zbus_delivery_lateness_seconds_bucket", le="0.001") == 2


@pytest.mark.parametrize(
    "name", ['a"b', "new line", "{}", "ümläut", "a,b=c", "# EOF", "$x", "é" * 100]
)
def test_names_of_any_kind(name: str) -> None:
    world = World()
    client = world.connect()
    assert client.request(cmd("declare", f"topic: {name}", "id: 1")).status == 200
    assert topics_of(scraped(client)) == {name}


def test_series_are_bounded() -> None:
    world = World(settings=ZbusSettings(metrics_topics_max=3))
    client = world.connect()
    for number in range(10):
        ok(client, http(f"/T{number}/g?cmd=declare"))
        put(client, f"T{number}", *[b"x"] * number)
    ok(client, http("/other/g?cmd=declare"))
    put(client, "other", b"x")
    ok(client, http("/T0x?cmd=declare"))
    put(client, "T0x", b"x")  # whose group nobody has asked for, so it is not late
    found = scraped(client)
    assert topics_of(found) == {"T0", "T1", "T2", "other"}
    assert of(found, "zbus_topic_messages_total", topic="other") == sum(range(3, 10)) + 2
    total = sum(value for (name, _), value in found.items() if name == "zbus_group_ready_messages")
    assert total == sum(range(10)) + 1


def test_an_open_stream_does_not_change_which_series_there_are() -> None:
    """It remembers what has changed last; the limit does not go by that."""
    world = World(settings=ZbusSettings(metrics_topics_max=2))
    client, reader = world.connect(), world.connect()
    for name in ("busy", "b", "c", "d"):
        ok(client, http(f"/{name}/g?cmd=declare"))
    reader.send(http("/_stats", "accept: text/event-stream"))
    told = []
    for _ in range(3):
        put(client, "busy", b"x")
        later(world)
        told.append(scraped(client))
    assert [topics_of(found) for found in told] == [{"busy", "b", "other"}] * 3
    for name in ("busy", "other"):
        counts = [of(found, "zbus_topic_messages_total", topic=name) for found in told]
        assert counts == ([1, 2, 3] if name == "busy" else [0, 0, 0])


class Ledger:
    """What clients have done with one topic and its group, by offset."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.waiting: set[int] = set()
        self.leased: set[int] = set()
        self.done: set[int] = set()

    def put(self, count: int, query: str = "") -> None:
        for _ in range(count):
            put(self.client, self.name, b"x", query=query)
            self.waiting.add(len(self.waiting | self.leased | self.done))

    def pull(self) -> int | None:
        reply = pull(self.client, f"{self.name}/g")
        if reply.status != 200:
            return None
        offset = int(reply.headers["offset"])
        self.waiting.remove(offset)
        self.leased.add(offset)
        return offset

    def ack(self) -> None:
        if (offset := self.pull()) is not None:
            ok(self.client, http(f"/{self.name}/g?cmd=ack&offset={offset}"))
            self.leased.remove(offset)
            self.done.add(offset)

    def empty(self) -> None:
        ok(self.client, http(f"/{self.name}/g?cmd=empty&keep_leased=true"))
        self.done |= self.waiting
        self.waiting.clear()

    def listed(self, state: str) -> set[int]:
        path = f"/{self.name}/g?cmd=peek&state={state}&count=1000"
        return {row["offset"] for row in document(ok(self.client, http(path)))}

    def stored(self) -> int:
        """By reading the log from its beginning."""
        path = f"/{self.name}?cmd=read&offset=0&count=1000"
        return len(ok(self.client, http(path, "accept: application/x-ndjson")).body.splitlines())


def test_figures_equal_a_recount() -> None:
    """What is told is what clients did, and what they find when they look at each message."""
    chance = random.Random(2)
    _, client = declared(*[f"T{number}/g?group_mask=64" for number in range(3)])
    ledgers = [Ledger(client, f"T{number}") for number in range(3)]
    for _ in range(120):
        ledger = chance.choice(ledgers)
        match chance.choice(("put", "put", "put", "pull", "pull", "delay", "ack", "ack")):
            case "put":
                ledger.put(chance.randrange(1, 4))
            case "delay":
                ledger.put(1, "delay=600000")
            case "pull":
                ledger.pull()
            case "ack":
                ledger.ack() if chance.randrange(8) else ledger.empty()
    found = scraped(client)
    for ledger in ledgers:
        name, labels = ledger.name, {"topic": ledger.name, "group": "g"}
        waiting, leased, done = len(ledger.waiting), len(ledger.leased), len(ledger.done)
        count = waiting + leased + done
        assert of(found, "zbus_topic_messages_total", topic=name) == count
        assert of(found, "zbus_topic_stored_messages", topic=name) == ledger.stored() == count
        assert ledger.listed("leased") == ledger.leased
        assert ledger.listed("ready") | ledger.listed("delayed") == ledger.waiting
        assert of(found, "zbus_group_leased_messages", **labels) == leased
        assert of(found, "zbus_group_passed_messages_total", **labels) == leased + done
        ready = of(found, "zbus_group_ready_messages", **labels)
        delayed = of(found, "zbus_group_delayed_messages", **labels)
        assert ready + delayed == waiting
        # The group has not come to the rest, and does not know yet that it is delayed.
        assert ready >= len(ledger.listed("ready"))
    assert all(ledger.leased and ledger.done for ledger in ledgers)
    assert any(ledger.listed("ready") for ledger in ledgers)
    assert any(ledger.listed("delayed") for ledger in ledgers)


def test_tokens_see_their_part() -> None:
    grants = {
        "all": make_grant("all", ["server"], {"*": []}),
        "some": make_grant("some", ["server"], {"Orders": ["billing"]}),
        "none": make_grant("none", ["consume"], {"*": []}),
        "admin": make_grant("admin", ["admin"], {}),
    }
    world = World(access=Access([Entry(g, (digest(name),)) for name, g in grants.items()]))
    client = world.connect()
    for path in ("Orders", "Orders/billing", "Orders/audit", "Other"):
        ok(client, http(f"/{path}?cmd=declare", "token: admin"))
    assert topics_of(scraped(client, "authorization: Bearer all")) == {"Orders", "Other"}
    basic = f"authorization: Basic {b64encode(b'prometheus:all').decode()}"
    assert topics_of(scraped(client, basic)) == {"Orders", "Other"}
    found = scraped(client, "token: some")
    assert topics_of(found) == {"Orders"}
    groups = {dict(labels).get("group") for name, labels in found}
    assert groups == {None, "billing"}
    assert ("zbus_connections", frozenset()) not in found
    assert client.request(http("/_metrics", "token: none")).status == 403
    assert client.request(http("/_health/ready")).status == 200


def test_the_page_has_every_metric() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text


@pytest.mark.parametrize("name", ["alerts.yml", "trial.yml", "dashboard.json"])
def test_alarms_and_dashboard_ask_for_what_there_is(name: str) -> None:
    text = (MONITORING / name).read_text(encoding="utf-8")
    there = set()
    for family in FAMILIES:
        suffixes = {"counter": ["_total"], "info": ["_info"], "gauge": [""]}.get(
            family.kind, ["_bucket", "_count", "_sum"]
        )
        there |= {family.name + suffix for suffix in suffixes}
    asked = set(re.findall(r"\b(?:zbus|process)_[a-z_]+\b", text))
    assert asked
    assert asked <= there


def test_the_dashboard_can_be_imported() -> None:
    """What Grafana's model of a dashboard requires."""
    found = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= found.keys()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in found["panels"]:
        assert {"type", "title", "gridPos", "datasource", "fieldConfig", "targets"} <= panel.keys()
        assert set(panel["gridPos"]) == {"x", "y", "w", "h"}
        assert all({"refId", "expr", "datasource"} <= each.keys() for each in panel["targets"])


def test_the_dashboard_is_of_grafanas_own_model() -> None:
    """Read and written by Grafana's types, it loses nothing: what they do not know they drop."""
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    model = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    text = (MONITORING / "dashboard.json").read_text(encoding="utf-8")
    given = json.loads(text)
    made = json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(given)))
    assert kept(given, made) == given
    wrong = json.loads(text.replace('"gridPos"', '"gridPose"', 1))
    made = json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(wrong)))
    assert kept(wrong, made) != wrong


def kept(given: Any, made: Any) -> Any:
    """What of a document another one has, too."""
    if isinstance(given, dict) and isinstance(made, dict):
        return {name: kept(given[name], made[name]) for name in given.keys() & made.keys()}
    if isinstance(given, list) and isinstance(made, list):
        return [kept(*pair) for pair in zip(given, made, strict=False)]
    return made


RULE = {"alert": str, "expr": str, "labels": dict, "annotations": dict}


@pytest.mark.parametrize("name", ["alerts.yml", "trial.yml"])
def test_alarms_have_the_form_of_rules(name: str) -> None:
    """That of Prometheus' documentation: no other fields, durations and names as it has them, and
    brackets that close. (What the expressions say, `promtool check rules` knows.)"""
    [group] = yaml.safe_load((MONITORING / name).read_text(encoding="utf-8"))["groups"]
    assert group.keys() == {"name", "rules"}
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert rule.keys() - {"for"} == RULE.keys()
        assert all(isinstance(rule[field], kind) for field, kind in RULE.items())
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary"}
        for text in (rule["expr"], *rule["annotations"].values()):
            assert all(text.count(one) == text.count(other) for one, other in ("()", "[]", "{}"))
        assert all(
            range in ("1h", "10m", "5m", "1m") for range in re.findall(r"\[(\w+)\]", rule["expr"])
        )


def test_alarms_of_the_page_are_those_of_the_file() -> None:
    page = (ROOT / "docs/howto/monitor.md").read_text(encoding="utf-8")
    rules = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Zbus\w+)`", page, re.MULTILINE) == re.findall(r"alert: (\w+)", rules)


# -- health -----------------------------------------------------------------------------------


def health(client: Client, check: str = "ready") -> tuple[int, list[str]]:
    reply: Reply = client.request(http(f"/_health/{check}"))
    found = json.loads(reply.body)
    assert found["status"] == ("ok" if reply.status == 200 else "failing")
    return reply.status, found["reasons"]


def test_ready_and_not() -> None:
    world, client = declared("T")
    assert health(client) == health(client, "live") == (200, [])
    puts = world.broker._puts
    puts.refusing = BrokerError(Refusal.FULL, "the disk has 3 MiB free")
    assert health(client) == (503, ["the disk has 3 MiB free"])
    assert health(client, "live") == (200, [])
    puts.refusing = None
    world.broker.stop()
    world.settle()
    assert health(client) == (503, ["the broker is stopping"])
    assert health(client, "live") == (200, [])


@pytest.mark.parametrize(
    ("path", "lines", "status"),
    [
        ("/_health/live", (), 200),
        ("/_health/ready", (), 200),
        ("/?cmd=health", (), 200),
        ("/_health/other", (), 404),
        ("/_health/live?cmd=remove&topic=T", (), 421),
        ("/_health/live", ("cmd: remove", "topic: T", "accept-encoding: gzip"), 421),
        ("/_metrics", (), 421),
        ("/_stats", (), 421),
    ],
)
def test_health_is_told_whatever_the_broker_is_called(
    path: str, lines: tuple[str, ...], status: int
) -> None:
    """A supervisor knows names of its own; what changes or tells something is not for those."""
    world = World(guard=GuardSettings())
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    request = http(path, *lines).replace(b"host: localhost", b"host: broker:15555")
    assert client.request(request).status == status
    assert "t" in world.broker.topics


@pytest.mark.parametrize("path", ["/_health/", "/_health/x", "/_health/ready%00", "/_health/Ready"])
def test_other_checks_are_refused(path: str) -> None:
    _, client = declared("T")
    wanted = 200 if path == "/_health/" else 404
    assert client.request(http(path)).status == wanted
    assert client.request(http("/_health/ready", method="DELETE")).status in (200, 405)


# -- histograms -------------------------------------------------------------------------------


@attrs.frozen
class Observed:
    values: tuple[float, ...]
    counts: tuple[int, ...]


@pytest.mark.parametrize(
    "case",
    [
        Observed((), (0, 0, 0)),
        Observed((0.0, 1.0), (2, 0, 0)),
        Observed((1.000001, 5.0), (0, 2, 0)),
        Observed((5.1, 1e9), (0, 0, 2)),
    ],
)
def test_a_histogram(case: Observed) -> None:
    histogram = Histogram((1.0, 5.0))
    for value in case.values:
        histogram.observe(value)
    assert tuple(histogram.counts) == case.counts
    assert histogram.total == sum(case.values)


def test_a_histogram_of_late() -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.observe(0.5, 1_000)
    before = histogram.counts[:]
    histogram.observe(3.0)
    lately = histogram.since(before)
    assert lately.counts == [0, 1, 0]
    assert (histogram.quantile(0.5), lately.quantile(0.5)) == (1.0, 5.0)
