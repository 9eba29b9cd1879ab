"""Certificates for tests, signed by themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


@cache
def make(name: str, kind: str = "rsa", bits: int = 2_048, days: int = 30) -> tuple[bytes, bytes]:
    """Certificate and key, PEM. With fewer than no days it is over already."""
    key = rsa.generate_private_key(65_537, bits) if kind == "rsa" else ec.generate_private_key(
        ec.SECP256R1()
    )  # fmt: skip
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), private


def certificate_of(folder: Path, node: str, pem: bytes) -> Path:
    """Put a certificate where others look for it."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{node.replace(':', '-')}.pem"
    file.write_bytes(pem)
    return file


def both(file: Path, certificate: bytes, key: bytes) -> Path:
    """A file with a key and its certificate."""
    file.write_bytes(certificate + key)
    return file
