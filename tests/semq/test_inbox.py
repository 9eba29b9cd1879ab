"""Sections 5.3, 7, 9, 10, 11 and 13 of the specification: a row of the inbox, and the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from tests.semq.desk import EPOCH, INTERVAL_MS, A, B, C, Desk
from zbus.semq.endpoint.events import Came, Frame, Happened, Refused, Take, Taken
from zbus.semq.endpoint.received_ids import GAPS_MAX
from zbus.semq.endpoint.schema import StoreError


def desk_with_platform(**options: Any) -> tuple[Desk, int]:
    desk = Desk(direct=False, **options)
    return desk, desk.platform()


def about(seq: int = 1, **more: Any) -> dict[str, Any]:
    return {"lk0": f"{B}/1/1/{seq}", "epoch": EPOCH, "stream": 3, "seq": seq, **more}


def test_a_message_is_confirmed_when_it_is_on_the_disk() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    assert desk.inbox() == ["NEW"]
    assert desk.words() == [f"ack2 {B} 1"], "level 3 that was forwarded: only B can be told"


NEEDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "level 3, forwarded": ({}, [f"ack2 {B} 1"]),
    "level 3, stored": ({"lk1": "1/1/7"}, ["ack1 0:1 1"]),
    "level 3, stored, receipt": ({"lk1": "1/1/7", "ack2": 1}, ["ack1 0:1 1", f"ack2 {B} 1"]),
    "level 2, forwarded": ({"savefwd": 2, "stream": 2}, []),
    "level 2, stored": ({"savefwd": 2, "stream": 2, "lk1": "1/1/7"}, ["ack1 0:1 1"]),
    "level 1, receipt": ({"savefwd": 1, "stream": 2, "ack2": 1}, [f"ack2 {B} 1"]),
}


@pytest.mark.parametrize("name", NEEDS)
def test_who_is_told(name: str) -> None:
    given, words = NEEDS[name]
    desk, link = desk_with_platform()
    desk.deliver(link, 1, **given)
    assert desk.words() == words


def test_an_ack_finds_the_row_of_whoever_wants_it() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, lk1="1/1/7", ack2=1, app_key="order,doc,new,S1")
    one, two = desk.said("semq_ack")
    names = ("src_semq_id", "src_semq_db_id", "src_ref_id", "dest_ref_id", "app_key")
    assert [one.fields[n] for n in names] == ["1", "1", "7", "1", "order,doc,new,S1"]
    assert [two.fields[n] for n in names] == ["1", "1", "1", "1", "order,doc,new,S1"]


def test_many_that_come_together_are_confirmed_in_one_frame() -> None:
    desk, link = desk_with_platform()
    frames = []
    for seq in (1, 2, 3, 5):
        fields = {"cmd": "semq_deliver", "src": B, "dst": A, "savefwd": "3"}
        fields |= {name: str(value) for name, value in about(seq).items()}
        frames.append(Came(link, Frame(fields, b"x", 200)))
    desk.step(*frames)
    assert desk.words() == [f"ack2 {B} 1-3,5"]


def test_what_a_failed_step_has_taken_is_not_confirmed_by_the_next() -> None:
    desk, link = desk_with_platform()
    pages = desk.database.execute("PRAGMA page_count").fetchone()[0]
    desk.database.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    frames = []
    for seq, body in ((1, b"x"), (2, b"x" * 100_000)):
        fields = {"cmd": "semq_deliver", "src": B, "dst": A, "savefwd": "3"}
        fields |= {name: str(value) for name, value in about(seq).items()}
        frames.append(Came(link, Frame(fields, body, 200)))
    with pytest.raises(StoreError, match="full"):
        desk.step(*frames)
    desk.database.execute("PRAGMA max_page_count = 1000000").fetchone()
    desk.wait(INTERVAL_MS)
    assert desk.words() == []
    assert desk.inbox() == []


def test_a_second_copy_is_not_handed_over_and_confirmed_again() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    assert desk.bodies() == [b"x"]
    desk.came(link, status=200, cmd="semq_reack", ack_flag=2, **about(src=B, dst=A))
    assert desk.inbox() == [], "confirmed, and done"
    desk.said()
    desk.deliver(link, 1, lk1="1/1/9")
    (ack,) = desk.said("semq_ack")
    assert (ack.fields["src_ref_id"], ack.fields["dest_ref_id"]) == ("9", "0")
    assert desk.bodies() == []


def test_a_second_copy_of_the_platforms_is_to_be_confirmed_too() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    desk.deliver(link, 1, lk1="1/1/9")
    assert desk.bodies() == [b"x"]
    desk.came(link, status=200, cmd="semq_reack", ack_flag=2, **about(src=B, dst=A))
    assert desk.inbox() == ["DONE"]
    row: dict[str, Any] = {"src_semq_id": 1, "src_semq_db_id": 1}
    say: dict[str, Any] = {"cmd": "semq_reack", "ack_flag": 1, "src": "0:1", **row}
    desk.came(link, status=200, src_ref_id=8, **say, **about())
    assert desk.inbox() == ["DONE"], "that is of another copy"
    desk.came(link, status=200, src_ref_id=9, **say, **about())
    assert desk.inbox() == []


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("confirmed", [False, True])
def test_when_a_row_goes(done: bool, confirmed: bool) -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    taken = desk.take()
    if done:
        desk.done(taken.row)
    if confirmed:
        desk.came(link, status=200, cmd="semq_reack", ack_flag=2, **about(src=B, dst=A))
    assert bool(desk.inbox()) is not (done and confirmed)


@pytest.mark.parametrize(("given", "asked"), [({}, B), ({"lk1": "1/1/7"}, "0:1")])
def test_it_asks_for_a_confirmation_it_misses(given: dict[str, Any], asked: str) -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, **given)
    desk.bodies()
    desk.said()
    desk.wait(INTERVAL_MS + 1)
    assert desk.words() == [f"inquiry ack {asked} 1"]
    say: dict[str, Any] = {"cmd": "semq_inquiry_resp", "about": "ack", "result": 1}
    desk.came(link, status=200, **say, **about(src=asked, dst=A))
    assert desk.inbox() == []
    desk.wait(100 * INTERVAL_MS)
    assert desk.words() == [], "silence"


def test_after_a_restart_it_asks_at_once_and_what_was_taken_comes_again() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    assert not desk.take().again
    desk.said()
    desk.start()
    taken = desk.take()
    assert taken.again
    assert taken.frame is not None
    assert taken.frame.fields["seq"] == "1"
    desk.links = 0
    desk.platform()
    assert desk.words() == [f"inquiry ack {B} 1"]


@pytest.mark.parametrize(("who", "words"), [("0:1", "0:1"), (B, B)])
def test_questions_about_what_has_come(who: str, words: str) -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    desk.deliver(link, 3)
    desk.said()
    fields: dict[str, Any] = {"cmd": "semq_inquiry", "about": "send", "src": who, "dst": A}
    asked: dict[str, Any] = {
        "lk0": f"{B}/1/1/0",
        "epoch": EPOCH,
        "stream": 3,
        "seqs": "1-4",
        "attempt": 1,
    }
    desk.came(link, status=200, **fields, **asked)
    told = [(f.fields["result"], f.fields["seqs"], f.fields["dst"]) for f in desk.said()]
    assert told == [("1", "1,3", words), ("0", "2,4", words)]


def test_what_came_without_its_message_is_not_said_to_have_been_received() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, b"", void=1, lk1="1/1/1", ack2=1)
    desk.deliver(link, 2, expires=desk.now_ms, ack2=1)
    desk.deliver(link, 3, expires=desk.now_ms + 1, ack2=1)
    desk.deliver(link, 1, ack2=1)
    acks = [f for f in desk.said("semq_ack") if f.fields["ack_flag"] == "2"]
    told = [(f.fields["seq"], f.fields.get("void")) for f in acks]
    assert told == [("1", "1"), ("2", "1"), ("3", None), ("1", "1")]
    desk.now_ms += 5_000
    assert desk.bodies() == [b"x"]
    asked: dict[str, Any] = {"cmd": "semq_inquiry", "about": "send", "src": B, "dst": A}
    desk.start()
    desk.links = 0
    link = desk.platform()
    desk.said()
    desk.came(link, status=200, **asked, **about(seqs="1-4"))
    names = ("result", "void", "seq", "seqs")
    told_of = [tuple(f.fields.get(name, "") for name in names) for f in desk.said()]
    assert told_of == [("1", "", "3", ""), ("0", "", "4", ""), ("1", "1", "", "1-2")]


def test_answers_are_cut_into_lines_that_are_not_too_long() -> None:
    desk, link = desk_with_platform()
    for seq in range(1, 2_001, 2):
        desk.deliver(link, seq)
    desk.said()
    fields: dict[str, Any] = {"cmd": "semq_inquiry", "about": "send", "src": B, "dst": A}
    desk.came(link, status=200, **fields, **about(seqs="1-2000"))
    found = desk.said("semq_inquiry_resp")
    assert sum(frame.fields["result"] == "1" for frame in found) == 2
    assert max(len(frame.fields["seqs"]) for frame in found) < 4_096
    desk.came(link, status=200, cmd="semq_ack", ack_flag=2, src=B, dst=A, **about(seqs="1-1200"))
    assert [f.fields["seqs"] for f in desk.said()] == ["1-500", "501-1000", "1001-1200"]


def test_an_instance_says_who_it_is() -> None:
    desk, link = desk_with_platform(semq_id=2)
    desk.deliver(link, 1, lk1="1/1/7", ack2=1)
    assert [frame.fields["dest_semq_id"] for frame in desk.said("semq_ack")] == ["2", "2"]
    desk.wait(INTERVAL_MS + 1)
    asked = desk.said("semq_inquiry")
    assert [(f.fields["dest_semq_id"], f.fields["semq_id"]) for f in asked] == [("2", "1")] * 2
    say: dict[str, Any] = {"cmd": "semq_inquiry", "about": "ack", "src": B, "dst": A}
    mid: dict[str, Any] = {"lk0": f"{A}/2/1/1", "epoch": EPOCH, "stream": 3, "seq": 1}
    desk.came(link, status=200, **say, **mid, semq_id=2, dest_semq_id=5)
    (told,) = desk.said("semq_inquiry_resp")
    assert (told.fields["semq_id"], told.fields["dest_semq_id"]) == ("2", "5")


def test_questions_about_anothers_are_not_answered() -> None:
    desk, link = desk_with_platform()
    fields: dict[str, Any] = {"cmd": "semq_inquiry", "about": "send", "src": C, "dst": A}
    desk.came(link, status=200, **fields, **about())
    assert desk.words() == []
    assert desk.manage("stat")["complaints"]


def test_ordered_messages_wait_for_those_before_them() -> None:
    desk, link = desk_with_platform()
    for seq in (3, 2):
        desk.deliver(link, seq, b"%d" % seq, ordered=1)
    desk.deliver(link, 5, b"5")
    assert desk.inbox() == ["HELD", "HELD", "NEW"]
    assert desk.bodies() == [b"5"], "what is not ordered waits for nothing"
    desk.deliver(link, 1, b"1", ordered=1)
    assert desk.bodies() == [b"1", b"2", b"3"]


def test_a_void_message_releases_and_is_not_shown() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 2, b"2", ordered=1)
    desk.deliver(link, 1, b"", void=1)
    assert desk.words() == [f"ack2 {B} 2", f"ack2 {B} 1"]
    assert desk.bodies() == [b"2"]


def test_numbers_that_died_are_taken_as_void() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 4, b"4", ordered=1)
    desk.deliver(link, 6, b"6", ordered=1, skips="1-3,5")
    assert desk.bodies() == [b"4", b"6"]
    assert desk.database.execute("SELECT seen, void FROM semq_ledger").fetchall() == [
        ("1-6", "1-3,5")
    ]


@pytest.mark.parametrize("skips", ["x", "3-1", "0", "1,,2", "1-", "1" * 4_001])
def test_numbers_that_cannot_be_skipped(skips: str) -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 6, skips=skips)
    assert desk.inbox() == []
    assert desk.manage("stat")["complaints"]


def test_what_the_disk_of_its_sender_has_lost_holds_up_nothing() -> None:
    """Its messages are of another epoch then."""
    desk, link = desk_with_platform()
    for seq in (4, 3):
        desk.deliver(link, seq, b"old %d" % seq, ordered=1)
    desk.deliver(link, 1, b"other", ordered=1, lk0=f"{B}/1/2/1")
    desk.deliver(link, 2, b"new 2", ordered=1, epoch="00000000000000ff")
    assert desk.bodies() == [b"other", b"old 3", b"old 4"]
    desk.start()
    desk.links = 0
    link = desk.platform()
    desk.deliver(link, 6, b"old 6", ordered=1)
    assert desk.bodies() == []
    desk.deliver(link, 1, b"new 1", ordered=1, epoch="00000000000000ff")
    assert desk.bodies() == [b"old 6", b"new 1", b"new 2"]


def test_an_operator_releases_what_waits_in_vain() -> None:
    desk, link = desk_with_platform(alarm_ms=60_000)
    for seq in (9, 7):
        desk.deliver(link, seq, b"%d" % seq, ordered=1)
    desk.deliver(link, 2, b"other", ordered=1, src=C, lk0=f"{C}/1/1/2")
    assert (desk.bodies(), desk.manage("stat")["held"]) == ([], {B: 2, C: 1})
    desk.wait(60_001)
    alarms = [one.text for one in desk.effects if isinstance(one, Happened)]
    assert [f"from {B} waits for those before it" in text for text in alarms] == [True, True, False]
    assert isinstance(desk.manage("release"), Refused)
    assert desk.manage("release", node=B) == {"changed": 2}
    assert desk.bodies() == [b"7", b"9"]
    desk.deliver(link, 8, b"8", ordered=1)
    desk.deliver(link, 10, b"10", ordered=1)
    assert desk.bodies() == [b"10"], "what was missing counts as seen"
    assert desk.manage("stat")["held"] == {C: 1}


def test_a_message_whose_sender_is_not_told_of_it_is_told_of() -> None:
    desk, link = desk_with_platform(alarm_ms=60_000)
    desk.deliver(link, 1)
    assert desk.bodies() == [b"x"]
    desk.wait(70_000)
    (alarm,) = [one.text for one in desk.effects if isinstance(one, Happened)]
    assert f"message 1 from {B} is not known to have come" in alarm


def test_a_stream_with_many_gaps_forgets_nothing() -> None:
    """What is missing between the oldest counts as seen, and nothing comes twice."""
    desk, link = desk_with_platform()
    more: dict[str, Any] = {"savefwd": 2, "stream": 2}
    last = 2 * GAPS_MAX + 5
    for seq in range(1, last + 1, 2):
        desk.deliver(link, seq, **more)
    for seq in (1, 2, last):
        desk.deliver(link, seq, lk1=f"1/1/{seq}", **more)
    assert len(desk.inbox()) == GAPS_MAX + 3
    (seen,) = desk.database.execute("SELECT seen FROM semq_ledger").fetchone()
    assert len(seen.split(",")) == GAPS_MAX
    desk.deliver(link, last - 1, **more)
    assert len(desk.inbox()) == GAPS_MAX + 4


def test_a_row_without_its_entry_in_the_ledger_is_found() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    desk.database.execute("DELETE FROM semq_ledger")
    desk.start()
    desk.links = 0
    link = desk.platform()
    desk.deliver(link, 1, lk1="1/1/1")
    assert desk.bodies() == [b"x"]


def test_fields_of_the_senders_own_reach_the_application() -> None:
    desk, link = desk_with_platform()
    more: dict[str, Any] = {f"n{number}": "x" * 1_000 for number in range(50)}
    desk.deliver(link, 1, lk1="1/1/1", traceparent="00-1", tag="t", attempt=3, **more)
    taken = desk.take().frame
    assert taken is not None
    assert (taken.fields["traceparent"], taken.fields["tag"]) == ("00-1", "t")
    assert taken.fields.keys().isdisjoint(("cmd", "lk1", "attempt", "n49"))


def test_the_ledger_is_one_interval_and_survives_everything() -> None:
    desk, link = desk_with_platform()
    for seq in (1, 3, 2, 4):
        desk.deliver(link, seq)
    desk.bodies()
    assert desk.database.execute("SELECT seen FROM semq_ledger").fetchall() == [("1-4",)]
    desk.start()
    desk.links = 0
    link = desk.platform()
    desk.deliver(link, 3)
    assert desk.take().frame is None


def test_another_epoch_is_another_stream() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    desk.deliver(link, 1, b"new", epoch="00000000000000ff")
    assert desk.bodies() == [b"x", b"new"]


def test_level_1_is_for_whoever_waits() -> None:
    desk, link = desk_with_platform()
    say: dict[str, Any] = {"cmd": "semq_deliver", "src": B, "dst": f"{A}/bob", "savefwd": 1}
    desk.came(link, b"lost", 200, **say)
    desk.step(Take(99, "bob", True, 1))
    desk.came(link, b"there", 200, **say)
    (taken,) = [e for e in desk.effects if isinstance(e, Taken) and e.ask == 99]
    assert taken.frame is not None
    assert taken.frame.body == b"there"
    assert desk.inbox() == []


@pytest.mark.parametrize("more", [{"void": 1}, {"expires": 1}])
def test_level_1_without_a_message_is_for_nobody(more: dict[str, Any]) -> None:
    desk, link = desk_with_platform()
    desk.step(Take(99, "", True, 1))
    desk.came(link, b"x", 200, cmd="semq_deliver", src=B, dst=A, savefwd=1, **more)
    assert not [e for e in desk.effects if isinstance(e, Taken)]


def test_level_1_leaves_nothing_whatever_it_carries() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, savefwd=1, stream=2)
    assert (desk.inbox(), desk.words()) == ([], [])
    assert desk.database.execute("SELECT * FROM semq_ledger").fetchall() == []


def test_level_1_inside_is_told_how_it_is_encrypted() -> None:
    desk = Desk()
    desk.step(Take(99, "", True, 1))
    desk.submit(A, level=1, sealed={"encrypt": "1", "session_key": "k"})
    (taken,) = [e for e in desk.effects if isinstance(e, Taken)]
    assert taken.frame is not None
    assert taken.frame.fields["session_key"] == "k"


def test_users_have_mailboxes_of_their_own() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, b"bob's", dst=f"{A}/bob")
    assert desk.take().frame is None
    found = desk.take("bob").frame
    assert found is not None
    assert found.body == b"bob's"


def test_internal_messages_are_one_transaction_and_need_nobody() -> None:
    desk = Desk()
    desk.submit(f"{A}/bob", b"hello", user="alice", ack2=True)
    assert Happened("received", 1, "") in desk.effects
    assert (desk.states(), desk.inbox(), desk.words()) == ([], ["NEW"], [])
    taken = desk.take("bob")
    assert taken.frame is not None
    assert (taken.frame.fields["src"], taken.frame.body) == (f"{A}/alice", b"hello")
    desk.done(taken.row)
    assert desk.inbox() == []


def test_what_its_holder_leaves_is_there_again() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    first = desk.take(holder=1)
    assert desk.take(holder=2).frame is None
    desk.left(2)
    assert desk.take(holder=3).frame is None
    desk.left(1)
    second = desk.take(holder=3)
    assert (second.row, second.again) == (first.row, True)


def test_what_was_taken_and_left_may_be_done_without_taking_it_again() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    row = desk.take().row
    desk.left()
    assert not isinstance(desk.done(row), Refused)
    assert desk.take().frame is None


def test_done_twice_is_once_and_done_too_early_is_refused() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1)
    assert isinstance(desk.done(1), Refused)
    row = desk.take().row
    assert not isinstance(desk.done(row), Refused)
    assert not isinstance(desk.done(row), Refused)


BAD: dict[str, dict[str, Any]] = {
    "for another node": {"dst": C},
    "an lk0 of another node": {"lk0": f"{C}/1/1/1"},
    "no number": {"seq": ""},
    "number 0": {"seq": 0},
    "a number of words": {"seq": "one"},
    "an epoch of words": {"epoch": "now"},
    "a stream of its own": {"stream": 9},
    "level 3 in stream 2": {"stream": 2},
    "level 9": {"savefwd": 9},
    "a broken lk1": {"lk1": "7"},
    "a long app key": {"app_key": "k" * 2_000},
}


@pytest.mark.parametrize("name", BAD)
def test_a_message_that_cannot_be(name: str) -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, **BAD[name])
    assert (desk.inbox(), desk.words(), desk.closed()) == ([], [], [])
    (complaint,) = desk.manage("stat")["complaints"]
    assert complaint["node"] == "0:1"
    desk.deliver(link, 1)
    assert desk.bodies() == [b"x"]
