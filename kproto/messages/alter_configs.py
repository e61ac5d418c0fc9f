"""AlterConfigs (key 33): replace all configs of a resource.

IncrementalAlterConfigs replaces this API.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResource(Struct):
    resource_type: Int8 = field(map_key=True)
    resource_name: String = field(map_key=True)
    configs: list[AlterableConfig]


class AlterableConfig(Struct):
    name: String = field(map_key=True)
    value: String | None


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
