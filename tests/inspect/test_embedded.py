"""The contents of bytes fields, as `kproto decode` prints them below the field."""

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
WANTS = Subscription(topics=("flights",), owned=OWNED, generation=4, rack_id="r1").encode()
GETS = Assignment(partitions=OWNED).encode()


def join(metadata: bytes, name: str = "range", kind: str = "consumer") -> Dissection:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata)]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type=kind, protocols=protocols
    )
    return dissect(encode_request(request, 9, 1, "me"))


def told(found: Dissection) -> list[str]:
    """Return the lines without offsets and bytes."""
    assert found.error is None
    return [line[30:].strip() for line in lines(found)]


def titles(found: Dissection) -> list[str]:
    """Return the names of the messages inside bytes fields."""
    return [one["name"] for part in found.messages() for one in part.get("inside", ())]


def test_a_subscription_is_printed_below_its_field() -> None:
    lines = told(join(WANTS))
    at = lines.index("ConsumerProtocolSubscription v3")
    assert lines[at - 1].startswith("metadata: bytes = ")
    assert lines[at + 1 : at + 4] == [
        "version: int16 = 3",
        "topics: count = 1",
        'topics[0]: string = "flights"',
    ]
    assert {"generation_id: int32 = 4", 'rack_id: string = "r1"'} <= set(lines)


def test_the_offsets_inside_are_those_of_the_frame() -> None:
    found = join(WANTS)
    line = next(line for line in lines(found) if 'topics[0]: string = "flights"' in line)
    at = int(line[:4], 16)
    assert found.data[at : at + 9] == b"\0\x07flights"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 9])
def test_a_subscription_of_any_version_is_decoded(version: int) -> None:
    metadata = version.to_bytes(2, "big") + WANTS[2:]
    if version <= 3:
        metadata = Subscription(topics=("flights",)).encode(version)
    else:
        metadata += b"new"
    found = told(join(metadata))
    assert f"ConsumerProtocolSubscription v{min(version, 3)}" in found
    assert f"version: int16 = {version}" in found
    assert ("3 bytes follow it, which readers skip" in found) == (version > 3)


def test_the_subscriptions_in_a_leaders_response_are_decoded() -> None:
    members = [JoinGroupResponseMember(member_id=name, metadata=WANTS) for name in "ab"]
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        member_id="a",
        members=members,
    )
    frame = encode_response(answer, 9, 1)
    assert titles(dissect(frame, ("JoinGroup", 9))) == ["ConsumerProtocolSubscription"] * 2


@pytest.mark.parametrize("version", [3, 5])
def test_assignments_are_decoded_in_sync_group_requests_and_responses(version: int) -> None:
    said = {"protocol_type": "consumer", "protocol_name": "range"} if version == 5 else {}
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="a",
        assignments=[SyncGroupRequestAssignment(member_id="a", assignment=GETS)],
        **said,
    )
    asked = dissect(encode_request(request, version, 1, "me"))
    answer = encode_response(SyncGroupResponse(error_code=0, assignment=GETS, **said), version, 1)
    answered = dissect(answer, ("SyncGroup", version))
    assert titles(asked) == titles(answered) == ["ConsumerProtocolAssignment"]
    assert "assigned_partitions[0]" in told(answered)


def described(protocol_type: str) -> Dissection:
    member = DescribedGroupMember(
        member_id="a", client_id="c", client_host="/h", member_metadata=WANTS, member_assignment=GETS
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
    assert titles(described("consumer")) == ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"]


def test_other_protocol_types_are_not_decoded() -> None:
    assert titles(described("connect")) == []
    assert titles(join(WANTS, kind="connect")) == []


def test_a_group_metadata_record_is_decoded() -> None:
    member = MemberMetadata(
        member_id="a",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=1,
        subscription=WANTS,
        assignment=GETS,
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="a", members=[member]
    )
    found = dissect_message(value.encode(4), "GroupMetadataValue", 4)
    assert titles(found) == ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"]


@pytest.mark.parametrize(
    ("assignor", "data", "title", "line"),
    [
        ("sticky", sticky_user_data(OWNED, 7), "StickyUserData v1", "generation: int32 = 7"),
        ("sticky", sticky_user_data(OWNED, 7)[:-4], "StickyUserData v0", "partitions[0]: int32 = 2"),
        ("sticky", b"\0\1" + sticky_user_data(OWNED, 7), "StickyUserData v1", "version: int16 = 1"),
        ("cooperative-sticky", cooperative_user_data(7), "CooperativeUserData v0", "generation: int32 = 7"),
        ("cooperative-sticky", sticky_user_data(OWNED, 7), "StickyUserData v1", "generation: int32 = 7"),
        ("range", encode_initial_counts({"flights": 3}), "InitialCounts v0", "initial_count: int32 = 3"),
    ],
)
def test_user_data_is_decoded_by_assignor(assignor: str, data: bytes, title: str, line: str) -> None:
    found = told(join(Subscription(topics=("flights",), user_data=data).encode(), assignor))
    assert line in found[found.index(title) :]


def test_user_data_of_another_assignor_stays_bytes() -> None:
    found = join(Subscription(topics=("t",), user_data=cooperative_user_data(7)).encode(), "my-own")
    assert titles(found) == ["ConsumerProtocolSubscription"]


def test_a_request_in_an_envelope_is_decoded() -> None:
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=3, member_id="a"), 4, 8, "me")
    request = EnvelopeRequest(request_data=beat, request_principal=b"", client_host_address=b"\x7f\0\0\1")
    found = dissect(encode_request(request, 0, 1, "broker"))
    assert titles(found) == ["RequestHeader", "HeartbeatRequest"]


def test_invalid_metadata_is_marked_and_decoding_continues_after_it() -> None:
    found = told(join(WANTS[:20]))
    assert [line for line in found if line.startswith("<-- ConsumerProtocolSubscription v3: field ")] != []
    assert found[-2] == "reason: string = null"


@given(st.binary(max_size=60), st.sampled_from(["sticky", "cooperative-sticky", "range"]), st.booleans())
def test_any_metadata_bytes_can_be_printed(data: bytes, assignor: str, whole: bool) -> None:
    inner = Subscription(topics=("t",), user_data=data).encode() if whole else data
    assert told(join(inner, assignor))[-2] == "reason: string = null"
    json.dumps(list(join(inner, assignor).messages()))
