"""Which handler serves which API, and in which versions.

Only what is served is advertised: all versions that Kafka 4.3 has, unless the broker shall seem older.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...errors import ConfigError
from ...messages.api_versions import ApiVersion
from ...messages.index import API_NAMES, request_class
from ..broker import Broker
from ..call import Call, Result
from . import (
    acls,
    configs,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    replicas,
    sasl,
    topics,
    transactions,
)
from .api_versions import API_VERSIONS, api_versions
from .find_coordinator import find_coordinator
from .group_coordinator import coordinated

Handler = Callable[[Broker, Call], Result]

PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22

HANDLERS: Final[Mapping[int, Handler]] = {
    PRODUCE: produce.produce,
    1: fetch.fetch,
    2: list_offsets.list_offsets,
    3: metadata.metadata,
    8: coordinated,  # OffsetCommit
    9: coordinated,  # OffsetFetch
    10: find_coordinator,
    11: coordinated,  # JoinGroup
    12: coordinated,  # Heartbeat
    13: coordinated,  # LeaveGroup
    14: coordinated,  # SyncGroup
    15: coordinated,  # DescribeGroups
    16: coordinated,  # ListGroups
    17: sasl.sasl_handshake,
    API_VERSIONS: api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: topics.delete_records,
    INIT_PRODUCER_ID: transactions.transacted,
    23: offset_for_leader_epoch.offset_for_leader_epoch,
    24: transactions.transacted,  # AddPartitionsToTxn
    25: transactions.transacted,  # AddOffsetsToTxn
    26: transactions.transacted,  # EndTxn
    28: transactions.txn_offset_commit,
    29: acls.describe_acls,
    30: acls.create_acls,
    31: acls.delete_acls,
    32: configs.describe_configs,
    33: configs.alter_configs,
    35: replicas.describe_log_dirs,
    36: sasl.sasl_authenticate,
    37: topics.create_partitions,
    42: coordinated,  # DeleteGroups
    43: replicas.elect_leaders,
    44: configs.incremental_alter_configs,
    46: replicas.list_partition_reassignments,
    47: coordinated,  # OffsetDelete
    50: sasl.describe_scram,
    51: sasl.alter_scram,
    60: metadata.describe_cluster,
    61: transactions.describe_producers,
    65: transactions.transacted,  # DescribeTransactions
    66: transactions.transacted,  # ListTransactions
    75: metadata.describe_topic_partitions,
}


def served(highest: Mapping[str, int] | None = None) -> dict[int, ApiVersion]:
    """Every API of a broker with the versions that it advertises, by key.

    `highest` makes it seem an older Kafka: API name -> the highest version that it serves. Raises ConfigError
    for an API or version that isn't served.
    """
    keys = {API_NAMES[key]: key for key in HANDLERS}
    for name, version in (highest or {}).items():
        if name not in keys:
            raise ConfigError("highest", name, f"allowed: {', '.join(sorted(keys))}")
        if version not in (declared := request_class(keys[name]).__versions__):
            raise ConfigError(f"highest[{name!r}]", version, f"allowed: {declared}")
    caps = {keys[name]: version for name, version in (highest or {}).items()}
    return {key: _versions(key, caps.get(key)) for key in sorted(HANDLERS)}


def _versions(key: int, cap: int | None) -> ApiVersion:
    declared = request_class(key).__versions__
    low, high = declared.min, declared.max
    if key == PRODUCE:
        # As Kafka 4 since KAFKA-18659: old librdkafka takes a lowest version above 0 for a broker without any
        # compression. Requests of versions 0 to 2 are refused all the same.
        low = 0
    if key == INIT_PRODUCER_ID:
        high = 5  # version 6 (KIP-939) is not stable in Kafka 4.3, which does not advertise it
    return ApiVersion(api_key=key, min_version=low, max_version=high if cap is None else min(high, cap))
