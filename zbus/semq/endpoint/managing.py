"""Management of an endpoint by people: `stat`, `list`, `dead`, `retry`, `release`,
alarms."""

from __future__ import annotations

from typing import Any, Final

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.events import ORDERS, ROUTES, Happened, Manage, Refused, Reported, Submit
from zbus.semq.endpoint.inbox import Inbox
from zbus.semq.endpoint.links import Links
from zbus.semq.endpoint.outbox import Outbox
from zbus.semq.endpoint.schema import ALARMING
from zbus.semq.protocol.words import (
    APP_KEY_BYTES_MAX,
    PLATFORM,
    Fields,
    Level,
    Malformed,
    read_node,
)

_LIST_MAX: Final = 1_000
_COMPLAINTS_MAX: Final = 100


def problem_of(wish: Submit, max_bytes: int, direct: bool) -> tuple[int, str] | None:
    """Why a message is refused: status, and text. `direct`: others may be called."""
    if wish.level not in (Level.DROP, Level.STORE, Level.ARRIVE):
        return 400, f"the level is 1, 2 or 3, not {wish.level}"
    if not wish.reliable and (wish.level != Level.DROP or wish.ack2):
        return 400, "a message that need not be reliable has level 1, and no receipt"
    if wish.route not in ROUTES:
        return 400, f"the route is one of {', '.join(ROUTES)}"
    if wish.route == "direct" and not direct:
        return 400, "this endpoint sends nothing directly"
    if wish.destination.node == PLATFORM and wish.route == "direct":
        return 400, "topics are reached over the platform"
    if wish.destination.node == PLATFORM and not wish.destination.user:
        return 400, f"the platform has topics: {PLATFORM}/<topic>"
    if len(wish.app_key.encode("utf-8", "replace")) > APP_KEY_BYTES_MAX:
        return 400, f"the app key has at most {APP_KEY_BYTES_MAX} bytes"
    if not wish.app_key.isprintable():
        return 400, "the app key has control characters"
    if len(wish.body) > max_bytes:
        return 413, f"a message has at most {max_bytes} bytes"
    return None


class Managing:
    def __init__(self, context: Context, links: Links, outbox: Outbox, inbox: Inbox) -> None:
        self._context = context
        self._links = links
        self._outbox = outbox
        self._inbox = inbox
        self._complaints: list[dict[str, Any]] = []
        self._alarm_ms = 0

    def do(self, order: Manage) -> None:
        """One order."""
        fields = Fields(order.fields)
        try:
            if order.command not in ORDERS:
                raise Malformed(f"{order.command} is none of {', '.join(ORDERS)}")
            found = getattr(self, f"_{order.command}")(fields)
            self._context.effects.append(Reported(order.ask, found))
        except Malformed as error:
            self._context.effects.append(Refused(order.ask, 400, str(error)))

    def complain(self, node: str, text: str) -> None:
        """A node sent something impossible: keep it for the operator."""
        self._complaints.append({"at": self._context.now_ms, "node": node, "text": text[:200]})
        del self._complaints[:-_COMPLAINTS_MAX]

    def _stat(self, fields: Fields) -> dict[str, Any]:
        context, links = self._context, self._links
        rows = context.execute(
            "SELECT node, ss_status, count(*), min(created), max(error), min(next_time)"
            " FROM tb_0031 GROUP BY node, ss_status"
        ).fetchall()
        destinations: dict[str, dict[str, Any]] = {}
        for node, state, count, oldest, error, next_ms in rows:
            one = destinations.setdefault(
                node, {"oldest_ms": 0, "error": "", "next_retry_ms": None}
            )
            one[state] = count
            one["oldest_ms"] = max(one["oldest_ms"], context.now_ms - oldest)
            one["error"] = error or one["error"]
            one["next_retry_ms"] = next_ms or one["next_retry_ms"]
        for node, one in destinations.items():
            one["online"] = links.believed(node)
            one["way"] = next(iter(links.routes(node)), "")
        inbox = context.execute(
            "SELECT app_state, count(*) FROM tb_0030 GROUP BY app_state"
        ).fetchall()
        held = context.execute(
            "SELECT node, count(*) FROM tb_0030 WHERE app_state = 'HELD' GROUP BY node"
        ).fetchall()
        return {
            "node": context.options.node,
            "epoch": context.epoch,
            "platform": links.platform is not None,
            "peers": sorted(links.peers),
            "outbox_bytes": self._outbox.bytes_used,
            "outbox": destinations,
            "inbox": dict(inbox),
            "held": dict(held),
            "dead": context.execute("SELECT count(*) FROM semq_dead").fetchone()[0],
            "complaints": self._complaints,
        }

    def _list(self, fields: Fields) -> list[dict[str, Any]]:
        """Rows of the outbox, or with `box=in` of the inbox."""
        most = fields.number("count", 100, 1, _LIST_MAX)
        node, state = fields.text("node"), fields.text("state")
        if fields.text("box") == "in":
            query = (
                "SELECT object_id AS row, src, lk0, lk1, p_need, p_ack_status, s_need,"
                " s_ack_status, app_state, user, app_key, length(umx) AS bytes, created FROM"
                " tb_0030 WHERE (? = '' OR node = ?) AND (? = '' OR app_state = ?)"
            )
        else:
            query = (
                "SELECT object_id AS row, dst, savefwd, ack2, epoch, stream, seq, ss_status, via,"
                " attempt, app_key, length(umx) AS bytes, created, next_time, expires, error FROM"
                " tb_0031 WHERE (? = '' OR node = ?) AND (? = '' OR ss_status = ?)"
            )
        return self._documents(
            f"{query} ORDER BY object_id LIMIT ?", node, node, state, state, most
        )

    def _dead(self, fields: Fields) -> list[dict[str, Any]]:
        most = fields.number("count", 100, 1, _LIST_MAX)
        return self._documents(
            "SELECT object_id AS row, dst, mid, app_key, length(umx) AS bytes, created, died, why"
            " FROM semq_dead ORDER BY object_id LIMIT ?",
            most,
        )

    def _documents(self, query: str, *values: object) -> list[dict[str, Any]]:
        cursor = self._context.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _retry(self, fields: Fields) -> dict[str, Any]:
        """What waits is sent, or asked for, now: all, those for a node, or one row."""
        node, row = fields.text("node"), fields.number("row", 0)
        changed = self._context.execute(
            "UPDATE tb_0031 SET next_time = CASE ss_status WHEN 'SS_INIT' THEN 0 ELSE ? END,"
            " inq_count = 0 WHERE (? = '' OR node = ?) AND (? = 0 OR object_id = ?)"
            " AND ss_status <> 'SS_DEAD'",
            (self._context.now_ms, node, node, row, row),
        ).rowcount
        self._outbox.expect_all()
        return {"changed": changed}

    def _release(self, fields: Fields) -> dict[str, Any]:
        """Ordered messages of a node wait no more for what is missing before them."""
        return {"changed": self._inbox.release(read_node(fields.required("node")))}

    # -- alarms -------------------------------------------------------------------------------

    def alarm(self) -> None:
        """Messages without progress for too long: each is reported once."""
        context = self._context
        if context.now_ms < self._alarm_ms:
            return
        self._alarm_ms, alarm_ms = 0, context.options.alarm_ms
        late = context.now_ms - alarm_ms
        rows = context.execute(
            "UPDATE tb_0031 SET alarmed = 1 WHERE object_id IN (SELECT object_id FROM tb_0031"
            " WHERE alarmed = 0 AND created <= ? LIMIT 100) RETURNING object_id, dst, ss_status",
            (late,),
        ).fetchall()
        for record, dst, state in rows:
            text = f"the message for {dst} is {state} since more than {alarm_ms} ms"
            context.effects.append(Happened("alarm", record, text))
        rows = context.execute(
            "UPDATE tb_0030 SET alarmed = 1 WHERE object_id IN (SELECT object_id FROM tb_0030"
            f" INDEXED BY tb_0030_alarm WHERE {ALARMING} AND created <= ? LIMIT 100)"
            " RETURNING object_id, src, app_state = 'HELD'",
            (late,),
        ).fetchall()
        for record, src, held in rows:
            why = "waits for those before it" if held else "is not known to have come"
            text = f"message {record} from {src} {why} since more than {alarm_ms} ms"
            context.effects.append(Happened("alarm", 0, text))

    def due_ms(self) -> int | None:
        """When one is due next."""
        if self._alarm_ms == 0:
            found = self._context.execute(
                "SELECT min(created) FROM tb_0031 WHERE alarmed = 0 UNION ALL SELECT min(created)"
                f" FROM tb_0030 INDEXED BY tb_0030_alarm WHERE {ALARMING}"
            ).fetchall()
            oldest = [created_ms for (created_ms,) in found if created_ms is not None]
            if not oldest:
                return None
            due_ms: int = min(oldest) + self._context.options.alarm_ms
            self._alarm_ms = max(due_ms, self._context.now_ms + 1)
        return self._alarm_ms
