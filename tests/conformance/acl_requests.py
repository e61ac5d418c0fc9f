"""Requests with which the tests compare the authorization of two brokers.

The brokers have the same users, ACLs and resources.

alice has all permissions and creates the ACLs. bob has some permissions. Each request names resources that
bob may use, resources that bob may not use, and missing resources.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from consumer import Admin
from kproto.broker.security.acls import Operation as Op
from kproto.broker.security.acls import PatternType, Permission, Resource
from kproto.broker.server import running
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kproto.messages.add_raft_voter import AddRaftVoterRequest
from kproto.messages.alter_client_quotas import AlterClientQuotasRequest
from kproto.messages.alter_configs import AlterableConfig as WholeConfig
from kproto.messages.alter_configs import AlterConfigsRequest
from kproto.messages.alter_configs import AlterConfigsResource as WholeConfigs
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kproto.messages.create_acls import AclCreation, CreateAclsRequest
from kproto.messages.create_delegation_token import CreateDelegationTokenRequest
from kproto.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.describe_acls import DescribeAclsRequest
from kproto.messages.describe_client_quotas import DescribeClientQuotasRequest
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kproto.messages.describe_producers import DescribeProducersRequest
from kproto.messages.describe_producers import TopicRequest as ProducersRequest
from kproto.messages.describe_quorum import DescribeQuorumRequest
from kproto.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kproto.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kproto.messages.list_transactions import ListTransactionsRequest
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kproto.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.remove_raft_voter import RemoveRaftVoterRequest
from kproto.messages.renew_delegation_token import RenewDelegationTokenRequest
from kproto.messages.sync_group import SyncGroupRequest
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproto.messages.unregister_broker import UnregisterBrokerRequest
from kproto.messages.update_features import UpdateFeaturesRequest
from kproto.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kproto.wire.message import Message, Struct
from tests.broker.stage import batch_of
from tests.conformance import judges, secured_kafka

TOPICS = ("may-read", "may-write", "may-describe", "may-change", "may-not", "but-not-this")

ASKED = (*TOPICS, "absent", "may-create-it")

GROUPS = ("bobs", "described", "deleted", "others")

TRANSACTIONS = ("bobs", "described", "others")

ALLOW, DENY = Permission.ALLOW, Permission.DENY

ALLOW, DENY = Permission.ALLOW, Permission.DENY

RULES = [
    (Resource.TOPIC, "may-read", PatternType.LITERAL, "User:bob", Op.READ, ALLOW),
    (Resource.TOPIC, "may-write", PatternType.LITERAL, "User:bob", Op.WRITE, ALLOW),
    (Resource.TOPIC, "may-describe", PatternType.LITERAL, "User:bob", Op.DESCRIBE, ALLOW),
    *(
        (Resource.TOPIC, "may-change", PatternType.LITERAL, "User:bob", operation, ALLOW)
        for operation in (Op.ALTER, Op.DELETE, Op.ALTER_CONFIGS)
    ),
    (Resource.TOPIC, "but-", PatternType.PREFIXED, "User:bob", Op.ALL, ALLOW),
    (Resource.TOPIC, "but-not", PatternType.PREFIXED, "User:*", Op.ALL, DENY),
    (Resource.TOPIC, "may-create", PatternType.PREFIXED, "User:bob", Op.CREATE, ALLOW),
    (Resource.GROUP, "bobs", PatternType.LITERAL, "User:bob", Op.READ, ALLOW),
    (Resource.GROUP, "described", PatternType.LITERAL, "User:bob", Op.DESCRIBE, ALLOW),
    (Resource.GROUP, "deleted", PatternType.LITERAL, "User:bob", Op.DELETE, ALLOW),
    (Resource.TRANSACTIONAL_ID, "bobs", PatternType.LITERAL, "User:bob", Op.WRITE, ALLOW),
    (Resource.TRANSACTIONAL_ID, "described", PatternType.LITERAL, "User:bob", Op.DESCRIBE, ALLOW),
]

BATCH = batch_of(b"x")

TRANSACTIONAL = batch_of(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)

NO_ID = uuid.UUID(int=0)


class Side:
    """One broker, with a connection for each user."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.users = {
            name: Admin(
                place,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username=name,
                sasl_password=password,
                timeout=60,
            )
            for name, password in secured_kafka.USERS.items()
        }
        alice = self.users["alice"]
        alice.create_topics(dict.fromkeys(TOPICS, 1))
        creations = [
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for resource, name, pattern, principal, operation, permission in RULES
        ]
        answer: Any = alice.request(CreateAclsRequest(creations=creations))
        assert [result.error_code for result in answer.results] == [0] * len(RULES)
        for group in GROUPS:
            alice.coordinator(group)
            from consumer import TopicPartition

            alice.commit_offsets(group, {TopicPartition("may-read", 0): 0, TopicPartition("may-not", 0): 0})
        while self.ask(
            "alice", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        ) != [("InitProducerIdResponse", 0)]:
            # A Kafka broker that has just started answers InitProducerId with an error until it has producer
            # ids to assign.
            time.sleep(0.2)
        for name in TRANSACTIONS:  # alice initializes the transactional ids, so that they exist.
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            lookup = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
            while self.ask("alice", lookup)[0][-1] or self.ask("alice", init)[0][-1]:
                time.sleep(0.2)
        self.ids = {name: alice.view.topics[name].id for name in alice.topics() and TOPICS}

    def ask(self, user: str, request: Message) -> list[tuple[object, ...]]:
        return sorted(codes(self.users[user].request(request)), key=repr)


WHAT = (
    "name",
    "topic",
    "group_id",
    "transactional_id",
    "key",
    "resource_name",
    "user",
    "partition_index",
    "index",
    "partition",
    "partition_id",
)

BITS = ("topic_authorized_operations", "cluster_authorized_operations", "authorized_operations")


def codes(message: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yield each error code and each set of authorized operations of a response, with its path.

    Each tuple is a path and the value at its end. The path has the names of the structs and resources that
    contain the value.
    """
    name = type(message).__name__
    place = (*path, name, *(getattr(message, field) for field in WHAT if hasattr(message, field)))
    for field in ("error_code", "partition_error_code"):
        if hasattr(message, field):
            yield (*place, getattr(message, field))
    for field in BITS:
        if hasattr(message, field) and name != "DescribedGroup":
            yield (*place, field, getattr(message, field))
    for field in type(message).__annotations__:
        value = getattr(message, field)
        if isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from codes(element, place)


def acl_filter(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **changes,
    }


def requests(ids: dict[str, uuid.UUID]) -> dict[str, Message]:
    """Return the requests by name. Requests that change the broker's state come last."""
    by_name = [
        OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, NO_ID), partition_indexes=[0])
        for name in TOPICS
    ]
    return {
        "Metadata": MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in ASKED],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        "Metadata by id": MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=id_) for id_ in ids.values()],
            allow_auto_topic_creation=False,
        ),
        "Metadata of all": MetadataRequest(topics=None, allow_auto_topic_creation=False),
        "DescribeCluster": DescribeClusterRequest(include_cluster_authorized_operations=True),
        "DescribeTopicPartitions": DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ASKED], response_partition_limit=100
        ),
        "ListOffsets": ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
                    ],
                )
                for name in ASKED
            ],
        ),
        "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
                    ],
                )
                for name in ASKED
            ],
        ),
        "Fetch": FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic_id=ids[name],
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
                for name in TOPICS
            ],
            forgotten_topics_data=[],
        ),
        "Produce": ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    topic_id=ids[name], partition_data=[PartitionProduceData(index=0, records=BATCH)]
                )
                for name in TOPICS
            ],
        ),
        "InitProducerId": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        "FindCoordinator": FindCoordinatorRequest(key_type=0, coordinator_keys=list(GROUPS)),
        "FindCoordinator of transactions": FindCoordinatorRequest(
            key_type=1, coordinator_keys=list(TRANSACTIONS)
        ),
        "DescribeTransactions": DescribeTransactionsRequest(transactional_ids=[*TRANSACTIONS, "none"]),
        "ListTransactions": ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        "DescribeProducers": DescribeProducersRequest(
            topics=[ProducersRequest(name=name, partition_indexes=[0]) for name in ASKED]
        ),
        **{
            f"{kind} {name}": request
            for name in (*TRANSACTIONS, "none")
            for kind, request in {
                "InitProducerId": InitProducerIdRequest(
                    transactional_id=name, transaction_timeout_ms=1000, producer_id=99, producer_epoch=0
                ),
                "EndTxn": EndTxnRequest(
                    transactional_id=name, producer_id=99, producer_epoch=0, committed=True
                ),
                "AddPartitionsToTxn of brokers": AddPartitionsToTxnRequest(
                    transactions=[
                        AddPartitionsToTxnTransaction(
                            transactional_id=name,
                            producer_id=99,
                            producer_epoch=0,
                            topics=[AddPartitionsToTxnTopic(name="may-write", partitions=[0])],
                        )
                    ]
                ),
                "Produce in a transaction": ProduceRequest(
                    transactional_id=name,
                    acks=-1,
                    timeout_ms=10_000,
                    topic_data=[
                        TopicProduceData(
                            topic_id=ids[topic],
                            partition_data=[PartitionProduceData(index=0, records=TRANSACTIONAL)],
                        )
                        for topic in TOPICS
                    ],
                ),
                **{
                    f"AddOffsetsToTxn of {group}": AddOffsetsToTxnRequest(
                        transactional_id=name, producer_id=99, producer_epoch=0, group_id=group
                    )
                    for group in GROUPS
                },
                **{
                    f"TxnOffsetCommit of {group}": TxnOffsetCommitRequest(
                        transactional_id=name,
                        group_id=group,
                        producer_id=99,
                        producer_epoch=0,
                        topics=[
                            TxnOffsetCommitRequestTopic(
                                name=topic,
                                partitions=[
                                    TxnOffsetCommitRequestPartition(
                                        partition_index=0, committed_offset=0, committed_metadata=""
                                    )
                                ],
                            )
                            for topic in ASKED
                        ],
                    )
                    for group in GROUPS
                },
            }.items()
        },
        **{
            f"{kind} {group}": request
            for group in ("bobs", "described", "others")
            for kind, request in {
                "Heartbeat": HeartbeatRequest(group_id=group, generation_id=1, member_id="m"),
                "SyncGroup": SyncGroupRequest(
                    group_id=group, generation_id=1, member_id="m", protocol_type="consumer", assignments=[]
                ),
                "LeaveGroup": LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="m")]),
                "JoinGroup": JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="m",
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                ),
                "OffsetCommit": OffsetCommitRequest(
                    group_id=group,
                    member_id="",
                    topics=[
                        OffsetCommitRequestTopic(
                            topic_id=ids[name],
                            partitions=[
                                OffsetCommitRequestPartition(
                                    partition_index=0, committed_offset=0, committed_metadata=""
                                )
                            ],
                        )
                        for name in TOPICS
                    ],
                ),
                "OffsetDelete": OffsetDeleteRequest(
                    group_id=group,
                    topics=[
                        OffsetDeleteRequestTopic(
                            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                        )
                        for name in ASKED
                    ],
                ),
            }.items()
        },
        "OffsetFetch": OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=by_name) for group in GROUPS]
        ),
        "OffsetFetch of all": OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
        ),
        "DescribeGroups": DescribeGroupsRequest(groups=list(GROUPS), include_authorized_operations=True),
        "ListGroups": ListGroupsRequest(),
        "DescribeConfigs": DescribeConfigsRequest(
            resources=[
                *(
                    DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=[])
                    for name in ASKED
                ),
                DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[]),
            ]
        ),
        "DescribeLogDirs": DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=[0]) for name in ASKED]
        ),
        "ElectLeaders": ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=name, partitions=[0]) for name in ASKED]
        ),
        "ElectLeaders of all": ElectLeadersRequest(topic_partitions=None),
        "ListPartitionReassignments": ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 5]) for name in ASKED]
        ),
        "AlterPartitionReassignments": AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0)])
                for name in ASKED
            ]
        ),
        "DescribeClientQuotas": DescribeClientQuotasRequest(components=[], strict=False),
        "AlterClientQuotas": AlterClientQuotasRequest(entries=[], validate_only=True),
        "DescribeQuorum": DescribeQuorumRequest(topics=[]),
        "UpdateFeatures": UpdateFeaturesRequest(feature_updates=[], validate_only=True),
        "WriteTxnMarkers": WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=99,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name="may-write", partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        ),
        "AlterReplicaLogDirs": AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/missing", topics=[AlterReplicaLogDirTopic(name="may-write", partitions=[0])]
                )
            ]
        ),
        "UnregisterBroker": UnregisterBrokerRequest(broker_id=77),
        "AddRaftVoter": AddRaftVoterRequest(
            cluster_id=None, timeout_ms=1_000, voter_id=-1, voter_directory_id=NO_ID, listeners=[]
        ),
        "RemoveRaftVoter": RemoveRaftVoterRequest(cluster_id=None, voter_id=-1, voter_directory_id=NO_ID),
        "CreateDelegationToken": CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        "CreateDelegationToken of another": CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="x", renewers=[], max_lifetime_ms=-1
        ),
        "RenewDelegationToken": RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1),
        "ExpireDelegationToken": ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
        "DescribeDelegationToken": DescribeDelegationTokenRequest(owners=None),
        "DescribeAcls": DescribeAclsRequest(**acl_filter()),
        "CreateAcls": CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=resource,
                    resource_name=name,
                    principal="User:nobody",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
                for resource, name in ((2, "t"), (4, "kafka-cluster"), (4, "other"), (2, ""))
            ]
        ),
        "DeleteAcls": DeleteAclsRequest(
            filters=[DeleteAclsFilter(**acl_filter(principal_filter="User:nobody"))]
        ),
        "DescribeUserScramCredentials": DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]),
        "AlterUserScramCredentials": AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
        ),
        "AlterConfigs": AlterConfigsRequest(
            resources=[
                WholeConfigs(
                    resource_type=2,
                    resource_name=name,
                    configs=[WholeConfig(name="retention.ms", value="1")],
                )
                for name in ASKED
            ],
            validate_only=True,
        ),
        "IncrementalAlterConfigs": IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[AlterableConfig(name="retention.ms", config_operation=0, value="1")],
                )
                for name in ASKED
            ],
            validate_only=True,
        ),
        "CreateTopics": CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in ASKED
            ],
            validate_only=True,
        ),
        "CreatePartitions": CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ASKED],
            timeout_ms=10_000,
            validate_only=True,
        ),
        "DeleteRecords": DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
                )
                for name in ASKED
            ],
            timeout_ms=10_000,
        ),
        "DeleteGroups": DeleteGroupsRequest(groups_names=list(GROUPS[:3])),
        "DeleteTopics": DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NO_ID) for name in ASKED if name != "may-read"],
            timeout_ms=10_000,
        ),
        "DeleteTopics by id": DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=ids[name]) for name in ("may-read", "may-not")],
            timeout_ms=10_000,
        ),
    }


@contextlib.contextmanager
def both_sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    """A real Kafka and the embedded broker, with the same users, ACLs, topics, groups and transactions."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "auto.create.topics.enable": "false",
    }
    listen = ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with (
        secured_kafka.real_kafka(folder) as kafka,
        running(
            {}, settings, listen=listen, users=secured_kafka.USERS, highest=judges.HIGHEST_OF_KAFKA
        ) as ours,
    ):
        theirs, own = Side(kafka.places["SASL_PLAINTEXT"]), Side(ours.places["SASL_PLAINTEXT"])
        yield theirs, own
        for side in (theirs, own):
            for cluster in side.users.values():
                cluster.close()
