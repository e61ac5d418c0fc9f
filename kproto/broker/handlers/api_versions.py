"""ApiVersions (key 18): what this broker serves."""

from __future__ import annotations

import re
from typing import Final

from ...error_codes import ErrorCode
from ...messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..broker import Broker
from ..call import Call, Result

API_VERSIONS: Final = 18

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511


def api_versions(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ApiVersionsRequest)
    said = (request.client_software_name, request.client_software_version)
    if call.version >= 3 and not all(_SOFTWARE.fullmatch(word) for word in said):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=0, api_keys=list(broker.apis.values()))


def unsupported_api_versions(broker: Broker) -> ApiVersionsResponse:
    """The answer, in version 0, to an unknown version of ApiVersions: the client tries again (KIP-511)."""
    own = [broker.apis[API_VERSIONS]]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
