"""The admin operation that describes a cluster: its id, its controller and its brokers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kproto.errors import UnsupportedVersion
from kproto.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse

from ..error_actions import ADMIN
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from .fanout import ask_broker, to_any_broker
from .plan import Plan, expect_response, require_version
from .topic_descriptions import operations_of


class ClusterNode(msgspec.Struct, frozen=True):
    """A broker of the cluster, with the address of the listener that the client uses. Java: Node.

    A fenced broker is registered, but leads no partition (KIP-1073).
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class ClusterDescription(msgspec.Struct, frozen=True):
    """A cluster: its id, the node id of its controller, and its brokers. Java: DescribeClusterResult.

    A KRaft cluster reports an arbitrary broker as the controller. This broker forwards requests to the active
    controller.

    `authorized_operations` lists the cluster operations that the client may perform. It is None if they were
    not requested (KIP-430).
    """

    cluster_id: str | None
    controller: int | None
    nodes: tuple[ClusterNode, ...]
    authorized_operations: frozenset[str] | None = None


def describe_cluster(
    view: ClusterView,
    clock: Callable[[], int],
    *,
    include_authorized_operations: bool,
    include_fenced_brokers: bool,
) -> Plan[ClusterDescription]:
    """Return the id, the controller and the brokers of the cluster.

    Brokers before 2.8 do not support DescribeCluster. They return the same values in a Metadata response.
    """

    def read_description(call: Call) -> tuple[int, str | None, ClusterDescription]:
        response = expect_response(DescribeClusterResponse, call)
        nodes = [
            ClusterNode(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in response.brokers
        ]
        description = _cluster_description(
            response.cluster_id, response.controller_id, nodes, response.cluster_authorized_operations
        )
        return response.error_code, response.error_message, description

    def build_metadata(version: int) -> MetadataRequest:
        # A Metadata request can forbid the creation of topics from v4 on. It can request the authorized
        # operations of the cluster only in v8 to v10.
        return MetadataRequest(
            topics=[],
            allow_auto_topic_creation=version < 4,
            include_cluster_authorized_operations=include_authorized_operations and 8 <= version <= 10,
        )

    def read_metadata(call: Call) -> tuple[int, str | None, ClusterDescription]:
        response = expect_response(MetadataResponse, call)
        nodes = [ClusterNode(node.node_id, node.host, node.port, node.rack) for node in response.brokers]
        description = _cluster_description(
            response.cluster_id, response.controller_id, nodes, response.cluster_authorized_operations
        )
        return response.error_code, None, description

    router = to_any_broker(view, clock)

    def build_request(version: int) -> DescribeClusterRequest:
        if include_fenced_brokers:
            require_version("DescribeCluster", version, 2, "4.0", "to list fenced brokers")
        return DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations,
            include_fenced_brokers=include_fenced_brokers,
        )

    request = Prepared(DescribeClusterRequest, build_request)
    try:
        return (yield from ask_broker(router, "DescribeCluster", ADMIN, request, read_description))
    except UnsupportedVersion:
        if include_fenced_brokers:
            raise  # A Metadata response lists no fenced brokers.
    metadata = Prepared(MetadataRequest, build_metadata)
    return (yield from ask_broker(router, "Metadata", ADMIN, metadata, read_metadata))


def _cluster_description(
    cluster_id: str | None, controller: int, nodes: list[ClusterNode], operations: int
) -> ClusterDescription:
    """Return a description that has None for a negative node id and for operations not requested."""
    return ClusterDescription(
        cluster_id,
        controller if controller >= 0 else None,
        tuple(sorted(nodes, key=lambda node: node.id)),
        operations_of(operations),
    )
