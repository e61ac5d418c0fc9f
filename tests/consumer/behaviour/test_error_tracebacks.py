"""When the same error is raised again, its traceback has no frames of earlier raises.

Each `raise` adds the current frames and their variables to an exception's traceback. If the traceback
were not reset, an application that logs each error of `poll` would log ever longer tracebacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kproto import Consumer, Producer, running
from kproto.broker.server import Server
from kproto.errors import Fenced, KprotoError

TIMES = 5


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def traceback_depths_of(call: Callable[[], object]) -> set[int]:
    """Repeat a call that raises, and return the depth of each traceback."""
    traceback_depths = set[int]()
    for _ in range(TIMES):
        with pytest.raises(KprotoError) as error_info:
            call()
        traceback_depths.add(len(error_info.traceback))
    return traceback_depths


def test_a_fenced_consumer_raises_the_same_traceback_at_every_poll(server: Server) -> None:
    with Consumer(server.bootstrap, group_id="g", group_instance_id="a") as consumer:
        consumer.subscribe(["t"])
        server.fail("JoinGroup", "FENCED_INSTANCE_ID")
        with pytest.raises(Fenced):
            consumer.poll(5)
        assert len(traceback_depths_of(lambda: consumer.poll(5))) == 1


def test_a_fenced_producer_raises_the_same_traceback_at_every_call(server: Server) -> None:
    with Producer(server.bootstrap, transactional_id="a") as producer:
        server.fail("InitProducerId", "PRODUCER_FENCED")
        with pytest.raises(Fenced):
            producer.begin()
        assert len(traceback_depths_of(producer.begin)) == 1
        assert len(traceback_depths_of(lambda: producer.send("t", b""))) == 1


def test_a_failed_delivery_raises_the_same_traceback_at_every_call(server: Server) -> None:
    with Producer(server.bootstrap, linger_ms=50) as producer:
        server.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        # Both records are in one batch, so their deliveries share one error.
        first, second = (producer.send("t", b"") for _ in range(2))
        assert traceback_depths_of(lambda: first.result(5)) == traceback_depths_of(lambda: second.result(5))
