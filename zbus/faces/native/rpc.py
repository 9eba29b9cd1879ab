"""A call written as a URL (specification, section 8.3)."""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.faces.native.params import Params


def request_from_url(params: Params, form: str) -> bytes:
    """The JSON request for `/topic/method/args...?module=` or, by setting, `/topic/module/method/
    args...`. With `?module=` the first form holds in any case; with `?method=` too, all segments
    are arguments. Arguments that are JSON are sent as such, others as strings."""
    # The first segment is the topic's place, wherever the topic was named.
    segments = [segment.decode("utf-8", "replace") for segment in params.segments[1:]]
    module, method = params.text(b"module"), params.text(b"method")
    if module is None and form == "module-path" and segments:
        module = segments.pop(0)
    if method is None and segments:
        method = segments.pop(0)
    request: dict[str, Any] = {"module": module or ""}
    if method is not None:
        request["method"] = method
    if segments:
        request["params"] = [_argument(segment) for segment in segments]
    return msgspec.json.encode(request, order="sorted")


def _argument(text: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    if text in ("true", "false", "null") or text[:1] in tuple("-0123456789[{"):
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        return msgspec.Raw(text.encode())  # as written: digits are the caller's business
    return text
