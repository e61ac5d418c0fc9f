"""BrokerRegistration (key 62): a starting broker registers with the controller (KIP-631)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, Int64, String, UInt16, Uuid


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None
    is_migrating_zk_broker: Bool = field("1+", default=False)
    # The ids of the broker's available log directories (KIP-858).
    log_dirs: list[Uuid] = field("2+", default=[], ignorable=True)
    # The broker's epoch before it shut down cleanly; -1 after an unclean shutdown (KIP-966).
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = -1
