"""The types of groups that the embedded broker coordinates, registered under Kafka's names for them.

    coordinator = GroupCoordinators(GroupSettings(), topics)
    actions = coordinator.step(RequestReceived(token, JoinGroupRequest(...), version, ...), now)

To add a type of group, register the factory of its coordinator in `COORDINATORS`. No other module lists the
types.

`GroupCoordinators` passes each event to the coordinators that it concerns.

Rules, as in Kafka's GroupMetadataManager:

* A group id belongs to one type of group, whose coordinator receives the requests for the group. If this
  coordinator does not serve a request, the response is GROUP_ID_NOT_FOUND.

* A request for a group that does not exist goes to the first registered coordinator that serves it. So the
  first request for a group determines the group's type.

* A request for several groups is divided by the types of the groups, and the responses are merged.
  Coordinators must answer such requests in the step that receives them.

* ListGroups returns the groups of all types.

* The coordinator of a type stores the committed offsets of its groups, and serves OffsetCommit,
  TxnOffsetCommit, OffsetFetch and OffsetDelete for them. The classic coordinator does so in
  `classic/coordinator/offsets.py`.

* A second type of group could use the functions that store and look up offsets if they were moved to
  `kproto/group/offsets.py`.

* These functions need only the attributes `offsets`, `pending_transactions` and `written` of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeAlias, cast

from msgspec import structs

from ..deadlines import earliest
from ..error_codes import ErrorCode
from ..machine import RequestReceived, SendResponse
from ..messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ..messages.describe_groups import DescribeGroupsRequest
from ..messages.list_groups import ListGroupsRequest
from ..messages.offset_fetch import OffsetFetchRequest
from ..wire.message import Message
from .classic.coordinator import ClassicCoordinator
from .protocol import (
    CoordinatorAction,
    CoordinatorEvent,
    GroupCoordinator,
    GroupDescription,
    GroupRequest,
    TopicCatalog,
)
from .settings import GroupSettings
from .subscription import TopicPartition

CoordinatorFactory: TypeAlias = Callable[[GroupSettings, TopicCatalog], GroupCoordinator]

COORDINATORS: dict[str, CoordinatorFactory] = {
    "classic": ClassicCoordinator,
}

# A coordinator, and the part of a request that it receives.
_Part: TypeAlias = tuple[GroupCoordinator, Any]


class GroupCoordinators:
    """The coordinators of all types of groups, which the broker drives as one `GroupCoordinator`."""

    def __init__(self, settings: GroupSettings, topics: TopicCatalog) -> None:
        """Create one coordinator of each type in `COORDINATORS`."""
        self.by_type: Final = {name: create(settings, topics) for name, create in COORDINATORS.items()}

    @property
    def requests(self) -> Collection[type[Message]]:
        """The request classes that `step` serves."""
        return {request for coordinator in self.by_type.values() for request in coordinator.requests}

    def step(self, event: CoordinatorEvent, now: int) -> list[CoordinatorAction]:
        """Apply one event and return the actions to perform, in order.

        Raises TypeError for a request that no coordinator serves.
        """
        if not isinstance(event, RequestReceived):
            return [
                action for coordinator in self.by_type.values() for action in coordinator.step(event, now)
            ]
        parts = self._divide_request(event.request)
        if parts is None:
            return self._step_for_one_group(event, now)
        return _step_and_merge(event, parts, now)

    def next_deadline(self) -> int | None:
        """Return the time at which a `Tick` is due, or None if no deadline is set."""
        return earliest(*(coordinator.next_deadline() for coordinator in self.by_type.values()))

    def group_ids(self) -> Collection[str]:
        """Return the ids of the groups of all types, including groups that have offsets but no members."""
        return [group_id for coordinator in self.by_type.values() for group_id in coordinator.group_ids()]

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as it is now, or None if it does not exist."""
        coordinator = self._coordinator_of(group_id)
        return None if coordinator is None else coordinator.describe(group_id)

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the group's committed offset for a partition, or None if no offset is committed."""
        coordinator = self._coordinator_of(group_id)
        return None if coordinator is None else coordinator.committed_offset(group_id, partition)

    def has_pending_offsets(self, group_id: str, producer_id: int) -> bool:
        """Return whether the producer's open transaction contains offsets of the group."""
        coordinator = self._coordinator_of(group_id)
        return coordinator is not None and coordinator.has_pending_offsets(group_id, producer_id)

    def hand_over(self, group_id: str, ready_at: int) -> list[SendResponse]:
        """Answer the group's delayed requests with NOT_COORDINATOR, because another broker takes over."""
        coordinator = self._coordinator_of(group_id)
        return [] if coordinator is None else coordinator.hand_over(group_id, ready_at)

    def error_response(self, request: Message, code: ErrorCode, version: int) -> Message:
        """Return a response that only reports this error. `request` must be of a class in `requests`."""
        return self._default_coordinator(type(request)).error_response(request, code, version)

    def _coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        """Return the coordinator of the group, or None if the group does not exist."""
        for coordinator in self.by_type.values():
            if group_id in coordinator.group_ids():
                return coordinator
        return None

    def _default_coordinator(self, request: type[Message]) -> GroupCoordinator:
        """Return the first coordinator that serves requests of this class."""
        for coordinator in self.by_type.values():
            if request in coordinator.requests:
                return coordinator
        raise TypeError(
            f"{request.__name__} is not a request of a group coordinator; see `requests` of each coordinator"
        )

    def _step_for_one_group(self, event: RequestReceived[Message], now: int) -> list[CoordinatorAction]:
        """Pass a request about one group to the group's coordinator.

        If the group does not exist, the first coordinator that implements the request receives it.
        """
        request = event.request
        default_coordinator = self._default_coordinator(type(request))
        coordinator = self._coordinator_of(cast("GroupRequest", request).group_id)
        if coordinator is None:
            return default_coordinator.step(event, now)
        if type(request) in coordinator.requests:
            return coordinator.step(event, now)
        error = default_coordinator.error_response(request, ErrorCode.GROUP_ID_NOT_FOUND, event.version)
        return [SendResponse(event.token, error)]

    def _divide_request(self, request: Message) -> list[_Part] | None:
        """Return the parts of a request about several groups, or None for a request about one group."""
        match request:
            case ListGroupsRequest():
                return [
                    (coordinator, request)
                    for coordinator in self.by_type.values()
                    if ListGroupsRequest in coordinator.requests
                ]
            case DescribeGroupsRequest():
                return self._parts_by_coordinator(
                    request, "groups", zip(request.groups, request.groups, strict=True)
                )
            case DeleteGroupsRequest():
                names = request.groups_names
                return self._parts_by_coordinator(request, "groups_names", zip(names, names, strict=True))
            case OffsetFetchRequest(groups=[_, *_]):  # Since v8 of OffsetFetch.
                return self._parts_by_coordinator(
                    request, "groups", [(entry.group_id, entry) for entry in request.groups]
                )
            case _:
                return None

    def _parts_by_coordinator(
        self, request: Message, field_name: str, entries: Iterable[tuple[str, object]]
    ) -> list[_Part]:
        """Divide a request about several groups among the coordinators of the groups.

        `field_name` is the field with the groups. Each entry of `entries` is a pair: a group id, and
        the group's element in this field.
        """
        default_coordinator = self._default_coordinator(type(request))
        # Maps the `id` of a coordinator to the coordinator and the entries of the groups that it coordinates.
        entries_by_id: dict[int, tuple[GroupCoordinator, list[object]]] = {}
        for group_id, entry in entries:
            coordinator = self._coordinator_of(group_id)
            if coordinator is None or type(request) not in coordinator.requests:
                coordinator = default_coordinator
            entries_by_id.setdefault(id(coordinator), (coordinator, []))[1].append(entry)
        if not entries_by_id:
            return [(default_coordinator, request)]
        message: Any = request
        return [
            (coordinator, structs.replace(message, **{field_name: part_entries}))
            for coordinator, part_entries in entries_by_id.values()
        ]


def _step_and_merge(event: RequestReceived[Message], parts: list[_Part], now: int) -> list[CoordinatorAction]:
    """Pass each part of a request to its coordinator, and merge the results into the first response."""
    actions: list[CoordinatorAction] = []
    results: list[Any] | None = None
    for coordinator, request in parts:
        for action in coordinator.step(structs.replace(event, request=request), now):
            if not isinstance(action, SendResponse) or action.token != event.token:
                actions.append(action)
            elif results is None:
                actions.append(action)
                results = _group_results(action.response)
            else:
                results.extend(_group_results(action.response))
    return actions


def _group_results(response: Any) -> list[Any]:
    """Return the results of a response: a list with one element for each group."""
    results: list[Any] = response.results if isinstance(response, DeleteGroupsResponse) else response.groups
    return results
