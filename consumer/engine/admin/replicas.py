"""Admin operations on replicas: leader elections, partition reassignments and log directories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError
from kproto.group.subscription import TopicPartition
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kproto.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kproto.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kproto.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

from ...errors import broker_error
from ..error_actions import CONTROLLER
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from ..requests import by_topic
from .fanout import Answer, Router, ask_broker, fan_out, for_all, to_controller, to_nodes
from .plan import Plan, expect_response, require_version

ELECTION_TYPES: Final = {"preferred": 0, "unclean": 1}


class PartitionReassignment(msgspec.Struct, frozen=True):
    """A reassignment in progress: node ids of the partition's replicas. Java: PartitionReassignment.

    `replicas` contains all replicas during the reassignment, including those in `adding_replicas` and
    `removing_replicas`.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class TopicPartitionReplica(msgspec.Struct, frozen=True, order=True):
    """The replica of a partition on the broker with the node id `broker`. Java: TopicPartitionReplica."""

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


class ReplicaInfo(msgspec.Struct, frozen=True):
    """A replica in a log directory. Java: ReplicaInfo.

    `size` is in bytes.

    A future replica (`is_future`) is being copied to this directory, and will replace the current replica.

    `offset_lag` is the number of records by which the log is behind the high watermark, or, for a future
    replica, behind the current replica.
    """

    size: int
    offset_lag: int
    is_future: bool = False


class ReplicaLogDirInfo(msgspec.Struct, frozen=True):
    """The log directories of a replica. Java: DescribeReplicaLogDirsResult.ReplicaLogDirInfo.

    The fields of the current directory are None if the broker has no replica of the partition.

    The fields of the future directory are None if the replica is not being moved.

    Both lags are in records, as `ReplicaInfo.offset_lag` defines them.
    """

    current_replica_log_dir: str | None = None
    current_replica_offset_lag: int | None = None
    future_replica_log_dir: str | None = None
    future_replica_offset_lag: int | None = None


class LogDirDescription(msgspec.Struct, frozen=True):
    """A log directory of a broker. Java: LogDirDescription.

    `error` says why a directory is offline.

    `total_bytes` and `usable_bytes` are the total and the usable size of the directory's volume. They are
    None from brokers before 3.3 (KIP-827).
    """

    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: BrokerError | None = None


# ---- elections


def elect_leaders(
    view: ClusterView,
    election_type: str,
    partitions: Collection[TopicPartition],
    clock: Callable[[], int],
    *,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, bool]]:
    """Elect a leader for each partition, and return for each whether an election was needed.

    `election_type` is a key of `ELECTION_TYPES`.
    """

    def request(items: Sequence[TopicPartition]) -> Prepared:
        def build(version: int) -> ElectLeadersRequest:
            topics = [
                TopicPartitions(topic=name, partitions=[p.partition for p in entries])
                for name, entries in by_topic(items).items()
            ]
            if election_type == "unclean":
                require_version("ElectLeaders", version, 1, "2.4", "for an unclean election (KIP-460)")
            return ElectLeadersRequest(
                election_type=ELECTION_TYPES[election_type], topic_partitions=topics, timeout_ms=timeout_ms
            )

        return Prepared(ElectLeadersRequest, build)

    def read(call: Call, items: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, bool]]:
        response = expect_response(ElectLeadersResponse, call)
        if response.error_code:
            yield from for_all(items, response.error_code)
        for topic in response.replica_election_results:
            for entry in topic.partition_result:
                partition = TopicPartition(topic.topic, entry.partition_id)
                if entry.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    yield Answer(partition, False)
                else:
                    yield Answer(partition, True, entry.error_code, entry.error_message)

    router = to_controller(view, clock)
    return (yield from fan_out(partitions, router, "ElectLeaders", CONTROLLER, request, read))


# ---- reassignments


def alter_partition_reassignments(
    view: ClusterView,
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    clock: Callable[[], int],
    *,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, None]]:
    """Start moving each partition to the brokers in `replicas`; the value None cancels its reassignment."""

    def request(items: Sequence[TopicPartition]) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(partition_index=p.partition, replicas=_node_list(replicas[p]))
                        for p in entries
                    ],
                )
                for name, entries in by_topic(items).items()
            ],
        )

    def read(call: Call, items: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, None]]:
        response = expect_response(AlterPartitionReassignmentsResponse, call)
        if response.error_code:
            yield from for_all(items, response.error_code, response.error_message)
        for topic in response.responses:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                yield Answer(partition, None, entry.error_code, entry.error_message)

    router = to_controller(view, clock)
    api = "AlterPartitionReassignments"
    return (yield from fan_out(replicas, router, api, CONTROLLER, request, read))


def _node_list(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def list_partition_reassignments(
    view: ClusterView,
    partitions: Collection[TopicPartition] | None,
    clock: Callable[[], int],
    *,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, PartitionReassignment]]:
    """Return the ongoing reassignments of `partitions` (None: of all partitions)."""

    def read(call: Call) -> tuple[int, str | None, dict[TopicPartition, PartitionReassignment]]:
        response = expect_response(ListPartitionReassignmentsResponse, call)
        reassignments = {
            TopicPartition(topic.name, entry.partition_index): PartitionReassignment(
                tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas)
            )
            for topic in response.topics
            for entry in topic.partitions
        }
        return response.error_code, response.error_message, dict(sorted(reassignments.items()))

    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[p.partition for p in entries])
            for name, entries in by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
    router = to_controller(view, clock)
    return (yield from ask_broker(router, "ListPartitionReassignments", CONTROLLER, request, read))


# ---- log directories


def describe_log_dirs(
    view: ClusterView, brokers: Collection[int], clock: Callable[[], int]
) -> Plan[dict[int, dict[str, LogDirDescription]]]:
    """Return the log directories of each broker: path -> description."""

    def request(nodes: Sequence[int]) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(topics=None)

    def read(call: Call, nodes: Sequence[int]) -> Iterator[Answer[int, dict[str, LogDirDescription]]]:
        response = expect_response(DescribeLogDirsResponse, call)
        code = response.error_code
        if not code and not response.results:
            # Before version 3 of DescribeLogDirs, an empty response means that the client is not authorized
            # to describe the cluster.
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        directories = {result.log_dir: _log_dir_description(result) for result in response.results}
        for node in nodes:
            yield Answer(node, directories, code)

    router: Router[int] = to_nodes(view, clock, lambda node: node)
    name = "broker {}".format
    return (yield from fan_out(brokers, router, "DescribeLogDirs", CONTROLLER, request, read, name=name))


def _log_dir_description(result: DescribeLogDirsResult) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, entry.partition_index): ReplicaInfo(
            entry.partition_size, entry.offset_lag, entry.is_future_key
        )
        for topic in result.topics
        for entry in topic.partitions
    }
    return LogDirDescription(
        replicas,
        result.total_bytes if result.total_bytes >= 0 else None,
        result.usable_bytes if result.usable_bytes >= 0 else None,
        broker_error(result.error_code, "DescribeLogDirs", result.log_dir) if result.error_code else None,
    )


def describe_replica_log_dirs(
    view: ClusterView, replicas: Collection[TopicPartitionReplica], clock: Callable[[], int]
) -> Plan[dict[TopicPartitionReplica, ReplicaLogDirInfo]]:
    """Return the log directories of each replica."""

    def request(items: Sequence[TopicPartitionReplica]) -> DescribeLogDirsRequest:
        partitions = [TopicPartition(item.topic, item.partition) for item in items]
        topics = [
            DescribableLogDirTopic(topic=name, partitions=[p.partition for p in entries])
            for name, entries in by_topic(partitions).items()
        ]
        return DescribeLogDirsRequest(topics=topics)

    def read(
        call: Call, items: Sequence[TopicPartitionReplica]
    ) -> Iterator[Answer[TopicPartitionReplica, ReplicaLogDirInfo]]:
        response = expect_response(DescribeLogDirsResponse, call)
        # As in `describe_log_dirs`, an empty response means that the client is not authorized.
        code = response.error_code or (0 if response.results else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        directories = {result.log_dir: _log_dir_description(result) for result in response.results}
        for item in items:
            info = _replica_log_dirs(TopicPartition(item.topic, item.partition), directories)
            yield Answer(item, info, code)

    router: Router[TopicPartitionReplica] = to_nodes(view, clock, lambda replica: replica.broker)
    return (yield from fan_out(replicas, router, "DescribeLogDirs", CONTROLLER, request, read))


def _replica_log_dirs(
    partition: TopicPartition, directories: Mapping[str, LogDirDescription]
) -> ReplicaLogDirInfo:
    """Return which of a broker's directories (path -> description) contain its replica of the partition."""
    info = ReplicaLogDirInfo()
    for path, directory in directories.items():
        replica = directory.replicas.get(partition)
        if replica is not None and replica.is_future:
            info = msgspec.structs.replace(
                info, future_replica_log_dir=path, future_replica_offset_lag=replica.offset_lag
            )
        elif replica is not None:
            info = msgspec.structs.replace(
                info, current_replica_log_dir=path, current_replica_offset_lag=replica.offset_lag
            )
    return info


def alter_replica_log_dirs(
    view: ClusterView, paths: Mapping[TopicPartitionReplica, str], clock: Callable[[], int]
) -> Plan[dict[TopicPartitionReplica, None]]:
    """Start moving each replica to another log directory of its broker: the path in `paths`."""

    def request(items: Sequence[TopicPartitionReplica]) -> AlterReplicaLogDirsRequest:
        by_path: dict[str, list[TopicPartition]] = {}
        for replica in items:
            partition = TopicPartition(replica.topic, replica.partition)
            by_path.setdefault(paths[replica], []).append(partition)
        return AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=[p.partition for p in entries])
                        for name, entries in by_topic(partitions).items()
                    ],
                )
                for path, partitions in by_path.items()
            ]
        )

    def read(
        call: Call, items: Sequence[TopicPartitionReplica]
    ) -> Iterator[Answer[TopicPartitionReplica, None]]:
        node = items[0].broker  # All items of a request are on the same broker.
        for topic in expect_response(AlterReplicaLogDirsResponse, call).results:
            for entry in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, entry.partition_index, node)
                yield Answer(replica, None, entry.error_code)

    router: Router[TopicPartitionReplica] = to_nodes(view, clock, lambda replica: replica.broker)
    api = "AlterReplicaLogDirs"
    return (yield from fan_out(paths, router, api, CONTROLLER, request, read))
