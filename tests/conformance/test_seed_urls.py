"""The examples of the seed document, word for word, as typed into a browser."""

from tests.conformance.dialogue import TYPED, Client, Reply, World, document, http, ok


def type_url(client: Client, path: str) -> Reply:
    return client.request(http(path, *TYPED))


def test_the_seeds_mq_examples() -> None:
    client = World().connect()
    info = document(type_url(client, "/MyTopic?cmd=declare"))
    assert info["topicName"] == "MyTopic"
    assert [group["groupName"] for group in info["consumeGroupList"]] == ["MyTopic"]
    info = document(type_url(client, "/MyTopic/group1?cmd=declare"))
    assert (info["groupName"], info["mask"]) == ("group1", 0)
    url = "/MyTopic/group1?cmd=declare&group_filter=abc&group_mask=16"
    info = document(type_url(client, url))
    assert (info["filter"], info["mask"]) == ("abc", 16)
    assert type_url(client, "/MyTopic?tag=abc&body=hello").status == 200
    assert type_url(client, "/MyTopic?cmd=consume").body == b"hello"
    assert type_url(client, "/MyTopic/group1?cmd=consume").body == b"hello"
    assert document(type_url(client, "/MyTopic?cmd=query"))["messageDepth"] == 1
    assert document(type_url(client, "/MyTopic/group1?cmd=query"))["messageCount"] == 0
    assert type_url(client, "/MyTopic/group1?cmd=remove").status == 200
    assert type_url(client, "/MyTopic/group1?cmd=query").status == 404
    assert type_url(client, "/MyTopic?cmd=remove").status == 200
    assert type_url(client, "/MyTopic?cmd=query").status == 404


def test_declare_makes_the_topic_with_the_group() -> None:
    client = World().connect()
    info = document(type_url(client, "/MyTopic/group1?cmd=declare&&group_mask=16"))
    assert (info["topicName"], info["groupName"], info["mask"]) == ("MyTopic", "group1", 16)


def test_the_group_may_follow_an_empty_query() -> None:
    """The seed's pattern is `/[topic]/[group]/[?cmd=xxx&&k=v...]`."""
    client = World().connect()
    type_url(client, "/MyTopic/group1/?cmd=declare")
    assert document(type_url(client, "/MyTopic/group1/?cmd=query"))["groupName"] == "group1"


def test_the_seeds_rpc_example() -> None:
    world = World()
    client, service = world.connect(), world.connect()
    ok(service, http("/myrpc?cmd=declare&topic_mask=2"))
    client.send(http("/myrpc/plus/1/2"))
    call = ok(service, http("/myrpc?cmd=consume"))
    assert call.body == b'{"method":"plus","module":"","params":[1,2]}'
