"""The network client chooses a broker and a connection, and retries after a connection breaks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Outcome
from consumer.engine.network.client import FETCH, GROUP, MAIN
from consumer.engine.network.transport import Broken, Data, Opened
from consumer.engine.timeouts import SLOW_CONNECT_MS
from consumer.security.failures import CLOSED
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.messages.api_versions import ApiVersion, ApiVersionsResponse
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import encode_response
from kproto.wire.frame import frame
from tests.consumer.engine.network.stage import Stage, question


def test_a_call_opens_a_connection_and_is_answered() -> None:
    stage = Stage()
    call = stage.ask()
    stage.connect(stage.opened[0].key)
    stage.answer()
    assert call.done
    assert stage.network.finished == [call]


def test_each_lane_has_its_own_connection() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    for lane in (MAIN, GROUP, FETCH, MAIN):
        stage.ask(node=1, lane=lane)
    assert len(stage.opened) == 3


def test_a_call_for_any_broker_tries_every_address_before_it_fails() -> None:
    stage = Stage(("a", 1), ("b", 2), ("c", 3))
    call = stage.ask()
    for _ in range(3):
        assert not call.done
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
    assert sorted((opened.host, opened.port) for opened in stage.opened) == [("a", 1), ("b", 2), ("c", 3)]
    assert isinstance(call.error, ConnectionFailed)
    assert str(call.error) == "no broker at a:1, b:2, c:3: connection refused"


def test_each_unreachable_address_is_named_with_its_reason() -> None:
    stage = Stage(("a", 1), ("b", 2), ("c", 3))
    call = stage.ask()
    for _ in range(3):
        opened = stage.opened[-1]
        why = "the name can't be resolved" if opened.host == "b" else "connection refused"
        stage.happened(Broken(opened.key, why))
    error = call.error
    assert isinstance(error, ConnectionFailed)
    assert str(error) == "no broker at a:1, c:3: connection refused; at b:2: the name can't be resolved"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert (error.address, len(error.reasons)) == ("a:1, b:2, c:3", 3)


def test_a_timeout_names_each_address_as_well() -> None:
    stage = Stage(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    call = stage.ask(timeout_ms=1000)
    refused, silent = stage.opened[-1], None
    stage.happened(Broken(refused.key, "connection refused"))
    silent = stage.opened[-1]
    stage.tick(call.deadline)
    error = call.error
    assert isinstance(error, RequestTimedOut)
    untried = "not tried yet"
    reasons = dict.fromkeys(("a:1", "b:2", "c:3", "d:4"), untried)
    reasons[f"{refused.host}:{refused.port}"] = "connection refused"
    reasons[f"{silent.host}:{silent.port}"] = "no connection yet"
    assert error.reasons == reasons
    assert error.detail == str(ConnectionFailed.everywhere(reasons))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("ranges", [[], [(12, 3, 2)], [(12, -1, 4)], [(12, 0, 4), (11, 0, -32768)]])
def test_impossible_versions_break_the_connection(ranges: Any) -> None:
    stage = Stage(("a", 1))
    call = stage.ask()
    key = stage.opened[0].key
    stage.happened(Opened(key))
    _, correlation, version, _ = stage.requests.pop()
    keys = [ApiVersion(api_key=api, min_version=low, max_version=high) for api, low, high in ranges]
    answer = ApiVersionsResponse(error_code=0, api_keys=keys)
    stage.happened(Data(key, frame(encode_response(answer, version, correlation))))
    assert stage.shut == [key]
    assert isinstance(call.error, ConnectionFailed)
    assert "impossible versions" in str(call.error) or "lists no API" in str(call.error)
    second_call = stage.ask()
    stage.tick(2_000)  # Until this time the address is in its reconnect backoff.
    stage.connect(stage.opened[-1].key)
    stage.answer()
    assert second_call.error is None
    assert second_call.done


@pytest.mark.parametrize(("low", "high"), [(0, -1), (-5, -3), (0, -32768), (4, 2)])
def test_an_unsupported_version_error_with_impossible_versions_breaks_the_connection(
    low: int, high: int
) -> None:
    """The client closes the connection, because the broker's version range for ApiVersions is invalid."""
    stage = Stage(("a", 1))
    call = stage.ask()
    key = stage.opened[0].key
    stage.happened(Opened(key))
    _, correlation, _, _ = stage.requests.pop()
    keys = [ApiVersion(api_key=18, min_version=low, max_version=high)]
    answer = ApiVersionsResponse(error_code=35, api_keys=keys)
    stage.happened(Data(key, frame(encode_response(answer, 0, correlation))))
    assert stage.shut == [key]
    assert isinstance(call.error, ConnectionFailed)
    assert "impossible versions" in str(call.error)
    second_call = stage.ask()
    stage.tick(2_000)
    stage.connect(stage.opened[-1].key)
    stage.answer()
    assert second_call.error is None
    assert second_call.done


def test_brokers_that_have_all_moved_are_found_through_the_bootstrap_addresses() -> None:
    """When all known brokers have moved, the client returns to the bootstrap addresses (KIP-899)."""
    stage = Stage(("home", 1)).knows(BrokerAddress(1, "old", 9), BrokerAddress(2, "old", 8))
    call = stage.ask()
    while stage.opened[-1].host != "home":
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
    stage.connect(stage.opened[-1].key)
    stage.answer()
    assert call.response is not None


def test_a_call_to_one_broker_fails_when_its_connection_fails() -> None:
    stage = Stage().knows(BrokerAddress(7, "x", 1), BrokerAddress(8, "y", 1))
    call = stage.ask(node=7)
    stage.happened(Broken(stage.opened[0].key, "connection refused"))
    assert isinstance(call.error, ConnectionFailed)
    assert len(stage.opened) == 1


def test_a_call_to_an_unknown_broker_fails_at_once() -> None:
    assert "does not list" in str(Stage().ask(node=5).error)


def test_calls_to_a_failed_broker_wait_for_the_backoff() -> None:
    stage = Stage(reconnect_backoff_ms=50, reconnect_backoff_max_ms=150).knows(BrokerAddress(1, "a", 1))
    # A call fails when the connection fails a second time, so each round has two failures.
    for expected in (50, 150, 150):
        stage.ask(node=1)
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
        waiting = stage.ask(node=1)
        count = len(stage.opened)
        wait = (stage.network.next_deadline() or 0) - stage.now
        assert expected * 0.8 - 1 <= wait <= min(150, expected * 1.2)
        stage.tick(stage.now + wait - 1)
        assert len(stage.opened) == count
        stage.tick(stage.now + 1)
        assert len(stage.opened) == count + 1
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
        assert waiting.done
        stage.tick(stage.now + 1000)


def test_a_request_timeout_closes_the_connection_and_fails_its_calls() -> None:
    stage = Stage(request_timeout_ms=100)
    first, second = stage.ask(), stage.ask(timeout_ms=500)
    stage.connect(stage.opened[0].key)
    stage.tick(100)
    assert isinstance(first.error, RequestTimedOut)
    assert second.error is not None
    assert stage.shut == [stage.opened[0].key]


def test_a_connection_that_never_opens_times_out() -> None:
    stage = Stage(connection_setup_timeout_ms=300)
    call = stage.ask()
    assert stage.network.next_deadline() == 300
    stage.tick(300)
    assert "was not established within 300 ms" in str(call.error)


def test_a_lookup_on_a_stalled_connection_is_repeated_on_another() -> None:
    stage = Stage()
    call = question(stage)
    stage.connect(stage.opened[0].key)
    assert stage.network.next_deadline() == 5_000
    stage.tick(5_000)
    assert stage.shut == [stage.opened[0].key]
    assert not call.done
    stage.tick(6_000)
    stage.connect(stage.opened[1].key)
    assert [type(request) for _, _, _, request in stage.requests] == [FindCoordinatorRequest] * 2


def test_a_connection_that_stalls_before_api_versions_is_replaced_by_another_address() -> None:
    stage = Stage(("a", 1), ("b", 2))
    call = question(stage)
    stage.happened(Opened(stage.opened[0].key))
    stage.tick(3_000)
    assert [opened.host for opened in stage.opened] == ["a", "b"]
    assert not call.done


def test_two_connection_attempts_precede_the_error() -> None:
    stage = Stage()
    call = question(stage)
    stage.tick(3_000)
    assert not call.done
    stage.tick(4_000)
    assert len(stage.opened) == 2
    stage.tick(4_000 + 6_000)
    assert "was not established within 6000 ms" in str(call.error)


def test_events_of_a_closed_connection_are_ignored() -> None:
    stage = Stage()
    stage.ask()
    key = stage.opened[0].key
    stage.happened(Broken(key, "gone"))
    stage.happened(Opened(key))
    stage.happened(Data(key, b"\0\0\0\4abcd"))
    assert stage.requests == []


def test_an_undecodable_response_closes_the_connection_and_fails_its_calls() -> None:
    stage = Stage()
    call = stage.ask()
    stage.connect(stage.opened[0].key)
    stage.happened(Data(stage.opened[0].key, b"\xff\xff\xff\xff"))
    assert "cannot be decoded" in str(call.error)
    assert call.outcome is Outcome.UNREADABLE
    assert stage.shut == [stage.opened[0].key]


def test_connections_to_removed_addresses_are_closed() -> None:
    stage = Stage().knows(BrokerAddress(1, "old", 9))
    stage.ask(node=1)
    stage.knows(BrokerAddress(1, "new", 9))
    stage.network.metadata_changed(stage.now)
    stage.take()
    assert stage.shut == [stage.opened[0].key]


def test_close_ends_every_call() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    calls = [stage.ask(), stage.ask(node=1, lane=FETCH)]
    stage.network.close(0)
    assert all(isinstance(call.error, ConnectionFailed) for call in calls)
    assert stage.ask().done


def test_a_call_to_any_broker_tries_another_address_while_a_connection_opens_slowly() -> None:
    stage = Stage(("a", 1), ("b", 2))
    call = question(stage)
    assert stage.network.next_deadline() == 1_500
    stage.tick(1_500)
    assert [opened.host for opened in stage.opened] == ["a", "b"]
    assert stage.shut == []
    stage.connect(stage.opened[1].key)
    assert stage.requests[0][0] == stage.opened[1].key
    assert not call.done


def test_new_calls_to_any_broker_avoid_a_connection_that_opens_slowly() -> None:
    stage = Stage(("a", 1), ("b", 2)).knows(BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2))
    stage.ask(node=1)
    stage.now = 1_500
    question(stage)
    assert [opened.host for opened in stage.opened] == ["a", "b"]


def test_a_call_returns_to_the_slow_connection_if_the_other_address_fails() -> None:
    stage = Stage(("a", 1), ("b", 2))
    call = question(stage)
    stage.tick(1_500)
    stage.happened(Broken(stage.opened[1].key, "connection refused"))
    assert not call.done
    stage.connect(stage.opened[0].key)
    assert [type(request) for _, _, _, request in stage.requests] == [FindCoordinatorRequest]


def test_a_call_waits_if_there_is_no_other_address() -> None:
    stage = Stage()
    call = question(stage)
    stage.tick(2_999)
    assert len(stage.opened) == 1
    assert not call.done


def test_a_lookup_whose_connection_breaks_is_sent_to_another_address() -> None:
    """A lookup is sent again even if a broker may have processed it, because a lookup changes nothing."""
    stage = Stage(("a", 1), ("b", 2))
    call = question(stage)
    stage.connect(stage.opened[0].key)
    stage.happened(Broken(stage.opened[0].key, "connection reset by peer"))
    assert not call.done
    assert [opened.host for opened in stage.opened] == ["a", "b"]
    stage.happened(Broken(stage.opened[1].key, "connection refused"))
    reset, refused = str(call.error).removeprefix("no broker ").split("; at ")
    assert reset.startswith("at a:1: connection reset by peer on the first request; does this listener want")
    assert refused == "b:2: connection refused"


def test_a_request_that_may_have_been_executed_is_not_sent_to_another_address() -> None:
    stage = Stage(("a", 1), ("b", 2))
    call = stage.ask()
    stage.connect(stage.opened[0].key)
    stage.happened(Broken(stage.opened[0].key, "connection reset by peer"))
    assert isinstance(call.error, ConnectionFailed)
    assert len(stage.opened) == 1


@pytest.mark.parametrize("refused", [0, 1])
def test_a_lookup_with_an_undecodable_response_is_not_sent_to_another_address(refused: int) -> None:
    stage = Stage(("a", 1), ("b", 2), ("c", 3))
    call = question(stage)
    for opened in stage.opened[:refused]:
        stage.happened(Broken(opened.key, "connection refused"))
    key = stage.opened[-1].key
    stage.connect(key)
    stage.happened(Data(key, b"\xff\xff\xff\xff"))
    assert call.outcome is Outcome.UNREADABLE
    assert str(call.error).count("; at ") == refused


def test_a_lookup_on_a_connection_that_closes_is_repeated_once() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    stage.answer()
    calls = [question(stage), question(stage, node=1)]
    stage.happened(Broken(stage.opened[0].key, CLOSED))
    assert not any(call.done for call in calls)
    stage.tick(1_000)
    stage.connect(stage.opened[1].key)
    stage.happened(Broken(stage.opened[1].key, CLOSED))
    assert all(isinstance(call.error, ConnectionFailed) for call in calls)


def test_a_new_connection_that_closes_without_a_response_fails_the_call_at_once() -> None:
    stage = Stage()
    call = question(stage)
    stage.connect(stage.opened[0].key)
    stage.happened(Broken(stage.opened[0].key, CLOSED))
    assert "on the first request" in str(call.error)


def test_a_call_does_not_leave_a_slow_connection_setup_for_a_throttled_broker() -> None:
    """A call waits for a slow connection setup to end if the only other broker is throttled.

    So `next_deadline` ignores `SLOW_CONNECT_MS` while the broker is throttled. Otherwise, each tick after
    this time would move no call, and would schedule the next tick immediately.
    """
    stage = Stage(("a", 1), ("b", 1))
    stage.ask()
    stage.connect(1)
    stage.answer()
    stage.network._connections[1].throttle(30_000, 60_000)
    stage.ask()
    setup_timeout = stage.network._connections[2].setup_timeout_ms
    assert setup_timeout > SLOW_CONNECT_MS
    assert stage.network.next_deadline() == setup_timeout
    stage.network._connections[1].throttled_until = 0
    assert stage.network.next_deadline() == SLOW_CONNECT_MS
