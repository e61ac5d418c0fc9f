"""The common part of admin operations: each item (a topic, a group, ...) gets its own value or error.

`fan_out` is a plan (see `plan`) that locates the broker of each item. It sends each broker one request for
all of the broker's items, or, with `one_by_one`, one request per item.

The responses contain an error code and a value for each item.

Rules:

* An item is open, has succeeded, or has failed. The error of an item does not affect other items.

* An item stays open and is sent again after a pause if its error is retriable, if the response does not
  contain it, or if the connection broke.

* An item's broker is located again after a lost connection, and after an error code which means that the
  request went to the wrong broker.

* If every item has succeeded, the plan returns the values. Otherwise it raises PartialFailure with all values
  and errors.

* If a lookup fails before any item has a result, the plan raises the lookup's error, such as
  ConnectionFailed, instead of PartialFailure.

* At the deadline, responses that have already arrived are used. The remaining open items fail with
  RequestTimedOut.

Java: AdminApiDriver, with its AdminApiLookupStrategy (here `Router`) and AdminApiHandler (here `request` and
`read`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from kproto.error_codes import ErrorCode, describe
from kproto.errors import KprotoError, PartialFailure
from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import FIND_COORDINATOR, METADATA, ErrorAction, Row, action_for
from ..metadata.cluster import BrokerAddress, ClusterView
from ..network.call import Call, Prepared
from ..requests import coordinator_of, coordinator_request
from .cluster import COORDINATOR_KEYS, read_metadata
from .plan import (
    UNKNOWN_TOPIC_RETRIES,
    Ask,
    DeadlinePassed,
    Plan,
    Rest,
    expect_response,
    failed_without_response,
    pause_for_missing,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

# The result of locating the broker of an item: its node id, None for any broker, an error that fails the
# item, or a `Rest` that postpones the lookup.
Location: TypeAlias = int | KprotoError | Rest | None


class Answer(msgspec.Struct, Generic[K, V]):
    """The part of a response about one item: an error code with the broker's message, or a value."""

    item: K
    value: V
    code: int = 0
    message: str | None = None


class Router(Generic[K]):
    """Finds the broker of each item, for example the coordinator of a group.

    `locate(items)` is a plan that returns the `Location` of each item.

    `forget(item)` is called before the item is located again.
    """

    def __init__(
        self,
        locate: Callable[[Collection[K]], Plan[Mapping[K, Location]]],
        forget: Callable[[K], object] = lambda item: None,
    ) -> None:
        self.locate = locate
        self.forget = forget


# ---- the plan


def fan_out(
    items: Iterable[K],
    router: Router[K],
    api: str,
    row: Row,
    request: Callable[[Sequence[K]], Message | Prepared],
    read: Callable[[Call, Sequence[K]], Iterable[Answer[K, V]]],
    *,
    one_by_one: bool = False,
    executed_code: ErrorCode | None = None,
    max_version: int | None = None,
    name: Callable[[K], str] = str,
) -> Plan[dict[K, V]]:
    """Return the value of each item, in the order of `items`. Raises PartialFailure if an item has failed.

    `request(items)` builds the request to one broker, and `read(call, items)` reads its response. With
    `one_by_one` each request contains one item.

    `executed_code` is the error code for a request that has already been executed. This code counts as
    success if an earlier request for the item got no response, because that request may have been executed.

    `max_version` is the highest API version in which the request may be sent.

    `name(item)` is the name of the item in error messages.
    """
    progress = _Progress(list(dict.fromkeys(items)), router, api, row, read, executed_code, name)
    batches: list[list[K]] = []
    try:
        while progress.open:
            pause_reason = yield from progress.locate_brokers()
            if not progress.open:
                break
            batches = progress.batches(one_by_one)
            calls: Sequence[Call] = ()
            if batches:
                calls = yield [
                    Ask(request(batch), node=progress.nodes[batch[0]], max_version=max_version)
                    for batch in batches
                ]
            for batch, call in zip(batches, calls, strict=True):
                pause_reason = progress.settle(batch, call) or pause_reason
            batches = []
            if progress.open:
                yield Rest(pause_reason)
    except DeadlinePassed as timeout:
        # If `batches` is empty, the plan was waiting for a lookup. The responses to a lookup contain no
        # results of items.
        for batch, call in zip(batches, timeout.calls, strict=False):
            if call.response is not None or call.error is not None:
                progress.settle(batch, call)
        progress.failed.update(dict.fromkeys(progress.open, timeout.error))
    if progress.failed:
        failed = {item: progress.failed[item] for item in progress.items if item in progress.failed}
        raise PartialFailure(api, progress.values(), failed)
    return progress.values()


def single_value(plan: Plan[dict[K, V]]) -> Plan[V]:
    """Return the value of a plan for one item, or raise the item's error if the item has failed."""
    try:
        values = yield from plan
    except PartialFailure as failure:
        [error] = failure.failed.values()
        raise error from None
    [value] = values.values()
    return value


def ask_broker(
    router: Router[str],
    api: str,
    row: Row,
    request: Message | Prepared,
    read: Callable[[Call], tuple[int, str | None, V]],
    *,
    executed_code: ErrorCode | None = None,
) -> Plan[V]:
    """Send one request, and repeat it after retriable errors. Return the value in the response.

    Raises errors that are not retriable, and RequestTimedOut at the plan's deadline.

    `read(call)` returns the error code, the broker's message, and the value. `executed_code` has the same
    meaning as in `fan_out`.
    """

    def read_all(call: Call, items: Sequence[str]) -> Iterator[Answer[str, V]]:
        code, message, value = read(call)
        for item in items:
            yield Answer(item, value, code, message)

    def no_name(item: str) -> str:
        return ""  # The only item stands for the whole request, so errors need not name it.

    items = ["the request"]
    plan = fan_out(
        items, router, api, row, lambda items: request, read_all, executed_code=executed_code, name=no_name
    )
    return (yield from single_value(plan))


class _Progress(Generic[K, V]):
    """The items of one call, such as topics: open (without a result), succeeded and failed."""

    def __init__(
        self,
        items: list[K],
        router: Router[K],
        api: str,
        row: Row,
        read: Callable[[Call, Sequence[K]], Iterable[Answer[K, V]]],
        executed_code: ErrorCode | None,
        name: Callable[[K], str],
    ) -> None:
        self.items = items
        self.open = dict.fromkeys(items)  # The items without a result, in the order of `items`.
        # Item without a result -> its broker, once the broker has been located.
        self.nodes: dict[K, int | None] = {}
        self.succeeded: dict[K, V] = {}
        self.failed: dict[K, KprotoError] = {}
        self._router = router
        self._api = api
        self._row = row
        self._read = read
        self._executed_code = executed_code
        self._name = name
        self._without_response: set[K] = set()  # Items of requests that got no response.
        # Item -> number of responses with UNKNOWN_TOPIC_OR_PARTITION.
        self._unknown_counts: dict[K, int] = {}

    def values(self) -> dict[K, V]:
        return {item: self.succeeded[item] for item in self.items if item in self.succeeded}

    def locate_brokers(self) -> Plan[str]:
        """Locate the broker of each open item whose broker is unknown.

        An item whose lookup fails gets the error of the lookup. If the broker of an item cannot be located
        yet, the result says why, so that the caller repeats the lookup after a pause. Otherwise it is "".
        """
        pause_reason = ""
        unlocated = [item for item in self.open if item not in self.nodes]
        if unlocated:
            try:
                locations = yield from self._router.locate(unlocated)
            except KprotoError as error:
                if len(self.open) == len(self.items):
                    # No item has a result yet, so the plan raises the error of the lookup instead of
                    # PartialFailure.
                    raise
                locations = dict.fromkeys(unlocated, error)
            for item, location in locations.items():
                if isinstance(location, KprotoError):
                    self._fail(item, location)
                elif isinstance(location, Rest):
                    pause_reason = location.why
                else:
                    self.nodes[item] = location
        return pause_reason

    def batches(self, one_by_one: bool) -> list[list[K]]:
        """Return the located items in groups, each for one request to one broker."""
        located = [item for item in self.open if item in self.nodes]
        if one_by_one:
            return [[item] for item in located]
        by_node: dict[int | None, list[K]] = {}
        for item in located:
            by_node.setdefault(self.nodes[item], []).append(item)
        return list(by_node.values())

    def settle(self, batch: Sequence[K], call: Call) -> str:
        """Record the value or error of each item of a request.

        Returns the reason why an item of the request is still open, or "" if each item has a result.
        """
        if failed_without_response(call):
            self._without_response.update(batch)
            for item in batch:
                self._locate_again(item)
            return str(call.error)
        if call.error is not None:
            for item in batch:
                self._fail(item, call.error)
            return ""
        pause_reason = ""
        missing = dict.fromkeys(batch)
        for answer in self._read(call, batch):
            if answer.item in missing:
                del missing[answer.item]
                pause_reason = self._settle_item(answer) or pause_reason
        if missing:
            return pause_for_missing(self._api, self._name(next(iter(missing)))).why
        return pause_reason

    def _settle_item(self, answer: Answer[K, V]) -> str:
        """Record the value or error of one item.

        Returns the reason for which the item must be requested again, or "" if it has succeeded or failed.
        """
        item, code = answer.item, answer.code
        if code == 0 or (code == self._executed_code and item in self._without_response):
            self.open.pop(item, None)
            self.nodes.pop(item, None)
            self.succeeded[item] = answer.value
            return ""
        action = action_for(self._row, code)
        name = self._name(item)
        detail = f"{name}: {answer.message}" if name and answer.message else answer.message or name
        if code == UNKNOWN:
            self._unknown_counts[item] = self._unknown_counts.get(item, 0) + 1
            if self._unknown_counts[item] > UNKNOWN_TOPIC_RETRIES:
                action = ErrorAction.RAISE
        if action in (ErrorAction.REFRESH_METADATA, ErrorAction.FIND_COORDINATOR):
            self._locate_again(item)
        elif action is not ErrorAction.RETRY:
            self._fail(item, broker_error(code, self._api, detail))
            return ""
        request = f"{self._api} for {name}" if name else self._api
        return f"{request} was answered with {describe(code)}"

    def _locate_again(self, item: K) -> None:
        self.nodes.pop(item, None)
        self._router.forget(item)

    def _fail(self, item: K, error: KprotoError) -> None:
        self.open.pop(item, None)
        self.nodes.pop(item, None)
        self.failed[item] = error


# ---- routers


def to_any_broker(view: ClusterView, clock: Callable[[], int]) -> Router[Any]:
    """Send all items to one broker, which the client chooses (Java: LeastLoadedNodeProvider)."""
    forgotten: set[Any] = set()

    def locate(items: Collection[Any]) -> Plan[Mapping[Any, Location]]:
        if not forgotten.isdisjoint(items):
            # After a lost connection, read the metadata before the items are sent again. The read raises an
            # error if no broker responds.
            yield from read_metadata(view, [], clock)
            forgotten.clear()
        return dict.fromkeys(items)  # None stands for any broker.

    return Router(locate, forgotten.add)


def to_controller(view: ClusterView, clock: Callable[[], int]) -> Router[Any]:
    """Send every item to the controller (Java: ControllerNodeProvider).

    If the controller is unknown, the requests are sent to any broker, which forwards them to the controller
    (KIP-590).
    """

    def locate(items: Collection[Any]) -> Plan[Mapping[Any, Location]]:
        if view.controller is None or view.controller not in view.brokers:
            yield from read_metadata(view, [], clock)
        node = view.controller if view.controller in view.brokers else None
        return dict.fromkeys(items, node)

    def forget(item: Any) -> None:
        view.controller = None

    return Router(locate, forget)


def to_nodes(view: ClusterView, clock: Callable[[], int], node_of: Callable[[K], int | None]) -> Router[K]:
    """Send each item to the broker `node_of(item)`; None stands for any broker.

    An item fails if the metadata does not contain its broker (Java: ConstantNodeIdProvider).
    """

    def locate(items: Collection[K]) -> Plan[Mapping[K, Location]]:
        nodes = {item: node_of(item) for item in items}
        if any(node is not None and node not in view.brokers for node in nodes.values()):
            yield from read_metadata(view, [], clock)
        locations: dict[K, Location] = {}
        for item, node in nodes.items():
            locations[item] = node
            if node is not None and node not in view.brokers:
                detail = f"broker {node} is not in the cluster; its brokers are {sorted(view.brokers)}"
                locations[item] = broker_error(ErrorCode.BROKER_ID_NOT_REGISTERED, "Metadata", detail)
        return locations

    def forget(item: K) -> None:
        node = node_of(item)
        if node is not None:
            view.brokers.pop(node, None)

    return Router(locate, forget)


def to_leaders(
    view: ClusterView, clock: Callable[[], int], partition_of: Callable[[K], TopicPartition]
) -> Router[K]:
    """Send every item to the leader of its partition (Java: PartitionLeaderStrategy).

    An item fails if `UNKNOWN_TOPIC_RETRIES` Metadata responses report its topic as unknown or do not list its
    partition. After any other error that is not retriable, such as TOPIC_AUTHORIZATION_FAILED, the item
    fails immediately.
    """
    unknown_counts: dict[K, int] = {}  # Item -> number of Metadata responses without its partition.

    def locate(items: Collection[K]) -> Plan[Mapping[K, Location]]:
        if any(view.leader(partition_of(item)) is None for item in items):
            yield from read_metadata(view, sorted({partition_of(item).topic for item in items}), clock)
        return {item: locate_leader(item) for item in items}

    def locate_leader(item: K) -> Location:
        partition = partition_of(item)
        leader = view.leader(partition)
        if leader is not None:
            return leader
        topic = view.topics.get(partition.topic)
        code = topic.error_code if topic is not None else UNKNOWN
        detail = f"topic {partition.topic!r}"
        if (
            topic is not None
            and not code
            and topic.partitions
            and partition.partition not in topic.partitions
        ):
            code = UNKNOWN
            detail = f"{partition}: the topic has {len(topic.partitions)} partitions"
        if code == UNKNOWN:
            unknown_counts[item] = unknown_counts.get(item, 0) + 1
            if unknown_counts[item] >= UNKNOWN_TOPIC_RETRIES:
                return broker_error(code, "Metadata", detail)
        elif action_for(METADATA, code) is ErrorAction.RAISE:
            return broker_error(code, "Metadata", detail)
        return Rest(f"{partition} has no leader")

    return Router(locate, lambda item: view.forget_leader(partition_of(item)))


def to_coordinators(view: ClusterView, key_type: int, key_of: Callable[[K], str] = str) -> Router[K]:
    """Send every item to the coordinator of `key_of(item)` (Java: CoordinatorStrategy).

    `key_type` is an index of `COORDINATOR_KEYS`. The lookups of several keys are sent together.
    """

    def locate(items: Collection[K]) -> Plan[Mapping[K, Location]]:
        keys = list(dict.fromkeys(key_of(item) for item in items))
        calls = yield [Ask(coordinator_request(key, key_type)) for key in keys]
        locations = {key: read_location(key, call) for key, call in zip(keys, calls, strict=True)}
        return {item: locations[key_of(item)] for item in items}

    def read_location(key: str, call: Call) -> Location:
        """Return the coordinator's location, and add its address to `view`."""
        detail = f"{COORDINATOR_KEYS[key_type]} {key!r}"
        if failed_without_response(call):
            return Rest(str(call.error))
        if call.error is not None:
            return call.error
        address = coordinator_of(expect_response(FindCoordinatorResponse, call), call.version)
        if isinstance(address, BrokerAddress):
            view.set_address(address.id, address.host, address.port)
            if address.id in view.brokers:
                return address.id
            return Rest(f"broker {address.id} coordinates {detail}, but its address is unknown")
        code, message = address
        if action_for(FIND_COORDINATOR, code) is ErrorAction.RAISE:
            return broker_error(code, "FindCoordinator", f"{detail}: {message}" if message else detail)
        return Rest(f"FindCoordinator for {detail} was answered with {describe(code)}")

    return Router(locate)


def for_all(items: Sequence[K], code: int, message: str | None = None) -> Iterator[Answer[K, Any]]:
    """Yield the same answer for each item, from a response with one error code for the whole request."""
    for item in items:
        yield Answer(item, None, code, message)
