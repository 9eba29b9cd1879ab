"""What a TLS listener shows and asks for: files, loaded at start and again on demand."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from zbus.config.server import ServerOptions
from zbus.server.exits import CannotStart

_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\n?"
)
_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_DEMANDS = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class BadCertificate(CannotStart):
    """A file cannot be used; the text names the option and the file."""


class Certificates:
    """`context` is for new connections; those that are open keep the one they began with."""

    def __init__(self, config: ServerOptions) -> None:
        """BadCertificate if a file is missing or does not fit."""
        self._config = config
        self.text = ""  # the certificate and its chain, as PEM
        self.context = self._load()

    def reload(self) -> None:
        """Load the files again; if one is bad, all stays as it was and BadCertificate is raised."""
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        text = self._load_own(context)
        if config.tls_client_auth != "none":
            _read("tls_client_ca_file", config.tls_client_ca_file, _CERTIFICATE, "certificate")
            try:
                context.load_verify_locations(config.tls_client_ca_file)
            except ssl.SSLError as error:
                raise BadCertificate(
                    f"tls_client_ca_file {config.tls_client_ca_file}: {_reason(error)}"
                ) from None
            context.verify_mode = _DEMANDS[config.tls_client_auth]
        self.text = text
        return context

    def _load_own(self, context: ssl.SSLContext) -> str:
        cert_file = self._config.tls_cert_file
        key_file = self._config.tls_key_file or cert_file
        certificate = _read("tls_cert_file", cert_file, _CERTIFICATE, "certificate")
        _read("tls_key_file", key_file, _KEY, "private key")
        try:
            context.load_cert_chain(cert_file, key_file, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise BadCertificate(
                    f"the key in {key_file} does not belong to the certificate in {cert_file}"
                ) from None
            raise BadCertificate(
                f"tls_cert_file {cert_file}, tls_key_file {key_file}: {_reason(error)}"
            ) from None
        # The file may hold the private key, too, which stays out.
        return b"".join(_CERTIFICATE.findall(certificate)).decode()


def _read(option: str, path: str, wanted: re.Pattern[bytes], what: str) -> bytes:
    """The content of a file of which OpenSSL would not say what is wrong with it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadCertificate(f"{option}: cannot read {path}: {error.strerror}") from None
    if not wanted.search(content):
        raise BadCertificate(f"{option}: there is no {what} in {path}; PEM is expected")
    return content


def _no_password() -> str:
    raise BadCertificate("tls_key_file: the key is encrypted, and zbus cannot ask for its password")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def check_options(config: ServerOptions, tls: bool) -> None:
    """BadCertificate if the options of TLS contradict each other, or whether an address is https
    (`tls`): who sets one of them must not be served without it."""
    if tls and not config.tls_cert_file:
        raise BadCertificate("an address of listen is https, but tls_cert_file is not set")
    for option in ("tls_cert_file", "tls_key_file", "tls_client_ca_file"):
        if getattr(config, option) and not tls:
            raise BadCertificate(f"{option} is set, but no address of listen is https")
    if bool(config.tls_client_ca_file) != (config.tls_client_auth != "none"):
        raise BadCertificate(
            "tls_client_ca_file goes with tls_client_auth optional or required, and not without"
        )
