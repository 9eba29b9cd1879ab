"""Grants and the table of tokens."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.edge.access import (
    NEVER_MS,
    NOTHING,
    OPERATIONS,
    UNKNOWN_BEARER,
    Access,
    Entry,
    Grant,
    make_grant,
)


def digest(token: bytes) -> bytes:
    return sha256(token).digest()


BILLING = make_grant("billing", ["produce", "consume"], {"Orders": ["billing"]})


@pytest.mark.parametrize(
    ("topics", "topic", "seen"),
    [
        ({}, "Orders", False),
        ({"Orders": []}, "Orders", True),
        ({"Orders": []}, "oRDERS", True),
        ({"ORDERS": []}, "orders", True),
        ({"Orders": []}, "Orders2", False),
        ({"Orders": []}, "Order", False),
        ({"orders.*": []}, "orders.eu", True),
        ({"Orders.*": []}, "ORDERS.eu", True),
        ({"orders.*": []}, "orders", False),
        ({"orders.*": []}, "orders.", True),
        ({"orders*": []}, "orders", True),
        ({"*": []}, "anything", True),
        ({"*.eu": []}, "orders.eu", False),  # only at the end
        ({"*.eu": []}, "*.eu", True),
        ({"or*rs": []}, "orders", False),
        ({"straße": []}, "STRASSE", False),  # folded as the broker folds its own names
        ({"Été": []}, "éTÉ", True),
    ],
)
def test_topics(topics: dict[str, list[str]], topic: str, seen: bool) -> None:
    grant = make_grant("a", ["consume"], topics)
    assert grant.sees(topic) is seen
    assert grant.sees_all(topic) is seen
    assert grant.sees(topic, "any group") is seen


@pytest.mark.parametrize(
    ("groups", "group", "seen"),
    [
        ([], "billing", True),
        (["*"], "billing", True),
        (["billing"], "Billing", True),
        (["BILLING"], "billing", True),
        (["billing"], "billing2", False),
        (["bill*"], "billing", True),
        (["audit", "billing"], "billing", True),
        (["audit"], "billing", False),
    ],
)
def test_groups(groups: list[str], group: str, seen: bool) -> None:
    grant = make_grant("a", ["consume"], {"Orders": groups})
    assert grant.sees("Orders")
    assert grant.sees("Orders", group) is seen
    assert grant.sees_all("Orders") is (groups in ([], ["*"]))


def test_several_entries_of_a_topic_add_up() -> None:
    grant = make_grant("a", ["consume"], {"Orders": ["billing"], "Or*": ["audit"], "*": ["x"]})
    assert [g for g in ("billing", "audit", "x", "y") if grant.sees("orders", g)] == [
        "billing",
        "audit",
        "x",
    ]
    assert not grant.sees_all("orders")


def test_operations() -> None:
    assert [name for name in OPERATIONS if BILLING.may(name)] == ["produce", "consume"]
    assert BILLING.may("")
    assert all(make_grant("a", ["*"], {}).may(name) for name in OPERATIONS)
    assert not make_grant("a", ["*"], {}).sees("Orders"), "all operations are not all topics"


def test_admin_passes_everything() -> None:
    grant = make_grant("a", ["admin"], {"Orders": ["billing"]})
    assert all(grant.may(name) for name in OPERATIONS)
    assert grant.sees("other", "group")
    assert grant.sees_all("other")


@given(st.text(max_size=4), st.text(max_size=4))
def test_prefix_is_startswith_on_folded_names(prefix: str, name: str) -> None:
    if not prefix.endswith("*"):
        grant = make_grant("a", [], {prefix + "*": []})
        assert grant.sees(name) is name.lower().startswith(prefix.lower())


# -- the table ------------------------------------------------------------------------------------


def test_tokens() -> None:
    other = make_grant("other", ["*"], {"*": []})
    access = Access(
        [Entry(BILLING, (digest(b"old"), digest(b"new"))), Entry(other, (digest(b"o"),))]
    )
    assert access.of_token(b"old").grant is BILLING
    assert access.of_token(b"new").grant is BILLING
    assert access.of_token(b"o").grant is other
    for unknown in (b"", b"Old", b"old ", digest(b"old"), digest(b"old").hex().encode()):
        assert access.of_token(unknown) is UNKNOWN_BEARER
    assert access.anonymous.grant is NOTHING


def test_principals_and_the_anonymous() -> None:
    access = Access([Entry(BILLING, principals=("billing.example", "b2"), anonymous=True)])
    assert access.of_principal("billing.example").grant is BILLING
    assert access.of_principal("b2").grant is BILLING
    assert access.of_principal("Billing.example") is UNKNOWN_BEARER
    assert access.of_principal("") is UNKNOWN_BEARER
    assert access.anonymous.grant is BILLING
    assert access.of_token(b"") is UNKNOWN_BEARER


def test_nobody_can_do_anything() -> None:
    assert not UNKNOWN_BEARER.is_known(0)
    assert not any(NOTHING.may(name) for name in OPERATIONS)
    assert not NOTHING.sees("Orders")


def test_bearers_see_a_new_table() -> None:
    access = Access([Entry(BILLING, (digest(b"old"), digest(b"new")), ("b",), anonymous=True)])
    held = [access.of_token(b"old"), access.of_token(b"new"), access.of_principal("b")]
    held.append(access.anonymous)
    more = make_grant("billing", ["admin"], {})
    access.update([Entry(more, (digest(b"new"),))])
    assert [bearer.grant for bearer in held] == [NOTHING, more, NOTHING, NOTHING]
    assert access.of_token(b"old") is UNKNOWN_BEARER
    access.update([Entry(BILLING, (digest(b"old"),), ("b",))])
    assert access.of_token(b"old").grant is BILLING
    assert access.of_token(b"new") is UNKNOWN_BEARER
    assert access.of_principal("b").grant is BILLING


def test_expiry() -> None:
    grant = Grant("a", expires_ms=1_000)
    access = Access([Entry(grant, (digest(b"t"),))])
    assert access.of_token(b"t").is_known(999)
    assert not access.of_token(b"t").is_known(1_000)
    assert Access([Entry(BILLING, (digest(b"t"),))]).of_token(b"t").is_known(NEVER_MS - 1)


def test_rights_lapse_with_a_new_table_and_with_time() -> None:
    first, second = (Grant(str(ms), expires_ms=ms) for ms in (1_000, 2_000))
    access = Access([Entry(first, (digest(b"1"),)), Entry(second, principals=("p",))])
    asked = [access.lapsed(now_ms) for now_ms in (0, 1, 999, 1_000, 1_001, 2_500, 2_501, 9_999)]
    assert asked == [True, False, False, True, False, True, False, False]
    access.update([])
    assert [access.lapsed(9_999), access.lapsed(9_999)] == [True, False]
