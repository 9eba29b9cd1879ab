"""Services behind a topic, and messages straight to a session (specification 5.9, 8)."""

import msgspec
import pytest

from tests.conformance.dialogue import (
    Client,
    Reply,
    World,
    cmd,
    declared,
    http,
    ok,
    pull,
    put,
    refused,
)
from zbus.core.model.limits import Limits
from zbus.dialects.zbus.settings import ZbusSettings

FIXED = "a topic that holds messages is not made one of services, nor back: empty it"


class Scene:
    """A caller and a service that waits for one call."""

    def __init__(self, mask: int = 3, settings: ZbusSettings | None = None) -> None:
        self.world = World(settings=settings, limits=Limits(message_bytes_max=10_000))
        self.caller = self.world.connect()
        self.service = self.world.connect()
        ok(self.service, http(f"/S?cmd=declare&topic_mask={mask}"))

    def call(self, request: bytes) -> Reply:
        """What the service gets of it."""
        assert self.caller.exchange(request) == []
        return ok(self.service, cmd("consume", "topic: S"))

    def answer(self, call: Reply, *lines: str, body: bytes = b"3") -> list[Reply]:
        """As stock services do."""
        recver, id = call.headers["sender"], call.headers["origin_id"]
        request = cmd("route", f"recver: {recver}", f"id: {id}", *lines, body=body)
        assert self.service.exchange(request) == []
        return self.caller.replies()


def test_a_call_too_many_leaves_nothing_behind() -> None:
    world = World(limits=Limits(calls_max=1))
    ok(world.connect(), http("/S?cmd=declare&topic_mask=2"))
    world.connect().send(http("/S/m"))
    world.turn()
    for _ in range(5):
        assert refused(world.connect(), http("/S/m"))[0] == 429
    assert len(world.broker._calls._open) == 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("word", ["rpc=true", "proxy=1", "topic_mask=2", "topic_mask=4"])
def test_a_topic_that_holds_messages_stays_what_it_is(word: str) -> None:
    world, client = declared("T", "T/g?ack=true")
    put(client, "T", b"0", b"1")
    said = refused(client, http(f"/T?cmd=declare&{word}"))
    assert said == (400, f"400: Bad Format, {FIXED}")
    ok(client, http("/T?cmd=declare&topic_mask=64"))  # what is no change is taken
    assert pull(client, "/T/g").body == b"0"
    ok(client, http("/T?cmd=empty"))
    ok(client, http(f"/T?cmd=declare&{word}"))
    world.broker.check()


def test_a_topic_with_calls_stays_one_of_services(scene: Scene) -> None:
    scene.call(cmd("produce", "topic: S", "ack: 0", body=b"1"))
    said = refused(scene.service, http("/S?cmd=declare&rpc=false"))
    assert said == (400, f"400: Bad Format, {FIXED}")
    ok(scene.service, http("/S?cmd=declare&topic_mask=3"))
    ok(scene.service, http("/S?cmd=empty"))
    ok(scene.service, http("/S?cmd=declare&rpc=false"))
    put(scene.service, "S", b"2")
    assert pull(scene.service, "/S").body == b"2"


@pytest.mark.parametrize(
    "request_",
    [
        cmd("produce", "topic: T", "timeout: 1000", body=b"{}"),
        http("/T", "timeout: 1000", body=b"{}", method="POST"),
        http("/T/plus/1/2?timeout=1000"),
        http("/T?cmd=produce&timeout=1s&body=x"),
        http("/T", "timeout: 1", "content-type: application/x-ndjson", body=b"1", method="POST"),
    ],
)
def test_a_call_to_a_topic_without_services(request_: bytes) -> None:
    """It is known by its time, and stored nowhere."""
    world, client = declared("T")
    text = "400: Bad Format, timeout is for calls, and Topic(T) is not one of services"
    for _ in range(2):
        assert refused(client, request_) == (400, text)
    assert world.broker.topics["t"].depth() == 0


SEED = [
    ("/S/plus/1/2", '{"method":"plus","module":"","params":[1,2]}'),
    ("/S/plus/1/2?module=m", '{"method":"plus","module":"m","params":[1,2]}'),
    ("/S", '{"module":""}'),
    ("/S/", '{"module":""}'),
    ("/S/now", '{"method":"now","module":""}'),
    ("/S//m//a//b/", '{"method":"m","module":"","params":["a","b"]}'),
    ("/S/a/b?method=m", '{"method":"m","module":"","params":["a","b"]}'),
    ("/S?module=x&method=m", '{"method":"m","module":"x"}'),
    ("/S/m/%7B%22x%22%3A1%7D", '{"method":"m","module":"","params":[{"x":1}]}'),
    ("/S/m/[1,%22a%22]", '{"method":"m","module":"","params":[[1,"a"]]}'),
    ("/S/m/true/false/null", '{"method":"m","module":"","params":[true,false,null]}'),
    ("/S/m/-1/1.50/1e3", '{"method":"m","module":"","params":[-1,1.50,1e3]}'),
    ("/S/m/123456789012345678901", '{"method":"m","module":"","params":[123456789012345678901]}'),
    ("/S/m/007/1_0/+1/.5", '{"method":"m","module":"","params":["007","1_0","+1",".5"]}'),
    ("/S/m/True/nan/%221%22", '{"method":"m","module":"","params":["True","nan","\\"1\\""]}'),
    ("/S/m/%7Bx/[1", '{"method":"m","module":"","params":["{x","[1"]}'),
    ("/S/m/a%20b/%E4%B8%AD/a%2Fb", '{"method":"m","module":"","params":["a b","中","a/b"]}'),
    ("/S/" + "[" * 2000, '{"method":"' + "[" * 2000 + '","module":""}'),
]

MODULE_PATH = [
    ("/S", '{"module":""}'),
    ("/S/mod", '{"module":"mod"}'),
    ("/S/mod/meth", '{"method":"meth","module":"mod"}'),
    ("/S/mod/meth/1/b", '{"method":"meth","module":"mod","params":[1,"b"]}'),
    ("/S/plus/1/2?module=m", '{"method":"plus","module":"m","params":[1,2]}'),
    ("/S/1/2?module=m&method=plus", '{"method":"plus","module":"m","params":[1,2]}'),
    ("/S/mod/1?method=plus", '{"method":"plus","module":"mod","params":[1]}'),
]


class TestCallByUrl:
    @pytest.mark.parametrize(("target", "request_body"), SEED)
    def test_the_seeds_form(self, scene: Scene, target: str, request_body: str) -> None:
        call = scene.call(http(target))
        assert call.body.decode() == request_body
        assert call.headers["content-type"] == "application/json"
        assert call.headers["origin_url"] == target

    @pytest.mark.parametrize(("target", "request_body"), MODULE_PATH)
    def test_the_form_with_the_module_in_the_path(self, target: str, request_body: str) -> None:
        scene = Scene(settings=ZbusSettings(rpc_url="module-path"))
        assert scene.call(http(target)).body.decode() == request_body

    def test_deep_arguments_do_no_harm(self, scene: Scene) -> None:
        call = scene.call(http("/S/m/" + "[" * 3000))
        assert msgspec.json.decode(call.body)["params"] == ["[" * 3000]

    def test_a_body_is_passed_untouched(self, scene: Scene) -> None:
        body = b'{"module":"m","method":"plus","params":[1,2]}'
        call = scene.call(http("/S/other/9", "content-type: text/x", body=body))
        assert (call.body, call.headers["content-type"]) == (body, "text/x")

    def test_query_keys_are_headers(self, scene: Scene) -> None:
        call = scene.call(http("/S/m?lang=de", "content-type: text/plain"))
        assert (call.headers["lang"], call.headers["content-type"]) == ("de", "application/json")

    def test_a_proxied_request_stays_as_it_is(self) -> None:
        scene = Scene(mask=5)
        call = scene.call(http("/S/some/path?q=1", method="DELETE"))
        assert call.body == b""
        assert call.headers["origin_method"] == "DELETE"
        assert call.headers["origin_url"] == "/S/some/path?q=1"
        assert "content-type" not in call.headers


class TestAnswer:
    @pytest.mark.parametrize(
        ("lines", "status"),
        [
            ((), 200),
            (("origin_status: 200",), 200),
            (("origin_status: 600",), 600),
            (("origin_status: 404",), 404),
            (("origin_status: 302", "location: /x"), 302),
            (("origin_status: abc",), 500),
            (("origin_status: -1",), 500),
            (("origin_status: 99",), 500),
            (("origin_status: 1000",), 500),
            (("origin_status: \uff12\uff10\uff10",), 500),
            (("origin_status: 100",), 500),
            (("origin_status: 101",), 500),
        ],
    )
    def test_status(self, scene: Scene, lines: tuple[str, ...], status: int) -> None:
        (reply,) = scene.answer(scene.call(http("/S/m")), *lines)
        assert (reply.status, reply.body) == (status, b"3")
        assert "origin_status" not in reply.headers

    @pytest.mark.parametrize("status", [204, 304])
    def test_a_status_without_body_does_not_break_the_connection(
        self, scene: Scene, status: int
    ) -> None:
        call = scene.call(http("/S/m"))
        scene.answer(call, f"origin_status: {status}", body=b"HTTP/1.1 200 OK\r\n\r\n")
        assert ok(scene.caller, http("/?cmd=ping")).body.isdigit()

    def test_the_reason_of_600(self, scene: Scene) -> None:
        call = scene.call(http("/S/m"))
        scene.service.send(
            cmd(
                "route",
                "recver: session-1",
                f"id: {call.headers['origin_id']}",
                "origin_status: 600",
            )
        )
        scene.world.settle()
        assert scene.caller.received.startswith(b"HTTP/1.1 600 Unknown Status (600)\r\n")

    def test_headers(self, scene: Scene) -> None:
        call = scene.call(http("/S/m", "id: c-1"))
        lines = "topic: S|content-type: application/json|x-app: 1|sender: forged|host: forged"
        lines += "|remote-addr: forged|ack: 0|token: secret|offset: 7|tag: t|cookie: token=secret"
        (reply,) = scene.answer(call, *lines.split("|"))
        assert reply.headers == {
            "content-length": "1",
            "connection": "Keep-Alive",
            "cache-control": "no-store",
            "id": "c-1",
            "sender": "session-2",
            "topic": "S",
            "content-type": "application/json",
            "zbus-header-x-app": "1",
            "zbus-header-offset": "7",
            "zbus-header-tag": "t",
            "host": "127.0.0.1:15555",
        }

    @pytest.mark.parametrize("request_bytes", [http("/S/m"), cmd("produce", "topic: S", "id: c")])
    def test_no_ack_comes_first(self, scene: Scene, request_bytes: bytes) -> None:
        call = scene.call(request_bytes)
        assert [reply.body for reply in scene.answer(call)] == [b"3"]

    def test_the_stock_caller(self, scene: Scene) -> None:
        """`ack: 0`, and an answer that is known by its id."""
        call = scene.call(cmd("produce", "topic: S", "id: c-1", "ack: 0", body=b"{}"))
        assert (call.headers["origin_id"], call.headers["sender"]) == ("c-1", "session-1")
        (reply,) = scene.answer(call, "origin_status: 600")
        assert (reply.status, reply.headers["id"], reply.body) == (600, "c-1", b"3")
        scene.world.advance(3_600_000)
        assert scene.caller.replies() == []

    def test_calls_of_one_connection_are_answered_as_they_come(self, scene: Scene) -> None:
        lines = ("topic: S",)
        scene.caller.send(cmd("produce", *lines, "id: 1") + cmd("produce", *lines, "id: 2"))
        calls = [ok(scene.service, cmd("consume", *lines)) for _ in range(2)]
        ids = [scene.answer(call)[0].headers["id"] for call in reversed(calls)]
        assert ids == ["2", "1"]


class TestNoAnswer:
    @pytest.mark.parametrize(("query", "after_ms"), [("", 30_000), ("?timeout=500", 500)])
    def test_the_caller_is_told_in_time(self, scene: Scene, query: str, after_ms: int) -> None:
        assert scene.caller.exchange(http(f"/S/m{query}")) == []
        scene.world.advance(after_ms - 1)
        assert scene.caller.replies() == []
        scene.world.advance(1)
        (reply,) = scene.caller.replies()
        assert reply.status == 504
        assert reply.body == b"504: no service answered this call in time"

    def test_nobody_else_is_blocked(self, scene: Scene) -> None:
        scene.caller.send(http("/S/m"))
        ok(scene.world.connect(), http("/?cmd=ping"))
        assert ok(scene.caller, http("/?cmd=ping", "id: 1")).headers["id"] == "1"

    def test_an_expired_call_is_not_executed(self, scene: Scene) -> None:
        scene.caller.exchange(http("/S/m?timeout=500"))
        scene.world.advance(500)
        assert pull(scene.service, "/S").status == 204

    def test_the_stock_callers_call_waits_for_a_service(self, scene: Scene) -> None:
        scene.caller.exchange(cmd("produce", "topic: S", "ack: 0", body=b"1"))
        scene.world.advance(3_600_000)
        assert pull(scene.service, "/S").body == b"1"

    def test_a_late_answer_is_not_taken_for_another(self, scene: Scene) -> None:
        call = scene.call(http("/S/m?timeout=500"))
        scene.world.advance(500)
        assert [reply.status for reply in scene.caller.replies()] == [504]
        assert scene.answer(call) == [], "plain HTTP would take it for its next answer"
        assert scene.caller.request(http("/?cmd=ping")).body != b"late"

    def test_a_second_answer(self, scene: Scene) -> None:
        call = scene.call(cmd("produce", "topic: S", "id: c"))
        assert len(scene.answer(call)) == 1
        assert [reply.headers["id"] for reply in scene.answer(call)] == ["c"]

    def test_a_caller_that_is_gone(self, scene: Scene) -> None:
        call = scene.call(http("/S/m"))
        scene.caller.vanish()
        assert scene.answer(call) == []
        scene.world.broker.check()

    def test_a_late_service_gets_no_call_of_a_caller_that_is_gone(self, scene: Scene) -> None:
        for caller in [scene.world.connect() for _ in range(3)]:
            assert caller.exchange(http("/S/gone")) == []
            caller.vanish()
        assert scene.caller.exchange(http("/S/here")) == []
        call = ok(scene.service, cmd("consume", "topic: S"))
        assert b"here" in call.body
        assert pull(scene.service, "/S").status == 204
        assert len(scene.answer(call)) == 1

    def test_a_late_service_gets_no_call_that_has_timed_out(self, scene: Scene) -> None:
        for number in range(3):
            assert scene.caller.exchange(http(f"/S/late?timeout=500&id={number}")) == []
        scene.world.advance(500)
        assert [reply.status for reply in scene.caller.replies()] == [504] * 3
        assert scene.caller.exchange(http("/S/here")) == []
        assert b"here" in ok(scene.service, cmd("consume", "topic: S")).body
        assert pull(scene.service, "/S").status == 204

    def test_a_caller_that_goes_in_the_turn_of_its_call(self, scene: Scene) -> None:
        scene.caller.peer.receive(http("/S/gone"))
        scene.caller.vanish()
        scene.world.settle()
        assert pull(scene.service, "/S").status == 204
        scene.world.broker.check()

    def test_a_call_that_is_too_large(self, scene: Scene) -> None:
        assert refused(scene.caller, http("/S/m", body=b"x" * 10_001))[0] == 413
        assert not len(scene.world.broker._calls)

    def test_the_same_id_twice(self, scene: Scene) -> None:
        assert scene.caller.exchange(cmd("produce", "topic: S", "id: c")) == []
        assert scene.caller.request(cmd("produce", "topic: S", "id: c")).status == 400

    def test_stopping(self, scene: Scene) -> None:
        scene.caller.send(http("/S/m"))
        scene.world.settle()
        scene.world.broker.stop()
        scene.world.settle()
        assert [reply.status for reply in scene.caller.replies()] == [503]

    def test_the_topic_is_removed(self, scene: Scene) -> None:
        scene.caller.send(http("/S/m?timeout=500"))
        scene.world.settle()
        ok(scene.service, http("/S?cmd=remove"))
        scene.world.advance(500)
        assert [reply.status for reply in scene.caller.replies()] == [504]


class TestRoute:
    def two(self) -> tuple[Client, Client]:
        world, client = declared()
        client.exchange(cmd("ping"))  # from here on it is known to tell replies by their ids
        client.replies()
        return client, world.connect()

    @pytest.mark.parametrize(
        "lines",
        [
            ("recver: nobody",),
            (),
            ("recver:",),
            ("recver: nobody", "ack: 0"),
            ("recver: session-1",),
        ],
    )
    def test_the_router_is_never_answered(self, lines: tuple[str, ...]) -> None:
        _, router = self.two()
        assert router.exchange(cmd("route", *lines)) == []

    def test_unless_it_asks(self) -> None:
        target, router = self.two()
        lines = ("ack: true", "id: r")
        assert ok(router, cmd("route", "recver: session-1", *lines)).headers["id"] == "r"
        assert len(target.replies()) == 1
        reply = router.request(cmd("route", "recver: nobody", *lines))
        assert (reply.status, reply.headers["id"]) == (404, "r")

    def test_plain_http_is_answered(self) -> None:
        target, router = self.two()
        ok(router, http("/?cmd=route&recver=session-1&body=x"))
        assert router.request(http("/?cmd=route&recver=nobody")).status == 404
        assert len(target.replies()) == 1

    @pytest.mark.parametrize("body", [b"", bytes(range(256)), b"\r\n\r\n"])
    def test_the_body_is_kept(self, body: bytes) -> None:
        target, router = self.two()
        router.exchange(cmd("route", "recver: session-1", "id: x", body=body))
        (reply,) = target.replies()
        assert (reply.status, reply.headers["id"], reply.body) == (200, "x", body)

    def test_what_it_says_of_a_connection_is_about_another(self) -> None:
        """A service passes on what its target said, while other calls are under way."""
        world, service = declared("S?topic_mask=3")
        callers = [world.connect() for _ in range(3)]
        for number, caller in enumerate(callers):
            caller.send(http("/S/m", f"id: call-{number}"))
        world.settle()
        calls = [ok(service, cmd("consume", "topic: S")) for _ in callers]
        for call in calls:
            lines = (f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}")
            for spelled in ("connection: close", "Connection: te, Close"):
                assert service.exchange(cmd("route", *lines, spelled, body=b"3")) == []
        assert not service.closed
        assert [len(caller.replies()) for caller in callers] == [1, 1, 1]
        assert service.exchange(cmd("consume", "topic: S")) == []
        callers[0].send(http("/S/again"))
        world.settle()
        assert [reply.status for reply in service.replies()] == [200]

    @pytest.mark.parametrize("command", ["ping", "declare", "query", "produce", "track_sub"])
    def test_so_it_is_with_all_that_comes_with_a_command(self, command: str) -> None:
        _, client = declared("T")
        for _ in range(2):
            reply = ok(client, cmd(command, "topic: T", "id: 1", "connection: close"))
            assert reply.headers["connection"] == "Keep-Alive"
        assert not client.closed

    def test_to_oneself(self) -> None:
        _, router = self.two()
        (reply,) = router.exchange(cmd("route", "recver: session-2", "id: x"))
        assert reply.headers["sender"] == "session-2"
