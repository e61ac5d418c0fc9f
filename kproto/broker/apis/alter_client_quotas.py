"""AlterClientQuotas (key 49): set or remove quotas of users, client ids and IP addresses (KIP-546).

The broker stores and describes quotas, but never throttles a client because of them.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from typing import Final

from ...error_codes import ErrorCode
from ...messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    OpData,
)
from ..broker import Broker
from ..call import Call, Result
from ..cluster import QuotaEntity
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

# The quotas of users and client ids, and the quotas of IP addresses (QuotaConfig), with their maximum values.
# A quota with a maximum must be a whole number. A quota with None has no maximum, and may be fractional.
_USER_AND_CLIENT_QUOTAS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_QUOTAS: Final[Mapping[str, int | None]] = {"connection_creation_rate": 2**31 - 1}
# A value counts as a whole number if its fractional part is at most this large (ClientQuotaControlManager).
_MAX_FRACTION: Final = 1e-6

Fault = tuple[ErrorCode, str]


def handle_alter_client_quotas(broker: Broker, call: Call) -> Result:
    """Apply the changes of each entity. If one change is invalid, all changes of its entity are rejected.

    If the request has several entries for the same entity, only the first one is applied. Nevertheless, the
    response reports INVALID_REQUEST for the entity.
    """
    request = call.request
    assert isinstance(request, AlterClientQuotasRequest)
    faults: dict[QuotaEntity, Fault | None] = {}
    for entry in request.entries:
        entity = entity_of(entry.entity)
        keys = [operation.key for operation in entry.ops]
        if entity in faults or len(set(keys)) < len(keys):
            faults[entity] = ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity"
            continue
        faults[entity] = _entity_fault(entity, entry.ops)
        if faults[entity] is None and not request.validate_only:
            _apply_changes(broker.cluster.client_quotas, entity, entry.ops)
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[_entity_result(entity, *(fault or (0, None))) for entity, fault in faults.items()],
    )


def entity_of(parts: Sequence[AlterClientQuotasRequestEntityData]) -> QuotaEntity:
    """Return the entity with these components. If two components have the same type, the last one applies."""
    return tuple(sorted({part.entity_type: part.entity_name for part in parts}.items()))


def _entity_fault(entity: QuotaEntity, operations: Sequence[OpData]) -> Fault | None:
    """Return the error and Kafka's message for invalid changes; None for valid changes."""
    name_by_type = dict(entity)
    for entity_type, name in entity:
        if entity_type not in ENTITY_TYPES:
            return ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}"
        if name == "":
            return ErrorCode.INVALID_REQUEST, f"Empty {entity_type} not supported"
    if not name_by_type:
        return ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity"
    if IP in name_by_type and len(name_by_type) > 1:
        message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        return ErrorCode.INVALID_REQUEST, message
    address = name_by_type.get(IP)
    if address is not None and not _is_address(address):
        return ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host."
    allowed = _IP_QUOTAS if IP in name_by_type else _USER_AND_CLIENT_QUOTAS
    for operation in operations:
        if operation.remove:
            continue
        if (fault := _value_fault(allowed, operation.key, operation.value)) is not None:
            return ErrorCode.INVALID_REQUEST, fault
    return None


def _is_address(text: str) -> bool:
    """Return whether a text is an IP address or "localhost". Kafka accepts all resolvable names."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _value_fault(allowed: Mapping[str, int | None], key: str, value: float) -> str | None:
    """Return Kafka's message for a quota that cannot be set, else None.

    `allowed` has the maximum value of each quota that the entity supports; None means no maximum.
    """
    if key not in allowed:
        return f"Invalid configuration key {key}"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    largest = allowed[key]
    if largest is None or math.isnan(value):
        return None
    if value > float(largest):
        return f"Proposed value for {key} is too large."
    return f"{key} cannot be a fractional value." if value % 1.0 > _MAX_FRACTION else None


def _apply_changes(
    quotas: dict[QuotaEntity, dict[str, float]], entity: QuotaEntity, operations: Sequence[OpData]
) -> None:
    """Set and remove quotas of an entity. An entity without quotas is removed."""
    values = dict(quotas.get(entity, {}))
    for operation in operations:
        if operation.remove:
            values.pop(operation.key, None)
        else:
            values[operation.key] = operation.value
    if values:
        quotas[entity] = values
    else:
        quotas.pop(entity, None)


def _entity_result(
    entity: QuotaEntity, error: int, message: str | None
) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=error,
        error_message=message,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=entity_type, entity_name=name)
            for entity_type, name in entity
        ],
    )


def refuse(request: AlterClientQuotasRequest, error: ErrorCode, version: int) -> AlterClientQuotasResponse:
    """Return a response with an error for every entity of the request."""
    results = [
        _entity_result(entity_of(entry.entity), error, AUTHORIZATION_FAILED) for entry in request.entries
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=results)


API = Api(
    request=AlterClientQuotasRequest,
    handle=handle_alter_client_quotas,
    authorization=on_cluster(Operation.ALTER_CONFIGS),
    refuse=refuse,
)
