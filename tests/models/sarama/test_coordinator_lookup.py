"""The coordinator's lookup is retried as in sarama. When no retry is left, the last error is returned."""

from __future__ import annotations

import pytest

from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.models import contract as c
from kproto.models.sarama import errors
from tests.models.sarama.stage import (
    ClientStage,
    metadata_of,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
)


@pytest.mark.parametrize("code", [14, 16])
def test_s3_19_a_an_unknown_coordinator_is_looked_up_until_no_retry_is_left(code: int) -> None:
    stage, a = stage_with_client()
    a.inject("Find", *[code] * 7)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error"))
    # One lookup is sent immediately. Five more follow at intervals of 2 s, when 4, 3, 2, 1 and 0 retries are
    # left.
    assert len(requests_of(a, "Find")) == 6
    assert a.has_printed(f"error KError({code})")
    assert time_of_request(a, "Find", 5) - time_of_request(a, "Find", 0) >= 10_000


def test_an_unauthorized_lookup_is_returned_after_its_retries() -> None:
    # Mirrors sarama's TestConsumerGroupSessionDoesNotRetryForever
    stage, a = stage_with_client()
    a.inject("Find", *[30] * 40)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error KError(30)"))
    # There are six lookups: one immediately, and five with 4, 3, 2, 1 and 0 retries left. Each lookup sends
    # 1 + Metadata.Retry.Max requests.
    assert len(requests_of(a, "Find")) == 24


def test_a_broker_that_does_not_respond_is_removed_and_the_next_one_asked() -> None:
    stage, a = stage_with_client()
    stage.run(50)
    broker, do = a.state.metadata.brokers[1], a.do
    failed: list[c.RequestFailed] = []

    def fail_first_lookup(event: c.ModelEvent) -> None:
        is_lookup = isinstance(event, c.ResponseReceived) and isinstance(
            event.request, FindCoordinatorRequest
        )
        if isinstance(event, c.ResponseReceived) and is_lookup and not failed:
            event = c.RequestFailed(event.request, "connection reset by peer")
            failed.append(event)
        do(event)

    a.do = fail_first_lookup  # type: ignore[method-assign]
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 10)
    assert failed
    assert a.state.metadata.brokers[1] is not broker


def test_the_coordinator_is_unknown_if_metadata_no_longer_lists_it() -> None:
    _, a = stage_with_member()
    assert a.state.coordinator.cached() is not None
    a.state.metadata.brokers.clear()
    assert a.state.coordinator.cached() is None


def lookup(**conf: object) -> ClientStage:
    stage = ClientStage(**conf)  # type: ignore[arg-type]
    return stage.start(lambda: stage.client.coordinator.look_up(stage.caller))


def coordinator(code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, node_id=2, host="broker2", port=9092)


def test_a_lookup_registers_the_coordinator() -> None:
    stage = lookup()
    stage.answer(coordinator())
    assert stage.signals == [("coordinator_found", None)]
    broker = stage.client.coordinator.cached()
    assert broker is not None
    assert (broker.id, broker.opened) == (2, True)


def test_a_lookup_without_a_reachable_broker_tries_each_address_again_after_the_backoff() -> None:
    stage = lookup(connected=False, extra={"Metadata.Retry.Max": 1})
    stage.fail("first")
    stage.fail("second")
    assert stage.signals == []
    stage.wait(249)
    assert len(stage.requests_of("FindCoordinator")) == 2
    stage.wait(1)
    assert len(stage.requests_of("FindCoordinator")) == 3
    stage.fail("third")
    stage.fail("fourth")
    ((signal, error),) = stage.signals
    assert signal == "coordinator_found"
    assert error.text == "kafka: client has run out of available brokers to talk to: third\nfourth"


def test_a_lookup_without_a_coordinator_waits_250_ms_if_the_offsets_topic_has_a_leader() -> None:
    stage = lookup()
    stage.client.metadata.update(metadata_of(1, topic="__consumer_offsets"), everything=False)
    stage.answer(coordinator(15))
    stage.wait(249)
    assert len(stage.requests_of("FindCoordinator")) == 1
    stage.wait(1)
    assert len(stage.requests_of("FindCoordinator")) == 2
    assert stage.requests_of("Metadata") == []


@pytest.mark.parametrize(("leader", "wait"), [(1, 250), (-1, 2_250)])
def test_a_lookup_without_a_coordinator_requests_the_metadata_of_an_unknown_offsets_topic(
    leader: int, wait: int
) -> None:
    """If __consumer_offsets has no leader, the lookup waits for 2 s before its backoff of 250 ms."""
    stage = lookup(extra={"Metadata.Retry.Max": 1})
    stage.answer(coordinator(15))
    (request,) = stage.requests_of("Metadata")
    assert [topic.name for topic in request.topics] == ["__consumer_offsets"]
    stage.answer(metadata_of(leader, topic="__consumer_offsets"))
    if leader < 0:  # The metadata refresh is repeated once (Metadata.Retry.Max).
        stage.wait(250)
        stage.answer(metadata_of(leader, topic="__consumer_offsets"))
    stage.wait(wait - 1)
    assert len(stage.requests_of("FindCoordinator")) == 1
    stage.wait(1)
    assert len(stage.requests_of("FindCoordinator")) == 2
    stage.client.metadata.update(metadata_of(1, topic="__consumer_offsets"), everything=False)
    stage.answer(coordinator(15))
    assert stage.signals == [("coordinator_found", errors.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize("code", [14, 16, 24])
def test_another_error_of_a_lookup_is_returned_immediately(code: int) -> None:
    stage = lookup()
    stage.answer(coordinator(code))
    assert stage.signals == [("coordinator_found", errors.kafka(code))]
    stage.wait(60_000)
    assert len(stage.requests_of("FindCoordinator")) == 1
