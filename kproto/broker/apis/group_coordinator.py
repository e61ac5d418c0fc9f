"""All requests to the group coordinator, which answers them itself; what is another node's is refused here.

Rules, as Kafka's GroupCoordinatorService in a cluster:
  * A request for several groups is answered group by group: those of other nodes are NOT_COORDINATOR, and the
    others are done.
  * A node lists its own groups only, and none at all while it still reads some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final

from ...error_codes import ErrorCode
from ...machine import RequestReceived
from ...messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from ...messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ...messages.headers import Envelope
from ...messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ...messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponseGroup
from ...wire.message import Message
from ..broker import Broker
from ..call import PARKED, Call, Result
from ..cluster import refused

OFFSETS_OF_GROUPS_SINCE: Final = 8  # OffsetFetch, KIP-709


def coordinated(broker: Broker, call: Call) -> Result:
    """Pass the request on to the group coordinator; it answers at once or when the group has gathered."""
    if broker.cluster.needs_routing:
        own = _own(broker, call)
        if not isinstance(own, Call):
            return own
        call = own
    event = RequestReceived(
        token=call.conn,
        request=call.envelope.request,
        version=call.version,
        client_id=call.envelope.header.client_id or "",
        client_host=f"/{call.host}",  # as Java writes an InetAddress without a name
        random_id=str(call.random_id),
    )
    broker.step_group_coordinator(event, call.now)
    return PARKED


def _own(broker: Broker, call: Call) -> Call | Message:
    """The call as far as it is for this node, or the refusal."""
    request = call.envelope.request
    if isinstance(request, ListGroupsRequest):
        return _listing(broker, call)
    if isinstance(request, OffsetFetchRequest) and call.version < OFFSETS_OF_GROUPS_SINCE:
        several = None
    else:
        several = _SEVERAL.get(type(request))
    if several is not None:
        return _part(broker, call, *several)
    group_id: Any = getattr(request, "group_id", None)
    why = broker.cluster.coordinator_error(group_id, broker.node.id, call.now)
    return refused(request, why, call.version) if why is not ErrorCode.NONE else call


def _listing(broker: Broker, call: Call) -> Call | Message:
    cluster, here = broker.cluster, broker.node.id
    reading = [name for name, until in cluster.loading.items() if until > call.now]
    if any(cluster.group_coordinator_of(name) == here for name in reading):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])

    def amend(response: Any) -> None:
        response.groups = [
            one for one in response.groups if cluster.group_coordinator_of(one.group_id) == here
        ]

    return _amended(broker, call, call.envelope.request, amend)


def _part(
    broker: Broker, call: Call, asked: str, answers: str, refuse: Callable[[Any, ErrorCode], Any]
) -> Call:
    """Only the groups of this node are asked for; the refusals of the others stand where they were asked."""
    request = copy(call.envelope.request)
    wanted: list[Any] = getattr(request, asked)
    codes = [broker.cluster.coordinator_error(_name(one), broker.node.id, call.now) for one in wanted]
    elsewhere = {_name(one): code for one, code in zip(wanted, codes, strict=True) if code}
    if not elsewhere:
        return call
    setattr(request, asked, [one for one in wanted if _name(one) not in elsewhere])

    def amend(response: Any) -> None:
        getattr(response, answers).extend(refuse(name, code) for name, code in elsewhere.items())

    return _amended(broker, call, request, amend)


def _name(one: Any) -> str:
    return one if isinstance(one, str) else one.group_id


def _amended(broker: Broker, call: Call, request: Message, amend: Callable[[Any], None]) -> Call:
    before = call.amend_response

    def both(response: Message) -> Message:
        amend(response)
        return response if before is None else before(response)

    old = call.envelope
    envelope = Envelope(old.header, old.header_version, request, old.version)
    amended = replace(call, envelope=envelope, amend_response=both)
    connection = broker.connections.get(call.conn)
    if connection is not None:
        connection.current_call = amended
    return amended


def _undescribed(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _undeleted(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)


def _unread(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)


# Requests for several groups: where they name them, where they are answered, and how one is told no.
_SEVERAL: Final[dict[type[Message], tuple[str, str, Callable[[str, ErrorCode], Any]]]] = {
    DescribeGroupsRequest: ("groups", "groups", _undescribed),
    DeleteGroupsRequest: ("groups_names", "results", _undeleted),
    OffsetFetchRequest: ("groups", "groups", _unread),
}
