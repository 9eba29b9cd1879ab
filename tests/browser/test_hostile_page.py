"""Pages of other sites, in a real browser, and everything they can have it send.

Each way must have reached the broker, have been refused, and have changed nothing; the same request
from a program is done, so nothing else was wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

from tests.browser.chromium import QUICK, WHOLE, launched
from tests.browser.hostile import REBINDING, Site, Witness
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess

POST_FORM = "<form method=post action='{url}'></form><script>document.forms[0].submit()</script>"
NO_REFERRER = "<meta name=referrer content=no-referrer>"
SPECULATION = (
    "<script type=speculationrules>"
    '{{"%s": [{{"urls": ["{url}"], "eagerness": "immediate"}}]}}</script>'
)
WORKER = "importScripts(`{url}`)"

REFUSED = {
    "img": "<img src='{url}'>",
    "script": "<script src='{url}'></script>",
    "script of a module": "<script type=module>import '{url}'</script>",
    "iframe": "<iframe src='{url}'></iframe>",
    "form GET": "<form action='{broker}/T'><input name=body value='{name}'></form>"
    "<script>document.forms[0].submit()</script>",
    "form POST": POST_FORM,
    "form POST from a sandbox": "<iframe sandbox='allow-scripts allow-forms' src='{site}/inner'>"
    "</iframe>",
    "form POST without referrer": NO_REFERRER + POST_FORM,
    "fetch GET": "<script>fetch('{url}', {{mode: 'no-cors'}})</script>",
    "fetch GET without referrer": NO_REFERRER
    + "<script>fetch('{url}', {{mode: 'no-cors', headers: {{accept: 'text/html'}}}})</script>",
    "fetch POST": "<script>fetch('{url}', {{mode: 'no-cors', method: 'POST'}})</script>",
    "fetch with CORS": "<script>fetch('{url}')</script>",
    "fetch PUT": "<script>fetch('{url}', {{method: 'PUT'}})</script>",
    "fetch with headers": "<script>fetch('{url}', {{headers: {{cmd: 'produce'}}}})</script>",
    "fetch kept alive": "<script>fetch('{url}', {{keepalive: true, mode: 'no-cors'}})</script>",
    "XMLHttpRequest": "<script>x = new XMLHttpRequest; x.open('POST', '{url}'); x.send()</script>",
    "WebSocket": "<script>new WebSocket('{url}'.replace('http', 'ws'))</script>",
    "EventSource": "<script>new EventSource('{url}')</script>",
    "sendBeacon": "<script>navigator.sendBeacon('{url}', '')</script>",
    "ping of a link": "<a id=a href='#' ping='{url}'>x</a><script>a.click()</script>",
    "favicon": "<link rel=icon href='{url}'>",
    "style sheet": "<link rel=stylesheet href='{url}'>",
    "background": "<style>body {{background: url({url})}}</style>x",
    "font": "<style>@font-face {{font-family: x; src: url({url})}}"
    " body {{font-family: x}}</style>x",
    "audio": "<audio autoplay src='{url}'></audio>",
    "video": "<video autoplay src='{url}'></video>",
    "object": "<object data='{url}'></object>",
    "embed": "<embed src='{url}'>",
    "SVG image": "<svg><image href='{url}'/></svg>",
    "meta refresh": "<meta http-equiv=refresh content='0;url={url}'>",
    "location": "<script>location = '{url}'</script>",
    "window.open": "<script>window.open('{url}')</script>",
    "link clicked": "<a id=a href='{url}'>x</a><script>a.click()</script>",
    "worker": '<script>new Worker(URL.createObjectURL(new Blob(["' + WORKER + '"])))</script>',
    "preload": "<link rel=preload as=image href='{url}'>",
    "redirect of an img": "<img src='{site}/go'>",
    "redirect chain": "<script>location = '{site}/twice'</script>",
    "redirect of a form": POST_FORM.replace("{url}", "{site}/go on"),
    "img without referrer": NO_REFERRER + "<img src='{url}'>",
}
AHEAD = {
    "link prefetch": "<link rel=prefetch href='{url}'>",
    "speculative prefetch": SPECULATION % "prefetch",
    "speculative prerender": SPECULATION % "prerender",
}
OPENED = {
    "iframe without referrer": NO_REFERRER + "<iframe src='{url}'></iframe>",
    "location without referrer": NO_REFERRER + "<script>location = '{url}'</script>",
    "window.open without referrer": NO_REFERRER + "<script>window.open('{url}')</script>",
}
"""Where the browser does not say who asks, these look like an address that was typed."""

WAYS = REFUSED | AHEAD | OPENED

SCENES = {
    "another site": ("evil.test", "127.0.0.1"),
    "another port": ("localhost", "localhost"),
    "plain http": ("evil.test", "broker.test"),  # no Sec-Fetch-* are sent there
}


def told(scene: str) -> list[str]:
    """The ways that can be told from an address that was typed, in this scene."""
    if scene != "plain http":
        return list(WAYS)
    return [*REFUSED, "link prefetch"]  # other prefetching needs https or this machine


def name_of(scene: str, way: str) -> str:
    return f"{scene}-{way}".replace(" ", "-").replace(".", "-")


TELLING = {"img", "form POST", "fetch GET", "fetch with CORS", "WebSocket", "link prefetch"}
"""Of another port, which is the same site, without `make check`."""

CASES = [
    pytest.param(
        scene,
        way,
        id=name_of(scene, way),
        marks=[pytest.mark.check] if scene == "another port" and way not in TELLING else [],
    )
    for scene in SCENES
    for way in told(scene)
]


class Stage:
    """A broker with a witness before it, and a hostile site."""

    def __init__(self, broker: BrokerProcess, witness: Witness, site: Site) -> None:
        self.broker = broker
        self.witness = witness
        self.site = site

    def depth(self) -> int:
        depth = json.loads(self.broker.get("/T?cmd=query").body)["messageDepth"]
        assert isinstance(depth, int)
        return depth

    def url(self, scene: str, name: str) -> str:
        return f"http://{SCENES[scene][1]}:{self.witness.port}/T?body={name}"

    def page(self, scene: str, way: str, name: str) -> str:
        """Write the page; its address."""
        own, broker = (f"http://{host}:{port}" for host, port in self._places(scene))
        url = self.url(scene, name)
        words = {"url": url, "broker": broker, "site": f"{own}/{name}", "name": name}
        icon = "" if way == "favicon" else "<link rel=icon href='data:,'>"
        pages = self.site.pages
        pages[f"/{name}"] = (200, {}, f"<!doctype html>{icon}{WAYS[way].format(**words)}")
        pages[f"/{name}/inner"] = (200, {}, POST_FORM.format(**words))
        pages[f"/{name}/go"] = (302, {"location": url}, "")
        pages[f"/{name}/go%20on"] = (307, {"location": url}, "")
        pages[f"/{name}/twice"] = (302, {"location": f"{own}/{name}/go"}, "")
        return f"{own}/{name}"

    def _places(self, scene: str) -> list[tuple[str, int]]:
        hosts = SCENES[scene]
        return [(hosts[0], self.site.port), (hosts[1], self.witness.port)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with (
        BrokerProcess(data, "--set", "allowed_hosts=broker.test") as broker,
        Witness(broker.port) as witness,
        Site() as site,
    ):
        assert broker.get("/T?cmd=declare").status == 200
        yield Stage(broker, witness, site)


Contexts = dict[tuple[str, ...], BrowserContext]


@pytest.fixture(scope="module")
def contexts() -> Iterator[Contexts]:
    """One for all ways: a new one takes longer than a way."""
    made: Contexts = {names: launched(names).new_context() for names in (QUICK, WHOLE)}
    yield made
    for context in made.values():
        context.close()


LEAVING = re.compile("form|location|redirect|refresh|click")
"""In the names of ways on which a page ends: the quick one may not end on the way to another."""


@pytest.fixture
def page(contexts: Contexts, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The one before if it can be had: a new one takes most of the time of all this. Of what people
    use for all ways of another site; of the quick one, which fetches no icons, for most others."""
    asked = request.node.name
    leaves = LEAVING.search(asked)
    whole = leaves or "another-site" in asked or "favicon" in asked
    context = contexts[WHOLE if whole else QUICK]
    context.set_default_timeout(WAIT_S * 1_000)
    page = next(iter(context.pages), None) or context.new_page()
    yield page
    for opened in context.pages[1:]:
        opened.close()
    if leaves:
        try:
            page.goto("about:blank")
        except Error:  # it is under way to another place
            page.close()


@pytest.mark.parametrize(("scene", "way"), CASES)
def test_nothing_changes(page: Page, stage: Stage, scene: str, way: str) -> None:
    name = name_of(scene, way)
    before = stage.depth()
    page.goto(stage.page(scene, way, name), wait_until="commit")
    arrived = stage.witness.wait_for(name)
    assert arrived, "nothing was sent"
    assert {seen.status for seen in arrived} == {425 if way in AHEAD else 403}
    assert stage.depth() == before

    method, target, _ = arrived[0].line.split(" ")
    method = "GET" if method == "OPTIONS" else method  # what it would have asked for next
    wire = stage.broker.connect()
    wire.send(f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert wire.read().status == 200
    assert stage.depth() == before + 1


@pytest.mark.parametrize("way", OPENED)
def test_what_plain_http_does_not_tell(page: Page, stage: Stage, way: str) -> None:
    """Documented, and what `browser_get` is for."""
    name = name_of("plain http", way)
    before = stage.depth()
    page.goto(stage.page("plain http", way, name), wait_until="commit")
    (arrived,) = stage.witness.wait_for(name)
    assert arrived.status == 200
    assert not arrived.field("sec-fetch-site")
    assert not arrived.field("referer")
    assert stage.depth() == before + 1


REBOUND = {
    "fetch": "await fetch('{path}').then(r => r.text())",
    "POST": "await fetch('{path}', {{method: 'POST', body: 'x'}}).then(r => r.text())",
    "multiplexed": "await fetch('{path}', {{headers: {{cmd: 'produce', topic: 'T'}}}})"
    ".then(r => r.text())",
    # As little as a script can have a browser say of itself, and as much of a message.
    "disguised": "await fetch('{path}', {{referrerPolicy: 'no-referrer', headers: {{cmd: 'produce',"
    " topic: 'T', 'user-agent': 'curl', accept: '', 'accept-encoding': '', 'accept-language': '',"
    " 'content-length': '5', host: 'localhost'}}}}).then(r => r.text())",
    "disguised HEAD": "await fetch('{path}', {{method: 'HEAD', referrerPolicy: 'no-referrer',"
    " headers: {{cmd: 'produce', topic: 'T'}}}}).then(r => r.status + ': ')",
    "disguised PUT": "await fetch('{path}', {{method: 'PUT', referrerPolicy: 'no-referrer',"
    " body: 'x', headers: {{cmd: 'produce', topic: 'T', 'accept-encoding': ''}}}})"
    ".then(r => r.text())",
    "XMLHttpRequest": "await new Promise(done => {{ const asks = new XMLHttpRequest();"
    " asks.open('GET', '{path}'); asks.setRequestHeader('cmd', 'produce');"
    " asks.setRequestHeader('topic', 'T'); asks.setRequestHeader('accept-encoding', 'x');"
    " asks.onloadend = () => done(asks.responseText); asks.send('a body') }})",
    "WebSocket": "await new Promise(done => {{"
    " new WebSocket('ws://' + location.host + '{path}').onerror = () => done('421: no') }})",
    "EventSource": "await new Promise(done => {{"
    " new EventSource('{path}').onerror = () => done('421: no') }})",
}


@pytest.mark.parametrize("way", REBOUND)
def test_a_name_that_is_rebound_to_the_broker(page: Page, stage: Stage, way: str) -> None:
    """The page's own origin leads to the broker all of a sudden: every request is same-origin."""
    name = f"rebound-{way}".replace(" ", "-")
    before = stage.depth()
    page.goto(f"http://rebound.test:{stage.witness.port}{REBINDING.decode()}")
    script = REBOUND[way].format(path=f"/T?body={name}")
    assert page.evaluate(f"async () => {script}").startswith("421: ")
    assert {seen.status for seen in stage.witness.wait_for(name)} == {421}
    assert stage.depth() == before


def test_a_page_cannot_read_either(page: Page, stage: Stage) -> None:
    broker = f"http://127.0.0.1:{stage.witness.port}"
    own = stage.page("another site", "img", "reader")
    page.goto(own)
    for script in (
        f"fetch('{broker}/?cmd=server').then(r => r.text(), () => 'refused')",
        "new Promise(done => { i = new Image; i.onload = () => done('shown');"
        f" i.onerror = () => done('refused'); i.src = '{broker}/favicon.ico' }})",
        "new Promise(done => { s = document.createElement('script');"
        " s.onload = () => done('run'); s.onerror = () => done('refused');"
        f" s.src = '{broker}/?cmd=server'; document.body.append(s) }})",
    ):
        assert page.evaluate(script) == "refused"


def test_a_typed_address_that_leads_elsewhere(browser: Browser, stage: Stage) -> None:
    """Not covered, and documented: who opens a link of a mail or chat opens what it leads to."""
    name = "typed-and-led"
    own = stage.page("another site", "img", name)
    context = browser.new_context()
    answer = context.new_page().goto(f"{own}/go")
    context.close()
    assert answer is not None
    assert answer.status == 200
    (seen,) = stage.witness.wait_for(name)
    assert seen.field("sec-fetch-site") == "none"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The same with `browser_get` off."""
    data = tmp_path_factory.mktemp("broker") / "data"
    options = ("--set", "allowed_hosts=broker.test", "--set", "browser_get=off")
    with BrokerProcess(data, *options) as broker, Witness(broker.port) as witness, Site() as site:
        assert broker.get("/T?cmd=declare").status == 200
        yield Stage(broker, witness, site)


@pytest.mark.parametrize("way", OPENED)
def test_nothing_is_left_with_browser_get_off(page: Page, closed: Stage, way: str) -> None:
    name = name_of("plain http", way)
    page.goto(closed.page("plain http", way, name), wait_until="commit")
    (arrived,) = closed.witness.wait_for(name)
    assert (arrived.status, closed.depth()) == (403, 0)


def test_typed_addresses_only_look_with_browser_get_off(page: Page, closed: Stage) -> None:
    for url in (closed.url("another site", "typed"), closed.url("plain http", "typed")):
        answer = page.goto(url)
        assert answer is not None
        assert (answer.status, "browser_get" in page.inner_text("body")) == (403, True)
        answer = page.goto(url.replace("body=typed", "cmd=query"))
        assert answer is not None
        assert answer.status == 200
    assert closed.depth() == 0
