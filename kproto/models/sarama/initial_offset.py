"""The offset at which a claim starts: the committed offset, or the start or end of the log.

* fetchInitialOffset (offset_manager.go, v1.61.1): one OffsetFetch for each partition.
  `kproto.models.sarama.offset_manager` lists the errors that are retried (M62).

* GetOffset (client.go, v1.61.1): ListOffsets with one partition, always at isolation level 0. After any error
  the topic's metadata is refreshed, and the request is repeated once.
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
from .broker import BrokerResponse, SaramaBroker
from .client import SaramaClient
from .config import api_key
from .errors import GoError
from .offset_manager import OffsetManager, PartitionOffset
from .routines import Routine, States, Table, row

_GROUPS_SINCE = 8  # OffsetFetch's groups
_STABLE_SINCE = 7  # OffsetFetch's require_stable
_COORDINATOR_LOST = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_NOT_READY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}


class CommittedOffsetState(States):
    FINDING_COORDINATOR = "finding_coordinator"
    REQUESTING = "requesting"
    WAITING = "waiting"  # The request waits for the backoff between two attempts.
    DONE = "done"


F = CommittedOffsetState


class InitialOffsetFetch(Routine):
    """One call of fetchInitialOffset. `caller` then resumes with "offset_fetched" and either the partition's
    offset or the error.
    """

    __slots__ = ("caller", "offsets", "partition", "retries")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        F.FINDING_COORDINATOR: {F.REQUESTING, F.DONE},
        F.REQUESTING: {F.FINDING_COORDINATOR, F.WAITING, F.DONE},
        F.WAITING: {F.FINDING_COORDINATOR},
        F.DONE: set(),
    }

    def __init__(self, offsets: OffsetManager, caller: Routine, partition: TopicPartition) -> None:
        super().__init__(F.FINDING_COORDINATOR)
        self.offsets, self.caller, self.partition = offsets, caller, partition
        self.retries = offsets.client.settings.metadata_retry_max

    def start(self) -> None:
        """Start the request, which runs in the caller's goroutine."""
        self.offsets.find_coordinator(self)


def _on_coordinator(fetch: InitialOffsetFetch, coordinator: SaramaBroker | GoError) -> None:
    if isinstance(coordinator, GoError):
        if _use_retry(fetch, coordinator):
            fetch.offsets.find_coordinator(fetch)
        return
    fetch.move(F.REQUESTING)
    coordinator.call(fetch, _build_request(fetch))


def _build_request(fetch: InitialOffsetFetch) -> OffsetFetchRequest:
    client = fetch.offsets.client
    settings, version = client.settings, client.version(api_key(OffsetFetchRequest))
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


def _on_response(fetch: InitialOffsetFetch, broker_response: BrokerResponse) -> None:
    if not isinstance(broker_response.response, OffsetFetchResponse):
        if _use_retry(fetch, broker_response.error or errors.INCOMPLETE):
            fetch.offsets.release_coordinator(broker_response.broker)
            fetch.move(F.FINDING_COORDINATOR)
            fetch.offsets.find_coordinator(fetch)
        return
    result = _read_response(broker_response.response, fetch.partition)
    if not isinstance(result, int):
        _finish(fetch, result)
    elif result in _COORDINATOR_LOST or result in _NOT_READY:
        if not _use_retry(fetch, errors.kafka(result)):
            return
        if result in _COORDINATOR_LOST:
            fetch.offsets.release_coordinator(broker_response.broker)
        fetch.move(F.WAITING)
        client = fetch.offsets.client
        client.sleep(fetch, client.now + client.settings.metadata_retry_backoff)
    else:
        _finish(fetch, errors.kafka(result))


def _read_response(
    response: OffsetFetchResponse, partition: TopicPartition
) -> PartitionOffset | GoError | int:
    """Return the partition's committed offset or error code. If the partition is missing, return the
    group's error code, or INCOMPLETE if the group has no error.
    """
    group = response.groups[0] if response.groups else response
    for topic in group.topics:
        for block in topic.partitions:
            if (topic.name, block.partition_index) == partition:
                if block.error_code:
                    return block.error_code
                return PartitionOffset(
                    block.committed_offset, block.committed_leader_epoch, block.metadata or ""
                )
    return group.error_code or errors.INCOMPLETE


def _use_retry(fetch: InitialOffsetFetch, error: GoError) -> bool:
    """Count one retry and return True. If no retry is left, finish with the error and return False."""
    if fetch.retries <= 0:
        _finish(fetch, error)
        return False
    fetch.retries -= 1
    return True


def _on_backoff_elapsed(fetch: InitialOffsetFetch, payload: object) -> None:
    fetch.move(F.FINDING_COORDINATOR)
    fetch.offsets.find_coordinator(fetch)


def _finish(fetch: InitialOffsetFetch, result: PartitionOffset | GoError) -> None:
    fetch.move(F.DONE)
    fetch.offsets.client.resume(fetch.caller, "offset_fetched", result)


InitialOffsetFetch.TABLE = {
    "coordinator": row(F, FINDING_COORDINATOR=_on_coordinator),
    "response": row(F, REQUESTING=_on_response),
    "timer_elapsed": row(F, WAITING=_on_backoff_elapsed),
}


# -- the start and the end of the log


class LogOffsetState(States):
    # GetOffset refreshes the topic's metadata, because the leader is unknown.
    FINDING_LEADER = "finding_leader"
    REQUESTING = "requesting"
    # The first attempt has failed. Before the second attempt, GetOffset refreshes the topic's metadata.
    REFRESHING = "refreshing"
    DONE = "done"


Q = LogOffsetState


class LogOffset(Routine):
    """One call of GetOffset. `caller` resumes with "offset_listed" and either the offset or the error."""

    __slots__ = ("caller", "client", "is_retry", "partition", "timestamp")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        Q.FINDING_LEADER: {Q.REQUESTING, Q.REFRESHING, Q.DONE},
        Q.REQUESTING: {Q.REFRESHING, Q.DONE},
        Q.REFRESHING: {Q.FINDING_LEADER, Q.DONE},
        Q.DONE: set(),
    }

    def __init__(
        self, client: SaramaClient, caller: Routine, partition: TopicPartition, timestamp: int
    ) -> None:
        super().__init__(Q.FINDING_LEADER)
        self.client, self.caller, self.partition, self.timestamp = client, caller, partition, timestamp
        self.is_retry = False

    def start(self) -> None:
        """Start the request, which runs in the caller's goroutine."""
        if isinstance(self.client.metadata.leader(*self.partition), GoError):
            self.client.metadata.request_refresh(self, (self.partition.topic,))
        else:
            _send_list_offsets(self)


def _on_leader_refreshed(query: LogOffset, error: GoError | None) -> None:
    if error is None:
        _send_list_offsets(query)
    else:
        _retry_or_fail(query, error)


def _send_list_offsets(query: LogOffset) -> None:
    leader = query.client.metadata.leader(*query.partition)
    if isinstance(leader, GoError):
        _retry_or_fail(query, leader)
        return
    query.move(Q.REQUESTING)
    partition_request = ListOffsetsPartition(
        partition_index=query.partition.partition, timestamp=query.timestamp
    )
    topics = [ListOffsetsTopic(name=query.partition.topic, partitions=[partition_request])]
    broker, _ = leader
    broker.call(query, ListOffsetsRequest(replica_id=-1, topics=topics))


def _on_list_offsets(query: LogOffset, broker_response: BrokerResponse) -> None:
    response = broker_response.response
    if not isinstance(response, ListOffsetsResponse):
        broker_response.broker.close()
        _retry_or_fail(query, broker_response.error or errors.INCOMPLETE)
        return
    for topic in response.topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) == query.partition:
                if partition.error_code:
                    _retry_or_fail(query, errors.kafka(partition.error_code))
                else:
                    _finish_query(query, partition.offset)
                return
    broker_response.broker.close()
    _retry_or_fail(query, errors.INCOMPLETE)


def _retry_or_fail(query: LogOffset, error: GoError) -> None:
    """Refresh the metadata and retry after the first error; return a second error to the caller."""
    if query.is_retry:
        _finish_query(query, error)
        return
    query.is_retry = True
    query.move(Q.REFRESHING)
    query.client.metadata.request_refresh(query, (query.partition.topic,))


def _on_refreshed_after_error(query: LogOffset, error: GoError | None) -> None:
    if error is not None:
        _finish_query(query, error)
        return
    query.move(Q.FINDING_LEADER)
    query.start()


def _finish_query(query: LogOffset, result: int | GoError) -> None:
    query.move(Q.DONE)
    query.client.resume(query.caller, "offset_listed", result)


LogOffset.TABLE = {
    "metadata_refreshed": row(Q, FINDING_LEADER=_on_leader_refreshed, REFRESHING=_on_refreshed_after_error),
    "response": row(Q, REQUESTING=_on_list_offsets),
}
