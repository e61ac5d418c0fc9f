"""Commits, OffsetFetch and OffsetDelete depend on the state of the group and on pending transactions."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState, TopicsDeleted, TransactionEnded
from tests.group.classic.coordinator.stage import FLIGHTS, SESSION, KnownTopics, Stage, subscription
from tests.rules import rule

P0, P1 = ("flights", 0), ("flights", 1)
NOT_A_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


# Which commits are accepted


@rule("R86", "R95")
def test_a_commit_without_a_generation_creates_a_group_that_only_has_offsets() -> None:
    """Mirrors GroupCoordinatorTest.testCommitOffsetWithDefaultGeneration."""
    stage = Stage()
    assert stage.commit().codes == [ErrorCode.NONE]
    assert (stage.state, stage.generation(), stage.group().protocol_type) == (
        ClassicGroupState.EMPTY,
        0,
        None,
    )
    assert stage.committed_offsets(P0) == [42]


@rule("R86")
def test_any_negative_generation_means_no_generation() -> None:
    """As observed with Kafka 4.3.1."""
    assert Stage().commit(generation=-7).codes == [ErrorCode.NONE]


@rule("R86")
@pytest.mark.parametrize(
    ("version", "code"),
    [
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_the_commit_of_a_member_to_a_missing_group_is_rejected(version: int, code: ErrorCode) -> None:
    """Mirrors OffsetMetadataManagerTest.testOffsetCommitWithUnknownGroup."""
    stage = Stage(KnownTopics())
    assert stage.commit("m", 1, version=version, topic_id=FLIGHTS).codes == [code]
    assert stage.state is ClassicGroupState.DEAD


@rule("R88")
@pytest.mark.parametrize("identity", [("ghost", None), ("", "ghost"), ("", None)])
def test_an_empty_group_accepts_a_commit_without_a_generation_from_any_client(
    identity: tuple[str, str | None],
) -> None:
    """Mirrors GroupCoordinatorTest.testManualCommitOffsetShouldNotValidateMemberIdAndInstanceId."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    member_id, instance = identity
    assert stage.commit(member_id, -1, instance=instance).codes == [ErrorCode.NONE]


@rule("R88")
def test_an_empty_group_rejects_a_commit_with_a_generation() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert stage.commit(member, 2).codes == [NOT_A_MEMBER]


@rule("R16", "R88")
@pytest.mark.parametrize("scene", ["preparing", "completing", "stable"])
@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        ("", -1, None, NOT_A_MEMBER),
        ("", 1, None, NOT_A_MEMBER),
        ("ghost", 1, None, NOT_A_MEMBER),
        ("ghost", -1, None, NOT_A_MEMBER),
        ("ghost", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("ghost", 1, "z", NOT_A_MEMBER),
        ("MEMBER", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("MEMBER", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("MEMBER", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("MEMBER", 2, "i", ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_group_with_members_accepts_commits_only_from_them_in_their_generation(
    scene: str, member: str, generation: int, instance: str | None, code: ErrorCode
) -> None:
    """Mirrors ClassicGroupTest.testValidateOffsetCommit."""
    stage = Stage()
    if scene == "completing":
        static, *_ = stage.create_generation({"instance": "i"}, {})
    else:
        static, dynamic = stage.create_stable_group({"instance": "i"}, {})
        if scene == "preparing":
            stage.join(dynamic, protocols=[("range", b"new")])
    member_id = static if member == "MEMBER" else member
    assert stage.commit(member_id, generation, instance=instance).codes == [code]


@rule("R88")
def test_a_member_commits_in_its_generation() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    assert stage.commit(member, 1, {P0: 5, P1: 6}).codes == [ErrorCode.NONE] * 2
    assert stage.committed_offsets(P0, P1) == [5, 6]


@rule("R89")
def test_a_member_may_commit_in_preparing_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    assert stage.commit(follower, 1).codes == [ErrorCode.NONE]


@rule("R88")
def test_a_member_may_commit_in_generation_zero_during_the_initial_delay() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage()
    member, _ = stage.add_member()
    assert stage.commit(member, 0).codes == [ErrorCode.NONE]


@rule("R88")
def test_a_commit_in_completing_rebalance_is_rejected_and_does_not_restart_the_session() -> None:
    """Mirrors GroupCoordinatorTest.testCommitOffsetInCompletingRebalance."""
    stage = Stage()
    (member,) = stage.create_generation()
    stage.wait(SESSION - 1)
    assert stage.commit(member, 1).codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    stage.wait(1)
    assert stage.state is ClassicGroupState.EMPTY


@rule("R88", "R133")
def test_commits_restart_the_session() -> None:
    """Mirrors GroupCoordinatorTest.testCommitMaintainsSession."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    for _ in range(3):
        stage.wait(SESSION - 1)
        assert stage.commit(member, 1).codes == [ErrorCode.NONE]


@rule("R90")
def test_an_error_of_the_group_is_reported_for_every_partition() -> None:
    stage = Stage()
    stage.create_stable_group()
    assert stage.commit("ghost", 1, {P0: 1, P1: 2, ("other", 0): 3}).codes == [NOT_A_MEMBER] * 3


@rule("R14")
def test_an_empty_group_id_is_valid_for_commits() -> None:
    """Mirrors GroupCoordinatorTest.testCommitAndFetchOffsetsWithEmptyGroup."""
    stage = Stage()
    assert stage.commit(group="").codes == [ErrorCode.NONE]
    assert stage.committed_offsets(P0, group="") == [42]
    assert stage.describe("").group_state == "Empty"


# What is stored


@rule("R92")
def test_a_commit_replaces_the_previous_one() -> None:
    stage = Stage()
    stage.commit(offsets={P0: 1})
    stage.commit(offsets={P0: 0})
    assert stage.committed_offsets(P0) == [0]


@rule("R92")
def test_metadata_and_leader_epoch_are_stored() -> None:
    """Mirrors GroupCoordinatorTest.testFetchOffsets."""
    stage = Stage()
    stage.commit(metadata="from host a", leader_epoch=7)
    (topic,) = stage.fetch(P0).response.groups[0].topics
    (partition,) = topic.partitions
    assert (partition.metadata, partition.committed_leader_epoch) == ("from host a", 7)


@rule("R92")
def test_null_metadata_becomes_empty() -> None:
    stage = Stage()
    stage.commit(metadata=None)
    assert stage.fetch(P0).response.groups[0].topics[0].partitions[0].metadata == ""


@rule("R91")
@pytest.mark.parametrize(
    ("metadata", "fits"), [("x" * 10, True), ("x" * 11, False), ("🛫" * 5, True), ("🛫" * 5 + "x", False)]
)
def test_metadata_is_measured_in_javas_characters(metadata: str, fits: bool) -> None:
    """As in Kafka, offset.metadata.max.bytes limits UTF-16 code units, not bytes."""
    stage = Stage(offset_metadata_max_bytes=10)
    code = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert stage.commit(metadata=metadata).codes == [code]
    assert stage.committed_offsets(P0) == [42 if fits else -1]


@rule("R91", "R176")
def test_a_commit_without_accepted_offsets_creates_a_group_that_is_not_listed() -> None:
    """A commit without accepted offsets creates a group in memory, which ListGroups does not return.

    As in Kafka 4.3.1, ListGroups returns only groups that the coordinator has written to its log.
    """
    stage = Stage(offset_metadata_max_bytes=1)
    for group in ("g", "h"):
        stage.commit(metadata="xx", group=group)
    assert (stage.describe().error_code, stage.describe().group_state) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Dead",
    )
    assert stage.describe(version=5).error_code == ErrorCode.NONE
    assert stage.list_groups() == []
    assert stage.commit("m", 3).codes == [NOT_A_MEMBER], "a missing group would be ILLEGAL_GENERATION"
    assert stage.delete("h", "h", "i") == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    member, _ = stage.add_member()
    assert stage.describe().group_state == "Dead"
    stage.await_generation()
    assert stage.describe().group_state == "Dead"
    stage.sync(member)
    assert stage.describe().group_state == "Stable"


@rule("R176")
def test_the_first_stored_offset_makes_describe_groups_show_the_group() -> None:
    stage = Stage(offset_metadata_max_bytes=1)
    stage.commit(metadata="xx")
    assert stage.describe().group_state == "Dead"
    stage.commit()
    assert stage.describe().group_state == "Empty"


@rule("R176")
def test_describe_groups_shows_a_group_that_has_become_empty() -> None:
    stage = Stage(offset_metadata_max_bytes=1)
    stage.commit(metadata="xx")
    member, _ = stage.add_member()
    stage.leave(member)
    stage.await_generation()
    assert stage.describe().group_state == "Empty"


@rule("R122")
def test_a_commit_of_which_something_is_stored_creates_a_group_that_is_listed() -> None:
    stage = Stage(offset_metadata_max_bytes=1)
    stage.commit(metadata="xx")
    stage.commit(metadata="x")
    assert [group.group_id for group in stage.list_groups()] == [stage.describe().group_id] == ["g"]


@rule("R85")
def test_missing_topics_and_partitions_are_rejected_one_by_one() -> None:
    stage = Stage(KnownTopics())
    codes = stage.commit(offsets={P0: 1, ("flights", 2): 2, ("flights", -1): 3, ("ghost", 0): 4}).codes
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [missing, missing, ErrorCode.NONE, missing]
    assert stage.committed_offsets() == [1]


@rule("R85")
def test_a_commit_for_missing_partitions_only_does_not_reach_the_group() -> None:
    stage = Stage(KnownTopics())
    codes = stage.commit("ghost", 99, {("ghost", 0): 1}).codes
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert stage.commit(offsets={("ghost", 0): 1}).codes == codes
    assert stage.commit(offsets={}).codes == []
    assert stage.state is ClassicGroupState.DEAD


@rule("R96")
def test_v10_names_topics_by_id() -> None:
    """An OffsetCommit response contains the topic ids. Only the topic with an unknown id is rejected, as in
    Kafka.
    """
    stage = Stage(KnownTopics())
    answer = stage.commit(offsets={P0: 1}, topic_id=FLIGHTS, version=10)
    assert answer.codes == [ErrorCode.NONE]
    assert answer.response.topics[0].topic_id == FLIGHTS
    assert stage.commit(offsets={P0: 9}, topic_id=UUID(int=1), version=10).codes == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]
    assert stage.committed_offsets(P0) == [1]


# OffsetFetch


@rule("R97")
@pytest.mark.parametrize("version", range(1, 11))
def test_a_missing_group_has_no_offsets_which_is_not_an_error(version: int) -> None:
    """Mirrors GroupCoordinatorTest.testFetchOffsetForUnknownPartition."""
    response = Stage(KnownTopics()).fetch(P0, version=version).response
    topics = response.topics if version < 8 else response.groups[0].topics
    (partition,) = topics[0].partitions
    assert (partition.committed_offset, partition.error_code, partition.metadata) == (-1, 0, "")


@rule("R99")
@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_request_all_committed_offsets(version: int) -> None:
    """Mirrors GroupCoordinatorTest.testFetchAllOffsets."""
    stage = Stage(KnownTopics())
    stage.commit(offsets={P0: 1, P1: 2})
    response = stage.fetch(everything=True, version=version).response
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [(p.partition_index, p.committed_offset) for p in topics[0].partitions] == [(0, 1), (1, 2)]
    if version == 10:
        assert topics[0].topic_id == FLIGHTS


@rule("R99")
def test_an_empty_list_of_topics_requests_nothing() -> None:
    stage = Stage()
    stage.commit()
    assert stage.fetch(version=7).response.topics == []


@rule("R102")
def test_several_groups_are_answered_in_order() -> None:
    from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

    stage = Stage()
    stage.commit(group="b")
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("b", "a", "a")]
    response = stage.send(OffsetFetchRequest(groups=groups), 9).response
    assert [(g.group_id, len(g.topics)) for g in response.groups] == [("b", 1), ("a", 0), ("a", 0)]
    assert stage.send(OffsetFetchRequest(groups=[]), 9).response.groups == []


@rule("R96")
def test_v10_requests_topic_ids_and_an_unknown_id_is_an_error() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage(KnownTopics())
    stage.commit()
    assert stage.fetch(P0, version=10).response.groups[0].topics[0].partitions[0].committed_offset == 42
    stage.coordinator.topics = None
    (partition,) = stage.fetch(P0, version=10).response.groups[0].topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


@rule("R98")
def test_a_partition_without_a_commit_has_offset_minus_1_and_no_error() -> None:
    stage = Stage()
    stage.commit(offsets={P0: 1})
    [partition] = stage.fetch(P1).response.groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
    assert (partition.metadata, partition.error_code) == ("", ErrorCode.NONE)


@rule("R101")
def test_offsets_are_fetched_without_a_membership_and_in_every_state() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.commit(leader, 1)
    stage.join(leader)
    assert stage.committed_offsets(P0) == [42]
    stage.join(follower)
    assert stage.committed_offsets(P0) == [42]


# Transactions


@rule("R111")
def test_a_transactional_commit_is_invisible_until_the_transaction_commits() -> None:
    """Mirrors GroupCoordinatorTest.testBasicFetchTxnOffsets."""
    stage = Stage()
    assert stage.commit_in_transaction().codes == [ErrorCode.NONE]
    assert stage.committed_offsets(P0) == [-1]
    assert stage.committed_offsets() == []
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets(P0) == [42]


@rule("R111")
def test_an_aborted_transaction_leaves_no_offset() -> None:
    """Mirrors GroupCoordinatorTest.testFetchTxnOffsetsWithAbort."""
    stage = Stage()
    stage.commit_in_transaction()
    stage.step(TransactionEnded(1, committed=False))
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets(P0) == [-1]


@rule("R100")
def test_a_pending_offset_is_unstable_if_stable_offsets_are_required() -> None:
    """GroupCoordinatorTest.testFetchPendingTxnOffsetsWithCommit, KIP-447."""
    stage = Stage()
    stage.commit(offsets={P0: 1, P1: 2})
    stage.commit_in_transaction(offsets={P0: 9})
    (topic,) = stage.fetch(P0, P1, stable=True).response.groups[0].topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT, 0]
    assert stage.committed_offsets(P0, P1, stable=True) == [-1, 2]
    assert stage.committed_offsets(P0, P1) == [1, 2]
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets(P0, P1, stable=True) == [9, 2]


@rule("R111")
def test_pending_offsets_are_separate_for_each_producer() -> None:
    """Mirrors GroupCoordinatorTest.testFetchTxnOffsetsMultipleProducersOneGroup."""
    stage = Stage()
    stage.commit_in_transaction(1, {P0: 10})
    stage.commit_in_transaction(2, {P1: 20})
    stage.step(TransactionEnded(2, committed=True))
    assert stage.committed_offsets(P0, P1) == [-1, 20]


@rule("R111")
@pytest.mark.parametrize(("plain_first", "expected"), [(True, 9), (False, 1)])
def test_the_later_of_a_plain_and_a_transactional_commit_wins(plain_first: bool, expected: int) -> None:
    """GroupMetadataTest.testConsumerBeatsTransactionalOffsetCommit and testTransactionBeatsConsumer..."""
    stage = Stage()
    if plain_first:
        stage.commit(offsets={P0: 1})
    stage.commit_in_transaction(offsets={P0: 9})
    if not plain_first:
        stage.commit(offsets={P0: 1})
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets(P0) == [expected]


@rule("R110")
def test_a_transactional_commit_is_accepted_in_completing_rebalance() -> None:
    """Mirrors GroupCoordinatorTest.testTxnCommitOffsetWithKnownMemberId."""
    stage = Stage()
    (member,) = stage.create_generation()
    assert stage.commit_in_transaction(member_id=member, generation=1).codes == [ErrorCode.NONE]
    assert stage.commit_in_transaction(member_id=member, generation=2).codes == [ErrorCode.ILLEGAL_GENERATION]
    assert stage.commit_in_transaction(member_id="ghost", generation=1).codes == [NOT_A_MEMBER]
    assert stage.commit_in_transaction().codes == [ErrorCode.NONE], "a producer that names no member"


@rule("R110")
def test_a_transactional_commit_does_not_restart_the_session() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1)
    assert stage.commit_in_transaction(member_id=member, generation=1).codes == [ErrorCode.NONE]
    stage.wait(1)
    assert stage.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R110")
def test_a_transactional_commit_in_generation_0_names_a_generation() -> None:
    stage = Stage()
    stage.create_generation()
    assert stage.commit_in_transaction(generation=0).codes == [NOT_A_MEMBER]


@rule("R106", "R109")
def test_a_transactional_commit_to_a_missing_group() -> None:
    """Mirrors OffsetMetadataManagerTest.testGenericGroupTransactionalOffsetCommitWithUnknownGroupId."""
    stage = Stage()
    answer = stage.commit_in_transaction(member_id="m", generation=1)
    assert answer.codes == [ErrorCode.ILLEGAL_GENERATION]
    assert stage.commit_in_transaction(group="").codes == [ErrorCode.INVALID_GROUP_ID]
    assert stage.state is ClassicGroupState.DEAD


@rule("R91", "R110")
def test_a_rejected_transactional_commit_stores_nothing() -> None:
    """Mirrors GroupCoordinatorTest.testTxnOffsetMetadataTooLarge."""
    stage = Stage(offset_metadata_max_bytes=1)
    assert stage.commit_in_transaction(metadata="xx").codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert stage.group().pending_transactions == {}


@rule("R112")
def test_the_pending_offsets_of_a_deleted_group_are_dropped() -> None:
    """DeleteGroups succeeds although a transaction has pending offsets for the group.

    As in Kafka 4.3.1, these offsets are lost even if the transaction commits after the deletion.
    """
    stage = Stage()
    stage.commit_in_transaction()
    assert stage.delete("g") == [ErrorCode.NONE]
    stage.step(TransactionEnded(1, committed=True))
    assert stage.describe(version=5).group_state == "Dead"


# OffsetDelete


@rule("R126")
def test_deleting_offsets_of_a_missing_group_is_an_error_of_the_request() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteOffsetOfNonExistingGroup."""
    answer = Stage().delete_offsets(P0)
    assert (answer.code, answer.codes) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert Stage().delete_offsets(P0, group="").code is ErrorCode.INVALID_GROUP_ID


@rule("R127")
def test_an_empty_group_loses_the_requested_offsets() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteOffsetOfEmptyConsumerGroup."""
    stage = Stage()
    stage.commit(offsets={P0: 1, P1: 2})
    assert stage.delete_offsets(P0, ("never", 0)).codes == [ErrorCode.NONE] * 2
    assert stage.committed_offsets(P0, P1) == [-1, 2]


@rule("R127")
def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteOffsetOfStableConsumerGroup."""
    stage = Stage()
    (member,) = stage.create_stable_group({"protocols": [("range", subscription("flights", version=3))]})
    stage.commit(member, 1, {P0: 1, ("old", 0): 2})
    codes = stage.delete_offsets(P0, ("old", 0)).codes
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert stage.committed_offsets(P0, ("old", 0)) == [1, -1]


@rule("R128")
def test_a_subscription_that_cannot_be_decoded_counts_for_every_topic() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteOffsetOfConsumerGroupWithUnparsableProtocol."""
    stage = Stage()
    stage.create_stable_group({"protocols": [("range", b"\0")]})
    assert stage.delete_offsets(P0).codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@rule("R128")
def test_before_the_first_generation_every_topic_counts_as_subscribed() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage()
    stage.add_member(protocols=[("range", subscription("flights"))])
    assert stage.delete_offsets(("other", 0)).codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@rule("R128")
def test_in_preparing_rebalance_the_subscriptions_of_the_last_generation_count() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage()
    leader, _ = stage.create_stable_group(*[{"protocols": [("range", subscription("flights"))]}] * 2)
    stage.join(leader, protocols=[("range", subscription("other"))])
    assert stage.delete_offsets(P0, ("other", 0)).codes == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]


@rule("R128")
def test_only_the_subscriptions_for_the_selected_protocol_count() -> None:
    stage = Stage()
    stage.create_stable_group(
        {"protocols": [("range", subscription("flights")), ("roundrobin", subscription("other"))]}
    )
    assert stage.group().protocol_name == "range"
    assert stage.delete_offsets(P0, ("other", 0)).codes == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]


@rule("R126")
def test_a_group_of_another_protocol_type_keeps_all_offsets() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteOffsetOfNonEmptyNonConsumerGroup."""
    stage = Stage()
    member, _ = stage.add_member(protocol_type="connect")
    stage.await_generation()
    assert stage.delete_offsets(P0).code is ErrorCode.NON_EMPTY_GROUP
    stage.leave(member)
    assert stage.delete_offsets(P0).codes == [ErrorCode.NONE]


@rule("R112")
def test_deleting_an_offset_deletes_its_pending_offsets() -> None:
    """Mirrors OffsetMetadataManagerTest.testGenericGroupOffsetDeleteWithPendingTransactionalOffsets."""
    stage = Stage()
    stage.commit_in_transaction()
    stage.delete_offsets(P0)
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets(P0) == [-1]


@rule("R129")
def test_deleting_offsets_of_missing_partitions_is_an_error_of_each() -> None:
    stage = Stage(KnownTopics())
    stage.commit()
    codes = stage.delete_offsets(("ghost", 0), ("flights", 2), P0).codes
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2 + [ErrorCode.NONE]


@rule("R157")
def test_the_offsets_of_a_deleted_topic_are_dropped() -> None:
    """Mirrors OffsetMetadataManagerTest.testOnPartitionsDeleted."""
    stage = Stage()
    stage.commit(offsets={P0: 1, ("other", 0): 2})
    stage.commit_in_transaction(1, {P1: 3, ("other", 1): 4})
    stage.commit_in_transaction(2, {P1: 5})
    stage.step(TopicsDeleted(frozenset({"flights"})))
    stage.step(TransactionEnded(1, committed=True))
    stage.step(TransactionEnded(2, committed=True))
    assert stage.committed_offsets(P0, P1, ("other", 0), ("other", 1)) == [-1, -1, 2, 4]


@rule("R128")
@pytest.mark.parametrize("metadata", [b"\0", b"\0\0\0\0\0\1"])
def test_one_subscription_that_cannot_be_decoded_counts_for_every_topic(metadata: bytes) -> None:
    stage = Stage()
    stage.create_stable_group(
        {"protocols": [("range", subscription("flights"))]}, {"protocols": [("range", metadata)]}
    )
    assert stage.delete_offsets(("other", 0)).codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
