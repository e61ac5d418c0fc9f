"""ApiVersions (key 18): the APIs and versions that this broker serves."""

from __future__ import annotations

import re
from typing import Final

from ...error_codes import ErrorCode
from ...messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.authenticator import SaslState
from .api import Api
from .sasl_handshake import fail_login

API_VERSIONS: Final = 18
PRODUCE: Final = 0
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
TRANSACTION_VERSION: Final = "transaction.version"

# The APIs that level 2 of the feature transaction.version requires (KIP-890). A value is the lowest version
# that the broker must serve.
_TRANSACTIONS_V2: Final = {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}

NO_NODE: Final = -1  # The node id in requests of clients that expect no particular node.

# The first version with the name and the version of the client's software (KIP-511).
_SOFTWARE_NAME_SINCE: Final = 3
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle_api_versions(broker: Broker, call: Call) -> Result:
    """Return the served versions of all APIs, and the feature transaction.version if it is supported."""
    request = call.request
    assert isinstance(request, ApiVersionsRequest)
    connection = broker.connections[call.conn]
    authenticator = connection.authenticator
    if authenticator is not None and authenticator.state is SaslState.AUTHENTICATE:
        refusal = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[])
        return fail_login(broker, call, refusal)
    software = (request.client_software_name, request.client_software_version)
    if call.version >= _SOFTWARE_NAME_SINCE and not all(_SOFTWARE_NAME.fullmatch(word) for word in software):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    # A request must have both the expected cluster id and the expected node id, or neither (KIP-1242).
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    expected = (request.cluster_id, request.node_id)
    if request.cluster_id is not None and expected != (broker.cluster_id, broker.node.id):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
    if authenticator is not None:
        authenticator.versions_requested = True
    if call.version >= _SOFTWARE_NAME_SINCE:
        connection.software_name, connection.software_version = software
    response = ApiVersionsResponse(error_code=0, api_keys=list(broker.apis.values()))
    _set_features(broker, response)
    return response


def _set_features(broker: Broker, response: ApiVersionsResponse) -> None:
    """Add the supported level of transaction.version, and the finalized level if that level is above 0."""
    supported = supported_transaction_version(broker)
    if not supported:
        return
    response.supported_features = [
        SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=supported)
    ]
    level = finalized_transaction_version(broker)
    if level > 0:
        response.finalized_features = [
            FinalizedFeatureKey(name=TRANSACTION_VERSION, min_version_level=level, max_version_level=level)
        ]
    response.finalized_features_epoch = broker.cluster.features_epoch


def supported_transaction_version(broker: Broker) -> int:
    """Return the highest supported level of transaction.version: 2 if KIP-890 is supported, else 0 (none)."""
    supported = (
        key in broker.apis and broker.apis[key].max_version >= version
        for key, version in _TRANSACTIONS_V2.items()
    )
    return 2 if all(supported) else 0


def finalized_transaction_version(broker: Broker) -> int:
    """Return the finalized level of transaction.version, by default the highest that is supported."""
    level = broker.cluster.transaction_version
    return supported_transaction_version(broker) if level is None else level


def unsupported_api_versions(broker: Broker) -> ApiVersionsResponse:
    """Return the response, in version 0, to an ApiVersions request whose version is not supported.

    A client retries its request with one of the versions that the response lists (KIP-511).
    """
    versions = broker.apis[API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[versions])


API = Api(request=ApiVersionsRequest, handle=handle_api_versions)
