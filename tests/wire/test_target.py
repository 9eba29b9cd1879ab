"""Targets and percent-encoded header values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.wire.target import decode_valid_percent, encode_header_value, is_crowded, split_target


@pytest.mark.parametrize(
    ("target", "segments", "pairs"),
    [
        (b"/", [], []),
        (b"", [], []),
        (b"*", [b"*"], []),
        (b"/a", [b"a"], []),
        (b"//a///b/", [b"a", b"b"], []),
        (b"/a%2Fb/c", [b"a/b", b"c"], []),
        (b"/%E4%B8%BB%e9%a2%98", ["主题".encode()], []),
        (b"/a+b", [b"a+b"], []),
        (b"/a%3Fb=c", [b"a?b=c"], []),
        (b"/a%", [b"a%"], []),
        (b"/a%4", [b"a%4"], []),
        (b"/a%zz%41", [b"a%zzA"], []),
        (b"/%2541", [b"%41"], []),
        (b"/a?", [b"a"], []),
        (b"?a=b", [], [(b"a", b"b")]),
        (b"/?a=b&c=d", [], [(b"a", b"b"), (b"c", b"d")]),
        (b"/?a=1&&b=2&", [], [(b"a", b"1"), (b"b", b"2")]),
        (b"/?a=b=c", [], [(b"a", b"b=c")]),
        (b"/?a", [], [(b"a", b"")]),
        (b"/?a=", [], [(b"a", b"")]),
        (b"/?=b", [], [(b"", b"b")]),
        (b"/?a+b=c+d%2B", [], [(b"a b", b"c d+")]),
        (b"/?a%26=b%3D%26", [], [(b"a&", b"b=&")]),
        (b"/?a=%zz", [], [(b"a", b"%zz")]),
        (b"/?a=b?c/d", [], [(b"a", b"b?c/d")]),
        (b"/?a=1&a=2", [], [(b"a", b"1"), (b"a", b"2")]),
        (b"http://host:80/a/b?c=d", [b"a", b"b"], [(b"c", b"d")]),
        (b"HTTPS://host", [], []),
        (b"http://host?c=d", [], [(b"c", b"d")]),
        (b"/x?u=http://host/y", [b"x"], [(b"u", b"http://host/y")]),
        (b"/http://host/y", [b"http:", b"host", b"y"], []),
        (b"host:80", [b"host:80"], []),
    ],
)
def test_split_target(
    target: bytes, segments: list[bytes], pairs: list[tuple[bytes, bytes]]
) -> None:
    assert split_target(target) == (segments, pairs)


@pytest.mark.parametrize(
    ("query", "crowded"),
    [
        (b"", False),
        (b"&".join([b"a=1"] * 100), False),
        (b"&".join([b"a=1"] * 100) + b"&&", False),
        (b"&".join([b"a=1"] * 101), True),
        (b"cmd=ping&token=t" + b"&a=1" * 5_000, True),
    ],
)
def test_of_a_crowded_query_little_is_read(query: bytes, crowded: bool) -> None:
    for target in (b"/a&b?" + query, b"?" + query):
        assert is_crowded(target) == crowded
        _, pairs = split_target(target)
        assert len(pairs) == (10 if crowded else query.count(b"a"))
        if query.startswith(b"cmd"):
            assert pairs[:2] == [(b"cmd", b"ping"), (b"token", b"t")]
    assert not is_crowded(b"/a" + b"&" * 200 + b"?a=1")


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b"", b""),
        (b"plain+value", b"plain+value"),
        (b"a.%2A", b"a.*"),
        (b"%e4%b8%bb", "主".encode()),
        (b"%2541", b"%41"),
        (b"100%", b"100%"),
        (b"%zz%41", b"%zzA"),
        (b"%ff%41", b"%ff%41"),
        (b"\xff%41", b"\xff%41"),
        ("主%41".encode(), "主A".encode()),
    ],
)
def test_decode_valid_percent(value: bytes, decoded: bytes) -> None:
    assert decode_valid_percent(value) == decoded


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"", b""),
        (b"a+b c", b"a+b c"),
        ("主题".encode(), "主题".encode()),
        (b"100%", b"100%"),
        (b"%zz", b"%zz"),
        (b"%41", b"%2541"),
        (b"%%41", b"%%2541"),
        (b"a\r\nb\0", b"a%0D%0Ab%00"),
        (b"%\r", b"%%0D"),
    ],
)
def test_encode_header_value(value: bytes, encoded: bytes) -> None:
    assert encode_header_value(value) == encoded


@given(st.text("aF4%\r\n\0+é"))
def test_what_was_encoded_comes_back(text: str) -> None:
    encoded = encode_header_value(text.encode())
    assert not set(encoded) & set(b"\r\n\0")
    assert decode_valid_percent(encoded) == text.encode()
