"""Properties that an assignor, a decoder or a reader of batches must have for any input.

    def test_my_assignor_is_a_function():
        an_assignor_is_a_function(lambda: my_assignor(partitions, members, {}))

    @given(st.binary())
    def test_my_decoder_takes_any_bytes(data):
        a_decoder_takes_any_bytes(my_decoder, data)

Each check raises `InvariantBroken` with the reason. The numbers (I6, ...) are those of
`kproto.testing.invariants`.

Slow code is stopped after a number of executed Python lines, so the result is the same on every machine.

The limit cannot stop a loop that executes no Python line (`max(itertools.count())`), or that catches
`InvariantBroken`.
"""

from __future__ import annotations

import dis
import sys
import tracemalloc
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

from ..errors import ConfigError, KprotoError
from ..group.subscription import TopicPartition
from ..validation import (
    BYTES,
    FUNCTION_WITHOUT_ARGUMENTS,
    OFFSETS,
    WHOLE_NUMBER,
    ZERO_OR_MORE,
    Rule,
    checked,
    is_partition,
    list_of,
)
from ..wire.codecs import Compiled
from .invariants import InvariantBroken
from .world.user_code import reject_awaitable

# The maximum number of Python lines that an assignor may execute. An assignment of 1,000 partitions to 100
# members executes a tenth of this number.
MOST_LINES: Final = 2_000_000

# The limits of a decoder for each byte of its input: executed Python lines, and bytes of memory.
LINES_A_BYTE, BYTES_A_BYTE = 500, 200

# The parts of these two limits that do not depend on the input. They allow for compilation and imports.
LINES_AT_LEAST, BYTES_AT_LEAST = 100_000, 4 << 20

# The function that compiles the codec of a message when the codec is first used.
_COMPILE_CODE: Final = Compiled.__missing__.__code__

_JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))


def _is_partition_and_offset(value: Any) -> bool:
    pair: Any = value
    return isinstance(value, tuple) and len(pair) == 2 and is_partition(pair[0])


# Rules of arguments.
_FUNCTION_OF_BYTES: Final = Rule(callable, "a function that takes bytes")
_PARTITIONS_WITH_OFFSETS: Final = Rule(
    list_of(_is_partition_and_offset),
    "a list of partitions with offsets",
)


@checked(assign=FUNCTION_WITHOUT_ARGUMENTS, times=ZERO_OR_MORE, most_lines=WHOLE_NUMBER)
def an_assignor_is_a_function(
    assign: Callable[[], object], *, times: int = 2, most_lines: int = MOST_LINES
) -> None:
    """I6: check that `assign` returns the same value in each of `times` calls.

    The first call may execute at most `most_lines` Python lines.
    """
    if times < 2:
        raise ConfigError("times", times, "at least 2: a single call has nothing to be compared with")
    with _limit_lines(most_lines):
        first = reject_awaitable("assign", assign, assign())
    for _ in range(times - 1):
        if (repeated := assign()) != first:
            raise InvariantBroken(f"two calls with the same input returned {first!r} and {repeated!r}")


@checked(decode=_FUNCTION_OF_BYTES, data=BYTES)
def a_decoder_takes_any_bytes(decode: Callable[[bytes], object], data: bytes) -> None:
    """I18: check that `decode(data)` either returns a value or raises a KprotoError.

    The number of lines that the decoder executes, and the memory that it uses, may grow only in proportion to
    the length of `data`. If the decoder returns a generator, the generator is consumed within these limits.
    """
    memory_limit = BYTES_AT_LEAST + BYTES_A_BYTE * len(data)
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    memory_before, _ = tracemalloc.get_traced_memory()
    decoded: object = None
    try:
        with _limit_lines(LINES_AT_LEAST + LINES_A_BYTE * len(data)):
            decoded = decode(data)
            _consume_iterator(decoded)
    except InvariantBroken:
        raise
    except KprotoError:
        pass
    except Exception as error:
        raise InvariantBroken(
            f"{type(error).__name__} was raised for {data[:40].hex(' ')}: {error}"
        ) from error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        if not tracing:
            tracemalloc.stop()
    reject_awaitable("decode", decode, decoded)
    used_memory = peak - memory_before
    if used_memory > memory_limit:
        raise InvariantBroken(
            f"{len(data)} bytes needed {used_memory} bytes of memory; {memory_limit} are allowed"
        )


@checked(start=OFFSETS, end=OFFSETS, rows=_PARTITIONS_WITH_OFFSETS)
def a_batch_ends_where_its_rows_end(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    rows: Sequence[tuple[TopicPartition, int]],
) -> None:
    """I20: check that the rows of a Spark batch lie between the start and end offsets of their partitions.

    A partition whose start and end offsets differ must also have at least one row. Gaps between rows are
    allowed.

    `start` and `end` map a partition to its start and end offset in the batch. `rows` are pairs (partition,
    offset).
    """
    for partition in dict.fromkeys([*end, *(row_partition for row_partition, _ in rows)]):
        offsets = [offset for row_partition, offset in rows if row_partition == partition]
        first_offset = start.get(partition, 0)
        end_offset = end.get(partition, first_offset)
        if offsets and not first_offset <= min(offsets) <= max(offsets) < end_offset:
            raise InvariantBroken(
                f"{partition}: rows {min(offsets)} to {max(offsets)} "
                f"exceed the batch from {first_offset} to {end_offset}"
            )
        if not offsets and end_offset != first_offset:
            raise InvariantBroken(
                f"{partition}: no rows in the batch from offset {first_offset} to {end_offset}"
            )


def _consume_iterator(decoded: object) -> None:
    """Consume `decoded` to its end if it is an iterator: a generator decodes only when consumed."""
    pieces: Any = decoded
    if isinstance(decoded, Iterator):
        for _ in pieces:
            pass


@contextmanager
def _limit_lines(lines: int) -> Generator[None]:
    """Raise InvariantBroken if the block executes more than `lines` lines of Python."""
    lines_left = lines
    compilation: FrameType | None = None

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines_left, compilation
        if compilation is not None:
            return None
        if frame.f_code is _COMPILE_CODE:
            compilation = frame
            return trace_compilation
        if event == "call" and _has_jump_to_itself(frame.f_code):
            frame.f_trace_opcodes = True
        lines_left -= 1
        if lines_left < 0:
            raise InvariantBroken(
                f"not finished after {lines} lines of Python, in {frame.f_code.co_qualname}"
            )
        return trace

    def trace_compilation(frame: FrameType, event: str, arg: Any) -> Any:
        """Turn off line tracing while a codec is compiled: tracing makes this 30 times slower."""
        nonlocal compilation
        frame.f_trace_lines = False
        if event == "return":
            compilation = None
        return trace_compilation

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous_trace)


@lru_cache(maxsize=1_000)
def _has_jump_to_itself(code: CodeType) -> bool:
    """Return whether the bytecode has an instruction that jumps to itself, as in `while True: pass`.

    The limit of executed lines does not stop such a loop, because Python 3.11 traces its line only once.
    """
    return any(
        instruction.argval == instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.opcode in _JUMPS
    )
