"""The verbs that tell how things are."""

from __future__ import annotations

import msgspec

from zbus.dialects.camellia.context import Request
from zbus.dialects.camellia.info import TopicInfo, all_infos, info_of
from zbus.dialects.camellia.message import shown
from zbus.dialects.camellia.metrics import encode_metrics
from zbus.dialects.camellia.monitor import Window
from zbus.dialects.camellia.replies import JSON, OK, TEXT
from zbus.edge.connection import Connection
from zbus.edge.params import Params

_encode = msgspec.json.encode


def _respond(request: Request, peer: Connection, data: object) -> None:
    request.reply(peer).respond(200, JSON, _encode({"code": OK, "data": data}))


def _infos(request: Request, peer: Connection) -> list[TopicInfo]:
    grant = peer.grant
    infos = all_infos(request.dialect)
    return [info for info in infos if grant is None or grant.sees(info.topic, info.topic)]


def _window(request: Request, peer: Connection) -> Window:
    window, grant = request.dialect.monitor.last(), peer.grant
    return window if grant is None else window.seen(grant.sees)


def monitor_data(request: Request, params: Params, peer: Connection) -> None:
    """`getMonitorData`."""
    window = _window(request, peer)
    data = {
        "requestStatsList": [*window.requests.values()],
        "pullMsgTimeGapStatsList": [*window.pulls.values()],
        "readyQueueTimeGapStatsList": [*window.dues.values()],
    }
    _respond(request, peer, data)


def topic_info(request: Request, params: Params, peer: Connection) -> None:
    """`getTopicInfo`."""
    name = shown(params.required(b"topic"))
    if request.may(peer, name):
        _respond(request, peer, info_of(request.dialect, name))


def topic_list(request: Request, params: Params, peer: Connection) -> None:
    """`getTopicInfoList`."""
    _respond(request, peer, _infos(request, peer))


def monitor_string(request: Request, params: Params, peer: Connection) -> None:
    """`getMonitorString`: the same once more, for one program of the original's makers."""
    window, infos = _window(request, peer), _infos(request, peer)
    document = {
        "requestStats": [*window.requests.values()],
        "pullMsgTimeGapStats": [*window.pulls.values()],
        "readyQueueTimeGapStats": [*window.dues.values()],
        "topicInfoStats": [
            {
                "topic": info.topic,
                "waitingQueueSize": info.waiting_queue_size,
                "readyQueueSize": info.ready_queue_size,
                "ackQueueSize": info.ack_queue_size,
            }
            for info in infos
        ],
        "waitingQueueStats": [
            {"topic": info.topic, **msgspec.to_builtins(info.waiting_queue_info)} for info in infos
        ],
    }
    request.reply(peer).respond(200, TEXT, _encode(document))


def metrics(request: Request, params: Params, peer: Connection) -> None:
    """`/metrics`."""
    window, infos = _window(request, peer), _infos(request, peer)
    request.reply(peer).respond(200, TEXT, encode_metrics(request.dialect, window, infos))


# -- health ------------------------------------------------------------------------------------


def _respond_health(request: Request, peer: Connection, well: bool) -> None:
    code = 200 if well else 500
    request.reply(peer).respond(code, TEXT, b'{"code":%d}' % code)


def health_status(request: Request, params: Params, peer: Connection) -> None:
    _respond_health(request, peer, request.dialect.health.online)


def health_check(request: Request, params: Params, peer: Connection) -> None:
    _respond_health(request, peer, True)


def health_online(request: Request, params: Params, peer: Connection) -> None:
    request.dialect.health.online = True
    _respond_health(request, peer, True)


def health_offline(request: Request, params: Params, peer: Connection) -> None:
    """Answered with 200 once no client uses the broker any more."""
    health = request.dialect.health
    health.online = False
    _respond_health(request, peer, health.quiet(request.dialect.broker.now_ms))
