"""The ApiVersions request of a client, and the versions that a broker lists in its response."""

from __future__ import annotations

from typing import NamedTuple

from kproto.error_codes import ErrorCode
from kproto.errors import ConnectionFailed, DecodeError
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_response
from kproto.version import __version__

# The name and version of this client in the request metrics of brokers (KIP-511).
SOFTWARE_NAME = "kproto"
SOFTWARE_VERSION = __version__

API_VERSIONS = 18  # The API key of ApiVersions.


class ExpectedBroker(NamedTuple):
    """The cluster and the node that a connection should reach, according to the metadata (KIP-1242)."""

    cluster_id: str
    node_id: int


class Misrouted(ConnectionFailed):
    """The connection reached a different cluster or node than the metadata lists (KIP-1242)."""


def versions_request(version: int, expected: ExpectedBroker | None = None) -> ApiVersionsRequest:
    """Return the ApiVersions request in this version.

    From version 3 on the request contains the client's name, and from version 5 on the `expected` broker.
    """
    if version < 3:
        return ApiVersionsRequest()
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
    if expected is not None:
        request.cluster_id, request.node_id = expected
    return request


def check_route(response: ApiVersionsResponse, address: str, expected: ExpectedBroker | None) -> None:
    """Raise Misrouted if the broker at `address` says that it is not the `expected` one."""
    if response.error_code != ErrorCode.REBOOTSTRAP_REQUIRED:
        return
    if expected is None:
        detail = "the broker requires a new start at the bootstrap addresses"
    else:
        detail = f"the broker is not node {expected.node_id} of the cluster {expected.cluster_id!r}"
    raise Misrouted(address, detail)


def listed_versions(response: ApiVersionsResponse, version: int) -> dict[int, tuple[int, int]]:
    """Map each API key to the broker's version range.

    Raises DecodeError if the response contains an error code, lists no API, or contains an invalid range.
    """
    if response.error_code:
        detail = f"the broker answers error {response.error_code}"
        raise DecodeError("ApiVersions", version, "error_code", offset=4, detail=detail)
    versions = _version_ranges(response, version)
    if not versions:
        raise DecodeError(
            "ApiVersions",
            version,
            "api_keys",
            offset=6,
            detail="the broker lists no API; it must list at least one",
        )
    return versions


def lower_version(body: bytes, version: int) -> int:
    """Return the version in which to send ApiVersions again, after the broker rejected `version`.

    The result is the smaller of `version - 1` and the broker's highest version in `body`, a response in
    version 0.

    The result is 0 if the response cannot be decoded or does not list ApiVersions.
    """
    try:
        _, response = decode_response(body, ApiVersionsResponse, 0)
    except DecodeError:
        # librdkafka's mock cluster responds in the format of the version that it rejects, not in version 0
        return 0
    assert isinstance(response, ApiVersionsResponse)
    _, highest = _version_ranges(response, 0).get(API_VERSIONS, (0, 0))
    return min(highest, version - 1)


def _version_ranges(response: ApiVersionsResponse, version: int) -> dict[int, tuple[int, int]]:
    """Map each listed API key to its version range.

    Raises DecodeError if a range is invalid or an API is listed twice.
    """
    versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    invalid_entries = [api for api in response.api_keys if not 0 <= api.min_version <= api.max_version]
    detail = f"impossible versions: {invalid_entries[0]}" if invalid_entries else ""
    if len(versions) < len(response.api_keys):
        detail = "the broker lists an API twice"
    if detail:
        raise DecodeError("ApiVersions", version, "api_keys", offset=6, detail=detail)
    return versions
