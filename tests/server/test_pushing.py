"""The consumer that serves webhooks, under virtual time, with a courier that does nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.dialogue import Client, World, document, http, ok, put
from zbus.server.push.pushing import OPEN_BYTES_MAX, PROBE_MS_MAX, STREAK, Pushing, Told
from zbus.server.push.request import Attempt, Reply, lines_of, reply_of, signature

URL = "https://example.com/hook"
TAKEN, FAILED, GONE = Reply(), Reply("it replied 500"), reply_of(410, b"", 0)


class Courier:
    """Keeps what it is to send."""

    def __init__(self) -> None:
        self.open: list[Attempt] = []
        self.closed = False

    def send(self, attempt: Attempt) -> None:
        self.open.append(attempt)

    def close(self) -> None:
        self.closed = True


class Hooked:
    """A world whose webhooks are sent by hand."""

    def __init__(self, world: World | None = None, connections_max: int = 256) -> None:
        self.world = world or World()
        self.client: Client = self.world.connect()
        self.courier = Courier()
        self.told: Told
        self.pushing = Pushing(
            self.world.broker, self.world.posted.append, self._made, connections_max
        )

    def _made(self, told: Told) -> Courier:
        self.told = told
        return self.courier

    def declare(self, words: str = "", group: str = "T/g") -> Any:
        line = f"push_url: {URL}"
        return document(ok(self.client, http(f"/{group}?cmd=declare&{words}", line)))

    def look(self) -> list[bytes]:
        """A second passes; what is to be sent by now."""
        self.world.advance(1_000)
        self.world.posted.append(self.pushing.look)
        self.world.settle()
        return [attempt.body for attempt in self.courier.open]

    def end(self, reply: Reply = TAKEN, at: int = 0) -> bytes:
        """The endpoint replies to one of them."""
        attempt = self.courier.open.pop(at)
        self.told(attempt, reply)
        self.world.settle()
        self.world.broker.check()
        return attempt.body

    def push(self) -> Any:
        return self.info()["push"]

    def info(self, group: str = "T/g") -> Any:
        return document(ok(self.client, http(f"/{group}?cmd=query")))


def hooked(words: str = "", *bodies: bytes) -> Hooked:
    found = Hooked()
    found.declare(words)
    put(found.client, "T", *bodies)
    return found


def test_sent_and_acknowledged() -> None:
    hook = hooked("push_concurrency=2", b"a", b"b", b"c")
    assert hook.look() == [b"a", b"b"], "no more at once than it says"
    assert hook.info()["leasedCount"] == 2
    assert hook.end(at=1) == b"b"
    assert [attempt.body for attempt in hook.courier.open] == [b"a", b"c"]
    hook.end()
    hook.end()
    info = hook.info()
    assert (info["messageCount"], info["leasedCount"]) == (0, 0)
    assert (info["push"]["delivered"], info["push"]["failed"]) == (3, 0)
    put(hook.client, "T", b"d")
    assert hook.courier.open[0].body == b"d", "at once: pulls wait for it"


def test_pauses_between_attempts() -> None:
    hook = hooked("", b"a")
    hook.look()
    for pause_ms in (1_000, 2_000, 4_000):
        hook.end(FAILED)
        assert hook.info()["delayedCount"] == 1
        hook.world.advance(pause_ms - 1)
        assert not hook.courier.open
        hook.world.advance(1)
        assert [attempt.body for attempt in hook.courier.open] == [b"a"]
    assert hook.courier.open[0].attempts == 4
    assert hook.push()["error"] == "it replied 500"
    hook.end()
    assert "error" not in hook.push()


def test_the_group_says_how_long_and_how_often() -> None:
    hook = Hooked()
    ok(hook.client, http("/dead?cmd=declare"))
    hook.declare("group_max_attempts=2&group_backoff=50&group_dead_letter=dead")
    put(hook.client, "T", b"a", b"b")
    hook.look()
    hook.end(FAILED)
    hook.world.advance(50)
    assert [a.body for a in hook.courier.open] == [b"b", b"a"]
    hook.end(FAILED, at=1)
    hook.end()
    info = hook.info()
    assert (info["deadCount"], info["messageCount"], info["delayedCount"]) == (1, 0, 0)
    dead = ok(hook.client, http("/dead?cmd=consume&timeout=0"))
    assert (dead.body, dead.headers["dead_attempts"]) == (b"a", "2")


def test_an_endpoint_asks_to_be_left_alone() -> None:
    hook = hooked("", b"a")
    hook.look()
    hook.end(reply_of(503, b"20", 0))
    hook.world.advance(19_999)
    assert not hook.courier.open
    hook.world.advance(1)
    assert hook.courier.open


def test_an_outage() -> None:
    """After some failures in a row one message is tried at a time, after longer and longer pauses,
    so an outage uses up few attempts."""
    hook = hooked("push_concurrency=5&group_backoff=1", *[b"%d" % n for n in range(50)])
    hook.look()
    while hook.courier.open:
        hook.end(FAILED)
    failed = hook.push()["failed"]
    assert STREAK <= failed <= 2 * 5
    requests = []
    for second in range(120):
        if hook.look():
            assert len(hook.courier.open) == 1
            requests.append(second)
            hook.end(FAILED)
            assert not hook.courier.open
    gaps = [b - a for a, b in pairwise(requests)]
    assert gaps[0] <= 3
    assert gaps[-1] in (PROBE_MS_MAX // 1_000, PROBE_MS_MAX // 1_000 + 1)
    warning = document(ok(hook.client, http("/?cmd=stats")))["warnings"][0]
    assert warning["kind"] == "webhook"
    assert "is sent to example.com, which has failed for 2 minutes: it replied" in warning["text"]
    told = hook.client.request(http("/_metrics")).body.decode()
    line = 'zbus_group_webhook_failed_requests_total{topic="T",group="g"}'
    assert f"{line} {hook.push()['failed']}\n" in told
    while not hook.look():
        pass
    hook.end()
    assert len(hook.courier.open) == 5, "it goes on at once, as fast as before"


def gone_after_two() -> Hooked:
    """Two messages are under way, one of them for the only time that it may be; the endpoint says
    that it is gone, of the first."""
    hook = Hooked()
    ok(hook.client, http("/dead?cmd=declare"))
    hook.declare("push_concurrency=2&group_max_attempts=1&group_dead_letter=dead")
    put(hook.client, "T", b"a", b"b", b"c")
    assert hook.look() == [b"a", b"b"]
    hook.end(GONE)
    return hook


def test_an_endpoint_that_is_gone() -> None:
    """The group is paused, which outlives the broker; no message is lost, dead, or sent again."""
    hook = gone_after_two()
    hook.end(GONE)
    info = hook.info()
    assert (info["paused"], info["messageCount"], info["deadCount"]) == (True, 3, 0)
    for _ in range(60):
        assert hook.look() == []
    warning = document(ok(hook.client, http("/?cmd=stats")))["warnings"][0]
    assert (warning["kind"], warning["group"]) == ("webhook", "g")
    assert "paused, because its webhook at example.com replied 410 Gone; 3 mess" in warning["text"]
    hook = Hooked(World(hook.world.journal, now_ms=hook.world.now_ms))
    assert hook.info()["paused"]
    assert hook.look() == []
    ok(hook.client, http("/T/g?cmd=resume"))
    assert [a.body for a in hook.courier.open] == [b"a", b"b"]
    assert {a.attempts for a in hook.courier.open} == {1}, "it was no attempt"


def test_what_else_is_under_way_counts_when_an_endpoint_is_gone() -> None:
    hook = gone_after_two()
    hook.end()
    info = hook.info()
    assert (info["paused"], info["messageCount"], info["leasedCount"]) == (True, 2, 0)
    assert "replied 410" in document(ok(hook.client, http("/?cmd=stats")))["warnings"][0]["text"]
    ok(hook.client, http("/T/g?cmd=resume"))
    assert hook.end(GONE) == b"a", "and is paused again"
    assert hook.end(GONE) == b"c"
    assert hook.info()["paused"]
    assert hook.info()["deadCount"] == 0


@pytest.mark.parametrize("word", ["push_url=none", "push_url=https://example.com/new"])
def test_the_endpoint_of_before_is_gone(word: str) -> None:
    hook = hooked("push_concurrency=1", b"a", b"b")
    hook.look()
    ok(hook.client, http(f"/T/g?cmd=declare&{word}"))
    hook.end(GONE)
    info = hook.info()
    kept = info["messageCount"] + info["delayedCount"] + info["leasedCount"]
    assert (info["paused"], kept) == (False, 2)


def test_a_gone_endpoint_does_not_take_back_what_another_has() -> None:
    """The lease of the request has ended, and a consumer has the message."""
    hook = hooked("push_concurrency=1&push_timeout=1s", b"a")
    hook.look()
    ok(hook.client, http("/T/g?cmd=pause"))
    hook.world.advance(12_000)
    ok(hook.client, http("/T/g?cmd=declare&push_url=none"))
    ok(hook.client, http("/T/g?cmd=resume"))
    assert ok(hook.client, http("/T/g?cmd=consume&timeout=0")).body == b"a"
    hook.declare()
    hook.end(GONE)
    assert hook.info()["leasedCount"] == 1


def test_order_per_key() -> None:
    hook = Hooked()
    hook.declare("group_order=key")
    for key, body in ((b"k", b"1"), (b"k", b"2"), (b"l", b"3")):
        ok(hook.client, http(f"/T?key={key.decode()}", body=body, method="POST"))
    assert hook.look() == [b"1", b"3"]
    hook.end(FAILED)
    assert [a.body for a in hook.courier.open] == [b"3"], "2 waits for 1"
    hook.world.advance(1_000)
    hook.end(at=1)
    assert [a.body for a in hook.courier.open] == [b"3", b"2"]


def test_options_change() -> None:
    hook = hooked("push_concurrency=1", b"a", b"b", b"c", b"d")
    hook.look()
    line = "push_url: https://example.com/other"
    ok(hook.client, http("/T/g?cmd=declare", line))
    hook.end()
    assert hook.courier.open[0].push.endpoint == "https://example.com/other"
    ok(hook.client, http("/T/g?cmd=declare&push_url=none"))
    hook.look()
    hook.end()
    assert not hook.courier.open
    assert hook.info()["consumerCount"] == 0
    assert hook.info()["messageCount"] == 2, "what was under way counted"
    assert ok(hook.client, http("/T/g?cmd=consume&timeout=0")).body == b"c", "as any group"


def test_ended_and_begun_again() -> None:
    """Requests of before do not count as those of now."""
    hook = hooked("push_concurrency=2", *[b"%d" % n for n in range(9)])
    hook.look()
    for _ in range(3):
        ok(hook.client, http("/T/g?cmd=declare&push_url=none"))
        hook.look()
        hook.declare("push_concurrency=2")
        hook.look()
    before = len(hook.courier.open) - 2
    for _ in range(before):
        hook.end()
    assert len(hook.courier.open) == 2


@pytest.mark.parametrize("target", ["/T/g?cmd=remove", "/T?cmd=remove"])
def test_it_is_removed_meanwhile(target: str) -> None:
    hook = hooked("", b"a", b"b")
    hook.look()
    ok(hook.client, http(target))
    hook.end()
    hook.end(FAILED)
    assert hook.look() == []
    hook.declare()
    put(hook.client, "T", b"new")
    assert b"new" in hook.look()


def test_pausing() -> None:
    hook = hooked("", b"a")
    ok(hook.client, http("/T/g?cmd=pause"))
    assert hook.look() == []
    ok(hook.client, http("/T/g?cmd=resume"))
    assert [a.body for a in hook.courier.open] == [b"a"]


def test_a_restart() -> None:
    """What was under way is sent again when its lease is over: nobody knows whether it came."""
    hook = hooked("push_timeout=2s", b"a", b"b")
    hook.look()
    hook.end()
    again = Hooked(World(hook.world.journal, now_ms=hook.world.now_ms))
    seen = again.look()
    for _ in range(13):
        seen = again.look()
    assert seen[-1] == b"b"
    assert b"a" not in seen


def test_many_groups_share_the_connections() -> None:
    hook = Hooked(connections_max=4)
    for name in ("g", "h"):
        hook.declare(group=f"T/{name}")
    put(hook.client, "T", *[b"%d" % n for n in range(9)])
    hook.look()
    groups = [attempt.group.name for attempt in hook.courier.open]
    assert sorted(groups) == ["g", "g", "h", "h"]


def test_large_bodies_are_few_at_once() -> None:
    """So that webhooks do not take all memory; no group waits for another's."""
    hook = Hooked()
    hook.declare("push_concurrency=100", group="T/g")
    hook.declare("push_concurrency=100", group="U/g")
    put(hook.client, "U", b"small")
    for _ in range(12):
        put(hook.client, "T", bytes(10 << 20))
    seen = 0
    while seen < 12:
        hook.look()
        held = sum(len(attempt.body) for attempt in hook.courier.open)
        assert held <= OPEN_BYTES_MAX + (30 << 20)
        assert seen or any(attempt.body == b"small" for attempt in hook.courier.open)
        while hook.courier.open:
            seen += hook.end() != b"small"
    assert hook.info()["messageCount"] == 0


def test_stopping() -> None:
    """Requests under way are given back, so that the next start sends them at once; what is told
    of them until the end counts."""
    hook = hooked("push_timeout=30s&group_backoff=60000", b"a", b"b", b"c")
    hook.look()
    hook.world.broker.stop()
    hook.world.posted.append(hook.pushing.stop)
    hook.world.settle()
    hook.end()
    hook.end(FAILED)
    assert [a.body for a in hook.courier.open] == [b"c"]
    hook.pushing.close()
    assert hook.courier.closed
    again = Hooked(World(hook.world.journal, now_ms=hook.world.now_ms))
    assert again.look() == [b"b", b"c"]
    assert [attempt.attempts for attempt in again.courier.open] == [2, 2]


@pytest.mark.parametrize("target", ["/T/g?cmd=remove", "/T?cmd=remove"])
def test_stopping_without_the_group(target: str) -> None:
    hook = hooked("", b"a")
    hook.look()
    ok(hook.client, http(target))
    hook.world.posted.append(hook.pushing.stop)
    hook.world.settle()
    hook.world.broker.check()


def test_who_has_a_message() -> None:
    """Who asks why it does not come is told that the webhook has it."""
    hook = hooked("", b"a")
    hook.look()
    told = hook.client.request(http("/T/g?cmd=why&offset=0")).body.decode()
    assert "is leased in g by webhook until" in told
    [row] = document(ok(hook.client, http("/T/g?cmd=peek&state=leased")))
    assert row["holder"] == "webhook"


def test_what_is_sent() -> None:
    hook = Hooked()
    ok(hook.client, http("/a%20b?cmd=declare"))
    hook.declare("push_secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a%20b/g%C3%A9")
    lines = (
        "content-type: text/plain",
        "traceparent: 00-1-2-03",
        "authorization: Bearer x",
        "x-tenant: 7",
        "webhook-id: forged",
        "zbus-key: forged",
    )
    target = "/a%20b?id=order-7&tag=x.y&key=k%C3%A9y"
    ok(hook.client, http(target, *lines, body=b"hello", method="POST"))
    hook.look()
    (attempt,) = hook.courier.open
    found = lines_of(attempt, 1_700_000_000)
    told = dict(found)
    assert len(told) == len(found), "none is there twice"
    id = told[b"webhook-id"]
    assert id.startswith(b"a%20b-")
    assert id.endswith(b"-0-0")
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert told[b"webhook-signature"] == signature(key, id, 1_700_000_000, b"hello")
    assert told[b"webhook-timestamp"] == b"1700000000"
    names = [told[b"zbus-" + n] for n in (b"topic", b"group", b"id", b"tag", b"key", b"attempt")]
    assert names == [b"a%20b", b"g%C3%A9", b"order-7", b"x.y", b"k%C3%A9y", b"1"]
    assert (told[b"content-type"], told[b"traceparent"]) == (b"text/plain", b"00-1-2-03")
    assert told[b"zbus-header-x-tenant"] == b"7"
    assert told[b"zbus-header-webhook-id"] == b"forged"
    assert {b"host", b"authorization", b"x-tenant"}.isdisjoint(told)


def test_the_standards_own_example() -> None:
    """Of https://www.standardwebhooks.com; two secrets make two signatures."""
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body, time_s = b'{"test": 2432232314}', 1614265330
    expected = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    id = b"msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert signature(key, id, time_s, body) == expected
    assert signature(f"{key} {key}", id, time_s, body) == expected + b" " + expected


@pytest.mark.parametrize(
    ("status", "retry_after", "expected"),
    [
        (200, b"", Reply()),
        (204, b"9", Reply()),
        (302, b"", Reply("it replied 302, and a webhook follows no redirect")),
        (410, b"7", Reply("it replied 410", 7_000, gone=True)),
        (429, b"7", Reply("it replied 429", 7_000)),
        (503, b"99999999999999999999", Reply("it replied 503")),
        (503, b"999999999", Reply("it replied 503", 3_600_000)),
        (503, b"-1", Reply("it replied 503")),
        (503, b"Fri, 31 Dec 1999 23:59:59 GMT", Reply("it replied 503")),
        (503, b"Sat, 01 Jan 2000 00:00:30 GMT", Reply("it replied 503", 30_000)),
        (503, b"Saturday, 01-Jan-00 00:00:30 GMT", Reply("it replied 503", 30_000)),
        (503, b"Sat Jan  1 00:00:30 2000", Reply("it replied 503", 30_000)),
        (503, b"Mon, 01 Jan 2024 00:00:00 GMT", Reply("it replied 503", 3_600_000)),
        (503, b"Sat, 99 Jan 2000 00:00:30 GMT", Reply("it replied 503")),
        (503, b"soon", Reply("it replied 503")),
    ],
)
def test_replies(status: int, retry_after: bytes, expected: Reply) -> None:
    new_year_2000_s = 946_684_800
    assert reply_of(status, retry_after, new_year_2000_s) == expected
