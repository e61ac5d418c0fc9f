"""What must hold of one part by itself, whatever it is given: an assignor, a decoder, a reader of batches.

    def test_mine_is_a_function():
        an_assignor_is_a_function(lambda: my_assignor(partitions, members, {}))

    @given(st.binary())
    def test_mine_reads_anything(data):
        a_decoder_takes_any_bytes(my_decoder, data)

Each raises `Broken`, which says what was seen. What takes too long is stopped after so many lines of Python,
and not after a time: the answer is the same on every machine. The numbers are those of `invariants`. Not
stopped is a loop without a line of Python in it (`max(itertools.count())`), nor one that catches `Broken`.
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
from ..validation import checked
from .invariants import Broken
from .world.user_code import reject_awaitable

# Lines of Python that an assignor may take; a thousand partitions for a hundred members take a tenth.
MOST_LINES: Final = 2_000_000

# What a decoder may take for each byte that it is given: lines, and bytes of memory.
LINES_A_BYTE, BYTES_A_BYTE = 500, 200

LINES_AT_LEAST, BYTES_AT_LEAST = 100_000, 4 << 20  # What it may take for none at all: compiling, imports.

_JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))


@checked
def an_assignor_is_a_function(
    assign: Callable[[], object], *, times: int = 2, most_lines: int = MOST_LINES
) -> None:
    """I6: it ends, and gives the same for the same, `times` times."""
    if times < 2:
        raise ConfigError("times", times, "at least 2: what is asked once can't differ")
    with _at_most(most_lines):
        first = reject_awaitable("assign", assign, assign())
    for _ in range(times - 1):
        if (again := assign()) != first:
            raise Broken(f"the same question has two answers: {first!r} and {again!r}")


@checked
def a_decoder_takes_any_bytes(decode: Callable[[bytes], object], data: bytes) -> None:
    """I18: it returns a value or raises one of kproto's errors, and takes no more lines and memory than the
    bytes pay for. One that gives what it read piece by piece (a generator) is read to its end.
    """
    most = BYTES_AT_LEAST + BYTES_A_BYTE * len(data)
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    answer: object = None
    try:
        with _at_most(LINES_AT_LEAST + LINES_A_BYTE * len(data)):
            answer = decode(data)
            _read(answer)
    except (KprotoError, Broken) as error:
        if isinstance(error, Broken):
            raise
    except Exception as error:
        raise Broken(f"{type(error).__name__} comes out for {data[:40].hex(' ')}: {error}") from error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        if not tracing:
            tracemalloc.stop()
    reject_awaitable("decode", decode, answer)
    if peak - before > most:
        raise Broken(f"{len(data)} bytes took {peak - before} bytes of memory; {most} are allowed")


@checked
def a_batch_ends_where_its_rows_end(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    rows: Sequence[tuple[TopicPartition, int]],
) -> None:
    """I20: an end offset moves if and only if there are rows up to it (Spark's micro batches)."""
    for partition in dict.fromkeys([*end, *(where for where, _ in rows)]):
        offsets = [offset for where, offset in rows if where == partition]
        begin = start.get(partition, 0)
        stop = end.get(partition, begin)
        if offsets and not begin <= min(offsets) <= max(offsets) < stop:
            raise Broken(
                f"{partition}: rows {min(offsets)} to {max(offsets)} in a batch from {begin} to {stop}"
            )
        if not offsets and stop != begin:
            raise Broken(f"{partition}: the batch goes from {begin} to {stop}, and has no rows")


def _read(answer: object) -> None:
    """Let all of it run, where that is a generator."""
    pieces: Any = answer
    if isinstance(answer, Iterator):
        for _ in pieces:
            pass


@contextmanager
def _at_most(lines: int) -> Generator[None]:
    """Stops what runs in here after so many lines."""
    left = lines

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "call" and _stands_still(frame.f_code):
            frame.f_trace_opcodes = True
        left -= 1
        if left < 0:
            raise Broken(f"not over after {lines} lines of Python, in {frame.f_code.co_qualname}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@lru_cache(maxsize=1_000)
def _stands_still(code: CodeType) -> bool:
    """A jump in it goes to itself (`while True: pass`): a line that Python 3.11 tells but once."""
    return any(
        instruction.argval == instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.opcode in _JUMPS
    )
