"""The table of all APIs that the broker serves; each API has its own module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import ConfigError
from ...messages.api_versions import ApiVersion
from . import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from .api import Api

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_partitions,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_client_quotas,
    alter_client_quotas,
    describe_user_scram_credentials,
    alter_user_scram_credentials,
    describe_quorum,
    update_features,
    describe_cluster,
    describe_producers,
    unregister_broker,
    describe_transactions,
    list_transactions,
    get_telemetry_subscriptions,
    push_telemetry,
    list_config_resources,
    describe_topic_partitions,
    add_raft_voter,
    remove_raft_voter,
)

# API key -> entry, in the order of the keys.
APIS: Final[Mapping[int, Api]] = {module.API.key: module.API for module in _MODULES}

# The APIs that `Server.fail` can inject errors into: those with an authorization check.
REFUSABLE: Final = frozenset(key for key, api in APIS.items() if api.authorization is not None)

# The value in `highest` (see `served_versions`) that omits an API.
NOT_SERVED: Final = -1

_TELEMETRY_KEYS: Final = (get_telemetry_subscriptions.API.key, push_telemetry.API.key)


def served_versions(
    highest: Mapping[str, int] | None = None, *, telemetry: bool = False
) -> dict[int, ApiVersion]:
    """Return the API versions that a broker advertises: a map from API key to its entry in ApiVersions.

    The APIs of client telemetry are advertised only with `telemetry`: Kafka advertises them only if a metrics
    reporter implements ClientTelemetry.

    `highest` makes the broker advertise the versions of an older Kafka. It maps the name of an API to the
    highest version to serve, or to -1 to omit the API.

    Raises ConfigError if `highest` names an API or a version that this broker does not serve.
    """
    keys = {api.name: key for key, api in APIS.items()}
    highest_versions: dict[int, int] = {} if telemetry else dict.fromkeys(_TELEMETRY_KEYS, NOT_SERVED)
    for name, version in (highest or {}).items():
        if name not in keys:
            raise ConfigError("highest", name, f"allowed: {', '.join(sorted(keys))}")
        declared_versions = APIS[keys[name]].request.__versions__
        omission = "" if keys[name] == api_versions.API_VERSIONS else ", or -1 for a Kafka without this API"
        if version not in declared_versions and not (version == NOT_SERVED and omission):
            raise ConfigError(f"highest[{name!r}]", version, f"allowed: {declared_versions}{omission}")
        highest_versions[keys[name]] = version
    return {
        key: api.versions(highest_versions.get(key))
        for key, api in APIS.items()
        if highest_versions.get(key) != NOT_SERVED
    }
