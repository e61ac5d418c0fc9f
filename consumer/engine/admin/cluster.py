"""Admin operations that read the cluster's metadata, look up coordinators, and send any single request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from kproto.error_codes import ErrorCode, describe
from kproto.errors import ConfigError, ConnectionFailed
from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.metadata import MetadataResponse
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import (
    FIND_COORDINATOR,
    METADATA,
    ErrorAction,
    action_for,
)
from ..metadata.cluster import BrokerAddress, ClusterView
from ..network.call import Prepared
from ..requests import ROUTES, coordinator_of, coordinator_request, metadata_request
from .plan import (
    UNKNOWN_TOPIC_RETRIES,
    Ask,
    Plan,
    Rest,
    expect_response,
    pause_after_error,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def read_metadata(
    view: ClusterView, topics: Iterable[str] | None, clock: Callable[[], int]
) -> Plan[ClusterView]:
    """Update `view` with the metadata of `topics` (None: of all topics) from any broker, and return `view`.

    The plan tries every known address before it fails.
    """
    topic_names = None if topics is None else list(topics)
    while True:
        [call] = yield [Ask(metadata_request(topic_names))]
        response = expect_response(MetadataResponse, call)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            # KIP-1102: the broker asks the client to rebootstrap, that is, to use the bootstrap addresses
            # again.
            view.brokers = {}
            yield Rest(f"Metadata was answered with {describe(response.error_code)}")
        elif not response.brokers:
            yield Rest(f"the broker at {call.address} lists no brokers yet")
        else:
            view.update(response, clock(), version=call.version, everything=topic_names is None)
            return view


def await_topics(view: ClusterView, topics: Iterable[str], clock: Callable[[], int]) -> Plan[None]:
    """Wait until every topic has a leader for each partition.

    The plan requests the metadata of an unknown topic `UNKNOWN_TOPIC_RETRIES` times, and then raises
    UnknownTopic.
    """
    names = sorted(set(topics))
    for attempt in count():
        missing = [name for name in names if not is_complete(view, name)]
        if not missing:
            return
        # Only an error in a response to this plan's own request is raised. An earlier error may be outdated.
        reported_codes = [
            (name, topic.error_code)
            for name in missing
            if attempt and (topic := view.topics.get(name)) is not None
        ]
        for name, code in reported_codes:
            if action_for(METADATA, code) is ErrorAction.RAISE:
                raise broker_error(code, "Metadata", f"topic {name!r}")
            if code == UNKNOWN and attempt >= UNKNOWN_TOPIC_RETRIES:
                raise broker_error(code, "Metadata", f"topic {name!r} does not exist in this cluster")
        if attempt:
            yield Rest(f"some partitions of topic {missing[0]!r} have no leader")
        yield from read_metadata(view, names, clock)


def is_complete(view: ClusterView, name: str) -> bool:
    """Return whether the topic exists and each of its partitions has a leader."""
    topic = view.topics.get(name)
    if topic is None or topic.error_code or not topic.partitions:
        return False
    return all(view.leader(TopicPartition(name, index)) is not None for index in topic.partitions)


def await_partitions(
    view: ClusterView, partitions: Iterable[TopicPartition], clock: Callable[[], int]
) -> Plan[None]:
    """Wait for the topics of these partitions, as `await_topics` does.

    Raises UnknownTopic if one of the partitions does not exist.
    """
    required_partitions = list(partitions)
    yield from await_topics(view, (partition.topic for partition in required_partitions), clock)
    for partition in required_partitions:
        if view.partition(partition) is None:
            yield from read_metadata(view, [partition.topic], clock)
        if view.partition(partition) is None:
            partition_count = len(view.topics[partition.topic].partitions)
            detail = f"{partition.topic}-{partition.partition}: the topic has {partition_count} partitions"
            raise broker_error(UNKNOWN, "Metadata", detail)


def partitions_of(view: ClusterView, topic: str, clock: Callable[[], int]) -> Plan[list[TopicPartition]]:
    """Return the partitions of a topic, in ascending order, according to fresh metadata."""
    yield from read_metadata(view, [topic], clock)
    yield from await_topics(view, [topic], clock)
    return [TopicPartition(topic, index) for index in sorted(view.topics[topic].partitions)]


def leader_of(view: ClusterView, partition: TopicPartition, clock: Callable[[], int]) -> Plan[int]:
    """Return the node id of the partition's leader, according to fresh metadata."""
    yield from read_metadata(view, [partition.topic], clock)
    yield from await_partitions(view, [partition], clock)
    leader = view.leader(partition)
    if leader is None:
        raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, "Metadata", str(partition))
    return leader


# The kinds of keys that have a coordinator. The index is the key type of FindCoordinator. The key of a
# share-partition is "GROUP:TOPIC_ID:PARTITION" (KIP-932).
COORDINATOR_KEYS: Final = ("group", "transactional id", "share-partition")


def find_coordinator(view: ClusterView, key: str, clock: Callable[[], int], key_type: int = 0) -> Plan[int]:
    """Look up a coordinator, add its address to `view`, and return its node id.

    `key_type` is FindCoordinator's key type, an index of `COORDINATOR_KEYS`.
    """
    detail = f"{COORDINATOR_KEYS[key_type]} {key!r}"
    while True:
        [call] = yield [Ask(coordinator_request(key, key_type))]
        response = expect_response(FindCoordinatorResponse, call)
        address_or_error = coordinator_of(response, call.version)
        if isinstance(address_or_error, BrokerAddress):
            address = address_or_error
            view.set_address(address.id, address.host, address.port)
            if address.id in view.brokers:
                return address.id
            yield Rest(f"broker {address.id} coordinates {detail}, but its address is unknown")
        else:
            code, message = address_or_error
            yield pause_after_error(
                FIND_COORDINATOR, code, "FindCoordinator", f"{detail}: {message}" if message else detail
            )


# The first element of each route to a coordinator, indexed by FindCoordinator's key type.
_COORDINATOR_ROUTES: Final = ("group", "transaction", "share")
Route = int | tuple[str, str] | tuple[str, str, int] | str | None


def request(
    view: ClusterView, message: Message | Prepared, route: Route, clock: Callable[[], int]
) -> Plan[tuple[Message, int]]:
    """Send one request to the broker that `route` names; return (response, version).

    `ROUTES` in `requests.py` lists the routes. If `route` is None, the request goes to any broker.

    If the connection breaks, the plan raises the error without a retry, because the broker may have executed
    the request.
    """
    node: int | None = None
    if isinstance(route, int):
        node = route
        if node not in view.brokers:
            yield from read_metadata(view, [], clock)
    elif route == "controller":
        yield from read_metadata(view, [], clock)
        node = view.controller
    elif isinstance(route, tuple) and len(route) == 2 and route[0] in _COORDINATOR_ROUTES:
        node = yield from find_coordinator(view, route[1], clock, _COORDINATOR_ROUTES.index(route[0]))
    elif isinstance(route, tuple) and len(route) == 3 and route[0] == "leader":
        node = yield from leader_of(view, TopicPartition(route[1], route[2]), clock)
    elif route is not None:
        raise ConfigError("node", route, ROUTES)
    [call] = yield [Ask(message, node=node)]
    if node is not None and isinstance(call.error, ConnectionFailed):
        # The broker's address and the leaders may have changed. The broker is removed from the view, so that
        # the next plan for this broker requests the metadata first.
        view.brokers.pop(node, None)
    return expect_response(Message, call), call.version
