"""Answers to a consumer that leave a part out, say it twice or of somebody else, or what can't be: nothing of
them is believed that wasn't asked for, whoever sends them is not asked all the time, and it is told."""

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
from tests.consumer.behaviour.malformed_responses import Mad, Odd, odd
from tests.consumer.stage import Consumer, tp

READS = odd(
    "ApiVersions", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "OffsetCommit", "OffsetFetch", "ListOffsets", "OffsetForLeaderEpoch", "Fetch",
)  # fmt: skip
# Nothing in it says that there is more; another leader there may be, and Java's members wait for it, too.
PLAUSIBLE = [
    ("Fetch", at, how) for at in ("responses", "responses.partitions") for how in ("empty", "left out")
]
FOR_EVER = ("JoinGroup", "leader", "another")
COMMITS = "topics.partitions"
FETCHES = "groups.topics.partitions"


@pytest.mark.thorough
@given(change=st.sampled_from([one for one in READS if one != FOR_EVER]), late=st.booleans())
@example(change=("Fetch", "responses", "empty"), late=True)
@example(change=("OffsetFetch", "groups", "empty"), late=False)
@example(change=("OffsetCommit", COMMITS, "empty"), late=False)
def test_any_odd_answer_is_waited_out_and_told(change: Odd, late: bool) -> None:
    check_consumer_recovers(Mad(change), late, told_of=change not in PLAUSIBLE)


def reader(world: Mad, **options: Any) -> Consumer:
    """A member that read what was there, and met nothing odd."""
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options)
    a.subscribe("t")
    assert world.run(10_000, until=lambda: len(a.records) == 2)
    world.bad = True
    return a


def refusals(a: Consumer) -> list[str]:
    return [change.reason for change in a.changes_of("refused")]


def test_offsets_of_another_group_are_not_ours() -> None:
    world = Mad(("OffsetFetch", "groups.group_id", "another"))
    world.bad = True
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.subscribe("t")
    world.run(10_000)
    assert a.records == []
    assert refusals(a) == [
        "OffsetFetch has failed for 5 s: the response does not contain the group; retrying"
    ]
    world.bad = False
    assert world.run(3_000, until=lambda: len(a.records) == 2)


def nothing_committed(found: list[Any]) -> list[Any]:
    return [*found, *map(without_commit, (0, 1))]


def without_commit(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.NONE
    )


def test_a_commit_that_is_denied_in_the_same_answer_is_looked_up_again() -> None:
    world = Mad(("OffsetFetch", FETCHES, nothing_committed))
    a = reader(world)
    a.commit()
    world.run(2_000)
    a.close()
    world.run(2_000)
    b = world.consumer(group_id="g", auto_offset_reset="earliest")
    b.subscribe("t")
    world.run(20_000)
    assert (b.records, b.changes_of("reset")) == ([], [])
    assert "the response does not contain it" in refusals(b)[0]
    world.bad = False
    world.put()
    assert world.run(3_000, until=lambda: len(b.records) == 2)
    assert [record.offset for record in b.records] == [1, 1]


def another_with(code: int) -> Any:
    return lambda found: [*found, OffsetCommitResponsePartition(partition_index=77, error_code=code)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_an_error_of_a_partition_that_was_not_asked_for_ends_no_commit(code: int) -> None:
    world = Mad(("OffsetCommit", COMMITS, another_with(code)))
    a = reader(world)
    token = a.commit()
    world.run(2_000)
    assert a.done[token] == (None, None)
    assert (a.changes_of("lost"), a.errors) == ([], [])


def twice_with(code: int) -> Any:
    return lambda found: [
        *(
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in found
        ),
        *found,
    ]


def test_a_commit_that_one_answer_both_takes_and_refuses_is_not_claimed() -> None:
    world = Mad(("OffsetCommit", COMMITS, twice_with(ErrorCode.OFFSET_METADATA_TOO_LARGE)))
    a = reader(world)
    token = a.commit(timeout_ms=20_000)
    world.run(10_000)
    assert token not in a.done
    assert refusals(a) == ["OffsetCommit has failed for 5 s: the response does not contain it; retrying"]
    world.bad = False
    assert world.run(3_000, until=lambda: token in a.done)
    assert a.done[token] == (None, None)


@pytest.mark.parametrize("offsets", [(1, 0), (0, 1)])
def test_a_start_of_which_one_answer_tells_two_is_asked_for_again(offsets: tuple[int, int]) -> None:
    """It began at the first, and what is before that was never read."""

    def both(found: list[Any]) -> list[Any]:
        return [
            ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=0, offset=offset)
            for one in found
            for offset in offsets
        ]

    world = Mad(("ListOffsets", "topics.partitions", both))
    world.put()
    world.put()
    world.bad = True
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.subscribe("t")
    world.run(10_000)
    assert (a.records, a.changes_of("reset")) == ([], [])
    assert "the response does not contain it" in refusals(a)[0]
    world.bad = False
    assert world.run(3_000, until=lambda: len(a.records) == 4)


@pytest.mark.parametrize("how", ["empty", "another"])
def test_who_shall_lead_and_is_no_member_says_so_and_joins_again(how: str) -> None:
    """Its plan would give it nothing, and nobody would notice."""
    world = Mad(("JoinGroup", "members" if how == "empty" else "members.member_id", how))
    a = reader(world)
    a.rejoin()
    world.run(10_000)
    assert isinstance(a.errors[0], BrokerError)
    assert ("none of the 0 members" if how == "empty" else "none of the 1 members") in str(a.errors[0])
    assert len(world.requests_of(a, JoinGroupRequest)) <= 25
    world.bad = False
    world.put()
    assert world.run(5_000, until=lambda: len(a.records) >= 4)


def u_is_t(found: list[Any]) -> list[Any]:
    ids = {topic.name: topic.topic_id for topic in found}
    for topic in found:
        if topic.name == "u":
            topic.topic_id = ids.get("t", topic.topic_id)
    return found


@pytest.mark.parametrize("late", [False, True])
def test_a_topic_is_not_read_as_another_whose_id_it_is_told_to_have(late: bool) -> None:
    """It went on in its own log where it had come to in the other's, and committed that."""
    world = Mad(("Metadata", "topics", u_is_t))
    world.create("u", 1)
    world.write("t", 0, *(f"t{at}" for at in range(30)))
    world.write("u", 0, "u0")
    world.bad = not late
    a = world.consumer(group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.subscribe("t", "u")
    world.run(3_000)
    world.bad = True
    world.run(3_000)
    world.write("u", 0, *(f"u{at}" for at in range(1, 50)))
    world.run(5_000)
    assert any("another topic has the same id" in why for why in refusals(a))
    world.bad = False
    world.run(3_000)
    for topic, count in (("t", 30), ("u", 50)):
        found = [(record.value or b"").decode() for record in a.records if record.topic == topic]
        assert found == [f"{topic}{at}" for at in range(count)]
    assert [change.offset for change in a.changes_of("reset")] == [0, 0, 0]


def far_away(data: Any) -> bytes:
    return encode_batch([Record(1_000, 0, None, b"x")])


def test_a_leader_that_sends_far_ahead_and_knows_nothing_of_there_is_asked_less_and_less() -> None:
    world = Mad(("Fetch", "responses.partitions.records", far_away))
    reader(world)
    before = len(world.requests)
    world.put()
    world.run(10_000)
    asked = [type(request) for _, request, _ in world.requests[before:]]
    assert asked.count(ListOffsetsRequest) <= 30
    assert asked.count(FetchRequest) <= 60


def test_an_answer_about_something_else_is_said_to_be_one() -> None:
    world = Mad(("Fetch", "responses.partitions.partition_index", lambda found: 7))
    a = reader(world)
    world.put()
    world.run(10_000)
    assert refusals(a) == ["Fetch has failed for 5 s: the response does not fit the request; retrying"]


def test_who_answers_at_once_with_nothing_is_asked_as_often_as_who_waits() -> None:
    world = Mad(("Fetch", "responses", "empty"))
    a = reader(world)
    counts = []
    for world.bad in (False, True):
        before = len(world.requests)
        for _ in range(5):
            world.put()
            world.run(2_000)
        counts.append(sum(isinstance(request, FetchRequest) for _, request, _ in world.requests[before:]))
    assert counts[1] <= 1.3 * counts[0]
    world.bad = False
    assert world.run(1_000, until=lambda: a.position(tp("t", 0)) == world.log(tp("t", 0)).end_offset)
