"""sarama-cluster's Consumer: its main loop, which runs cycles (consumer.go, nextTick, v2.1.15).

* A cycle is one membership, from one join to the next. First it refreshes all metadata and the coordinator,
  and releases the consumed partitions (stop, pause, commit). Then it joins, syncs and starts the heartbeats.

* After SyncGroup, the cycle fetches all offsets in one request and opens all partitions together. It starts
  the topic watcher and the commit loop, and waits until any of its loops ends (M68).

* All partitions are released before each join.

* JoinGroup v0 offers range and roundrobin. The leader uses its own configured strategy, not the one that the
  coordinator selected. Each topic is assigned separately.

* UNKNOWN_MEMBER_ID from JoinGroup resets the member id.

* The member leaves the group after errors of SyncGroup other than REBALANCE_IN_PROGRESS, and after any error
  of OffsetFetch or of opening a partition. It keeps its member id, so the next JoinGroup fails with
  UNKNOWN_MEMBER_ID.

* An error ends the cycle, and is reported unless it is REBALANCE_IN_PROGRESS. The next cycle starts after
  Metadata.Retry.Backoff. JoinGroup, SyncGroup and OffsetFetch are not retried.

* Each cycle sends the notification "rebalance start" with the current partitions. It then sends "rebalance
  OK" with the claimed, released and current partitions or, after an error, "rebalance error".

* The topic watcher does not notice new partitions of a subscribed topic (see `loops`).
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...group.subscription import Assignment, TopicPartition
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ...wire.message import Message
from ..common import offset_fetch_request, parse_offset_fetch
from ..sarama import errors
from ..sarama.config import api_key
from ..sarama.errors import GoError
from ..sarama.offset_manager import PartitionOffset
from ..sarama.routines import row
from . import balancer, consumer_close
from .consumer_state import ClusterConsumer, ClusterConsumerState
from .coordinator_requests import CoordinatorRequest, Release
from .loops import CommitLoop, HeartbeatLoop, WatchLoop
from .partitions import ClusterPartition

__all__ = ["ClusterConsumer"]

S = ClusterConsumerState


def _on_connected(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None and error.code != ErrorCode.LEADER_NOT_AVAILABLE:
        consumer.client.report(error)
        consumer_close.close(consumer)
        return
    consumer.client.start_updater()
    consumer.move(S.IDLE)
    _create_consumer(consumer)


def _create_consumer(consumer: ClusterConsumer) -> None:
    """Create a Consumer for the requested topics (NewConsumer); without requested topics, stay IDLE.

    If the application has closed the client (`finished`), finish closing the client instead of creating a
    Consumer.
    """
    consumer.dying = False
    if consumer.finished:
        consumer_close.close(consumer)
    elif consumer.requested_topics is not None:
        consumer.core_topics = tuple(sorted(consumer.requested_topics))
        consumer.requested_topics = None
        consumer.member_id, consumer.generation = "", 0
        consumer.move(S.CREATING)
        consumer.client.coordinator.look_up(consumer)


def _on_topics_requested(consumer: ClusterConsumer, payload: object) -> None:
    _create_consumer(consumer)


def _on_created(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None:
        consumer.client.report(error)
        consumer.move(S.IDLE)
        _create_consumer(consumer)
        return
    _start_next_cycle(consumer)


# One cycle


def _start_next_cycle(consumer: ClusterConsumer) -> None:
    """Start the next cycle. If the Consumer is being closed, release its partitions instead."""
    if consumer.dying:
        consumer.move(S.CLOSING)
        Release(consumer, consumer).start()
        return
    consumer.previous = frozenset(consumer.partitions)
    consumer.notified, consumer.error = False, None
    consumer.move(S.REFRESHING)
    consumer.client.metadata.request_refresh(consumer, ())


def _on_refreshed(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None:
        consumer_close.fail_cycle(consumer, error)
        return
    consumer.move(S.FINDING_COORDINATOR)
    consumer.client.coordinator.look_up(consumer)


def _on_coordinator_found(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None:
        consumer_close.fail_cycle(consumer, error)
        return
    consumer.move(S.RELEASING)
    Release(consumer, consumer).start()


def _on_released(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None:
        consumer_close.fail_cycle(consumer, error)
        return
    consumer.notify("rebalance start")
    if consumer.previous:
        consumer.application.run_callback("revoked", tuple(sorted(consumer.previous)), None)
    consumer.notified = True
    consumer.extra_topics = tuple(consumer.potential_topics())
    _send_join(consumer)


def _send_join(consumer: ClusterConsumer) -> None:
    settings = consumer.client.settings
    metadata = balancer.subscription((*consumer.core_topics, *consumer.extra_topics))
    consumer.move(S.JOINING)
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.group_session_timeout,
        member_id=consumer.member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in balancer.STRATEGIES],
    )
    CoordinatorRequest(consumer, consumer, request).start()


def _on_joined(consumer: ClusterConsumer, result: Message | GoError) -> None:
    if isinstance(result, GoError):
        if result.code == ErrorCode.UNKNOWN_MEMBER_ID:
            consumer.member_id = ""
        consumer_close.fail_cycle(consumer, result)
        return
    assert isinstance(result, JoinGroupResponse)
    consumer.joined = result
    if result.leader != result.member_id:
        _send_sync(consumer, {})
    else:
        _make_plan(consumer, None)


def _make_plan(consumer: ClusterConsumer, error: GoError | None) -> None:
    """Assign the partitions as the leader. If a topic is unknown, first refresh its metadata once.
    `error` is the error of the refresh. It is None before the refresh, and if the refresh succeeded.
    """
    metadata, joined = consumer.client.metadata, consumer.joined
    assert joined is not None
    members = balancer.read_members(joined)
    unknown_topics = [topic for topic in balancer.topics_of(members) if not metadata.partitions(topic)]
    if error is not None:
        consumer_close.fail_cycle(consumer, error)
    elif unknown_topics and consumer.state is S.REFRESHING_TOPICS:
        consumer_close.fail_cycle(consumer, errors.UNKNOWN_TOPIC)
    elif unknown_topics:
        consumer.move(S.REFRESHING_TOPICS)
        metadata.request_refresh(consumer, unknown_topics[:1])
    else:
        counts = {topic: len(metadata.partitions(topic)) for topic in balancer.topics_of(members)}
        _send_sync(consumer, balancer.assign_partitions(consumer.client.strategy, members, counts))


def _send_sync(consumer: ClusterConsumer, assignments: dict[str, list[TopicPartition]]) -> None:
    joined = consumer.joined
    assert joined is not None
    consumer.member_id, consumer.generation = joined.member_id, joined.generation_id
    consumer.move(S.SYNCING)
    request = SyncGroupRequest(
        group_id=consumer.client.settings.group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=Assignment(partitions=tuple(partitions)).encode(0)
            )
            for member_id, partitions in assignments.items()
        ],
    )
    CoordinatorRequest(consumer, consumer, request).start()


def _on_synced(consumer: ClusterConsumer, result: Message | GoError) -> None:
    if isinstance(result, GoError):
        if result.code == ErrorCode.REBALANCE_IN_PROGRESS:
            consumer_close.fail_cycle(consumer, result)
        else:
            consumer_close.leave_with_error(consumer, result)
        return
    assert isinstance(result, SyncGroupResponse)
    claims = sorted(Assignment.decode(result.assignment).partitions)
    consumer.partitions = {
        claim: ClusterPartition(consumer, claim, PartitionOffset(-1, -1, "")) for claim in claims
    }
    consumer.loops = [HeartbeatLoop(consumer, consumer.client.settings.group_heartbeat_interval)]
    consumer.move(S.FETCHING)
    version = consumer.client.version(api_key(OffsetFetchRequest))
    request = offset_fetch_request(consumer.client.settings.group_id, claims, version, stable=False)
    CoordinatorRequest(consumer, consumer, request).start()


def _on_offsets_fetched(consumer: ClusterConsumer, result: Message | GoError) -> None:
    if isinstance(result, GoError):
        _leave_without_partitions(consumer, result)
        return
    assert isinstance(result, OffsetFetchResponse)
    _, offsets = parse_offset_fetch(result)
    claims, consumer.partitions = list(consumer.partitions), {}
    for partition in claims:
        committed = offsets.get(partition)
        if committed is None or committed.error:
            _leave_without_partitions(
                consumer, errors.INCOMPLETE if committed is None else errors.kafka(committed.error)
            )
            return
        consumer.partitions[partition] = ClusterPartition(
            consumer, partition, PartitionOffset(committed.offset, -1, "")
        )
    consumer.unopened_count = len(claims)
    if not claims:
        _start_consuming(consumer)
        return
    consumer.move(S.OPENING)
    for claimed in list(consumer.partitions.values()):
        claimed.start()


def _leave_without_partitions(consumer: ClusterConsumer, error: GoError) -> None:
    consumer.partitions = {}
    consumer_close.leave_with_error(consumer, error)


def _on_all_opened(consumer: ClusterConsumer, payload: object) -> None:
    """Start to consume, or release the open partitions if at least one partition failed to open."""
    if consumer.error is not None:
        consumer.move(S.DROPPING)
        Release(consumer, consumer).start()
    else:
        _start_consuming(consumer)


def _start_consuming(consumer: ClusterConsumer) -> None:
    settings, claims = consumer.client.settings, tuple(consumer.partitions)
    consumer.notify("rebalance OK", claims)
    if not consumer.dying:
        consumer.application.run_callback("assigned", claims, None)
    consumer.move(S.CONSUMING)
    if settings.metadata_refresh_frequency:
        consumer.loops.append(WatchLoop(consumer, max(settings.metadata_refresh_frequency // 2, 1)))
    consumer.loops.append(CommitLoop(consumer, settings.offsets_auto_commit_interval))
    _check_loops(consumer, None)


def _check_loops(consumer: ClusterConsumer, payload: object) -> None:
    """End the cycle if the Consumer is closing, no heartbeat loop runs, or a partition is closed."""
    has_heartbeat_loop = any(isinstance(loop, HeartbeatLoop) for loop in consumer.loops)
    has_closed_partition = any(partition.is_closed for partition in consumer.partitions.values())
    if consumer.dying or not has_heartbeat_loop or has_closed_partition:
        consumer.wind_up()


def _check_wound_up(consumer: ClusterConsumer, payload: object) -> None:
    if not consumer.loops:
        _start_next_cycle(consumer)


ClusterConsumer.TABLE = {
    "topics_requested": row(S, IDLE=_on_topics_requested),
    "metadata_refreshed": row(
        S, CONNECTING=_on_connected, REFRESHING=_on_refreshed, REFRESHING_TOPICS=_make_plan
    ),
    "coordinator_found": row(S, CREATING=_on_created, FINDING_COORDINATOR=_on_coordinator_found),
    "released": row(
        S,
        RELEASING=_on_released,
        DROPPING=consumer_close.on_dropped,
        CLOSING=consumer_close.on_released_for_close,
    ),
    "response": row(
        S,
        JOINING=_on_joined,
        SYNCING=_on_synced,
        FETCHING=_on_offsets_fetched,
        LEAVING_AFTER_ERROR=consumer_close.on_left_after_error,
        LEAVING=consumer_close.on_left,
    ),
    "partition_opened": row(S, OPENING=_on_all_opened),
    "check": row(
        S, CONSUMING=_check_loops, WINDING_UP=_check_wound_up, BACKING_OFF=consumer_close.check_dying
    ),
    "timer_elapsed": row(S, BACKING_OFF=consumer_close.on_backoff_elapsed),
}
