"""A consumer recovers from malformed responses.

The consumer ignores topics and partitions that it did not request, backs off before it retries, and reports
failures.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError
from kproto.messages.fetch import FetchRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest
from kproto.messages.offset_commit import OffsetCommitResponsePartition
from kproto.messages.offset_fetch import OffsetFetchResponsePartitions
from kproto.records import Record, encode_batch
from tests.consumer.behaviour.hostile_brokers import check_consumer_recovers
from tests.consumer.behaviour.malformed_responses import Malformation, MalformedWorld, malformations
from tests.consumer.stage import Consumer, tp

READS = malformations(
    "ApiVersions", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "OffsetCommit", "OffsetFetch", "ListOffsets", "OffsetForLeaderEpoch", "Fetch",
)  # fmt: skip

# Changes after which the response is still valid, because a Fetch response need not contain all partitions.
PLAUSIBLE = [
    ("Fetch", at, how) for at in ("responses", "responses.partitions") for how in ("empty", "left out")
]
# A JoinGroup response whose leader does not exist is also valid. The member waits for this leader's
# assignment, as Java's member does.
UNRECOVERABLE_JOIN = ("JoinGroup", "leader", "another")
COMMITS = "topics.partitions"
FETCHES = "groups.topics.partitions"


@pytest.mark.thorough
@given(
    change=st.sampled_from([malformation for malformation in READS if malformation != UNRECOVERABLE_JOIN]),
    late=st.booleans(),
)
@example(change=("Fetch", "responses", "empty"), late=True)
@example(change=("OffsetFetch", "groups", "empty"), late=False)
@example(change=("OffsetCommit", COMMITS, "empty"), late=False)
def test_a_consumer_recovers_from_malformed_responses_and_reports_them(
    change: Malformation, late: bool
) -> None:
    check_consumer_recovers(MalformedWorld(change), late, told_of=change not in PLAUSIBLE)


def reader(world: MalformedWorld, **options: Any) -> Consumer:
    """Return a member that has read all records before the responses become malformed."""
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options)
    a.subscribe("t")
    assert world.run(10_000, until=lambda: len(a.records) == 2)
    world.bad = True
    return a


def failures(a: Consumer) -> list[str]:
    return [change.reason for change in a.changes_of("refused")]


def test_offsets_of_another_group_are_ignored() -> None:
    world = MalformedWorld(("OffsetFetch", "groups.group_id", "another"))
    world.bad = True
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.subscribe("t")
    world.run(10_000)
    assert a.records == []
    assert failures(a) == [
        "OffsetFetch has failed for 5 s: the response does not contain the group; retrying"
    ]
    world.bad = False
    assert world.run(3_000, until=lambda: len(a.records) == 2)


def with_denials(partitions: list[Any]) -> list[Any]:
    return [*partitions, *map(without_commit, (0, 1))]


def without_commit(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.NONE
    )


def test_a_committed_offset_that_the_response_also_denies_is_requested_again() -> None:
    world = MalformedWorld(("OffsetFetch", FETCHES, with_denials))
    a = reader(world)
    a.commit()
    world.run(2_000)
    a.close()
    world.run(2_000)
    b = world.consumer(group_id="g", auto_offset_reset="earliest")
    b.subscribe("t")
    world.run(20_000)
    assert (b.records, b.changes_of("reset")) == ([], [])
    assert "the response does not contain it" in failures(b)[0]
    world.bad = False
    world.put()
    assert world.run(3_000, until=lambda: len(b.records) == 2)
    assert [record.offset for record in b.records] == [1, 1]


def with_another_partition(code: int) -> Any:
    return lambda partitions: [
        *partitions,
        OffsetCommitResponsePartition(partition_index=77, error_code=code),
    ]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_an_error_of_an_unrequested_partition_does_not_end_a_commit(code: int) -> None:
    world = MalformedWorld(("OffsetCommit", COMMITS, with_another_partition(code)))
    a = reader(world)
    token = a.commit()
    world.run(2_000)
    assert a.done[token] == (None, None)
    assert (a.changes_of("lost"), a.errors) == ([], [])


def with_errors(code: int) -> Any:
    return lambda partitions: [
        *(
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in partitions
        ),
        *partitions,
    ]


def test_a_commit_that_the_response_both_accepts_and_rejects_is_retried() -> None:
    world = MalformedWorld(("OffsetCommit", COMMITS, with_errors(ErrorCode.OFFSET_METADATA_TOO_LARGE)))
    a = reader(world)
    token = a.commit(timeout_ms=20_000)
    world.run(10_000)
    assert token not in a.done
    assert failures(a) == ["OffsetCommit has failed for 5 s: the response does not contain it; retrying"]
    world.bad = False
    assert world.run(3_000, until=lambda: token in a.done)
    assert a.done[token] == (None, None)


@pytest.mark.parametrize("offsets", [(1, 0), (0, 1)])
def test_a_start_offset_that_the_response_gives_twice_is_requested_again(offsets: tuple[int, int]) -> None:
    """The consumer repeats a request whose response contains two different start offsets of a partition.

    Only one of the two offsets is correct. A consumer that started at too high an offset would skip records.
    """

    def two_offsets(partitions: list[Any]) -> list[Any]:
        return [
            ListOffsetsPartitionResponse(
                partition_index=partition.partition_index, error_code=0, offset=offset
            )
            for partition in partitions
            for offset in offsets
        ]

    world = MalformedWorld(("ListOffsets", "topics.partitions", two_offsets))
    world.put()
    world.put()
    world.bad = True
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.subscribe("t")
    world.run(10_000)
    assert (a.records, a.changes_of("reset")) == ([], [])
    assert "the response does not contain it" in failures(a)[0]
    world.bad = False
    assert world.run(3_000, until=lambda: len(a.records) == 4)


@pytest.mark.parametrize("how", ["empty", "another"])
def test_a_leader_that_is_not_among_the_members_raises_and_rejoins(how: str) -> None:
    """A leader raises an error, and rejoins, if its JoinGroup response does not list it as a member.

    Without the error, the leader would continue with an empty assignment.
    """
    world = MalformedWorld(("JoinGroup", "members" if how == "empty" else "members.member_id", how))
    a = reader(world)
    a.rejoin()
    world.run(10_000)
    assert isinstance(a.errors[0], BrokerError)
    assert ("none of the 0 members" if how == "empty" else "none of the 1 members") in str(a.errors[0])
    assert len(world.requests_of(a, JoinGroupRequest)) <= 25
    world.bad = False
    world.put()
    assert world.run(5_000, until=lambda: len(a.records) >= 4)


def give_u_the_id_of_t(topics: list[Any]) -> list[Any]:
    ids = {topic.name: topic.topic_id for topic in topics}
    for topic in topics:
        if topic.name == "u":
            topic.topic_id = ids.get("t", topic.topic_id)
    return topics


@pytest.mark.parametrize("late", [False, True])
def test_a_topic_with_the_id_of_another_topic_is_not_read(late: bool) -> None:
    """Metadata that gives one topic the id of another is rejected.

    Without the rejection, the consumer would read one topic from its position in the other topic, and commit
    this position.
    """
    world = MalformedWorld(("Metadata", "topics", give_u_the_id_of_t))
    world.create("u", 1)
    world.write("t", 0, *(f"t{number}" for number in range(30)))
    world.write("u", 0, "u0")
    world.bad = not late
    a = world.consumer(group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.subscribe("t", "u")
    world.run(3_000)
    world.bad = True
    world.run(3_000)
    world.write("u", 0, *(f"u{number}" for number in range(1, 50)))
    world.run(5_000)
    assert any("another topic has the same id" in why for why in failures(a))
    world.bad = False
    world.run(3_000)
    for topic, count in (("t", 30), ("u", 50)):
        values = [(record.value or b"").decode() for record in a.records if record.topic == topic]
        assert values == [f"{topic}{number}" for number in range(count)]
    assert [change.offset for change in a.changes_of("reset")] == [0, 0, 0]


def record_far_ahead(old: Any) -> bytes:
    return encode_batch([Record(1_000, 0, None, b"x")])


def test_a_leader_with_records_far_ahead_of_its_log_is_fetched_with_backoff() -> None:
    world = MalformedWorld(("Fetch", "responses.partitions.records", record_far_ahead))
    reader(world)
    earlier = len(world.requests)
    world.put()
    world.run(10_000)
    requests = [type(request) for _, request, _ in world.requests[earlier:]]
    assert requests.count(ListOffsetsRequest) <= 30
    assert requests.count(FetchRequest) <= 60


def test_a_response_that_does_not_fit_the_request_is_reported() -> None:
    world = MalformedWorld(("Fetch", "responses.partitions.partition_index", lambda index: 7))
    a = reader(world)
    world.put()
    world.run(10_000)
    assert failures(a) == ["Fetch has failed for 5 s: the response does not fit the request; retrying"]


def test_empty_responses_sent_at_once_are_requested_no_faster() -> None:
    world = MalformedWorld(("Fetch", "responses", "empty"))
    a = reader(world)
    counts = []
    for world.bad in (False, True):
        earlier = len(world.requests)
        for _ in range(5):
            world.put()
            world.run(2_000)
        counts.append(sum(isinstance(request, FetchRequest) for _, request, _ in world.requests[earlier:]))
    assert counts[1] <= 1.3 * counts[0]
    world.bad = False
    assert world.run(1_000, until=lambda: a.position(tp("t", 0)) == world.log(tp("t", 0)).end_offset)
