"""`kproto decode` prints the decoded contents of a bytes field below the field."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.group.classic.member.leadership import encode_initial_counts
from kproto.group.subscription import (
    Assignment,
    Subscription,
    TopicPartition,
    cooperative_user_data,
    sticky_user_data,
)
from kproto.inspect.dissect import Dissection, dissect, dissect_message, lines
from kproto.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kproto.messages.envelope import EnvelopeRequest
from kproto.messages.group_records import GroupMetadataValue, MemberMetadata
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

OWNED = (TopicPartition("flights", 2),)
SUBSCRIPTION = Subscription(topics=("flights",), owned=OWNED, generation=4, rack_id="r1").encode()
ASSIGNMENT = Assignment(partitions=OWNED).encode()


def join(metadata: bytes, name: str = "range", kind: str = "consumer") -> Dissection:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata)]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type=kind, protocols=protocols
    )
    return dissect(encode_request(request, 9, 1, "me"))


def field_lines(dissection: Dissection) -> list[str]:
    """Return the printed lines without the columns of offsets and bytes."""
    assert dissection.error is None
    return [line[30:].strip() for line in lines(dissection)]


def embedded_names(dissection: Dissection) -> list[str]:
    """Return the names of the messages that are embedded in bytes fields."""
    return [message["name"] for part in dissection.messages() for message in part.get("inside", ())]


def test_a_subscription_is_printed_below_its_field() -> None:
    printed = field_lines(join(SUBSCRIPTION))
    at = printed.index("ConsumerProtocolSubscription v3")
    assert printed[at - 1].startswith("metadata: bytes = ")
    assert printed[at + 1 : at + 4] == [
        "version: int16 = 3",
        "topics: count = 1",
        'topics[0]: string = "flights"',
    ]
    assert {"generation_id: int32 = 4", 'rack_id: string = "r1"'} <= set(printed)


def test_offsets_of_embedded_fields_count_from_the_start_of_the_frame() -> None:
    dissection = join(SUBSCRIPTION)
    line = next(line for line in lines(dissection) if 'topics[0]: string = "flights"' in line)
    at = int(line[:4], 16)
    assert dissection.data[at : at + 9] == b"\0\x07flights"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 9])
def test_a_subscription_of_any_version_is_decoded(version: int) -> None:
    metadata = version.to_bytes(2, "big") + SUBSCRIPTION[2:]
    if version <= 3:
        metadata = Subscription(topics=("flights",)).encode(version)
    else:
        metadata += b"new"
    printed = field_lines(join(metadata))
    assert f"ConsumerProtocolSubscription v{min(version, 3)}" in printed
    assert f"version: int16 = {version}" in printed
    assert ("3 bytes follow it, which readers skip" in printed) == (version > 3)


def test_the_subscriptions_in_a_leaders_response_are_decoded() -> None:
    members = [JoinGroupResponseMember(member_id=name, metadata=SUBSCRIPTION) for name in "ab"]
    response = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        member_id="a",
        members=members,
    )
    frame = encode_response(response, 9, 1)
    assert embedded_names(dissect(frame, ("JoinGroup", 9))) == ["ConsumerProtocolSubscription"] * 2


@pytest.mark.parametrize("version", [3, 5])
def test_assignments_are_decoded_in_sync_group_requests_and_responses(version: int) -> None:
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version == 5 else {}
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="a",
        assignments=[SyncGroupRequestAssignment(member_id="a", assignment=ASSIGNMENT)],
        **protocol,
    )
    request_dissection = dissect(encode_request(request, version, 1, "me"))
    response = encode_response(SyncGroupResponse(error_code=0, assignment=ASSIGNMENT, **protocol), version, 1)
    response_dissection = dissect(response, ("SyncGroup", version))
    assert (
        embedded_names(request_dissection)
        == embedded_names(response_dissection)
        == ["ConsumerProtocolAssignment"]
    )
    assert "assigned_partitions[0]" in field_lines(response_dissection)


def dissect_described_member(protocol_type: str) -> Dissection:
    member = DescribedGroupMember(
        member_id="a",
        client_id="c",
        client_host="/h",
        member_metadata=SUBSCRIPTION,
        member_assignment=ASSIGNMENT,
    )
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=[member],
    )
    return dissect(encode_response(DescribeGroupsResponse(groups=[group]), 5, 1), ("DescribeGroups", 5))


def test_a_described_member_shows_its_subscription_and_assignment() -> None:
    assert embedded_names(dissect_described_member("consumer")) == [
        "ConsumerProtocolSubscription",
        "ConsumerProtocolAssignment",
    ]


def test_other_protocol_types_are_not_decoded() -> None:
    assert embedded_names(dissect_described_member("connect")) == []
    assert embedded_names(join(SUBSCRIPTION, kind="connect")) == []


def test_a_group_metadata_record_is_decoded() -> None:
    member = MemberMetadata(
        member_id="a",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=1,
        subscription=SUBSCRIPTION,
        assignment=ASSIGNMENT,
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="a", members=[member]
    )
    dissection = dissect_message(value.encode(4), "GroupMetadataValue", 4)
    assert embedded_names(dissection) == ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"]


@pytest.mark.parametrize(
    ("assignor", "data", "title", "line"),
    [
        ("sticky", sticky_user_data(OWNED, 7), "StickyUserData v1", "generation: int32 = 7"),
        ("sticky", sticky_user_data(OWNED, 7)[:-4], "StickyUserData v0", "partitions[0]: int32 = 2"),
        ("sticky", b"\0\1" + sticky_user_data(OWNED, 7), "StickyUserData v1", "version: int16 = 1"),
        ("cooperative-sticky", cooperative_user_data(7), "CooperativeUserData v0", "generation: int32 = 7"),
        # These bytes are ambiguous: they could also be sticky user data without partitions.
        ("cooperative-sticky", cooperative_user_data(0), "CooperativeUserData v0", "generation: int32 = 0"),
        ("cooperative-sticky", sticky_user_data(OWNED, 7), "StickyUserData v1", "generation: int32 = 7"),
        ("range", encode_initial_counts({"flights": 3}), "InitialCounts v0", "initial_count: int32 = 3"),
    ],
)
def test_user_data_is_decoded_by_assignor(assignor: str, data: bytes, title: str, line: str) -> None:
    printed = field_lines(join(Subscription(topics=("flights",), user_data=data).encode(), assignor))
    assert line in printed[printed.index(title) :]


def test_user_data_of_kprotos_leader_is_decoded_in_a_subscription_outside_of_other_messages() -> None:
    for user_data, expected in ((encode_initial_counts({"t": 3}), ["InitialCounts"]), (b"\0" * 4, [])):
        subscription = Subscription(topics=("t",), user_data=user_data).encode()[2:]
        dissection = dissect_message(subscription, "ConsumerProtocolSubscription", 3)
        assert embedded_names(dissection) == expected


def test_a_request_of_an_unknown_version_in_an_envelope_stays_bytes() -> None:
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=3, member_id="a"), 4, 8, "me")
    for data in (beat[:2] + b"\0\x63" + beat[4:], b"\x7f\0" + beat[2:]):
        request = EnvelopeRequest(request_data=data, request_principal=b"", client_host_address=b"")
        assert embedded_names(dissect(encode_request(request, 0, 1, "broker"))) == []


def test_other_bytes_of_a_group_without_a_protocol_type_are_not_decoded() -> None:
    """Without a protocol type, only bytes that are exactly an assignment are decoded.

    A SyncGroup response has a protocol type from version 5 on.
    """
    for assignment, expected in ((ASSIGNMENT, ["ConsumerProtocolAssignment"]), (ASSIGNMENT + b"\0", [])):
        response = encode_response(SyncGroupResponse(error_code=0, assignment=assignment), 3, 1)
        assert embedded_names(dissect(response, ("SyncGroup", 3))) == expected


def test_metadata_of_a_negative_version_stays_bytes() -> None:
    assert embedded_names(join(b"\xff\xff" + SUBSCRIPTION[2:])) == []


def test_user_data_of_another_assignor_stays_bytes() -> None:
    dissection = join(Subscription(topics=("t",), user_data=cooperative_user_data(7)).encode(), "my-own")
    assert embedded_names(dissection) == ["ConsumerProtocolSubscription"]


def test_a_request_in_an_envelope_is_decoded() -> None:
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=3, member_id="a"), 4, 8, "me")
    request = EnvelopeRequest(request_data=beat, request_principal=b"", client_host_address=b"\x7f\0\0\1")
    dissection = dissect(encode_request(request, 0, 1, "broker"))
    assert embedded_names(dissection) == ["RequestHeader", "HeartbeatRequest"]


def test_invalid_metadata_is_marked_and_decoding_continues_after_it() -> None:
    printed = field_lines(join(SUBSCRIPTION[:20]))
    assert [line for line in printed if line.startswith("<-- ConsumerProtocolSubscription v3: field ")] != []
    assert printed[-2] == "reason: string = null"


@given(st.binary(max_size=60), st.sampled_from(["sticky", "cooperative-sticky", "range"]), st.booleans())
def test_any_metadata_bytes_can_be_printed(data: bytes, assignor: str, inside_subscription: bool) -> None:
    metadata = Subscription(topics=("t",), user_data=data).encode() if inside_subscription else data
    assert field_lines(join(metadata, assignor))[-2] == "reason: string = null"
    json.dumps(list(join(metadata, assignor).messages()))
