"""Throttling (KIP-219): no request is sent on a connection during its throttle time.

Requests wait for the end of the throttle time and do not fail. Long throttling is reported.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer import Admin, AsyncAdmin
from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.client import FETCH, GROUP, MAIN
from consumer.engine.network.throttle import CLIENT_PAUSES_FROM, ThrottleReports, throttle_ms
from consumer.engine.network.transport import Data
from consumer.engine.timeouts import FIRST_REPORT_INTERVAL_MS, MAX_REPORT_INTERVAL_MS
from kproto.broker.machine import ThrottleClients
from kproto.broker.server import running
from kproto.errors import RequestTimedOut
from kproto.messages.fetch import FetchRequest
from kproto.messages.headers import encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.index import API_NAMES, request_class, response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import ProduceRequest
from kproto.wire.frame import frame
from tests.consumer.engine.network.stage import Stage, question
from tests.consumer.stage import World, tp

T0 = tp("t", 0)
HOUR_MS = 3_600_000
KEYS = {name: key for key, name in API_NAMES.items()}
GROUP_OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
}


def answer(stage: Stage, wait: int) -> None:
    """Answer the oldest Heartbeat with a throttle time of `wait` ms."""
    key, correlation, version, _ = stage.requests.pop(0)
    body = HeartbeatResponse(throttle_time_ms=wait, error_code=0)
    stage.happened(Data(key, frame(encode_response(body, version, correlation))))


def stage_with_request(**options: Any) -> Stage:
    stage = Stage(**options).knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    return stage


def test_no_request_is_sent_on_a_throttled_connection() -> None:
    stage = stage_with_request()
    answer(stage, 3_000)
    call = stage.ask(node=1)
    assert stage.network.throttled_until(1) == 3_000
    assert stage.network.next_deadline() == 3_000
    stage.tick(2_999)
    assert stage.requests == []
    stage.tick(3_000)
    assert [type(request) for _, _, _, request in stage.requests] == [HeartbeatRequest]
    stage.answer()
    assert call.response is not None


def test_later_requests_do_not_overtake_queued_ones() -> None:
    stage = stage_with_request()
    answer(stage, 1_000)
    first = stage.ask(node=1)
    stage.now = 1_000
    stage.ask(node=1)
    assert len(stage.requests) == 2
    stage.answer()
    assert first.done


def test_the_longest_throttle_time_counts() -> None:
    stage = stage_with_request()
    stage.ask(node=1)
    answer(stage, 5_000)
    stage.now = 100
    answer(stage, 1_000)
    assert stage.network.throttled_until(1) == 5_000


def test_a_response_of_an_older_version_does_not_throttle() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.network.caps[12] = CLIENT_PAUSES_FROM[12] - 1
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    answer(stage, 3_000)
    stage.ask(node=1)
    assert len(stage.requests) == 1


def test_another_lane_to_the_same_broker_is_not_throttled() -> None:
    stage = stage_with_request()
    answer(stage, 3_000)
    stage.ask(node=1, lane=GROUP)
    stage.connect(stage.opened[1].key)
    assert len(stage.requests) == 1
    assert (stage.network.throttled_until(1, GROUP), stage.network.throttled_until(1, FETCH)) == (0, 0)
    assert stage.network.throttled_until(2) == 0


def test_the_timeout_of_requests_in_flight_is_extended_by_the_throttle_time() -> None:
    stage = stage_with_request(request_timeout_ms=1_000)
    second = stage.ask(node=1)
    answer(stage, 20_000)
    stage.tick(20_999)
    assert not second.done
    assert stage.shut == []
    stage.tick(21_000)
    assert isinstance(second.error, RequestTimedOut)


def test_a_lookup_behind_a_throttled_response_does_not_time_out_early() -> None:
    stage = stage_with_request()
    lookup = question(stage, node=1)
    answer(stage, 20_000)
    stage.tick(24_999)
    assert stage.shut == []
    stage.tick(25_000)
    assert stage.shut == [stage.opened[0].key]
    assert not lookup.done


def test_a_timeout_behind_a_throttled_response_names_the_quota() -> None:
    stage = stage_with_request()
    answer(stage, 60_000)
    call = stage.ask(node=1)
    stage.tick(30_000)
    assert "a:1 asks for 30000 ms more (a quota)" in str(call.error)
    assert stage.shut == []


def test_a_call_to_any_broker_uses_another_broker() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2))
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    answer(stage, 3_000)
    question(stage)
    assert [opened.host for opened in stage.opened] == ["a", "b"]


def test_a_call_waits_for_the_throttled_broker_if_there_is_no_other() -> None:
    stage = stage_with_request()
    answer(stage, 3_000)
    question(stage)
    assert len(stage.opened) == 1
    stage.tick(3_000)
    assert len(stage.requests) == 1


def test_every_listed_response_has_a_throttle_time() -> None:
    for key, first in CLIENT_PAUSES_FROM.items():
        response: Any = response_class(key)
        assert any(
            field.name == "throttle_time_ms" and first in field.versions for field in response.__fields__
        )
        assert first in request_class(key).__versions__
    assert throttle_ms(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4) == 0
    assert throttle_ms(HeartbeatResponse(throttle_time_ms=7, error_code=0), 4) == 7


# ---- reports of long throttling


def test_short_throttling_is_not_reported_and_long_throttling_at_growing_intervals() -> None:
    throttles = ThrottleReports(HOUR_MS)
    report_times = [now for now in range(0, 200_000, 2_000) if throttles.report("Fetch", "a:1", 1_500, now)]
    assert report_times == [0, FIRST_REPORT_INTERVAL_MS, 3 * FIRST_REPORT_INTERVAL_MS]
    assert throttles.report("Fetch", "a:1", 900, 300_000) == ""


def test_the_report_names_the_broker_the_throttle_time_and_the_sum() -> None:
    throttles = ThrottleReports(HOUR_MS)
    first = throttles.report("Fetch", "a:1", 1_500, 0)
    assert first == (
        "Fetch: the broker at a:1 asks for 1.5 s without requests; this client, or its user, exceeds a quota"
    )
    throttles.report("Fetch", "a:1", 500, 20_000)
    assert "asks for 2.0 s without requests; 4.0 s in the last 40 s" in throttles.report(
        "Fetch", "a:1", 2_000, 40_000
    )


def test_throttling_is_reported_again_after_a_minute_without_it() -> None:
    throttles = ThrottleReports(HOUR_MS)
    assert throttles.report("Fetch", "a:1", 1_500, 0)
    assert throttles.report("Fetch", "a:1", 1_500, 62_000)


class ReportsByIntervalOnly(ThrottleReports):
    """A mutant whose reports depend only on the interval since the last report, not on the duration of the
    throttling.
    """

    def _needs_another_report(self, now: int) -> bool:
        return False


def check_reports(throttles: ThrottleReports, waits: list[int], pauses: list[int]) -> None:
    now, known_until = 0, 0
    for wait, pause in zip([*waits, 2**31 - 1], [*pauses, 0], strict=False):
        if throttles.report("Fetch", "a:1", wait, now):
            known_until = now + min(wait, HOUR_MS)
        assert now + min(wait, HOUR_MS) <= known_until + MAX_REPORT_INTERVAL_MS, (waits, pauses)
        now += pause


@given(
    waits=st.lists(st.sampled_from([0, 900, 1_500, 5_000, 31_000, 2**31 - 1]), max_size=6),
    pauses=st.lists(st.sampled_from([1, 2_000, 40_000, 100_000]), min_size=6, max_size=6),
)
@example([1_500], [2_000] * 6)
def test_throttling_longer_than_the_longest_interval_is_always_reported(
    waits: list[int], pauses: list[int]
) -> None:
    check_reports(ThrottleReports(HOUR_MS), waits, pauses)


def test_the_mutant_that_reports_by_interval_alone_is_detected() -> None:
    with pytest.raises(AssertionError, match="1500"):
        check_reports(ReportsByIntervalOnly(HOUR_MS), [1_500], [2_000] * 6)


@pytest.mark.parametrize("earlier_ms", [0, 2_000])
def test_throttling_for_weeks_is_reported_whatever_was_reported_before(earlier_ms: int) -> None:
    reports: list[str] = []
    stage = stage_with_request()
    stage.network.on_throttled = reports.append
    if earlier_ms:
        answer(stage, earlier_ms)
        stage.ask(node=1)
        stage.tick(earlier_ms)
    answer(stage, 2**31 - 1)
    assert "24.9 days" in reports[-1]
    assert "this client pauses for 300.0 s at most" in reports[-1]
    assert len(reports) == 1 + bool(earlier_ms)
    call = stage.ask(node=1, timeout_ms=5_000)
    stage.tick(call.deadline)
    assert "ms more (a quota)" in str(call.error)


@pytest.mark.parametrize("throttle_ms", [300_001, 2**31 - 1])
def test_a_pause_lasts_for_a_metadata_age_at_most(throttle_ms: int) -> None:
    stage = stage_with_request(request_timeout_ms=400_000)
    answer(stage, throttle_ms)
    call = stage.ask(node=1)
    stage.tick(299_999)
    assert stage.requests == []
    stage.tick(300_000)
    assert stage.shut == [stage.opened[0].key]
    stage.connect(stage.opened[1].key)
    stage.answer()
    assert call.response is not None


# ---- consumers and producers on throttling brokers


def requests_since(world: World, kind: Any, since: int) -> list[Any]:
    return [request for _, request, _ in world.requests[since:] if isinstance(request, kind)]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata", "OffsetFetch", "JoinGroup"])
def test_a_consumer_that_is_throttled_for_weeks_reads_after_a_metadata_age(api: str) -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP_OPTIONS, metadata_max_age_ms=20_000)
    a.subscribe("t")
    world.step(1, ThrottleClients(KEYS[api], 2**31 - 1))
    world.run(100)
    world.step(1, ThrottleClients(KEYS[api], 0))
    world.write("t", 0, "x")
    assert world.run(30_000, until=lambda: a.values() == ["x"])
    reasons = [change.reason for change in a.changes if change.kind == "throttled"]
    assert len(reasons) == 1
    assert "24.9 days" in reasons[0]


def test_a_throttled_consumer_keeps_its_partitions_and_reads_on_later() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP_OPTIONS)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    world.run(1_000)
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 20_000))
    world.write("t", 0, "x")
    world.run(1_000)
    earlier = len(world.requests)
    world.run(59_000)
    assert len(requests_since(world, FetchRequest, earlier)) <= 3
    assert len(requests_since(world, HeartbeatRequest, earlier)) >= 40
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 0))
    assert world.run(25_000, until=lambda: a.values() == ["x"])
    for kind in ("lost", "refused", "unreachable", "uncommitted"):
        assert a.changes_of(kind) == [], kind
    reports = a.changes_of("throttled")
    assert len(reports) == 2
    assert "asks for 20.0 s without requests" in reports[0].reason


def test_a_throttled_first_fetch_is_not_reported_as_a_failure() -> None:
    world = World({"t": 1})
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 500))
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({T0: None})
    world.write("t", 0, "x")
    world.run(20_000)
    assert a.changes_of("refused") == []
    assert a.changes_of("throttled") == []
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 0))
    assert world.run(2_000, until=lambda: a.values() == ["x"])


def test_a_throttle_time_above_the_request_timeout_fails_no_fetch() -> None:
    world = World({"t": 1})
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 200_000))
    world.write("t", 0, "x")
    a = world.consumer(auto_offset_reset="earliest", request_timeout_ms=30_000)
    a.assign({T0: None})
    world.run(1_000)
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 0))
    earlier = len(world.requests)
    world.run(190_000)
    assert a.values() == []
    # The absence of metadata requests shows that no fetch has failed.
    assert requests_since(world, MetadataRequest, earlier) == []
    assert world.run(20_000, until=lambda: a.values() == ["x"])
    assert a.changes_of("refused") == []


def test_a_throttled_producer_sends_larger_batches_later() -> None:
    world = World({"t": 1})
    producer = world.producer()
    first = producer.deliver("t", "0", partition=0)
    assert world.run(until=lambda: first.done())
    world.step(1, ThrottleClients(ProduceRequest.__api_key__ or 0, 10_000))
    deliveries = []
    earlier = len(world.requests)
    for number in range(1, 101):
        deliveries.append(producer.deliver("t", str(number), partition=0))
        world.run(100)
    assert len(requests_since(world, ProduceRequest, earlier)) <= 2
    assert world.run(30_000, until=lambda: all(delivery.done() for delivery in deliveries))
    assert [delivery.result().offset for delivery in deliveries] == list(range(1, 101))


def test_throttled_metadata_delays_reading_only_briefly() -> None:
    world = World({"t": 1})
    world.step(1, ThrottleClients(MetadataRequest.__api_key__ or 0, 900))
    world.write("t", 0, "x")
    a = world.consumer(**GROUP_OPTIONS)
    a.subscribe("t")
    assert world.run(10_000, until=lambda: a.values() == ["x"])


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_throttling_of_a_cluster_client_is_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(bootstrap: str) -> None:
        async with AsyncAdmin(bootstrap, client_id="mine") as cluster:
            await cluster.topics()

    with running({"t": 1}) as server:
        server.throttle("Metadata", 1.0)
        if kind == "asyncio":
            asyncio.run(ask(server.bootstrap))
        else:
            with Admin(server.bootstrap, client_id="mine") as cluster:
                cluster.topics()
    [message] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert message.startswith("mine throttled Metadata: the broker at 127.0.0.1:")
    assert "asks for 1.0 s without requests" in message


@pytest.mark.parametrize("lane", [MAIN, GROUP, FETCH])
def test_a_connection_that_breaks_while_throttled_is_reopened_at_once(lane: int) -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1, lane=lane)
    stage.connect(stage.opened[0].key)
    answer(stage, 30_000)
    stage.network.disconnect(1, lane, "moved", 0)
    stage.ask(node=1, lane=lane)
    assert len(stage.opened) == 2
    assert stage.network.throttled_until(1, lane) == 0
