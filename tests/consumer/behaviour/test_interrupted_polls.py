"""Ctrl-C at any line of the engine during a poll loses no record.

The next poll returns the records that the interrupted poll would have returned, each once.
"""

from __future__ import annotations

import concurrent.futures._base
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import consumer.blocking.waiters
import consumer.engine
from consumer import Consumer, Producer, TopicPartition
from consumer.blocking.runtime import _Claim
from kproto.broker.server import running
from kproto.errors import IllegalState

ENGINE = str(Path(consumer.engine.__file__).parent)
# Functions that the test does not interrupt. Python checks for signals at calls, and these functions make no
# call after they have collected an event's actions.
WHOLE = ("take_actions", "step")
P0 = TopicPartition("t", 0)
ALL = list(range(12))
# The distance in lines between two interruptions. A poll runs several hundred lines of the engine, and
# interrupting each would take too long.
STEP = 11
# The longest wait (s) for another thread.
WAIT_S = 20


class LineInterrupt:
    """Raise KeyboardInterrupt before the n-th line that the current thread runs in the files `within`."""

    def __init__(self, line: int, within: tuple[str, ...]) -> None:
        self.remaining = line
        self.within = within

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.within) or frame.f_code.co_name in WHOLE:
            return None
        if event == "line":
            self.remaining -= 1
            if not self.remaining:
                raise KeyboardInterrupt
        return self


@contextmanager
def ctrl_c(line: int, *within: str) -> Iterator[LineInterrupt]:
    before, tracer = sys.gettrace(), LineInterrupt(line, within or (ENGINE,))
    sys.settrace(tracer)
    try:
        yield tracer
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running(topics={"t": 1}) as server:
        with Producer(server.bootstrap) as producer:
            for number in ALL:
                producer.send("t", b"%d" % number)
                if number % 3 == 2:
                    producer.flush()
        yield server.bootstrap


def rows(reader: Consumer) -> list[int]:
    return [record.offset for record in reader.poll(10, 4)]


def columns(reader: Consumer) -> list[int]:
    return [offset for batch in reader.poll_columns(10) for offset in batch.columns.offset.tolist()]


@pytest.mark.parametrize("read", [rows, pytest.param(columns, marks=pytest.mark.thorough)])
def test_ctrl_c_at_any_line_of_a_poll_skips_and_repeats_no_record(
    bootstrap: str, read: Callable[[Consumer], list[int]]
) -> None:
    with Consumer(bootstrap, max_partition_fetch_bytes=150) as reader:
        reader.assign({P0: 0})
        state = reader._operations.engine.partitions[P0]
        for line in count(1, STEP):
            reader.seek(P0, 0)
            # In every second run a complete poll precedes the interrupted one.
            offsets = [] if line % 2 else read(reader)
            while len(state.fetches) < 2:
                time.sleep(0.001)
            with ctrl_c(line) as tracer:
                try:
                    offsets += read(reader)
                except KeyboardInterrupt:
                    assert reader.position(P0) == len(offsets)
            while len(offsets) < len(ALL):
                offsets += read(reader)
            assert offsets == ALL, f"Ctrl-C before line {line} of the poll"
            if tracer.remaining > 0:
                assert line > 50
                return


def test_ctrl_c_at_any_line_of_waiting_raises_keyboard_interrupt(bootstrap: str) -> None:
    """Ctrl-C at any line of a waiting poll raises KeyboardInterrupt.

    Regression: the poll released a lock that it did not hold, and raised RuntimeError instead of
    KeyboardInterrupt.
    """
    waiting = consumer.blocking.waiters.__file__, threading.__file__
    with Consumer(bootstrap, auto_offset_reset="latest") as reader:
        reader.assign([P0])
        assert reader.position(P0) == len(ALL)
        for line in count(1):
            with ctrl_c(line, *waiting) as tracer, suppress(KeyboardInterrupt):
                reader.poll(0.02)
            if tracer.remaining > 0:
                break
        assert line > 10
        reader.seek(P0, 0)
        assert rows(reader) == ALL[:4]


def test_ctrl_c_at_any_line_of_waiting_for_a_response_raises_keyboard_interrupt(bootstrap: str) -> None:
    waiting = concurrent.futures._base.__file__, threading.__file__
    with Consumer(bootstrap, group_id="asks") as reader:
        for line in count(1):
            with ctrl_c(line, *waiting) as tracer, suppress(KeyboardInterrupt):
                assert reader.committed([P0]) == {P0: None}
            if tracer.remaining > 0:
                break
        assert line > 5
        assert reader.committed([P0]) == {P0: None}


def test_ctrl_c_before_a_poll_starts_keeps_the_last_poll_processed(
    bootstrap: str,
) -> None:
    with Consumer(bootstrap, group_id="processed", enable_auto_commit=False) as reader:
        reader.assign({P0: 0})
        assert rows(reader) == ALL[:4]
        with ctrl_c(1), pytest.raises(KeyboardInterrupt):
            reader.poll(10, 4)
        assert rows(reader) == ALL[4:8]


@pytest.mark.parametrize("read", [rows, columns, lambda reader: [next(reader).offset]])
def test_ctrl_c_while_a_poll_returns_gives_its_records_back(
    bootstrap: str, read: Callable[[Consumer], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(claim: _Claim, *error: Any) -> None:
        leave(claim, *error)
        raise KeyboardInterrupt

    leave = _Claim.__exit__
    with Consumer(bootstrap) as reader:
        reader.assign({P0: 0})
        assert reader.position(P0) == 0
        with monkeypatch.context() as patch:
            patch.setattr(_Claim, "__exit__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                read(reader)
        offsets: list[int] = []
        while len(offsets) < len(ALL):
            offsets += read(reader)
        assert offsets == ALL


def test_a_rejected_poll_of_another_thread_does_not_take_records_back() -> None:
    """A poll in a callback of a future is rejected while the application's poll is about to return records.

    The application's poll still returns these records.
    """
    may_poll, has_polled = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def poll_in_callback(future: object) -> None:
        may_poll.wait(WAIT_S)
        try:
            reader.poll(0)
        except IllegalState as error:
            outcomes.append(str(error))
        has_polled.set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        """Let the callback poll when `_run_poll` has a result but has not returned it yet."""
        if frame.f_code.co_name != "_run_poll":
            return None
        if event == "line" and frame.f_locals.get("result") and not may_poll.is_set():
            may_poll.set()
            assert has_polled.wait(WAIT_S)
        return trace

    with (
        running(topics={"t": 1}) as server,
        Consumer(server.bootstrap, group_id="g", auto_offset_reset="earliest", max_poll_records=2) as reader,
    ):
        with Producer(server.bootstrap) as producer:
            for number in ALL:
                producer.send("t", str(number).encode())
        reader.assign([P0])
        offsets = [record.offset for record in reader.poll(WAIT_S)]
        reader.commit_async().add_done_callback(poll_in_callback)
        sys.settrace(trace)
        try:
            offsets += [record.offset for record in reader.poll(WAIT_S)]
        finally:
            sys.settrace(None)
        offsets += [record.offset for record in reader.poll(WAIT_S)]
    assert "callback of a future" in outcomes[0]
    assert offsets == list(range(6))
