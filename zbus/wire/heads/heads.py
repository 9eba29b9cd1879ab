"""Reading request heads, in ways that always agree; the fastest that knows the answer wins.

A client repeats itself: the same request line, the same header names, mostly the same values. What
never repeats is the whole head, because each request has its own id. So there are memos of

1. *templates*: whole heads without their id line (some 0.4 us),
2. *lines*: header lines and request lines seen before. A new line is taken as well if its name was
   accepted before, does not steer the connection, and the value is plain ASCII (some 2 us),
3. and for everything else the careful `judge` (some 40 us), whose verdict fills the memos.

A client that polls sends no id, and the very same bytes again: the readers of connections keep
*receives* here, whole requests without id and body, each known by all bytes of the receive that
brought it (some 0.1 us, and nothing is read). And for heads that would come again but for their
values there are *shapes* (`zbus.wire.heads.shapes`); a reader tries those first that it used last
(some 1 us).

A memo may never change a verdict. That is why a template holds no id header in any spelling (else
"the last repetition wins" could break), why templates leave room for the largest id line (else a
head over a limit could pass), why lines of names that steer the connection are only taken when
exactly that line was judged, and why heads with repeated names always go to the judge.

Every memo is bounded and simply emptied when full: what is in use comes back at once, and no
bookkeeping is paid on a hit. Templates have a second chance, as the older ones: they go if they
were not used since the memo was full, or for a while (`age`). A crowd of heads that never come
again must not stay for ever, nor be freed all at once.
"""

from __future__ import annotations

from typing import Any, TypeVar

from zbus.wire.heads.fields import GUARDED, PRINTABLE, VISIBLE
from zbus.wire.heads.head import Field, Head, Request, Start, make_head
from zbus.wire.heads.judge import VERSIONS, judge
from zbus.wire.heads.shapes import MayDiffer, Shapes
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits

__all__ = ["Head", "Heads"]

_ID_LINE = b"\r\nid: "
_LETTERS = bytes(0x61 if byte in VISIBLE else 0x20 for byte in range(256))  # visible, or not
_ID_BYTES_MAX = 1024  # of an id that is cut out; longer ones are read line by line
_TEMPLATES_MAX = 16_384  # clients of 10,000 topics send as many
_TEMPLATE_BYTES_MAX = 2048
_MEMO_BYTES_MAX = 12 << 20  # of the templates, with what hangs on their heads; as much of the older
_DROPPED_PER_NEW = 4
_AGES_FROM_BYTES = 2 << 20  # what takes less may stay
_HEAD_BYTES, _PAIR_BYTES = 2_500, 250  # of a head with its plan, about; and of each pair of a query
_START_BYTES, _LINE_BYTES = 300, 300  # of a remembered line beside the text itself, about
_LINES_MAX = 4096
_STARTS_MAX = 16_384
_LINE_BYTES_MAX = 512  # of a remembered line: together with the counts, a bound on memory
_NAMES_MAX = 1024
_METHODS_MAX = 64
_UNIQUE = (b"id", b"idempotency-key")  # names whose values hardly come again
_NAME_BYTES_MAX = 64
_RECEIVES_MAX = 512
_RECEIVE_BYTES_MAX = 2048  # which hold at most 85 requests
_LENGTH_DIGITS_MAX = 15
_LINES_WORK, _JUDGE_WORK = 4, 40

Value = TypeVar("Value")


class Heads:
    """Reads heads and remembers. One for all connections of a server."""

    def __init__(
        self,
        limits: WireLimits = DEFAULT_LIMITS,
        *,
        contained: bool = False,
        marks: frozenset[bytes] = frozenset(),
        may_differ: MayDiffer | None = None,
    ) -> None:
        """`marks`: see `make_head`. Without `may_differ` no shapes are learned."""
        self._limits = limits
        bytes_max = min(limits.head_bytes_max, limits.line_bytes_max)
        self._may_differ = may_differ
        self.shapes = None if may_differ is None else Shapes(may_differ, bytes_max)
        self._marks = marks
        self._contained = contained
        self._contains: Heads | None = None
        self._json: Heads | None = None
        self.spent = 0  # work on heads that were not known, in units of about a microsecond
        self._templates: dict[bytes, Head] = {}
        self._memo_bytes = 0  # of the templates
        self._older: dict[bytes, Head] = {}  # templates that were not used since `age`
        self._older_bytes = 0
        self._doomed: list[Head] = []  # not remembered any more, and not freed yet
        self._lines: dict[bytes, Field] = {}
        self._starts: dict[bytes, Start] = {}
        self._names: dict[bytes, bytes] = {}  # as spelled: lower-case
        self._methods: dict[bytes, bool] = {}
        self.receives: dict[bytes, list[Request]] = {}  # never to be changed: what `remember` took
        self.sizes: set[int] = set()  # of the receives; who has another need not look
        id_line_bytes = len(_ID_LINE) - 2
        self._id_bytes_max = min(_ID_BYTES_MAX, limits.line_bytes_max - id_line_bytes)
        self._template_bytes_max = min(
            _TEMPLATE_BYTES_MAX, limits.head_bytes_max - len(_ID_LINE) - self._id_bytes_max
        )

    @property
    def contained(self) -> Heads:
        """The reader for messages within a body: other rules (a status line will do), so
        memos of its own."""
        if self._contains is None:
            self._contains = Heads(self._limits, contained=True, may_differ=self._may_differ)
        return self._contains

    @property
    def json(self) -> Heads:
        """The same for what was written as JSON: replies differ, and so do plans."""
        if self._json is None:
            self._json = Heads(self._limits, contained=True, may_differ=self._may_differ)
        return self._json

    @property
    def bytes_used(self) -> int:
        """What all memos take, about."""
        lines = len(self._starts) * (_START_BYTES + 100) + len(self._lines) * (_LINE_BYTES + 100)
        others = [heads.bytes_used for heads in (self._contains, self._json) if heads is not None]
        doomed = len(self._doomed) * _HEAD_BYTES
        shapes = 0 if self.shapes is None else self.shapes.bytes_used
        return self._memo_bytes + self._older_bytes + doomed + lines + shapes + sum(others)

    def age(self) -> None:
        """Drop what was not used since the last call; to be called every few seconds."""
        for heads in (self._contains, self._json):
            if heads is not None:
                heads.age()
        if self.bytes_used >= _AGES_FROM_BYTES:
            self._turn_over()
            self._starts.clear()
            self._lines.clear()

    def drop(self, most: int) -> None:
        """Free `most` of the heads that are remembered no more. Each has a plan, and all at once
        would take long."""
        for heads in (self._contains, self._json):
            if heads is not None:
                heads.drop(most)
        doomed = self._doomed
        for head in doomed[-most:]:
            head.kept = False
            head.plan = None
        del doomed[-most:]

    def forget(self) -> None:
        """Drop all of it: memory is short."""
        for heads in (self._contains, self._json):
            if heads is not None:
                heads.forget()
        self._turn_over()
        self._turn_over()
        self._starts.clear()
        self._lines.clear()
        self.drop(len(self._doomed))
        if self.shapes is not None:
            self.shapes.forget()

    def _turn_over(self) -> None:
        """Those that are older go, and the others are older."""
        self.drop(len(self._doomed))  # they had their time
        self._doomed = list(self._older.values())
        self._older, self._older_bytes = self._templates, self._memo_bytes
        self._templates, self._memo_bytes = {}, 0
        self._forget_receives()  # so that no other client keeps heads

    def read(self, raw: bytes, shaped: bool = False) -> tuple[Head, Any]:
        """Read a head, given without its final CRLFCRLF; return it and the id (b"" if none).
        `shaped`: what is returned may as well be a `Shape` and the match of it."""
        template, id_ = raw, b""
        before, found, after = raw.partition(_ID_LINE)
        if found:
            value, end, rest = after.partition(b"\r\n")
            visible = value.isalnum() or value.translate(_LETTERS).isalnum()
            if visible and len(value) <= self._id_bytes_max:
                template, id_ = before + end + rest, value
        head = self._templates.get(template)
        if head is not None:
            return head, id_
        return self._read_unknown(raw, template, id_, shaped)

    def remember(self, data: bytes, requests: list[Request]) -> None:
        """These bytes, from one boundary between requests to another, are these requests. That is
        worth remembering if nothing in them is unique, and their heads have come before."""
        if len(data) > _RECEIVE_BYTES_MAX:
            return
        seen = True
        for head, id_, body in requests:
            if id_ or body or not head.direct:
                return
            if not head.seen:
                head.seen = True
                seen = False
        if seen:
            if len(self.receives) >= _RECEIVES_MAX:
                self._forget_receives()
            self.receives[data] = requests
            self.sizes.add(len(data))

    def _forget_receives(self) -> None:
        self.receives.clear()
        self.sizes.clear()

    def _read_unknown(
        self, raw: bytes, template: bytes, id_: bytes, shaped: bool
    ) -> tuple[Head, Any]:
        head = self._older.pop(template, None)
        if head is not None:
            self._older_bytes -= _size(template)
            self._keep_template(template, head)
            return head, id_
        self.spent += _LINES_WORK
        shapes = self.shapes if shaped else None
        if shapes is not None and shapes.count and (found := shapes.find(raw)) is not None:
            return found
        head, id_ = self._read_lines(raw, template, id_)
        if shapes is not None:
            head.origin = self, raw
        return head, id_

    def _read_lines(self, raw: bytes, template: bytes, id_: bytes) -> tuple[Head, bytes]:
        limits = self._limits
        lines = template.split(b"\r\n", limits.fields_max)
        if len(raw) > limits.head_bytes_max or len(lines) > limits.fields_max:
            return self._judge(raw, template)
        start = self._starts.get(lines[0])
        seen = start is not None
        if start is None:
            start = self._new_start(lines[0])
            if start is None:
                return self._judge(raw, template)
        del lines[0]
        get = self._lines.get
        fields: dict[bytes, bytes] = {}
        for line in lines:
            field = get(line)
            if field is None:
                seen = False
                field = self._new_line(line)
                if field is None:
                    return self._judge(raw, template)
            name, value = field
            fields[name] = value
        if len(fields) != len(lines):
            return self._judge(raw, template)
        if b"id" not in fields:
            head = make_head(start, fields, not self._contained, self._marks)
            if seen:  # a head with something unique in it will hardly come again
                self._keep_template(template, head)
            return head, id_
        if template is not raw:  # two ids, of which one was cut out: which is the last?
            return self._judge(raw, template)
        id_ = fields.pop(b"id")  # spelled differently, like "ID: 7"
        return make_head(start, fields, not self._contained, self._marks), id_

    def _new_start(self, line: bytes) -> Start | None:
        """Take an unknown request line if it is plainly harmless."""
        parts = line.split(b" ")
        if len(parts) != 3 or len(line) > self._limits.line_bytes_max:
            return None
        method, target, version = parts
        if method not in self._methods or version not in VERSIONS:
            return None
        if not target or target.translate(None, VISIBLE):
            return None
        start = (method, target, VERSIONS[version])
        self._keep_start(line, start)
        return start

    def _new_line(self, line: bytes) -> Field | None:
        """Take an unknown header line if its name is known and its value plainly harmless."""
        spelled, colon, value = line.partition(b":")
        name = self._names.get(spelled)
        if name is None or not colon or len(line) > self._limits.line_bytes_max:
            return None
        value = value.strip(b" ")
        if name == b"content-length":
            if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
                return None
        elif value.translate(None, PRINTABLE):
            return None
        field = (name, value)
        self._keep_line(line, field)
        return field

    def _judge(self, raw: bytes, template: bytes) -> tuple[Head, bytes]:
        self.spent += _JUDGE_WORK
        head, id_, start, lines, fields = judge(
            raw, self._limits, contained=self._contained, marks=self._marks
        )
        if len(start[0]) <= _NAME_BYTES_MAX:
            _put(self._methods, start[0], True, _METHODS_MAX)
        self._keep_start(lines[0], start)
        ids = 0
        for line, field in zip(lines[1:], fields, strict=True):
            name = field[0]
            ids += name == b"id"
            self._keep_line(line, field)
            if len(name) <= _NAME_BYTES_MAX and (name not in GUARDED or name == b"content-length"):
                _put(self._names, line[: len(name)], name, _NAMES_MAX)
        if ids == (template is not raw):
            self._keep_template(template, head)
        return head, id_

    def _keep_template(self, template: bytes, head: Head) -> None:
        if len(template) > self._template_bytes_max:
            return
        if template.count(b"\r\n") >= self._limits.fields_max:
            return  # no room for an id line
        size = _size(template)
        if len(self._templates) >= _TEMPLATES_MAX or self._memo_bytes + size > _MEMO_BYTES_MAX:
            self._turn_over()
        if self._doomed:
            self.drop(_DROPPED_PER_NEW)
        self._memo_bytes += size
        self._templates[template] = head
        head.kept = True

    def _keep_start(self, line: bytes, start: Start) -> None:
        if len(line) <= _LINE_BYTES_MAX:
            _put(self._starts, line, start, _STARTS_MAX)

    def _keep_line(self, line: bytes, field: Field) -> None:
        if len(line) <= _LINE_BYTES_MAX and field[0] not in _UNIQUE:
            _put(self._lines, line, field, _LINES_MAX)


def _size(template: bytes) -> int:
    """What a remembered head takes, with its plan: about."""
    return _HEAD_BYTES + 4 * len(template) + _PAIR_BYTES * template.count(b"&")


def _put(memo: dict[bytes, Value], key: bytes, value: Value, most: int) -> None:
    if len(memo) >= most:
        memo.clear()
    memo[key] = value
