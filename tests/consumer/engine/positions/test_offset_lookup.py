"""Failed lookups of start offsets back off, and a seek replaces a lookup."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from consumer.engine.positions.partition_states import SubscriptionState
from kproto.broker.machine import FailRequests
from kproto.error_codes import ErrorCode
from kproto.errors import NoOffsetForPartition, OffsetOutOfRange, UnsupportedVersion
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.consumer.engine.stage import caught_up_member, numbers, world_with_records
from tests.consumer.stage import Client, World, tp

T0 = tp("t", 0)


@pytest.mark.rule("I8")
def test_a_seek_before_the_committed_offset_is_looked_up_is_final() -> None:
    """If the application seeks while the coordinator is unknown, the committed offset is not looked up."""
    world = world_with_records()

    def answer(client: Client, request: Any, version: int) -> FindCoordinatorResponse | None:
        if not isinstance(request, FindCoordinatorRequest):
            return None
        return FindCoordinatorResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1
        )

    world.tamper = answer
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.engine.core.network.caps[10] = 3
    a.assign({T0: None})
    world.run(500)
    a.seek(T0, 7)
    world.tamper = None
    assert world.run(until=lambda: len(a.records) == 3)
    world.run(3_000)
    assert a.values() == numbers(7, 10)
    assert world.requests_of(a, OffsetFetchRequest) == []


def test_lookups_without_a_response_back_off_longer_each_time() -> None:
    """The backoff doubles after each failed lookup.

    The client sends each OffsetFetch twice, because it reconnects once before the lookup fails.
    """
    world = world_with_records()
    sent: list[int] = []

    def cut(client: Client, request: Any, version: int) -> None:
        if isinstance(request, OffsetFetchRequest):
            sent.append(world.now)
            if len(sent) <= 6:
                world.cut(client)

    world.tamper = cut
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.assign({T0: None})
    assert world.run(until=lambda: len(a.records) == 10)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    # Each backoff is up to 20 % shorter or longer at random. The client notices a broken connection within
    # milliseconds.
    for gap, backoff_ms in zip(gaps[1::2], (100, 200, 400), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 5


@pytest.mark.rule("I8")
def test_a_seek_to_the_end_during_the_lookup_of_the_committed_offset_is_looked_up() -> None:
    world = world_with_records()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.assign({T0: None})
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetFetchRequest)))
    a.seek_to("latest", T0)
    assert world.run(1_000, until=lambda: a.position(T0) == 10)
    world.write("t", 0, "new")
    assert world.run(1_000, until=lambda: a.values() == ["new"])


# ---- responses with errors


def times_of(world: World, client: Client, kind: type[Any], answer: Callable[[Any], Any]) -> list[int]:
    """Answer the requests of one type with `answer`, and return the list of their times."""
    times: list[int] = []

    def tamper(sender: Client, request: Any, version: int) -> Any:
        if not isinstance(request, kind):
            return None
        times.append(world.now)
        return answer(request)

    world.tamper = tamper
    return times


def listed(code: int, partition: int = 0) -> ListOffsetsResponse:
    block = ListOffsetsPartitionResponse(partition_index=partition, error_code=code, offset=-1)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[block])])


def committed(code: int = 0, partition: int = 0, of_group: int = 0, group: str = "g") -> OffsetFetchResponse:
    """Return an OffsetFetch response of version 9 with these error codes."""
    block = OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=-1, metadata="", error_code=code
    )
    topics = [OffsetFetchResponseTopics(name="t", partitions=[block])]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group, error_code=of_group, topics=topics)]
    )


LOOKUPS: list[Any] = [
    pytest.param(ListOffsetsRequest, listed(29), True, id="ListOffsets of an unauthorized topic"),
    pytest.param(OffsetFetchRequest, committed(29), True, id="OffsetFetch of an unauthorized topic"),
    pytest.param(OffsetFetchRequest, committed(of_group=30), True, id="OffsetFetch of an unauthorized group"),
    pytest.param(ListOffsetsRequest, listed(6), False, id="ListOffsets of a moved leader"),
    pytest.param(ListOffsetsRequest, listed(14), False, id="ListOffsets with a retriable error"),
    pytest.param(ListOffsetsRequest, listed(0), False, id="ListOffsets without an offset"),
    pytest.param(ListOffsetsRequest, listed(0, partition=1), False, id="ListOffsets of another partition"),
    pytest.param(OffsetFetchRequest, committed(of_group=14), False, id="OffsetFetch while loading"),
    pytest.param(OffsetFetchRequest, committed(88), False, id="OffsetFetch of an unstable offset"),
    pytest.param(OffsetFetchRequest, committed(partition=1), False, id="OffsetFetch of another partition"),
    pytest.param(OffsetFetchRequest, committed(group="h"), False, id="OffsetFetch of another group"),
]


@pytest.mark.parametrize(("kind", "response", "raises"), LOOKUPS)
def test_a_failed_lookup_is_retried_and_raised_if_the_application_must_act(
    kind: type[Any], response: Any, raises: bool
) -> None:
    """If poll raises a lookup's error, the lookup is retried after the longest backoff, 1 s.

    If poll does not raise the error, the lookup is retried with a growing backoff. After 5 s of failures, the
    error is reported.
    """
    world = world_with_records()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.engine.core.network.caps[9] = 9
    times = times_of(world, a, kind, lambda request: response)
    a.assign({T0: None})
    world.run(5_000)
    assert a.records == []
    assert bool(a.errors) is raises
    assert 4 <= len(times) <= 12
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if raises:
        assert min(gaps) >= 1_000
    else:
        assert min(gaps) >= 80
        assert gaps[-1] > gaps[0]
        # A lookup that has failed for 5 s is reported.
        assert world.run(3_000, until=lambda: bool(a.changes_of("refused")))
        assert a.changes_of("refused")[0].reason.startswith(kind.__name__.removesuffix("Request"))
    world.tamper = None
    assert world.run(3_000, until=lambda: a.values() == numbers(0, 10))


def test_failures_between_successful_lookups_are_not_reported() -> None:
    """A lookup is reported if it has failed for 5 s without a success.

    In the test each lookup fails once, and its retry succeeds.
    """
    world = world_with_records()
    a = world.consumer()
    a.assign({T0: 0})
    world.run(1_000)
    times = times_of(world, a, ListOffsetsRequest, lambda request: listed(14) if len(times) % 2 else None)
    for number in range(1, 21):
        a.seek_to("earliest", T0)
        assert world.run(2_000, until=lambda number=number: len(times) == 2 * number)
        world.run(300)
    assert a.changes_of("refused") == []


def test_resets_in_a_row_back_off_longer_each_time() -> None:
    """The backoff before a repeated reset doubles each time.

    The leader rejects each fetch with OFFSET_OUT_OF_RANGE, even at the start offset that it has returned.
    """
    world = world_with_records()
    a = world.consumer(auto_offset_reset="earliest")
    world.step(1, FailRequests(FetchRequest.__api_key__ or 0, ErrorCode.OFFSET_OUT_OF_RANGE, 10**6))
    times = times_of(world, a, ListOffsetsRequest, lambda request: None)
    a.assign({T0: 5})
    assert world.run(5_000, until=lambda: len(times) == 5)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    # Each backoff is up to 20 % shorter or longer at random, and the fetch takes a few milliseconds.
    for gap, backoff_ms in zip(gaps, (100, 200, 400, 800), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 15


def test_a_list_offsets_that_a_former_leader_answers_requests_metadata_at_once() -> None:
    world = world_with_records()
    a = world.consumer(
        group_id="g", auto_offset_reset="earliest", retry_backoff_ms=900, retry_backoff_max_ms=900
    )
    times = times_of(world, a, ListOffsetsRequest, lambda request: listed(6))
    a.assign({T0: 0})
    world.run(3_000)
    a.seek_to("earliest", T0)
    assert world.run(until=lambda: len(times) == 1)
    before = len(world.requests_of(a, MetadataRequest))
    assert world.run(until=lambda: a.engine.core.partitions.states[T0].failures == 1)
    # The next ListOffsets must be sent to the new leader, which the client does not know yet.
    assert a.engine.core.view.leader(T0) is None
    world.run(400)
    assert len(world.requests_of(a, MetadataRequest)) == before + 1
    assert len(times) == 1
    assert world.run(until=lambda: len(times) == 2)


@pytest.mark.parametrize("place", ["max_timestamp", "latest_tiered"])
def test_a_place_that_the_leader_does_not_know_is_raised_until_a_seek(place: str) -> None:
    """ListOffsets supports the maximum timestamp from v7 on, and the latest tiered offset from v9 on. The
    leader supports only versions up to v6.
    """
    world = world_with_records()
    a = world.consumer()
    a.engine.core.network.caps[2] = 6
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)
    a.seek_to(place, T0)
    assert world.run(1_000, until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], UnsupportedVersion)
    world.run(5_000)
    assert world.requests_of(a, ListOffsetsRequest) == []
    a.seek(T0, 9)
    assert world.run(1_000, until=lambda: a.values() == [*numbers(0, 10), "9"])


@pytest.mark.parametrize(("request_", "group"), [(ListOffsetsRequest, None), (OffsetFetchRequest, "g")])
def test_a_broker_without_the_request_receives_it_after_the_longest_backoff(
    request_: type[Any], group: str | None
) -> None:
    """Each attempt raises UnsupportedVersion. The client keeps trying, because the broker may be upgraded."""
    world = world_with_records()
    a = world.consumer(auto_offset_reset="earliest", group_id=group)
    a.engine.core.network.caps[request_.__api_key__] = -1
    a.assign({T0: None})
    world.run(5_500)
    assert 4 <= len(a.errors) <= 6
    assert {type(error) for error in a.errors} == {UnsupportedVersion}
    del a.engine.core.network.caps[request_.__api_key__]
    assert world.run(2_000, until=lambda: a.values() == numbers(0, 10))


def test_without_a_group_and_a_policy_the_missing_position_is_raised_at_once() -> None:
    world = world_with_records()
    a = world.consumer(auto_offset_reset="none")
    a.assign({T0: None})
    assert world.run(1_000, until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], NoOffsetForPartition)
    assert "t-0: no committed offset, and the policy is none: seek, or choose another policy" in str(
        a.errors[0]
    )


@pytest.mark.parametrize(("duration", "ago"), [("PT100S", 100_000), ("P100000D", None)])
def test_a_duration_is_counted_from_now_and_begins_with_1970_at_the_earliest(
    duration: str, ago: int | None
) -> None:
    """The policy by_duration looks up a timestamp (KIP-1106)."""
    world = world_with_records()
    a = world.consumer(auto_offset_reset=f"by_duration:{duration}")
    a.assign({T0: None})
    assert world.run(1_000, until=lambda: bool(world.requests_of(a, ListOffsetsRequest)))
    (request, *_) = world.requests_of(a, ListOffsetsRequest)
    timestamp = request.topics[0].partitions[0].timestamp
    if ago is None:
        assert timestamp == 0
    else:
        assert 0 <= a.engine.core.wall() - timestamp - ago < 1_000


def test_without_a_policy_an_offset_out_of_range_is_raised_with_its_partition_and_offset() -> None:
    world = world_with_records()
    a = world.consumer(auto_offset_reset="none")
    a.assign({T0: 99})
    assert world.run(2_000, until=lambda: bool(a.errors))
    error = a.errors[0]
    assert isinstance(error, OffsetOutOfRange)
    assert (error.code, error.request) == (ErrorCode.OFFSET_OUT_OF_RANGE, "Fetch")
    assert "t-0 has no offset 99" in str(error)


@pytest.mark.parametrize(("policy", "partitions"), [("earliest", [0]), ("latest", [0, 1])])
def test_the_offsets_of_all_partitions_are_requested_if_new_ones_have_another_policy(
    policy: str, partitions: list[int]
) -> None:
    """A partition without a committed offset counts as new if another partition of the topic has one."""
    world = world_with_records(partitions=2)
    a = world.consumer(group_id="g", auto_offset_reset="earliest", on_new_partition=policy)
    a.assign({T0: 0})
    world.run(1_000)  # Fetch the metadata, so that the client knows the partitions of the topic.
    a.assign({})
    a.assign({T0: None})
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetFetchRequest)))
    (request,) = world.requests_of(a, OffsetFetchRequest)
    assert [sorted(topic.partition_indexes) for topic in request.groups[0].topics] == [partitions]


@pytest.mark.rule("M206")
@pytest.mark.parametrize(
    ("existed", "first", "others_committed", "is_new"),
    [
        ({"t": 1}, False, False, True),
        ({"t": 2}, False, True, False),
        ({}, False, False, False),
        ({}, False, True, True),
        ({}, True, False, False),
        ({}, True, True, False),
    ],
)
def test_a_partition_is_new_by_the_first_assignment_or_by_the_commits_of_its_topic(
    existed: dict[str, int], first: bool, others_committed: bool, is_new: bool
) -> None:
    world = world_with_records()
    a = caught_up_member(world)
    lookup = a.engine.offset_lookup
    lookup.initial_counts, lookup.is_first_generation = existed, first
    state = SubscriptionState().add(tp("t", 1))
    assert lookup._is_new(state, others_committed) is is_new
    manual = world.consumer(group_id="h").engine.offset_lookup
    manual.initial_counts, manual.is_first_generation = existed, first
    assert not manual._is_new(state, others_committed)


@pytest.mark.parametrize(("committed_offset", "start"), [(4, 0), (-1, 10)])
def test_a_partition_without_a_commit_is_new_if_another_one_of_its_topic_has_one(
    committed_offset: int, start: int
) -> None:
    world = World({"t": 2})
    world.write("t", 1, *numbers(0, 10))
    a = caught_up_member(world, auto_offset_reset="latest", on_new_partition="earliest", records=0)
    assert world.run(until=lambda: len(a.owned) == 2)
    world.run(1_000)
    lookup, states = a.engine.offset_lookup, a.engine.core.partitions
    lookup.initial_counts, lookup.is_first_generation = {}, False
    entries = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, metadata="", error_code=0
        )
        for index, offset in ((0, committed_offset), (1, -1))
    ]

    def tamper(client: Client, request: Any, version: int) -> OffsetFetchResponse | None:
        if not isinstance(request, OffsetFetchRequest):
            return None
        topic = request.groups[0].topics[0]
        topics = [OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=entries)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    world.tamper = tamper
    known = len(a.changes_of("reset"))
    states.states[tp("t", 1)].await_committed_offset()
    a.tick()
    assert world.run(1_000, until=lambda: len(a.changes_of("reset")) > known)
    assert a.changes_of("reset")[-1].offset == start


def test_an_offset_fetch_without_the_partition_requests_metadata() -> None:
    world = world_with_records()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.engine.core.network.caps[9] = 9
    times = times_of(world, a, OffsetFetchRequest, lambda request: committed(partition=1))
    a.assign({T0: None})
    assert world.run(until=lambda: len(times) == 1)
    before = len(world.requests_of(a, MetadataRequest))
    assert world.run(until=lambda: len(times) == 4)
    assert len(world.requests_of(a, MetadataRequest)) > before


@pytest.mark.parametrize(("policy", "version"), [("kproto", 10), ("java", 9)])
def test_java_requests_committed_offsets_by_the_names_of_topics(policy: str, version: int) -> None:
    world = world_with_records()
    a = world.consumer(group_id="g", auto_offset_reset="earliest", policy=policy)
    a.assign({T0: 0})
    world.run(1_000)  # Fetch the metadata, so that the client knows the id of the topic.
    a.assign({})
    a.assign({T0: None})
    world.run(1_000)
    versions = [sent for _, request, sent in world.requests if isinstance(request, OffsetFetchRequest)]
    assert versions == [version]
