"""DescribeConfigs (key 32): get the configs of resources such as topics, with the source of each value."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    # The names of the configs to list. Null lists all configs of the resource.
    configuration_keys: list[String] | None


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool
    # The source of the value: 1 topic, 2 this broker, 3 dynamic default of all brokers, 4 the broker's
    # properties file, 5 Kafka's default, 6 broker logger, 7 client metrics, 8 group (KIP-226).
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    # The type of the value, such as 1 for BOOLEAN (KIP-569).
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", default="", ignorable=True)


class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8
