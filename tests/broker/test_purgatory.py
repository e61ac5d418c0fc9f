"""The purgatory finds delayed requests by the partition or session that they wait for, or by deadline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kproto.broker.apis.fetch import DelayedFetch
from kproto.broker.call import Call
from kproto.broker.fetch_sessions import FetchSession
from kproto.broker.purgatory import Purgatory
from kproto.broker.topics import Partition
from tests.broker.stage import Stage, batch_of, fetch_request, fetch_topic


class Request:
    """The part of a delayed request that the purgatory uses."""

    def __init__(self, conn: int, deadline: int, *partitions: Partition) -> None:
        self.call = cast(Call, SimpleNamespace(conn=conn))
        self.deadline = deadline
        self.waits_for = set[Partition | FetchSession](partitions)

    def try_complete(self, *, force: bool = False) -> None: ...


ONE, OTHER = Partition(), Partition()


def test_waiting_requests_are_found_in_the_order_of_their_arrival() -> None:
    purgatory = Purgatory()
    requests = [Request(3, 9, ONE), Request(2, 9, OTHER), Request(1, 9, ONE, OTHER)]
    for request in requests:
        purgatory.add(request)
    assert purgatory.waiting_for([ONE]) == [requests[0], requests[2]]
    assert purgatory.waiting_for([OTHER, ONE]) == requests
    assert purgatory.waiting_for([Partition()]) == []


def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    purgatory = Purgatory()
    late, early = Request(1, 9, ONE), Request(2, 5, ONE)
    purgatory.add(late)
    purgatory.add(early)
    assert purgatory.next_deadline() == 5
    assert purgatory.expired(4) == []
    assert purgatory.expired(9) == [early, late]


def test_an_updated_request_is_found_by_what_it_waits_for_now() -> None:
    purgatory = Purgatory()
    request = Request(1, 9, ONE)
    purgatory.add(request)
    request.waits_for = {OTHER}
    purgatory.update(request)
    assert purgatory.waiting_for([ONE]) == []
    assert purgatory.waiting_for([OTHER]) == [request]


def test_a_removed_request_leaves_nothing_behind() -> None:
    purgatory = Purgatory()
    purgatory.add(Request(1, 9, ONE, OTHER))
    purgatory.remove(1)
    purgatory.remove(1)
    assert (len(purgatory), purgatory.next_deadline(), purgatory.waiting_for([ONE, OTHER])) == (0, None, [])
    assert purgatory._watchers == {}


def test_a_record_of_another_partition_tries_no_delayed_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": 2})
    reader, producer = stage.client(), stage.client()
    reader.send(fetch_request(fetch_topic(partition=0)), 12)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a fetch of another partition was completed")

    monkeypatch.setattr(DelayedFetch, "try_complete", fail)
    producer.produce(batch_of(b"a"), partition=1)
    with pytest.raises(AssertionError):
        producer.produce(batch_of(b"a"), partition=0)
