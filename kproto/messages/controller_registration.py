"""ControllerRegistration (key 70): a controller registers with the active controller (KIP-919)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, String, UInt16, Uuid


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: list[Listener]
    features: list[Feature]


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
