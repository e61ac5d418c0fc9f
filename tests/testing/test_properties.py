"""Checks of assignors, decoders and readers. Correct code passes all checks, and each kind of defect fails at
least one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproto.errors import ConfigError, DecodeError
from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.messages.fetch import FetchResponse
from kproto.messages.join_group import JoinGroupResponse
from kproto.messages.metadata import MetadataResponse
from kproto.records import batches
from kproto.testing.invariants import InvariantBroken
from kproto.testing.properties import (
    a_batch_ends_where_its_rows_end,
    a_decoder_takes_any_bytes,
    an_assignor_is_a_function,
)
from kproto.testing.strategies import record_batches
from kproto.wire import Int32, Message

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = st.sampled_from("tuv")
GROUPS = st.tuples(
    st.dictionaries(NAMES, st.integers(0, 9)),
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.lists(NAMES, unique=True, max_size=3), min_size=1
    ),
)
Group = tuple[dict[str, int], dict[str, list[str]]]

# ---- I6: assignors


def assignment_of(assign: Callable[..., object], group: Group) -> Callable[[], object]:
    partitions, members = group
    subscriptions = {name: Subscription(topics=tuple(topics)) for name, topics in members.items()}
    return lambda: assign(partitions, subscriptions, {})


@pytest.mark.rule("I6")
@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=GROUPS)
def test_every_assignor_is_a_function(name: str, group: Group) -> None:
    an_assignor_is_a_function(assignment_of(ASSIGNORS[name].assign, group))


def random_owner(partitions: Any, members: Any, racks: Any) -> object:
    return {random.choice(list(members)): list(partitions)}


TURNS = itertools.count()


def stateful_owner(partitions: Any, members: Any, racks: Any) -> object:
    """A defective assignor: the member that gets all partitions depends on the number of calls."""
    return {sorted(members)[next(TURNS) % len(members)]: list(partitions)}


def moves_endlessly(partitions: Any, members: Any, racks: Any) -> object:
    """A defective assignor: a call moves partitions back and forth, and never returns.

    In old librdkafka releases, performReassignments has such an endless loop.
    """
    owners = sorted(members) * 2
    while owners[0] != "nobody":
        owners.reverse()
    return {}


def loops_forever(partitions: Any, members: Any, racks: Any) -> object:
    while True: pass  # fmt: skip  # noqa: E701


@pytest.mark.parametrize("assign", [random_owner, stateful_owner, moves_endlessly, loops_forever])
def test_an_assignor_that_is_not_a_function_is_found(assign: Callable[..., object]) -> None:
    group: Group = {"t": 9}, {name: ["t"] for name in "abcdefgh"}
    with pytest.raises(InvariantBroken):
        an_assignor_is_a_function(assignment_of(assign, group), times=20)


# ---- I18: decoders


DECODERS: dict[str, Callable[[bytes], object]] = {
    "JoinGroup": lambda data: JoinGroupResponse.decode(data, 9),
    "Metadata": lambda data: MetadataResponse.decode(data, 12),
    "Fetch": lambda data: FetchResponse.decode(data, 12),
    "an assignment": Assignment.decode,
    "a subscription": Subscription.decode,
    "batches": lambda data: [batch.records() for batch in batches(data)],
}


@pytest.mark.rule("I18")
@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=25)
@given(data=st.binary(max_size=200))
@example(data=b"\x7f\xff\xff\xff" * 8)
@example(data=b"\xff" * 40)
def test_every_decoder_takes_any_bytes(name: str, data: bytes) -> None:
    a_decoder_takes_any_bytes(DECODERS[name], data)


@settings(max_examples=25)
@given(batch=record_batches(), at=st.integers(0), value=st.integers(0, 255))
def test_a_batch_with_any_changed_byte_is_decoded_or_rejected(batch: Any, at: int, value: int) -> None:
    data = bytearray(batch.data)
    data[at % len(data)] = value
    a_decoder_takes_any_bytes(
        # The property limits the allocated memory to less than 16 MiB, the default of max_decompressed.
        lambda data: [batch.records(max_decompressed=1 << 20) for batch in batches(data, check_crc=False)],
        bytes(data),
    )


def leaks(data: bytes) -> object:
    return data[data[0]]


def hangs(data: bytes) -> object:
    at = 0
    while at < len(data):
        at += data[at] & 0x7F
    return at


def allocates(data: bytes) -> object:
    if len(data) < 4:
        raise DecodeError("Some", 0, "size", 0, "too short")
    return bytes(int.from_bytes(data[:4], "big") & 0x3FFFFFF)


def leaks_later(data: bytes) -> Iterator[int]:
    yield 1
    raise KeyError("later")


def never_ends(data: bytes) -> Iterator[int]:
    while True:
        yield 1


async def waits(data: bytes) -> object:
    raise KeyError("never")


@pytest.mark.parametrize(
    ("decode", "data", "why"),
    [
        (leaks_later, b"\xff", "KeyError was raised"),
        (never_ends, b"\xff", "not finished after"),
        (leaks, b"\xff", "IndexError was raised"),
        (hangs, b"\x02\x01\x00", "not finished after"),
        (allocates, b"\x7f\xff\xff\xff", "bytes of memory"),
    ],
)
def test_a_decoder_without_the_property_is_found(
    decode: Callable[[bytes], object], data: bytes, why: str
) -> None:
    with pytest.raises(InvariantBroken, match=why):
        a_decoder_takes_any_bytes(decode, data)


def test_the_compilation_of_a_codec_is_not_counted() -> None:
    """The compilation of a codec is not traced, and its lines do not count towards the limit.

    The check counts lines by tracing. A traced compilation of a codec would take 30 times as long.
    """

    class Unused(Message, versions="0"):
        number: Int32

    an_assignor_is_a_function(lambda: Unused.decode(b"\0\0\0\7", 0), most_lines=100)
    assert set(Unused.__decoders__) == {0}


def test_a_coroutine_function_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"decode=.*nothing awaits its result"):
        a_decoder_takes_any_bytes(waits, b"")
    with pytest.raises(ConfigError, match=r"assign=.*nothing awaits its result"):
        an_assignor_is_a_function(lambda: waits(b""))
    with pytest.raises(ConfigError, match="times=1 is not allowed; at least 2"):
        an_assignor_is_a_function(dict, times=1)


# ---- I20: readers of batches; tests/consumer/spark/test_stream.py checks it with the real reader of batches


def test_a_batch_whose_rows_fill_it_is_whole() -> None:
    a_batch_ends_where_its_rows_end({T0: 3, T1: 0}, {T0: 5, T1: 0}, [(T0, 3), (T0, 4)])


@pytest.mark.parametrize(
    ("end", "rows"),
    [
        # The end of partition T0 advances, although the batch returns no row of it.
        ({T0: 5, T1: 0}, []),
        # The batch ends before offset 4 but returns this offset, so the next batch returns it again.
        ({T0: 4, T1: 0}, [(T0, 3), (T0, 4)]),
        # The batch begins with a row of the previous batch.
        ({T0: 5, T1: 0}, [(T0, 2), (T0, 4)]),
        # The end of partition T0 is below its start, so the next batch repeats a row.
        ({T0: 2, T1: 0}, []),
        # The end of partition T0 is missing, although the batch returns rows of T0.
        ({T1: 0}, [(T0, 3), (T0, 4)]),
        # The ends of two partitions are swapped.
        ({T0: 3, T1: 2}, [(T0, 3), (T0, 4)]),
    ],
)
def test_a_batch_that_does_not_end_where_its_rows_end_is_reported(
    end: dict[TopicPartition, int], rows: list[Any]
) -> None:
    with pytest.raises(InvariantBroken):
        a_batch_ends_where_its_rows_end({T0: 3, T1: 0}, end, rows)
