"""AlterClientQuotas (key 49): set or remove quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Bool, Float64, Int16, Int32, String


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: Bool


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[AlterClientQuotasRequestEntityData]
    ops: list[OpData]


class AlterClientQuotasRequestEntityData(Struct):
    entity_type: String
    entity_name: String | None


class OpData(Struct):
    key: String
    value: Float64
    remove: Bool


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    entries: list[AlterClientQuotasResponseEntryData]


class AlterClientQuotasResponseEntryData(Struct):
    error_code: Int16
    error_message: String | None
    entity: list[AlterClientQuotasResponseEntityData]


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: String
    entity_name: String | None
