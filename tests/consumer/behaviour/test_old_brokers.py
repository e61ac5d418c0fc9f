"""Consumers work with brokers that lack topic ids or ListOffsets' special timestamps.

The option `highest` limits the embedded broker to the API versions of an old broker.
tests/conformance/test_old_kafkas.py runs real old releases.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.admin import records as record_plans
from kproto.error_codes import ErrorCode
from kproto.errors import UnknownTopic, UnsupportedVersion
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from tests.consumer.engine.stage import AUTO, GROUP
from tests.consumer.stage import Client, Consumer, World, tp

T0, U0 = tp("t", 0), tp("u", 0)
# Kafka 2.8 to 4.1: topic ids exist, but OffsetCommit still identifies topics by name.
COMMITS_BY_NAME = {"OffsetCommit": 9, "OffsetFetch": 9}
WITHOUT_TOPIC_IDS = {"Metadata": 9, "Fetch": 12, "DeleteTopics": 5, **COMMITS_BY_NAME}
SLOW = {"metadata_max_age_ms": 300_000}


def member_of(world: World, **options: Any) -> Consumer:
    """Add a member that has read ten records of `t`, and has paused `t`.

    If `t` is re-created, the member does not notice it by itself: no fetch reads a paused partition, and the
    member's metadata stays valid for five minutes.
    """
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**{**GROUP, **SLOW, **options})
    a.subscribe("t", "u")
    assert world.run(until=lambda: len(a.records) == 10)
    a.pause(T0)
    world.run(1_000)
    return a


def re_create(world: World) -> None:
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, "new")


@pytest.mark.parametrize("form", ["commit()", "commit(offsets)", "close()"])
def test_a_commit_by_name_is_not_stored_in_a_re_created_topic(form: str) -> None:
    world = World({"t": 1, "u": 1}, highest=COMMITS_BY_NAME)
    a = member_of(world, enable_auto_commit=form == "close()", auto_commit_interval_ms=100_000)
    re_create(world)
    if form == "close()":
        a.close()
        world.run(2_000)
    else:
        done = a.commit({T0: 10} if form == "commit(offsets)" else None)
        world.run(2_000)
        assert isinstance(a.done[done][1], UnknownTopic)
    assert world.committed("g", T0) in (None, 0)
    b = world.consumer(**GROUP)
    b.subscribe("t")
    assert world.run(60_000, until=lambda: b.values("t") == ["new"])


def test_topic_ids_are_confirmed_only_before_commits_by_name() -> None:
    def metadata_requests(highest: dict[str, int]) -> int:
        world = World({"t": 1, "u": 1}, highest=highest)
        a = member_of(world)
        before = len(world.requests_of(a, MetadataRequest))
        done = a.commit({T0: 10})
        world.run(1_000)
        assert a.done[done][1] is None
        assert world.committed("g", T0) == 10
        return len(world.requests_of(a, MetadataRequest)) - before

    assert metadata_requests({}) == 0
    assert metadata_requests(COMMITS_BY_NAME) == 1


def test_a_commit_by_name_includes_the_other_topics_if_one_was_deleted() -> None:
    world = World({"t": 1, "u": 1}, highest=COMMITS_BY_NAME)
    a = member_of(world)
    world.delete_topic("t")
    done = a.commit({T0: 10, U0: 0})
    world.run(1_000)
    assert isinstance(a.done[done][1], UnknownTopic)
    assert world.committed("g", U0) == 0
    [*_, request] = world.requests_of(a, OffsetCommitRequest)
    assert [topic.name for topic in request.topics] == ["u"]


def test_with_offset_fetch_1_a_committed_offset_is_found_at_a_new_coordinator() -> None:
    """OffsetFetch before version 2 returns NOT_COORDINATOR for each partition, not at the top level."""
    world = World({"t": 1}, brokers=2, highest={"OffsetFetch": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**GROUP)
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)
    done = a.commit({T0: 7})
    world.run(1_000)
    assert a.done[done][1] is None
    world.move_coordinator("g", 3 - world.cluster.group_coordinator_of("g"))
    a.assign({})
    a.assign({T0: None})
    assert world.run(2_000, until=lambda: len(a.records) == 13)
    assert a.values()[10:] == ["7", "8", "9"]


@pytest.mark.parametrize("assigned", [False, True])
def test_without_topic_ids_a_topic_that_was_missing_is_read_from_its_start(assigned: bool) -> None:
    world = World({"t": 1, "u": 1}, highest=WITHOUT_TOPIC_IDS)
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**AUTO)
    if assigned:
        a.assign({T0: 0})
    else:
        a.subscribe("t", "u")
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(6_000)
    world.delete_topic("t")
    world.run(3_000)
    world.create("t", 1)
    world.write("t", 0, *(f"new {i}" for i in range(15)))
    world.run(10_000)
    assert a.values("t")[10:] == [f"new {i}" for i in range(15)]


@pytest.mark.parametrize(
    ("word", "since"), [("max_timestamp", 7), ("earliest_local", 8), ("latest_tiered", 9)]
)
def test_a_special_timestamp_needs_its_version_of_list_offsets(word: str, since: int) -> None:
    """A special timestamp is sent only in a version of ListOffsets that defines it.

    Java's Admin.listOffsets also checks the version, because an older broker would interpret a special
    timestamp, which is negative, as a time before 1970.
    """
    for highest, is_known in ((since - 1, False), (since, True)):
        world = World({"t": 2}, highest={"ListOffsets": highest})
        world.write("t", 0, "a", "b")
        world.write("t", 1, "c", "d")
        a = world.consumer(auto_offset_reset="earliest")
        a.assign({tp("t", 0): 1, tp("t", 1): 1})
        a.seek_to(word, tp("t", 0))
        a.seek_to("earliest", tp("t", 1))
        limits: Any = {"isolation": "read_uncommitted", "timeout_ms": 5_000}
        done = a.run(record_plans.list_offsets(a.engine.core.view, {T0: word}, a.engine.core.clock, **limits))
        world.run(5_000)
        assert a.values("t", 1)[-2:] == ["c", "d"]
        errors = [error for error in (a.done[done][1], *a.errors) if isinstance(error, UnsupportedVersion)]
        assert bool(errors) is not is_known
        assert all(f"look up '{word}'" in str(error) for error in errors)
        assert (a.position(tp("t", 0)) is not None) is is_known


def test_messages_without_timestamps_have_no_offset_at_a_time() -> None:
    """A lookup by time finds no offset among messages of magic 0, the format before Kafka 0.10.

    Messages of magic 0 have no timestamps, so the lookup returns None for their partition. It still returns
    the offsets of other partitions, as Java's OffsetFetcherUtils does.
    """
    world = World({"t": 1, "u": 1}, brokers=2)
    world.elect("t", 0, 1)
    world.elect("u", 0, 2)
    world.write("t", 0, "a", "b")
    world.write("u", 0, "c", "d")

    def refuse(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ListOffsetsRequest) or [t.name for t in request.topics] != ["t"]:
            return None
        if request.topics[0].partitions[0].timestamp < 0:
            return None
        code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        entry = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])

    world.tamper = refuse
    a = world.consumer()
    a.assign({T0: 0, U0: 0})
    assert world.run(until=lambda: len(a.records) == 4)
    limits: Any = {"isolation": "read_uncommitted", "timeout_ms": 5_000}
    plan = record_plans.list_offsets(a.engine.core.view, {T0: 0, U0: 0}, a.engine.core.clock, **limits)
    done = a.run(plan)
    a.seek_to(0, T0, U0)
    world.run(5_000)
    offsets, error = a.done[done]
    assert error is None
    assert (offsets[T0].offset, offsets[U0].offset) == (None, 0)
    assert a.errors == []
    assert a.values("u")[2:] == ["c", "d"]
    assert a.position(T0) == 2
    assert "have no timestamps" in a.changes_of("reset")[-1].reason
