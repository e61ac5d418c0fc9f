"""What `kproto.testing.strategies` draws is valid, reaches the corners, and shrinks to something small."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from kproto.errors import UnsupportedVersion
from kproto.messages import index
from kproto.messages.fetch import FetchRequest, FetchResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.testing.strategies import from_message, versioned

ENOUGH = settings(max_examples=1000, database=None, deadline=None)
NO_SHRINKING = settings(ENOUGH, phases=[Phase.generate])


@given(st.sampled_from(index.names()), st.data())
def test_what_is_drawn_encodes_and_comes_back_equal(name: str, data: st.DataObject) -> None:
    cls = index.message_class(name)
    version, message = data.draw(versioned(cls, unknown_tags=True))
    assert cls.decode(message.encode(version), version) == message


def test_the_smallest_example_is_nearly_empty() -> None:
    smallest = find(from_message(JoinGroupRequest, 9), lambda request: True, settings=ENOUGH)
    assert smallest == JoinGroupRequest(
        group_id="",
        session_timeout_ms=0,
        rebalance_timeout_ms=0,
        member_id="",
        protocol_type="",
        protocols=[],
    )


def test_an_example_shrinks_to_what_matters() -> None:
    def has_a_protocol(request: JoinGroupRequest) -> bool:
        return len(request.protocols) > 0

    found = find(from_message(JoinGroupRequest, 9), has_a_protocol, settings=ENOUGH)
    assert found.protocols == [JoinGroupRequestProtocol(name="", metadata=b"")]


@pytest.mark.parametrize(
    "corner",
    [
        lambda request: request.group_instance_id is not None,
        lambda request: request.session_timeout_ms < 0,
        lambda request: len(request.group_id.encode()) > 127,
        lambda request: len(request.protocols) > 1,
        lambda request: bool(request.__unknown_tags__),
        lambda request: any(protocol.__unknown_tags__ for protocol in request.protocols),
    ],
)
def test_corners_are_reached(corner: Any) -> None:
    assert find(from_message(JoinGroupRequest, 9, unknown_tags=True), corner, settings=NO_SHRINKING)


def test_a_tagged_struct_is_sometimes_set() -> None:
    def is_set(request: FetchRequest) -> bool:
        return request.replica_state.replica_id != -1

    assert find(from_message(FetchRequest, 18), is_set, settings=NO_SHRINKING)


@given(from_message(JoinGroupRequest, 4, unknown_tags=True))
def test_fields_that_the_version_lacks_keep_their_defaults(request: JoinGroupRequest) -> None:
    assert (request.reason, request.group_instance_id) == (None, None)
    assert request.__unknown_tags__ == {}


@given(from_message(FetchResponse, 13, unknown_tags=True))
def test_unknown_tags_are_none_that_the_message_knows(response: FetchResponse) -> None:
    assert 0 not in response.__unknown_tags__


def test_the_newest_version_is_drawn_by_default() -> None:
    assert find(
        from_message(JoinGroupRequest), lambda request: request.reason is not None, settings=NO_SHRINKING
    )


def test_a_version_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        from_message(JoinGroupRequest, 10)
