"""Brokers that ask for quiet (KIP-219): nothing is sent to them meanwhile, nothing breaks, and it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer import AsyncCluster, Cluster
from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.client import FETCH, GROUP, MAIN
from consumer.engine.network.throttle import FROM, ThrottleReports, throttle_ms
from consumer.engine.network.transport import Data
from consumer.engine.timing import FIRST_REPORT_INTERVAL_MS, MAX_REPORT_INTERVAL_MS
from kproto.broker.machine import ThrottleClients
from kproto.broker.server import running
from kproto.errors import RequestTimedOut
from kproto.messages.fetch import FetchRequest
from kproto.messages.headers import encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.index import request_class, response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import ProduceRequest
from kproto.wire.frame import frame
from tests.consumer.engine.network.stage import Stage, question
from tests.consumer.stage import World, tp

T0 = tp("t", 0)
GROUP_OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
}


def answer(stage: Stage, wait: int) -> None:
    """A broker answers the oldest Heartbeat, and asks for so much quiet."""
    key, correlation, version, _ = stage.requests.pop(0)
    body = HeartbeatResponse(throttle_time_ms=wait, error_code=0)
    stage.happened(Data(key, frame(encode_response(body, version, correlation))))


def asked(**options: Any) -> Stage:
    stage = Stage(**options).knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    return stage


def test_a_connection_is_quiet_until_its_time_is_over() -> None:
    stage = asked()
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


def test_what_is_asked_later_doesn_t_overtake_what_waits() -> None:
    stage = asked()
    answer(stage, 1_000)
    first = stage.ask(node=1)
    stage.now = 1_000
    stage.ask(node=1)
    assert len(stage.requests) == 2
    stage.answer()
    assert first.done


def test_the_longest_quiet_counts() -> None:
    stage = asked()
    stage.ask(node=1)
    answer(stage, 5_000)
    stage.now = 100
    answer(stage, 1_000)
    assert stage.network.throttled_until(1) == 5_000


def test_before_that_version_the_broker_held_the_answer_back_instead() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.network.caps[12] = FROM[12] - 1
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    answer(stage, 3_000)
    stage.ask(node=1)
    assert len(stage.requests) == 1


def test_another_lane_to_the_same_broker_is_not_quiet() -> None:
    stage = asked()
    answer(stage, 3_000)
    stage.ask(node=1, lane=GROUP)
    stage.connect(stage.opened[1].key)
    assert len(stage.requests) == 1
    assert (stage.network.throttled_until(1, GROUP), stage.network.throttled_until(1, FETCH)) == (0, 0)
    assert stage.network.throttled_until(2) == 0


def test_what_is_under_way_has_so_much_longer() -> None:
    stage = asked(request_timeout_ms=1_000)
    second = stage.ask(node=1)
    answer(stage, 20_000)
    stage.tick(20_999)
    assert not second.done
    assert stage.shut == []
    stage.tick(21_000)
    assert isinstance(second.error, RequestTimedOut)


def test_a_question_behind_it_is_not_silence() -> None:
    stage = asked()
    behind = question(stage, node=1)
    answer(stage, 20_000)
    stage.tick(24_999)
    assert stage.shut == []
    stage.tick(25_000)
    assert stage.shut == [stage.opened[0].key]
    assert not behind.done


def test_who_waits_for_too_long_hears_of_the_quota() -> None:
    stage = asked()
    answer(stage, 60_000)
    call = stage.ask(node=1)
    stage.tick(30_000)
    assert "a:1 asks for 30000 ms more (a quota)" in str(call.error)
    assert stage.shut == []


def test_a_call_for_any_broker_goes_elsewhere() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2))
    stage.ask(node=1)
    stage.connect(stage.opened[0].key)
    answer(stage, 3_000)
    question(stage)
    assert [opened.host for opened in stage.opened] == ["a", "b"]


def test_where_there_is_nobody_else_a_call_waits_for_the_quiet_one() -> None:
    stage = asked()
    answer(stage, 3_000)
    question(stage)
    assert len(stage.opened) == 1
    stage.tick(3_000)
    assert len(stage.requests) == 1


def test_only_answers_that_ask_for_it_do() -> None:
    for key, first in FROM.items():
        response: Any = response_class(key)
        assert any(one.name == "throttle_time_ms" and first in one.versions for one in response.__fields__)
        assert first in request_class(key).__versions__
    assert throttle_ms(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4) == 0
    assert throttle_ms(HeartbeatResponse(throttle_time_ms=7, error_code=0), 4) == 7


# ---- when it is told


def test_short_quiet_is_no_news_and_long_quiet_ever_more_seldom() -> None:
    throttles = ThrottleReports()
    told = [now for now in range(0, 200_000, 2_000) if throttles.report("Fetch", "a:1", 1_500, now)]
    assert told == [0, FIRST_REPORT_INTERVAL_MS, 3 * FIRST_REPORT_INTERVAL_MS]
    assert throttles.report("Fetch", "a:1", 900, 300_000) == ""


def test_it_says_who_asks_for_how_long_and_how_much_that_was() -> None:
    throttles = ThrottleReports()
    first = throttles.report("Fetch", "a:1", 1_500, 0)
    assert first == (
        "Fetch: the broker at a:1 asks for 1.5 s without requests; this client, or its user, exceeds a quota"
    )
    throttles.report("Fetch", "a:1", 500, 20_000)
    assert "asks for 2.0 s without requests; 4.0 s in the last 40 s" in throttles.report(
        "Fetch", "a:1", 2_000, 40_000
    )


def test_after_a_minute_without_it_it_is_news_again() -> None:
    throttles = ThrottleReports()
    assert throttles.report("Fetch", "a:1", 1_500, 0)
    assert throttles.report("Fetch", "a:1", 1_500, 62_000)


class OnlyNowAndThen(ThrottleReports):
    """A mutant: told by the gaps alone."""

    def _outlasts(self, now: int) -> bool:
        return False


def check_told(throttles: ThrottleReports, waits: list[int], pauses: list[int]) -> None:
    now, known_until = 0, 0
    for wait, pause in zip([*waits, 2**31 - 1], [*pauses, 0], strict=False):
        if throttles.report("Fetch", "a:1", wait, now):
            known_until = now + wait
        assert now + wait <= known_until + MAX_REPORT_INTERVAL_MS, (waits, pauses)
        now += pause


@given(
    waits=st.lists(st.sampled_from([0, 900, 1_500, 5_000, 31_000, 2**31 - 1]), max_size=6),
    pauses=st.lists(st.sampled_from([1, 2_000, 40_000, 100_000]), min_size=6, max_size=6),
)
@example([1_500], [2_000] * 6)
def test_what_outlasts_the_longest_gap_never_begins_without_a_word(
    waits: list[int], pauses: list[int]
) -> None:
    check_told(ThrottleReports(), waits, pauses)


def test_a_client_that_tells_by_the_gaps_alone_is_found_out() -> None:
    with pytest.raises(AssertionError, match="1500"):
        check_told(OnlyNowAndThen(), [1_500], [2_000] * 6)


@pytest.mark.parametrize("before", [0, 2_000])
def test_who_is_told_to_be_quiet_for_weeks_says_so_whatever_was_told_before(before: int) -> None:
    told: list[str] = []
    stage = asked()
    stage.network.on_throttled = told.append
    if before:
        answer(stage, before)
        stage.ask(node=1)
        stage.tick(before)
    answer(stage, 2**31 - 1)
    assert "24.9 days" in told[-1]
    assert len(told) == 1 + bool(before)
    call = stage.ask(node=1, timeout_ms=5_000)
    stage.tick(call.deadline)
    assert "ms more (a quota)" in str(call.error)


# ---- whole clients


def sent(world: World, kind: Any, since: int) -> list[Any]:
    return [request for _, request, _ in world.requests[since:] if isinstance(request, kind)]


def test_a_consumer_that_is_throttled_reads_on_later_and_keeps_its_partitions() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP_OPTIONS)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    world.run(1_000)
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 20_000))
    world.write("t", 0, "x")
    world.run(1_000)
    before = len(world.requests)
    world.run(59_000)
    assert len(sent(world, FetchRequest, before)) <= 3
    assert len(sent(world, HeartbeatRequest, before)) >= 40
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 0))
    assert world.run(25_000, until=lambda: a.values() == ["x"])
    for kind in ("lost", "refused", "unreachable", "uncommitted"):
        assert a.changes_of(kind) == [], kind
    told = a.changes_of("throttled")
    assert len(told) == 2
    assert "asks for 20.0 s without requests" in told[0].reason


def test_a_first_fetch_that_is_throttled_is_no_refusal() -> None:
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


def test_a_quiet_that_is_longer_than_a_request_may_take_fails_no_fetch() -> None:
    world = World({"t": 1})
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 200_000))
    world.write("t", 0, "x")
    a = world.consumer(auto_offset_reset="earliest", request_timeout_ms=30_000)
    a.assign({T0: None})
    world.run(1_000)
    world.step(1, ThrottleClients(FetchRequest.__api_key__ or 0, 0))
    before = len(world.requests)
    world.run(190_000)
    assert a.values() == []
    assert sent(world, MetadataRequest, before) == []  # nothing failed that somebody looks for reasons of
    assert world.run(20_000, until=lambda: a.values() == ["x"])
    assert a.changes_of("refused") == []


def test_a_producer_that_is_throttled_sends_more_at_once_later() -> None:
    world = World({"t": 1})
    producer = world.producer()
    first = producer.deliver("t", "0", partition=0)
    assert world.run(until=lambda: first.done())
    world.step(1, ThrottleClients(ProduceRequest.__api_key__ or 0, 10_000))
    deliveries = []
    before = len(world.requests)
    for number in range(1, 101):
        deliveries.append(producer.deliver("t", str(number), partition=0))
        world.run(100)
    assert len(sent(world, ProduceRequest, before)) <= 2
    assert world.run(30_000, until=lambda: all(delivery.done() for delivery in deliveries))
    assert [delivery.result().offset for delivery in deliveries] == list(range(1, 101))


def test_metadata_that_is_throttled_holds_nobody_up_for_long() -> None:
    world = World({"t": 1})
    world.step(1, ThrottleClients(MetadataRequest.__api_key__ or 0, 900))
    world.write("t", 0, "x")
    a = world.consumer(**GROUP_OPTIONS)
    a.subscribe("t")
    assert world.run(10_000, until=lambda: a.values() == ["x"])


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_who_asks_a_cluster_is_told_too(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(bootstrap: str) -> None:
        async with AsyncCluster(bootstrap, client_id="mine") as cluster:
            await cluster.topics()

    with running({"t": 1}) as server:
        server.throttle("Metadata", 1.0)
        if kind == "asyncio":
            asyncio.run(ask(server.bootstrap))
        else:
            with Cluster(server.bootstrap, client_id="mine") as cluster:
                cluster.topics()
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("mine throttled Metadata: the broker at 127.0.0.1:")
    assert "asks for 1.0 s without requests" in told


@pytest.mark.parametrize("lane", [MAIN, GROUP, FETCH])
def test_a_connection_that_breaks_while_it_is_quiet_is_made_anew_at_once(lane: int) -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1, lane=lane)
    stage.connect(stage.opened[0].key)
    answer(stage, 30_000)
    stage.network.disconnect(1, lane, "moved", 0)
    stage.ask(node=1, lane=lane)
    assert len(stage.opened) == 2
    assert stage.network.throttled_until(1, lane) == 0
