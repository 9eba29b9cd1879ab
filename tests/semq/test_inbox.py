"""Sections 5.3, 7, 9, 10, 11 and 13 of the specification: a row of the inbox, and the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from tests.semq.desk import EPOCH, INTERVAL_MS, A, B, C, Desk
from zbus.semq.events import Came, Frame, Refused, Take, Taken
from zbus.semq.schema import StoreError


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


def test_users_have_mailboxes_of_their_own() -> None:
    desk, link = desk_with_platform()
    desk.deliver(link, 1, b"bob's", dst=f"{A}/bob")
    assert desk.take().frame is None
    found = desk.take("bob").frame
    assert found is not None
    assert found.body == b"bob's"


def test_internal_messages_are_one_transaction_and_need_nobody() -> None:
    desk = Desk()
    desk.submit(f"{A}/bob", b"hello", user="alice")
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
