"""What waits at the broker: found by what it waits for, and let go of without a trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kproto.broker.apis.fetch import ParkedFetch
from kproto.broker.call import Call
from kproto.broker.fetch_sessions import Session
from kproto.broker.purgatory import Waiting
from kproto.broker.topics import Partition
from tests.broker.stage import Stage, batch_of, fetching, wanted


class Request:
    """A parked request, as far as it waits."""

    def __init__(self, conn: int, deadline: int, *partitions: Partition) -> None:
        self.call = cast(Call, SimpleNamespace(conn=conn))
        self.deadline = deadline
        self.until = set[Partition | Session](partitions)

    def answer(self, *, at_once: bool = False) -> None: ...


ONE, OTHER = Partition(), Partition()


def test_those_are_found_that_wait_for_one_of_the_partitions_in_the_order_in_which_they_came() -> None:
    waiting = Waiting()
    requests = [Request(3, 9, ONE), Request(2, 9, OTHER), Request(1, 9, ONE, OTHER)]
    for one in requests:
        waiting.add(one)
    assert waiting.on([ONE]) == [requests[0], requests[2]]
    assert waiting.on([OTHER, ONE]) == requests
    assert waiting.on([Partition()]) == []


def test_the_one_whose_time_is_over_first_comes_first() -> None:
    waiting = Waiting()
    late, early = Request(1, 9, ONE), Request(2, 5, ONE)
    waiting.add(late)
    waiting.add(early)
    assert waiting.earliest() == 5
    assert waiting.due(4) == []
    assert waiting.due(9) == [early, late]


def test_what_waits_for_something_else_now_is_found_there() -> None:
    waiting = Waiting()
    request = Request(1, 9, ONE)
    waiting.add(request)
    request.until = {OTHER}
    waiting.look_again(request)
    assert waiting.on([ONE]) == []
    assert waiting.on([OTHER]) == [request]


def test_what_is_dropped_leaves_nothing_behind() -> None:
    waiting = Waiting()
    waiting.add(Request(1, 9, ONE, OTHER))
    waiting.drop(1)
    waiting.drop(1)
    assert (len(waiting), waiting.earliest(), waiting.on([ONE, OTHER])) == (0, None, [])
    assert waiting._who == {}


def test_a_record_elsewhere_looks_at_no_fetch_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": 2})
    reader, producer = stage.client(), stage.client()
    reader.send(fetching(wanted(partition=0)), 12)

    def looked_at(*_: Any, **__: Any) -> None:
        raise AssertionError("a fetch of another partition was looked at")

    monkeypatch.setattr(ParkedFetch, "answer", looked_at)
    producer.produce(batch_of(b"a"), partition=1)
    with pytest.raises(AssertionError):
        producer.produce(batch_of(b"a"), partition=0)
