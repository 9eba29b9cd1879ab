"""Under which name a plan is counted: its command, or its dialect."""

from __future__ import annotations

from zbus.dialects.registry import DIALECTS
from zbus.dialects.zbus.dialect import COMMANDS
from zbus.dialects.zbus.inspect.message_admin import Order
from zbus.dialects.zbus.messages.consume import Consume
from zbus.dialects.zbus.replies import Answered
from zbus.edge.proxies import ForClient
from zbus.edge.rights import Guarded
from zbus.edge.shape_plans import OfShape
from zbus.edge.websocket import Close, Pong, Upgrade

_NAMES: dict[type, str] = {
    plan: name.decode() for name, plan in reversed(COMMANDS.items()) if isinstance(plan, type)
}
_NAMES |= {Consume: "consume", Upgrade: "websocket", Pong: "websocket", Close: "websocket"}
_OTHERS = DIALECTS.keys() - {"native"}


def name_of(plan: object) -> str:
    """The command, or the dialect if that is not the native one; `refused` if it came to nothing
    that may be done."""
    while isinstance(plan, ForClient | OfShape):
        plan = plan.plan
    if type(plan) is Guarded:
        plan = plan.passed()
    if isinstance(plan, Order | Answered):  # one plan of several commands
        return plan.command
    kind = type(plan)
    # `zbus.dialects.camellia.pulls` is camellia's, `zbus.edge.pages` is of the pages.
    dialect = (*kind.__module__.split("."), "", "")[2]
    return dialect if dialect in _OTHERS else _NAMES.get(kind, "refused")
