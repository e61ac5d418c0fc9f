"""Ctrl-C at any line of the engine: what a poll had begun to take comes again, all of it, and once."""

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

ENGINE = str(Path(consumer.engine.__file__).parent)
# Signals come where something is called, and here nothing is once the step's actions are together.
WHOLE = ("take_actions", "step")
P0 = TopicPartition("t", 0)
ALL = list(range(12))
# A poll is some hundred lines of the engine; each eleventh of them is tried.
STEP = 11


class CtrlC:
    """Raises KeyboardInterrupt before the n-th line that runs in this thread of the code `within`."""

    def __init__(self, line: int, within: tuple[str, ...]) -> None:
        self.left = line
        self.within = within

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.within) or frame.f_code.co_name in WHOLE:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


@contextmanager
def ctrl_c(line: int, *within: str) -> Iterator[CtrlC]:
    before, tracer = sys.gettrace(), CtrlC(line, within or (ENGINE,))
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
def test_ctrl_c_at_any_line_of_a_poll_skips_and_repeats_nothing(
    bootstrap: str, read: Callable[[Consumer], list[int]]
) -> None:
    with Consumer(bootstrap, max_partition_fetch_bytes=150) as reader:
        reader.assign({P0: 0})
        state = reader._operations.engine.partitions[P0]
        for line in count(1, STEP):
            reader.seek(P0, 0)
            seen = [] if line % 2 else read(reader)  # of this poll, or of one that was over
            while len(state.fetches) < 2:
                time.sleep(0.001)
            with ctrl_c(line) as tracer:
                try:
                    seen += read(reader)
                except KeyboardInterrupt:
                    assert reader.position(P0) == len(seen)
            while len(seen) < len(ALL):
                seen += read(reader)
            assert seen == ALL, f"Ctrl-C before line {line} of the poll"
            if tracer.left > 0:
                assert line > 50
                return


def test_ctrl_c_at_any_line_of_waiting_is_what_the_caller_hears_of(bootstrap: str) -> None:
    """A lock that was not there to be given back was a RuntimeError instead."""
    waiting = consumer.blocking.waiters.__file__, threading.__file__
    with Consumer(bootstrap, auto_offset_reset="latest") as reader:
        reader.assign([P0])
        assert reader.position(P0) == len(ALL)
        for line in count(1):
            with ctrl_c(line, *waiting) as tracer, suppress(KeyboardInterrupt):
                reader.poll(0.02)
            if tracer.left > 0:
                break
        assert line > 10
        reader.seek(P0, 0)
        assert rows(reader) == ALL[:4]


def test_so_it_is_where_somebody_waits_for_an_answer(bootstrap: str) -> None:
    waiting = concurrent.futures._base.__file__, threading.__file__
    with Consumer(bootstrap, group_id="asks") as reader:
        for line in count(1):
            with ctrl_c(line, *waiting) as tracer, suppress(KeyboardInterrupt):
                assert reader.committed([P0]) == {P0: None}
            if tracer.left > 0:
                break
        assert line > 5
        assert reader.committed([P0]) == {P0: None}


def test_ctrl_c_before_a_poll_has_begun_leaves_processed_what_the_one_before_it_returned(
    bootstrap: str,
) -> None:
    with Consumer(bootstrap, group_id="processed", enable_auto_commit=False) as reader:
        reader.assign({P0: 0})
        assert rows(reader) == ALL[:4]
        with ctrl_c(1), pytest.raises(KeyboardInterrupt):
            reader.poll(10, 4)
        assert rows(reader) == ALL[4:8]


@pytest.mark.parametrize("read", [rows, columns, lambda reader: [next(reader).offset]])
def test_ctrl_c_on_the_way_out_of_a_poll_gives_its_records_back(
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
        seen: list[int] = []
        while len(seen) < len(ALL):
            seen += read(reader)
        assert seen == ALL
