"""Bodies that no node between two endpoints can read (specification, section 14).

Each message has a key of its own: 256 random bits, by which its body is encrypted with AES-256-GCM,
and which is itself encrypted with RSA-OAEP (SHA-256) for the certificate of the node it goes to.
Both go with the message, in `session_key`:

    alg=RSA-OAEP-256;enc=A256GCM;kid=<fingerprint>;key=<wrapped>;iv=<nonce>;id=<random>

`kid` is the SHA-256 of the certificate, in hexadecimal digits; `key` and `iv` are base64url without
padding; `id` is 128 random bits, in hexadecimal digits.

Bound to the body, so that a change is noticed, are `src`, `dst` and `app_key` as
the envelope has them, and `id`. The number of the message (its MID) is not: a body is encrypted
once, before the message is written, and only that transaction gives it its number. So a node
between the two cannot claim that a body came from another node, is for another, or belongs to
another business record; he could hand over the same body under another number. An application that
must notice even that remembers `id`, or numbers what it says itself. Not secret are the envelope
and the size; and `src` is bound, not proven: anybody who has the certificate can encrypt for it.
Who may speak for a node is said by tokens, or by what the application signs.

A message that cannot be decrypted was nevertheless received, and is confirmed as that. It is
delivered with the error, and stays until an application finishes it: with the right key it can
be read after the next start.

This needs the package `cryptography` (`pip install 'zbus-broker[semq]'`).
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.padding import OAEP
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
    from cryptography.x509 import Certificate

MISSING: Final = "this needs the package cryptography: pip install 'zbus-broker[semq]'"
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192  # what is wrapped for it still fits into a header line

_ALG: Final = "RSA-OAEP-256"
_ENC: Final = "A256GCM"
_PARTS: Final = ("alg", "enc", "kid", "key", "iv", "id")
_NONCE_BYTES: Final = 12


class SealingError(Exception):
    """It cannot be encrypted, or not be decrypted; the text says why."""


def load_keys(files: Iterable[Path]) -> dict[str, RSAPrivateKey]:
    """Private keys of this node by their `kid`, each in a PEM file with its certificate. The older
    ones, too, as long as something may come that was encrypted for them. Raises SealingError."""
    return dict(_load_key(file) for file in files)


def _load_key(file: Path) -> tuple[str, RSAPrivateKey]:
    require()
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate = _load_certificate(file)
    try:
        private = load_pem_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise SealingError(f"{file} has no private key that can be read: {error}") from None
    if not isinstance(private, RSAPrivateKey):
        raise SealingError(f"the key in {file} is no RSA key")
    if private.public_key().public_numbers() != _public_key(file, certificate).public_numbers():
        raise SealingError(f"key and certificate in {file} do not belong together")
    return fingerprint(certificate), private


def require() -> None:
    """Raises SealingError if the library is missing."""
    try:
        import cryptography  # noqa: F401  # whether it is there
    except ImportError:
        raise SealingError(MISSING) from None


def fingerprint(certificate: Certificate) -> str:
    """SHA-256 of a certificate, in hexadecimal digits."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return certificate.fingerprint(SHA256()).hex()


class Sealing:
    """Encrypts for others, and decrypts what is for this node."""

    def __init__(
        self, certificates: Path | None = None, keys: Mapping[str, RSAPrivateKey] | None = None
    ) -> None:
        """`certificates` is the folder with those of other nodes: `1-10008.pem` is that of
        `1:10008`. They are read when they are used, so that a renewed one is taken at once. `keys`
        are those of `load_keys`."""
        self._certificates = certificates
        self._keys = keys or {}

    def seal(
        self, source: str, destination: str, app_key: str, body: bytes
    ) -> tuple[dict[str, str], bytes]:
        """Encrypt for the node of an address: what the envelope says of it, and the encrypted body.
        Raises SealingError."""
        require()
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._certificates is None:
            raise SealingError("this endpoint was given no folder of certificates")
        node = destination.partition("/")[0]
        file = self._certificates / f"{node.replace(':', '-')}.pem"
        certificate = _load_certificate(file)
        _check_valid(file, certificate)
        key, nonce, id = os.urandom(32), os.urandom(_NONCE_BYTES), os.urandom(16).hex()
        wrapped = _public_key(file, certificate).encrypt(key, _padding())
        parts = {
            **{"alg": _ALG, "enc": _ENC, "kid": fingerprint(certificate)},
            **{"key": _encode(wrapped), "iv": _encode(nonce), "id": id},
        }
        sealed = AESGCM(key).encrypt(nonce, body, _bound(source, destination, app_key, id))
        text = ";".join(f"{name}={value}" for name, value in parts.items())
        return {"encrypt": "1", "session_key": text}, sealed

    def open(self, fields: Mapping[str, str], body: bytes) -> bytes:
        """Decrypt the body of a message that has these fields. Raises SealingError."""
        require()
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        parts = _read(fields.get("session_key", ""))
        private = self._keys.get(parts["kid"])
        if private is None:
            raise SealingError(f"it is encrypted for the certificate {parts['kid'][:80]}, whose "
                               "key this node does not have")  # fmt: skip
        source, destination = fields.get("src", ""), fields.get("dst", "")
        bound = _bound(source, destination, fields.get("app_key", ""), parts["id"])
        try:
            key = private.decrypt(_decode(parts["key"]), _padding())
            return AESGCM(key).decrypt(_decode(parts["iv"]), body, bound)
        except (ValueError, InvalidTag):
            raise SealingError(
                "it was changed on its way, or is not what its envelope says"
            ) from None


def _bound(source: str, destination: str, app_key: str, id: str) -> bytes:
    """What is authenticated with the body. None of them has a line feed in it."""
    return "\n".join((source, destination, app_key, id)).encode()


def _read(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";")]
    parts = {name: value for name, _, value in pairs}
    if tuple(name for name, _, _ in pairs) != _PARTS:
        raise SealingError("its session_key is not of the form alg;enc;kid;key;iv;id")
    if parts["alg"] != _ALG or parts["enc"] != _ENC:
        raise SealingError(f"it is not encrypted by {_ALG} and {_ENC}")
    return parts


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (NotBase64, ValueError):
        raise SealingError("its session_key has something that is no base64url") from None


def _load_certificate(file: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(file.read_bytes())
    except FileNotFoundError:
        raise SealingError(f"there is no certificate {file}") from None
    except OSError as error:
        raise SealingError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise SealingError(f"{file} has no certificate in PEM") from None


def _check_valid(file: Path, certificate: Certificate) -> None:
    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        raise SealingError(f"the certificate {file} is valid from {begin:%Y-%m-%d %H:%M} "
                           f"to {end:%Y-%m-%d %H:%M} UTC")  # fmt: skip


def _public_key(file: Path, certificate: Certificate) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey):
        raise SealingError(f"the certificate {file} has no RSA key: only that is understood")
    if not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        raise SealingError(
            f"the key of the certificate {file} has {key.key_size} bits; "
            f"it has to have {RSA_BITS_MIN} to {RSA_BITS_MAX}"
        )
    return key


def _padding() -> OAEP:
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
    from cryptography.hazmat.primitives.hashes import SHA256

    return OAEP(MGF1(SHA256()), SHA256(), None)
