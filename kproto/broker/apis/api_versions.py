"""ApiVersions (key 18): what this broker serves."""

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
from .sasl import misplaced

API_VERSIONS: Final = 18
TRANSACTION_VERSION: Final = "transaction.version"

# What KIP-890 needs: Produce, EndTxn and TxnOffsetCommit.
_SECOND: Final = {0: 12, 26: 5, 28: 5}

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511


def api_versions(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ApiVersionsRequest)
    authenticator = broker.connections[call.conn].authenticator
    if authenticator is not None and authenticator.state is SaslState.AUTHENTICATE:
        no = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[])
        return misplaced(broker, call, no)
    said = (request.client_software_name, request.client_software_version)
    if call.version >= 3 and not all(_SOFTWARE.fullmatch(word) for word in said):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if authenticator is not None:
        authenticator.versions_told = True
    level = _transaction_version(broker)
    response = ApiVersionsResponse(error_code=0, api_keys=list(broker.apis.values()))
    if level:
        response.supported_features = [
            SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=level)
        ]
        response.finalized_features = [
            FinalizedFeatureKey(name=TRANSACTION_VERSION, min_version_level=level, max_version_level=level)
        ]
        response.finalized_features_epoch = 0
    return response


def _transaction_version(broker: Broker) -> int:
    """2: transactions are those of KIP-890. A broker that shall seem older finalizes nothing."""
    high = {key: api.max_version for key, api in broker.apis.items()}
    return 2 if all(high[key] >= version for key, version in _SECOND.items()) else 0


def unsupported_api_versions(broker: Broker) -> ApiVersionsResponse:
    """The answer, in version 0, to an unknown version of ApiVersions: the client tries again (KIP-511)."""
    own = [broker.apis[API_VERSIONS]]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
