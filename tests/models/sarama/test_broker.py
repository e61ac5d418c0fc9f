"""The connection to one broker: one request at a time waits for its response."""

from __future__ import annotations

import pytest

from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama import errors
from kproto.models.sarama.broker import SaramaBroker
from kproto.models.sarama.partition_consumer import FeederState, MessageReceiver
from tests.models.sarama.stage import (
    ClientStage,
    fetches,
    metadata_of,
    stage_with_member,
    time_of_request,
)


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
    assert broker.broken == errors.network("i/o timeout", timed_out=True)
    broker.close()
    assert broker.client.out[-1] == c.CloseConnection(broker.address)
    assert broker.open().broken is None


def test_a_broken_connection_is_closed_and_its_error_kept() -> None:
    broker, send = broker_with_request()
    broker.client.on_request_failed(c.RequestFailed(send.request, "reset"))
    assert not broker.opened
    assert broker.last_error == errors.network("reset", timed_out=False)


# ---- the lock

A, B, C, D = (MetadataRequest(topics=[MetadataRequestTopic(name=name)]) for name in "abcd")


class LockStage:
    """One open broker connection, and the order in which it sends the requests of its callers."""

    def __init__(self) -> None:
        self.stage = ClientStage()
        self.broker = self.stage.client.metadata.brokers[1].open()

    def call(self, *requests: MetadataRequest) -> None:
        for request in requests:
            self.broker.call(self.stage.caller, request)

    def answer(self, request: MetadataRequest) -> None:
        """Receive the response to a request, but do not run the woken goroutines yet."""
        self.stage.client.on_response(c.ResponseReceived(request, metadata_of(1), 11))

    def run(self) -> None:
        self.stage.client.run()

    @property
    def sent(self) -> list[MetadataRequest]:
        return self.stage.requests_of("Metadata")


def test_a_released_lock_may_go_to_a_new_caller_before_a_waiting_one() -> None:
    lock = LockStage()
    lock.call(A, B)
    lock.answer(A)
    lock.call(C)
    lock.run()
    assert lock.sent == [A, C]
    assert not lock.broker.starving
    lock.answer(C)
    lock.run()
    assert lock.sent == [A, C, B]


def test_after_1_ms_each_release_hands_the_lock_to_the_longest_waiting_caller() -> None:
    lock = LockStage()
    lock.call(A, B)
    lock.stage.client.now += 1
    lock.answer(A)
    lock.call(C)
    lock.run()
    assert (lock.sent, lock.broker.starving) == ([A, C], True)
    lock.call(D)
    lock.answer(C)
    assert lock.sent == [A, C, B]
    assert lock.broker.starving  # B waited for 1 ms, and D still waits.
    lock.answer(B)
    assert lock.sent == [A, C, B, D]
    assert not lock.broker.starving


def test_the_lock_is_handed_over_until_a_caller_has_waited_for_less_than_1_ms() -> None:
    lock = LockStage()
    lock.call(A, B)
    lock.broker.starving = True
    lock.call(C)
    lock.answer(A)
    assert lock.sent == [A, B]
    assert not lock.broker.starving
    lock.answer(B)
    lock.call(D)
    assert lock.sent == [A, B, D]


def test_two_waiting_callers_do_not_starve_by_themselves() -> None:
    lock = LockStage()
    lock.call(A, B, C)
    lock.answer(A)
    lock.run()
    assert (lock.sent, lock.broker.starving) == ([A, B], False)
    lock.answer(B)
    lock.call(D)
    assert lock.sent == [A, B, D]


def test_a_new_caller_does_not_pass_a_starving_one_at_a_free_lock() -> None:
    lock = LockStage()
    lock.call(A)
    lock.answer(A)
    lock.broker.starving = True
    lock.call(B)
    assert lock.sent == [A, B]
    lock.call(C)
    lock.broker.starving = False
    lock.answer(B)
    lock.broker.starving = True
    lock.call(D)
    assert lock.sent == [A, B]
    lock.run()
    assert lock.sent == [A, B, C]


def test_a_lock_is_touched_when_it_is_free() -> None:
    lock = LockStage()
    lock.broker.touch_lock(lock.stage.caller)
    assert lock.stage.signals == [("lock_touched", None)]
    lock.call(A)
    lock.broker.touch_lock(lock.stage.caller)
    lock.call(B)
    lock.run()
    assert (len(lock.stage.signals), lock.sent) == (1, [A])
    lock.answer(A)
    lock.run()
    assert [signal for signal, _ in lock.stage.signals] == ["lock_touched", "response", "lock_touched"]
    assert lock.sent == [A, B]


def test_a_request_that_has_become_unnecessary_is_not_sent() -> None:
    lock = LockStage()
    lock.broker.call(lock.stage.caller, lambda: None)
    lock.run()
    ((_, response),) = lock.stage.signals
    assert (response.request, response.response, response.error) == (None, None, None)
    lock.call(A)
    lock.broker.call(lock.stage.caller, lambda: None)
    lock.call(B)
    lock.answer(A)
    lock.run()
    assert lock.sent == [A, B]


def test_a_call_that_does_not_keep_the_lock_lets_others_send() -> None:
    lock = LockStage()
    lock.broker.call(lock.stage.caller, A, keeps_lock=False)
    lock.call(B)
    assert lock.sent == [A, B]
    lock.answer(A)
    lock.call(C)
    assert lock.sent == [A, B]  # B still has the lock.


def test_a_broken_connection_fails_every_call_until_it_is_opened() -> None:
    lock = LockStage()
    lock.call(A)
    lock.stage.client.on_request_failed(c.RequestFailed(A, "reset"))
    lock.call(B)
    lock.run()
    assert [response.error for _, response in lock.stage.signals] == [errors.network("reset", False)] * 2
    assert lock.sent == [A]
    lock.broker.close()
    lock.call(C)
    lock.run()
    assert lock.stage.signals[-1][1].error == errors.NOT_CONNECTED
    lock.broker.open()
    lock.call(D)
    assert lock.sent == [A, D]


def test_a_connection_is_closed_once_and_only_if_it_was_used() -> None:
    lock = LockStage()
    lock.broker.close()
    assert lock.stage.client.out == []
    lock.broker.open()
    lock.call(A)
    lock.broker.close()
    lock.broker.close()
    assert lock.stage.client.out[1:] == [c.CloseConnection(lock.broker.address)]


def test_requests_of_earlier_connections_are_ignored() -> None:
    stage = ClientStage()
    stage.client.on_response(c.ResponseReceived(A, metadata_of(1), 11))
    stage.client.on_request_failed(c.RequestFailed(A, "reset"))
    stage.client.run()
    assert stage.client.out == []


@pytest.mark.parametrize(("offered", "version"), [({}, 11), ({3: (0, 8)}, 8), ({3: (0, 13)}, 11)])
def test_the_version_is_the_lower_one_of_client_and_broker(
    offered: dict[int, tuple[int, int]], version: int
) -> None:
    lock = LockStage()
    lock.stage.client.offered = offered
    lock.call(A)
    (action,) = lock.stage.client.out
    assert isinstance(action, c.SendRequest)
    assert (action.version, action.timeout_ms, action.to) == (version, 30_000, lock.broker.address)


@pytest.mark.parametrize(("returns", "kind"), [(True, "error"), (False, "log")])
def test_errors_are_logged_without_return_errors(returns: bool, kind: str) -> None:
    stage = ClientStage(extra={"Consumer.Return.Errors": returns})
    stage.client.report(errors.OUT_OF_RANGE)
    assert stage.client.out == [c.Notify(kind, "KError(1)", errors.OUT_OF_RANGE.text)]
