"""Each request needs exactly the permissions that `TABLE` lists.

The first line of an entry in `TABLE` is the title of a request. The second line is the response to a caller
with all permissions.

Each further line is a needed permission (operation, resource, name), and the response to a caller that lacks
only this permission.

test_acls_like_kafka.py and test_rules_like_kafka.py in tests/conformance compare responses to denied requests
with Kafka's.
"""

from __future__ import annotations

import os
import pickle
from functools import cache
from typing import Any, NamedTuple

import pytest

from kproto.broker.apis.table import APIS
from kproto.broker.machine import ClientConnected, CreateTopic
from kproto.broker.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, Resource
from kproto.messages.index import request_class
from tests.broker.behaviour.permissions import IDS, KEYS, REQUESTS, Request, answer, build
from tests.broker.security.stage import LoginStage, make_users

TABLE = """
Produce, by name
    t NONE, u NONE
    WRITE TOPIC t: t TOPIC_FAILED, u NONE
    WRITE TOPIC u: t NONE, u TOPIC_FAILED
Produce, in a transaction before version 11
    t NONE, u INVALID_TXN_STATE
    WRITE TRANSACTIONAL_ID x: t TRANSACTIONAL_ID_FAILED, u TRANSACTIONAL_ID_FAILED
    WRITE TOPIC t: t TOPIC_FAILED, u INVALID_TXN_STATE
    WRITE TOPIC u: t NONE, u TOPIC_FAILED
Produce, in a transaction
    t NONE, u NONE
    WRITE TRANSACTIONAL_ID x: t TRANSACTIONAL_ID_FAILED, u TRANSACTIONAL_ID_FAILED
    WRITE TOPIC t: t TOPIC_FAILED, u NONE
    WRITE TOPIC u: t NONE, u TOPIC_FAILED
Fetch, by name
    t NONE, u NONE
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
Fetch, by id
    t NONE, u NONE
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
ListOffsets
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
    DESCRIBE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
Metadata, by name before version 4
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
    CREATE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
    DESCRIBE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
Metadata, by name
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
    DESCRIBE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
Metadata, by id
    t NONE, u NONE
    DESCRIBE TOPIC t: t (by id) TOPIC_FAILED, u NONE
    DESCRIBE TOPIC u: t NONE, u (by id) TOPIC_FAILED
Metadata, of all in version 0
    t NONE, u NONE
    DESCRIBE TOPIC t: u NONE
    DESCRIBE TOPIC u: t NONE
Metadata, of no topic
    NONE
Metadata, of all
    t NONE, u NONE
    DESCRIBE TOPIC t: u NONE
    DESCRIBE TOPIC u: t NONE
Metadata, with CREATE on a topic
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE
    CREATE TOPIC absent: absent TOPIC_FAILED, t NONE
Metadata, with CREATE on the cluster
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE
    CREATE CLUSTER: absent TOPIC_FAILED, t NONE
OffsetCommit
    t NONE, u NONE
    READ GROUP g: t GROUP_FAILED, u GROUP_FAILED
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
OffsetFetch, of topics in version 1
    t NONE, u NONE
    DESCRIBE GROUP g: t GROUP_FAILED, u GROUP_FAILED
    DESCRIBE TOPIC t: t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC u: t NONE, u TOPIC_FAILED
OffsetFetch, of topics
    t NONE, u NONE
    DESCRIBE GROUP g: GROUP_FAILED
    DESCRIBE TOPIC t: t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC u: t NONE, u TOPIC_FAILED
OffsetFetch, of all topics
    t NONE, u NONE
    DESCRIBE GROUP g: GROUP_FAILED
    DESCRIBE TOPIC t: u NONE
    DESCRIBE TOPIC u: t NONE
OffsetFetch, of groups
    g NONE, g t NONE, g u NONE, h NONE, h t NONE, h u NONE
    DESCRIBE GROUP g: g GROUP_FAILED, h NONE, h t NONE, h u NONE
    DESCRIBE GROUP h: g NONE, g t NONE, g u NONE, h GROUP_FAILED
    DESCRIBE TOPIC t: g NONE, g t TOPIC_FAILED, g u NONE, h NONE, h u NONE
    DESCRIBE TOPIC u: g NONE, g t NONE, g u TOPIC_FAILED, h NONE, h t NONE
FindCoordinator, of a group
    NONE
    DESCRIBE GROUP g: GROUP_FAILED
FindCoordinator, of a transactional id
    NONE
    DESCRIBE TRANSACTIONAL_ID x: TRANSACTIONAL_ID_FAILED
FindCoordinator, of groups
    g NONE, h NONE
    DESCRIBE GROUP g: g GROUP_FAILED, h NONE
    DESCRIBE GROUP h: g NONE, h GROUP_FAILED
FindCoordinator, of transactional ids
    x NONE, y NONE
    DESCRIBE TRANSACTIONAL_ID x: x TRANSACTIONAL_ID_FAILED, y NONE
    DESCRIBE TRANSACTIONAL_ID y: x NONE, y TRANSACTIONAL_ID_FAILED
JoinGroup
    INVALID_SESSION_TIMEOUT
    READ GROUP g: GROUP_FAILED
Heartbeat
    UNKNOWN_MEMBER_ID
    READ GROUP g: GROUP_FAILED
LeaveGroup
    UNKNOWN_MEMBER_ID
    READ GROUP g: GROUP_FAILED
SyncGroup
    UNKNOWN_MEMBER_ID
    READ GROUP g: GROUP_FAILED
SyncGroup, with protocols
    UNKNOWN_MEMBER_ID
    READ GROUP g: GROUP_FAILED
SyncGroup, without a protocol
    INCONSISTENT_GROUP_PROTOCOL
DescribeGroups
    g NONE, h NONE
    DESCRIBE GROUP g: g GROUP_FAILED, h NONE
    DESCRIBE GROUP h: g NONE, h GROUP_FAILED
ListGroups, with DESCRIBE on groups
    g, h
    DESCRIBE GROUP g: h
    DESCRIBE GROUP h: g
ListGroups, with DESCRIBE on the cluster
    g, h
    DESCRIBE CLUSTER: NONE
CreateTopics, with CREATE on topics
    new NONE NONE, other NONE NONE
    CREATE TOPIC new: new TOPIC_FAILED NONE, other NONE NONE
    DESCRIBE_CONFIGS TOPIC new: new NONE TOPIC_FAILED, other NONE NONE
    CREATE TOPIC other: new NONE NONE, other TOPIC_FAILED NONE
    DESCRIBE_CONFIGS TOPIC other: new NONE NONE, other NONE TOPIC_FAILED
CreateTopics, with CREATE on the cluster
    new NONE NONE
    CREATE CLUSTER: new TOPIC_FAILED NONE
DeleteTopics, of names
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DELETE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DELETE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
    DELETE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
DeleteTopics, by name
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DELETE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DELETE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
    DELETE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
DeleteTopics, by id
    UNKNOWN_TOPIC_ID, t NONE, u NONE
    DELETE TOPIC t: UNKNOWN_TOPIC_ID, t (by id) TOPIC_FAILED, u NONE
    DELETE TOPIC u: UNKNOWN_TOPIC_ID, t NONE, u (by id) TOPIC_FAILED
DeleteRecords
    t NONE, u NONE
    DELETE TOPIC t: t TOPIC_FAILED, u NONE
    DELETE TOPIC u: t NONE, u TOPIC_FAILED
InitProducerId, of a transactional id
    CONCURRENT_TRANSACTIONS
    WRITE TRANSACTIONAL_ID x: TRANSACTIONAL_ID_FAILED
InitProducerId, with WRITE on a topic
    NONE
    WRITE TOPIC *: CLUSTER_FAILED
InitProducerId, with IDEMPOTENT_WRITE
    NONE
    IDEMPOTENT_WRITE CLUSTER: CLUSTER_FAILED
OffsetForLeaderEpoch
    t NONE, u NONE
    DESCRIBE TOPIC t: t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC u: t NONE, u TOPIC_FAILED
AddPartitionsToTxn, of a producer
    absent UNKNOWN_TOPIC_OR_PARTITION, t OPERATION_NOT_ATTEMPTED
    WRITE TRANSACTIONAL_ID x: absent TRANSACTIONAL_ID_FAILED, t TRANSACTIONAL_ID_FAILED
    WRITE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED
    WRITE TOPIC absent: absent TOPIC_FAILED, t OPERATION_NOT_ATTEMPTED
AddPartitionsToTxn, of a broker
    x t NONE
    CLUSTER_ACTION CLUSTER: CLUSTER_FAILED
AddOffsetsToTxn
    NONE
    WRITE TRANSACTIONAL_ID x: TRANSACTIONAL_ID_FAILED
    READ GROUP g: GROUP_FAILED
EndTxn
    NONE
    WRITE TRANSACTIONAL_ID x: TRANSACTIONAL_ID_FAILED
WriteTxnMarkers, with ALTER
    t NONE
    ALTER CLUSTER: t CLUSTER_FAILED
WriteTxnMarkers, with CLUSTER_ACTION
    t NONE
    CLUSTER_ACTION CLUSTER: t CLUSTER_FAILED
TxnOffsetCommit, before version 4
    t INVALID_TXN_STATE, u INVALID_TXN_STATE
    WRITE TRANSACTIONAL_ID x: t TRANSACTIONAL_ID_FAILED, u TRANSACTIONAL_ID_FAILED
    READ GROUP g: t GROUP_FAILED, u GROUP_FAILED
    READ TOPIC t: t TOPIC_FAILED, u INVALID_TXN_STATE
    READ TOPIC u: t INVALID_TXN_STATE, u TOPIC_FAILED
TxnOffsetCommit
    t NONE, u NONE
    WRITE TRANSACTIONAL_ID x: t TRANSACTIONAL_ID_FAILED, u TRANSACTIONAL_ID_FAILED
    READ GROUP g: t GROUP_FAILED, u GROUP_FAILED
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
DescribeAcls
    NONE
    DESCRIBE CLUSTER: CLUSTER_FAILED
CreateAcls
    NONE
    ALTER CLUSTER: CLUSTER_FAILED
DeleteAcls
    NONE
    ALTER CLUSTER: CLUSTER_FAILED
DescribeConfigs, of a topic
    t NONE, u NONE
    DESCRIBE_CONFIGS TOPIC t: t TOPIC_FAILED, u NONE
    DESCRIBE_CONFIGS TOPIC u: t NONE, u TOPIC_FAILED
DescribeConfigs, of a broker
    1 NONE
    DESCRIBE_CONFIGS CLUSTER: 1 CLUSTER_FAILED
DescribeConfigs, of a logger
    1 INVALID_REQUEST
    DESCRIBE_CONFIGS CLUSTER: 1 CLUSTER_FAILED
DescribeConfigs, of a subscription of metrics
    1 NONE
    DESCRIBE_CONFIGS CLUSTER: 1 CLUSTER_FAILED
DescribeConfigs, of a group
    g INVALID_REQUEST, h INVALID_REQUEST
    DESCRIBE_CONFIGS GROUP g: g GROUP_FAILED, h INVALID_REQUEST
    DESCRIBE_CONFIGS GROUP h: g INVALID_REQUEST, h GROUP_FAILED
AlterConfigs, of a topic
    t NONE, u NONE
    ALTER_CONFIGS TOPIC t: t TOPIC_FAILED, u NONE
    ALTER_CONFIGS TOPIC u: t NONE, u TOPIC_FAILED
AlterConfigs, of a broker
    1 NONE
    ALTER_CONFIGS CLUSTER: 1 CLUSTER_FAILED
AlterConfigs, of a logger
    1 INVALID_REQUEST
AlterConfigs, of a subscription of metrics
    1 NONE
    ALTER_CONFIGS CLUSTER: 1 CLUSTER_FAILED
AlterConfigs, of a group
    g INVALID_REQUEST, h INVALID_REQUEST
    ALTER_CONFIGS GROUP g: g GROUP_FAILED, h INVALID_REQUEST
    ALTER_CONFIGS GROUP h: g INVALID_REQUEST, h GROUP_FAILED
IncrementalAlterConfigs, of a topic
    t NONE, u NONE
    ALTER_CONFIGS TOPIC t: t TOPIC_FAILED, u NONE
    ALTER_CONFIGS TOPIC u: t NONE, u TOPIC_FAILED
IncrementalAlterConfigs, of a broker
    1 NONE
    ALTER_CONFIGS CLUSTER: 1 CLUSTER_FAILED
IncrementalAlterConfigs, of a logger
    1 INVALID_REQUEST
    ALTER_CONFIGS CLUSTER: 1 CLUSTER_FAILED
IncrementalAlterConfigs, of a subscription of metrics
    1 NONE
    ALTER_CONFIGS CLUSTER: 1 CLUSTER_FAILED
IncrementalAlterConfigs, of a group
    g INVALID_REQUEST, h INVALID_REQUEST
    ALTER_CONFIGS GROUP g: g GROUP_FAILED, h INVALID_REQUEST
    ALTER_CONFIGS GROUP h: g INVALID_REQUEST, h GROUP_FAILED
AlterReplicaLogDirs
    NONE
    ALTER CLUSTER: CLUSTER_FAILED
DescribeLogDirs, before version 3
    t, u
    DESCRIBE CLUSTER: NONE
DescribeLogDirs
    t, u
    DESCRIBE CLUSTER: CLUSTER_FAILED
CreatePartitions
    t NONE, u NONE
    ALTER TOPIC t: t TOPIC_FAILED, u NONE
    ALTER TOPIC u: t NONE, u TOPIC_FAILED
DeleteGroups
    g NONE, h NONE
    DELETE GROUP g: g GROUP_FAILED, h NONE
    DELETE GROUP h: g NONE, h GROUP_FAILED
ElectLeaders, in version 0
    t ELECTION_NOT_NEEDED
    ALTER CLUSTER: t CLUSTER_FAILED
ElectLeaders
    t ELECTION_NOT_NEEDED
    ALTER CLUSTER: CLUSTER_FAILED, t CLUSTER_FAILED
AlterPartitionReassignments
    t NONE
    ALTER CLUSTER: CLUSTER_FAILED, t CLUSTER_FAILED
ListPartitionReassignments
    NONE
    DESCRIBE CLUSTER: CLUSTER_FAILED
OffsetDelete
    t NONE, u NONE
    DELETE GROUP g: GROUP_FAILED
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
DescribeClientQuotas
    NONE
    DESCRIBE_CONFIGS CLUSTER: CLUSTER_FAILED
AlterClientQuotas
    NONE
    ALTER_CONFIGS CLUSTER: CLUSTER_FAILED
DescribeUserScramCredentials
    bob NONE
    DESCRIBE CLUSTER: CLUSTER_FAILED
AlterUserScramCredentials
    nobody RESOURCE_NOT_FOUND
    ALTER CLUSTER: nobody CLUSTER_FAILED
DescribeQuorum
    NONE
    DESCRIBE CLUSTER: CLUSTER_FAILED
UpdateFeatures
    NONE
    ALTER CLUSTER: CLUSTER_FAILED
DescribeProducers
    t NONE, u NONE
    READ TOPIC t: t TOPIC_FAILED, u NONE
    READ TOPIC u: t NONE, u TOPIC_FAILED
UnregisterBroker
    NONE
    ALTER CLUSTER: CLUSTER_FAILED
DescribeTransactions
    x NONE, x t, y NONE
    DESCRIBE TRANSACTIONAL_ID x: x TRANSACTIONAL_ID_FAILED, y NONE
    DESCRIBE TRANSACTIONAL_ID y: x NONE, x t, y TRANSACTIONAL_ID_FAILED
    DESCRIBE TOPIC t: x NONE, y NONE
ListTransactions
    x, y
    DESCRIBE TRANSACTIONAL_ID x: y
    DESCRIBE TRANSACTIONAL_ID y: x
ListConfigResources
    NONE
    DESCRIBE_CONFIGS CLUSTER: CLUSTER_FAILED
DescribeTopicPartitions, of topics
    absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u NONE
    DESCRIBE TOPIC t: absent UNKNOWN_TOPIC_OR_PARTITION, t TOPIC_FAILED, u NONE
    DESCRIBE TOPIC u: absent UNKNOWN_TOPIC_OR_PARTITION, t NONE, u TOPIC_FAILED
    DESCRIBE TOPIC absent: absent TOPIC_FAILED, t NONE, u NONE
DescribeTopicPartitions, of all
    t NONE, u NONE
    DESCRIBE TOPIC t: u NONE
    DESCRIBE TOPIC u: t NONE
AddRaftVoter
    INVALID_REQUEST
    ALTER CLUSTER: CLUSTER_FAILED
RemoveRaftVoter
    INVALID_REQUEST
    ALTER CLUSTER: CLUSTER_FAILED
"""

USERS = make_users()
BOB = "User:bob"
OPERATIONS = [operation for operation in Operation if operation is not Operation.ANY]
RESOURCES = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Need(NamedTuple):
    """A permission that a request needs, and the response to a caller without it."""

    operation: Operation
    resource: Resource
    name: str
    denied: str

    def allow(self, operation: Operation | None = None) -> Acl:
        """Return the ACL that allows bob `operation`, by default the operation that the request needs."""
        return allow(operation or self.operation, self.resource, self.name)


class Row(NamedTuple):
    """The response to a caller with all permissions, and the permissions that the request needs."""

    permitted: str
    needs: list[Need]


def read_table() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    title = ""
    for line in TABLE.strip().splitlines():
        if not line.startswith(" "):
            title = line
        elif title not in rows:
            rows[title] = Row(line.strip(), [])
        else:
            permission, denied = line.strip().split(": ")
            operation, resource, name = [*permission.split(" "), CLUSTER_NAME][:3]
            rows[title].needs.append(Need(Operation[operation], Resource[resource], name, denied))
    return rows


ROWS = read_table()
SHARE = 4 if os.environ.get("KPROTO_PROFILE", "quick") == "quick" else 1
# The quick tests send each request only in its newest version.
SENT = [
    pytest.param(
        request,
        version,
        marks=[] if version == request.versions[-1] else pytest.mark.thorough,
        id=f"{request.title}, v{version}",
    )
    for request in REQUESTS
    for version in request.versions
]


def allow(operation: Operation, resource: Resource, name: str) -> Acl:
    return Acl(resource, name, PatternType.LITERAL, BOB, "*", operation, Permission.ALLOW)


def allow_all(*resources: Resource) -> list[Acl]:
    return [
        allow(Operation.ALL, resource, CLUSTER_NAME if resource is Resource.CLUSTER else "*")
        for resource in resources
    ]


class PermissionStage(LoginStage):
    """A broker with topics, transactions, and groups that have offsets. Bob has all permissions for them."""

    def __init__(self) -> None:
        super().__init__(
            "PLAINTEXT",
            users=USERS,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            auto_create_topics_enable="false",
        )
        for name, topic_id in IDS.items():
            self.step(CreateTopic(name, 1, topic_id))
        self.step(ClientConnected(1, "10.0.0.7", "SSL", BOB))
        self.acls = allow_all(*RESOURCES)
        self.grant(self.acls)
        offsets = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
        topics = [{"name": name, "partitions": offsets} for name in IDS]
        for group_id in ("g", "h"):
            self.send("OffsetCommit", 5, {"group_id": group_id, "topics": topics})
        for name in ("x", "y"):
            self.send("InitProducerId", 4, {"transactional_id": name, "transaction_timeout_ms": 60_000})
        fields = {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0}
        fields |= {"topics": [{"name": "t", "partitions": [0]}]}
        self.send("AddPartitionsToTxn", 3, {f"v3_and_below_{name}": fields[name] for name in fields})

    def grant(self, acls: list[Acl]) -> None:
        """Replace bob's permissions."""
        assert self.broker.acls is not None
        self.broker.acls.remove(self.acls)
        self.acls = acls
        for acl in acls:
            self.broker.acls.add(acl)

    def send(self, api: str, version: int, fields: Any) -> str:
        """Send a request as bob, and return the response in the notation of TABLE."""
        return answer(self.ask(build(request_class(KEYS[api]), version, fields), version))


@cache
def _pickled_stage() -> bytes:
    """Return a pickled stage. Unpickling is six times faster than the requests that create a stage."""
    return pickle.dumps(PermissionStage())


def stage_for(acls: list[Acl]) -> PermissionStage:
    """Return a new stage, in which bob has only the permissions of `acls`."""
    stage: PermissionStage = pickle.loads(_pickled_stage())
    stage.grant(acls)
    return stage


def test_the_table_has_all_apis_and_permissions() -> None:
    assert list(ROWS) == [request.title for request in REQUESTS]
    declared = {
        (api.name, requirement.operation, requirement.resource)
        for api in APIS.values()
        if api.authorization is not None
        for requirement in api.authorization.requirements
    }
    listed = {
        (request.api, need.operation, need.resource)
        for request in REQUESTS
        for need in ROWS[request.title].needs
    }
    assert listed <= declared
    # The table lacks two permissions, because they decide only whether a response field has a value: the
    # cluster's authorized operations in DescribeCluster, and a topic's name in DeleteTopics.
    # tests/broker/behaviour/test_delegation_tokens.py tests the permissions for delegation tokens.
    assert declared - listed == {
        ("DescribeCluster", Operation.DESCRIBE, Resource.CLUSTER),
        ("DeleteTopics", Operation.DESCRIBE, Resource.TOPIC),
        ("CreateDelegationToken", Operation.CREATE_TOKENS, Resource.USER),
        ("DescribeDelegationToken", Operation.DESCRIBE, Resource.DELEGATION_TOKEN),
        ("DescribeDelegationToken", Operation.DESCRIBE_TOKENS, Resource.USER),
    }


@pytest.mark.parametrize(("request_", "version"), SENT)
def test_the_listed_permissions_suffice(request_: Request, version: int) -> None:
    row = ROWS[request_.title]
    listed = stage_for([need.allow() for need in row.needs])
    assert listed.send(request_.api, version, request_.fields) == row.permitted
    everything = stage_for(allow_all(*RESOURCES))
    assert everything.send(request_.api, version, request_.fields) == row.permitted


@pytest.mark.parametrize(("request_", "version"), SENT)
def test_each_listed_permission_is_needed(request_: Request, version: int) -> None:
    row = ROWS[request_.title]
    for number, need in enumerate(row.needs):
        other_permissions = [other.allow() for other in row.needs if other != need]
        sufficient = {need.operation, Operation.ALL, *IMPLIED_BY.get(need.operation, ())}
        sufficient |= {request_.also} - {None}
        types = [kind for kind in RESOURCES if kind not in (need.resource, request_.instead)]
        denied: dict[object, list[Acl]] = {"no permission": [], "other types": allow_all(*types)}
        if need.name != "*":
            denied["another name"] = [allow(Operation.ALL, need.resource, need.name + "-2")]
        # No other operation suffices. The other operations are tried only with the newest version of the
        # request, because the authorization does not depend on the version. The quick tests try only every
        # fourth operation. The first need starts with the first operation, and the second need with the
        # second.
        other_operations = [operation for operation in OPERATIONS if operation not in sufficient]
        tried = other_operations[number % SHARE :: SHARE] if version == request_.versions[-1] else []
        denied |= {operation: [need.allow(operation)] for operation in tried}
        for attempt, acls in denied.items():
            sent = stage_for(other_permissions + acls).send(request_.api, version, request_.fields)
            # A caller with DESCRIBE on a topic may learn the topic's name from its id.
            knows_name = attempt in (Operation.DESCRIBE, *IMPLIED_BY[Operation.DESCRIBE])
            expected = need.denied.replace(" (by id)", "") if knows_name else need.denied
            assert sent == expected, (need, attempt)
        for operation in sufficient:
            stage = stage_for([*other_permissions, need.allow(operation)])
            assert stage.send(request_.api, version, request_.fields) == row.permitted, (need, operation)
