"""Find messages by API key or by name. A message is imported when it is first looked up.

request_class(11)                       # kproto.messages.join_group.JoinGroupRequest
response_class(11)
message_class("OffsetCommitValue")      # any message, data message or record, by Kafka's name
record_classes(0, "__transaction_state")        # TransactionLogKey and TransactionLogValue
record_value_class(2, "__cluster_metadata")     # TopicRecord
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from ..wire.message import Message

Kind = Literal["request", "response", "header", "data", "record"]

# The Kafka release whose messages this package declares.
KAFKA_RELEASE: Final = "4.4.0"

# Maps the key of every API of this Kafka release to the API's name. Kafka 4.0 removed the APIs with the keys
# 4 to 7.
API_NAMES: dict[int, str] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}

# Maps a record type of `__consumer_offsets` to the name of the record. This name, followed by Key or Value,
# is the name of a message. Only the oldest brokers wrote records of type 0. Their keys have the fields of
# type 1.
RECORDS: dict[int, str] = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}

# Maps a record type of `__transaction_state` to its name.
TRANSACTION_RECORDS: dict[int, str] = {
    0: "TransactionLog",
}

# Maps a record type of `__share_group_state` to its name (KIP-932).
SHARE_RECORDS: dict[int, str] = {
    0: "ShareSnapshot",
    1: "ShareUpdate",
}

# Maps a record type of `__cluster_metadata`, the log of the KRaft controllers, to the name of its message.
# Its records have no keys.
METADATA_RECORDS: dict[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
    29: "UnregisterControllerRecord",
}

# Maps a record type of `__remote_log_metadata` (KIP-405) to the name of its message. The records have no
# keys.
REMOTE_LOG_RECORDS: dict[int, str] = {
    0: "RemoteLogSegmentMetadataRecord",
    1: "RemoteLogSegmentMetadataUpdateRecord",
    2: "RemotePartitionDeleteMetadataRecord",
    3: "RemoteLogSegmentMetadataSnapshotRecord",
}

# The record types of each topic that Kafka itself writes to.
RECORDS_OF: dict[str, dict[int, str]] = {
    "__consumer_offsets": RECORDS,
    "__transaction_state": TRANSACTION_RECORDS,
    "__share_group_state": SHARE_RECORDS,
    "__cluster_metadata": METADATA_RECORDS,
    "__remote_log_metadata": REMOTE_LOG_RECORDS,
}

# Topics of `RECORDS_OF` whose records have no keys.
TOPICS_WITHOUT_KEYS = ("__cluster_metadata", "__remote_log_metadata")

_DATA: dict[str, str] = {
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ControlRecordTypeSchema": "control_records",
    "EndTxnMarker": "control_records",
    "LeaderChangeMessage": "control_records",
    "SnapshotHeaderRecord": "control_records",
    "SnapshotFooterRecord": "control_records",
    "KRaftVersionRecord": "control_records",
    "VotersRecord": "control_records",
    "DefaultPrincipalData": "default_principal",
    "AbortedTxn": "aborted_txn",
    "QuorumStateData": "quorum_state_data",
    "ProducerSnapshot": "producer_snapshot",
}

# Maps a topic to the module that declares its records. In `__consumer_offsets`, a record whose name starts
# with a key of `_GROUP_MODULES` is declared in that key's module instead.
_RECORD_MODULES = {
    "__consumer_offsets": "group_records",
    "__transaction_state": "transaction_records",
    "__share_group_state": "share_state_records",
    "__cluster_metadata": "metadata_records",
    "__remote_log_metadata": "remote_log_records",
}
_GROUP_MODULES = {
    "ConsumerGroup": "consumer_group_records",
    "ShareGroup": "share_group_records",
    "StreamsGroup": "streams_group_records",
}


def request_class(api_key: int) -> type[Message]:
    """Return the request class of an API. Raises KeyError for an unknown API key."""
    return message_class(f"{API_NAMES[api_key]}Request")


def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API. Raises KeyError for an unknown API key."""
    return message_class(f"{API_NAMES[api_key]}Response")


def record_classes(
    record_type: int, topic: str = "__consumer_offsets"
) -> tuple[type[Message], type[Message]]:
    """Return the key class and the value class of a record type of this topic.

    Raises KeyError for an unknown type, and for a topic that is not in `RECORDS_OF` or whose records have no
    keys. For records without keys, call `record_value_class`.
    """
    name = RECORDS_OF[topic][record_type]
    return message_class(f"{name}Key"), message_class(f"{name}Value")


def record_value_class(record_type: int, topic: str) -> type[Message]:
    """Return the value class of a record type of this topic. Raises KeyError for an unknown type or topic."""
    name = RECORDS_OF[topic][record_type]
    return message_class(name if topic in TOPICS_WITHOUT_KEYS else f"{name}Value")


def topic_of(name: str) -> str | None:
    """Return the topic whose records contain the message; None unless its kind is "record".

    Raises KeyError for an unknown name.
    """
    return _known(name)[2]


@cache
def message_class(name: str) -> type[Message]:
    """Return the class of the message that Kafka calls `name`. Raises KeyError for an unknown name."""
    message: type[Message] = vars(import_module(f"..{module_of(name)}", __name__))[name]
    return message


def kind_of(name: str) -> Kind:
    """Return the kind of the message with this name, such as "request" or "record".

    Raises KeyError for an unknown name.
    """
    return _known(name)[0]


def key_of(name: str) -> int | None:
    """Return the API key of a request or response, the type of a record, or None for other messages.

    Raises KeyError for an unknown name.
    """
    return _known(name)[1]


def _known(name: str) -> tuple[Kind, int | None, str | None]:
    try:
        return _kinds()[name]
    except KeyError:
        raise KeyError(no_message(name)) from None


def no_message(name: str) -> str:
    """Return the error message for an unknown name. The message lists the most similar names."""
    from difflib import get_close_matches

    known = {message.lower(): message for message in names()}
    near = [lower for lower in known if len(name) > 2 and name.lower() in lower][:4]
    like = [known[lower] for lower in near or get_close_matches(name.lower(), known)] or ["JoinGroupRequest"]
    return f"Kafka {KAFKA_RELEASE} has no message {name!r}; it has messages such as {', '.join(like)}"


def names() -> list[str]:
    """Return the names of all messages, ordered by kind, and within a kind by key."""
    return list(_kinds())


def module_of(name: str) -> str:
    """Return the module of `kproto.messages` that declares a message.

    Raises KeyError for an unknown name.
    """
    kind = kind_of(name)
    if kind == "header":
        return "headers"
    if kind == "data":
        return _DATA[name]
    if topic := topic_of(name):
        return record_module(name, topic)
    return snake_case(re.sub("(Request|Response)$", "", name))


def record_module(name: str, topic: str) -> str:
    """Return the module that declares, or for a new record will declare, the record `name` of `topic`."""
    starts = _GROUP_MODULES if topic == "__consumer_offsets" else {}
    return next((file for start, file in starts.items() if name.startswith(start)), _RECORD_MODULES[topic])


def snake_case(name: str) -> str:
    """Convert Kafka's name to this package's spelling: ``KRaftVersion`` becomes ``k_raft_version``."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@cache
def _kinds() -> dict[str, tuple[Kind, int | None, str | None]]:
    """Return a mapping from each message's name to its kind, its API key or record type, and its topic."""
    kinds: dict[str, tuple[Kind, int | None, str | None]] = {}
    for key, name in API_NAMES.items():
        kinds[f"{name}Request"] = "request", key, None
        kinds[f"{name}Response"] = "response", key, None
    kinds["RequestHeader"] = kinds["ResponseHeader"] = "header", None, None
    for name in _DATA:
        kinds[name] = "data", None, None
    for topic, records in RECORDS_OF.items():
        for key, name in records.items():
            parts = [name] if topic in TOPICS_WITHOUT_KEYS else [f"{name}Key", f"{name}Value"]
            kinds |= dict.fromkeys(parts, ("record", key, topic))
    return kinds
