"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single configs (KIP-339)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResource(Struct):
    resource_type: Int8 = field(map_key=True)
    resource_name: String = field(map_key=True)
    configs: list[AlterableConfig]


class AlterableConfig(Struct):
    name: String = field(map_key=True)
    config_operation: Int8 = field(map_key=True)
    value: String | None


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
