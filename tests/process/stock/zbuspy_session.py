"""What a program written for zbuspy 0.11 does, in the words of that client, unmodified.

Run by an old interpreter that has zbuspy: `python zbuspy_session.py <session> <address> ...`. Lines
on the standard output tell the test how far it is; `step` waits for its line on the standard input.
"""

import os
import queue
import sys
import threading
import traceback

from zbus import (
    Broker,
    ClientBootstrap,
    Consumer,
    Message,
    MessageCtrl,
    MqClient,
    Producer,
    Protocol,
    RpcInvoker,
    ServerAddress,
    ServiceBootstrap,
)

WAIT_S = 20


def say(*words):
    print(*words, flush=True)


def step(name):
    """Tell the test, and wait for it."""
    say(name)
    assert sys.stdin.readline().strip() == "go on"


def consumer(broker, received, **ctrl_fields):
    ctrl = MessageCtrl()
    for name, value in ctrl_fields.items():
        setattr(ctrl, name, value)
    found = Consumer(broker, ctrl)
    found.message_handler = lambda message, client: received.put((message, client))
    found.start()
    return found


def table(broker):
    return sorted(server.address for server in broker.route_table.server_table)


def until(holds, what):
    """Wait until something that other threads do is true."""
    done = threading.Event()
    for _ in range(WAIT_S * 50):
        if holds():
            return
        done.wait(0.02)
    raise AssertionError("it never came true: " + what)


def client_session(address):
    """One connection: MqClient, as the examples of zbuspy use it."""
    client = MqClient(address)
    info = client.declare({"topic": "MyTopic"})
    assert info["topicName"] == "MyTopic", info
    assert info["serverAddress"] == {"address": address, "sslEnabled": False}, info
    info = client.declare({"topic": "MyTopic", "consume_group": "g"})
    assert info["groupName"] == "g", info
    reply = client.produce({"topic": "MyTopic", "body": "hello \u4e2d\u6587", "tag": "a b/c*"})
    assert reply.status == 200, reply
    assert int(reply.body) > 1600000000000, reply
    message = client.consume({"topic": "MyTopic"})
    assert message.status == 200, message
    assert message.body == "hello \u4e2d\u6587", message
    assert message.tag == "a+b/c*", message  # its own `+` for a space is never undone
    assert message.origin_method == "GET", message
    assert message["content-type"] == "text/plain; charset=utf8", message
    assert client.ack(message).status == 200
    client.ack_async(message)
    by_offset = client.consume({"topic": "MyTopic", "offset": message.offset})
    assert by_offset.origin_id == message.origin_id, by_offset
    assert client.query({"topic": "MyTopic"})["messageDepth"] == 1
    assert list(client.query({})["topicTable"]) == ["MyTopic"]
    assert client.query({"topic": "MyTopic", "consume_group": "g"})["messageCount"] == 1
    binary = client.produce({"topic": "MyTopic", "body": {"n": 1, "t": "\u4e2d"}})
    assert binary.status == 200, binary
    message = client.consume({"topic": "MyTopic"})
    assert message.body == {"n": 1, "t": "\u4e2d"}, message
    assert client.produce({"topic": "unknown", "body": "x"}).status == 404
    assert client.produce({"body": "x"}).status == 400
    assert client.produce({"topic": "MyTopic", "id": "i" * 40}).status == 400
    assert client.consume({"topic": "MyTopic", "consume_group": "unknown"}).status == 404
    assert client.invoke({"cmd": "nonsense"}).status == 400
    assert client.invoke({"cmd": "track_pub"}).status == 400
    tracker = client.invoke({"cmd": "tracker"})
    assert list(tracker.body["serverTable"]) == [address], tracker
    certificate = client.invoke({"cmd": "ssl"})
    assert (certificate.status, certificate.body) == (
        404,
        "404: Certificate(%s) Not Found" % address,
    ), certificate
    client.heartbeat()
    assert client.empty({"topic": "MyTopic"}) is not None
    assert client.query({"topic": "MyTopic", "consume_group": "g"})["messageCount"] == 0
    client.remove({"topic": "MyTopic", "consume_group": "g"})
    client.remove({"topic": "MyTopic"})
    assert client.invoke({"cmd": "query", "topic": "MyTopic"}).status == 404
    client.close()


def queue_session(address):
    """Broker with a tracker, Producer, Consumer, filters, exclusive groups, acknowledgements."""
    broker = Broker(address)
    assert table(broker) == [address], table(broker)
    producer = Producer(broker)
    everything, some = queue.Queue(), queue.Queue()
    producer.declare("MyTopic")
    consumer(broker, everything, topic="MyTopic")
    consumer(
        broker, some, topic="MyTopic", consume_group="\u7ec4 a", group_filter="a.*"
    )
    until(lambda: "MyTopic" in broker.route_table.topic_table, "the tracker tells of the topic")
    until(
        lambda: broker.route_table.topic_table["MyTopic"][0]["consumerCount"] == 2,
        "the tracker tells of the readers",
    )
    for tag in ("a.b", "b.b", "a.c"):
        message = Message({"topic": "MyTopic", "tag": tag, "body": tag})
        assert producer.publish(message).status == 200
    assert [everything.get(timeout=WAIT_S)[0].body for _ in range(3)] == ["a.b", "b.b", "a.c"]
    assert [some.get(timeout=WAIT_S)[0].tag for _ in range(2)] == ["a.b", "a.c"]

    leased = queue.Queue()
    consumer(
        broker,
        leased,
        topic="MyTopic",
        consume_group="leased",
        group_mask=Protocol.MASK_ACK_REQUIRED,
        group_ack_timeout=300,
    )
    until(lambda: groups(broker).get("leased", 0) == 1, "the reader of the leased group")
    sent = producer.publish(Message({"topic": "MyTopic", "id": "once", "body": "again"}))
    assert sent.id == "once", sent
    first, _ = leased.get(timeout=WAIT_S)
    assert (first.id, first.retry) == ("once", None), first
    second, client = leased.get(timeout=WAIT_S)
    assert (second.id, second.retry, second.offset) == ("once", "1", first.offset), second
    client.ack_async(second)  # another thread is reading from that client
    until(lambda: leased_count(producer) == 0, "the acknowledgement")

    other = MqClient(address)
    exclusive = {"topic": "Alone", "group_mask": Protocol.MASK_EXCLUSIVE, "consume_group": "one"}
    other.declare(dict(exclusive))
    alone = queue.Queue()
    consumer(
        broker, alone, topic="Alone", consume_group="one", group_mask=Protocol.MASK_EXCLUSIVE
    )
    until(lambda: groups(broker, "Alone").get("one") == 1, "the reader of the exclusive group")
    assert other.consume({"topic": "Alone", "consume_group": "one"}).status == 401

    producer.remove({"topic": "Alone"})  # the consumer gets a 404 and declares it again
    until(lambda: groups(broker, "Alone").get("one") == 1, "the reader of the topic made again")
    producer.declare("Gone")
    until(lambda: "Gone" in broker.route_table.topic_table, "the tracker tells of the topic")
    producer.remove({"topic": "Gone"})
    until(lambda: "Gone" not in broker.route_table.topic_table, "the tracker tells of the removal")


def groups(broker, topic="MyTopic"):
    found = broker.route_table.topic_table.get(topic, [{"consumeGroupList": []}])[0]
    return {group["groupName"]: group["consumerCount"] for group in found["consumeGroupList"]}


def leased_count(admin):
    return admin.query({"topic": "MyTopic", "consume_group": "leased"})[0]["leasedCount"]


class Service:
    """What is called."""

    def plus(self, a, b):
        return a + b

    def echo(self, value):
        return value

    def fail(self):
        raise ValueError("no")

    def page(self):
        message = Message()
        message.status = 200
        message["content-type"] = "text/html; charset=utf-8"
        message.body = "<h1>page</h1>"
        return message


def call_session(address):
    """RpcProcessor behind a Consumer, RpcInvoker before a Producer."""
    service = ServiceBootstrap()
    service.service_name("MyRpc")
    service.service_address(address)
    service.add_module("index", Service)
    service.add_module("other", Service)
    service.start()
    until(lambda: groups(service.broker, "MyRpc").get("MyRpc") == 1, "the service")
    for highly_available in (True, False):
        bootstrap = ClientBootstrap()
        bootstrap.service_name("MyRpc")
        bootstrap.service_address(address)
        bootstrap.ha(highly_available)
        rpc = bootstrap.invoker()
        assert rpc.plus(1, 2) == 3
        assert rpc.echo({"a": [1, None, "\u4e2d"]}) == {"a": [1, None, "\u4e2d"]}
        assert rpc.invoke(method="plus", params=["a", "b"], module="other") == "ab"
        for method, text in (("fail", "no"), ("nothing", "index:nothing method not found")):
            try:
                rpc.invoke(method=method)
            except Exception as error:
                assert str(error) == text, error
            else:
                raise AssertionError(method)
    invoker = RpcInvoker(broker=service.broker, topic="MyRpc")
    assert invoker.echo("x" * 100000) == "x" * 100000
    step("called")


def restart_session(address):
    """The broker goes away and comes back: nothing is done here about it."""
    broker = Broker(address)
    received = queue.Queue()
    consumer(broker, received, topic="MyTopic")
    until(lambda: groups(broker).get("MyTopic") == 1, "the reader")
    producer = Producer(broker)
    assert producer.publish(Message({"topic": "MyTopic", "body": "before"})).status == 200
    assert received.get(timeout=WAIT_S)[0].body == "before"
    step("connected")
    until(lambda: groups(broker).get("MyTopic") == 1, "the reader after the restart")
    assert producer.publish(Message({"topic": "MyTopic", "body": "after"})).status == 200
    bodies = iter(lambda: received.get(timeout=WAIT_S)[0].body, "after")
    assert set(bodies) <= {"before"}  # killed at once, the broker may hand it out again


def nodes_session(address):
    """Three nodes, of which each has all topics for its clients: a consumer reads through all. Then
    the one that owns the topic is lost."""
    broker = Broker(address)
    received = queue.Queue()
    consumer(broker, received, topic="MyTopic")
    until(lambda: len(table(broker)) == groups(broker).get("MyTopic") == 3, "readers at all nodes")
    producer = Producer(broker)
    assert producer.publish(Message({"topic": "MyTopic", "body": "before"})).status == 200
    assert received.get(timeout=WAIT_S)[0].body == "before"
    step("connected")
    until(lambda: published(producer, "after"), "the new owner takes a message")
    bodies = iter(lambda: received.get(timeout=WAIT_S)[0].body, "after")
    assert set(bodies) <= {"before"}  # killed at once, the owner may hand it out again
    until(lambda: len(table(broker)) == groups(broker).get("MyTopic") == 3, "readers at all nodes")


def published(producer, body):
    """Whether it is: the connection may have been that to the former owner."""
    try:
        return producer.publish(Message({"topic": "MyTopic", "body": body})).status == 200
    except Exception:
        return False


def two_session(first, second):
    """Two brokers, of which the second reports to the first, which alone is known here."""
    broker = Broker(first)
    both = sorted([first, second])
    until(lambda: table(broker) == both, "both brokers")
    received = queue.Queue()
    consumer(broker, received, topic="MyTopic")
    until(
        lambda: len(broker.route_table.topic_table.get("MyTopic", [])) == 2
        and all(t["consumerCount"] == 1 for t in broker.route_table.topic_table["MyTopic"]),
        "readers at both brokers",
    )
    producer = Producer(broker)
    for address in both:
        message = Message({"topic": "MyTopic", "body": address})
        sent = producer.publish(message, selector=lambda *_: [ServerAddress(address)])
        assert sent.status == 200, sent
    assert sorted(received.get(timeout=WAIT_S)[0].body for _ in both) == both
    step("both")
    until(lambda: table(broker) == [first], "the second broker has left")
    assert producer.publish(Message({"topic": "MyTopic", "body": "left"})).status == 200
    assert received.get(timeout=WAIT_S)[0].body == "left"
    step("one")
    until(lambda: table(broker) == both, "the second broker is back")


if __name__ == "__main__":
    try:
        globals()[sys.argv[1] + "_session"](*sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    say("done")
    os._exit(0)  # its threads never end by themselves
