"""Sections 5.1, 7 and 9 of the specification: a row of the outbox, line by line."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.semq.desk import INTERVAL_MS, A, B, C, Desk
from zbus.semq.endpoint.events import Happened, Refused, Transmit
from zbus.semq.endpoint.schema import StoreError
from zbus.semq.protocol.words import SILENCE_MS


def answer(desk: Desk, link: int, record: int, attempt: int = 1, **fields: Any) -> None:
    """The platform's, to a `semq_send`."""
    status = int(str(fields.pop("status", 200)))
    desk.came(link, b"text", status, id=f"m{record}.{attempt}", **fields)


def about(desk: Desk, seq: int = 1, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"lk0": f"{A}/1/1/1", "epoch": desk.epoch(), "stream": 3}
    return {**fields, "seq": seq, **more}


FORWARDED: dict[str, Any] = {"ack_flag": 1, "flag": 1}
SAVED: dict[str, Any] = {"ack_flag": 1, "flag": 2}


def in_state(state: str, ack2: bool = False) -> tuple[Desk, int]:
    """One row to B in a state, and the link of the platform."""
    desk = Desk(direct=False)
    link = desk.platform()
    desk.submit(ack2=ack2)
    if state in ("SS_ACK_FWD", "SS_ACK"):
        answer(desk, link, 1, **(FORWARDED if state == "SS_ACK_FWD" else SAVED))
    assert desk.states() == [state]
    desk.said()
    return desk, link


def test_submit_commits_a_row_and_sends_when_a_route_is_up() -> None:
    desk = Desk(direct=False)
    assert desk.submit() == 1
    assert (desk.states(), desk.words()) == (["SS_INIT"], [])
    desk.platform()
    assert (desk.states(), desk.words()) == (["SS_SENT"], [f"send {B} 1"])
    assert Happened("sent", 1, "platform") in desk.effects


@pytest.mark.parametrize(
    ("ack2", "flag", "states"),
    [
        (False, FORWARDED, ["SS_ACK_FWD"]),
        (True, FORWARDED, ["SS_ACK_FWD"]),
        (False, SAVED, []),
        (True, SAVED, ["SS_ACK"]),
    ],
)
def test_ack_fwd_and_ack_save(ack2: bool, flag: dict[str, Any], states: list[str]) -> None:
    desk, link = in_state("SS_SENT", ack2)
    answer(desk, link, 1, **flag)
    assert desk.states() == states, "SS_ACK without a receipt is final, and goes"


def test_ack_fwd_after_ack_save_is_ignored() -> None:
    desk, link = in_state("SS_ACK", ack2=True)
    answer(desk, link, 1, **FORWARDED)
    assert desk.states() == ["SS_ACK"]


ENDS: list[tuple[str, bool]] = [
    ("SS_SENT", False),
    ("SS_ACK_FWD", False),
    ("SS_SENT", True),
    ("SS_ACK_FWD", True),
    ("SS_ACK", True),
]


@pytest.mark.parametrize(("state", "ack2"), ENDS)
@pytest.mark.parametrize("how", ["ack2", "inquiry_resp", "inquiry"])
def test_whatever_says_that_b_has_it_is_final(how: str, state: str, ack2: bool) -> None:
    desk, link = in_state(state, ack2)
    fields = about(desk, src=B, dst=A)
    if how == "ack2":
        desk.came(link, status=200, cmd="semq_ack", ack_flag=2, **fields)
        assert desk.words() == [f"reack2 {B} 1"]
    elif how == "inquiry_resp":
        desk.came(link, status=200, cmd="semq_inquiry_resp", about="send", result=1, **fields)
        assert desk.words() == [f"reack2 {B} 1"]
    else:
        desk.came(link, status=200, cmd="semq_inquiry", about="ack", **fields)
        assert desk.words() == [f"inquiry_resp ack 1 {B} 1"]
    assert desk.states() == []
    assert (Happened("received", 1, "") in desk.effects) is ack2


def test_ack2_of_what_is_gone_is_answered_again() -> None:
    desk, link = in_state("SS_ACK_FWD")
    for _ in range(2):
        desk.came(link, status=200, cmd="semq_ack", ack_flag=2, **about(desk, src=B, dst=A))
    assert desk.words() == [f"reack2 {B} 1"] * 2


def test_ack2_of_somebody_else_ends_nothing() -> None:
    desk, link = in_state("SS_ACK_FWD")
    desk.came(link, status=200, cmd="semq_ack", ack_flag=2, **about(desk, src=C, dst=A))
    assert desk.states() == ["SS_ACK_FWD"]


@pytest.mark.parametrize(
    ("state", "asked"),
    [("SS_SENT", "0:1"), ("SS_ACK_FWD", B), ("SS_ACK", B)],
)
def test_whom_it_asks_after_the_interval(state: str, asked: str) -> None:
    desk, _ = in_state(state, ack2=True)
    desk.wait(INTERVAL_MS - 1)
    assert desk.words() == []
    desk.wait(2)
    assert desk.words() == [f"inquiry send {asked} 1"]


@pytest.mark.parametrize(
    ("state", "who", "result", "after"),
    [
        ("SS_SENT", "0:1", 1, ["SS_ACK"]),
        ("SS_ACK_FWD", "0:1", 1, ["SS_ACK"]),
        ("SS_SENT", "0:1", 0, ["SS_SENT again"]),
        ("SS_ACK", "0:1", 0, ["SS_SENT again"]),
        ("SS_ACK_FWD", "0:1", 0, ["SS_ACK_FWD"]),
        ("SS_SENT", B, 0, ["SS_SENT again"]),
        ("SS_ACK_FWD", B, 0, ["SS_SENT again"]),
        ("SS_ACK", B, 0, ["SS_ACK"]),
    ],
)
def test_answers_to_questions(state: str, who: str, result: int, after: list[str]) -> None:
    desk, link = in_state(state, ack2=True)
    fields = about(desk, src=who, dst=A, attempt=1, topic=f"semq/{B}")
    desk.came(link, status=200, cmd="semq_inquiry_resp", about="send", result=result, **fields)
    words = desk.words()
    again = " again" * (f"send {B} 1" in words)
    assert [state + again for state in desk.states()] == after
    if (state, who) == ("SS_ACK", B):
        assert words == ["inquiry send 0:1 1"], "the platform stores it, or has lost it"


def test_an_answer_to_an_older_attempt_is_ignored() -> None:
    desk, link = in_state("SS_SENT")
    fields = about(desk, src="0:1", dst=A, topic=f"semq/{B}")
    say: dict[str, Any] = {"cmd": "semq_inquiry_resp", "about": "send", "result": 0, **fields}
    desk.came(link, status=200, attempt=1, **say)
    assert desk.words() == [f"send {B} 1"]
    desk.came(link, status=200, attempt=1, **say)
    assert desk.words() == []


@pytest.mark.parametrize("status", [429, 503, 507])
def test_no_room_for_now(status: int) -> None:
    desk, link = in_state("SS_SENT")
    answer(desk, link, 1, status=status)
    assert (desk.states(), desk.words()) == (["SS_INIT"], [])
    desk.wait(3 * INTERVAL_MS)
    assert desk.words()[0] == f"send {B} 1"


@pytest.mark.parametrize(
    ("status", "states"),
    [(404, []), (410, ["SS_SENT"]), (413, ["SS_SENT"]), (422, ["SS_SENT"]), (403, ["SS_SENT"])],
)
def test_a_refusal_for_good_is_dead_and_leaves_no_gap(status: int, states: list[str]) -> None:
    desk, link = in_state("SS_SENT")
    answer(desk, link, 1, status=status, reason="unknown")
    assert desk.states() == states
    dead = [one for one in desk.effects if isinstance(one, Happened) and one.kind == "dead"]
    assert [one.record for one in dead] == [1]
    assert [row["row"] for row in desk.manage("dead")] == [1]
    void = [(frame.fields["seq"], frame.fields["void"], frame.body) for frame in desk.said()]
    assert void == ([("1", "1", b"")] if states else []), "nobody is there who would miss it"


def test_a_doubled_refusal_does_not_end_the_void_message() -> None:
    desk, link = in_state("SS_SENT")
    desk.came(link, b"", 410, id="m1.1", reason="expired")
    desk.came(link, b"", 410, id="m1.1", reason="expired")
    assert desk.states() == ["SS_SENT"]


def test_a_void_message_is_sent_as_often_as_it_takes() -> None:
    """The limit of attempts is the message's: a gap would hold up all ordered ones for ever."""
    desk = Desk(direct=False, attempts_max=1)
    link = desk.platform()
    desk.submit()
    fields = about(desk, src="0:1", dst=A, topic=f"semq/{B}", about="send", result=0)
    for attempt in (1, 2, 3):
        desk.came(link, status=200, cmd="semq_inquiry_resp", attempt=attempt, **fields)
    assert [frame.fields.get("void") for frame in desk.said()] == [None, "1", "1", "1"]
    assert [row["row"] for row in desk.manage("dead")] == [1]


def test_a_platform_without_room_says_when_to_come_again_and_that_is_no_attempt() -> None:
    desk = Desk(direct=False, attempts_max=2)
    link = desk.platform()
    desk.submit()
    answer(desk, link, 1, status=429, reason="too-many", **{"retry-after": 1})
    desk.wait(1_900)
    assert len(desk.said("semq_send")) == 1
    desk.wait(200)
    assert len(desk.said("semq_send")) == 1
    answer(desk, link, 1, 2, status=429, reason="too-many", **{"retry-after": 3_600})
    desk.wait(3_500_000)
    assert desk.words() == []
    desk.wait(100_100)
    assert desk.words() == [f"send {B} 1"]
    assert desk.manage("dead") == []


def test_what_expired_on_its_way_was_not_received() -> None:
    """Its number came, with a void message in its place."""
    for how in ("semq_ack", "semq_inquiry_resp"):
        desk, link = in_state("SS_ACK", ack2=True)
        more = {"ack_flag": 2} if how == "semq_ack" else {"about": "send", "result": 1}
        desk.came(link, status=200, cmd=how, void=1, **more, **about(desk, src=B, dst=A))
        kinds = [one.kind for one in desk.effects if isinstance(one, Happened)]
        assert (kinds, desk.states(), desk.words()) == (["sent", "dead"], [], [f"reack2 {B} 1"])
        (dead,) = desk.manage("dead")
        assert dead["mid"] == f"{A}/1/1/1/{desk.epoch()}/3/1"


def test_a_void_message_that_was_confirmed_as_such_is_no_second_death() -> None:
    desk, link = in_state("SS_SENT")
    answer(desk, link, 1, status=410, reason="expired")
    desk.came(link, status=200, cmd="semq_ack", ack_flag=2, void=1, **about(desk, src=B, dst=A))
    assert (desk.states(), len(desk.manage("dead"))) == ([], 1)


def test_the_platform_says_that_another_program_is_this_node() -> None:
    desk, link = in_state("SS_SENT")
    desk.came(link, status=200, cmd="semq_bye", reason="replaced", src="0:1")
    (alarm,) = [one for one in desk.effects if isinstance(one, Happened) and one.kind == "alarm"]
    (complaint,) = desk.manage("stat")["complaints"]
    assert alarm.text == complaint["text"] == f"another program says that it is {A}, too"


def test_mids_that_applications_see_are_unique() -> None:
    desk = Desk(direct=False)
    answers = [desk.try_submit(node) for node in (B, C)]
    mids = [one.mid for one in answers if not isinstance(one, Refused)]
    assert mids == [f"{A}/1/1/{record}/{desk.epoch()}/3/1" for record in (1, 2)]


def test_a_message_expires() -> None:
    desk = Desk(direct=False)
    desk.submit(expires_ms=desk.now_ms + 1_000)
    desk.submit(body=b"two")
    desk.wait(1_001)
    desk.platform()
    sent = [(frame.fields.get("void"), frame.body) for frame in desk.said()]
    assert sent == [("1", b""), (None, b"two")]


def test_level_1_keeps_no_row_and_says_all_that_it_has_to() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    sealed = {"encrypt": "1", "session_key": "k"}
    desk.submit(level=1, app_key="a", expires_ms=desk.now_ms + 1, sealed=sealed)
    (sent,) = desk.said("semq_send")
    names = ("encrypt", "session_key", "app_key", "expires")
    assert [sent.fields[name] for name in names] == ["1", "k", "a", str(desk.now_ms + 1)]
    desk.came(link, b"offline", 404, id="d", reason="offline", savefwd=1)
    desk.close(link)
    desk.submit(level=1)
    assert (desk.states(), desk.words(), desk.manage("stat")["complaints"]) == ([], [], [])


@pytest.mark.parametrize("flag", [FORWARDED, SAVED])
def test_level_2_keeps_its_row_until_the_platform_has_answered(flag: dict[str, Any]) -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    desk.submit(level=2)
    assert (desk.states(), desk.words()) == (["SS_SENT"], [f"send {B} 1"])
    answer(desk, link, 1, **flag)
    assert desk.states() == []


def test_level_2_survives_a_platform_that_is_full_and_a_link_that_breaks() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    desk.submit(level=2)
    answer(desk, link, 1, status=507, reason="full")
    assert desk.states() == ["SS_INIT"]
    desk.wait(3 * INTERVAL_MS)
    assert desk.words()[:2] == [f"send {B} 1"] * 2
    desk.close(link)
    link = desk.platform()
    assert desk.words() == ["inquiry send 0:1 1"]
    asked: dict[str, Any] = {"about": "send", "topic": f"semq/{B}", "stream": 2, "attempt": 2}
    asked |= {"lk0": f"{A}/1/1/1", "epoch": desk.epoch(), "seq": 1, "src": "0:1", "dst": A}
    desk.came(link, status=200, cmd="semq_inquiry_resp", result=0, **asked)
    assert desk.words() == [f"send {B} 1"], "it was never there, or B knows it"


def test_level_2_for_a_topic_is_not_sent_again_when_nobody_answers() -> None:
    """The topic need not remember what it was sent."""
    desk = Desk(direct=False)
    desk.platform()
    desk.submit("0:1/orders", level=2)
    desk.said()
    desk.wait(2 * INTERVAL_MS)
    assert (desk.states(), desk.words()) == ([], [])


@pytest.mark.parametrize("level", [2, 3])
def test_a_backlog_goes_by_windows(level: int) -> None:
    desk = Desk(direct=False, window=5)
    for _ in range(20):
        desk.submit(level=level)
    link = desk.platform()
    assert len(desk.said("semq_send")) == 5
    desk.close(link)
    assert len(desk.states()) == 20, "nothing is lost with it"


def test_a_window_bounds_what_is_under_way_and_one_node_delays_no_other() -> None:
    desk = Desk(direct=False, window=3)
    for number in range(5):
        desk.submit(body=b"%d" % number)
    desk.submit(C, b"c")
    link = desk.platform()
    assert {frame.fields["dst"] for frame in desk.said()} == {B}
    for record in (1, 2, 3):
        answer(desk, link, record, **SAVED)
    assert sorted(frame.body for frame in desk.said()) == [b"3", b"4", b"c"]


def test_a_window_bounds_bytes_too() -> None:
    desk = Desk(direct=False, window=2)
    for number in range(3):
        desk.submit(body=b"%d" % number * (20 << 20))
    for number in range(3, 6):
        desk.submit(body=b"%d" % number)
    link = desk.platform()
    for record, sent in ((1, [b"0"]), (2, [b"1"]), (3, [b"2", b"3"]), (4, [b"4"]), (5, [b"5"])):
        assert [frame.body[:1] for frame in desk.said()] == sent
        answer(desk, link, record, **SAVED)


def test_who_could_not_be_called_is_looked_up_again_when_he_is_there() -> None:
    desk = Desk()
    link = desk.platform()
    desk.submit()
    desk.came(link, b"offline", 404, id=f"l{B}", reason="offline", dst=B)
    desk.effects.clear()
    desk.came(link, status=200, cmd="semq_presence", node=B, state="online", src="0:1")
    frames = [one.frame for one in desk.effects if isinstance(one, Transmit)]
    assert [frame.fields["dst"] for frame in frames if frame.command == "semq_lookup"] == [B]


def test_priority_goes_first() -> None:
    desk = Desk(direct=False, window=1)
    for priority in (0, 5):
        desk.submit(body=b"%d" % priority, priority=priority)
    desk.platform()
    assert [frame.body for frame in desk.said()] == [b"5"]


def test_back_off_and_its_reset() -> None:
    desk, link = in_state("SS_ACK_FWD")
    times = []
    for _ in range(40):
        due_ms = desk.endpoint.next_due()
        assert due_ms is not None
        desk.now_ms = due_ms
        desk.step()
        desk.came(link, status=200, cmd="heartbeat")
        times += [desk.now_ms] * len(desk.said("semq_inquiry"))
    pauses = [b - a for a, b in pairwise(times)]
    assert pauses[0] < pauses[1] < pauses[2]
    desk.came(link, status=200, cmd="semq_presence", node=B, state="online", src="0:1")
    assert desk.words() == [f"inquiry send {B} 1"]


def test_nobody_who_is_offline_is_asked() -> None:
    desk, link = in_state("SS_ACK_FWD")
    desk.came(link, status=200, cmd="semq_presence", node=B, state="offline", src="0:1")
    desk.wait(4 * INTERVAL_MS)
    assert desk.words() == []
    desk.came(link, status=200, cmd="semq_presence", node=B, state="online", src="0:1")
    assert desk.words() == [f"inquiry send {B} 1"]


def test_after_reconnecting_one_question_asks_for_all() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    for record in range(1, 6):
        desk.submit()
        if record != 3:
            answer(desk, link, record, **FORWARDED)
    desk.close(link)
    desk.said()
    desk.platform()
    assert sorted(desk.words()) == ["inquiry send 0:1 3", f"inquiry send {B} 1-2,4-5"]


def test_after_a_restart_it_asks_at_once_and_sends_what_was_not_sent() -> None:
    desk, _ = in_state("SS_SENT")
    desk.links = 0
    desk.start()
    desk.submit(body=b"two")
    desk.platform()
    assert sorted(desk.words()) == ["inquiry send 0:1 1", f"send {B} 2"]


def test_a_restored_database_has_another_epoch_and_counts_from_the_beginning() -> None:
    desk = Desk(direct=False)
    desk.submit()
    epoch = desk.epoch()
    desk.start(renewed=True)
    assert desk.epoch() != epoch
    desk.submit(body=b"new")
    desk.platform()
    sent = [(f.fields["epoch"], f.fields["seq"]) for f in desk.said("semq_send")]
    assert sent == [(epoch, "1"), (desk.epoch(), "1")]


def test_a_full_outbox_refuses() -> None:
    desk = Desk(outbox_bytes_max=2_000)
    answers = [desk.try_submit(body=b"x" * 600) for _ in range(3)]
    assert isinstance(answers[-1], Refused)
    assert answers[-1].status == 507
    assert len(desk.states()) == 1


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "level 4": ({"level": 4}, 400),
    "unreliable level 3": ({"reliable": False}, 400),
    "an unreliable receipt": ({"level": 1, "reliable": False, "ack2": True}, 400),
    "a route nobody knows": ({"route": "pigeon"}, 400),
    "the platform itself": ({"to": "0:1"}, 400),
    "a topic directly": ({"to": "0:1/t", "route": "direct"}, 400),
    "an app key with a line": ({"app_key": "a\r\nb"}, 400),
    "a long app key": ({"app_key": "a" * 2_000}, 400),
    "a long body": ({"body": b"x" * 101}, 413),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_at_once(name: str) -> None:
    desk = Desk()
    desk.platform(max_size="100")
    given, status = REFUSED[name]
    answer = desk.try_submit(**given)
    assert isinstance(answer, Refused)
    assert (answer.status, desk.states()) == (status, [])


def test_a_disk_that_is_full_changes_nothing_and_says_nothing() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    desk.submit()
    desk.said()
    pages = desk.database.execute("PRAGMA page_count").fetchone()[0]
    desk.database.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    with pytest.raises(StoreError, match="full"):
        desk.try_submit(body=b"x" * 100_000)
    with pytest.raises(StoreError):
        desk.deliver(link, 1, b"x" * 100_000)
    assert desk.words() == []
    desk.database.execute("PRAGMA max_page_count = 1000000").fetchone()
    desk.deliver(link, 1, b"x" * 100_000)
    assert desk.words() == [f"ack2 {B} 1"]
    assert desk.submit() == 2


def test_the_answer_to_a_message_of_an_earlier_life_changes_nothing() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    desk.submit()
    (sent,) = desk.said("semq_send")
    told: dict[str, Any] = {}
    told |= {name: sent.fields[name] for name in ("id", "lk0", "stream", "seq", "attempt")}
    desk.came(link, status=200, flag=2, **told, epoch="f" * 16)
    assert desk.states() == ["SS_SENT"]
    desk.came(link, status=200, flag=2, **told, epoch=sent.fields["epoch"])
    assert desk.states() == []


def test_a_link_that_a_failed_step_let_go_of_is_ended_by_the_next() -> None:
    desk = Desk(direct=False)
    link = desk.platform()
    desk.now_ms += SILENCE_MS
    desk.database.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError):
        desk.try_submit()
    desk.database.execute("PRAGMA query_only = 0")
    desk.step()
    assert [each.link for each in desk.closed()] == [link]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("UPDATE semq_meta SET value = '9' WHERE name = 'version'", "of version 9"),
        ("UPDATE semq_meta SET value = '1:1' WHERE name = 'node'", "that of the node 1:1"),
        ("DROP TABLE tb_0030", "cannot be used"),
    ],
)
def test_a_database_that_does_not_fit(change: str, text: str) -> None:
    desk = Desk()
    desk.database.execute(change)
    with pytest.raises(StoreError, match=text):
        desk.start()
