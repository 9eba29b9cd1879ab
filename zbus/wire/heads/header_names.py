"""What names of header lines mean to HTTP: to a connection, to proxies, caches, libraries and
browsers; and which of them hold secrets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

PREFIX = b"zbus-header-"
"""Before the name of a line that must not mean to HTTP what it means to the application."""

OF_CONNECTION = frozenset(
    (
        b"connection content-length expect http2-settings keep-alive proxy-connection te trailer"
        b" transfer-encoding upgrade"
    ).split()
)
"""Lines about one connection (RFC 9110, section 7.6.1) and the framing of one body."""

CREDENTIALS = frozenset(
    (
        b"api-key apikey authorization cf-access-jwt-assertion cookie cookie2 job-token"
        b" private-token proxy-authorization token x-access-token x-amz-security-token x-api-key"
        b" x-apikey x-auth x-auth-token x-authorization x-csrf-token x-gitlab-token"
        b" x-goog-iap-jwt-assertion x-session-token x-vault-token x-xsrf-token"
    ).split()
)
_CREDENTIAL_PREFIXES = (b"x-amzn-oidc-", b"x-ms-token-")
_CREDENTIAL_SUFFIXES = (b"-access-token", b"-api-key", b"-auth-token", b"-id-token")
"""Secrets, of the sender or of a proxy that has checked who it is."""

_OF_WAY = frozenset(
    (
        b"accept accept-charset accept-datetime accept-encoding accept-language cache-control"
        b" cdn-loop cf-connecting-ip cf-connecting-ipv6 cf-ew-via cf-ipcountry cf-pseudo-ipv4"
        b" cf-ray cf-visitor cf-warp-tag-id cf-worker client-ip dnt early-data fastly-client-ip"
        b" fastly-ff fastly-ssl fly-client-ip fly-forwarded-port fly-region forwarded if-match"
        b" if-modified-since if-none-match if-range if-unmodified-since last-event-id"
        b" max-forwards origin pragma prefer purpose range referer save-data true-client-ip"
        b" upgrade-insecure-requests user-agent via viewport-width x-client-ip"
        b" x-cluster-client-ip x-envoy-external-address x-envoy-expected-rq-timeout-ms"
        b" x-envoy-internal x-forwarded x-http-method-override x-moz x-original-uri"
        b" x-original-url x-originating-ip x-proxyuser-ip x-purpose x-real-ip"
        b" x-remote-ip x-requested-with x-scheme x-varnish x-wap-profile"
    ).split()
)
_OF_WAY_PREFIXES = (
    b"access-control-request-",
    b"cloudfront-",
    b"sec-",
    b"x-appengine-",
    b"x-arr-",
    b"x-auth-request-",
    b"x-azure-",
    b"x-fd-",
    b"x-forwarded-",
    b"x-ms-client-principal",
)
"""Lines that programs, browsers and proxies add by themselves, about the request and its sender."""

_STEERING = frozenset(
    (
        b"accept-ch accept-ranges activate-storage-access age allow alt-svc alt-used"
        b" cache-control cdn-cache-control clear-site-data connection content-disposition"
        b" content-encoding content-length content-location content-md5 content-range critical-ch"
        b" date document-policy edge-control etag expect expires integrity-policy keep-alive"
        b" last-modified link location nel no-vary-search origin-agent-cluster permissions-policy"
        b" pragma priority public-key-pins referrer-policy refresh report-to reporting-endpoints"
        b" retry-after server service-worker-allowed set-cookie set-cookie2 set-login sourcemap"
        b" speculation-rules status strict-transport-security supports-loading-mode te"
        b" timing-allow-origin tk trailer transfer-encoding upgrade use-as-dictionary vary via"
        b" warning www-authenticate x-cache x-sendfile x-varnish"
    ).split()
)
_STEERING_PREFIXES = (
    b"access-control-",
    b"attribution-reporting-",
    b"cf-",
    b"cloudflare-",
    b"content-security-policy",
    b"cross-origin-",
    b"edge-",
    b"fastly-",
    b"observe-browsing-topics",
    b"proxy-",
    b"sec-",
    b"surrogate-",
    b"x-accel-",
    b"x-akamai-",
    b"x-content-",
    b"x-dns-",
    b"x-frame-",
    b"x-lighttpd-",
    b"x-litespeed-",
    b"x-permitted-",
    b"x-reproxy-",
    b"x-robots-",
    b"x-sendfile-",
    b"x-sourcemap",
    b"x-xss-",
    PREFIX,  # a reader takes it off once
)
"""Names on which an HTTP library, a proxy, a cache or a browser acts in a reply. The list cannot be
complete, and need not be: it is for the framing that is not plain HTTP."""


def is_credential(name: bytes) -> bool:
    """A line of this name holds a secret."""
    return (
        name in CREDENTIALS
        or name.endswith(_CREDENTIAL_SUFFIXES)
        or name.startswith(_CREDENTIAL_PREFIXES)
    )


def is_of_way(name: bytes) -> bool:
    """A line of this name says how a request came."""
    return name in _OF_WAY or name.startswith(_OF_WAY_PREFIXES)


@lru_cache(maxsize=1024)
def steers(name: bytes) -> bool:
    """A line of this name in a reply makes something on the way do something."""
    return name in _STEERING or name in OF_CONNECTION or name.startswith(_STEERING_PREFIXES)


def nominated(fields: Mapping[bytes, bytes]) -> frozenset[bytes]:
    """Names of fields that are for this connection: `connection` says so (RFC 9110, 7.6.1)."""
    options = fields.get(b"connection", b"").lower()
    if options in (b"", b"keep-alive", b"close", b"upgrade"):
        return frozenset()
    return frozenset(name.strip(b" \t") for name in options.split(b","))
