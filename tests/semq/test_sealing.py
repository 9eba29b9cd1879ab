"""Bodies that only their destination can read (specification, section 14)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.semq.certificates import both, certificate_of, make
from zbus.semq.program.encryption import MISSING, Sealing, SealingError, load_keys, require
from zbus.semq.program.frames import encode_lines

A, B = "1:10008", "1:56001/bob"
BODY = b"two chairs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificate_of(tmp_path / "certificates", "1:56001", make("b")[0])
    return tmp_path / "certificates"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return both(tmp_path / "b.pem", *make("b"))


def seal(
    folder: Path, body: bytes = BODY, app_key: str = "order,7"
) -> tuple[dict[str, str], bytes]:
    """As its receiver sees it."""
    fields, sealed = Sealing(folder).seal(A, B, app_key, body)
    return {"src": A, "dst": B, "app_key": app_key, **fields}, sealed


@pytest.mark.parametrize("body", [b"", BODY, bytes(range(256)) * 1_000], ids=len)
def test_there_and_back(folder: Path, key_file: Path, body: bytes) -> None:
    fields, sealed = seal(folder, body)
    assert fields["encrypt"] == "1"
    assert not body or body not in sealed
    assert len(encode_lines(fields)) < 8_000  # a broker takes the line
    assert Sealing(keys=load_keys([key_file])).open(fields, sealed) == body


def test_each_message_has_a_key_of_its_own(folder: Path) -> None:
    first, second = seal(folder), seal(folder)
    assert first[1] != second[1]
    assert first[0]["session_key"] != second[0]["session_key"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("src", "1:10009"),
        ("dst", "1:56001/eve"),
        ("app_key", "order,8"),
        ("app_key", ""),
        ("session_key", ""),
        ("session_key", "alg=none"),
    ],
)
def test_what_the_envelope_says_is_bound(
    folder: Path, key_file: Path, name: str, value: str
) -> None:
    fields, sealed = seal(folder)
    with pytest.raises(SealingError, match=r"changed on its way|session_key"):
        Sealing(keys=load_keys([key_file])).open({**fields, name: value}, sealed)


@pytest.mark.parametrize("part", ["alg", "enc", "key", "iv", "id"])
@pytest.mark.parametrize("value", ["", "AAAA", "*"])
def test_nothing_of_the_session_key_can_be_changed(
    folder: Path, key_file: Path, part: str, value: str
) -> None:
    fields, sealed = seal(folder)
    parts = [
        f"{part}={value}" if piece.startswith(f"{part}=") else piece
        for piece in fields["session_key"].split(";")
    ]
    with pytest.raises(SealingError):
        Sealing(keys=load_keys([key_file])).open({**fields, "session_key": ";".join(parts)}, sealed)


def test_the_body_cannot_be_changed(folder: Path, key_file: Path) -> None:
    fields, sealed = seal(folder)
    opening = Sealing(keys=load_keys([key_file]))
    for wrong in (b"", sealed[:-1], sealed + b"x", bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(SealingError, match="changed on its way"):
            opening.open(fields, wrong)


def test_a_key_that_was_replaced(folder: Path, key_file: Path, tmp_path: Path) -> None:
    """What was encrypted for the old one is read as long as that is kept."""
    fields, sealed = seal(folder)
    new = both(tmp_path / "new.pem", *make("b, later"))
    kid = fields["session_key"].split(";")[2].removeprefix("kid=")
    with pytest.raises(SealingError, match=kid):
        Sealing(keys=load_keys([new])).open(fields, sealed)
    assert Sealing(keys=load_keys([new, key_file])).open(fields, sealed) == BODY


def test_a_renewed_certificate_is_taken_at_once(folder: Path, tmp_path: Path) -> None:
    sealing = Sealing(folder)
    sealing.seal(A, B, "", BODY)
    certificate_of(folder, "1:56001", make("b, later")[0])
    new = load_keys([both(tmp_path / "new.pem", *make("b, later"))])
    fields, sealed = sealing.seal(A, B, "", BODY)
    assert Sealing(keys=new).open({"src": A, "dst": B, **fields}, sealed) == BODY


CERTIFICATES = [
    (b"nonsense", "has no certificate in PEM"),
    (make("ec", "ec")[0], "no RSA key"),
    (make("short", bits=1_024)[0], "has 1024 bits"),
    (make("late", days=-1)[0], "is valid from .* to .* UTC"),
]


@pytest.mark.parametrize(("pem", "why"), CERTIFICATES, ids=["no", "ec", "short", "late"])
def test_a_certificate_that_does_not_fit(tmp_path: Path, pem: bytes, why: str) -> None:
    certificate_of(tmp_path / "all", "1:56001", pem)
    with pytest.raises(SealingError, match=why):
        Sealing(tmp_path / "all").seal(A, B, "", BODY)


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SealingError, match=r"there is no certificate .*1-56001\.pem"):
        Sealing(tmp_path).seal(A, B, "", BODY)
    with pytest.raises(SealingError, match="no folder of certificates"):
        Sealing().seal(A, B, "", BODY)


def test_a_key_that_is_none(tmp_path: Path) -> None:
    for certificate, key, why in (
        (make("b")[0], b"", "has no private key"),
        (b"", make("b")[1], "has no certificate"),
        (make("b")[0], make("b, later")[1], "do not belong together"),
        (*make("ec", "ec"), "is no RSA key"),
    ):
        with pytest.raises(SealingError, match=why):
            load_keys([both(tmp_path / "key.pem", certificate, key)])
    with pytest.raises(SealingError, match="there is no"):
        load_keys([tmp_path / "absent.pem"])


def test_without_the_library(folder: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for attempt in (
        require,
        lambda: load_keys([key_file]),
        lambda: Sealing(folder).seal(A, B, "", BODY),
        lambda: Sealing().open({}, b""),
    ):
        with pytest.raises(SealingError) as raised:
            attempt()
        assert str(raised.value) == MISSING
