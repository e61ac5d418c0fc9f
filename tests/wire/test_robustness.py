"""No bytes make `decode` raise anything but DecodeError, hang, or allocate what they did not pay for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError
from kproto.testing.strategies import versioned
from kproto.wire import Message
from tests.wire import properties
from tests.wire.declared import DECLARED, Arrays
from tests.wire.properties import corruptions, places
from tests.wire.test_compile import REAL, all_messages

MESSAGES = all_messages()
NEWEST_AND_OLDEST = [
    (cls, v) for cls in MESSAGES for v in sorted({cls.__versions__.min, cls.__versions__.max})
]


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> None:
    try:
        cls.decode(data, version)
        return
    except DecodeError as refused:
        error = refused
    assert 0 <= error.offset <= len(data)
    assert error.field


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, v) for cls in DECLARED for v in range(cls.__versions__.min, cls.__versions__.max + 1)],
)
def test_cuts_and_corruptions_are_refused_or_read_as_the_interpreter_says(
    cls: type[Message], version: int
) -> None:
    properties.survives_every_cut_and_corruption(REAL, cls, version)


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
def test_noise_raises_only_decode_error(chosen: tuple[type[Message], int], data: bytes) -> None:
    decode_or_refuse(chosen[0], data, chosen[1])


@pytest.mark.parametrize(("version", "flexible"), [(0, False), (1, True)])
@pytest.mark.parametrize("field", range(9))
def test_a_count_without_elements_costs_nothing(version: int, flexible: bool, field: int) -> None:
    head = (b"\x01" if flexible else b"\x00\x00\x00\x00") * field
    properties.stays_small_on_bombs(REAL, Arrays, version, head, flexible)
