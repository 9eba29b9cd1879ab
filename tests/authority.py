"""Certificates for tests, of an authority that lives as long as the run."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import trustme

from zbus.config import Config
from zbus.server.process.certificates import Certificates

HOSTS = ("localhost", "127.0.0.1")


@cache
def authority(name: str = "zbus") -> trustme.CA:
    return trustme.CA(organization_name=name)


class Files(NamedTuple):
    """What a broker is given, and the authority that a client trusts."""

    certificate: Path
    key: Path
    authority: Path


def write_files(folder: Path, name: str = "zbus") -> Files:
    """A new certificate for `HOSTS`, of the authority of this name."""
    issued = authority(name).issue_cert(*HOSTS)
    files = Files(folder / "cert.pem", folder / "key.pem", folder / f"{name}-ca.pem")
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files.key.write_bytes(issued.private_key_pem.bytes())
    files.authority.write_bytes(authority(name).cert_pem.bytes())
    return files


def server_context(
    folder: Path, client_auth: Literal["none", "optional", "required"] = "none"
) -> ssl.SSLContext:
    """As a broker makes it."""
    files = write_files(folder)
    config = Config(
        tls_cert_file=str(files.certificate),
        tls_key_file=str(files.key),
        tls_client_auth=client_auth,
        tls_client_ca_file="" if client_auth == "none" else str(files.authority),
    )
    return Certificates(config).context


def client_context(
    name: str = "zbus",
    principal: str = "",
    signed_by: str = "zbus",
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """Trusts the authority `name`; with a `principal`, shows a certificate that names it."""
    context = ssl.create_default_context()
    authority(name).configure_trust(context)
    if principal:
        issued = authority(signed_by).issue_cert(f"{principal}@example.org", common_name=principal)
        issued.configure_cert(context)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context
