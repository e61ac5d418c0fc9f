"""The connection to one broker: one request at a time waits for its response."""

from __future__ import annotations

from kproto.messages.metadata import MetadataRequest
from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama import errors
from kproto.models.sarama.broker import SaramaBroker
from kproto.models.sarama.partition_consumer import FeederState, MessageReceiver
from tests.models.sarama.stage import fetches, stage_with_member, time_of_request


def test_nothing_is_fetched_while_a_cooperative_member_joins() -> None:
    # sarama has one connection to a broker, with one request in flight. So a pending JoinGroup blocks
    # fetches.
    stage, a = stage_with_member(2, assignors=["cooperative-sticky"])
    a.inject("Heartbeat", 27)
    a.hold("Join", 2_000)
    stage.run(3_000)
    start = time_of_request(a, "Join", 2)
    assert not [time for time, _ in fetches(a) if start <= time < start + 2_000]


def broker_with_request() -> tuple[SaramaBroker, c.SendRequest]:
    """Return a broker with an open connection, and a request in flight on it."""
    client = sarama.start(c.ModelConfig(client_id="a", group_id="g"))
    broker = SaramaBroker(client, 1, "broker1", 9092).open()
    broker.call(MessageReceiver(FeederState.IDLE), MetadataRequest(topics=None))
    (send,) = client.out
    assert isinstance(send, c.SendRequest)
    return broker, send


def test_a_caller_holds_the_lock_until_the_response() -> None:
    broker, send = broker_with_request()
    broker.call(MessageReceiver(FeederState.IDLE), MetadataRequest(topics=None))
    assert broker.client.out == [send]
    assert len(broker.waiting) == 1


def test_a_late_response_leaves_the_connection_open_but_unusable() -> None:
    broker, send = broker_with_request()
    broker.client.on_request_failed(c.RequestFailed(send.request, "i/o timeout", late=True))
    assert broker.opened
    assert broker.broken == errors.network("i/o timeout", late=True)
    broker.close()
    assert broker.client.out[-1] == c.CloseConnection(broker.address)
    assert broker.open().broken is None


def test_a_broken_connection_is_closed_and_its_error_kept() -> None:
    broker, send = broker_with_request()
    broker.client.on_request_failed(c.RequestFailed(send.request, "reset"))
    assert not broker.opened
    assert broker.last_error == errors.network("reset", late=False)
