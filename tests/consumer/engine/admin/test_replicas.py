"""Replicas in the admin API: elections, reassignments and log directories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer import (
    Admin,
    PartitionReassignment,
    Producer,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartition,
    TopicPartitionReplica,
)
from consumer.engine.admin import replicas as plans
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, NotAuthorized, PartialFailure, UnknownTopic
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kproto.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kproto.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kproto.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.consumer.engine.admin.stage import asks_of, clock, cluster_of, play, view_of

P0, P1, MISSING = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("missing", 0)
REPLICA_0, REPLICA_1, OTHER_REPLICA_0 = (
    TopicPartitionReplica("t", *place) for place in ((0, 1), (1, 1), (0, 2))
)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}) as server:
        yield server


# ---- elections


def test_an_election_that_is_not_needed_is_no_failure(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        assert admin.elect_leaders("preferred", [P0, P1]) == {P0: False, P1: False}
        with pytest.raises(PartialFailure) as caught:
            admin.elect_leaders("preferred", [P0, MISSING])
        assert caught.value.succeeded == {P0: False}
        assert isinstance(caught.value.failed[MISSING], UnknownTopic)


def test_an_election_is_sent_to_the_next_controller_after_not_controller() -> None:
    plan = plans.elect_leaders(view_of(1), "unclean", [P0], clock, timeout_ms=5)
    wrong = ElectLeadersResponse(
        throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, replica_election_results=[]
    )
    entry = PartitionResult(partition_id=0, error_code=0, error_message=None)
    right = ElectLeadersResponse(
        throttle_time_ms=0,
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=[entry])],
    )
    result, log = play(plan, wrong, cluster_of(1), right)
    assert result == {P0: True}
    assert log[-2:] == ["Metadata", "ElectLeaders"]


def test_another_election_type_is_rejected_before_a_request() -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match="'preferred', 'unclean'"):
        admin.elect_leaders("any", [P0])


# ---- reassignments


def test_no_reassignment_is_in_progress_on_the_embedded_broker(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments([P0]) == {}


def test_reassignments_in_progress_are_returned_by_partition() -> None:
    entry = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
    )
    response = ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        topics=[OngoingTopicReassignment(name="t", partitions=[entry])],
    )
    plan = plans.list_partition_reassignments(view_of(1), None, clock, timeout_ms=5)
    assert play(plan, response)[0] == {P0: PartitionReassignment((1, 2, 3), (3,), (1,))}


def test_a_reassignment_that_cannot_be_cancelled_does_not_affect_the_others() -> None:
    results = [
        ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        for index, code, message in ((0, 0, None), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "none"))
    ]
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        responses=[ReassignableTopicResponse(name="t", partitions=results)],
    )
    plan = plans.alter_partition_reassignments(view_of(1), {P0: [2, 3], P1: None}, clock, timeout_ms=5)
    with pytest.raises(PartialFailure, match="NO_REASSIGNMENT_IN_PROGRESS") as caught:
        play(plan, response)
    assert caught.value.succeeded == {P0: None}


def test_the_replicas_of_a_reassignment_are_sent_to_the_controller() -> None:
    plan = plans.alter_partition_reassignments(view_of(1), {P0: (2, 3), P1: None}, clock, timeout_ms=5)
    [ask] = asks_of(plan)
    assert ask.node == 1
    assert isinstance(ask.request, AlterPartitionReassignmentsRequest)
    [topic] = ask.request.topics
    assert [entry.replicas for entry in topic.partitions] == [[2, 3], None]


# ---- log directories


def test_a_log_directory_has_the_sizes_of_its_replicas(server: Server) -> None:
    with Producer(server.bootstrap) as producer:
        producer.send("t", b"x", partition=0)
    with Admin(server.bootstrap) as admin:
        [node] = admin.metadata().brokers
        [description] = admin.describe_log_dirs([node])[node].values()
        assert description.error is None
        assert description.replicas[P0].size > 0
        assert description.replicas[P1] == ReplicaInfo(0, 0)


def test_an_unknown_broker_does_not_hide_the_log_directories_of_the_others(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        [node] = admin.metadata().brokers
        with pytest.raises(PartialFailure, match="broker 77 is not in the cluster") as caught:
            admin.describe_log_dirs([node, 77])
        assert caught.value.succeeded.keys() == {node}


def test_an_offline_log_directory_has_an_error() -> None:
    result = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/a", topics=[])
    plan = plans.describe_log_dirs(view_of(1), [2], clock)
    described, _ = play(plan, DescribeLogDirsResponse(throttle_time_ms=0, results=[result]))
    assert isinstance(described[2]["/a"].error, BrokerError)
    assert described[2]["/a"].total_bytes is None


def test_a_response_without_log_directories_means_a_missing_permission() -> None:
    plan = plans.describe_log_dirs(view_of(1), [2], clock)
    with pytest.raises(PartialFailure) as caught:
        play(plan, DescribeLogDirsResponse(throttle_time_ms=0, results=[]))
    assert isinstance(caught.value.failed[2], NotAuthorized)


def test_replicas_move_to_log_directories_of_their_brokers() -> None:
    paths = {REPLICA_0: "/a", REPLICA_1: "/b", OTHER_REPLICA_0: "/a"}
    plan = plans.alter_replica_log_dirs(view_of(1, 1), paths, clock)
    asks = asks_of(plan)
    assert [ask.node for ask in asks] == [1, 2]
    assert isinstance(asks[0].request, AlterReplicaLogDirsRequest)
    assert [entry.path for entry in asks[0].request.dirs] == ["/a", "/b"]


def test_a_replica_that_cannot_move_is_named_with_its_broker() -> None:
    result = AlterReplicaLogDirPartitionResult(partition_index=0, error_code=ErrorCode.LOG_DIR_NOT_FOUND)
    response = AlterReplicaLogDirsResponse(
        throttle_time_ms=0, results=[AlterReplicaLogDirTopicResult(topic_name="t", partitions=[result])]
    )
    plan = plans.alter_replica_log_dirs(view_of(1), {REPLICA_0: "/a"}, clock)
    with pytest.raises(PartialFailure, match=r"items: AlterReplicaLogDirs: LOG_DIR_NOT_FOUND \(57\): t-0 on"):
        play(plan, response)


def test_the_log_directories_of_a_replica_are_found() -> None:
    def entry(directory: str, *, future: bool, lag: int) -> DescribeLogDirsResult:
        partition = DescribeLogDirsPartition(
            partition_index=0, partition_size=9, offset_lag=lag, is_future_key=future
        )
        topic = DescribeLogDirsTopic(name="t", partitions=[partition])
        return DescribeLogDirsResult(error_code=0, log_dir=directory, topics=[topic])

    response = DescribeLogDirsResponse(
        throttle_time_ms=0,
        results=[entry("/new", future=True, lag=4), entry("/old", future=False, lag=0)],
    )
    plan = plans.describe_replica_log_dirs(view_of(1), [REPLICA_0, REPLICA_1], clock)
    result, log = play(plan, response)
    assert result == {REPLICA_0: ReplicaLogDirInfo("/old", 0, "/new", 4), REPLICA_1: ReplicaLogDirInfo()}
    assert log == ["DescribeLogDirs"], "one request for both replicas"


def test_the_embedded_broker_has_one_log_directory_for_its_replicas(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        node = admin.leader(P0)
        replica = TopicPartitionReplica("t", 0, node)
        [path] = admin.describe_log_dirs([node])[node]
        info = admin.describe_replica_log_dirs([replica])[replica]
        assert (info.current_replica_log_dir, info.future_replica_log_dir) == (path, None)
