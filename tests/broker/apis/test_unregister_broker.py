"""UnregisterBroker removes the registration of a stopped broker, which registers again when it restarts."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode as E
from kproto.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.stage import TwoBrokers


def outcome(two: TwoBrokers, node: int) -> tuple[int, str | None]:
    response: Any = two.ask(1, UnregisterBrokerRequest(broker_id=node), 0)
    return response.error_code, response.error_message


def test_a_stopped_broker_is_unregistered_until_it_runs_again() -> None:
    two = TwoBrokers()

    def unregister(node: int) -> int:
        return outcome(two, node)[0]

    assert [unregister(2), unregister(2), unregister(77)] == [0, 0, E.BROKER_ID_NOT_REGISTERED]
    stopped = two.cluster.nodes.pop(2)
    assert [unregister(2), unregister(2)] == [0, E.BROKER_ID_NOT_REGISTERED]
    two.cluster.nodes[2] = stopped
    assert unregister(2) == 0
    del two.cluster.nodes[2]
    assert unregister(2) == 0


def test_ids_that_were_never_registered_are_not_kept() -> None:
    two = TwoBrokers()
    assert {outcome(two, node)[0] for node in range(100, 200)} == {E.BROKER_ID_NOT_REGISTERED}
    assert two.cluster._unregistered == set()


def test_the_error_has_kafkas_message() -> None:
    error = (E.BROKER_ID_NOT_REGISTERED, "Broker ID 77 is not currently registered")
    assert outcome(TwoBrokers(), 77) == error
