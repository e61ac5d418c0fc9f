"""(Declaration, version) -> two functions of straight-line Python, made when they are first needed.

A generated decoder looks like this (FetchRequest v12, shortened):

    def decode(buf, p):
        end = len(buf)
        replica_id, max_wait_ms, min_bytes, max_bytes, ..., n, = unpack_iiiibiiB(buf, p); p += 26
        if not 0 < n < 128: n, p = long_length(buf, p, n)
        n -= 1
        if n * 3 > end - p: raise Malformed
        topics = []
        for _ in repeat(None, n):
            ...
            topics.append(FetchTopic(topic, default_topic_id, partitions))
            if tags: p = read_tags(topics[-1], buf, p - 1, 'FetchRequest', 12)
        ...
        fetch_request = FetchRequest(None, replica_id, LATE, max_wait_ms, ..., rack_id)
        if tags: p = read_tags(fetch_request, buf, p - 1, 'FetchRequest', 12)
        if p > end: raise Malformed
        return fetch_request, p

What makes it fast: one `unpack` for each run of fixed fields together with the length that follows it
(in `run`), local variables until all values of an object are there, objects made by one call in C with the
values in declared order, lengths of one byte read in place, `bytes` as the buffer. Arrays of elements of
fixed size are read in one go, and so are arrays whose elements are alike (`shapes.py`).
Encoders are the mirror image: one `pack` for each run, pieces appended to a list and
joined at the end, and a tag count of zero as a pad byte of the run before it.

What keeps it right:

* `buf[p:q]` doesn't raise when q is behind the end. So p only grows, every later read at such a p raises,
  and the last line checks p itself: nothing that was cut short is returned.
* Every count is checked against the bytes left before a list of that size is made.
* On any error the functions just raise something. `Message.decode` and `encode` then run the interpreter
  over the same input, and that names the field and the offset.
* Tag sections that aren't empty are rare: what reads and writes them is made apart, when it is first needed.
* Nothing closes over a local variable: that would make each use of it slower.

The tests hold every message and version of these functions against the interpreter.
"""

from __future__ import annotations

import keyword
import re
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat, starmap
from operator import length_hint
from typing import Any

from . import calls
from .interpret import smallest, uvarint
from .message import LATE, Array, Decoder, Encoder, Field, Message, Struct, check_version
from .shapes import FEW, Fill, Layouts, Part, Pattern
from .source import build
from .types import Primitive


def decoder(message: type[Message], version: int) -> Decoder:
    """Compile `decode(buf, p) -> (message, end)`.

    It raises one of `message.UNREADABLE` on malformed bytes. Raises UnsupportedVersion.
    """
    check_version(message, version)
    return DecoderSource(message, version).message_decoder()


def view_decoder(message: type[Message], version: int) -> Decoder:
    """`decoder`, for a buffer that may be a bytearray, with views into it instead of copies of records."""
    check_version(message, version)
    return _ViewSource(message, version).message_decoder()


def encoder(message: type[Message], version: int) -> Encoder:
    """Compile `encode(message) -> bytes`.

    It may raise any Exception on values that don't fit. Raises UnsupportedVersion.
    """
    check_version(message, version)
    made: Encoder = _Encoder(message, version).message_encoder()
    return made


def piece_encoder(message: type[Message], version: int) -> Callable[[Any], list[bytes]]:
    """`encoder`, without the join at the end."""
    check_version(message, version)
    made: Callable[[Any], list[bytes]] = _Encoder(message, version).message_encoder("return w")
    return made


class _Source:
    """Lines of a function in the making, the names they use, and the run of fixed fields not yet written."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, object] = {"Malformed": calls.Malformed, "Unsayable": calls.Unsayable}
        self.variables: set[str]
        self.variables = {"b", "buf", "end", "item", "len", "map", "n", "p", "q", "tags", "type", "w"}
        self.codes: list[str] = []
        self.values: list[str] = []

    def function(self, name: str) -> Any:
        label = f"<kproto {self.message.__module__}.{self.message.__qualname__} v{self.version} {name}>"
        return build("\n".join([*self.lines, ""]), label, self.names)[name.split()[0]]

    def line(self, text: str) -> None:
        if text:
            self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Indent what is written inside. A run never crosses the edge of a block."""
        assert not self.codes
        self.line(head)
        self.depth += 1
        yield
        self.flush()
        self.depth -= 1

    def flush(self) -> None:
        raise NotImplementedError

    def run(self, code: str, value: str) -> None:
        """Add a fixed field to the pending run."""
        self.codes.append(code)
        self.values.append(value)

    def name(self, wanted: str, value: object) -> str:
        """A name under which the function finds `value`."""
        found, number = wanted, 1
        while found in self.variables or self.names.setdefault(found, value) is not value:
            number += 1
            found = f"{wanted}_{number}"
        return found

    def variable(self, wanted: str) -> str:
        """A name that no other variable of this function has."""
        found, number = wanted, 1
        while found in self.variables or found in self.names or keyword.iskeyword(found):
            number += 1
            found = f"{wanted}_{number}"
        self.variables.add(found)
        return found

    def object_variable(self, cls: type[Struct]) -> str:
        return self.variable(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower())

    def is_plain(self, f: Field) -> bool:
        """The field stands at its place in this version: it exists, and isn't tagged."""
        return self.version in f.versions and not (self.flexible and self.version in f.tagged)

    def is_compact(self, f: Field) -> bool:
        return self.flexible and not f.always_rigid

    def constant(self, f: Field) -> str:
        """An expression for the initial value of a field that is neither a list nor a struct."""
        value = f.initial()
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return self.name(f"default_{f.name}", value)


class DecoderSource(_Source):
    title = "decode"
    opening = ""

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.after: list[str] = []
        self.names |= {"LATE": LATE, "repeat": repeat, "starmap": starmap}
        self.names |= {"long_length": calls.long_length, "long_string": calls.long_string, "uuids": _UUIDS}
        self.names["uuid_of"] = _UUIDS.__getitem__

    def message_decoder(self) -> Decoder:
        self.lines.append("def decode(buf, p):")
        self.line("end = len(buf)")
        self.line(self.opening)
        root = self.object_variable(self.message)
        self.struct(self.message, f"{root} = %s", root)
        self.flush()
        self.line("if p > end: raise Malformed")
        self.line(f"return {root}, p")
        decode: Decoder = self.function(self.title)
        return decode

    def flush(self) -> None:
        """Read the pending run. A length at its end is left in `n`."""
        if self.codes == ["B"]:
            self.line(f"{self.values[0]} = buf[p]; p += 1")
        elif self.codes:
            size = struct.calcsize(">" + "".join(self.codes))
            unpack = self.name(f"unpack_{_spell(self.codes)}", _unpack(tuple(self.codes)))
            self.line(f"{', '.join(self.values)}, = {unpack}(buf, p); p += {size}")
        for text in self.after:
            self.line(text)
        self.codes, self.values, self.after = [], [], []

    def struct(self, cls: type[Struct], store: str, stored: str) -> None:
        """Read a struct. `store` is a statement with %s for it, and `stored` is where it is found then."""
        made = self.made(cls, {f.name: self.value(f) for f in cls.__fields__ if self.is_plain(f)})
        if not self.flexible:
            # Values in the pending run are there only behind it.
            self.after.append(store % made)
            if not self.codes:
                self.flush()
            return
        self.run("B", "tags")
        self.flush()
        self.line(store % made)
        self.tags(cls, stored)

    def tags(self, cls: type[Struct], stored: str) -> None:
        """Add what the tag section in front of `p` says, unless it is empty."""
        tags = calls.Tags(cls, self.version, partial(_tag_reader, self.message, self.version))
        self.line(f"if tags: p = {self.name('read_tags', tags.read)}({stored}, buf, p - 1)")

    def tag_reader(self, f: Field) -> Decoder:
        """Compile `read(buf, p) -> (value, end)` for a tagged field."""
        self.lines.append("def read(buf, p):")
        self.line("end = len(buf)")
        value = self.value(f, tagged=True)
        self.flush()
        self.line(f"return {value}, p")
        read: Decoder = self.function(f"read {f.name}")
        return read

    def made(self, cls: type[Struct], values: Mapping[str, str]) -> str:
        """An expression for a new object with these values, and defaults for what isn't among them."""
        last = max((number for number, f in enumerate(cls.__fields__) if f.name in values), default=-1)
        arguments = [values.get(f.name) or self.default(f) for f in cls.__fields__[: last + 1]]
        return f"{self.name(cls.__name__, cls.__make__)}({', '.join(arguments)})"

    def default(self, f: Field) -> str:
        if f.is_made_late:
            return "LATE"
        return "[]" if f.default == [] else self.constant(f)

    def value(self, f: Field, tagged: bool = False) -> str:
        """Read a field; return an expression for its value."""
        nullable, compact = self.version in f.nullable, self.is_compact(f)
        if isinstance(f.kind, Primitive):
            if f.kind.code:
                return self.fixed(f.kind, f.name)
            value = self.variable(f.name)
            self.content(f.kind, f"{value} = %s", nullable, compact)
            return value
        value = self.variable(f.name)
        if isinstance(f.kind, Array):
            self.array(f.kind.element, value, nullable, compact)
        elif nullable:
            self.run("B" if tagged else "b", "n")
            self.flush()
            if tagged:
                self.line("if n > 127: raise Malformed")
            self.line(f"if {'not n' if tagged else 'n < 0'}: {value} = None")
            with self.block("else:"):
                self.struct(f.kind, f"{value} = %s", value)
        else:
            self.struct(f.kind, f"{value} = %s", value)
        return value

    def fixed(self, kind: Primitive, name: str) -> str:
        """Read a value of fixed size with the run; return an expression for it."""
        value = self.variable(name)
        self.run(kind.code, value)
        return self.uuid(value) if kind.name == "uuid" else value

    def uuid(self, content: str) -> str:
        return f"uuids[{content}]"

    def text(self, content: str) -> str:
        return f"{content}.decode()" if content != "b''" else "''"

    def numbers(self, kind: Primitive, values: str) -> str:
        """An expression for an array of values of fixed size: `values` are "a, b, c", or "*all"."""
        return f"[*map(uuid_of, {values[1:]})]" if kind.name == "uuid" and values else f"[{values}]"

    def cut(self, kind: Primitive, places: str) -> str:
        """An expression for the bytes at these places of the buffer."""
        return f"buf[{places}]"

    def content(self, kind: Primitive, store: str, nullable: bool, compact: bool) -> None:
        """Read a string or bytes."""
        text = kind.name == "string"
        with self.length("h" if text else "i", store, nullable, compact):
            content = self.cut(kind, f"p : (p := p + n{' - 1' if compact else ''})")
            self.line(store % (self.text(content) if text else content))

    @contextmanager
    def length(self, code: str, store: str, nullable: bool, compact: bool) -> Generator[None]:
        """Read a length or count into `n`, one too high if compact; the body handles what isn't null."""
        long = "long_string" if code == "h" else "long_length"
        self.run("B" if compact else code, "n")
        self.flush()
        if nullable:
            self.line(("if not n: " if compact else "if n < 0: ") + store % "None")
            with self.block("else:"):
                if compact:
                    self.line(f"if n > 127: n, p = {long}(buf, p, n)")
                yield
        else:
            if compact:
                self.line(f"if not 0 < n < 128: n, p = {long}(buf, p, n)")
            else:
                self.line("if n < 0: raise Malformed")
            yield

    def array(self, element: Primitive | type[Struct], items: str, nullable: bool, compact: bool) -> None:
        with self.length("i", f"{items} = %s", nullable, compact):
            if compact:
                self.line("n -= 1")
            size = max(1, smallest(element, self.version, compact))
            self.line(f"if n{f' * {size}' if size > 1 else ''} > end - p: raise Malformed")
            if isinstance(element, type):
                self.structs(element, items)
            elif element.code:
                table = self.name(f"unpack_n_{_spell([element.code])}", _UNPACKERS[element.code])
                values = self.numbers(element, f"*{table}[n](buf, p)")
                self.line(f"{items} = {values}; p += n * {element.size}")
            else:
                self.line(f"{items} = []")
                with self.block("for _ in repeat(None, n):"):
                    self.content(element, f"{items}.append(%s)", False, compact)

    def structs(self, cls: type[Struct], items: str) -> None:
        """Read `n` structs."""
        one_by_one = f"{items}.append(%s)", f"{items}[-1]"
        if self.is_fixed(cls):
            size = smallest(cls, self.version, self.flexible)
            self.line(f"q = p + n * {size}")
            if self.flexible:
                with self.block(f"if buf[p + {size - 1} : q : {size}].strip(b'\\0'):"):
                    self.line(f"{items} = []")
                    with self.block("for _ in repeat(None, n):"):
                        self.struct(cls, *one_by_one)
                with self.block("else:"):
                    self.fixed_structs(cls, items)
            else:
                self.fixed_structs(cls, items)
            return
        self.line(f"{items} = []")
        layouts = self.layouts(cls)
        if layouts:
            self.line(f"if n >= {FEW}: n, p = {self.name(f'read_{items}', layouts.read)}({items}, n, buf, p)")
        with self.block("for _ in repeat(None, n) if n else ():"):
            self.struct(cls, *one_by_one)

    def is_fixed(self, cls: type[Struct]) -> bool:
        """All that this version has of the struct, but for its tags, are of fixed size."""
        plain = [f for f in cls.__fields__ if self.is_plain(f)]
        return bool(plain) and all(isinstance(f.kind, Primitive) and f.kind.code for f in plain)

    def fixed_structs(self, cls: type[Struct], items: str) -> None:
        """Read structs of fixed size, without tags, from `p` to `q` in one go."""
        plain = [f for f in cls.__fields__ if self.is_plain(f)]
        codes = tuple(f.kind.code for f in plain if isinstance(f.kind, Primitive)) + ("x",) * self.flexible
        rows = f"{self.name(f'rows_{_spell([*codes])}', _iter_unpack(codes))}(buf[p:q])"
        made = self.made_of_rows(cls, plain, codes, rows)
        if made:
            self.line(f"{items} = {made}; p = q")
            return
        targets = [self.variable(f.name) for f in plain]
        values = {
            f.name: self.uuid(target) if code == "16s" else target
            for f, target, code in zip(plain, targets, codes, strict=False)
        }
        self.line(f"{items} = []")
        with self.block(f"for {', '.join(targets)}, in {rows}:"):
            self.line(f"{items}.append({self.made(cls, values)})")
        self.line("p = q")

    def made_of_rows(
        self, cls: type[Struct], plain: list[Field], codes: tuple[str, ...], rows: str
    ) -> str | None:
        """An expression for all structs at once; None where their values don't come as they are needed."""
        if tuple(plain) == cls.__fields__[: len(plain)] and "16s" not in codes:
            return f"[*starmap({self.name(cls.__name__, cls.__make__)}, {rows})]"
        return None

    def layouts(self, cls: type[Struct]) -> Layouts | None:
        """What reads elements of one layout in one go; None where there is little hope for that."""
        found = self.parts(cls)
        return Layouts(*found, self.flexible, self.maker(cls)) if found else None

    def maker(self, cls: type[Struct]) -> Callable[[Pattern], Fill]:
        """What makes a loop over elements when it is needed."""
        return partial(_fill, type(self), self.message, self.version, cls)

    def parts(self, cls: type[Struct]) -> tuple[list[Part], str] | None:
        """The parts of an element, and the codes of what is behind the last one."""
        parts: list[Part] = []
        fixed = ""
        for f in cls.__fields__:
            if not self.is_plain(f):
                continue
            nullable, element = self.version in f.nullable, getattr(f.kind, "element", f.kind)
            if isinstance(f.kind, Primitive) and f.kind.code:
                fixed += f.kind.code
                continue
            if isinstance(f.kind, Primitive):
                prefix, code = 2 if f.kind.name == "string" else 4, "s"
            elif isinstance(f.kind, Array):
                prefix, code = 4, element.code if isinstance(element, Primitive) else ""
            else:
                return None
            if code in ("", "16s"):
                code = ""
                if not nullable:  # such a list is usually null or empty; any other usually isn't
                    return None
            parts.append(Part(fixed, 0 if self.is_compact(f) else prefix, code, nullable))
            fixed = ""
        return (parts, fixed) if parts else None

    def fill(self, cls: type[Struct], pattern: Pattern) -> Fill:
        """The loop over elements with this pattern; see `shapes.Fill`."""
        self.variables |= {"items", "lengths", "rows"}
        known = iter(pattern)
        targets: list[str] = []
        lengths: list[str] = []
        values: dict[str, str] = {}
        for f in cls.__fields__:
            if not self.is_plain(f):
                continue
            if isinstance(f.kind, Primitive) and f.kind.code:
                targets.append(self.variable(f.name))
                values[f.name] = self.uuid(targets[-1]) if f.kind.name == "uuid" else targets[-1]
                continue
            lengths.append(self.variable("length"))
            targets.append(lengths[-1])
            length = next(known)
            text = isinstance(f.kind, Primitive) and f.kind.name == "string"
            if length < 0:
                values[f.name] = "None"
            elif isinstance(f.kind, Array):
                numbers = [self.variable("number") for _ in range(length)]
                targets += numbers
                element, values[f.name] = f.kind.element, "[]"
                if isinstance(element, Primitive) and element.code:
                    values[f.name] = self.numbers(element, ", ".join(numbers))
            else:
                content = self.variable(f.name) if length else "b''"
                targets += [content] * min(1, length)
                values[f.name] = self.text(content) if text else content
        wanted = [self.variable("wanted") for _ in lengths]
        other = [f"{a} != {b}" for a, b in zip(lengths, wanted, strict=True)] + ["tags"] * self.flexible
        targets += ["tags"] * self.flexible
        self.names["length_hint"] = length_hint
        self.lines.append("def fill(items, rows, lengths):")
        self.line(f"{', '.join(wanted)}, = lengths")
        with self.block(f"for {', '.join(targets)}, in rows:"):
            self.line(f"if {' or '.join(other)}: return length_hint(rows) + 1")
            self.line(f"items.append({self.made(cls, values)})")
        self.line("return 0")
        fill: Fill = self.function(f"fill {cls.__name__} {pattern}")
        return fill


class _ViewSource(DecoderSource):
    title = "decode views"
    opening = "view = memoryview(buf)"

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.variables.add("view")

    def cut(self, kind: Primitive, places: str) -> str:
        if kind.name == "string":
            return f"buf[{places}]"
        return f"view[{places}]" if kind.name == "records" else f"bytes(buf[{places}])"


class _Encoder(_Source):
    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.names |= {"LATE": LATE, "SMALL": calls.SMALL, "TRUTH": calls.TRUTH}
        self.names |= {"uvarint": uvarint, "string_uvarint": calls.string_uvarint}
        self.names |= {"as_content": calls.as_content, "as_array": calls.as_array}

    def message_encoder(self, end: str = "return b''.join(w)") -> Any:
        root = self.object_variable(self.message)
        self.lines.append(f"def encode({root}):")
        self.line("w = []")
        self.struct(self.message, root)
        self.flush()
        self.line(end)
        return self.function("encode")

    def tags_writer(self, cls: type[Struct]) -> Encoder:
        """Compile `write(struct) -> bytes` for the tag sections of `cls`."""
        variable = self.object_variable(cls)
        self.names["tag_section"] = calls.tag_section
        self.variables.add("pieces")
        self.lines.append(f"def write({variable}):")
        self.line("pieces = {}")
        for f in self.tagged(cls):
            with self.block(f"if {self.differs(f, f'{variable}.{f.slot}')}:"):
                self.line("w = []")
                self.field(f, f"{variable}.{f.name}", tagged=True)
                self.flush()
                self.line(f"pieces[{f.tag}] = b''.join(w)")
        known = self.name("known", frozenset(f.tag for f in cls.__fields__ if f.tagged))
        self.line(f"return tag_section(pieces, {known}, {variable}._tags)")
        write: Encoder = self.function(f"write {cls.__name__}")
        return write

    def tagged(self, cls: type[Struct]) -> list[Field]:
        return [f for f in cls.__fields__ if self.version in f.versions and self.version in f.tagged]

    def packed(self) -> str:
        """An expression for the bytes of the pending run."""
        if self.codes == ["x"]:
            return "b'\\0'"
        values = ", ".join(value for value in self.values if value)
        lists = [value[1:] for value in self.values if value.startswith("*")]
        if not lists:
            return f"{self.name(f'pack_{_spell(self.codes)}', _pack(tuple(self.codes)))}({values})"
        table = self.name(f"pack_n_{_spell(self.codes)}", _packers(tuple(self.codes)))
        return f"{table}[{', '.join(f'len({items})' for items in lists)}]({values})"

    def flush(self) -> None:
        if self.codes:
            self.line(f"w.append({self.packed()})")
        self.codes, self.values = [], []

    def struct(self, cls: type[Struct], variable: str) -> None:
        set_but_absent = [
            self.differs(f, f"{variable}.{f.slot}")
            for f in cls.__fields__
            if self.version not in f.versions and not f.ignorable
        ]
        if not self.flexible:
            set_but_absent.append(f"{variable}._tags")
        if set_but_absent:
            self.line(f"if {' or '.join(set_but_absent)}: raise Unsayable")
        plain = [f for f in cls.__fields__ if self.is_plain(f)]
        lists = [f for f in plain if isinstance(f.kind, Array) and _is_number(f.kind.element)]
        for f in plain:
            # One list of numbers is faster apart, but not several.
            self.field(f, f"{variable}.{f.name}", in_run=len(lists) > 1 and f in lists)
        if self.flexible:
            self.tags(cls, variable)

    def differs(self, f: Field, value: str) -> str:
        """A condition: `value` isn't the initial value of the field."""
        initial = f.initial()
        if initial is None:
            return f"{value} is not None"
        if isinstance(f.kind, Array):
            return f"{value} != {self.name('EMPTY', _EMPTY)}"
        if isinstance(f.kind, type):
            parts = [self.differs(part, f"{value}.{part.slot}") for part in f.kind.__fields__]
            some = " or ".join([*parts, f"{value}._tags"])
            some = f"({value} is None or {some})"
            return f"({value} is not LATE and {some})" if f.is_made_late else some
        return f"{value} != {self.constant(f)}"

    def tags(self, cls: type[Struct], variable: str) -> None:
        """No tags: a zero byte behind the pending run. Else that byte is taken back for the real section."""
        self.run("x", "")
        self.flush()
        conditions = [f"{variable}._tags"]
        conditions += [self.differs(f, f"{variable}.{f.slot}") for f in self.tagged(cls)]
        write = calls.when_needed(partial(_tags_writer, self.message, self.version, cls))
        with self.block(f"if {' or '.join(conditions)}:"):
            self.line(f"w[-1] = w[-1][:-1] + {self.name('write_tags', write)}({variable})")

    def field(self, f: Field, value: str, in_run: bool = False, tagged: bool = False) -> None:
        nullable = self.version in f.nullable
        if isinstance(f.kind, Primitive):
            self.primitive(f.kind, value, nullable, self.is_compact(f))
        elif isinstance(f.kind, Array):
            self.array(f, f.kind.element, value, in_run)
        else:
            part = self.object_variable(f.kind)
            self.line(f"{part} = {value}")
            if nullable:
                self.run("b", f"{0 if tagged else -1} if {part} is None else 1")
                self.flush()
                with self.block(f"if {part} is not None:"):
                    self.struct(f.kind, part)
            else:
                self.struct(f.kind, part)

    def primitive(self, kind: Primitive, value: str, nullable: bool, compact: bool) -> None:
        if kind.name == "uuid":
            self.run("16s", f"{value}.int.to_bytes(16, 'big')")
        elif kind.name == "bool":
            self.run("B", f"TRUTH[{value}]")
        elif kind.code:
            self.run(kind.code, value)
        else:
            text = kind.name == "string"
            content = "b.encode()" if text else "b if type(b) is bytes else as_content(b)"
            self.line(f"b = {value}")
            self.line(f"if b is None: b = b''; n = {0 if compact else -1}" if nullable else "")
            otherwise, length = "else: " if nullable else "", f"len(b){' + 1' if compact else ''}"
            self.line(f"{otherwise}b = {content}; n = {length}")
            self.length("h" if text else "i", compact)
            self.line("w.append(b)")

    def length(self, code: str, compact: bool) -> None:
        """Write the pending run and behind it `n`, a length that is one too high if compact."""
        if not compact:
            self.run(code, "n")
            self.flush()
            return
        varint = "string_uvarint" if code == "h" else "uvarint"
        if not self.codes:
            self.line(f"w.append(SMALL[n] if n < 128 else {varint}(n))")
            return
        without = self.packed()
        self.run("B", "n")
        self.line(f"w.append({self.packed()} if n < 128 else {without} + {varint}(n))")
        self.codes, self.values = [], []

    def array(self, f: Field, element: Primitive | type[Struct], value: str, in_run: bool) -> None:
        """With `in_run` the count and the numbers become a part of the run."""
        nullable, compact = self.version in f.nullable, self.is_compact(f)
        items = self.variable(f.name)
        checked = f"{items} if type({items}) is list else as_array({items})"
        self.line(f"{items} = {value}")
        self.line(f"if {items} is None: {items} = (); n = {0 if compact else -1}" if nullable else "")
        otherwise, count = "else: " if nullable else "", f"len({items}){' + 1' if compact else ''}"
        self.line(f"{otherwise}{items} = {checked}; n = {count}")
        if in_run and isinstance(element, Primitive):
            count = self.variable("count")
            self.line(f"{count} = n")
            varint = f"SMALL[{count}] if {count} < 128 else uvarint({count})"
            self.run("v" if compact else "i", varint if compact else count)
            self.run(f"*{element.code}", f"*{items}")
            return
        self.length("i", compact)
        if isinstance(element, type):
            item = self.object_variable(element)
            with self.block(f"for {item} in {items}:"):
                self.struct(element, item)
        elif not element.code:
            with self.block(f"for item in {items}:"):
                self.primitive(element, "item", False, compact)
        elif element.name == "bool":
            self.line(f"w.append(bytes([TRUTH[item] for item in {items}]))")
        elif element.name == "uuid":
            self.line(f"w.extend([item.int.to_bytes(16, 'big') for item in {items}])")
        else:
            self.run(f"*{element.code}", f"*{items}")
            self.flush()


def _is_number(kind: Primitive | type[Struct]) -> bool:
    return isinstance(kind, Primitive) and kind.code not in ("", "?", "16s")


def _tag_reader(message: type[Message], version: int, f: Field) -> Decoder:
    return DecoderSource(message, version).tag_reader(f)


def _tags_writer(message: type[Message], version: int, cls: type[Struct]) -> Encoder:
    return _Encoder(message, version).tags_writer(cls)


def _fill(
    source: type[DecoderSource], message: type[Message], version: int, cls: type[Struct], pattern: Pattern
) -> Fill:
    return source(message, version).fill(cls, pattern)


_CODES = ("?", "b", "h", "H", "i", "I", "q", "d", "16s")
_UNPACKERS = {code: calls.Unpackers(code) for code in _CODES}
_UUIDS = calls.Uuids()
_EMPTY: list[Any] = []


@cache
def _unpack(codes: tuple[str, ...]) -> Callable[[bytes, int], tuple[Any, ...]]:
    return struct.Struct(">" + "".join(codes)).unpack_from


@cache
def _iter_unpack(codes: tuple[str, ...]) -> Callable[[bytes], Iterator[tuple[Any, ...]]]:
    return struct.Struct(">" + "".join(codes)).iter_unpack


@cache
def _packers(codes: tuple[str, ...]) -> calls.Packers:
    return calls.Packers(codes)


@cache
def _pack(codes: tuple[str, ...]) -> Callable[..., bytes]:
    return struct.Struct(">" + "".join(codes)).pack


def _spell(codes: list[str]) -> str:
    """`struct` codes as a part of a name; `t` is for truth, `n` for a list."""
    return "".join(codes).replace("?", "t").replace("16s", "u").replace("*", "n")
