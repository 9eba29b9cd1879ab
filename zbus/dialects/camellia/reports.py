"""The verbs that tell how things are."""

from __future__ import annotations

import msgspec

from zbus.dialects.camellia.context import CamelliaCall
from zbus.dialects.camellia.info import TopicInfo, all_infos, info_of
from zbus.dialects.camellia.message import shown
from zbus.dialects.camellia.metrics import encode_metrics
from zbus.dialects.camellia.monitor import Window
from zbus.dialects.camellia.replies import JSON, OK, TEXT

_encode = msgspec.json.encode


def _respond(call: CamelliaCall, data: object) -> None:
    call.reply().respond(200, JSON, _encode({"code": OK, "data": data}))


def _infos(call: CamelliaCall) -> list[TopicInfo]:
    grant = call.peer.grant
    infos = all_infos(call.context)
    return [info for info in infos if grant is None or grant.sees(info.topic, info.topic)]


def _window(call: CamelliaCall) -> Window:
    window, grant = call.context.monitor.last(), call.peer.grant
    return window if grant is None else window.seen(grant.sees)


def monitor_data(call: CamelliaCall) -> None:
    """`getMonitorData`."""
    window = _window(call)
    data = {
        "requestStatsList": [*window.requests.values()],
        "pullMsgTimeGapStatsList": [*window.pulls.values()],
        "readyQueueTimeGapStatsList": [*window.dues.values()],
    }
    _respond(call, data)


def topic_info(call: CamelliaCall) -> None:
    """`getTopicInfo`."""
    name = shown(call.params.required(b"topic"))
    if call.may(name, name):
        _respond(call, info_of(call.context, name))


def topic_list(call: CamelliaCall) -> None:
    """`getTopicInfoList`."""
    _respond(call, _infos(call))


def monitor_string(call: CamelliaCall) -> None:
    """`getMonitorString`: the same once more, for one program of the original's makers."""
    window, infos = _window(call), _infos(call)
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
    call.reply().respond(200, TEXT, _encode(document))


def metrics(call: CamelliaCall) -> None:
    """`/metrics`."""
    window, infos = _window(call), _infos(call)
    call.reply().respond(200, TEXT, encode_metrics(call.context, window, infos))


# -- health ------------------------------------------------------------------------------------


def _respond_health(call: CamelliaCall, well: bool) -> None:
    code = 200 if well else 500
    call.reply().respond(code, TEXT, b'{"code":%d}' % code)


def health_status(call: CamelliaCall) -> None:
    _respond_health(call, call.context.health.online)


def health_check(call: CamelliaCall) -> None:
    _respond_health(call, True)


def health_online(call: CamelliaCall) -> None:
    call.context.health.online = True
    _respond_health(call, True)


def health_offline(call: CamelliaCall) -> None:
    """Answered with 200 once no client uses the broker any more."""
    health = call.context.health
    health.online = False
    _respond_health(call, health.quiet(call.context.broker.now_ms))
