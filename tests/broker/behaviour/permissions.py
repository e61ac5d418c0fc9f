"""The requests of test_permissions.py, and `answer`, which formats a response for the table in that test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kproto.broker.security.acls import Operation, Resource
from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.messages.index import API_NAMES
from kproto.wire.message import Array, Message, Struct
from tests.broker.stage import batch_of

# The broker has the topics `t` and `u`, but not the topic `absent`.
IDS: Final = {"t": UUID(int=1), "u": UUID(int=2)}
_NAMES: Final = {id_: name for name, id_ in IDS.items()}
KEYS: Final = {name: key for key, name in API_NAMES.items()}


class Request(NamedTuple):
    """A request of the table in test_permissions.py, which is sent in each of `versions`.

    `title` begins with the API's name.

    `instead` is a resource type. A permission on a resource of this type can replace a listed permission:
    CREATE on the cluster replaces CREATE on a topic.

    `also` is an operation that the broker accepts in place of the listed one, on the same resource: ALTER in
    place of CLUSTER_ACTION, or the reverse.
    """

    title: str
    versions: Sequence[int]
    fields: Mapping[str, Any]
    instead: Resource | None = None
    also: Operation | None = None

    @property
    def api(self) -> str:
        return self.title.split(",")[0]


def build(cls: type[Struct], version: int, values: Mapping[str, Any]) -> Any:
    """Build a message from nested dictionaries. Fields that the version does not have are left out."""
    filled: dict[str, Any] = {}
    for field in cls.__fields__:
        if version not in field.versions:
            continue
        value = values.get(field.name, field.initial())
        element = field.kind.element if isinstance(field.kind, Array) else None
        if isinstance(value, list) and isinstance(element, type):
            value = [build(element, version, item) if isinstance(item, dict) else item for item in value]
        filled[field.name] = value
    return cls(**filled)


_LABELS: Final = ("name", "topic", "group_id", "transactional_id", "key", "resource_name", "user")
_CODES: Final = ("error_code", "partition_error_code", "topic_config_error_code")
_PARTS_WITHOUT_ANSWER: Final = {"brokers", "configs", "credential_infos", "endpoints"}


def answer(response: Message | None) -> str:
    """Return the error codes of a response, each after the name of its topic, group or other resource.

    An element without an error code, such as a group in a ListGroups response, is shown by its name only.

    TOPIC_AUTHORIZATION_FAILED is abbreviated to `TOPIC_FAILED`. "t (by id)" is the topic t if the response
    hides its name.
    """
    if response is None:
        return "no response"
    lines = sorted(set(_lines(response, ())))
    return (", ".join(lines) or "NONE").replace("_AUTHORIZATION_FAILED", "_FAILED")


def _lines(struct: Struct, path: tuple[str, ...]) -> Iterator[str]:
    fields = {field.name: getattr(struct, field.name) for field in type(struct).__fields__}
    labels = [fields[name] for name in _LABELS if fields.get(name)]
    topic = _NAMES.get(fields.get("topic_id", NO_ID))
    if topic is not None and not labels:
        labels = [f"{topic} (by id)" if fields.get("name", "") is None else topic]
    path += tuple(labels)
    codes = [ErrorCode(fields[name]).name for name in _CODES if name in fields]
    parts = [
        line
        for name, value in fields.items()
        if isinstance(value, list) and name not in _PARTS_WITHOUT_ANSWER
        for part in value
        if isinstance(part, Struct)
        for line in _lines(part, path)
    ]
    if (labels and not parts) or (codes and path) or any(code != "NONE" for code in codes):
        yield " ".join((*path, *codes))
    yield from parts


def _topics(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Return topics for a request: `build` omits the name or the id if the version does not have it."""
    return [{"name": name, "topic_id": IDS.get(name, NO_ID), **fields} for name in names]


def _named(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Return topic entries for a request that identifies topics by name."""
    return [{"name": name, **fields} for name in names]


_MARKERS: Final = {
    "markers": [
        {
            "producer_id": 9,
            "producer_epoch": 0,
            "coordinator_epoch": 0,
            "transaction_result": False,
            "topics": _named("t", partition_indexes=[0]),
        }
    ]
}
_VOTER: Final = {"cluster_id": None, "voter_id": 1, "voter_directory_id": NO_ID}
_PLAIN_BATCH: Final = batch_of(b"x")
_TRANSACTIONAL_BATCH: Final = batch_of(
    b"x", is_transactional=True, producer_id=0, producer_epoch=0, base_sequence=0
)


def _produce(batch: bytes) -> dict[str, Any]:
    data = [{"index": 0, "records": batch}]
    return {
        "transactional_id": "x",
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": _topics("t", "u", partition_data=data),
    }


_OFFSETS: Final = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
_TRANSACTION: Final = {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0}
_ONE_ACL: Final = {"resource_type": 2, "resource_name": "new", "principal": "User:b", "host": "*"}
_ACL_FILTER: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": "none",
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def _configs(resource_type: int, *names: str) -> list[dict[str, Any]]:
    """Return the resources of a request that describes or alters a config."""
    changes: list[dict[str, Any]] = []
    return [
        {"resource_type": resource_type, "resource_name": name, "configuration_keys": [], "configs": changes}
        for name in names
    ]


REQUESTS: Final = (
    Request("Produce, by name", (3, 12, 13), _produce(_PLAIN_BATCH)),
    Request("Produce, in a transaction before version 11", (3, 10), _produce(_TRANSACTIONAL_BATCH)),
    Request("Produce, in a transaction", (12, 13), _produce(_TRANSACTIONAL_BATCH)),
    Request(
        "Fetch, by name",
        (4, 12),
        {
            "topics": [
                {"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
                for name in ("t", "u")
            ]
        },
    ),
    Request(
        "Fetch, by id",
        (13, 17),
        {
            "topics": [
                {"topic_id": IDS[name], "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
                for name in ("t", "u")
            ]
        },
    ),
    Request(
        "ListOffsets",
        (1, 10),
        {"topics": _named("t", "u", "absent", partitions=[{"partition_index": 0, "timestamp": -1}])},
    ),
    Request(
        "Metadata, by name before version 4",
        (0, 1, 3),
        {"topics": _named("t", "u", "absent"), "allow_auto_topic_creation": False},
        Resource.CLUSTER,
    ),
    Request(
        "Metadata, by name",
        (4, 13),
        {"topics": _named("t", "u", "absent"), "allow_auto_topic_creation": False},
    ),
    Request(
        "Metadata, by id",
        (12, 13),
        {
            "topics": [{"name": None, "topic_id": id_} for id_ in IDS.values()],
            "allow_auto_topic_creation": False,
        },
    ),
    Request("Metadata, of all in version 0", (0,), {"topics": []}),
    Request("Metadata, of no topic", (1, 13), {"topics": []}),
    Request("Metadata, of all", (1, 13), {"topics": None}),
    Request(
        "Metadata, with CREATE on a topic",
        (4, 13),
        {"topics": _named("t", "absent"), "allow_auto_topic_creation": True},
        Resource.CLUSTER,
    ),
    Request(
        "Metadata, with CREATE on the cluster",
        (4, 13),
        {"topics": _named("t", "absent"), "allow_auto_topic_creation": True},
        Resource.TOPIC,
    ),
    Request("OffsetCommit", (2, 9, 10), {"group_id": "g", "topics": _topics("t", "u", partitions=_OFFSETS)}),
    Request(
        "OffsetFetch, of topics in version 1",
        (1,),
        {"group_id": "g", "topics": _named("t", "u", partition_indexes=[0])},
    ),
    Request(
        "OffsetFetch, of topics", (2, 7), {"group_id": "g", "topics": _named("t", "u", partition_indexes=[0])}
    ),
    Request("OffsetFetch, of all topics", (2, 7), {"group_id": "g", "topics": None}),
    Request(
        "OffsetFetch, of groups",
        (8, 9, 10),
        {
            "groups": [
                {"group_id": "g", "topics": _topics("t", "u", partition_indexes=[0])},
                {"group_id": "h", "topics": None},
            ]
        },
    ),
    Request("FindCoordinator, of a group", (0, 3), {"key": "g", "key_type": 0}),
    Request("FindCoordinator, of a transactional id", (1, 3), {"key": "x", "key_type": 1}),
    Request("FindCoordinator, of groups", (4, 6), {"coordinator_keys": ["g", "h"], "key_type": 0}),
    Request("FindCoordinator, of transactional ids", (4, 6), {"coordinator_keys": ["x", "y"], "key_type": 1}),
    Request(
        "JoinGroup",
        (0, 3, 9),
        {"group_id": "g", "member_id": "m", "session_timeout_ms": 1, "protocol_type": "consumer"},
    ),
    Request("Heartbeat", (0, 4), {"group_id": "g", "member_id": "m"}),
    Request("LeaveGroup", (0, 5), {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]}),
    Request("SyncGroup", (0, 4), {"group_id": "g", "member_id": "m"}),
    Request(
        "SyncGroup, with protocols",
        (5,),
        {"group_id": "g", "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"},
    ),
    Request(
        "SyncGroup, without a protocol",
        (5,),
        {"group_id": "g", "member_id": "m", "protocol_type": "consumer"},
    ),
    Request("DescribeGroups", (0, 6), {"groups": ["g", "h"]}),
    Request("ListGroups, with DESCRIBE on groups", (0, 5), {}, Resource.CLUSTER),
    Request("ListGroups, with DESCRIBE on the cluster", (0, 5), {}, Resource.GROUP),
    Request(
        "CreateTopics, with CREATE on topics",
        (5, 7),
        {"topics": _named("new", "other", num_partitions=1, replication_factor=1), "timeout_ms": 1},
        Resource.CLUSTER,
    ),
    Request(
        "CreateTopics, with CREATE on the cluster",
        (2, 4),
        {"topics": _named("new", num_partitions=1, replication_factor=1), "timeout_ms": 1},
        Resource.TOPIC,
    ),
    Request("DeleteTopics, of names", (1, 5), {"topic_names": ["t", "u", "absent"]}),
    Request("DeleteTopics, by name", (6,), {"topics": _named("t", "u", "absent")}),
    Request(
        "DeleteTopics, by id",
        (6,),
        {"topics": [{"name": None, "topic_id": id_} for id_ in (*IDS.values(), UUID(int=9))]},
    ),
    Request("DeleteRecords", (0, 2), {"topics": _named("t", "u", partitions=[{"partition_index": 0}])}),
    Request(
        "InitProducerId, of a transactional id",
        (0, 5),
        {"transactional_id": "x", "transaction_timeout_ms": 60_000},
    ),
    Request("InitProducerId, with WRITE on a topic", (0, 5), {"transactional_id": None}, Resource.CLUSTER),
    Request("InitProducerId, with IDEMPOTENT_WRITE", (0, 5), {"transactional_id": None}, Resource.TOPIC),
    Request(
        "OffsetForLeaderEpoch",
        (2, 4),
        {"topics": [{"topic": name, "partitions": [{"partition": 0}]} for name in ("t", "u")]},
    ),
    Request(
        "AddPartitionsToTxn, of a producer",
        (0, 3),
        {
            **{f"v3_and_below_{name}": value for name, value in _TRANSACTION.items()},
            "v3_and_below_topics": _named("t", "absent", partitions=[0]),
        },
    ),
    Request(
        "AddPartitionsToTxn, of a broker",
        (4, 5),
        {"transactions": [{**_TRANSACTION, "topics": _named("t", partitions=[0])}]},
    ),
    Request("AddOffsetsToTxn", (0, 4), {**_TRANSACTION, "group_id": "g"}),
    Request("EndTxn", (0, 5), _TRANSACTION),
    Request("WriteTxnMarkers, with ALTER", (1, 2), _MARKERS, also=Operation.CLUSTER_ACTION),
    Request("WriteTxnMarkers, with CLUSTER_ACTION", (1, 2), _MARKERS, also=Operation.ALTER),
    Request(
        "TxnOffsetCommit, before version 4",
        (0, 3),
        {**_TRANSACTION, "group_id": "g", "topics": _named("t", "u", partitions=_OFFSETS)},
    ),
    Request(
        "TxnOffsetCommit",
        (5,),
        {**_TRANSACTION, "group_id": "g", "topics": _named("t", "u", partitions=_OFFSETS)},
    ),
    Request("DescribeAcls", (1, 3), _ACL_FILTER),
    Request(
        "CreateAcls",
        (1, 3),
        {"creations": [{**_ONE_ACL, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}]},
    ),
    Request("DeleteAcls", (1, 3), {"filters": [{**_ACL_FILTER, "principal_filter": "User:nobody"}]}),
    *(
        Request(f"{api}, of a {kind}", versions, {"resources": _configs(code, *names)})
        for api, versions in (
            ("DescribeConfigs", (1, 4)),
            ("AlterConfigs", (0, 2)),
            ("IncrementalAlterConfigs", (0, 1)),
        )
        for kind, code, names in (
            ("topic", 2, ("t", "u")),
            ("broker", 4, ("1",)),
            ("logger", 8, ("1",)),
            ("subscription of metrics", 16, ("1",)),
            ("group", 32, ("g", "h")),
        )
    ),
    Request(
        "AlterReplicaLogDirs", (1, 2), {"dirs": [{"path": "memory", "topics": _named("t", partitions=[0])}]}
    ),
    Request("DescribeLogDirs, before version 3", (1, 2), {"topics": None}),
    Request("DescribeLogDirs", (3, 4), {"topics": None}),
    Request(
        "CreatePartitions", (0, 3), {"topics": _named("t", "u", count=2, assignments=None), "timeout_ms": 1}
    ),
    Request("DeleteGroups", (0, 2), {"groups_names": ["g", "h"]}),
    Request("ElectLeaders, in version 0", (0,), {"topic_partitions": [{"topic": "t", "partitions": [0]}]}),
    Request("ElectLeaders", (1, 2), {"topic_partitions": [{"topic": "t", "partitions": [0]}]}),
    Request(
        "AlterPartitionReassignments",
        (0, 1),
        {"topics": _named("t", partitions=[{"partition_index": 0, "replicas": [1]}])},
    ),
    Request("ListPartitionReassignments", (0,), {"topics": None}),
    Request(
        "OffsetDelete",
        (0,),
        {"group_id": "g", "topics": _named("t", "u", partitions=[{"partition_index": 0}])},
    ),
    Request("DescribeClientQuotas", (0, 1), {"components": [], "strict": False}),
    Request(
        "AlterClientQuotas",
        (0, 1),
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "request_percentage", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    Request("DescribeUserScramCredentials", (0,), {"users": [{"name": "bob"}]}),
    Request("AlterUserScramCredentials", (0,), {"deletions": [{"name": "nobody", "mechanism": 1}]}),
    Request(
        "DescribeQuorum",
        (0, 2),
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    Request("UpdateFeatures", (0, 2), {"feature_updates": []}),
    Request("DescribeProducers", (0,), {"topics": _named("t", "u", partition_indexes=[0])}),
    Request("UnregisterBroker", (0,), {"broker_id": 1}),
    Request("DescribeTransactions", (0,), {"transactional_ids": ["x", "y"]}),
    Request("ListTransactions", (0, 2), {}),
    Request("ListConfigResources", (1,), {"resource_types": [32]}),
    Request(
        "DescribeTopicPartitions, of topics",
        (0,),
        {"topics": _named("t", "u", "absent"), "response_partition_limit": 100},
    ),
    Request("DescribeTopicPartitions, of all", (0,), {"topics": [], "response_partition_limit": 100}),
    Request(
        "AddRaftVoter",
        (0, 1),
        {"cluster_id": None, "timeout_ms": 1, "voter_id": 1, "voter_directory_id": NO_ID, "listeners": []},
    ),
    Request("RemoveRaftVoter", (0,), {"cluster_id": None, "voter_id": 1, "voter_directory_id": NO_ID}),
)
