"""Where a claim begins: the committed offset, and the two ends of the log.

* fetchInitialOffset (offset_manager.go, v1.61.1): one OffsetFetch for each partition (M139, and M62 for its
  errors: `kproto.models.sarama.offset_manager` says which are repeated).
* GetOffset (client.go, v1.61.1): ListOffsets with one partition, isolation 0 whatever the consumer's is. Any
  error refreshes the topic's metadata and asks once more.
"""

from __future__ import annotations

from typing import ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from . import errors
from .broker import Answer, Broker
from .client import Client
from .config import key
from .errors import Trouble
from .offset_manager import Managed, Offsets
from .routines import Routine, States, Table, only

_GROUPS_SINCE = 8  # OffsetFetch's groups
_STABLE_SINCE = 7
_REDISCOVER = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_WAIT = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}


class FetchState(States):
    finding = "finding"
    asking = "asking"
    waiting = "waiting"  # between two attempts
    done = "done"


F = FetchState


class CommittedOffset(Routine):
    """fetchInitialOffset: `caller` goes on with "managed" and the partition's offset, or the trouble."""

    __slots__ = ("caller", "offsets", "partition", "retries")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        F.finding: {F.asking, F.done},
        F.asking: {F.finding, F.waiting, F.done},
        F.waiting: {F.finding},
        F.done: set(),
    }

    def __init__(self, offsets: Offsets, caller: Routine, partition: TopicPartition) -> None:
        super().__init__(F.finding)
        self.offsets, self.caller, self.partition = offsets, caller, partition
        self.retries = offsets.client.settings.metadata_retry_max

    def start(self) -> None:
        """The caller goes on into it."""
        self.offsets.coordinator(self)


def _ask(fetch: CommittedOffset, found: Broker | Trouble) -> None:
    if isinstance(found, Trouble):
        if _spent(fetch, found):
            return
        fetch.offsets.coordinator(fetch)
        return
    fetch.move(F.asking)
    found.call(fetch, _request(fetch))


def _request(fetch: CommittedOffset) -> OffsetFetchRequest:
    client = fetch.offsets.client
    settings, version = client.settings, client.version(key(OffsetFetchRequest))
    topic, index = fetch.partition
    stable = settings.consumer_isolation == 1 and version >= _STABLE_SINCE
    if version >= _GROUPS_SINCE:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        groups = [OffsetFetchRequestGroup(group_id=settings.group_id, topics=topics)]
        return OffsetFetchRequest(groups=groups, require_stable=stable)
    return OffsetFetchRequest(
        group_id=settings.group_id,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[index])],
        require_stable=stable,
    )


def _answered(fetch: CommittedOffset, answer: Answer) -> None:
    if not isinstance(answer.response, OffsetFetchResponse):
        if not _spent(fetch, answer.error or errors.INCOMPLETE):
            fetch.offsets.release_coordinator(answer.broker)
            fetch.move(F.finding)
            fetch.offsets.coordinator(fetch)
        return
    found = _block(answer.response, fetch.partition)
    if not isinstance(found, int):
        _finish(fetch, found)
    elif found in _REDISCOVER or found in _WAIT:
        if _spent(fetch, errors.kafka(found)):
            return
        if found in _REDISCOVER:
            fetch.offsets.release_coordinator(answer.broker)
        fetch.move(F.waiting)
        client = fetch.offsets.client
        client.sleep(fetch, client.now + client.settings.metadata_retry_backoff)
    else:
        _finish(fetch, errors.kafka(found))


def _block(response: OffsetFetchResponse, partition: TopicPartition) -> Managed | Trouble | int:
    """What is committed, or the error code; a group's error counts where there is no partition."""
    group = response.groups[0] if response.groups else response
    for topic in group.topics:
        for one in topic.partitions:
            if (topic.name, one.partition_index) == partition:
                if one.error_code:
                    return one.error_code
                return Managed(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
    return group.error_code or errors.INCOMPLETE


def _spent(fetch: CommittedOffset, trouble: Trouble) -> bool:
    """Whether there is no retry left; it is the end then."""
    if fetch.retries <= 0:
        _finish(fetch, trouble)
        return True
    fetch.retries -= 1
    return False


def _waited(fetch: CommittedOffset, what: object) -> None:
    fetch.move(F.finding)
    fetch.offsets.coordinator(fetch)


def _finish(fetch: CommittedOffset, found: Managed | Trouble) -> None:
    fetch.move(F.done)
    fetch.offsets.client.resume(fetch.caller, "managed", found)


CommittedOffset.TABLE = {
    "coordinator": only(F, finding=_ask),
    "answered": only(F, asking=_answered),
    "elapsed": only(F, waiting=_waited),
}


# -- the ends of the log


class QueryState(States):
    leading = "leading"  # the topic's metadata is refreshed, as it has no leader
    asking = "asking"
    refreshing = "refreshing"  # after an error, for the second attempt
    done = "done"


Q = QueryState


class LogOffset(Routine):
    """GetOffset: `caller` goes on with "offset" and the offset, or the trouble."""

    __slots__ = ("caller", "client", "partition", "second", "timestamp")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        Q.leading: {Q.asking, Q.refreshing, Q.done},
        Q.asking: {Q.refreshing, Q.done},
        Q.refreshing: {Q.leading, Q.done},
        Q.done: set(),
    }

    def __init__(self, client: Client, caller: Routine, partition: TopicPartition, timestamp: int) -> None:
        super().__init__(Q.leading)
        self.client, self.caller, self.partition, self.timestamp = client, caller, partition, timestamp
        self.second = False

    def start(self) -> None:
        """The caller goes on into it."""
        if isinstance(self.client.metadata.leader(*self.partition), Trouble):
            self.client.metadata.want(self, (self.partition.topic,))
        else:
            _list(self)


def _led(query: LogOffset, trouble: Trouble | None) -> None:
    if trouble is None:
        _list(query)
    else:
        _failed(query, trouble)


def _list(query: LogOffset) -> None:
    leader = query.client.metadata.leader(*query.partition)
    if isinstance(leader, Trouble):
        _failed(query, leader)
        return
    query.move(Q.asking)
    wanted = ListOffsetsPartition(partition_index=query.partition.partition, timestamp=query.timestamp)
    topics = [ListOffsetsTopic(name=query.partition.topic, partitions=[wanted])]
    leader[0].call(query, ListOffsetsRequest(replica_id=-1, topics=topics))


def _listed(query: LogOffset, answer: Answer) -> None:
    response = answer.response
    if not isinstance(response, ListOffsetsResponse):
        answer.broker.close()
        _failed(query, answer.error or errors.INCOMPLETE)
        return
    for topic in response.topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) == query.partition:
                if partition.error_code:
                    _failed(query, errors.kafka(partition.error_code))
                else:
                    _found(query, partition.offset)
                return
    answer.broker.close()
    _failed(query, errors.INCOMPLETE)


def _failed(query: LogOffset, trouble: Trouble) -> None:
    if query.second:
        _found(query, trouble)
        return
    query.second = True
    query.move(Q.refreshing)
    query.client.metadata.want(query, (query.partition.topic,))


def _refreshed(query: LogOffset, trouble: Trouble | None) -> None:
    if trouble is not None:
        _found(query, trouble)
        return
    query.move(Q.leading)
    query.start()


def _found(query: LogOffset, found: int | Trouble) -> None:
    query.move(Q.done)
    query.client.resume(query.caller, "offset", found)


LogOffset.TABLE = {
    "refreshed": only(Q, leading=_led, refreshing=_refreshed),
    "answered": only(Q, asking=_listed),
}
