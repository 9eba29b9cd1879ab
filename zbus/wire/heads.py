"""Reading request heads, in three ways that always agree; the fastest that knows the answer wins.

A client repeats itself: the same request line, the same header names, mostly the same values. What
never repeats is the whole head, because each request has its own id. So there are memos of

1. *templates*: whole heads without their id line (some 0.4 us),
2. *lines*: header lines and request lines seen before. A new line is taken as well if its name was
   accepted before, does not steer the connection, and the value is plain ASCII (some 2 us),
3. and for everything else the careful `judge` (some 40 us), whose verdict fills the memos.

A memo may never change a verdict. That is why a template holds no id header in any spelling (else
"the last repetition wins" could break), why templates leave room for the largest id line (else a
head over a limit could pass), why lines of names that steer the connection are only taken when
exactly that line was judged, and why heads with repeated names always go to the judge.

Every memo is bounded and simply emptied when full: what is in use comes back at once, and no
bookkeeping is paid on a hit.
"""

from __future__ import annotations

from zbus.wire.fields import GUARDED, PRINTABLE, VISIBLE
from zbus.wire.head import Field, Head, Start, make_head
from zbus.wire.judge import VERSIONS, judge
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits

__all__ = ["Head", "Heads"]

_ID_LINE = b"\r\nid: "
_ID_BYTES_MAX = 1024  # of an id that is cut out; longer ones are read line by line
_TEMPLATES_MAX = 1024
_TEMPLATE_BYTES_MAX = 2048
_LINES_MAX = 4096
_STARTS_MAX = 1024
_LINE_BYTES_MAX = 512  # of a remembered line: together with the counts, a bound on memory
_NAMES_MAX = 1024
_METHODS_MAX = 64
_UNIQUE = (b"id", b"idempotency-key")  # names whose values hardly come again
_NAME_BYTES_MAX = 64
_LENGTH_DIGITS_MAX = 15


class Heads:
    """Reads heads and remembers. One for all connections of a server."""

    __slots__ = (
        "_contained",
        "_contains",
        "_id_bytes_max",
        "_json",
        "_limits",
        "_lines",
        "_methods",
        "_names",
        "_starts",
        "_template_bytes_max",
        "_templates",
    )

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS, *, contained: bool = False) -> None:
        self._limits = limits
        self._contained = contained
        self._contains: Heads | None = None
        self._json: Heads | None = None
        self._templates: dict[bytes, Head] = {}
        self._lines: dict[bytes, Field] = {}
        self._starts: dict[bytes, Start] = {}
        self._names: dict[bytes, bytes] = {}  # as spelled: lower-case
        self._methods: set[bytes] = set()
        id_line_bytes = len(_ID_LINE) - 2
        self._id_bytes_max = min(_ID_BYTES_MAX, limits.line_bytes_max - id_line_bytes)
        self._template_bytes_max = min(
            _TEMPLATE_BYTES_MAX, limits.head_bytes_max - len(_ID_LINE) - self._id_bytes_max
        )

    @property
    def contained(self) -> Heads:
        """The reader for messages within a body: other rules (no Host), so memos of its own."""
        if self._contains is None:
            self._contains = Heads(self._limits, contained=True)
        return self._contains

    @property
    def json(self) -> Heads:
        """The same for what was written as JSON: replies differ, and so do plans."""
        if self._json is None:
            self._json = Heads(self._limits, contained=True)
        return self._json

    def read(self, raw: bytes) -> tuple[Head, bytes]:
        """Read a head, given without its final CRLFCRLF; return it and the id (b"" if none)."""
        template, id_ = raw, b""
        at = raw.find(_ID_LINE)
        if at >= 0:
            begin = at + 6
            end = raw.find(b"\r\n", begin)
            if end < 0:
                end = len(raw)
            value = raw[begin:end]
            if 0 < end - begin <= self._id_bytes_max and not value.translate(None, VISIBLE):
                template, id_ = raw[:at] + raw[end:], value
        head = self._templates.get(template)
        if head is not None:
            return head, id_
        return self._read_lines(raw, template, id_)

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
            head = make_head(start, fields, not self._contained)
            if seen:  # a head with something unique in it will hardly come again
                self._keep_template(template, head)
            return head, id_
        if template is not raw:  # two ids, of which one was cut out: which is the last?
            return self._judge(raw, template)
        id_ = fields.pop(b"id")  # spelled differently, like "ID: 7"
        return make_head(start, fields, not self._contained), id_

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
        head, id_, start, lines, fields = judge(raw, self._limits, contained=self._contained)
        self._keep_method(start[0])
        self._keep_start(lines[0], start)
        ids = 0
        for line, field in zip(lines[1:], fields, strict=True):
            ids += field[0] == b"id"
            self._keep_line(line, field)
            self._keep_name(line, field[0])
        if ids == (template is not raw):
            self._keep_template(template, head)
        return head, id_

    def _keep_template(self, template: bytes, head: Head) -> None:
        if len(template) > self._template_bytes_max:
            return
        if template.count(b"\r\n") >= self._limits.fields_max:
            return  # no room for an id line
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[template] = head

    def _keep_method(self, method: bytes) -> None:
        if len(method) <= _NAME_BYTES_MAX:
            if len(self._methods) >= _METHODS_MAX:
                self._methods.clear()
            self._methods.add(method)

    def _keep_start(self, line: bytes, start: Start) -> None:
        if len(line) <= _LINE_BYTES_MAX:
            if len(self._starts) >= _STARTS_MAX:
                self._starts.clear()
            self._starts[line] = start

    def _keep_line(self, line: bytes, field: Field) -> None:
        if len(line) <= _LINE_BYTES_MAX and field[0] not in _UNIQUE:
            if len(self._lines) >= _LINES_MAX:
                self._lines.clear()
            self._lines[line] = field

    def _keep_name(self, line: bytes, name: bytes) -> None:
        spelled = line[: len(name)]
        if len(name) > _NAME_BYTES_MAX or (name in GUARDED and name != b"content-length"):
            return
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        self._names[spelled] = name
