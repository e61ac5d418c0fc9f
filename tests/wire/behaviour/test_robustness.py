"""For any bytes, `decode` raises only DecodeError. For any values, `encode` raises only EncodeError.

`decode` and `encode` terminate, and allocate no memory that the input does not justify. No encoder drops a
part of its input, except the values of ignorable fields that the version lacks.

The inputs are made from the messages of `samples.py`, in which every field is set. The profile determines the
number of tested versions, bytes and replaced values (`EFFORT`).
"""

from __future__ import annotations

import os
import tracemalloc
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError
from kproto.testing.strategies import versioned
from kproto.wire import Message, interpreter
from kproto.wire.message import UNREADABLE, Array
from kproto.wire.types import Primitive
from tests.bundles import bundles, check_each
from tests.wire import properties
from tests.wire.declarations import DECLARED, Arrays, Nullable, Plain, Ranges, Tagged
from tests.wire.properties import Make, corruptions, places
from tests.wire.samples import Length, Place, all_places, broken_bytes, lengths, sample
from tests.wire.stage import REAL, all_messages, mutated_compiler

MESSAGES = all_messages()
NEWEST_AND_OLDEST = [
    (cls, v) for cls in MESSAGES for v in sorted({cls.__versions__.min, cls.__versions__.max})
]


@dataclass(frozen=True)
class Effort:
    """How many versions, and how many replacements of each byte, a Hypothesis profile tests.

    The messages have lists of one element, and in `ci` and `soak` also lists of three elements. `quick` tests
    the newest versions with one replacement per byte. `ci` tests all versions with five replacements per
    byte, or two if the lists have three elements. `soak` tests all versions with all 255 replacements, or
    eight if the lists have three elements.
    """

    versions: slice
    elements: tuple[int, ...]
    values_of_one: int
    values_of_three: int


EFFORT = {
    "quick": Effort(slice(-1, None), (1,), 1, 0),
    "ci": Effort(slice(None), (1, 3), 5, 2),
    "soak": Effort(slice(None), (1, 3), 255, 8),
}[os.environ.get("KPROTO_PROFILE", "quick")]

# In each field, every SHARE-th wrong value is tested. The first value differs from field to field, so that
# all fields together cover all values.
SHARE = 1 if EFFORT.values_of_three else 8

Decode = Callable[[type[Message], bytes, int], Message | None]


def versions(cls: type[Message]) -> list[int]:
    return list(range(cls.__versions__.min, cls.__versions__.max + 1))[EFFORT.versions]


# Decoding.

# The maximum number of bytes that decoding a sample may allocate. Layout tables and error texts need
# some memory.
CHEAP = 50_000


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> Message | None:
    try:
        return cls.decode(data, version)
    except DecodeError as refused:
        error = refused
    assert 0 <= error.offset <= len(data)
    assert (error.message, error.version) == (cls.__name__, version)
    assert error.field
    return None


def agree(make: Make, cls: type[Message], version: int, data: bytes) -> bool:
    """Check that all decoders return the same message or all reject `data`; return whether they accept it.

    Also check that an encoded message does not change if it is decoded and encoded again.
    """
    try:
        decoded, end = make.decoder(cls, version)(data, 0)
    except UNREADABLE:
        # The compiled decoder may fail for an overlong varint that means null, which only the interpreter
        # decodes.
        decoded_slowly = decode_or_refuse(cls, data, version)
        assert decoded_slowly is None or decoded_slowly.encode(version) != data
        return decoded_slowly is not None
    expected, expected_end = interpreter.decode(cls, data, 0, version)
    assert end == expected_end
    # NaN is the only value that is not equal to itself
    assert decoded == expected or repr(decoded) == repr(expected)
    canonical = make.encoder(cls, version)(decoded)
    assert canonical == interpreter.encode(expected, version)
    assert cls.decode(canonical, version).encode(version) == canonical
    return True


def survives_every_cut(make: Make, cls: type[Message], version: int, data: bytes) -> None:
    for cut in range(len(data)):
        assert not agree(make, cls, version, data[:cut])


def survives_every_corruption(make: Make, cls: type[Message], version: int, data: bytes, values: int) -> None:
    for broken in broken_bytes(data, values):
        agree(make, cls, version, broken)


@pytest.fixture(scope="module")
def real() -> Make:
    """Return the compiled codecs that `decode` and `encode` use."""
    return Make(
        lambda cls, version: cls.__decoders__[version], lambda cls, version: cls.__encoders__[version]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [*MESSAGES, *DECLARED], ids=lambda cls: cls.__name__)
def test_every_truncation_and_corruption_of_a_full_message(real: Make, cls: type[Message]) -> None:
    for version in versions(cls):
        for elements in EFFORT.elements:
            values = EFFORT.values_of_one if elements == 1 else EFFORT.values_of_three
            data = sample(cls, version, elements).encode(version)
            assert agree(real, cls, version, data)
            survives_every_cut(real, cls, version, data)
            survives_every_corruption(real, cls, version, data, values)


def huge(length: Length) -> list[bytes]:
    """Return encoded lengths that exceed the data. Some are near the type's maximum or beyond int32."""
    if length.varint:
        beyond = [bytes.fromhex(text) for text in ("ffffffff0f", "ffffffffff", "ffffffffff01")]
        return [interpreter.uvarint(50_000), interpreter.uvarint(2**31 - 1), *beyond]
    top = 1 << 8 * length.size - 1
    return [number.to_bytes(length.size, "big") for number in (min(top - 3, 50_000), top - 2, top - 1)]


def negative(length: Length) -> list[bytes]:
    """Return unusual encodings of a null length: negative ints, or the varint 0 in more bytes than needed."""
    if length.varint:
        return [bytes.fromhex("8080808000"), bytes.fromhex("8000")]
    return [(-low).to_bytes(length.size, "big", signed=True) for low in (1 << 8 * length.size - 1, 2)]


def lengths_cost_nothing(decode: Decode, cls: type[Message], version: int, share: int = 1) -> None:
    """Check that `decode` allocates nothing for huge and negative lengths in any field."""
    data = sample(cls, version).encode(version)
    decode(cls, data, version)  # Compilation is not counted.
    for number, length in enumerate(lengths(cls, version, data)):
        bombs = [(bomb, True) for bomb in huge(length)] + [(bomb, False) for bomb in negative(length)]
        for bomb, is_huge in bombs[number % share :: share]:
            broken = data[: length.start] + bomb + data[length.end :]
            tracemalloc.start()
            try:
                decoded = decode(cls, broken, version)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < CHEAP, length
            assert decoded is None or not is_huge


@pytest.mark.parametrize("messages", bundles(MESSAGES))
def test_huge_and_negative_lengths_allocate_nothing(messages: Sequence[type[Message]]) -> None:
    pairs = [(cls, version) for cls in messages for version in versions(cls)]
    check_each(pairs, lambda pair: lengths_cost_nothing(decode_or_refuse, *pair, SHARE))


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, version) for cls in DECLARED[:: 1 if EFFORT.values_of_three else 3] for version in versions(cls)],
)
def test_truncated_and_corrupted_bytes_are_read_or_rejected_as_by_the_interpreter(
    cls: type[Message], version: int
) -> None:
    properties.survives_every_cut_and_corruption(REAL, cls, version, share=40)


@given(
    st.sampled_from(MESSAGES).flatmap(lambda cls: st.tuples(st.just(cls), versioned(cls, unknown_tags=True)))
)
def test_every_prefix_raises_only_decode_error(drawn: tuple[type[Message], tuple[int, Message]]) -> None:
    cls, (version, message) = drawn
    data = message.encode(version)
    for cut in places(data):
        with pytest.raises(DecodeError):
            cls.decode(data[:cut], version)


@given(
    st.sampled_from(MESSAGES).flatmap(lambda cls: st.tuples(st.just(cls), versioned(cls, unknown_tags=True)))
)
def test_every_corrupted_byte_raises_only_decode_error(
    drawn: tuple[type[Message], tuple[int, Message]],
) -> None:
    cls, (version, message) = drawn
    for data in corruptions(message.encode(version)):
        decode_or_refuse(cls, data, version)


@given(st.sampled_from(NEWEST_AND_OLDEST), st.binary(max_size=100))
def test_random_bytes_raise_only_decode_error(chosen: tuple[type[Message], int], data: bytes) -> None:
    decode_or_refuse(chosen[0], data, chosen[1])


@pytest.mark.parametrize(("version", "flexible"), [(0, False), (1, True)])
@pytest.mark.parametrize("field", range(9))
def test_a_count_without_elements_allocates_nothing(version: int, flexible: bool, field: int) -> None:
    head = (b"\x01" if flexible else b"\x00\x00\x00\x00") * field
    properties.stays_small_on_bombs(REAL, Arrays, version, head, flexible)


# Encoding.


class Odd:
    """An object whose comparison and repr raise ValueError."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __repr__(self) -> str:
        raise ValueError("unprintable")

    __hash__ = None  # type: ignore[assignment]


# Objects that are not valid values of any field.
NEVER = [object(), Odd(), {}, {"a": 1}, 1j, ...]

# Kafka limits strings to 32,767 bytes, even in flexible versions.
LONG = "x" * 32_768

WRONG: dict[str, list[Any]] = {
    "bool": ["true", b"\1", 2, -1, [], [True]],
    "float64": ["1", b"1", [], 10**400],
    "uuid": ["6c2f8b6e-0000-0000-0000-000000000000", bytes(16), 5, []],
    "string": [b"x", 5, ["x"], "\ud800", LONG, "\u20ac" * 10_923, True],
    "bytes": ["x", 5, [1], "", True],
    "records": ["x", 5, [b"x"], "", True],
}
for name, (low, high) in {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}.items():
    WRONG[name] = [low - 1, high + 1, 10**5000, "1", b"1", 1.0, [], [1]]


def wrong_values(place: Place) -> list[Any]:
    values = list(NEVER) if place.nullable else [None, *NEVER]
    if isinstance(place.kind, Primitive):
        return values + WRONG[place.kind.name]
    if isinstance(place.kind, Array):
        return [*values, "ab", b"ab", 2, True, {1: 2}, {1}, iter([]), range(2), [None], [*NEVER]]
    parts = vars(
        types.SimpleNamespace(**{name: getattr(place.get(), name) for name in place.kind.__options__})
    )
    # An object that has the fields of the struct, but not its class.
    return [*values, "ab", 5, [], types.SimpleNamespace(**parts)]


def refusal(make: Make, message: Message, version: int) -> EncodeError:
    """Check that both encoders reject the message, and return the interpreter's error."""
    cls = type(message)
    with pytest.raises(Exception):  # noqa: B017, PT011  the compiled encoder may raise anything
        make.encoder(cls, version)(message)
    with pytest.raises(EncodeError) as refused:
        message.encode(version)
    error = refused.value
    assert (error.message, error.version) == (cls.__name__, version)
    assert f"{cls.__name__} v{version}: field {error.field}: " in str(error)
    return error


def refuses_wrong_values(make: Make, cls: type[Message], version: int, share: int = 1) -> None:
    """Check that values that have the wrong type, or are out of range, too long or null, are rejected."""
    message = sample(cls, version)
    for number, place in enumerate(all_places(message, version)):
        if not place.is_present:
            continue
        right = place.get()
        for wrong in wrong_values(place)[number % share :: share]:
            place.set(wrong)
            path = refusal(make, message, version).field
            assert path == place.path or path.startswith((f"{place.path}.", f"{place.path}[")), place.path
        place.set(right)


def refuses_what_the_version_lacks(make: Make, cls: type[Message], version: int) -> None:
    """Check that values of missing fields are rejected, or dropped if the field is ignorable."""
    message = sample(cls, version)
    data = message.encode(version)
    for place in all_places(message, version):
        if place.is_present or not isinstance(place.key, str):
            continue
        f = next(f for f in type(place.owner).__fields__ if f.name == place.key)
        for value in (Odd(), "said", 77, b"said", [77]):
            place.set(value)
            if f.ignorable:
                assert make.encoder(cls, version)(message) == message.encode(version) == data
            else:
                assert refusal(make, message, version).field == place.path
        place.set(f.initial())
    assert message.encode(version) == data


@pytest.mark.parametrize("messages", bundles([*MESSAGES, *DECLARED]))
def test_a_wrong_value_in_any_field_is_rejected_with_its_path(
    real: Make, messages: Sequence[type[Message]]
) -> None:
    pairs = [(cls, version) for cls in messages for version in versions(cls)]
    check_each(pairs, lambda pair: refuses_wrong_values(real, *pair, SHARE))


@pytest.mark.parametrize("messages", bundles([*MESSAGES, *DECLARED]))
def test_a_value_for_a_missing_field_is_rejected_unless_ignorable(
    real: Make, messages: Sequence[type[Message]]
) -> None:
    pairs = [(cls, version) for cls in messages for version in {cls.__versions__.min, *versions(cls)}]
    check_each(pairs, lambda pair: refuses_what_the_version_lacks(real, *pair))


@pytest.mark.parametrize(
    "tags",
    [5, "ab", [(99, b"x")], {"99": b"x"}, {-1: b""}, {2**31: b""}, {10**5000: b""}, {99: "x"}, {99: None}],
)
def test_malformed_unknown_tags_are_rejected(tags: Any) -> None:
    message = sample(Tagged, 2)
    message.__unknown_tags__ = tags
    with pytest.raises(EncodeError, match="tag"):
        message.encode(2)


def test_a_deleted_field_is_reported() -> None:
    message = sample(Plain, 1)
    del message.text
    with pytest.raises(EncodeError) as refused:
        message.encode(1)
    assert refused.value.field == "text"


@pytest.mark.parametrize("cls", [Arrays, Tagged], ids=lambda cls: cls.__name__)
def test_the_longest_string_is_accepted(cls: type[Message]) -> None:
    for version in range(cls.__versions__.min, cls.__versions__.max + 1):
        message = sample(cls, version)
        for place in all_places(message, version):
            if place.is_present and isinstance(place.kind, Primitive) and place.kind.name == "string":
                place.set(LONG[:-1])
        assert cls.decode(message.encode(version), version) == message


@pytest.mark.parametrize("messages", bundles(MESSAGES))
def test_decoders_reject_a_string_of_32768_bytes(real: Make, messages: Sequence[type[Message]]) -> None:
    """The decoders reject a string of 32,768 bytes, as all of Kafka's readers do."""

    def check(cls: type[Message]) -> None:
        version = cls.__versions__.max
        data = sample(cls, version).encode(version)
        for length in lengths(cls, version, data):
            if length.varint and length.description == "the length of string":
                broken = data[: length.start] + interpreter.uvarint(32_769) + LONG.encode()
                assert not agree(real, cls, version, broken + data[length.end + 2 :])

    check_each(messages, check)


# Mutants of the compiler, each with one mistake.


def survives(make: Make) -> None:
    for cls in (Nullable, Plain, Ranges):
        data = sample(cls, 1).encode(1)
        survives_every_cut(make, cls, 1, data)
        survives_every_corruption(make, cls, 1, data, 5)


def allocates_nothing(make: Make) -> None:
    for version in (0, 1):
        compiled = make.decoder(Arrays, version)

        def decode(_: type[Message], data: bytes, __: int) -> None:
            properties.decode_quietly(compiled, data)  # noqa: B023

        lengths_cost_nothing(decode, Arrays, version)


def refuses(make: Make) -> None:
    cached = Make(make.decoder, cache(make.encoder))
    for cls, version in ((Arrays, 1), (Tagged, 3), (Ranges, 5), (Plain, 1)):
        refuses_wrong_values(cached, cls, version)
    for version in range(6):
        refuses_what_the_version_lacks(cached, Ranges, version)


def refuses_long_strings(make: Make) -> None:
    data = sample(Arrays, 1).encode(1)
    text = next(length for length in lengths(Arrays, 1, data) if length.description == "the length of string")
    broken = data[: text.start] + interpreter.uvarint(32_769) + LONG.encode() + data[text.end + 2 :]
    assert not agree(make, Arrays, 1, broken)


MUTANTS: dict[str, tuple[str, str, Callable[[Make], None]]] = {
    "the end isn't checked": ('self.line("if p > end: raise Malformed")', "pass", survives),
    "null passes for empty": (
        'self.line("if n < 0: raise Malformed")',
        'self.line("if n < 0: n = 0")',
        survives,
    ),
    "a null struct is read as one that follows": (
        "else 'n < 0'}: {value}",
        "else 'n < -9'}: {value}",
        survives,
    ),
    "counts aren't held against what is left": ("} > end - p: raise", "} > 10**9: raise", allocates_nothing),
    "strings of any length are read": ('"long_string" if', '"long_length" if', refuses_long_strings),
    "strings of any length are written": ('"string_uvarint" if', '"uvarint" if', refuses),
    "a number passes for so many zero bytes": ("check_bytes(b)", "bytes(b)", refuses),
    "anything iterable passes for a list": ("else check_sequence({items})", "else list({items})", refuses),
    "anything has a truth": ("BOOL_BYTE[{value}]", "bool({value})", refuses),
    "absent fields lose their values": ("if set_but_absent:", "if False:", refuses),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_of_the_compiler_is_killed(name: str) -> None:
    old, new, check = MUTANTS[name]
    broken = mutated_compiler(old, new)
    with pytest.raises((AssertionError, DecodeError, pytest.fail.Exception)):
        check(Make(broken.decoder, broken.encoder))


@pytest.mark.parametrize("check", [survives, allocates_nothing, refuses, refuses_long_strings])
def test_the_compiler_itself_passes(check: Callable[[Make], None], real: Make) -> None:
    check(real)
