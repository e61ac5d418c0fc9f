"""ApiVersions (key 18): ask which APIs and versions the broker supports.

Clients send it first on a connection, so that they can choose the versions of their other requests.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+"):
    # The name of the client's software (KIP-511).
    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)
    # The ids of the cluster and the node that the client expects, or null and -1 if the client does not know
    # them. A broker with other ids responds with REBOOTSTRAP_REQUIRED (KIP-1242).
    cluster_id: String | None = field("5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


class ApiVersionsResponse(Message, api_key=18, versions="0-5", flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    # The features that the broker supports, with their version ranges (KIP-584).
    supported_features: list[SupportedFeatureKey] = field("3+", default=[], tag=0, ignorable=True)
    # The epoch of the finalized features; -1 if it is unknown (KIP-584).
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)


class ApiVersion(Struct):
    api_key: Int16 = field(map_key=True)
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String = field(map_key=True)
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String = field(map_key=True)
    max_version_level: Int16
    min_version_level: Int16
