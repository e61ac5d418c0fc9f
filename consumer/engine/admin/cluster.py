"""Plans about the cluster itself: its metadata, its coordinators, and any one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

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
from ..network.connection import Prepared
from ..requests import coordinator_of, coordinator_request, metadata_request
from .plan import PATIENCE, Ask, Plan, Rest, expect, try_again

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def read_metadata(
    view: ClusterView, topics: Iterable[str] | None, clock: Callable[[], int]
) -> Plan[ClusterView]:
    """Asks any broker; every known address is tried before this fails."""
    wanted = None if topics is None else list(topics)
    while True:
        [call] = yield [Ask(metadata_request(wanted))]
        answer = expect(MetadataResponse, call)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            view.brokers = {}  # KIP-1102: the bootstrap addresses are asked next
            yield Rest(f"Metadata was answered with {describe(answer.error_code)}")
        elif not answer.brokers:
            yield Rest(f"the broker at {call.address} lists no brokers yet")
        else:
            view.update(answer, clock(), version=call.version, everything=wanted is None)
            return view


def know_topics(view: ClusterView, topics: Iterable[str], clock: Callable[[], int]) -> Plan[None]:
    """Waits until every topic is known with a leader for each partition; UnknownTopic after some looks."""
    wanted = sorted(set(topics))
    for look in count():
        missing = [name for name in wanted if not is_complete(view, name)]
        if not missing:
            return
        # What was said at another time is not believed: perhaps the right was given since.
        denied = [
            (name, known.error_code)
            for name in missing
            if look and (known := view.topics.get(name)) is not None
        ]
        for name, code in denied:
            if action_for(METADATA, code) is ErrorAction.RAISE:
                raise broker_error(code, "Metadata", f"topic {name!r}")
            if code == UNKNOWN and look >= PATIENCE:
                raise broker_error(code, "Metadata", f"topic {name!r} doesn't exist on this cluster")
        if look:
            yield Rest(f"topic {missing[0]!r} has no leader for all of its partitions")
        yield from read_metadata(view, wanted, clock)


def is_complete(view: ClusterView, name: str) -> bool:
    """True when the topic exists and each of its partitions has a leader."""
    topic = view.topics.get(name)
    if topic is None or topic.error_code or not topic.partitions:
        return False
    return all(view.leader(TopicPartition(name, index)) is not None for index in topic.partitions)


def know_partitions(
    view: ClusterView, partitions: Iterable[TopicPartition], clock: Callable[[], int]
) -> Plan[None]:
    """Like `know_topics`, and every partition exists."""
    wanted = list(partitions)
    yield from know_topics(view, (partition.topic for partition in wanted), clock)
    for partition in wanted:
        if view.partition(partition) is None:
            yield from read_metadata(view, [partition.topic], clock)
        if view.partition(partition) is None:
            count = len(view.topics[partition.topic].partitions)
            detail = f"{partition.topic}-{partition.partition}: the topic has {count} partitions"
            raise broker_error(UNKNOWN, "Metadata", detail)


def partitions_of(view: ClusterView, topic: str, clock: Callable[[], int]) -> Plan[list[TopicPartition]]:
    """The topic's partitions, in order, as they are now."""
    yield from read_metadata(view, [topic], clock)
    yield from know_topics(view, [topic], clock)
    return [TopicPartition(topic, index) for index in sorted(view.topics[topic].partitions)]


def leader_of(view: ClusterView, partition: TopicPartition, clock: Callable[[], int]) -> Plan[int]:
    """The node id of the partition's leader, as it is now: who heard that one leads no more told nobody."""
    yield from read_metadata(view, [partition.topic], clock)
    yield from know_partitions(view, [partition], clock)
    leader = view.leader(partition)
    if leader is None:
        raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, "Metadata", str(partition))
    return leader


def find_coordinator(view: ClusterView, group: str, clock: Callable[[], int], key_type: int = 0) -> Plan[int]:
    """The node id of the group's coordinator, with its address known."""
    while True:
        [call] = yield [Ask(coordinator_request(group, key_type))]
        answer = expect(FindCoordinatorResponse, call)
        found = coordinator_of(answer, call.version)
        if isinstance(found, BrokerAddress):
            view.set_address(found.id, found.host, found.port)
            if found.id in view.brokers:
                return found.id
            yield Rest(f"broker {found.id} coordinates group {group!r}, but nobody says where it is")
        else:
            code, words = found
            detail = f"{'group' if key_type == 0 else 'transactional id'} {group!r}"
            yield try_again(
                FIND_COORDINATOR, code, "FindCoordinator", f"{detail}: {words}" if words else detail
            )


# ---- one request, with the retries that make sense for it


Route = int | tuple[str, str] | tuple[str, str, int] | str | None


def request(
    view: ClusterView, message: Message | Prepared, route: Route, clock: Callable[[], int]
) -> Plan[tuple[Message, int]]:
    """Sends one request where `route` says; returns (response, version). Lost connections are not retried."""
    node: int | None = None
    if isinstance(route, int):
        node = route
        if node not in view.brokers:
            yield from read_metadata(view, [], clock)
    elif route == "controller":
        yield from read_metadata(view, [], clock)
        node = view.controller
    elif isinstance(route, tuple) and len(route) == 2 and route[0] == "group":
        node = yield from find_coordinator(view, route[1], clock)
    elif isinstance(route, tuple) and len(route) == 3 and route[0] == "leader":
        node = yield from leader_of(view, TopicPartition(route[1], route[2]), clock)
    elif route is not None:
        raise ConfigError(
            "node", route, 'None, a node id, "controller", ("group", name) or ("leader", topic, partition)'
        )
    [call] = yield [Ask(message, node=node)]
    if node is not None and isinstance(call.error, ConnectionFailed):
        view.brokers.pop(node, None)  # where it is, and who leads in its place, is asked before the next one
    return expect(Message, call), call.version
