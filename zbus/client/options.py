"""Where a broker is, and how a client behaves towards it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from zbus.client.spans import Tracing

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:15555"
DEFAULT_PORT = 15_555

_SCHEMES = {"zbus": "http", "zbuss": "https"}

Kind = Literal["tcp", "tls", "unix"]


class Address(NamedTuple):
    """A place to connect to. `host` is the path of a Unix socket, whose port is 0."""

    kind: Kind
    host: str
    port: int

    def __str__(self) -> str:
        return self.host if self.kind == "unix" else f"{self.host}:{self.port}"


Addresses = tuple[Address, ...]
"""Of a broker, and of its standbys."""


def parse_urls(url: str) -> Addresses:
    """One URL, or several with commas between them: a broker and its standbys. `zbus://a:1,b:2` is
    the same as `http://a:1,http://b:2`: the scheme of the first is that of all that have none.
    Raises ValueError."""
    if url.startswith("unix:"):
        return (parse_url(url),)
    scheme, found = "http", []
    for part in url.split(","):
        place = part.strip()
        if "://" in place:
            scheme, place = place.split("://", 1)
        if not place.startswith("unix:"):
            place = f"{_SCHEMES.get(scheme, scheme)}://{place}"
        found.append(parse_url(place))
    return tuple(found)


def parse_url(url: str) -> Address:
    """`http://host:port`, `https://host:port`, `unix:/path`, or `host:port`. Raises ValueError."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        path = unquote(path.removeprefix("//") if path.startswith("///") else path)
        if not path:
            raise ValueError(f"{url!r} names no socket: unix:/path/of/socket")
        return Address("unix", path, 0)
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.username is not None:  # the error must not show what may be a token
        place = parts.netloc.rpartition("@")[2]
        text = "the URL of a broker has no user and no password"
        raise ValueError(f"{text}: use {parts.scheme}://{place}, and give the token as token=")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        forms = "http://host:port, https://host:port or unix:/path/of/socket"
        raise ValueError(f"{url!r} is not of the form {forms}")
    if parts.query or parts.path not in ("", "/"):
        raise ValueError(f"{url!r} has more than scheme, host and port; give a token as token=")
    kind: Kind = "tls" if parts.scheme == "https" else "tcp"
    return Address(kind, parts.hostname, DEFAULT_PORT if parts.port is None else parts.port)


class Options(Struct, frozen=True):
    """How a client behaves. `connect` and `Client` take these by name."""

    token: str | None = None
    timeout_s: float = 30.0
    """How long a request may take, reconnecting included."""
    connect_timeout_s: float = 5.0
    """One attempt to connect, the TLS handshake included."""
    retries: int = 10
    """How often a request is sent again, and a connection tried again, before an error is raised.
    0: never, and produced messages get no idempotency key."""
    backoff_s: float = 0.05
    """The first pause between attempts; each is twice the one before, with jitter."""
    backoff_max_s: float = 2.0
    ca: str | None = None
    """File with the certificates to trust (PEM); the system's by default."""
    cert: str | tuple[str, str] | None = None
    """The client's certificate: a PEM file, or (certificate, key)."""
    ssl_context: ssl.SSLContext | None = None
    """Instead of `ca` and `cert`."""
    tracing: Tracing | None = None
    """Who traces what is produced, called and answered: `zbus.client.tracing`."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """All but the token, which would stand in logs."""
        return [each for each in asdict(self).items() if each[0] != "token"]

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self.__rich_repr__()]
        return f"Options({', '.join(shown)})"

    def tls(self) -> ssl.SSLContext:
        """The context for `https://`: certificates and names are verified, TLS 1.2 or newer."""
        if self.ssl_context is not None:
            return self.ssl_context
        import ssl  # here: it takes a while, and plain connections do without

        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if isinstance(self.cert, str):
            context.load_cert_chain(self.cert)
        elif self.cert is not None:
            context.load_cert_chain(*self.cert)
        return context


class OptionArguments(TypedDict, total=False):
    """`Options` as keyword arguments."""

    token: str | None
    timeout_s: float
    connect_timeout_s: float
    retries: int
    backoff_s: float
    backoff_max_s: float
    ca: str | None
    cert: str | tuple[str, str] | None
    ssl_context: ssl.SSLContext | None
    tracing: Tracing | None


def resolve(url: str, options: Options) -> tuple[Addresses, Options]:
    """What all connections of a client have in common: certificates are read once. Raises
    ValueError for a URL, OSError for files that cannot be read, TypeError for options that
    contradict each other."""
    if options.ssl_context is not None and (options.ca or options.cert):
        raise TypeError("ssl_context contradicts ca and cert: load them into the context")
    addresses = parse_urls(url)
    if any(address.kind == "tls" for address in addresses) and options.ssl_context is None:
        options = replace(options, ssl_context=options.tls())
    return addresses, options
