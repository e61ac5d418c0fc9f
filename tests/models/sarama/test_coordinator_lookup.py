"""The lookup of the coordinator, and its retries."""

from __future__ import annotations

import pytest

from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.models import contract as c
from tests.models.sarama.stage import requests_of, stage_with_client, stage_with_member, time_of_request


@pytest.mark.parametrize("code", [14, 16])
def test_s3_19_a_an_unknown_coordinator_is_looked_up_until_no_retry_is_left(code: int) -> None:
    stage, a = stage_with_client()
    a.inject("Find", *[code] * 7)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error"))
    # One lookup is sent immediately, and five more at intervals of 2 s, when 4, 3, 2, 1 and 0 retries are
    # left.
    assert len(requests_of(a, "Find")) == 6
    assert a.has_printed(f"error KError({code})")
    assert time_of_request(a, "Find", 5) - time_of_request(a, "Find", 0) >= 10_000


def test_an_unauthorized_lookup_is_returned_after_its_retries() -> None:
    # TestConsumerGroupSessionDoesNotRetryForever
    stage, a = stage_with_client()
    a.inject("Find", *[30] * 40)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error KError(30)"))
    # Six lookups (one immediately, one for each retry from 4 to 0) of 1 + Metadata.Retry.Max requests each.
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
