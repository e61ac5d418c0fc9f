"""The metadata in JoinGroup and the assignment in SyncGroup survive a round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError, UnsupportedVersion
from kproto.group.subscription import (
    NO_CLAIM,
    Assignment,
    ReportedOwnership,
    Subscription,
    TopicPartition,
    cooperative_user_data,
    read_cooperative_generation,
    read_sticky_user_data,
    read_subscription,
    sticky_user_data,
)
from tests.group.classic.member.stage import parts
from tests.rules import rule

FULL = Subscription(
    topics=("bar", "foo"), user_data=b"\1", owned=parts("bar", 0) + parts("foo", 1), generation=4, rack_id="r"
)
names = st.text("abc", min_size=1, max_size=4)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 9)), max_size=6, unique=True).map(
    lambda drawn: tuple(sorted(drawn))
)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=4, unique=True).map(lambda topics: tuple(sorted(topics))),
    user_data=st.none() | st.binary(max_size=5),
    owned=partitions,
    generation=st.none() | st.integers(0, 2**31 - 1),
    rack_id=st.none() | names,
)


@rule("R181")
@pytest.mark.parametrize(
    ("version", "read"),
    [
        (0, Subscription(topics=FULL.topics, user_data=FULL.user_data)),
        (1, Subscription(topics=FULL.topics, user_data=FULL.user_data, owned=FULL.owned)),
        (2, Subscription(topics=FULL.topics, user_data=FULL.user_data, owned=FULL.owned, generation=4)),
        (3, FULL),
    ],
)
def test_older_versions_leave_out_newer_fields(version: int, read: Subscription) -> None:
    """Mirrors ConsumerProtocolTest.serializeDeserializeSubscriptionAllVersions."""
    assert Subscription.decode(FULL.encode(version)) == read


@given(subscriptions)
def test_a_subscription_is_decoded_as_it_was_encoded(subscription: Subscription) -> None:
    """Mirrors ConsumerProtocolTest.serializeDeserializeMetadata."""
    assert Subscription.decode(subscription.encode()) == subscription


@rule("R181", "R182")
def test_the_bytes_are_version_topics_user_data_owned_generation_rack() -> None:
    expected = bytes.fromhex(
        "0003 00000001 0001 74 00000004 ffffffff 00000000 ffffffff ffff".replace(" ", "")
    )
    assert Subscription(topics=("t",), user_data=cooperative_user_data(-1)).encode() == expected


def test_the_instance_id_is_not_on_the_wire() -> None:
    """Mirrors ConsumerProtocolTest.serializeDeserializeMetadataAndGroupInstanceId."""
    data = Subscription(topics=("t",), instance_id="i").encode()
    assert Subscription.decode(data).instance_id is None
    assert Subscription.decode(data, "j").instance_id == "j"


def test_missing_user_data_stays_missing() -> None:
    """User data that is null stays null. Mirrors
    ConsumerProtocolTest.serializeDeserializeNullSubscriptionUserData, and its counterpart for assignments.
    """
    assert Subscription.decode(Subscription().encode()).user_data is None
    assert Subscription.decode(Subscription(user_data=b"").encode()).user_data == b""
    assert Assignment.decode(Assignment().encode()).user_data is None


@rule("R182")
def test_topics_are_encoded_in_order() -> None:
    """Mirrors ConsumerProtocolTest.serializeSubscriptionShouldOrderTopics."""
    assert Subscription(topics=("foo", "bar")).encode() == Subscription(topics=("bar", "foo")).encode()


@rule("R182")
def test_owned_partitions_are_encoded_in_order() -> None:
    """Mirrors ConsumerProtocolTest.serializeSubscriptionShouldOrderOwnedPartitions."""
    mixed = parts("foo", 1, 0) + parts("bar", 2) + parts("foo", 2)
    assert Subscription.decode(Subscription(owned=mixed).encode()).owned == tuple(sorted(mixed))


def test_new_fields_under_an_old_version_are_ignored() -> None:
    """Mirrors ConsumerProtocolTest.deserializeNewSubscriptionWithOldVersion."""
    data = b"\0\0" + FULL.encode(3)[2:]
    assert Subscription.decode(data) == Subscription(topics=FULL.topics, user_data=FULL.user_data)


@rule("R183")
def test_a_future_version_is_read_as_the_newest_one() -> None:
    """ConsumerProtocolTest.deserializeFutureSubscriptionVersion, deserializeFutureAssignmentVersion."""
    assert Subscription.decode(b"\0\x64" + FULL.encode()[2:] + b"more") == FULL
    some = Assignment(partitions=parts("t", 1))
    assert Assignment.decode(b"\0\x64" + some.encode()[2:] + b"more") == some


@rule("R183")
def test_a_negative_version_is_refused() -> None:
    with pytest.raises(DecodeError):
        Subscription.decode(b"\xff\xff" + FULL.encode()[2:])


@rule("R183")
def test_a_negative_generation_is_no_generation() -> None:
    assert Subscription.decode(Subscription(generation=-5).encode()).generation is None


@given(subscriptions, st.data())
def test_every_prefix_of_a_subscription_raises_only_decode_error(
    subscription: Subscription, data: st.DataObject
) -> None:
    encoded = subscription.encode()
    with pytest.raises(DecodeError):
        Subscription.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=60))
def test_a_leader_can_decode_any_metadata(data: bytes) -> None:
    assert read_subscription(data, "i").instance_id == "i"


def test_a_leader_decodes_saramas_short_version_1() -> None:
    data = b"\0\1" + Subscription(topics=("t",)).encode(0)[2:]
    assert read_subscription(data).topics == ("t",)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(some=partitions, user_data=st.none() | st.binary(max_size=5))
def test_an_assignment_is_decoded_as_it_was_encoded(
    version: int, some: tuple[TopicPartition, ...], user_data: bytes | None
) -> None:
    """Mirrors ConsumerProtocolTest.serializeDeserializeAssignmentAllVersions."""
    assignment = Assignment(partitions=some, user_data=user_data)
    assert Assignment.decode(assignment.encode(version)) == assignment


@rule("R184")
def test_the_bytes_of_an_assignment_are_version_partitions_user_data() -> None:
    expected = bytes.fromhex("0003 00000001 0001 74 00000001 00000002 00000001 07".replace(" ", ""))
    assert Assignment(partitions=parts("t", 2), user_data=b"\7").encode() == expected


@rule("R184")
def test_no_bytes_are_an_empty_assignment() -> None:
    assert Assignment.decode(b"") == Assignment()


def test_one_byte_is_not_an_assignment() -> None:
    with pytest.raises(DecodeError):
        Assignment.decode(b"\0")


# User data


@rule("R211")
@given(partitions, st.integers(0, 2**31 - 1))
def test_sticky_user_data_is_decoded_as_it_was_encoded(
    some: tuple[TopicPartition, ...], generation: int
) -> None:
    assert read_sticky_user_data(sticky_user_data(some, generation)) == ReportedOwnership(some, generation)


@rule("R211")
@given(partitions)
def test_sticky_user_data_without_a_generation_is_decoded(some: tuple[TopicPartition, ...]) -> None:
    """Mirrors StickyAssignorTest.testSchemaBackwardCompatibility."""
    assert read_sticky_user_data(sticky_user_data(some, 1)[:-4]) == ReportedOwnership(some, None)


@given(partitions.filter(bool), st.integers(0, 99))
def test_sticky_user_data_with_kafka_pythons_version_is_decoded(
    some: tuple[TopicPartition, ...], generation: int
) -> None:
    assert read_sticky_user_data(b"\0\1" + sticky_user_data(some, generation)) == ReportedOwnership(
        some, generation
    )


@rule("R211")
@pytest.mark.parametrize("data", [None, b"", b"\1", b"\xff" * 12, b"\0\0\0\1\0"])
def test_unreadable_sticky_user_data_reports_no_partitions(data: bytes | None) -> None:
    assert read_sticky_user_data(data) == NO_CLAIM


@given(st.binary(max_size=40))
def test_any_sticky_user_data_is_decoded_without_an_error(data: bytes) -> None:
    assert isinstance(read_sticky_user_data(data), ReportedOwnership)


@rule("R214")
def test_the_generation_of_cooperative_user_data_is_decoded_as_it_was_encoded() -> None:
    """Mirrors CooperativeStickyAssignorTest.testEncodeAndDecodeGeneration."""
    assert cooperative_user_data(10) == b"\0\0\0\x0a"
    assert read_cooperative_generation(cooperative_user_data(10)) == 10


@pytest.mark.parametrize("data", [None, b"", b"\0\0\1", cooperative_user_data(-1)])
def test_the_generation_may_be_missing(data: bytes | None) -> None:
    """Mirrors CooperativeStickyAssignorTest.testDecodeGeneration."""
    assert read_cooperative_generation(data) is None


@pytest.mark.parametrize("some", [(), parts("t", 0, 1)])
def test_the_sticky_form_of_librdkafka_and_franz_go_is_decoded(some: tuple[TopicPartition, ...]) -> None:
    assert read_cooperative_generation(sticky_user_data(some, 10)) == 10


def test_a_str_is_not_a_list_of_topics() -> None:
    with pytest.raises(EncodeError, match=r"for one topic give \('flights',\)"):
        Subscription(topics="flights").encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda: Subscription(topics=("a", 1)),
            r"Subscription v3: field topics: \('a', 1\) is not a list of str",
        ),
        (lambda: Subscription(topics=None), "v3: field topics: None is not a list of str"),
        (lambda: Subscription(topics=(1,)), r"v3: field topics\[0\]: 1 is not a str"),
        (
            lambda: Subscription(topics=("\ud800",)),
            r"v3: field topics\[0\]: '\\ud800' cannot be encoded as UTF-8",
        ),
        (lambda: Subscription(topics=("t" * 40_000,)), r"v3: field topics\[0\]: 40000 bytes"),
        (lambda: Subscription(topics="t" * 40_000), r"for one topic give \('t+\.\.\. \(40002 characters"),
        (lambda: Subscription(user_data="a"), "v3: field user_data: 'a' is not bytes"),
        (
            lambda: Subscription(generation=1 << 31),
            "field generation_id: 2147483648 is not a value",
        ),
        (lambda: Subscription(owned=("t",)), r"field owned_partitions: \('t',\) are not TopicPartitions"),
        (
            lambda: Subscription(owned=(("t", 0), ("t", "1"))),
            r"field owned_partitions: .* are not Topic",
        ),
        (
            lambda: Subscription(owned=(("t", 1 << 31),)),
            r"owned_partitions\[0\]\.partitions\[0\]: 2147483648",
        ),
        (lambda: Assignment(partitions=(("t", 1, 2),)), r"v3: field assigned_partitions: .*, 2"),
        (
            lambda: Assignment(partitions="t-0"),
            "v3: field assigned_partitions: 't-0' are not Topic",
        ),
        (lambda: Assignment(user_data=7), "Assignment v3: field user_data: 7 is not bytes"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_rejected_with_its_field(
    write: Callable[[], Any], message: str
) -> None:
    with pytest.raises(EncodeError, match=message):
        write().encode()


@pytest.mark.parametrize("version", [-1, 4, 70_000, 1 << 70, "3", None, 1.0])
@pytest.mark.parametrize("encodable", [Subscription(), Assignment()])
def test_an_unknown_version_is_rejected(encodable: Any, version: Any) -> None:
    with pytest.raises(UnsupportedVersion, match="allowed: 0-3"):
        encodable.encode(version)


@pytest.mark.parametrize("generation", [1 << 31, -(1 << 31) - 1, "4", None])
def test_the_generation_in_user_data_is_an_int32(generation: Any) -> None:
    with pytest.raises(EncodeError, match=r"CooperativeStickyUserData v0: field generation: .* of int32"):
        cooperative_user_data(generation)
    with pytest.raises(EncodeError, match=r"StickyUserData v1: field (generation|previous_assignment)"):
        sticky_user_data((), generation)
    with pytest.raises(EncodeError, match=r"StickyUserData v1: field previous_assignment: .* are not Topic"):
        sticky_user_data(generation, 4)
