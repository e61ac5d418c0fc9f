"""Properties that every compiled decoder and encoder must have.

Each property draws its own examples, and raises an error for the first example that violates it. `Make` holds
a decoder and an encoder, either from `compiler` or from a mutant.
"""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError
from kproto.testing.strategies import from_message, versioned
from kproto.wire import ZERO_UUID, Message, Struct, interpreter
from kproto.wire.compiler import Decoder, Encoder
from kproto.wire.message import UNREADABLE
from tests.wire.declarations import Alike, Arrays, Point, Thing


@dataclass(frozen=True)
class Make:
    decoder: Callable[[type[Message], int], Decoder]
    encoder: Callable[[type[Message], int], Encoder]


def part_of_the_examples(share: int) -> settings:
    """Return settings with the profile's number of examples divided by `share`, but at least 3."""
    return settings(max_examples=max(3, settings().max_examples // share))


def is_the_interpreter(make: Make, cls: type[Message], share: int = 1) -> None:
    """Check that compiled codecs give the same results as the interpreter."""

    @given(versioned(cls, unknown_tags=True), st.binary(max_size=3))
    @part_of_the_examples(share)
    def check(drawn: tuple[int, Message], behind: bytes) -> None:
        version, message = drawn
        data = interpreter.encode(message, version)
        assert make.encoder(cls, version)(message) == data
        read = interpreter.decode(cls, data + behind, 0, version)
        assert make.decoder(cls, version)(data + behind, 0) == read

    check()


def sees_the_tags_of_each_element(make: Make) -> None:
    """Check that an array of fixed-size elements is decoded even if one element has tagged fields."""
    for tagged in range(3):
        points = [Point(x=0, y=0, up=False) for _ in range(3)]
        points[tagged].__unknown_tags__ = {9: bytes(12)}
        message = Arrays(
            bools=[], bytes8=[], u16s=[], i64s=[], floats=[], ids=[], names=[], blobs=[], points=points
        )
        data = interpreter.encode(message, 1)
        assert make.decoder(Arrays, 1)(data, 0) == (message, len(data))


@st.composite
def alike(draw: st.DrawFn, version: int) -> Alike:
    """Draw a message with an array in which consecutive elements often have the same encoded length.

    In versions with tag sections, some of the elements have an unknown tagged field.
    """
    things: list[Thing] = []
    few = from_message(Alike, version, unknown_tags=True).map(lambda drawn: drawn.things[:1])
    for pattern in draw(st.lists(few, max_size=5)):
        for thing in pattern:
            for _ in range(draw(st.integers(1, 9))):
                values = {f.name: getattr(thing, f.name) for f in Thing.__fields__}
                values |= {"index": len(things), "data": bytes([len(things)]) * len(thing.data)}
                things.append(Thing(**values))
                if version and draw(st.integers(0, 5)) == 5:
                    things[-1].__unknown_tags__ = {9: b"tag"}
    return Alike(before=1, things=things, after=draw(st.integers(-9, 9)))


def reads_runs_of_elements_alike(make: Make) -> None:
    """Check that decoder and interpreter agree on arrays, whatever layouts the decoder has seen before."""
    for version in (0, 1, 2):
        decode = make.decoder(Alike, version)  # All examples share a decoder, which remembers layouts.

        @given(alike(version), st.binary(max_size=9))
        def check(message: Alike, behind: bytes) -> None:
            data = interpreter.encode(message, version) + behind  # noqa: B023
            assert decode(data, 0) == (message, len(data) - len(behind))  # noqa: B023

        check()


def sees_what_differs_in_a_run(make: Make) -> None:
    """Check the decoding of arrays in which some elements have a field of another length, or unknown tags."""
    variants: list[dict[str, object]] = [
        {"name": None},
        {"title": "longer"},
        {"data": b"data"},
        {"records": b""},
        {"numbers": [1]},
        {"flags": [True]},
        {"points": [Point(x=1, y=2, up=True)]},
        {"names": ["a"]},
        {},
    ]
    for version, variant, count in itertools.product((0, 2), variants, (1, 5)):
        if not (version or variant):
            continue
        things = [_thing(index=index) for index in range(10)]
        for index in range(4, 4 + count):
            things[index] = _thing(index=index, **variant)
            if not variant:
                things[index].__unknown_tags__ = {9: b"tag"}
        message = Alike(before=1, things=things, after=7)
        data = interpreter.encode(message, version)
        assert make.decoder(Alike, version)(data, 0) == (message, len(data))


def _thing(**values: Any) -> Thing:
    defaults: dict[str, Any] = {
        "index": 1,
        "id": ZERO_UUID,
        "name": "name",
        "title": "title",
        "data": b"",
        "records": None,
        "numbers": [1, 2],
        "flags": [],
        "points": None,
        "names": [],
        "last": -1,
    }
    return Thing(**(defaults | values))


def survives_corrupted_runs(make: Make) -> None:
    """Check that corrupted or truncated elements of equal length decode as in the interpreter."""
    base = _thing(title="x" * 130)
    empty = _thing(name="", title="", records=b"", numbers=[], flags=None, points=[], names=None)
    for version, thing in itertools.product((0, 2), (base, empty)):
        decode = make.decoder(Alike, version)
        single, many = (
            interpreter.encode(Alike(before=1, things=[thing] * count, after=7), version) for count in (1, 8)
        )
        size = (len(many) - len(single)) // 7
        start = len(many) - 8 * size - 2 - (version > 0)
        for place in (at for at in range(size) if many[start + at] != ord("x")):
            for byte in (0, 1, 0x80, 0xFF):
                for elements in ((0,), (5,), range(8)):
                    broken = bytearray(many)
                    for element in elements:
                        broken[start + element * size + place] = byte
                    # The decoder learns the layout before it gets the corrupted bytes.
                    decode_quietly(decode, many)
                    assert_agree(decode, Alike, version, bytes(broken))
        for cut in range(0, len(many), 11):
            assert_agree(decode, Alike, version, many[:cut])


def decode_quietly(decode: Decoder, data: bytes) -> None:
    with contextlib.suppress(*UNREADABLE):
        decode(data, 0)


def refuses_what_the_interpreter_refuses(make: Make, cls: type[Message], versions: list[int]) -> None:
    """Check that the compiled encoder rejects the messages that the interpreter rejects.

    Each message is generated for one of `versions`. The version of its encoding is drawn separately.
    """

    @given(
        st.sampled_from(versions).flatmap(lambda v: from_message(cls, v, unknown_tags=True)),
        st.sampled_from(versions),
    )
    def check(message: Message, version: int) -> None:
        try:
            expected = interpreter.encode(message, version)
        except EncodeError:
            try:
                make.encoder(cls, version)(message)
            except Exception:
                return
            raise AssertionError(
                f"v{version} encodes a message that it cannot represent: {message}"
            ) from None
        assert make.encoder(cls, version)(message) == expected

    check()


def survives_every_cut_and_corruption(make: Make, cls: type[Message], version: int, share: int = 10) -> None:
    """Check that the decoder handles truncated and corrupted data as the interpreter does."""

    @given(from_message(cls, version, unknown_tags=True))
    @part_of_the_examples(share)
    def check(message: Message) -> None:
        data = interpreter.encode(message, version)
        decode = make.decoder(cls, version)
        for cut in places(data):
            assert_agree(decode, cls, version, data[:cut])
        for broken in corruptions(data):
            assert_agree(decode, cls, version, broken)

    check()


def places(data: bytes) -> list[int]:
    """Return the first 30 and the last 10 offsets of `data`, and about 20 in between."""
    size = len(data)
    return [at for at in range(size) if at < 30 or at >= size - 10 or at % (size // 20) == 0]


def corruptions(data: bytes) -> Iterator[bytes]:
    """Yield copies of `data` in which one byte is 0, 1, 0x7F, 0x80, 0xFF, or one more than in `data`.

    If the changed byte is a length, the copy's length is null, zero, a large number, or one too large.
    """
    for at in places(data):
        for byte in {0, 1, 0x7F, 0x80, 0xFF, (data[at] + 1) & 0xFF} - {data[at]}:
            yield data[:at] + bytes([byte]) + data[at + 1 :]


def assert_agree(decode: Decoder, cls: type[Message], version: int, data: bytes) -> None:
    """Check that the compiled decoder agrees with the interpreter.

    The compiled decoder returns the interpreter's values, and rejects what the interpreter rejects. The
    compiled decoder may also reject an overlong varint that means null, although the interpreter decodes it.
    """
    try:
        decoded, end = decode(data, 0)
    except UNREADABLE:
        try:
            expected, _ = interpreter.decode(cls, data, 0, version)
        except DecodeError:
            return
        canonical = interpreter.encode(expected, version)
        assert any(byte >= 0x80 for byte in data)
        assert canonical != data
        return
    expected, expected_end = interpreter.decode(cls, data, 0, version)
    assert end == expected_end
    assert repr(decoded) == repr(expected)  # NaN is the only value that is not equal to itself


def stays_small_on_bombs(make: Make, cls: type[Message], version: int, head: bytes, flexible: bool) -> None:
    """Check that a count of 50,000 without elements is rejected before memory is allocated."""
    data = head + (interpreter.uvarint(50_001) if flexible else (50_000).to_bytes(4, "big"))
    decode = make.decoder(cls, version)
    tracemalloc.start()
    try:
        try:
            decode(data, 0)
        except UNREADABLE:
            pass
        else:
            raise AssertionError("the bomb was read")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def structs_of(cls: type[Struct]) -> set[type[Struct]]:
    """Return the class and all structs within it."""
    structs: set[type[Struct]] = {cls}
    for f in cls.__fields__:
        kind = getattr(f.kind, "element", f.kind)
        if isinstance(kind, type) and issubclass(kind, Struct):
            structs |= structs_of(kind)
    return structs
