"""Each operation of a consumer stays correct if the consumer's state changes before the operation ends.

While such an operation is pending, partitions are lost, a callback runs, the subscription changes, or a topic
is re-created.

The whole engine runs in virtual time, against the embedded broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.admin import cluster as cluster_plans
from consumer.engine.admin import offsets as offset_plans
from consumer.engine.admin import records as record_plans
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, NotAuthorized, RequestTimedOut, UnknownTopic
from kproto.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import MetadataRequest
from kproto.records import Record, encode_batch
from tests.consumer.engine.stage import (
    AUTO,
    GROUP,
    answer_commits,
    caught_up_member,
    forget_member,
    world_with_records,
)
from tests.consumer.stage import Client, World, tp

T0 = tp("t", 0)


def answer_fetches(**fields: Any) -> Any:
    """Return a `tamper` function whose response to each Fetch has these fields for `t-0`.

    In each response, the log of `t-0` ends at offset 10.
    """

    def answer(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest) or not request.topics:
            return None
        defaults = {"partition_index": 0, "error_code": 0, "high_watermark": 10, "aborted_transactions": None}
        entry = PartitionData(**{**defaults, **fields})
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    return answer


# ---- subscriptions


@pytest.mark.parametrize("before", [{"pattern": "t.*"}, {"topics": ("t",)}], ids=["a pattern", "topics"])
def test_a_pattern_without_matches_replaces_the_subscription(before: Any) -> None:
    world = world_with_records()
    a = world.consumer(**GROUP)
    a.subscribe(*before.get("topics", ()), pattern=before.get("pattern"))
    assert world.run(until=lambda: len(a.records) == 10)
    a.subscribe(pattern="nothing.*")
    assert world.run(until=lambda: a.owns() == set())
    world.write("t", 0, "more")
    world.run(5_000)
    assert len(a.records) == 10


def test_a_pattern_is_matched_when_all_topics_are_known() -> None:
    world = World({"t": 1, "u": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: a.owns() == {T0})
    joined = len(world.requests_of(a, JoinGroupRequest))
    a.subscribe(pattern="u")
    assert world.run(until=lambda: a.owns() == {tp("u", 0)})
    assert len(world.requests_of(a, JoinGroupRequest)) == joined + 1


def test_auto_commit_commits_although_subscribe_is_called_before_each_poll() -> None:
    world = world_with_records()
    a = world.consumer(**AUTO)
    a.subscribe("t")
    for _ in range(10):
        world.run(1_000)
        a.subscribe("t")
    assert world.committed("g", T0) == 10


# ---- commits


def test_a_commit_from_before_a_loss_is_not_sent_after_the_partition_is_assigned_again() -> None:
    world = world_with_records()
    a = caught_up_member(world, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    late = a.commit({T0: 5})
    world.run(300)
    forget_member(world)
    assert world.run(until=lambda: a.owns() == set())
    # The late commit must fail: another member may have committed a higher offset before this member
    # rejoined.
    assert world.run(until=lambda: a.owns() == {T0})
    world.run(20_000)
    assert isinstance(a.done[late][1], CommitFailed)
    assert world.committed("g", T0) == 0


def test_commits_that_time_out_before_the_response_lose_no_partition() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(1_000)
    world.fault("delay", a, ms=100)
    tokens = []
    for offset in range(20):
        tokens.append(a.commit({T0: offset}, timeout_ms=100))
        world.run(300)
    world.run(3_000)
    assert {type(a.done[token][1]) for token in tokens} == {RequestTimedOut}
    assert world.committed("g", T0) == 19
    assert len(a.changes_of("coordinator")) == 1
    assert a.changes_of("lost") == []


def test_lookups_that_time_out_before_the_response_fail_no_commit() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(1_000)
    world.fault("delay", a, ms=100)
    core, commits = a.engine.core, []
    for offset in range(20):
        a.run(offset_plans.committed_offsets(core.view, "g", [T0], core.clock, coordinator=1), timeout_ms=100)
        commits.append(a.commit({T0: offset}))
        world.run(300)
    world.run(3_000)
    assert {a.done[token][1] for token in commits} == {None}
    assert len(a.changes_of("coordinator")) == 1
    assert a.changes_of("lost") == []


def test_unsubscribing_from_manual_assignment_commits_what_was_processed() -> None:
    world = world_with_records()
    a = world.consumer(**AUTO)
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(100)
    ended = a.unsubscribe()
    assert world.run(1_000, until=lambda: ended in a.done)
    assert world.committed("g", T0) == 10


def test_assigning_other_partitions_commits_what_was_processed_of_the_old_ones() -> None:
    world = world_with_records(2)
    a = world.consumer(**AUTO)
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(100)
    a.assign({tp("t", 1): 0})
    world.run(1_000)
    assert world.committed("g", T0) == 10


def test_unsubscribe_raises_a_failed_commit_of_manual_assignment() -> None:
    world = world_with_records()
    a = world.consumer(**AUTO)
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(100)
    answer_commits(world, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    ended = a.unsubscribe()
    assert world.run(1_000, until=lambda: ended in a.done)
    assert isinstance(a.done[ended][1], NotAuthorized)
    assert [change.partitions for change in a.changes_of("uncommitted")] == [(T0,)]


@pytest.mark.parametrize(
    ("callback_ms", "timeout_ms"), [(5_000, 1_000), (0, 0)], ids=["a callback", "no time"]
)
def test_close_without_time_for_the_last_commit_raises_and_reports_it(
    callback_ms: int, timeout_ms: int
) -> None:
    world = world_with_records()
    a = world.consumer(**AUTO)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(100)
    a.callback_ms = callback_ms
    ended = a.close(timeout_ms=timeout_ms)
    world.run(10_000)
    assert isinstance(a.done[ended][1], RequestTimedOut)
    assert [change.partitions for change in a.changes_of("uncommitted")] == [(T0,)]


def test_a_waiting_poll_that_only_skips_offsets_commits_them() -> None:
    world = world_with_records()
    a = world.consumer(**AUTO)
    a.poll_timeout_ms = 3_600_000
    a.subscribe("t")
    assert world.run(until=lambda: world.committed("g", T0) == 10)
    world.write_marker("t", 0)
    assert world.run(until=lambda: world.committed("g", T0) == 11)


# ---- fenced consumers, and lag


def test_a_fenced_consumer_may_read_by_manual_assignment() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    forget_member(world, ErrorCode.FENCED_INSTANCE_ID)
    assert world.run(until=lambda: a.has_final_error and bool(a.errors))
    a.unsubscribe()
    world.run(1_000)
    errors = len(a.errors)
    a.assign({T0: 0})
    world.run(5_000)
    assert len(a.records) == 20
    assert len(a.errors) == errors


@pytest.mark.parametrize(("level", "lag"), [("read_uncommitted", 7), ("read_committed", 1)])
def test_lag_counts_the_records_that_this_consumer_will_return(level: str, lag: int) -> None:
    world = world_with_records()
    ten = encode_batch([Record(offset=at, timestamp=0, key=None, value=b"") for at in range(10)])
    world.tamper = answer_fetches(last_stable_offset=4, records=ten)
    a = world.consumer(isolation_level=level)
    a.limit, a.works_ms = 3, 10_000
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 3)
    assert a.engine.partitions[T0].lag == lag


# ---- unusable responses


def test_an_unknown_preferred_replica_is_looked_up_without_constant_requests() -> None:
    world = world_with_records()
    world.tamper = answer_fetches(preferred_read_replica=99, records=b"")
    a = world.consumer(client_rack="here")
    a.assign({T0: 0})
    world.run(5_000)
    assert len(world.requests_of(a, FetchRequest)) <= 20
    assert len(world.requests_of(a, MetadataRequest)) >= 3
    world.tamper = None
    assert world.run(3_000, until=lambda: len(a.records) == 10)


@pytest.mark.parametrize(("policy", "start"), [("latest", 10), ("earliest", 0)])
def test_a_leader_that_returns_no_offset_is_asked_less_and_less_often(policy: str, start: int) -> None:
    world = world_with_records()

    def nowhere(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ListOffsetsRequest):
            return None
        entry = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=-1)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])

    world.tamper = nowhere
    a = world.consumer(auto_offset_reset=policy)
    a.assign({T0: None})
    world.run(5_000)
    assert len(world.requests_of(a, ListOffsetsRequest)) <= 20
    world.tamper = None
    assert world.run(3_000, until=lambda: a.position(T0) == start)


@pytest.mark.parametrize("anew", [True, False])
def test_a_commit_of_a_deleted_topic_does_not_delay_other_commits(anew: bool) -> None:
    world = World({"t": 1, "u": 1})
    a = world.consumer(**{**GROUP, "metadata_max_age_ms": 300_000})
    a.subscribe("t", "u")
    assert world.run(until=lambda: len(a.owns()) == 2)
    a.pause(T0)  # The partition is paused, so that no fetch detects the deletion before the commit does.
    world.run(1_000)
    world.delete_topic("t")
    world.run(100)
    if anew:
        world.create("t", 1)
    first, second = a.commit({T0: 2}), a.commit({tp("u", 0): 5})
    world.run(3_000)
    assert isinstance(a.done[first][1], UnknownTopic)
    # Offset 2 of the deleted topic is not committed. If the topic was re-created, the start offset of the new
    # topic is committed.
    assert world.committed("g", T0) == (0 if anew else None)
    assert a.done[second][1] is None
    assert world.committed("g", tp("u", 0)) == 5


def test_an_offset_is_not_committed_to_a_re_created_topic() -> None:
    """A commit of the deleted topic's position raises UnknownTopic, and stores no offset.

    If the offset were stored, the next owner would skip the new topic's records below this offset.
    """
    world = world_with_records()
    a = world.consumer(**{**GROUP, "enable_auto_commit": False})
    a.assign({T0: None})
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(1_000)
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, "new 0", "new 1", "new 2")
    done = a.commit()  # The client has not yet noticed the new topic.
    assert world.run(until=lambda: len(a.records) == 13 and done in a.done)
    assert isinstance(a.done[done][1], UnknownTopic)
    assert "re-created" in str(a.done[done][1])
    assert world.committed("g", T0) is None
    after = a.commit()
    assert world.run(until=lambda: a.done.get(after) == (None, None))
    assert world.committed("g", T0) == 3


def test_a_commit_in_a_callback_is_not_stored_in_a_re_created_topic() -> None:
    world = World({"t": 1, "u": 1})
    world.write("t", 0, "0", "1")
    a = world.consumer(**{**GROUP, "metadata_max_age_ms": 300})
    a.subscribe("t", "u")
    assert world.run(until=lambda: len(a.records) == 2)
    a.pause(T0)  # The partition is paused, so that no fetch detects the deletion before the commit does.
    world.run(1_000)
    a.callback_ms = 100
    world.delete_topic("t")
    assert world.run(until=lambda: a.in_callback is not None)
    world.create("t", 1)
    world.write("t", 0, "new 0", "new 1", "new 2")
    done = a.commit({T0: 2})
    assert world.run(until=lambda: a.values()[2:] == ["new 0", "new 1", "new 2"])
    assert isinstance(a.done[done][1], UnknownTopic)


@pytest.mark.parametrize("asks", ["list_offsets", "partitions_of"])
def test_a_request_that_notices_a_re_created_topic_resets_its_position(asks: str) -> None:
    """If a request reveals that a topic was re-created, the position in that topic is reset.

    Regression: the consumer fetched from the new topic at a position in the deleted topic's log.
    """
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    world.write("t", 0, "old 0", "old 1", "old 2")
    a = world.consumer(**AUTO)
    a.assign({T0: None})
    assert world.run(until=lambda: len(a.records) == 3)
    a.pause(T0)
    world.run(1_000)
    world.delete_topic("t")
    world.create("t", 1)
    # The new topic has a different leader. The leader of the deleted topic no longer has the partition.
    world.elect("t", 0, 2)
    world.write("t", 0, *(f"new {i}" for i in range(5)))
    core = a.engine.core
    plan: Any = cluster_plans.partitions_of(core.view, "t", core.clock)
    if asks == "list_offsets":
        limits: Any = {"isolation": "read_uncommitted", "timeout_ms": 5_000}
        plan = record_plans.list_offsets(core.view, {T0: "latest"}, core.clock, **limits)
    done = a.run(plan)
    assert world.run(until=lambda: done in a.done)
    a.resume(T0)
    world.run(5_000)
    assert a.values()[3:] == [f"new {i}" for i in range(5)]


def test_partitions_of_returns_the_current_partitions() -> None:
    """`partitions_of` requests metadata on each call, because no other request refreshes the metadata of a
    topic that the client does not read.
    """
    world = World({"t": 1})
    a = world.consumer()

    def found() -> Any:
        done = a.run(cluster_plans.partitions_of(a.engine.core.view, "t", a.engine.core.clock))
        assert world.run(until=lambda: done in a.done)
        return a.done[done]

    assert found() == ([T0], None)
    world.grow("t", 2)
    assert found() == ([T0, tp("t", 1)], None)
    world.delete_topic("t")
    assert isinstance(found()[1], UnknownTopic)


@pytest.mark.parametrize(("start", "policy"), [(3, "earliest"), (None, "latest")])
@pytest.mark.parametrize("other_partitions", [[], [tp("u", 0)]], ids=["alone", "beside another"])
def test_assigning_a_topic_again_refers_to_the_topic_that_exists_now(
    other_partitions: list[Any], start: int | None, policy: str
) -> None:
    """A re-created topic that is assigned again is read from the new topic's start."""
    world = World({"t": 1, "u": 1})
    world.write("t", 0, "old")
    a = world.consumer(auto_offset_reset=policy)
    beside = dict.fromkeys(other_partitions)
    a.assign({T0: 0, **beside})
    assert world.run(until=lambda: len(a.records) == 1)
    a.assign(beside)
    world.run(1_000)
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, *(f"new {i}" for i in range(3)))
    world.run(1_000)
    a.assign({T0: start, **beside})
    world.run(2_000)
    world.write("t", 0, "more")
    world.run(2_000)
    assert a.values("t") == ["old", "more"]


@pytest.mark.parametrize("highest", [{}, {"OffsetFetch": 9, "OffsetCommit": 9}], ids=["by ids", "by names"])
def test_records_that_another_member_read_of_a_re_created_topic_are_not_read_again(highest: Any) -> None:
    """The new owner does not read records that the previous owner has read.

    The new owner notices the re-creation of the topic only after it has taken over the partition. It must
    not reset its position then, because the position already belongs to the new topic.
    """
    world = World({"t": 1, "u": 1}, highest=highest)
    members = [world.consumer(**{**AUTO, "metadata_max_age_ms": 300_000}) for _ in range(2)]
    for member in members:
        member.subscribe("t", "u")
        world.run(5_000)
    [a] = [member for member in members if T0 in member.owns()]
    [b] = [member for member in members if T0 not in member.owns()]
    world.write("t", 0, "old")
    assert world.run(until=lambda: a.values("t") == ["old"])
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, "new 0", "new 1")
    assert world.run(until=lambda: a.values("t") == ["old", "new 0", "new 1"])
    world.run(5_000)
    a.close()
    assert world.run(until=lambda: T0 in b.owns())
    world.write("t", 0, "new 2")
    assert world.run(until=lambda: len(b.records) > 0)
    world.run(5_000)
    assert b.values("t") == ["new 2"]


def test_a_member_waiting_at_the_end_of_a_topic_reads_a_re_created_one_from_the_start() -> None:
    """A member that has read no record of the deleted topic reads the re-created one from the start.

    The member had read no record because the committed offset was the end of the deleted topic's log.
    """
    world = world_with_records()
    options: dict[str, Any] = {**AUTO, "auto_offset_reset": "latest"}
    first = world.consumer(**options)
    first.subscribe("t")
    assert world.run(until=lambda: first.position(T0) == 10)
    world.run(1_000)
    first.close()
    world.run(1_000)
    a = world.consumer(**options)
    a.subscribe("t")
    assert world.run(until=lambda: a.position(T0) == 10)
    world.run(1_000)
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, "new 0", "new 1")
    assert world.run(until=lambda: a.values() == ["new 0", "new 1"])


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_a_commit_to_a_topic_known_only_from_metadata_is_retried(code: ErrorCode) -> None:
    """A commit is retried even if the client does not read the topic, and requested its metadata only once.

    Neither COORDINATOR_LOAD_IN_PROGRESS nor NOT_COORDINATOR means that the topic was re-created.
    """
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    lookup = a.run(cluster_plans.partitions_of(a.engine.core.view, "t", a.engine.core.clock))
    assert world.run(until=lambda: lookup in a.done)
    answer_commits(world, code)
    done = a.commit({T0: 5})
    world.run(500)
    world.tamper = None
    assert world.run(until=lambda: done in a.done)
    assert a.done[done] == (None, None)
    assert world.committed("g", T0) == 5


def test_a_commit_of_a_topic_that_was_read_earlier_refers_to_the_topic_that_exists_now() -> None:
    """A commit for a topic that is no longer read goes to the topic that has this name now.

    Regression: the topic's metadata was not refreshed, and the client sent the id of the deleted topic until
    the timeout.
    """
    world = World({"t": 1, "u": 1})
    a = world.consumer(**GROUP)
    a.assign({T0: 0})
    world.run(1_000)
    a.assign({tp("u", 0): 0})
    world.run(1_000)
    world.delete_topic("t")
    world.create("t", 1)
    done = a.commit({T0: 5})
    assert world.run(until=lambda: done in a.done)
    assert a.done[done] == (None, None)
    assert world.committed("g", T0) == 5
