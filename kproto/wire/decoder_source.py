"""Generate the source of decoders. `compiler.py` shows an example and explains it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat, starmap
from operator import length_hint
from typing import Any

from . import runtime
from .codecs import Decoder
from .fields import LAZY
from .interpreter import minimum_size
from .layouts import MIN_RUN, Fill, LayoutPart, Layouts, Pattern
from .message import Array, Field, Message, Struct
from .source import FunctionSource, code_name
from .types import Primitive


class DecoderSource(FunctionSource):
    """The source of the functions that decode a message in one version.

    Methods generate code at the current position, or return expressions for the code. Variables of the
    generated code: `buf`, the position `p` in it, its `end`, the length `n` and the end `q` of an array.
    """

    function_name = "decode"
    prologue = ""

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        # The statements to generate after the `unpack` call of the pending run.
        self.after: list[str] = []
        self.names |= {"LAZY": LAZY, "repeat": repeat, "starmap": starmap}
        self.names |= {
            "long_length": runtime.long_length,
            "long_string": runtime.long_string,
            "uuids": _UUIDS,
        }
        self.names["uuid_of"] = _UUIDS.__getitem__

    def message_decoder(self) -> Decoder:
        self.lines.append("def decode(buf, p):")
        self.line("end = len(buf)")
        self.line(self.prologue)
        root = self.object_variable(self.message)
        self.struct(self.message, f"{root} = %s", root)
        self.flush()
        self.line("if p > end: raise Malformed")
        self.line(f"return {root}, p")
        decode: Decoder = self.function(self.function_name)
        return decode

    def flush(self) -> None:
        """Generate the `unpack` call that reads the pending run of fixed-size fields.

        If the last field of the run is a length, the generated code leaves the length in `n`.
        """
        if self.codes == ["B"]:
            self.line(f"{self.values[0]} = buf[p]; p += 1")
        elif self.codes:
            size = struct.calcsize(">" + "".join(self.codes))
            unpack = self.name(f"unpack_{code_name(self.codes)}", _unpacker(tuple(self.codes)))
            self.line(f"{', '.join(self.values)}, = {unpack}(buf, p); p += {size}")
        for text in self.after:
            self.line(text)
        self.codes, self.values, self.after = [], [], []

    def struct(self, cls: type[Struct], store: str, stored: str) -> None:
        """Generate code that reads a struct and stores it.

        `store % expression` is the statement that stores the struct, and `stored` the expression that refers
        to it afterwards.
        """
        construction = self.construction(
            cls, {f.name: self.value(f) for f in cls.__fields__ if self.is_plain(f)}
        )
        if not self.flexible:
            # The struct can be stored only after its values are unpacked. They are in the pending run of
            # fixed-size fields, which `flush` unpacks.
            self.after.append(store % construction)
            if not self.codes:
                self.flush()
            return
        self.run("B", "tags")
        self.flush()
        self.line(store % construction)
        self.tags(cls, stored)

    def tags(self, cls: type[Struct], stored: str) -> None:
        """Generate code that reads a tag section, whose first byte at `p - 1` has already been read."""
        tags = runtime.TagSectionReader(
            cls, self.version, partial(_compile_tag_reader, self.message, self.version)
        )
        self.line(f"if tags: p = {self.name('read_tags', tags.read)}({stored}, buf, p - 1)")

    def tag_reader(self, f: Field) -> Decoder:
        """Compile `read(buf, p) -> (value, end)`, which reads the value of a tagged field."""
        self.lines.append("def read(buf, p):")
        self.line("end = len(buf)")
        value = self.value(f, tagged=True)
        self.flush()
        self.line(f"return {value}, p")
        read: Decoder = self.function(f"read {f.name}")
        return read

    def construction(self, cls: type[Struct], values: Mapping[str, str]) -> str:
        """Return an expression that makes an object with these values, and defaults in its other fields."""
        last_set = max((number for number, f in enumerate(cls.__fields__) if f.name in values), default=-1)
        arguments = [values.get(f.name) or self.default(f) for f in cls.__fields__[: last_set + 1]]
        return f"{self.name(cls.__name__, cls.__make__)}({', '.join(arguments)})"

    def default(self, f: Field) -> str:
        """Return an expression for the default of a field."""
        if f.is_lazy:
            return "LAZY"
        return "[]" if f.default == [] else self.constant(f)

    def value(self, f: Field, tagged: bool = False) -> str:
        """Generate code that reads a field; return an expression for its value."""
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
        """Add a value of fixed size to the pending run; return an expression for the value."""
        value = self.variable(name)
        self.run(kind.code, value)
        return self.uuid(value) if kind.name == "uuid" else value

    def uuid(self, content: str) -> str:
        """Return an expression that converts 16 bytes to a UUID."""
        return f"uuids[{content}]"

    def text(self, content: str) -> str:
        """Return an expression that decodes the bytes of a string."""
        return f"{content}.decode()" if content != "b''" else "''"

    def numbers(self, kind: Primitive, values: str) -> str:
        """Return an expression for an array of fixed-size values, such as "a, b, c" or "*all"."""
        return f"[*map(uuid_of, {values[1:]})]" if kind.name == "uuid" and values else f"[{values}]"

    def byte_slice(self, kind: Primitive, places: str) -> str:
        """Return an expression for a slice of the buffer; `places` is source text such as "p : q"."""
        return f"buf[{places}]"

    def content(self, kind: Primitive, store: str, nullable: bool, compact: bool) -> None:
        """Generate code that reads a string or bytes, and stores it with `store`, as in `struct`."""
        is_text = kind.name == "string"
        with self.length("h" if is_text else "i", store, nullable, compact):
            content = self.byte_slice(kind, f"p : (p := p + n{' - 1' if compact else ''})")
            self.line(store % (self.text(content) if is_text else content))

    @contextmanager
    def length(self, code: str, store: str, nullable: bool, compact: bool) -> Generator[None]:
        """Generate code that reads a length into `n`. If `compact`, `n` holds the length plus one.

        The generated code stores None for null. The body of the caller's `with` generates the code for other
        values.
        """
        read_long = "long_string" if code == "h" else "long_length"
        self.run("B" if compact else code, "n")
        self.flush()
        if nullable:
            self.line(("if not n: " if compact else "if n < 0: ") + store % "None")
            with self.block("else:"):
                if compact:
                    self.line(f"if n > 127: n, p = {read_long}(buf, p, n)")
                yield
        else:
            if compact:
                self.line(f"if not 0 < n < 128: n, p = {read_long}(buf, p, n)")
            else:
                self.line("if n < 0: raise Malformed")
            yield

    def array(self, element: Primitive | type[Struct], items: str, nullable: bool, compact: bool) -> None:
        """Generate code that reads an array into the variable `items`."""
        with self.length("i", f"{items} = %s", nullable, compact):
            if compact:
                self.line("n -= 1")
            size = max(1, minimum_size(element, self.version, compact))
            self.line(f"if n{f' * {size}' if size > 1 else ''} > end - p: raise Malformed")
            if isinstance(element, type):
                self.structs(element, items)
            elif element.code:
                table = self.name(f"unpack_n_{code_name([element.code])}", _UNPACKERS[element.code])
                values = self.numbers(element, f"*{table}[n](buf, p)")
                self.line(f"{items} = {values}; p += n * {element.size}")
            else:
                self.line(f"{items} = []")
                with self.block("for _ in repeat(None, n):"):
                    self.content(element, f"{items}.append(%s)", False, compact)

    def structs(self, cls: type[Struct], items: str) -> None:
        """Generate code that reads `n` structs into the variable `items`."""
        store_and_stored = f"{items}.append(%s)", f"{items}[-1]"
        if self.is_fixed(cls):
            size = minimum_size(cls, self.version, self.flexible)
            self.line(f"q = p + n * {size}")
            if self.flexible:
                with self.block(f"if buf[p + {size - 1} : q : {size}].strip(b'\\0'):"):
                    self.line(f"{items} = []")
                    with self.block("for _ in repeat(None, n):"):
                        self.struct(cls, *store_and_stored)
                with self.block("else:"):
                    self.fixed_structs(cls, items)
            else:
                self.fixed_structs(cls, items)
            return
        self.line(f"{items} = []")
        layouts = self.layouts(cls)
        if layouts:
            self.line(
                f"if n >= {MIN_RUN}: n, p = {self.name(f'read_{items}', layouts.read)}({items}, n, buf, p)"
            )
        with self.block("for _ in repeat(None, n) if n else ():"):
            self.struct(cls, *store_and_stored)

    def is_fixed(self, cls: type[Struct]) -> bool:
        """Return whether all fields of the struct in this version, except tagged ones, have a fixed size."""
        plain = [f for f in cls.__fields__ if self.is_plain(f)]
        return bool(plain) and all(isinstance(f.kind, Primitive) and f.kind.code for f in plain)

    def fixed_structs(self, cls: type[Struct], items: str) -> None:
        """Generate code that reads the structs in `buf[p:q]` into a list with the name `items`.

        The structs have a fixed size and empty tag sections, so one `iter_unpack` reads all of them.
        """
        plain = [f for f in cls.__fields__ if self.is_plain(f)]
        codes = tuple(f.kind.code for f in plain if isinstance(f.kind, Primitive)) + ("x",) * self.flexible
        rows = f"{self.name(f'rows_{code_name([*codes])}', _row_unpacker(codes))}(buf[p:q])"
        constructions = self.row_constructions(cls, plain, codes, rows)
        if constructions:
            self.line(f"{items} = {constructions}; p = q")
            return
        targets = [self.variable(f.name) for f in plain]
        values = {
            f.name: self.uuid(target) if code == "16s" else target
            for f, target, code in zip(plain, targets, codes, strict=False)
        }
        self.line(f"{items} = []")
        with self.block(f"for {', '.join(targets)}, in {rows}:"):
            self.line(f"{items}.append({self.construction(cls, values)})")
        self.line("p = q")

    def row_constructions(
        self, cls: type[Struct], plain: list[Field], codes: tuple[str, ...], rows: str
    ) -> str | None:
        """Return an expression that makes a struct from each row of unpacked values.

        Returns None if the values of a row must be reordered or converted first.
        """
        if tuple(plain) == cls.__fields__[: len(plain)] and "16s" not in codes:
            return f"[*starmap({self.name(cls.__name__, cls.__make__)}, {rows})]"
        return None

    def layouts(self, cls: type[Struct]) -> Layouts | None:
        """Return the `Layouts` that reads arrays of this class, or None if they cannot be read by layout."""
        parts = self.parts(cls)
        return Layouts(*parts, self.flexible, self.fill_factory(cls)) if parts else None

    def fill_factory(self, cls: type[Struct]) -> Callable[[Pattern], Fill]:
        """Return the function that `layouts` calls to compile the loop for a pattern of field lengths."""
        return partial(_compile_fill, type(self), self.message, self.version, cls)

    def parts(self, cls: type[Struct]) -> tuple[list[LayoutPart], str] | None:
        """Return the `LayoutPart`s of an element, and the `struct` codes of the fields after the last part.

        The result is None if the elements of this class cannot be read in bulk (see `layouts`).
        """
        parts: list[LayoutPart] = []
        fixed = ""
        for f in cls.__fields__:
            if not self.is_plain(f):
                continue
            nullable, element = self.version in f.nullable, getattr(f.kind, "element", f.kind)
            if isinstance(f.kind, Primitive) and f.kind.code:
                fixed += f.kind.code
                continue
            if isinstance(f.kind, Primitive):
                prefix_size, code = 2 if f.kind.name == "string" else 4, "s"
            elif isinstance(f.kind, Array):
                prefix_size, code = 4, element.code if isinstance(element, Primitive) else ""
            else:
                return None
            if code in ("", "16s"):
                code = ""
                # A layout cannot read structs or UUIDs, so a list of them fits a layout only if it is null or
                # empty. Lists that are not nullable are rarely empty, so layouts are not used for a class
                # with such a list.
                if not nullable:
                    return None
            parts.append(LayoutPart(fixed, 0 if self.is_compact(f) else prefix_size, code, nullable))
            fixed = ""
        return (parts, fixed) if parts else None

    def fill(self, cls: type[Struct], pattern: Pattern) -> Fill:
        """Compile the loop over elements whose field lengths match `pattern`; see `layouts.Fill`."""
        self.variables |= {"items", "lengths", "rows"}
        pattern_lengths = iter(pattern)
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
            length = next(pattern_lengths)
            is_text = isinstance(f.kind, Primitive) and f.kind.name == "string"
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
                values[f.name] = self.text(content) if is_text else content
        expected = [self.variable("expected") for _ in lengths]
        mismatches = [f"{a} != {b}" for a, b in zip(lengths, expected, strict=True)]
        mismatches += ["tags"] * self.flexible
        targets += ["tags"] * self.flexible
        self.names["length_hint"] = length_hint
        self.lines.append("def fill(items, rows, lengths):")
        self.line(f"{', '.join(expected)}, = lengths")
        with self.block(f"for {', '.join(targets)}, in rows:"):
            self.line(f"if {' or '.join(mismatches)}: return length_hint(rows) + 1")
            self.line(f"items.append({self.construction(cls, values)})")
        self.line("return 0")
        fill: Fill = self.function(f"fill {cls.__name__} {pattern}")
        return fill


class ViewSource(DecoderSource):
    """The source of decoders that return records as memoryviews of the buffer."""

    function_name = "decode views"
    prologue = "view = memoryview(buf)"

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.variables.add("view")

    def byte_slice(self, kind: Primitive, places: str) -> str:
        if kind.name == "string":
            return f"buf[{places}]"
        return f"view[{places}]" if kind.name == "records" else f"bytes(buf[{places}])"


def _compile_tag_reader(message: type[Message], version: int, f: Field) -> Decoder:
    return DecoderSource(message, version).tag_reader(f)


def _compile_fill(
    source: type[DecoderSource], message: type[Message], version: int, cls: type[Struct], pattern: Pattern
) -> Fill:
    return source(message, version).fill(cls, pattern)


_CODES = ("?", "b", "h", "H", "i", "I", "q", "d", "16s")
_UNPACKERS = {code: runtime.Unpackers(code) for code in _CODES}
_UUIDS = runtime.Uuids()


@cache
def _unpacker(codes: tuple[str, ...]) -> Callable[[bytes, int], tuple[Any, ...]]:
    return struct.Struct(">" + "".join(codes)).unpack_from


@cache
def _row_unpacker(codes: tuple[str, ...]) -> Callable[[bytes], Iterator[tuple[Any, ...]]]:
    return struct.Struct(">" + "".join(codes)).iter_unpack
