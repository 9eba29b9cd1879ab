"""All that dialects, the server and tests of programs may use of the core.

`Broker` has the verbs, topics and sessions; outcomes are how tickets end; `PullOptions` say what a
pull wants; views (`Progress`, `LeasedOffsets`) show groups to those who only look. The cursor,
dispatch and the commit of a turn are behind this page: they can change without a dialect's notice.
`tests/test_tidy.py` sees to it that nothing else of the core is imported, or reached through an
attribute.

Tests: `tests/test_tidy.py`.
"""

from __future__ import annotations

from zbus.core.broker import Broker
from zbus.core.cursor.priority_order import PRIORITY_MAX
from zbus.core.cursor.ranges import Ranges
from zbus.core.cursor.state import GroupChange, GroupOptions, StateChange, TopicOptions
from zbus.core.dedup.window import OWN_KEY, id_name
from zbus.core.delivery.retries import ATTEMPTS_MAX, LOSSES, pause_ms
from zbus.core.diagnosis.dead_letter_lookup import Letter
from zbus.core.diagnosis.why import Cause, Why
from zbus.core.diagnosis.why import ask as explain
from zbus.core.fanout.follow import SERVICES
from zbus.core.model.chunk import Chunk, Row, implied_id, make_row
from zbus.core.model.containment import Containment, Fault
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import (
    BrokerError,
    InDoubt,
    Outcome,
    Refusal,
    dead_letter_unknown,
    group_unknown,
    offset_outside,
    topic_unknown,
)
from zbus.core.model.filters import FILTER_BYTES_MAX, compile_filter
from zbus.core.model.histogram import MS_BOUNDS, S_BOUNDS, Histogram
from zbus.core.model.lateness import Lateness
from zbus.core.model.limits import DEFAULT_LIMITS, DELAY_MS_MAX, Limits
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.names import NAME_BYTES_MAX, name_problem
from zbus.core.model.pull_options import ENDLESS, ONE, EmptyReason, PullOptions
from zbus.core.model.rate_limit import RATE_MAX
from zbus.core.model.schema import COMPATIBILITIES as SCHEMA_COMPATIBILITIES
from zbus.core.model.schema import SCHEMA_BYTES_MAX, Misfit, Schema
from zbus.core.model.schema import compiled as compile_schema
from zbus.core.model.schema import moved as moved_schema
from zbus.core.model.ticket import Calling, Opening, Silent, Ticket
from zbus.core.model.webhook import CONCURRENCY_MAX as PUSH_CONCURRENCY_MAX
from zbus.core.model.webhook import ENDPOINT_BYTES_MAX as PUSH_ENDPOINT_BYTES_MAX
from zbus.core.model.webhook import SECRET_BYTES_MAX as PUSH_SECRET_BYTES_MAX
from zbus.core.model.webhook import SECRETS_MAX as PUSH_SECRETS_MAX
from zbus.core.model.webhook import TIMEOUT_MS_MAX as PUSH_TIMEOUT_MS_MAX
from zbus.core.model.webhook import TIMEOUT_MS_MIN as PUSH_TIMEOUT_MS_MIN
from zbus.core.model.webhook import Push, PushState
from zbus.core.patterns.completions import Source
from zbus.core.patterns.schedules import CRON as CRON_LINE
from zbus.core.patterns.schedules import CRON_BYTES_MAX, ZONE_BYTES_MAX
from zbus.core.patterns.schedules import PREFIX as SCHEDULES_PREFIX
from zbus.core.patterns.schedules import ZONE as ZONE_LINE
from zbus.core.patterns.schedules import without_lines as without_schedule_lines
from zbus.core.patterns.transaction_log import Stage
from zbus.core.patterns.transactions import PREFIX as TRANSACTIONS_PREFIX
from zbus.core.patterns.transactions import ROWS as TRANSACTION_ROWS
from zbus.core.persistence.replay import recover
from zbus.core.persistence.storage import MEMORY_TOPIC_BYTES_MAX, Storage
from zbus.core.timing.delays import PAGE as DELAYS_PAGE
from zbus.core.timing.delays import Delays
from zbus.core.timing.timers import Timer
from zbus.core.topics.changes import PAUSE_MS as CHANGES_PAUSE_MS
from zbus.core.topics.changes import Changes
from zbus.core.topics.elsewhere import RemoteTopic
from zbus.core.topics.outcomes import (
    DONE,
    Changed,
    Committed,
    Declared,
    Delivered,
    Done,
    Duplicate,
    Empty,
    Moved,
    Peeked,
    Raw,
    Routed,
    Searched,
    Slice,
    Stored,
)
from zbus.core.topics.point_reads import Place, PointReads
from zbus.core.topics.topic import Group, Partition, Pull, Session, Topic
from zbus.core.topics.views import LeasedOffsets, Progress
from zbus.core.verbs.declare import DURABILITIES, GroupWish
from zbus.core.verbs.listing import FIRST as LISTING_FIRST
from zbus.core.verbs.listing import STATES as LISTED_STATES
from zbus.core.verbs.listing import Key as ListingKey
from zbus.core.verbs.listing import Listing
from zbus.core.verbs.listing import Row as ListedRow
from zbus.core.verbs.listing import Wanted as ListingWanted
from zbus.core.verbs.message_admin import find_id, locate_id
from zbus.core.verbs.puts import AGAIN as PUT_AGAIN
from zbus.core.verbs.puts import FORWARDED as PUT_FORWARDED
from zbus.core.verbs.puts import FRONT as PUT_IN_FRONT
from zbus.core.verbs.puts import PLAIN as PUT_PLAIN
from zbus.core.verbs.puts import WHEN_DUE as PUT_WHEN_DUE
from zbus.core.verbs.puts import PutOptions, PutPlace
from zbus.core.verbs.search import SCAN_MAX
from zbus.core.verbs.search import Wanted as SearchWanted
from zbus.core.verbs.seek import Check as SeekCheck
from zbus.core.verbs.seek import Start

__all__ = [
    "ATTEMPTS_MAX",
    "CHANGES_PAUSE_MS",
    "CRON_BYTES_MAX",
    "CRON_LINE",
    "DEFAULT_LIMITS",
    "DELAYS_PAGE",
    "DELAY_MS_MAX",
    "DONE",
    "DURABILITIES",
    "ENDLESS",
    "FILTER_BYTES_MAX",
    "LISTED_STATES",
    "LISTING_FIRST",
    "LOSSES",
    "MEMORY_TOPIC_BYTES_MAX",
    "MS_BOUNDS",
    "NAME_BYTES_MAX",
    "ONE",
    "OWN_KEY",
    "PRIORITY_MAX",
    "PUSH_CONCURRENCY_MAX",
    "PUSH_ENDPOINT_BYTES_MAX",
    "PUSH_SECRETS_MAX",
    "PUSH_SECRET_BYTES_MAX",
    "PUSH_TIMEOUT_MS_MAX",
    "PUSH_TIMEOUT_MS_MIN",
    "PUT_AGAIN",
    "PUT_FORWARDED",
    "PUT_IN_FRONT",
    "PUT_PLAIN",
    "PUT_WHEN_DUE",
    "RATE_MAX",
    "SCAN_MAX",
    "SCHEDULES_PREFIX",
    "SCHEMA_BYTES_MAX",
    "SCHEMA_COMPATIBILITIES",
    "SERVICES",
    "S_BOUNDS",
    "TRANSACTIONS_PREFIX",
    "TRANSACTION_ROWS",
    "ZONE_BYTES_MAX",
    "ZONE_LINE",
    "Broker",
    "BrokerError",
    "Calling",
    "Cause",
    "Changed",
    "Changes",
    "Chunk",
    "Committed",
    "Containment",
    "Declared",
    "Delays",
    "Delivered",
    "Disposition",
    "Done",
    "Duplicate",
    "Empty",
    "EmptyReason",
    "Fault",
    "Group",
    "GroupChange",
    "GroupOptions",
    "GroupWish",
    "Histogram",
    "InDoubt",
    "Lateness",
    "LeasedOffsets",
    "Letter",
    "Limits",
    "ListedRow",
    "Listing",
    "ListingKey",
    "ListingWanted",
    "Message",
    "MessageState",
    "Misfit",
    "Moved",
    "Opening",
    "Outcome",
    "Partition",
    "Peeked",
    "Place",
    "PointReads",
    "Progress",
    "Pull",
    "PullOptions",
    "Push",
    "PushState",
    "PutOptions",
    "PutPlace",
    "Ranges",
    "Raw",
    "Refusal",
    "RemoteTopic",
    "Routed",
    "Row",
    "Schema",
    "SearchWanted",
    "Searched",
    "SeekCheck",
    "Session",
    "Silent",
    "Slice",
    "Source",
    "Stage",
    "Start",
    "StateChange",
    "Storage",
    "Stored",
    "Ticket",
    "Timer",
    "Topic",
    "TopicOptions",
    "Why",
    "compile_filter",
    "compile_schema",
    "dead_letter_unknown",
    "explain",
    "find_id",
    "group_unknown",
    "id_name",
    "implied_id",
    "locate_id",
    "make_row",
    "moved_schema",
    "name_problem",
    "offset_outside",
    "pause_ms",
    "recover",
    "topic_unknown",
    "without_schedule_lines",
]
