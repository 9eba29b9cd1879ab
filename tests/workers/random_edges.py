"""The tests of what clients see, against three workers, with requests that reach a random one.

    python -m pytest -p tests.workers.random_edges tests/dialects tests/conformance

Every `World` that a test makes is one of three workers (`tests.workers.edges`). `EDGES_SEED=7` has
the requests reach others. A test that looks into the one broker skips itself; what is otherwise
about one process is in the table, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

import zbus.testing.world as one
from tests.workers.edges import Edges

vars(one)["World"] = Edges  # before a test has imported it

COUNTED: Final = "limits, and the pace of what is told, count in each process"
UNTAKEN: Final = "what a client does not take waits in each process that it passes"
BRACES: Final = "its topics are not with the mailboxes"
ORDER: Final = "what several processes say is put together, in another order"
SESSIONS: Final = "a client has a session in each process, and ids of sessions say which"
ELSEWHERE: Final = "another process has the other topic"

SKIPPED: Final[dict[str, str]] = {
    "dialects/adf/test_order.py::test_answers_that_were_read_and_answers_that_were_not": UNTAKEN,
    "dialects/adf/test_ownership.py::test_what_could_not_be_sent_was_not_pulled": UNTAKEN,
    "dialects/camellia/test_failures.py::test_more_topics_than_there_may_be": COUNTED,
    "dialects/camellia/test_reports.py::test_empty_topics_leave_the_list": ORDER,
    "dialects/mqcloud/test_bad_input.py::test_a_bad_input[another topic": "another text",
    "dialects/semq/test_confirming.py::test_confirmations_are_taken_when_messages_are": UNTAKEN,
    "dialects/semq/test_delivering.py::test_another_instance_does_not_stand_in": UNTAKEN,
    "dialects/semq/test_links.py::test_who_takes_nothing_is_not_silent": UNTAKEN,
    "dialects/semq/test_rights.py::test_topics": BRACES,
    "dialects/semq/test_sending.py::test_refused[no topic of that name": BRACES,
    "dialects/semq/test_sending.py::test_a_connection_that_takes_nothing_is_none": UNTAKEN,
    "dialects/semq/test_sending.py::test_what_is_not_reliable_is_the_first_to_be_shed": UNTAKEN,
    "dialects/semq/test_topics.py": BRACES,
    "dialects/test_every_dialect.py*semq]": BRACES,
    "dialects/test_every_dialect.py::test_at_the_stop_who_waits_is_told": "it stops the one broker",
    "dialects/test_every_dialect.py::test_who_reads_nothing_is_given_no_more": UNTAKEN,
    "conformance/test_ack_and_produce.py": ELSEWHERE,
    "conformance/test_bad_input.py::TestMalformed::test_a_waiting_pull_does_not": SESSIONS,
    "conformance/test_batches.py::TestIn::test_messages": SESSIONS,
    "conformance/test_batches.py::TestOut::test_objects": SESSIONS,
    "conformance/test_batches.py::test_and_with_heads_and_bodies_it_is_the_same": SESSIONS,
    "conformance/test_batches.py::test_what_a_consumer_got_may_be_fed_back": SESSIONS,
    "conformance/test_bugs_fixed.py::test_2_errors_do_not_close_the_connection": SESSIONS,
    "conformance/test_bugs_fixed.py::test_19_the_exclusive_check": ORDER,
    "conformance/test_delivered_headers.py": SESSIONS,
    "conformance/test_events.py::TestSlowReaders": UNTAKEN,
    "conformance/test_head_sizes.py::test_the_origin_of_a_dead_letter": ELSEWHERE,
    "conformance/test_idempotent_produce.py::TestTheIdAsKey::test_many_at_once": ORDER,
    "conformance/test_large_replies.py": UNTAKEN,
    "conformance/test_leases.py::test_scattered_offsets_are_paid_for": COUNTED,
    "conformance/test_limits.py::test_what_waits_is_counted_until": COUNTED,
    "conformance/test_metrics.py::test_an_open_stream_does_not_change": COUNTED,
    "conformance/test_metrics.py::test_series_are_bounded": COUNTED,
    "conformance/test_ordering.py::test_puts_of_one_ticket_keep_their_own_ids": ORDER,
    "conformance/test_push_credit.py::test_a_large_window_gives_way": UNTAKEN,
    "conformance/test_push_credit.py::test_a_session_that_takes_nothing": UNTAKEN,
    "conformance/test_query_names.py::test_the_broker_itself": COUNTED,
    "conformance/test_rpc_and_route.py::TestAnswer": SESSIONS,
    "conformance/test_rpc_and_route.py::TestRoute": SESSIONS,
    "conformance/test_specification_tables.py::test_section_3_1": SESSIONS,
    "conformance/test_staged.py::test_what_is_refused[a topic of services": ELSEWHERE,
    "conformance/test_standby.py::test_it_takes_over*unconsume]": SESSIONS,
    "conformance/test_stats.py::test_the_document": SESSIONS,
    "conformance/test_stats.py::test_tokens_see_their_part": SESSIONS,
    "conformance/test_stats.py::test_who_is_connected": SESSIONS,
    "conformance/test_trackers.py::TestDeclareAndProduceAtOnce": COUNTED,
    "conformance/test_trackers.py::test_changes_of_a_turn_are_one_push": COUNTED,
    "conformance/test_trackers.py::test_ten_pushes_a_second_at_most": COUNTED,
    "conformance/test_trackers.py::test_long_documents_are_pushed_less_often": COUNTED,
    "conformance/test_trackers.py::test_followers_that_come_amid_changes": COUNTED,
    "conformance/test_trackers.py::test_a_long_document_is_not_made_for_everybody": COUNTED,
    "conformance/test_trackers.py::test_one_long_document_at_a_time": COUNTED,
    "conformance/test_trackers.py::test_so_much_is_pushed_at_a_time": COUNTED,
    "conformance/test_websocket.py::test_a_call_that_waits_is_told_before": "tests/process has it",
    "conformance/test_websocket.py::test_no_split_and_no_fragmentation": SESSIONS,
    "conformance/test_why.py": ELSEWHERE,
}
"""Files, tests of one, or rows of one; and why they are not run. A star stands for what is between
a beginning and an end."""


def pytest_configure(config: pytest.Config) -> None:
    """Each row is a test (`tests.rows`), since some skip themselves."""
    config.option.keyword = config.option.keyword or "test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip(items, SKIPPED)


def skip(items: list[pytest.Item], table: Mapping[str, str]) -> None:
    """Each test of which the table has the beginning of the name, and the end behind a star."""
    names = [item.nodeid.partition("tests/")[2] for item in items]
    for begin, reason in table.items():
        start, _, end = begin.partition("*")
        for item, name in zip(items, names, strict=True):
            if name.startswith(start) and name.endswith(end):
                item.add_marker(pytest.mark.skip(reason=reason))
