"""Committed offsets that no member uses expire. A group without members and offsets is then deleted."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.group.classic.coordinator import ClassicGroupState, GroupSettings, Tick, TransactionEnded
from tests.group.classic.coordinator.stage import SESSION, Stage, subscription
from tests.rules import rule

MINUTE = 60_000
P0 = ("flights", 0)
READS_FLIGHTS = {"protocols": [("range", subscription("flights"))], "session": 1_800_000}


def quick() -> Stage:
    """Return a stage that retains offsets for ten minutes and checks their expiration every minute."""
    stage = Stage(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE)
    stage.step(Tick())
    return stage


@rule("R149", "R150", "R153")
def test_offsets_of_a_group_without_members_expire_by_the_age_of_the_commit() -> None:
    stage = quick()
    stage.commit(offsets={P0: 1})
    stage.wait(5 * MINUTE)
    stage.commit(offsets={("flights", 1): 2})
    stage.wait(5 * MINUTE)
    assert stage.committed_offsets(P0, ("flights", 1)) == [-1, 2]


@rule("R149", "R156")
def test_an_empty_group_without_offsets_is_deleted() -> None:
    """Mirrors GroupMetadataManagerTest.testClassicGroupMaybeDelete."""
    stage = quick()
    stage.commit()
    stage.wait(10 * MINUTE)
    assert stage.describe(version=5).group_state == "Dead"


@rule("R156")
def test_a_group_with_only_a_pending_member_id_is_deleted() -> None:
    stage = quick()
    stage.join(session=1_800_000)
    assert stage.list_groups()
    stage.wait(MINUTE)
    assert stage.list_groups() == []


@rule("R10", "R151")
def test_the_offsets_of_an_empty_group_expire_by_the_time_it_became_empty() -> None:
    stage = quick()
    (member,) = stage.create_stable_group(READS_FLIGHTS)
    stage.commit(member, 1)
    stage.wait(20 * MINUTE)
    stage.leave(member)
    stage.wait(9 * MINUTE)
    assert stage.committed_offsets(P0) == [42]
    stage.wait(2 * MINUTE)
    assert stage.committed_offsets(P0) == [-1]


@rule("R152")
def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    stage = quick()
    (member,) = stage.create_stable_group(READS_FLIGHTS)
    stage.commit(member, 1, {P0: 1, ("old", 0): 2})
    stage.wait(11 * MINUTE)
    assert stage.committed_offsets(P0, ("old", 0)) == [1, -1]


@rule("R152")
def test_the_retention_of_a_topic_without_a_subscriber_begins_with_the_commit() -> None:
    stage = quick()
    (member,) = stage.create_stable_group(READS_FLIGHTS)
    stage.wait(8 * MINUTE)
    stage.commit(member, 1, {("old", 0): 2})
    stage.wait(9 * MINUTE)
    assert stage.committed_offsets(("old", 0)) == [2]
    stage.wait(2 * MINUTE)
    assert stage.committed_offsets(("old", 0)) == [-1]


@rule("R154")
def test_no_offset_of_consumers_expires_in_completing_rebalance() -> None:
    stage = quick()
    options = {**READS_FLIGHTS, "rebalance": 1_800_000}
    (member,) = stage.create_stable_group(options)
    stage.commit(member, 1, {("old", 0): 2})
    stage.join(member, **options)
    assert stage.state is ClassicGroupState.COMPLETING_REBALANCE
    stage.wait(20 * MINUTE)
    assert stage.committed_offsets(("old", 0)) == [2]


@rule("R154")
def test_no_offset_expires_in_preparing_rebalance() -> None:
    """Mirrors GroupMetadataTest.testOffsetRemovalDuringTransitionFromEmptyToNonEmpty."""
    stage = Stage(
        offsets_retention_minutes=10,
        offsets_retention_check_interval_ms=MINUTE,
        group_initial_rebalance_delay_ms=20 * MINUTE,
    )
    stage.commit()
    member = stage.join(session=1_800_000).member_id
    stage.join(member, session=1_800_000, protocol_type="consumer")
    stage.wait(19 * MINUTE)
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    assert stage.committed_offsets(P0) == [42]


@rule("R154")
def test_a_group_of_another_protocol_type_keeps_its_offsets() -> None:
    stage = quick()
    member, _ = stage.add_member(protocol_type="connect", session=1_800_000)
    stage.await_generation()
    stage.sync(member, assignments={}, protocol_type="connect")
    stage.commit(member, 1)
    stage.wait(20 * MINUTE)
    assert stage.committed_offsets(P0) == [42]


@rule("R92", "R150")
def test_the_retention_time_of_a_commit_replaces_the_setting() -> None:
    """The retention time in an OffsetCommit (v2 to v4) replaces offsets.retention.minutes. Mirrors
    OffsetMetadataManagerTest.testGenericGroupOffsetCommitWithRetentionTime.
    """
    stage = quick()
    stage.commit(retention=2 * MINUTE, version=4)
    stage.wait(2 * MINUTE)
    assert stage.committed_offsets(P0) == [-1]


@rule("R155")
def test_an_offset_with_a_pending_transactional_commit_does_not_expire() -> None:
    """Mirrors OffsetMetadataManagerTest.testCleanupExpiredOffsetsWithPendingTransactionalOffsets."""
    stage = quick()
    stage.commit(offsets={P0: 1})
    stage.commit_in_transaction(1, {P0: 2})
    stage.wait(20 * MINUTE)
    assert stage.committed_offsets(P0) == [1]
    stage.step(TransactionEnded(1, committed=False))
    stage.wait(MINUTE)
    assert stage.list_groups() == []


@rule("R149")
def test_the_cleanup_does_not_touch_a_group_with_members() -> None:
    stage = quick()
    (member,) = stage.create_stable_group()
    for _ in range(30):
        stage.wait(SESSION // 2)
        stage.heartbeat(member)
    assert stage.state is ClassicGroupState.STABLE


# Settings


def test_settings_are_read_under_kafkas_names() -> None:
    settings = GroupSettings.from_properties({"group.min.session.timeout.ms": "300", "group.max.size": 7})
    assert (settings.group_min_session_timeout_ms, settings.group_max_size) == (300, 7)
    assert settings.group_max_session_timeout_ms == 1_800_000


@pytest.mark.parametrize(
    ("name", "value"), [("group.max.siz", "7"), ("group.max.size", "many"), ("group.max.size", "0")]
)
def test_a_wrong_setting_is_rejected_with_the_allowed_values(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GroupSettings.from_properties({name: value})
    assert name in str(caught.value)


@rule("R156")
def test_an_empty_group_with_pending_offsets_is_not_deleted() -> None:
    stage = quick()
    stage.commit_in_transaction()
    stage.wait(10 * MINUTE)
    assert stage.coordinator.groups
    stage.step(TransactionEnded(1, committed=True))
    assert stage.committed_offsets() == [42]
