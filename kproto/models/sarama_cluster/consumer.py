"""sarama-cluster's Consumer: its main loop, one cycle after the other (consumer.go, nextTick, v2.1.15).

* A cycle: refresh all metadata and the coordinator, release what was consumed (stop, dwell, commit), join,
  sync, start the heartbeats, fetch all offsets in one request, open all partitions at once, then the topic
  watcher and the commits; and wait until any of its loops ends (M68). Everything is let go before each join.
* JoinGroup v0 offers range and roundrobin; which of them divides is the leader's own option, and the strategy
  that the group chose does not matter. Each topic for itself; range rounds its borders.
* JoinGroup's UNKNOWN_MEMBER_ID forgets the member id. SyncGroup errors but REBALANCE_IN_PROGRESS, and any
  error of OffsetFetch or of opening a partition, leave the group; the id is kept all the same, and the next
  JoinGroup is refused with it.
* An error ends the cycle: it is told (but not REBALANCE_IN_PROGRESS), and the next cycle begins after
  Metadata.Retry.Backoff. There is no other retry.
* Notifications: start (with what was current), then OK (claimed, released, current) or error.
* Growth of a topic is not seen (`loops`).
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
from ..sarama.config import key
from ..sarama.errors import Trouble
from ..sarama.offset_manager import Managed
from ..sarama.routines import only
from . import balancer, consumer_close
from .consumer_state import Consumer, ConsumerState
from .coordinator_requests import Ask, Release
from .loops import CommitLoop, HeartbeatLoop, WatchLoop
from .partitions import Partition

__all__ = ["Consumer"]

S = ConsumerState


def _connected(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None and trouble.code != ErrorCode.LEADER_NOT_AVAILABLE:
        consumer.client.report(trouble)
        consumer_close.close(consumer)
        return
    consumer.client.keep_fresh()
    consumer.move(S.idle)
    _create(consumer)


def _create(consumer: Consumer) -> None:
    """NewConsumer."""
    consumer.dying = False
    if consumer.finished:
        consumer_close.close(consumer)
    elif consumer.wanted is not None:
        consumer.core = tuple(sorted(consumer.wanted))
        consumer.wanted = None
        consumer.member_id, consumer.generation = "", 0
        consumer.move(S.creating)
        consumer.client.coordinator.look_up(consumer)


def _wanted(consumer: Consumer, what: object) -> None:
    _create(consumer)


def _created(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None:
        consumer.client.report(trouble)
        consumer.move(S.idle)
        _create(consumer)
        return
    _next_cycle(consumer)


# One cycle


def _next_cycle(consumer: Consumer) -> None:
    if consumer.dying:
        consumer.move(S.closing)
        Release(consumer, consumer).start()
        return
    consumer.before = frozenset(consumer.partitions)
    consumer.notified, consumer.trouble = False, None
    consumer.move(S.refreshing)
    consumer.client.metadata.want(consumer, ())


def _refreshed(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None:
        consumer_close.failed(consumer, trouble)
        return
    consumer.move(S.finding)
    consumer.client.coordinator.look_up(consumer)


def _found(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None:
        consumer_close.failed(consumer, trouble)
        return
    consumer.move(S.releasing)
    Release(consumer, consumer).start()


def _released(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None:
        consumer_close.failed(consumer, trouble)
        return
    consumer.notify("rebalance start")
    if consumer.before:
        consumer.application.tell("revoked", tuple(sorted(consumer.before)), None)
    consumer.notified = True
    consumer.extra = tuple(consumer.potential_topics())
    settings = consumer.client.settings
    metadata = balancer.subscription((*consumer.core, *consumer.extra))
    consumer.move(S.joining)
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.group_session_timeout,
        member_id=consumer.member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in balancer.STRATEGIES],
    )
    Ask(consumer, consumer, request).start()


def _joined(consumer: Consumer, found: Message | Trouble) -> None:
    if isinstance(found, Trouble):
        if found.code == ErrorCode.UNKNOWN_MEMBER_ID:
            consumer.member_id = ""
        consumer_close.failed(consumer, found)
        return
    assert isinstance(found, JoinGroupResponse)
    consumer.joined = found
    if found.leader != found.member_id:
        _sync(consumer, {})
    else:
        _plan(consumer, None)


def _plan(consumer: Consumer, trouble: Trouble | None) -> None:
    metadata, joined = consumer.client.metadata, consumer.joined
    assert joined is not None
    members = balancer.read_members(joined)
    unknown = [topic for topic in balancer.topics_of(members) if not metadata.partitions(topic)]
    if trouble is not None:
        consumer_close.failed(consumer, trouble)
    elif unknown and consumer.state is S.learning:
        consumer_close.failed(consumer, errors.UNKNOWN_TOPIC)
    elif unknown:
        consumer.move(S.learning)
        metadata.want(consumer, unknown[:1])
    else:
        counts = {topic: len(metadata.partitions(topic)) for topic in balancer.topics_of(members)}
        _sync(consumer, balancer.divide(consumer.client.strategy, members, counts))


def _sync(consumer: Consumer, assignments: dict[str, list[TopicPartition]]) -> None:
    joined = consumer.joined
    assert joined is not None
    consumer.member_id, consumer.generation = joined.member_id, joined.generation_id
    consumer.move(S.syncing)
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
    Ask(consumer, consumer, request).start()


def _synced(consumer: Consumer, found: Message | Trouble) -> None:
    if isinstance(found, Trouble):
        if found.code == ErrorCode.REBALANCE_IN_PROGRESS:
            consumer_close.failed(consumer, found)
        else:
            consumer_close.quit(consumer, found)
        return
    assert isinstance(found, SyncGroupResponse)
    claims = sorted(Assignment.decode(found.assignment).partitions)
    consumer.partitions = {claim: Partition(consumer, claim, Managed(-1, -1, "")) for claim in claims}
    consumer.loops = [HeartbeatLoop(consumer, consumer.client.settings.group_heartbeat_interval)]
    consumer.move(S.fetching)
    version = consumer.client.version(key(OffsetFetchRequest))
    request = offset_fetch_request(consumer.client.settings.group_id, claims, version, stable=False)
    Ask(consumer, consumer, request).start()


def _fetched(consumer: Consumer, found: Message | Trouble) -> None:
    if isinstance(found, Trouble):
        _forget(consumer, found)
        return
    assert isinstance(found, OffsetFetchResponse)
    offsets = parse_offset_fetch(found)[1]
    claims, consumer.partitions = list(consumer.partitions), {}
    for partition in claims:
        one = offsets.get(partition)
        if one is None or one.error:
            _forget(consumer, errors.INCOMPLETE if one is None else errors.kafka(one.error))
            return
        consumer.partitions[partition] = Partition(consumer, partition, Managed(one.offset, -1, ""))
    consumer.unopened = len(claims)
    if not claims:
        _consume(consumer)
        return
    consumer.move(S.opening)
    for one_partition in list(consumer.partitions.values()):
        one_partition.start()


def _forget(consumer: Consumer, trouble: Trouble) -> None:
    consumer.partitions = {}
    consumer_close.quit(consumer, trouble)


def _opened(consumer: Consumer, what: object) -> None:
    if consumer.trouble is not None:
        consumer.move(S.dropping)
        Release(consumer, consumer).start()
    else:
        _consume(consumer)


def _consume(consumer: Consumer) -> None:
    settings, claims = consumer.client.settings, tuple(consumer.partitions)
    consumer.notify("rebalance OK", claims)
    if not consumer.dying:
        consumer.application.tell("assigned", claims, None)
    consumer.move(S.consuming)
    if settings.metadata_refresh_frequency:
        consumer.loops.append(WatchLoop(consumer, max(settings.metadata_refresh_frequency // 2, 1)))
    consumer.loops.append(CommitLoop(consumer, settings.offsets_auto_commit_interval))
    _look(consumer, None)


def _look(consumer: Consumer, what: object) -> None:
    """A loop may have ended before the cycle began to wait for that."""
    heartbeats = any(isinstance(loop, HeartbeatLoop) for loop in consumer.loops)
    closed = any(partition.is_closed for partition in consumer.partitions.values())
    if consumer.dying or not heartbeats or closed:
        consumer.wind_up()


def _wound_up(consumer: Consumer, what: object) -> None:
    if not consumer.loops:
        _next_cycle(consumer)


Consumer.TABLE = {
    "wanted": only(S, idle=_wanted),
    "refreshed": only(S, connecting=_connected, refreshing=_refreshed, learning=_plan),
    "found": only(S, creating=_created, finding=_found),
    "released": only(
        S, releasing=_released, dropping=consumer_close.dropped, closing=consumer_close.closing_released
    ),
    "asked": only(
        S,
        joining=_joined,
        syncing=_synced,
        fetching=_fetched,
        quitting=consumer_close.has_quit,
        leaving=consumer_close.left,
    ),
    "opened": only(S, opening=_opened),
    "look": only(S, consuming=_look, winding_up=_wound_up, backing_off=consumer_close.look_backing_off),
    "elapsed": only(S, backing_off=consumer_close.backed_off),
}
