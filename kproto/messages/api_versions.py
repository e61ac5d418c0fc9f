"""ApiVersions (key 18): which requests the broker knows, in which versions; a client's first question."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: String = field("3+", default="", ignorable=True)  # KIP-511
    client_software_version: String = field("3+", default="", ignorable=True)


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", default=[], tag=0, ignorable=True)  # KIP-584
    # KIP-584; -1 while nobody knows
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
