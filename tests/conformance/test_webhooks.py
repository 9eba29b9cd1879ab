"""What a `declare` says of a webhook."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Client, World, declared, document, http, ok, refused
from tests.conformance.test_access import entry, world_with
from zbus.dialects.zbus.settings import ZbusSettings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://example.com/hook?a=1"


LEADS = "push_url leads to where webhooks may not: "


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["push_url: ftp://example.com/"], "push_url is http://host/path or https://host/path"),
        (["push_url: /hook"], "push_url is http://host/path or https://host/path, or none"),
        (["push_url: http://"], "push_url is http://host/path or https://host/path, or none"),
        (["push_url: http://a b/"], "push_url is at most 2000 printable ASCII characters"),
        (["push_url: http://ex\u00e4mple.com/"], "push_url is at most 2000 printable ASCII"),
        ([f"push_url: http://a/{'x' * 1_999}"], "push_url "),
        (["push_url: http://u:p@example.com/"], "push_url has no user, password or fragment"),
        (["push_url: http://@example.com/"], "push_url has no user, password or fragment"),
        (["push_url: http://example.com/#a"], "push_url has no user, password or fragment"),
        (["push_url: http://example.com:0/"], "push_url names no port"),
        (["push_url: http://example.com:99999/"], "push_url is no URL"),
        (["push_url: http://[::1/"], "push_url is no URL"),
        (["push_url: http://a..b/"], "push_url names no host"),
        (["push_url: http://a%2fb/"], "push_url names no host"),
        (["push_url: http://127.0.0.1:8080/"], LEADS + "127.0.0.1 is no public address"),
        (["push_url: http://[::1]/"], LEADS + "::1 is no public address"),
        (["push_url: http://[::ffff:10.0.0.1]/"], LEADS + "10.0.0.1 is no public address"),
        (["push_url: http://169.254.169.254/latest"], LEADS + "169.254.169.254 is no public"),
        (["push_secret: abc"], "push_secret is whsec_ and the base64 of 24 to 64 bytes"),
        (["push_secret: whsec_YWJj"], "push_secret is whsec_ and the base64 of 24 to 64 bytes"),
        (["push_secret: whsec_%%%"], "push_secret is whsec_ and the base64 of 24 to 64 bytes"),
        ([f"push_secret: {' '.join([SECRET] * 5)}"], "push_secret is at most 4 secrets"),
        (["push_concurrency: 0"], "push_concurrency is a number from 1 to 100"),
        (["push_concurrency: 101"], "push_concurrency is a number from 1 to 100"),
        (["push_timeout: 99"], "push_timeout is milliseconds, or a number"),
        (["push_timeout: 11m"], "push_timeout is milliseconds, or a number"),
        (["push_concurrency: 5"], "push: no endpoint is named"),
        ([f"push_secret: {SECRET}"], "push: no endpoint is named"),
        ([f"push_url: {URL}", "ack: false"], "push: a group without acknowledgements has none"),
    ],
)
def test_bad_input(lines: list[str], text: str) -> None:
    _, client = declared("T/g?group_mask=0")
    status, told = refused(client, http("/T/g?cmd=declare", *lines))
    assert (status, told[: len(text) + 17]) == (400, f"400: Bad Format, {text}")
    assert "push" not in document(ok(client, http("/T/g?cmd=query")))


def test_declared_looked_at_and_ended() -> None:
    _, client = declared("T")
    info = document(ok(client, http("/T/g?cmd=declare", f"push_url: {URL}")))
    assert info["push"] == {
        **{"concurrency": 10, "delivered": 0, "failed": 0, "signed": False},
        **{"timeoutMs": 30_000, "url": URL},
    }
    assert info["ack"] is True, "a group that is pushed has acknowledgements"
    lines = [f"push_secret: {SECRET} {SECRET}", "push_concurrency: 3", "push_timeout: 5s"]
    reply = ok(client, http("/T/g?cmd=declare", *lines))
    assert SECRET.encode() not in reply.body
    push = document(reply)["push"]
    assert (push["url"], push["signed"]) == (URL, True)
    assert (push["concurrency"], push["timeoutMs"]) == (3, 5_000)
    assert document(ok(client, http("/T/g?cmd=declare&group_window=5")))["push"] == push
    push = document(ok(client, http("/T/g?cmd=declare&push_secret=none")))["push"]
    assert not push["signed"]
    assert "push" not in document(ok(client, http("/T/g?cmd=declare&push_url=none")))


def test_calls_are_not_pushed() -> None:
    _, client = declared("T?topic_mask=2")
    found = refused(client, http("/T/g?cmd=declare", f"push_url: {URL}"))
    assert found == (400, "400: Bad Format, push: calls are answered by services, not by webhooks")


def test_a_broker_that_sends_none() -> None:
    world = World(settings=ZbusSettings(push_connections_max=0))
    found = refused(world.connect(), http("/T/g?cmd=declare", f"push_url: {URL}"))
    assert found == (400, "400: Bad Format, this broker sends no webhooks")


def test_networks_that_are_named() -> None:
    world = World(settings=ZbusSettings(push_networks="10.0.0.0/8, ::1"))
    client = world.connect()
    for host, status in (("10.1.2.3", 200), ("[::1]:99", 200), ("192.168.0.1", 400)):
        line = f"push_url: http://{host}/"
        assert client.request(http("/T/g?cmd=declare", line)).status == status


def test_who_may_not_read_may_not_have_it_sent() -> None:
    _, admin = world_with(entry("m", "declare query"), entry("r", "declare query consume"))
    client = admin.world.connect()
    line = f"push_url: {URL}"
    status, text = refused_with(client, http("/Orders/g?cmd=declare", line, "token: m"))
    assert (status, text[:36]) == (403, "403: this token may not consume from")
    none = http("/Orders/g?cmd=declare&push_url=none", "token: m")
    assert client.request(none).status == 200, "to end it is another thing"
    assert client.request(http("/Orders/g?cmd=declare", line, "token: r")).status == 200


def refused_with(client: Client, data: bytes) -> tuple[int, str]:
    reply = client.request(data)
    return reply.status, reply.body.decode()
