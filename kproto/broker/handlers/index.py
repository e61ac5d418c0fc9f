"""Which handler serves which API, and ApiVersions (key 18), which tells clients so.

Only what is served is advertised: all versions that Kafka 4.3 has, unless the broker shall seem older.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ...error_codes import ErrorCode
from ...errors import ConfigError
from ...messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ...messages.index import API_NAMES, request_class
from ..call import Call, Result
from . import configs, epochs, fetch, groups, init_producer_id, list_offsets, metadata, produce, topics

if TYPE_CHECKING:
    from ..broker import Broker

Handler = Callable[["Broker", Call], Result]

API_VERSIONS: Final = 18
PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511


def api_versions(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ApiVersionsRequest)
    said = (request.client_software_name, request.client_software_version)
    if call.version >= 3 and not all(_SOFTWARE.fullmatch(word) for word in said):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=0, api_keys=served(broker))


def unsupported_api_versions(broker: Broker) -> ApiVersionsResponse:
    """The answer, in version 0, to an unknown version of ApiVersions: the client tries again (KIP-511)."""
    own = [api for api in served(broker) if api.api_key == API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def served(broker: Broker) -> list[ApiVersion]:
    """Every API of this broker with its versions."""
    return [versions(broker, key) for key in sorted(HANDLERS)]


def versions(broker: Broker, key: int) -> ApiVersion:
    """The versions of a served API as they are advertised."""
    declared = request_class(key).__versions__
    low, high = declared.min, declared.max
    if key == PRODUCE:
        # As Kafka 4 since KAFKA-18659: old librdkafka takes a lowest version above 0 for a broker without any
        # compression. Requests of versions 0 to 2 are refused all the same.
        low = 0
    if key == INIT_PRODUCER_ID:
        high = 5  # version 6 (KIP-939) is not stable in Kafka 4.3, which does not advertise it
    return ApiVersion(api_key=key, min_version=low, max_version=min(high, broker.highest.get(key, high)))


def highest_by_key(highest: Mapping[str, int]) -> dict[int, int]:
    """API name -> highest version, by key. Raises ConfigError for an API or version that isn't served."""
    keys = {API_NAMES[key]: key for key in HANDLERS}
    for name, version in highest.items():
        if name not in keys:
            raise ConfigError("highest", name, f"allowed: {', '.join(sorted(keys))}")
        if version not in (declared := request_class(keys[name]).__versions__):
            raise ConfigError(f"highest[{name!r}]", version, f"allowed: {declared}")
    return {keys[name]: version for name, version in highest.items()}


HANDLERS: Final[Mapping[int, Handler]] = {
    PRODUCE: produce.produce,
    1: fetch.fetch,
    2: list_offsets.list_offsets,
    3: metadata.metadata,
    8: groups.coordinated,  # OffsetCommit
    9: groups.coordinated,  # OffsetFetch
    10: groups.find_coordinator,
    11: groups.coordinated,  # JoinGroup
    12: groups.coordinated,  # Heartbeat
    13: groups.coordinated,  # LeaveGroup
    14: groups.coordinated,  # SyncGroup
    15: groups.coordinated,  # DescribeGroups
    16: groups.coordinated,  # ListGroups
    API_VERSIONS: api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: topics.delete_records,
    INIT_PRODUCER_ID: init_producer_id.init_producer_id,
    23: epochs.offset_for_leader_epoch,
    32: configs.describe_configs,
    37: topics.create_partitions,
    42: groups.coordinated,  # DeleteGroups
    44: configs.incremental_alter_configs,
    47: groups.coordinated,  # OffsetDelete
    60: metadata.describe_cluster,
    75: metadata.describe_topic_partitions,
}
