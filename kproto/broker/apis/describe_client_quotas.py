"""DescribeClientQuotas (key 48): the quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ..broker import Broker
from ..call import Call, Result
from ..cluster import QuotaEntity
from ..security.acls import Operation
from .alter_client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

# DescribeClientQuotasRequest's match types: an entity with this name, the default entity, any entity.
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

Fault = tuple[ErrorCode, str]


def handle_describe_client_quotas(broker: Broker, call: Call) -> Result:
    """Return the quotas of the entities that match all components of the request.

    A strict request matches an entity only if each type of the entity has a component in the request. A
    strict request without components matches no entity.
    """
    request = call.request
    assert isinstance(request, DescribeClientQuotasRequest)
    fault = _filter_fault(request.components)
    if fault is not None:
        return _error_response(*fault)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity],
            values=[ValueData(key=key, value=value) for key, value in quotas.items()],
        )
        for entity, quotas in broker.cluster.client_quotas.items()
        if all(_matches(component, entity) for component in request.components)
        if not request.strict or len(entity) == len(request.components)
    ]
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message=None, entries=entries)


def _filter_fault(components: list[ComponentData]) -> Fault | None:
    """Return the error and Kafka's message for an invalid filter, else None (ClientQuotasImage.describe)."""
    entity_types: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if entity_type in entity_types:
            message = f"Entity type {entity_type} cannot appear more than once in the filter."
            return ErrorCode.INVALID_REQUEST, message
        if entity_type not in ENTITY_TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}"
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}"
        if (component.match is None) == (component.match_type == EXACT):
            message = "Only the match type EXACT requires, and allows, a match string."
            return ErrorCode.INVALID_REQUEST, message
        entity_types.add(entity_type)
    if IP in entity_types and entity_types & {USER, CLIENT_ID}:
        message = (
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
        return ErrorCode.INVALID_REQUEST, message
    return None


def _matches(component: ComponentData, entity: QuotaEntity) -> bool:
    """Return whether an entity matches a component.

    A default entity has the name None, which is also the `match` of a component with the match type DEFAULT.
    """
    names = dict(entity)
    if component.entity_type not in names:
        return False
    return component.match_type == ANY or names[component.entity_type] == component.match


def _error_response(error: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=error, error_message=message, entries=None
    )


def refuse(
    request: DescribeClientQuotasRequest, error: ErrorCode, version: int
) -> DescribeClientQuotasResponse:
    """Refuse the whole request."""
    return _error_response(error, AUTHORIZATION_FAILED)


API = Api(
    request=DescribeClientQuotasRequest,
    handle=handle_describe_client_quotas,
    authorization=on_cluster(Operation.DESCRIBE_CONFIGS),
    refuse=refuse,
)
