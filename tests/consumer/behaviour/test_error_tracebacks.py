"""An error that is kept is raised as if for the first time: without the frames of the times before.

Each raise adds its frames to an exception's traceback, which holds their variables: a loop that logs what
`poll` raises, and goes on, would log a longer one each time.
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
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as found:
        yield found


def depths(call: Callable[[], object]) -> set[int]:
    """How many frames the traceback of each try has."""
    found = set[int]()
    for _ in range(TIMES):
        with pytest.raises(KprotoError) as raised:
            call()
        found.add(len(raised.traceback))
    return found


def test_a_fenced_consumer_says_so_at_every_poll(server: Server) -> None:
    with Consumer(server.bootstrap, group_id="g", group_instance_id="a") as consumer:
        consumer.subscribe(["t"])
        server.fail("JoinGroup", "FENCED_INSTANCE_ID")
        with pytest.raises(Fenced):
            consumer.poll(5)
        assert len(depths(lambda: consumer.poll(5))) == 1


def test_a_producer_that_is_over_says_so_at_every_call(server: Server) -> None:
    with Producer(server.bootstrap, transactional_id="a") as producer:
        server.fail("InitProducerId", "PRODUCER_FENCED")
        with pytest.raises(Fenced):
            producer.begin()
        assert len(depths(producer.begin)) == 1
        assert len(depths(lambda: producer.send("t", b""))) == 1


def test_a_record_that_was_not_delivered_says_why_at_every_call(server: Server) -> None:
    with Producer(server.bootstrap, linger_ms=50) as producer:
        server.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        first, second = (producer.send("t", b"") for _ in range(2))  # one batch, one error
        assert depths(lambda: first.result(5)) == depths(lambda: second.result(5))
