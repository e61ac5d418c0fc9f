"""Decode messages to plain tuples, for code that reads a large response only once.

    throttle_time_ms, error_code, session_id, topics, endpoints = decode_flat(FetchResponse, data, 17)
    for name, topic_id, partitions in topics:
        for index, error_code, high_watermark, *_, records in partitions:
            ...

A struct becomes the tuple of all its fields in declared order, in every version. A field that the version
lacks has its default. Unknown tagged fields are dropped.

The values are:

    strings, bytes, records               bytes; strings are not checked to be UTF-8
    UUIDs                                 their 16 bytes
    arrays of numbers, bools and UUIDs    tuples
    other arrays                          lists
    null                                  None

`flatten` makes the same tuples from a message.

`_TupleSource` changes the decoders of `decoder_source.py` to make tuples. `_TupleLayouts` has two ways to
read array elements that share a layout. Both are faster than the loop in its base class `Layouts`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from operator import length_hint
from typing import Any, cast

from . import interpreter
from .codecs import Decoder
from .decoder_source import DecoderSource
from .layouts import Fill, Layout, LayoutPart, Layouts, Pattern
from .message import UNREADABLE, Array, Field, Message, Struct, check_version, fresh
from .runtime import CACHE_LIMIT
from .types import Primitive

Flat = tuple[Any, ...]
Rows = Callable[[bytes], Iterator[Flat]]
FromRows = Callable[[Iterator[Flat]], Iterable[Flat]]

# From this number of elements on, it is faster to compare all lengths together than element by element.
MIN_SLICED = 24


def decode_flat(
    message: type[Message], data: bytes | bytearray | memoryview, version: int, offset: int = 0
) -> Flat:
    """Read a message that starts at `offset` of `data`; bytes after its end are ignored.

    Raises the same errors as `Message.decode`. Strings are checked for valid UTF-8 only if the compiled
    decoder fails, so that the interpreter reads the message.
    """
    buffer = data if type(data) is bytes else bytes(memoryview(data))
    try:
        return cast(Flat, decoder(message, version)(buffer, offset)[0])
    except UNREADABLE:
        pass
    return flatten(interpreter.decode(message, buffer, offset, version)[0])


def flatten(value: Struct) -> Flat:
    """Convert a message or a struct to the tuple that `decode_flat` returns for its bytes."""
    return tuple(_flatten_value(f.kind, getattr(value, f.name)) for f in type(value).__fields__)


def _flatten_value(kind: Primitive | Array | type[Struct], value: Any) -> Any:
    if isinstance(value, Struct):
        return flatten(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(kind, Array) and value is not None:
        values = [_flatten_value(kind.element, element) for element in value]
        return tuple(values) if isinstance(kind.element, Primitive) and kind.element.code else values
    return value


@cache
def decoder(message: type[Message], version: int) -> Decoder:
    """Compile `decode(buf, p) -> (tuple, end)`; see `compiler.decoder`."""
    check_version(message, version)
    return _TupleSource(message, version).message_decoder()


class _TupleSource(DecoderSource):
    """Generates the source of a decoder that makes tuples."""

    def construction(self, cls: type[Struct], values: Mapping[str, str]) -> str:
        parts = [values.get(f.name) or repr(_flatten_value(f.kind, f.initial())) for f in cls.__fields__]
        return f"({''.join(f'{part}, ' for part in parts)})"

    def row_constructions(
        self, cls: type[Struct], plain: list[Field], codes: tuple[str, ...], rows: str
    ) -> str | None:
        return f"[*{rows}]" if tuple(plain) == cls.__fields__ else None

    def text(self, content: str) -> str:
        return content

    def uuid(self, content: str) -> str:
        return content

    def numbers(self, kind: Primitive, values: str) -> str:
        return values[1:] if values.startswith("*") else f"({values},)" if values else "()"

    def tags(self, cls: type[Struct], stored: str) -> None:
        read = self.name(f"read_tags_{cls.__name__}", partial(_read_tags, self.message, self.version, cls))
        self.line(f"if tags: {stored}, p = {read}({stored}, buf, p - 1)")

    def layouts(self, cls: type[Struct]) -> Layouts | None:
        parts_and_tail = self.parts(cls)
        if not parts_and_tail:
            return None
        compile_fast = partial(_compile_fast_reader, self.message, self.version, cls)
        return _TupleLayouts(*parts_and_tail, self.flexible, self.fill_factory(cls), compile_fast)

    def fill_with_lists(self, cls: type[Struct]) -> Fill:
        """Compile a `fill` that copies each element's lists of numbers from a cached element.

        The bytes of the lists, which end the element, are the key of the cache.

        The argument `lengths` of this `fill` is a pair of functions: `_TupleLayouts.cached.get` and
        `_TupleLayouts.read_lists`.
        """
        self.variables |= {"cached", "items", "lengths", "rows", "tail"}
        self.names |= {"length_hint": length_hint}
        values: dict[str, str] = {}
        targets: list[str] = []
        for number, f in enumerate(cls.__fields__):
            if self.is_plain(f) and isinstance(f.kind, Primitive):
                targets.append(self.variable(f.name))
                values[f.name] = targets[-1]
            elif self.is_plain(f):
                values[f.name] = f"cached[{number}]"
        self.lines.append("def fill(items, rows, lengths):")
        self.line("get, read = lengths")
        with self.block("try:"), self.block(f"for {', '.join([*targets, 'tail'])} in rows:"):
            self.line("cached = get(tail) or read(tail)")
            self.line(f"items.append({self.construction(cls, values)})")
        self.line("except LookupError: return length_hint(rows) + 1")
        self.line("return 0")
        fill: Fill = self.function(f"fill {cls.__name__} with lists")
        return fill

    def from_rows(self, cls: type[Struct], pattern: Pattern) -> FromRows:
        """Compile a function that makes tuples from rows of unpacked values.

        A row has no value for a field that is null or empty according to `pattern`.
        """
        lengths = iter(pattern)
        targets: list[str] = []
        values: dict[str, str] = {}
        for f in cls.__fields__:
            if not self.is_plain(f):
                continue
            has_fixed_size = isinstance(f.kind, Primitive) and f.kind.code
            length = 1 if has_fixed_size else next(lengths)
            if length > 0:
                targets.append(self.variable(f.name))
                values[f.name] = targets[-1]
            else:
                values[f.name] = "None" if length < 0 else _empty_literal(f.kind)
        rows_are_tuples = targets == [values.get(f.name) for f in cls.__fields__]
        construct_each = f"[{self.construction(cls, values)} for {', '.join(targets)}, in rows]"
        self.lines.append(f"def from_rows(rows): return {'rows' if rows_are_tuples else construct_each}")
        from_rows: FromRows = self.function(f"from_rows {cls.__name__} {pattern}")
        return from_rows


def _empty_literal(kind: Primitive | Array | type[Struct]) -> str:
    return repr(_flatten_value(kind, [] if isinstance(kind, Array) else b""))


def _compile_fast_reader(
    message: type[Message], version: int, cls: type[Struct], pattern: Pattern | None
) -> FromRows | Fill:
    """Compile `from_rows` for `pattern`, or `fill_with_lists` if `pattern` is None."""
    source = _TupleSource(message, version)
    return source.fill_with_lists(cls) if pattern is None else source.from_rows(cls, pattern)


def _read_tags(
    message: type[Message], version: int, cls: type[Struct], value: Flat, buf: bytes, p: int
) -> tuple[Flat, int]:
    """Read the tagged fields at `p`; return `value` with these fields set, and the position after them."""
    target = fresh(cls)
    end = interpreter.decode_tags(target, buf, p, message.__name__, version)
    fields = zip(cls.__fields__, value, flatten(target), strict=True)
    return tuple(tagged if version in f.tagged else untagged for f, untagged, tagged in fields), end


class _TupleLayouts(Layouts):
    """Layouts that avoid or shorten the loop over elements if this loop would take most of the time.

    * Many elements without lists of numbers: the bytes that encode lengths are taken with strided slices, and
      compared with the layout. So the lengths need not be unpacked. If the unpacked rows have a value for
      every field, they already are the resulting tuples.

    * Elements that end in lists of numbers: the lists are cached by their bytes, because many partitions have
      the same replicas. A full cache shows that most lists differ, so caching then stops.
    """

    def __init__(
        self,
        parts: list[LayoutPart],
        tail: str,
        flexible: bool,
        fill: Callable[[Pattern], Fill],
        compile_fast: Callable[[Pattern | None], Any],
    ) -> None:
        super().__init__(parts, tail, flexible, fill)
        self.compile_fast = compile_fast
        # Maps a pattern to the function that `from_rows` compiles for it, and None to the loop that
        # `fill_with_lists` compiles.
        self.fast_readers: dict[Pattern | None, Any] = {}
        # Maps the encoded lists of an element to an element with these lists, and zeros in all other fields.
        self.cached: dict[bytes, Flat] = {}
        codes = {part.code for part in parts}
        self.has_lists = not codes <= {"s", ""}
        has_other_parts = bool(codes & {"s", ""})
        has_fields_after_lists = bool(tail) or any(part.fixed for part in parts[1:])
        # Whether an element consists of fixed-size fields and then lists. False after `cached` became full.
        self.ends_in_lists = not (has_other_parts or has_fields_after_lists)

    def learn(self, size: int, prefixes: tuple[bytes, ...], lengths: list[int]) -> Layout | None:
        layout = super().learn(size, prefixes, lengths)
        if layout is None or (self.has_lists and not self.ends_in_lists):
            return layout
        pattern = None if self.has_lists else tuple(min(1, length) for length in lengths)
        if pattern not in self.fast_readers:
            self.fast_readers[pattern] = self.compile_fast(pattern)
        fast_reader = self.fast_readers[pattern]
        if self.has_lists:
            part, head_size = self.parts[0]
            rows = struct.Struct(f">{part.fixed}{size - head_size}s").iter_unpack
            read = partial(self.read_lists, layout, head_size)
            layout = self.known[prefixes] = (size, rows, (self.cached.get, read), fast_reader)
        else:
            fill = self.sliced_fill(layout, prefixes, lengths, fast_reader)
            layout = self.known[prefixes] = (size, bytes, (), fill)
        return layout

    def sliced_fill(
        self, layout: Layout, prefixes: tuple[bytes, ...], lengths: list[int], from_rows: FromRows
    ) -> Fill:
        """Return a `Fill` for blocks in which the fields of every element have the lengths `lengths`.

        The returned `Fill` compares the bytes that encode the lengths, but does not unpack them. If the block
        is short, or an element has lengths other than `lengths`, the `Fill` in `layout` reads the block.
        """
        codes, length_bytes = ">", list[tuple[int, bytes]]()
        for (part, _), prefix, length in zip(self.parts, prefixes, lengths, strict=True):
            codes += part.fixed
            start = struct.calcsize(codes)
            length_bytes += [(start + index, bytes([byte])) for index, byte in enumerate(prefix)]
            codes += f"{len(prefix)}x" + (f"{length}s" if length > 0 else "")
        if self.flexible:
            # The last code of `tail` is the count of tagged fields. It must be zero, and is not unpacked.
            size = layout[0]
            length_bytes.append((size - 1, b"\0"))
            codes += self.tail[:-1] + "x"
        else:
            codes += self.tail
        return partial(_fill_sliced, length_bytes, struct.Struct(codes).iter_unpack, from_rows, layout)

    def read_lists(self, layout: Layout, head_size: int, tail: bytes) -> Flat:
        """Decode and cache the lists that `tail` encodes; return an element with these lists.

        `tail` is an element without its first `head_size` bytes. The fields in these bytes are read as zeros.

        Raises LookupError if the bytes do not have this layout, or if the cache is full.
        """
        # The cache is full because most lists differ. So caching stops, and the loop of `Layouts` reads the
        # elements.
        if len(self.cached) >= CACHE_LIMIT:
            self.ends_in_lists = False
            self.known.clear()
            self.cached.clear()
            raise LookupError
        _, rows, lengths, fill = layout
        items: list[Flat] = []
        fill(items, rows(bytes(head_size) + tail), lengths)
        element = items[0]  # This line raises IndexError, a LookupError, if the layout does not match.
        self.cached[tail] = element
        return element


def _fill_sliced(
    length_bytes: list[tuple[int, bytes]],
    rows: Rows,
    from_rows: FromRows,
    layout: Layout,
    items: list[Any],
    block: bytes,
    _: object,
) -> int:
    """Append the elements in `block` to `items`, as a `Fill` does.

    `length_bytes` contains a pair for each byte that encodes lengths: its position within an element, and its
    expected value.
    """
    size, rows_with_lengths, lengths, fill = layout
    if len(block) >= MIN_SLICED * size:
        for position, expected in length_bytes:
            if block[position::size].strip(expected):  # An element does not fit the layout.
                break
        else:
            items += from_rows(rows(block))
            return 0
    return fill(items, rows_with_lengths(block), lengths)
