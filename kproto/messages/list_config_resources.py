"""ListConfigResources (key 74): list the resources that have configs (KIP-1142)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, String


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    # The resource types to list; empty for all. v0 lists client metrics only.
    resource_types: list[Int8] = field("1+", default=[])


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = field("1+", default=16, ignorable=True)
