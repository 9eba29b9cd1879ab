"""MQCloud's documented jQuery pages, in our words, from another origin and from the broker's own;
and the example, whose page and program serve the same tickets."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.hostile import Site, Witness
from tests.dialects.mqcloud.words import get
from tests.dialects.talks import post
from tests.examples.broker_process import ROOT, Program
from tests.process.broker import BrokerProcess
from tests.process.test_mqcloud import ProcessTalk

EXAMPLE = ROOT / "examples/mqcloud"

# What these pages use of jQuery: the same header fields, and the same way to write parameters.
AJAX = """
const $ = {
  ajax({type, url, data, success, error}) {
    const request = new XMLHttpRequest();
    const form = new URLSearchParams();
    for (const [name, value] of Object.entries(data)) form.append(name, value ?? "");
    request.open(type, type === "GET" ? `${url}?${form}` : url);
    request.setRequestHeader("Accept", "*/*");
    request.onerror = () => error(request, "error");
    request.onload = () => {
      if (request.status < 200 || request.status > 299) return error(request, "error");
      success(JSON.parse(request.responseText));
    };
    if (type === "GET") return request.send();
    request.setRequestHeader("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8");
    request.send(form.toString());
  },
};
const broker = new URLSearchParams(location.search).get("broker") ?? "";
const seen = {sent: [], refused: 0, taken: [], statuses: []};
"""

PRODUCING = """
const sending = {producer: "orders-producer"};

function httpProduce(text) {
  sending.message = text;
  $.ajax({
    type: "POST",
    url: broker + "/mq/produce",
    data: sending,
    success: (data) => data.status === 200 ? seen.sent.push(data.result.msgId) : httpProduce(text),
    error: () => {
      seen.refused += 1;
      setTimeout(() => httpProduce(text), 100);
    },
  });
}
"""

CONSUMING = """
function httpConsume(taking) {
  $.ajax({
    type: "GET",
    url: broker + "/mq/message",
    data: taking,
    success: (data) => {
      if (data.status === 200) {
        taking.requestId = data.result.requestId;
        seen.statuses.push(data.result.status);
        if (data.result.msgListSize > 0) {
          seen.taken.push(...data.result.msgList.map((one) => one.message));
        }
      }
      setTimeout(() => httpConsume(taking), 50);
    },
    error: () => {
      seen.refused += 1;
      setTimeout(() => httpConsume(taking), 100);
    },
  });
}
"""

HTML = "<!doctype html><link rel=icon href='data:,'><script src=main.js></script>"
JQUERY_LIKE = AJAX + PRODUCING + CONSUMING
TEXTS = ["hello, 你好 \U0001f680", "a=b&c=d+e%41"]

TAKE = {"topic": "orders", "consumer": "billing"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        script = {"content-type": "text/javascript; charset=utf-8"}
        started.pages["/main.js"] = (200, script, JQUERY_LIKE)
        yield started


def registered(broker: BrokerProcess) -> ProcessTalk:
    talk = ProcessTalk(broker)
    talk.begin(queues=3)
    talk.register(consumer="screens", consumeWay=1)
    return talk


def produce_and_consume(page: Page, *consumers: dict[str, str]) -> None:
    """Until all is there, and acknowledged by one more call."""
    for text in TEXTS:
        page.evaluate("text => httpProduce(text)", text)
    for taking in consumers:
        page.evaluate("taking => httpConsume(taking)", taking)
    page.wait_for_function(
        """count => seen.taken.length === count && seen.statuses.at(-1) === 'NO_NEW_MSG'""",
        arg=len(TEXTS) * len(consumers),
    )


def shown(page: Page) -> tuple[list[str], int]:
    """What was taken, and how often a request was refused."""
    taken, refused = page.evaluate("[seen.taken, seen.refused]")
    return sorted(taken), refused


@pytest.mark.parametrize("listed", ["http://127.0.0.1:{}", "*"])
def test_the_documented_page_of_another_origin(
    page: Page, site: Site, tmp_path: Path, listed: str
) -> None:
    option = f"cors_origins={listed.format(site.port)}"
    with BrokerProcess(tmp_path / "data", "--set", option) as broker:
        talk = registered(broker)
        url = f"http://127.0.0.1:{broker.port}"
        site.pages[f"/?broker={url}"] = (200, {}, HTML)
        page.goto(f"http://127.0.0.1:{site.port}/?broker={url}")
        produce_and_consume(page, TAKE)
        assert shown(page) == (sorted(TEXTS), 0)
        assert sum(talk.committed()) == len(TEXTS)


def test_clients_of_a_broadcast_in_a_page(page: Page, site: Site, tmp_path: Path) -> None:
    option = f"cors_origins=http://127.0.0.1:{site.port}"
    with BrokerProcess(tmp_path / "data", "--set", option) as broker:
        registered(broker)
        url = f"http://127.0.0.1:{broker.port}"
        site.pages[f"/?broker={url}"] = (200, {}, HTML)
        page.goto(f"http://127.0.0.1:{site.port}/?broker={url}")
        screens = {"topic": "orders", "consumer": "screens"}
        produce_and_consume(page, *({**screens, "clientId": f"10.0.0.{n}"} for n in (1, 2)))
        assert shown(page) == (sorted(TEXTS * 2), 0)


def test_the_same_page_is_refused_if_its_origin_is_not_listed(
    page: Page, site: Site, tmp_path: Path
) -> None:
    """Its requests come to the broker, have 403, and neither store nor lock anything."""
    option = f"cors_origins=http://app.test:{site.port}"
    with (
        BrokerProcess(tmp_path / "data", "--set", option) as broker,
        Witness(broker.port) as witness,
    ):
        talk = registered(broker)
        url = f"http://127.0.0.1:{witness.port}"
        site.pages[f"/?broker={url}"] = (200, {}, HTML)
        page.goto(f"http://127.0.0.1:{site.port}/?broker={url}")
        page.evaluate("httpProduce('from nowhere')")
        page.evaluate("taking => httpConsume(taking)", TAKE)
        page.wait_for_function("seen.refused >= 4")
        for path in ("/mq/produce", "/mq/message"):
            assert {one.status for one in witness.wait_for(path)} == {403}, path
        assert page.evaluate("[seen.sent, seen.taken, seen.statuses]") == [[], [], []]
        for queue in talk.offsets():
            assert queue["maxOffset"] == 0
            assert "lastConsumeTimestamp" not in queue
        talk.produce("from a program")  # and what is no page may


def test_a_page_of_the_brokers_own_with_a_cookie(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "index.html").write_text(HTML)
    (folder / "main.js").write_text(JQUERY_LIKE)
    with BrokerProcess(tmp_path / "data", "--set", f"pages={folder}") as broker:
        talk = registered(broker)
        page.goto(f"http://127.0.0.1:{broker.port}/_pages/")
        taking = {**TAKE, "useCookie": "true"}
        for text in TEXTS:
            page.evaluate("text => httpProduce(text)", text)
        page.wait_for_function("count => seen.sent.length === count", arg=len(TEXTS))
        # A consumer that never says which batch it had: its cookie does.
        page.evaluate(
            """async taking => {
              while (seen.statuses.at(-1) !== 'NO_NEW_MSG') {
                const reply = await fetch('/mq/message?' + new URLSearchParams(taking));
                const {result} = await reply.json();
                seen.statuses.push(result.status);
                seen.taken.push(...(result.msgList ?? []).map(one => one.message));
              }
            }""",
            taking,
        )
        assert shown(page) == (sorted(TEXTS), 0)
        assert sum(talk.committed()) == len(TEXTS)
        assert page.context.cookies() == [], "nothing is left to be acknowledged"


def test_the_page_of_the_example_and_a_program_share_tickets(page: Page, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", f"pages={EXAMPLE}") as broker:
        url = f"http://127.0.0.1:{broker.port}"
        page.goto(f"{url}/_pages/?pause=50")
        with Program("examples/mqcloud/counter.py", url, "0.05") as program:
            program.wait_for("the counter is open")
            wishes = [f"<b>stamp {number}</b>" for number in range(20)]
            for wish in wishes:
                page.fill("input", wish)
                page.click("button")
                expect(page.locator("input")).to_have_value("")  # it is stored
            wait_until_served(ProcessTalk(broker), len(wishes))
            here = page.locator("#served li").all_inner_texts()
            program.process.send_signal(signal.SIGINT)
            lines = program.finish().splitlines()
            there = [line.removeprefix("served: ") for line in lines if line.startswith("served: ")]
        assert sorted(here + there) == sorted(wishes), "each by one of them"
        assert here
        assert there


def wait_until_served(talk: ProcessTalk, count: int) -> None:
    """Everything, and whoever served it has said so."""
    done = 0
    while done < count:
        found = talk.ask(get("/mq/clustering/queue/offset", consumer="counters"))["result"]
        done = sum(queue["committedOffset"] for queue in found)


ONE_ROUND = """
const real = setTimeout;
let rounds = 0;
window.setTimeout = (run, ms) => { if (++rounds === 1) real(run, ms) };
"""


def test_a_page_that_is_closed_has_served_the_last_one(page: Page, tmp_path: Path) -> None:
    """It opens, takes one, and is closed before it asks for the next."""
    with BrokerProcess(tmp_path / "data", "--set", f"pages={EXAMPLE}") as broker:
        talk = ProcessTalk(broker)
        for who in ({"producer": "tickets-producer"}, {"consumer": "counters"}):
            assert talk.ask(post("/mq/register", topic="tickets", **who)) == {"status": 200}
        talk.ask(post("/mq/produce", producer="tickets-producer", message="a stamp"))
        page.add_init_script(ONE_ROUND)
        page.goto(f"http://127.0.0.1:{broker.port}/_pages/?pause=50")
        expect(page.locator("#served li")).to_have_text(["a stamp"])
        page.goto("about:blank")
        wait_until_served(talk, 1)
