"""DescribeCluster (key 60): get the cluster's id, controller and nodes (KIP-700)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool
    # The endpoints to describe: 1 for brokers, 2 for controllers (KIP-919).
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)  # Whether to include fenced brokers (KIP-1073).


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -0x80000000


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = None
    is_fenced: Bool = field("2+", default=False)  # Whether the broker is fenced (KIP-1073).
