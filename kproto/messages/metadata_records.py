"""Values of `__cluster_metadata`, the log of the KRaft controllers (KIP-500, KIP-631).

In the log, three unsigned varints precede each message: the frame version (1), the record type and the
message's version.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16, Uuid


class RegisterBrokerRecord(Message, versions="0-4", flexible="0+"):
    broker_id: Int32
    # Whether the broker still used ZooKeeper during a migration (KIP-866).
    is_migrating_zk_broker: Bool = field("2+", default=False)
    # The id of the broker's incarnation. It changes each time the broker starts.
    incarnation_id: Uuid
    # The broker epoch: the offset of the registration. The controller rejects requests with an older epoch,
    # such as those of an earlier process of the broker.
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None
    # Whether the broker is fenced. A fenced broker leads no partition.
    fenced: Bool = True
    in_controlled_shutdown: Bool = field("1+", default=False)
    # The ids of the broker's log directories that are online (KIP-858).
    log_dirs: list[Uuid] = field("3+", default=[], tag=0)
    # The ids of the log directories that get no new replicas; null if they are unknown (KIP-1066).
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1)


class BrokerEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16
    # The security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    security_protocol: Int16


class BrokerFeature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class UnregisterBrokerRecord(Message, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Message, versions="0", flexible="0+"):
    name: String
    topic_id: Uuid


class PartitionRecord(Message, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: Uuid
    # The replicas. The first one is the preferred leader.
    replicas: list[Int32]
    isr: list[Int32]
    # The replicas that a reassignment removes (KIP-455).
    removing_replicas: list[Int32]
    # The replicas that a reassignment adds (KIP-455).
    adding_replicas: list[Int32]
    # The leader; -1 if the partition has none.
    leader: Int32 = -1
    # 1 while the leader recovers from an unclean election, otherwise 0 (KIP-704).
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    # The epoch of the partition, which each change of the partition increments.
    partition_epoch: Int32 = -1
    # The log directory of each replica, in the order of `replicas` (KIP-858).
    directories: list[Uuid] = field("1+", default=[])
    # The replicas that have all committed records but are not in the ISR (KIP-966).
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1)
    # The last known eligible replicas. One of them may become leader if the ISR and
    # `eligible_leader_replicas` are both empty (KIP-966).
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2)


class ConfigRecord(Message, versions="0", flexible="0+"):
    # The type of the resource, such as 2 for topics and 4 for brokers.
    resource_type: Int8
    resource_name: String
    name: String
    # The value; null deletes the config.
    value: String | None


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: Uuid
    # The new ISR; null if it is unchanged. Null has the same meaning in the other nullable fields.
    isr: list[Int32] | None = field(default=None, tag=0)
    # The new leader; -1 without a leader, -2 if the leader is unchanged.
    leader: Int32 = field(default=-2, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    # The new leader recovery state, as in PartitionRecord; -1 if it is unchanged.
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7)


class FenceBrokerRecord(Message, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Message, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: Uuid


class DelegationTokenRecord(Message, versions="0", flexible="0+"):
    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String
    # The mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(Message, versions="0", flexible="0+"):
    name: String
    # The finalized level; 0 disables the feature (KIP-584).
    feature_level: Int16


class ClientQuotaRecord(Message, versions="0", flexible="0+"):
    entity: list[EntityData]
    key: String
    value: Float64
    # Whether the quota is removed. If so, `value` has no meaning.
    remove: Bool


class EntityData(Struct):
    # The type: user, client-id or ip.
    entity_type: String
    # The name; null for the default quota.
    entity_name: String | None


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    # The first producer id of the next block. The ids before it belong to this broker's block, or to earlier
    # ones.
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Message, versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64
    # 1 if the broker is fenced, -1 if it is no longer fenced, 0 for no change.
    fenced: Int8 = field(default=0, tag=0)
    # 1 if the broker is shutting down, 0 for no change (KIP-841).
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1)
    # The ids of the log directories that are online; an empty list for no change (KIP-858).
    log_dirs: list[Uuid] = field("2+", default=[], tag=2)
    # The ids of the log directories that get no new replicas; null for no change (KIP-1066).
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3)


class AccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid
    resource_type: Int8
    resource_name: String
    # How `resource_name` matches: 3 as the whole name, 4 as a prefix (KIP-290).
    pattern_type: Int8
    principal: String
    host: String
    # The code of the AclOperation.
    operation: Int8
    # The permission: 2 DENY, 3 ALLOW.
    permission_type: Int8


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid


class NoOpRecord(Message, versions="0", flexible="0+"):
    """An empty record. The active controller writes it, so that the high watermark advances (KIP-835)."""


class ZkMigrationStateRecord(Message, versions="0", flexible="0+"):
    # The state of the migration from ZooKeeper: 0 none, 1 migration, 2 pre-migration, 3 post-migration
    # (KIP-866).
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String
    # The mechanism, as in UserScramCredentialRecord.
    mechanism: Int8


class BeginTransactionRecord(Message, versions="0", flexible="0+"):
    # The name of the transaction, for logs (KIP-868).
    name: String | None = field(default=None, tag=0)


class EndTransactionRecord(Message, versions="0", flexible="0+"):
    """The end of the transaction: the records since BeginTransactionRecord take effect (KIP-868)."""


class AbortTransactionRecord(Message, versions="0", flexible="0+"):
    # The reason for the abort, for logs (KIP-868).
    reason: String | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+"):
    token_id: String


class RegisterControllerRecord(Message, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    # Whether the controller is ready for a migration from ZooKeeper (KIP-866).
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ControllerEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16
    # The security protocol, as in BrokerEndpoint.
    security_protocol: Int16


class ControllerFeature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class ClearElrRecord(Message, versions="0", flexible="0+"):
    # The topic whose eligible leader replicas are cleared; empty for all topics (KIP-966).
    topic_name: String


class UnregisterControllerRecord(Message, versions="0", flexible="0+"):
    controller_id: Int32
