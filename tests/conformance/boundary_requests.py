"""Draw valid but unusual requests: boundary numbers, odd names, duplicates.

A request is drawn field by field from its declaration. Few fields get an odd value, because the broker often
rejects a request at its first odd value and does not read the rest.

The same seed draws the same request for two brokers. A `Scene`, the test data of one broker, supplies the ids
of topics, producers and members that this broker chose.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.records import Record, encode_batch
from kproto.wire.message import FRESH, Array, Field, Message, Struct
from kproto.wire.types import Primitive

NO_ID, SOME_ID = uuid.UUID(int=0), uuid.UUID(int=9)
NOW: Final = int(time.time() * 1000) // 60_000 * 60_000
ODD: Final = 0.12  # The probability that a field gets an odd value, one that clients do not send.

Pool = tuple[Sequence[Any], Sequence[Any]]

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

# Field -> its value in each request. Other values are not drawn, because only followers send them.
_FIXED: Final[Mapping[str, Any]] = {
    "replica_id": -1,
    "replica_directory_id": NO_ID,
    "high_watermark": 2**63 - 1,
}


@dataclass
class Scene:
    """The test data of one broker.

    Two compared brokers have topics with the same names but different topic ids.
    """

    title: str
    ids: dict[str, uuid.UUID] = field(default_factory=dict[str, uuid.UUID])
    producer: tuple[int, int] = (-1, -1)
    idempotent: tuple[int, int] = (-1, -1)
    member: str = ""
    generation: int = -1
    count: int = 0

    def name(self, short: str) -> str:
        return f"{self.title}-{short}"


def edges(bits: int) -> list[int]:
    return [-2, -1, 0, 1, 2, (1 << bits - 1) - 1, -(1 << bits - 1)]


def _batches(scene: Scene) -> Pool:
    """Return usual batches, and odd ones: invalid, empty, compressed or of an unexpected producer."""

    def batch(*values: bytes, key: bytes | None = b"k", at: int = NOW, **fields: Any) -> bytes:
        first = fields.get("base_offset", 0)
        records = [Record(first + n, at, key, value) for n, value in enumerate(values or (b"v",))]
        return encode_batch(records, **fields)

    own, epoch = scene.idempotent
    wrong = bytearray(batch())
    wrong[16] = 1  # The magic byte.
    flipped = bytearray(batch())
    flipped[-1] ^= 1
    strange = bytearray(batch())
    strange[22] |= 0x80  # This batch sets an unused bit of the attributes.
    producers = [
        {"producer_id": pid, "producer_epoch": e, "base_sequence": s}
        for pid in (own, 5_000_000)
        for e in (epoch, epoch + 1, -1)
        for s in (0, 1, -1, 2**31 - 1)
    ]
    # Null records are not drawn: Kafka 4.3.1 sends no response to them; the embedded broker answers
    # INVALID_RECORD.
    odd: list[bytes | None] = [b"", b"\0", b"\0" * 61, bytes(wrong), bytes(flipped), bytes(strange)]
    odd += [batch()[:-1], batch() + b"\0", batch() + batch(), batch(base_offset=7), batch(last_offset=9)]
    odd += [batch(at=-1), batch(at=-2), batch(at=NOW + 10**9), batch(at=0), batch(key=None)]
    odd += [
        batch(b"a", b"b", base_timestamp=NOW + 99),
        batch(max_timestamp=NOW + 99),
        batch(max_timestamp=-1),
    ]
    odd += [encode_batch([], last_offset=0)]
    odd += [batch(compression=codec) for codec in ("gzip", "lz4", "snappy", "zstd")]
    odd += [
        batch(timestamp_type="LogAppendTime"),
        batch(partition_leader_epoch=5),
        batch(delete_horizon_ms=NOW),
    ]
    odd += [batch(**producer) for producer in producers]
    pid, epoch = scene.producer
    # The last pair has an unknown producer id. Ids of other producers are not drawn: Kafka remembers the
    # sequence number of a transactional batch even if it rejects the batch, and compares the producer's later
    # batches with this number.
    for of in ((pid, epoch), (pid, epoch - 1), (6_000_000, 0)):
        transactional = {"producer_id": of[0], "producer_epoch": of[1], "is_transactional": True}
        odd += [
            batch(base_sequence=s, is_control=c, **transactional) for s in (0, 3, -1) for c in (False, True)
        ]
    odd += [batch(is_control=True), batch(is_transactional=True)]
    return [batch(), batch(b"1", b"2")], odd


def pools(scene: Scene) -> dict[str, Pool]:
    """Map each field, as "name" or "Class.name", to its usual and its odd values."""
    name = scene.name
    topics = [name("t"), name("t"), name("t"), name("e")]
    odd_topics = [
        "",
        ".",
        "..",
        "a b",
        name("none"),
        "x" * 250,
        name("x" * 249)[:249],
        "é",
        name("T"),
        name("t").replace("-", "_"),
    ]
    ids = [scene.ids.get("t", NO_ID), scene.ids.get("t", NO_ID), scene.ids.get("e", NO_ID)]
    groups, odd_groups = [name("g"), name("g"), name("m")], ["", name("none"), name("x" * 300), name("é")]
    txns, odd_txns = [name("x")], ["", name("none"), name("é")]
    members, odd_members = [scene.member, ""], ["ghost", "x" * 300]
    fresh = [name(f"n{scene.count}"), name(f"n{scene.count}b"), name(f"n{scene.count}c")]
    epochs = [-1, 0]
    # Unknown producer ids. Small numbers are left out, since brokers assign these themselves.
    strangers = [-2, -1, 9_000_000, 2**63 - 1, -(2**63)]
    configs = ["retention.ms", "cleanup.policy", "segment.bytes", "min.cleanable.dirty.ratio"]
    odd_configs = ["", "no.such", *sorted(TOPIC_CONFIGS)]
    values = ["1", "100000000", "compact", "delete", "0.5"]
    odd_values = [
        "",
        " ",
        "-1",
        "-2",
        "0",
        "NaN",
        "0.5f",
        "1d",
        "0x1p-1",
        "true",
        "1_0",
        "compact,delete",
        "compact,compact",
        "compact,,",
        ",",
        "gzip",
        "LogAppendTime",
        "0:1,1:1",
        "*",
        "0x10",
    ]
    acl_types, acl_ops = [2, 3, 1], [0, 1, 2, 3, 4, 7, 12]
    return {
        "topic": (topics, odd_topics),
        "name": (topics, odd_topics),
        "topic_names": (topics, odd_topics),
        "topic_name": (topics, odd_topics),
        "topic_id": (ids, [NO_ID, SOME_ID]),
        # NO_ID is left out: Kafka 4.3.1 throws a NullPointerException if a topic without an id precedes
        # another topic.
        "FetchTopic.topic_id": (ids, [SOME_ID]),
        "partition": ([0, 0, 0, 1], [*edges(32), 99]),
        "partitions": ([0, 0, 0, 1], [*edges(32), 99]),
        "partition_index": ([0, 0, 0, 1], [*edges(32), 99]),
        "partition_indexes": ([0, 0, 0, 1], [*edges(32), 99]),
        "index": ([0, 0, 0, 1], [*edges(32), 99]),
        "current_leader_epoch": (epochs, edges(32)),
        "committed_leader_epoch": (epochs, edges(32)),
        "leader_epoch": (epochs, edges(32)),
        "last_fetched_epoch": (epochs, edges(32)),
        "fetch_offset": ([0, 1, 3], [*edges(64), 4]),
        "timestamp": ([-1, -2, NOW], [*edges(64), -3, -4, -5, -6, -7, NOW + 1, NOW + 99]),
        "max_wait_ms": ([0], [-1, -2, 1, 50]),
        "min_bytes": ([0, 1], edges(32)),
        "isolation_level": ([0, 1], [*edges(8), 7]),
        "max_bytes": ([1 << 20], edges(32)),
        "partition_max_bytes": ([1 << 20], edges(32)),
        "session_id": ([0], [-1, 2_000_000_001]),
        "session_epoch": ([-1, 0], [1, -2, 2**31 - 1]),
        "log_start_offset": ([-1], [0, 5]),
        "rack_id": ([""], ["x", "é"]),
        "cluster_id": ([None], ["x", ""]),
        "timeout_ms": ([5000], []),
        "group_id": (groups, odd_groups),
        "groups": (groups, odd_groups),
        "groups_names": (groups, odd_groups),
        "key": ([*groups, *txns], odd_groups),
        "coordinator_keys": ([*groups, *txns], odd_groups),
        "key_type": ([0, 1], [-2, -1, 3, 127, -128]),
        # The empty group id is not drawn. A commit would create this group, and later requests would find it.
        "OffsetCommitRequest.group_id": (groups, odd_groups[1:]),
        "TxnOffsetCommitRequest.group_id": (groups, odd_groups[1:]),
        "generation_id": ([scene.generation], edges(32)),
        "generation_id_or_member_epoch": ([-1, scene.generation], edges(32)),
        "member_epoch": ([-1], edges(32)),
        "member_id": (members, odd_members),
        "group_instance_id": ([None], ["", "one", "x" * 300, "a b"]),
        "session_timeout_ms": ([6000], [-1, 0, 299, 300, 1_800_000, 1_800_001, 2**31 - 1]),
        "rebalance_timeout_ms": ([6000], [-1, 0, 300]),
        "protocol_type": (["consumer"], ["", "connect"]),
        "protocol_name": (["range"], ["", "sticky"]),
        "JoinGroupRequestProtocol.name": (["range"], ["", "sticky", "roundrobin"]),
        "metadata": ([b""], [b"\0", b"\0\1\0\0\0\0\xff\xff\xff\xff"]),
        "assignment": ([b""], [b"x"]),
        "reason": ([None], ["", "x" * 300]),
        "retention_time_ms": ([-1], edges(64)),
        "committed_offset": ([0, 1, 3], edges(64)),
        "committed_metadata": ([None, "", "m"], ["x" * 4096, "x" * 4097]),
        "states_filter": (["Stable", "Empty", "stable"], ["", "none"]),
        "types_filter": (["classic", "consumer", "Classic"], ["", "none"]),
        "CreatableTopic.name": (
            fresh,
            [name("t"), name("t.t"), name("t_t"), "__cluster_metadata", *odd_topics],
        ),
        "num_partitions": ([1, 2, -1], [-2, 0, 10_000, 10_001]),
        "replication_factor": ([1, -1], [-2, 0, 2, 32767]),
        "count": ([3, 4], [-2, -1, 0, 1, 2]),
        "broker_ids": ([1], [0, 2, -1]),
        "CreatableTopicConfig.name": (configs, odd_configs),
        "AlterableConfig.name": (configs, odd_configs),
        "configuration_keys": (configs, odd_configs),
        "CreatableTopicConfig.value": (values, odd_values),
        "AlterableConfig.value": (values, odd_values),
        "config_operation": ([0, 1, 2, 3], []),
        "resource_type": ([2], [0, 1, 3, 4, 5, 127, -1]),
        "AlterConfigsResource.resource_type": ([2], []),
        "resource_name": (topics, ["1", "2", *odd_topics]),
        "transactional_id": (txns, odd_txns),
        "transactional_ids": (txns, odd_txns),
        "v3_and_below_transactional_id": (txns, odd_txns),
        # Unknown transactional ids are not drawn. With an unknown id, and an epoch older than that of the
        # producer's last marker in `__consumer_offsets`, Kafka answers INVALID_PRODUCER_EPOCH, but the
        # embedded broker answers INVALID_PRODUCER_ID_MAPPING.
        "TxnOffsetCommitRequest.transactional_id": (txns, []),
        "InitProducerIdRequest.transactional_id": ([*txns, None], odd_txns),
        "ProduceRequest.transactional_id": ([None, *txns], odd_txns),
        "producer_id": ([scene.producer[0]], strangers),
        "producer_epoch": ([scene.producer[1]], edges(16)),
        "v3_and_below_producer_id": ([scene.producer[0]], strangers),
        "v3_and_below_producer_epoch": ([scene.producer[1]], edges(16)),
        "ProduceRequest.timeout_ms": ([5000], edges(32)),
        "DeleteRecordsRequest.timeout_ms": ([5000], edges(32)),
        "ListOffsetsRequest.timeout_ms": ([5000], edges(32)),
        # Timeouts of a few milliseconds are left out: whether Kafka's controller responds in time would
        # depend on chance.
        "ElectLeadersRequest.timeout_ms": ([5000], [0, -1, -(2**31)]),
        "election_type": ([0, 1], edges(8)),
        "transaction_timeout_ms": ([60_000], [*edges(32), 900_000, 900_001]),
        "producer_id_filters": ([scene.producer[0]], strangers),
        "state_filters": (["Ongoing", "Empty"], ["", "none", "ongoing", "Dead"]),
        "duration_filter": ([-1], edges(64)),
        "transactional_id_pattern": ([f"{scene.title}.*"], ["", "(", "x", f"{scene.title}"]),
        "enable2_pc": ([False], [False]),
        "keep_prepared_txn": ([False], [False]),
        "endpoint_type": ([1], edges(8)),
        "response_partition_limit": ([2000, 1], edges(32)),
        "acks": ([-1, 1], [0]),
        "offset": ([0, 1, -1], [*edges(64), 3, 4]),
        "resource_type_filter": (acl_types, edges(8)),
        "resource_pattern_type": ([3, 4], edges(8)),
        "pattern_type_filter": ([3, 4, 1], edges(8)),
        "operation": (acl_ops, edges(8)),
        "permission_type": ([2, 3], edges(8)),
        "AclCreation.resource_type": (acl_types, edges(8)),
        "AclCreation.resource_name": ([name("t")], ["", "*", "é"]),
        "resource_name_filter": ([name("t"), None], ["", "*"]),
        "principal": (["User:alice"], ["", "alice", "User:", ":", "User:*", "Group:a"]),
        "principal_filter": (["User:alice", None], ["", "alice", "User:"]),
        "host": (["*"], ["", "h", "127.0.0.1"]),
        "host_filter": (["*", None], ["", "h"]),
        "mechanism": ([1, 2], edges(8)),
        "SaslHandshakeRequest.mechanism": (["PLAIN"], [""]),
        "iterations": ([4096], edges(32)),
        "salt": ([b"salt"], [b""]),
        "salted_password": ([b"p" * 32], [b""]),
        "UserName.name": ([name("u")], ["", name("é")]),
        "ScramCredentialDeletion.name": ([name("u")], ["", name("é")]),
        "ScramCredentialUpsertion.name": ([name("u")], ["", name("é")]),
        # No client id or user has these names, so the drawn quotas apply to no client of the tests.
        "entity_type": (["user", "client-id", "user"], ["ip", "", "group", "User"]),
        "entity_name": ([name("u")], ["", name("é")]),
        "match_type": ([0], edges(8)),
        "match": ([name("u")], ["", name("é")]),
        "OpData.key": (
            ["producer_byte_rate", "request_percentage", "consumer_byte_rate"],
            ["", "connection_creation_rate", "controller_mutation_rate", "no.such"],
        ),
        "OpData.value": ([1.0, 1e6, 0.5], [0.0, -1.0, 1.0000001, 1e300, float("inf"), -float("inf")]),
        "ReassignablePartition.replicas": ([1], [0, 2, -1]),
        "ApiVersionsRequest.node_id": ([-1], [0, 1, 5, -2]),
        "client_software_name": (["a"], ["", "a b", "é", "-a", "a-"]),
        "client_software_version": (["1"], ["", "a b", "é", "-a", "a-"]),
    }


# Lists that clients usually leave empty or null, so that the broker chooses the values.
_SPARSE: Final = {
    "forgotten_topics_data",
    "CreatableTopic.assignments",
    "CreatePartitionsTopic.assignments",
    "SyncGroupRequest.assignments",
    "CreatableTopic.configs",
    "configuration_keys",
    "states_filter",
    "types_filter",
    "state_filters",
    "producer_id_filters",
    "cursor",
}


# Lists that get a single entry, as clients send them. The response to several entries is not defined.
_ALONE: Final = {"transactions", "protocols"}


# Fields that are never drawn as null. Kafka 4.3.1 sends no response to a Produce request with null records. A
# quota of a null entity would apply to the clients of all tests.
_NEVER_NULL: Final = {"records", "entity_name"}


# Lists in which a duplicate entry is an exact copy. If two different entries had the same name, Kafka would
# process and answer only one of them.
_TWICE_ALIKE: Final = {"topic_data", "partition_data"}


def _names(entry: Any) -> Any:
    return (entry.name, entry.topic_id) if hasattr(entry, "topic_id") else entry.index


class Drawing:
    """Draws usual and odd field values for requests of `version` to the broker of `scene`."""

    def __init__(self, scene: Scene, dice: Random, version: int, odd: float = ODD) -> None:
        self._scene = scene
        self._pools = pools(scene)
        self._dice = dice
        self._version = version
        self._odd = odd

    def draw(self, kind: type[Any]) -> Any:
        values = {
            field.name: self._value(kind, field)
            for field in kind.__fields__
            if self._version in field.versions
        }
        if values.get("assignments") and kind.__name__ == "CreatableTopic" and not self._is_odd():
            # If the request assigns replicas explicitly, brokers accept only -1 for the partition count and
            # the replication factor.
            values |= {"num_partitions": -1, "replication_factor": -1}
        return kind(**values)

    def _is_odd(self) -> bool:
        return self._dice.random() < self._odd

    def _value(self, owner: type[Struct], field: Field) -> Any:
        if field.name in _FIXED:
            return _FIXED[field.name]
        if field.default is FRESH:
            return field.initial()
        places = {field.name, f"{owner.__name__}.{field.name}"}
        sparse = not places.isdisjoint(_SPARSE)
        null = self._version in field.nullable
        if isinstance(field.kind, Array):
            if null and self._dice.random() < (0.6 if sparse else 0.05):
                return None
            element = field.kind.element
            odd = self._is_odd()
            if field.name in _ALONE:
                return [self._one(owner, field, element)]
            if sparse and not odd and self._dice.random() < 0.7:
                return []
            size = self._dice.choice([0, 2, 3] if odd else [1, 1, 1, 2])
            entries = [self._one(owner, field, element) for _ in range(size)]
            if field.name in _TWICE_ALIKE:
                entries = list({_names(each): each for each in entries}.values())
            if field.name == "assignments" and not odd:
                for index, each in enumerate(entries):
                    if hasattr(each, "partition_index"):
                        each.partition_index = index
            if entries and self._is_odd():  # A duplicate entry.
                entries.append(self._dice.choice(entries))
            return entries
        if null and not isinstance(field.kind, Primitive):
            return None if self._dice.random() < 0.8 else self.draw(field.kind)
        value = self._one(owner, field, field.kind)
        if null and field.name not in _NEVER_NULL and self._dice.random() < 0.03:
            return None
        if value is None and not null:
            return field.default
        return value

    def _one(self, owner: type[Struct], field: Field, kind: Any) -> Any:
        if not isinstance(kind, Primitive):
            return self.draw(kind)
        pool = self._pools.get(f"{owner.__name__}.{field.name}") or self._pools.get(field.name)
        if field.name == "records":
            pool = _batches(self._scene)
        if pool is None:
            if kind.name == "bool":
                return self._dice.random() < 0.3
            raise AssertionError(f"no values for {owner.__name__}.{field.name}")
        usual, odd = pool
        return self._dice.choice(odd if odd and self._is_odd() else usual)


def draw_request(kind: type[Message], version: int, scene: Scene, seed: str, odd: float = ODD) -> Any:
    """Draw a request. The same seed gives the same request, except for ids of the scene's broker."""
    return Drawing(scene, Random(seed), version, odd).draw(kind)
