"""DescribeClientQuotas (key 48): list the quotas of users, clients and IPs (KIP-546)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Bool, Float64, Int8, Int16, Int32, String


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData]
    strict: Bool


class ComponentData(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class ValueData(Struct):
    key: String
    value: Float64
