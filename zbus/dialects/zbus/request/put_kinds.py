"""Puts whose replies are alike, so that neighbours in the log can have one ticket."""

from __future__ import annotations

from zbus.dialects.zbus.request.params import Params

_KINDS_MAX = 4096

_LINES = b"topic: \r\nid: \r\ndurability: \r\npartition: \r\noffset: \r\n"
"""Names that such a reply has, at most."""


class PutKind:
    """Puts whose replies differ in nothing but id and offset; compared by identity."""

    __slots__ = ("cover", "json", "line", "multiplexed", "silent")

    def __init__(
        self, line: bytes, multiplexed: bool, silent: bool, cover: bytes, json: bool
    ) -> None:
        self.line = line  # says the topic
        self.multiplexed = multiplexed
        self.silent = silent  # not even a reply
        self.cover = cover  # lines for a browser
        self.json = json  # a reply is a JSON object

    @classmethod
    def of(cls, kinds: dict[object, PutKind], params: Params, quiet: bool) -> PutKind | None:
        """That of a head, one of those that there are; None = the reply is one of its own."""
        head, browser = params.head, params.browser
        if not head.keep_alive or (head.method == b"HEAD" and not head.contained):
            return None
        cover = b""
        if browser is not None and not head.json:
            cover = browser.cover(_LINES, b"0", params.policy).removesuffix(_LINES)
        # Of a head with an id in its query no message is without one, and of others each that
        # came without: a reply may be made by what the head of another says.
        known = params.topic_line, params.multiplexed, quiet, cover, bool(params.id), head.json
        kind = kinds.get(known)
        if kind is None:
            if len(kinds) >= _KINDS_MAX:
                kinds.clear()
            silent = quiet and params.multiplexed
            kind = cls(params.topic_line, params.multiplexed, silent, cover, head.json)
            kinds[known] = kind
        return kind
