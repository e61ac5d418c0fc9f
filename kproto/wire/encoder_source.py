"""Generate the source of encoders. `compiler.py` explains the generated code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from . import runtime
from .codecs import Encoder
from .fields import LAZY
from .interpreter import uvarint
from .message import Array, Field, Message, Struct
from .source import FunctionSource, code_name
from .types import Primitive


class EncoderSource(FunctionSource):
    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.names |= {"LAZY": LAZY, "SHORT_VARINTS": runtime.SHORT_VARINTS, "BOOL_BYTE": runtime.BOOL_BYTE}
        self.names |= {"uvarint": uvarint, "string_uvarint": runtime.string_uvarint}
        self.names |= {"check_bytes": runtime.check_bytes, "check_sequence": runtime.check_sequence}

    def message_encoder(self, end: str = "return b''.join(w)") -> Any:
        """Compile `encode(message)`.

        `end` is its last statement, which returns the encoded pieces in the list `w`.
        """
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
        self.names["tag_section"] = runtime.tag_section
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
        """Return the fields that this version writes in the tag section."""
        return [f for f in cls.__fields__ if self.version in f.versions and self.version in f.tagged]

    def pack_expression(self) -> str:
        """Return an expression for the encoded bytes of the pending run of fixed-size fields."""
        if self.codes == ["x"]:
            return "b'\\0'"
        arguments = ", ".join(value for value in self.values if value)
        list_variables = [value[1:] for value in self.values if value.startswith("*")]
        if not list_variables:
            pack = self.name(f"pack_{code_name(self.codes)}", _pack_function(tuple(self.codes)))
            return f"{pack}({arguments})"
        packers = self.name(f"pack_n_{code_name(self.codes)}", _list_packers(tuple(self.codes)))
        lengths = ", ".join(f"len({variable})" for variable in list_variables)
        return f"{packers}[{lengths}]({arguments})"

    def flush(self) -> None:
        """Generate code that writes the pending run, and clear the run."""
        if self.codes:
            self.line(f"w.append({self.pack_expression()})")
        self.codes, self.values = [], []

    def struct(self, cls: type[Struct], variable: str) -> None:
        """Generate code that writes the struct `variable`, with its tag section in flexible versions.

        The code raises Unencodable if a field that this version lacks is set, unless the field is ignorable.
        """
        set_but_absent = [
            self.differs(f, f"{variable}.{f.slot}")
            for f in cls.__fields__
            if self.version not in f.versions and not f.ignorable
        ]
        if not self.flexible:
            set_but_absent.append(f"{variable}._tags")
        if set_but_absent:
            self.line(f"if {' or '.join(set_but_absent)}: raise Unencodable")
        plain_fields = [f for f in cls.__fields__ if self.is_plain(f)]
        number_lists = [f for f in plain_fields if isinstance(f.kind, Array) and _is_number(f.kind.element)]
        for f in plain_fields:
            # If a struct has one list of numbers, it is faster to write the list with a `pack` of its own. If
            # it has several, it is faster to write them and the fields around them with one `pack`.
            self.field(f, f"{variable}.{f.name}", in_run=len(number_lists) > 1 and f in number_lists)
        if self.flexible:
            self.tags(cls, variable)

    def differs(self, f: Field, value: str) -> str:
        """Return the source of a condition that is true if `value` differs from the field's initial value."""
        initial = f.initial()
        if initial is None:
            return f"{value} is not None"
        if isinstance(f.kind, Array):
            return f"{value} != {self.name('EMPTY', _EMPTY)}"
        if isinstance(f.kind, type):
            parts = [self.differs(part, f"{value}.{part.slot}") for part in f.kind.__fields__]
            any_part_differs = " or ".join([*parts, f"{value}._tags"])
            condition = f"({value} is None or {any_part_differs})"
            return f"({value} is not LAZY and {condition})" if f.is_lazy else condition
        return f"{value} != {self.constant(f)}"

    def tags(self, cls: type[Struct], variable: str) -> None:
        """Generate code that writes a tag section.

        The code writes an empty section (a zero byte), and replaces it if tagged fields are set.
        """
        self.run("x", "")
        self.flush()
        conditions = [f"{variable}._tags"]
        conditions += [self.differs(f, f"{variable}.{f.slot}") for f in self.tagged(cls)]
        write = runtime.lazy_writer(partial(_compile_tags_writer, self.message, self.version, cls))
        with self.block(f"if {' or '.join(conditions)}:"):
            self.line(f"w[-1] = w[-1][:-1] + {self.name('write_tags', write)}({variable})")

    def field(self, f: Field, value: str, in_run: bool = False, tagged: bool = False) -> None:
        """Generate code that writes the field whose value is the expression `value`.

        If `in_run` is true, an array of numbers joins the pending run. If `tagged` is true, the field is in a
        tag section, where the marker of a null struct is 0 instead of -1.
        """
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
        """Generate code that writes the value of the expression `value`.

        A value of fixed size joins the pending run. For any other value, the generated code stores the
        content in `b`, and the number that `length` writes in `n`.
        """
        if kind.name == "uuid":
            self.run("16s", f"{value}.int.to_bytes(16, 'big')")
        elif kind.name == "bool":
            self.run("B", f"BOOL_BYTE[{value}]")
        elif kind.code:
            self.run(kind.code, value)
        else:
            is_string = kind.name == "string"
            content = "b.encode()" if is_string else "b if type(b) is bytes else check_bytes(b)"
            self.line(f"b = {value}")
            self.line(f"if b is None: b = b''; n = {0 if compact else -1}" if nullable else "")
            otherwise, length = "else: " if nullable else "", f"len(b){' + 1' if compact else ''}"
            self.line(f"{otherwise}b = {content}; n = {length}")
            self.length("h" if is_string else "i", compact)
            self.line("w.append(b)")

    def length(self, code: str, compact: bool) -> None:
        """Generate code that writes the pending run of fixed-size fields, and then the number `n`.

        `n` is a length or, in compact form, a length plus one.
        """
        if not compact:
            self.run(code, "n")
            self.flush()
            return
        varint = "string_uvarint" if code == "h" else "uvarint"
        if not self.codes:
            self.line(f"w.append(SHORT_VARINTS[n] if n < 128 else {varint}(n))")
            return
        pack_run = self.pack_expression()
        self.run("B", "n")
        pack_run_and_byte = self.pack_expression()
        self.line(f"w.append({pack_run_and_byte} if n < 128 else {pack_run} + {varint}(n))")
        self.codes, self.values = [], []

    def array(self, f: Field, element: Primitive | type[Struct], value: str, in_run: bool) -> None:
        """Generate code that writes an array.

        If `in_run` is true and the elements are numbers, the array's count and numbers join the pending run.
        """
        nullable, compact = self.version in f.nullable, self.is_compact(f)
        items = self.variable(f.name)
        checked = f"{items} if type({items}) is list else check_sequence({items})"
        self.line(f"{items} = {value}")
        self.line(f"if {items} is None: {items} = (); n = {0 if compact else -1}" if nullable else "")
        otherwise, encoded_count = "else: " if nullable else "", f"len({items}){' + 1' if compact else ''}"
        self.line(f"{otherwise}{items} = {checked}; n = {encoded_count}")
        if in_run and isinstance(element, Primitive):
            count = self.variable("count")
            self.line(f"{count} = n")
            varint = f"SHORT_VARINTS[{count}] if {count} < 128 else uvarint({count})"
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
            self.line(f"w.append(bytes([BOOL_BYTE[item] for item in {items}]))")
        elif element.name == "uuid":
            self.line(f"w.extend([item.int.to_bytes(16, 'big') for item in {items}])")
        else:
            self.run(f"*{element.code}", f"*{items}")
            self.flush()


def _is_number(kind: Primitive | type[Struct]) -> bool:
    return isinstance(kind, Primitive) and kind.code not in ("", "?", "16s")


def _compile_tags_writer(message: type[Message], version: int, cls: type[Struct]) -> Encoder:
    return EncoderSource(message, version).tags_writer(cls)


_EMPTY: list[Any] = []


@cache
def _list_packers(codes: tuple[str, ...]) -> runtime.Packers:
    return runtime.Packers(codes)


@cache
def _pack_function(codes: tuple[str, ...]) -> Callable[..., bytes]:
    return struct.Struct(">" + "".join(codes)).pack
