"""Valid values for the required arguments of the public methods of all clients."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from consumer import (
    AclBinding,
    AclBindingFilter,
    AlterConfigOp,
    ClientQuotaEntity,
    ConfigResource,
    FeatureUpdate,
    ProducerMessage,
    RaftVoterEndpoint,
    TopicPartition,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
)
from kproto.messages.list_groups import ListGroupsRequest
from kproto.records import Record, encode_batch

P0: Final = TopicPartition("t", 0)
BATCH: Final = encode_batch([Record(0, 0, None, b"x")])

# Values of the arguments whose names have the same meaning in every method.
_VALUES: Final[dict[str, Any]] = {
    "acls": [AclBinding("topic", "t", "User:a", "read")],
    "alterations": [UserScramCredentialDeletion("a", "SCRAM-SHA-256")],
    "batch": {"value": [b"x"]},
    "broker": 9,
    "brokers": [1],
    "callback": print,
    "changes": {ConfigResource("topic", "t"): [AlterConfigOp("retention.ms", "1")]},
    "controller": 9,
    "coordinator_epoch": 0,
    "directory_id": UUID(int=1),
    "election_type": "preferred",
    "endpoints": [RaftVoterEndpoint("CONTROLLER", "localhost", 9093)],
    "filters": [AclBindingFilter("topic", "t")],
    "group": "g",
    "groups": ["g"],
    "hmac": b"h",
    "message": ProducerMessage(topic="t", value=b"x"),
    "messages": [ProducerMessage(topic="t", value=b"x")],
    "names": ["g"],
    "offset": 1,
    "offsets": {P0: 1},
    "partition": P0,
    "partitions": [P0],
    "paths": {TopicPartitionReplica("t", 0, 1): "/data"},
    "producer_epoch": 0,
    "producer_id": 1,
    "records": BATCH,
    "replicas": {P0: [1]},
    "request": ListGroupsRequest(),
    "resources": [ConfigResource("topic", "t")],
    "topic": "t",
    "topics": ["t"],
    "totals": {"t": 3},
    "transactional_id": "x",
    "transactional_ids": ["x"],
    "updates": {"metadata.version": FeatureUpdate(20)},
    "voter_id": 1,
    "wants": {P0: 0},
    "where": "earliest",
}
# The values of arguments whose meaning depends on the method.
_OF_METHODS: Final[dict[tuple[str, str], Any]] = {
    ("alter_client_quotas", "changes"): {ClientQuotaEntity(user="a"): {"producer_byte_rate": 1.0}},
    ("consume_partition", "partition"): 0,
    ("create_topics", "topics"): {"new": 1},
    ("describe_replica_log_dirs", "replicas"): [TopicPartitionReplica("t", 0, 1)],
    ("list_consumer_group_offsets", "groups"): {"g": [P0]},
    ("list_share_group_offsets", "groups"): {"g": None},
}


def valid_argument(method: str, name: str) -> Any:
    """Return a valid value of a method's argument, or None if no value is known for it."""
    if (method, name) == ("run", "plan"):
        return (None for _ in ())
    return _OF_METHODS.get((method, name), _VALUES.get(name))
