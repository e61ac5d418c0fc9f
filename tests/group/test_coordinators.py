"""The coordinators of all group types act as a single coordinator for the broker."""

from __future__ import annotations

import pytest

from kproto.broker.apis.table import APIS
from kproto.broker.topics import Topics
from kproto.error_codes import ErrorCode
from kproto.group.coordinators import GroupCoordinators
from kproto.group.protocol import GroupCoordinator
from kproto.group.settings import GroupSettings
from kproto.machine import RequestReceived, SendResponse
from kproto.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.metadata import MetadataRequest


@pytest.fixture
def coordinators() -> GroupCoordinators:
    return GroupCoordinators(GroupSettings(), Topics())


def test_the_coordinators_of_all_types_are_one_coordinator(coordinators: GroupCoordinators) -> None:
    combined: GroupCoordinator = coordinators
    assert combined.group_ids() == []
    assert combined.next_deadline() is None
    assert combined.hand_over("missing", 0) == []
    assert not combined.has_pending_offsets("missing", 7)


def test_the_broker_has_an_api_for_every_request_of_a_coordinator(coordinators: GroupCoordinators) -> None:
    assert {*coordinators.requests} <= {api.request for api in APIS.values()}


def test_a_request_that_no_type_serves_raises_type_error(coordinators: GroupCoordinators) -> None:
    request = MetadataRequest(topics=[])
    with pytest.raises(TypeError, match="MetadataRequest is not a request of a group coordinator"):
        coordinators.error_response(request, ErrorCode.NOT_COORDINATOR, 0)
    with pytest.raises(TypeError, match="MetadataRequest is not a request of a group coordinator"):
        coordinators.step(RequestReceived("token", request, 1), 0)


def test_a_description_of_no_group_is_answered(coordinators: GroupCoordinators) -> None:
    request = DescribeGroupsRequest(groups=[])
    (action,) = coordinators.step(RequestReceived("token", request, 5), 0)
    assert isinstance(action, SendResponse)
    assert action.token == "token"
    assert action.response == DescribeGroupsResponse(groups=[])


def test_a_description_of_several_groups_is_one_response_in_their_order(
    coordinators: GroupCoordinators,
) -> None:
    request = DescribeGroupsRequest(groups=["b", "a", "b"])
    (action,) = coordinators.step(RequestReceived("token", request, 5), 0)
    assert isinstance(action, SendResponse)
    assert [group.group_id for group in action.response.groups] == ["b", "a", "b"]  # type: ignore[attr-defined]
