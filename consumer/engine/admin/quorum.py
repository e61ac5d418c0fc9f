"""Admin operations on the controller quorum and its voters, and on registered brokers and controllers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.messages.add_raft_voter import AddRaftVoterRequest
from kproto.messages.add_raft_voter import Listener as VoterListener
from kproto.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from kproto.messages.remove_raft_voter import RemoveRaftVoterRequest
from kproto.messages.unregister_broker import UnregisterBrokerRequest
from kproto.messages.unregister_controller import UnregisterControllerRequest
from kproto.wire.message import Message
from kproto.wire.types import ZERO_UUID

from ..error_actions import CONTROLLER
from ..metadata.cluster import ClusterView
from ..network.call import Call
from .fanout import ask_broker, to_any_broker
from .plan import Plan, expect_response

# The metadata log of a KRaft cluster.
_METADATA_TOPIC: Final = "__cluster_metadata"


class QuorumReplicaState(msgspec.Struct, frozen=True):
    """A voter or observer of the metadata quorum, as the active controller sees it.

    `replica_directory_id` is None if the broker is older than 3.9. `log_end_offset` is None if the replica
    has not fetched yet.

    `last_fetch_timestamp` is the time of the last fetch (ms since 1970), or None if the leader does not
    report it.

    `last_caught_up_timestamp` is the last time (ms since 1970) at which the replica had caught up with the
    leader's log, or None if the leader does not report it.

    Java: QuorumInfo.ReplicaState.
    """

    replica_id: int
    replica_directory_id: UUID | None
    log_end_offset: int | None
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


class RaftVoterEndpoint(msgspec.Struct, frozen=True):
    """The address of a controller's listener. Java: RaftVoterEndpoint."""

    listener: str
    host: str
    port: int


class QuorumInfo(msgspec.Struct, frozen=True):
    """The metadata quorum: its leader, voters and observers. Java: QuorumInfo.

    The observers are brokers, and controllers that do not vote.

    `nodes` maps the id of each voter to its endpoints. It is empty if the broker is older than 3.9, because
    the response then contains no endpoints.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    nodes: Mapping[int, tuple[RaftVoterEndpoint, ...]]


def describe_metadata_quorum(view: ClusterView, clock: Callable[[], int]) -> Plan[QuorumInfo]:
    """Return the leader, the voters and the observers of the metadata quorum."""

    def read(call: Call) -> tuple[int, str | None, QuorumInfo | None]:
        response = expect_response(DescribeQuorumResponse, call)
        if response.error_code:
            return response.error_code, response.error_message or None, None
        partitions = [entry for topic in response.topics for entry in topic.partitions]
        if len(partitions) != 1:
            message = f"the response describes {len(partitions)} partitions of {_METADATA_TOPIC}, expected 1"
            return ErrorCode.UNKNOWN_SERVER_ERROR, message, None
        [entry] = partitions
        quorum = QuorumInfo(
            entry.leader_id,
            entry.leader_epoch,
            entry.high_watermark,
            tuple(map(_replica_state, entry.current_voters)),
            tuple(map(_replica_state, entry.observers)),
            {
                node.node_id: tuple(
                    RaftVoterEndpoint(listener.name, listener.host, listener.port)
                    for listener in node.listeners
                )
                for node in response.nodes
            },
        )
        return entry.error_code, entry.error_message or None, quorum

    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    request = DescribeQuorumRequest(topics=[topic])
    router = to_any_broker(view, clock)
    quorum = yield from ask_broker(router, "DescribeQuorum", CONTROLLER, request, read)
    assert quorum is not None  # `ask_broker` raises an error if the response has an error code.
    return quorum


def _replica_state(state: ReplicaState) -> QuorumReplicaState:
    return QuorumReplicaState(
        state.replica_id,
        None if state.replica_directory_id == ZERO_UUID else state.replica_directory_id,
        state.log_end_offset if state.log_end_offset >= 0 else None,
        state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
        state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
    )


def add_raft_voter(
    view: ClusterView,
    voter_id: int,
    directory_id: UUID,
    endpoints: Collection[RaftVoterEndpoint],
    clock: Callable[[], int],
    *,
    cluster_id: str | None,
    timeout_ms: int,
) -> Plan[None]:
    """Add a controller to the voters of the metadata quorum (KIP-853)."""
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[
            VoterListener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ],
    )
    return (yield from _send_change(view, clock, "AddRaftVoter", request, ErrorCode.DUPLICATE_VOTER))


def remove_raft_voter(
    view: ClusterView,
    voter_id: int,
    directory_id: UUID,
    clock: Callable[[], int],
    *,
    cluster_id: str | None,
) -> Plan[None]:
    """Remove a voter from the metadata quorum (KIP-853)."""
    request = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
    )
    return (yield from _send_change(view, clock, "RemoveRaftVoter", request, ErrorCode.VOTER_NOT_FOUND))


def unregister_broker(view: ClusterView, broker: int, clock: Callable[[], int]) -> Plan[None]:
    """Remove the registration of a broker that no longer exists (KIP-631)."""
    request = UnregisterBrokerRequest(broker_id=broker)
    not_registered = ErrorCode.BROKER_ID_NOT_REGISTERED
    return (yield from _send_change(view, clock, "UnregisterBroker", request, not_registered))


def unregister_controller(view: ClusterView, controller: int, clock: Callable[[], int]) -> Plan[None]:
    """Remove the registration of a controller that no longer exists."""
    request = UnregisterControllerRequest(controller_id=controller)
    return (yield from _send_change(view, clock, "UnregisterController", request, None))


def _send_change(
    view: ClusterView, clock: Callable[[], int], api: str, request: Message, executed_code: ErrorCode | None
) -> Plan[None]:
    """Send a change to any broker, which forwards it to the active controller.

    `executed_code` is the error code for a change that an earlier attempt has already made. This code
    counts as success if an earlier attempt got no response (`fan_out`).
    """

    def read(call: Call) -> tuple[int, str | None, None]:
        response: Any = expect_response(Message, call)
        return response.error_code, response.error_message, None

    router = to_any_broker(view, clock)
    return (yield from ask_broker(router, api, CONTROLLER, request, read, executed_code=executed_code))
