"""The table of APIs contains the advertised versions, and the permissions that each API checks."""

from __future__ import annotations

from importlib import import_module
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kproto.broker.apis.authorization import Access
from kproto.broker.apis.table import APIS, REFUSABLE, served_versions
from kproto.broker.call import Call
from kproto.messages.headers import Envelope, RequestHeader
from kproto.messages.index import API_NAMES
from kproto.testing.strategies import Drawn, requests
from tests.broker.stage import Stage

# The permissions that APIs check, as in Kafka 4.3 (tests/conformance/test_acls_like_kafka.py). A line
# contains the API, the operation, the resource, and the error if the permission is missing. The error NONE
# means that the response omits the resource.
REQUIREMENTS = """
Produce                       WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
Produce                       WRITE             TOPIC             TOPIC_AUTHORIZATION_FAILED
Fetch                         READ              TOPIC             TOPIC_AUTHORIZATION_FAILED
ListOffsets                   DESCRIBE          TOPIC             TOPIC_AUTHORIZATION_FAILED
Metadata                      DESCRIBE          TOPIC             TOPIC_AUTHORIZATION_FAILED
Metadata                      CREATE            CLUSTER           TOPIC_AUTHORIZATION_FAILED
Metadata                      CREATE            TOPIC             TOPIC_AUTHORIZATION_FAILED
OffsetCommit                  READ              GROUP             GROUP_AUTHORIZATION_FAILED
OffsetCommit                  READ              TOPIC             TOPIC_AUTHORIZATION_FAILED
OffsetFetch                   DESCRIBE          GROUP             GROUP_AUTHORIZATION_FAILED
OffsetFetch                   DESCRIBE          TOPIC             TOPIC_AUTHORIZATION_FAILED
FindCoordinator               DESCRIBE          GROUP             GROUP_AUTHORIZATION_FAILED
FindCoordinator               DESCRIBE          TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
JoinGroup                     READ              GROUP             GROUP_AUTHORIZATION_FAILED
Heartbeat                     READ              GROUP             GROUP_AUTHORIZATION_FAILED
LeaveGroup                    READ              GROUP             GROUP_AUTHORIZATION_FAILED
SyncGroup                     READ              GROUP             GROUP_AUTHORIZATION_FAILED
DescribeGroups                DESCRIBE          GROUP             GROUP_AUTHORIZATION_FAILED
ListGroups                    DESCRIBE          CLUSTER           NONE
ListGroups                    DESCRIBE          GROUP             NONE
CreateTopics                  CREATE            CLUSTER           TOPIC_AUTHORIZATION_FAILED
CreateTopics                  CREATE            TOPIC             TOPIC_AUTHORIZATION_FAILED
CreateTopics                  DESCRIBE_CONFIGS  TOPIC             TOPIC_AUTHORIZATION_FAILED
DeleteTopics                  DELETE            TOPIC             TOPIC_AUTHORIZATION_FAILED
DeleteTopics                  DESCRIBE          TOPIC             NONE
DeleteRecords                 DELETE            TOPIC             TOPIC_AUTHORIZATION_FAILED
InitProducerId                WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
InitProducerId                IDEMPOTENT_WRITE  CLUSTER           CLUSTER_AUTHORIZATION_FAILED
InitProducerId                WRITE             TOPIC             CLUSTER_AUTHORIZATION_FAILED
OffsetForLeaderEpoch          DESCRIBE          TOPIC             TOPIC_AUTHORIZATION_FAILED
AddPartitionsToTxn            CLUSTER_ACTION    CLUSTER           CLUSTER_AUTHORIZATION_FAILED
AddPartitionsToTxn            WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
AddPartitionsToTxn            WRITE             TOPIC             TOPIC_AUTHORIZATION_FAILED
AddOffsetsToTxn               WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
AddOffsetsToTxn               READ              GROUP             GROUP_AUTHORIZATION_FAILED
EndTxn                        WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
WriteTxnMarkers               ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
WriteTxnMarkers               CLUSTER_ACTION    CLUSTER           CLUSTER_AUTHORIZATION_FAILED
TxnOffsetCommit               WRITE             TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TxnOffsetCommit               READ              GROUP             GROUP_AUTHORIZATION_FAILED
TxnOffsetCommit               READ              TOPIC             TOPIC_AUTHORIZATION_FAILED
DescribeAcls                  DESCRIBE          CLUSTER           CLUSTER_AUTHORIZATION_FAILED
CreateAcls                    ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DeleteAcls                    ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeConfigs               DESCRIBE_CONFIGS  TOPIC             TOPIC_AUTHORIZATION_FAILED
DescribeConfigs               DESCRIBE_CONFIGS  CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeConfigs               DESCRIBE_CONFIGS  GROUP             GROUP_AUTHORIZATION_FAILED
AlterConfigs                  ALTER_CONFIGS     TOPIC             TOPIC_AUTHORIZATION_FAILED
AlterConfigs                  ALTER_CONFIGS     CLUSTER           CLUSTER_AUTHORIZATION_FAILED
AlterConfigs                  ALTER_CONFIGS     GROUP             GROUP_AUTHORIZATION_FAILED
AlterReplicaLogDirs           ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeLogDirs               DESCRIBE          CLUSTER           CLUSTER_AUTHORIZATION_FAILED
CreatePartitions              ALTER             TOPIC             TOPIC_AUTHORIZATION_FAILED
CreateDelegationToken         CREATE_TOKENS     USER              DELEGATION_TOKEN_AUTHORIZATION_FAILED
DescribeDelegationToken       DESCRIBE          DELEGATION_TOKEN  NONE
DescribeDelegationToken       DESCRIBE_TOKENS   USER              NONE
DeleteGroups                  DELETE            GROUP             GROUP_AUTHORIZATION_FAILED
ElectLeaders                  ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
IncrementalAlterConfigs       ALTER_CONFIGS     TOPIC             TOPIC_AUTHORIZATION_FAILED
IncrementalAlterConfigs       ALTER_CONFIGS     CLUSTER           CLUSTER_AUTHORIZATION_FAILED
IncrementalAlterConfigs       ALTER_CONFIGS     GROUP             GROUP_AUTHORIZATION_FAILED
AlterPartitionReassignments   ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
ListPartitionReassignments    DESCRIBE          CLUSTER           CLUSTER_AUTHORIZATION_FAILED
OffsetDelete                  DELETE            GROUP             GROUP_AUTHORIZATION_FAILED
OffsetDelete                  READ              TOPIC             TOPIC_AUTHORIZATION_FAILED
DescribeClientQuotas          DESCRIBE_CONFIGS  CLUSTER           CLUSTER_AUTHORIZATION_FAILED
AlterClientQuotas             ALTER_CONFIGS     CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeUserScramCredentials  DESCRIBE          CLUSTER           CLUSTER_AUTHORIZATION_FAILED
AlterUserScramCredentials     ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeQuorum                DESCRIBE          CLUSTER           CLUSTER_AUTHORIZATION_FAILED
UpdateFeatures                ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeCluster               DESCRIBE          CLUSTER           NONE
DescribeProducers             READ              TOPIC             TOPIC_AUTHORIZATION_FAILED
UnregisterBroker              ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeTransactions          DESCRIBE          TRANSACTIONAL_ID  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DescribeTransactions          DESCRIBE          TOPIC             NONE
ListTransactions              DESCRIBE          TRANSACTIONAL_ID  NONE
ListConfigResources           DESCRIBE_CONFIGS  CLUSTER           CLUSTER_AUTHORIZATION_FAILED
DescribeTopicPartitions       DESCRIBE          TOPIC             TOPIC_AUTHORIZATION_FAILED
AddRaftVoter                  ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
RemoveRaftVoter               ALTER             CLUSTER           CLUSTER_AUTHORIZATION_FAILED
"""


def test_the_requirements_of_all_apis() -> None:
    rows = [
        [api.name, requirement.operation.name, requirement.resource.name, requirement.error.name]
        for api in APIS.values()
        if api.authorization is not None
        for requirement in api.authorization.requirements
    ]
    assert rows == [line.split() for line in REQUIREMENTS.strip().splitlines()]


def test_only_the_apis_of_a_login_need_no_permission() -> None:
    without = {api.name for api in APIS.values() if api.authorization is None}
    assert without == {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    assert {APIS[key].name for key in REFUSABLE} == {api.name for api in APIS.values()} - without


def test_an_api_stands_in_the_module_of_its_message() -> None:
    for key, api in APIS.items():
        module = api.request.__module__.rpartition(".")[2]
        assert import_module(f"kproto.broker.apis.{module}").API is api
        assert api.name == API_NAMES[key]


def test_all_declared_versions_are_advertised_with_two_exceptions() -> None:
    versions = {
        APIS[key].name: (version.min_version, version.max_version)
        for key, version in served_versions(telemetry=True).items()
    }
    declared = {
        api.name: (api.request.__versions__.min, api.request.__versions__.max) for api in APIS.values()
    }
    assert versions == {**declared, "Produce": (0, declared["Produce"][1]), "InitProducerId": (0, 5)}


def test_telemetry_is_served_only_with_a_receiver_for_metrics() -> None:
    names = {APIS[key].name for key in served_versions(telemetry=True).keys() - served_versions().keys()}
    assert names == {"GetTelemetrySubscriptions", "PushTelemetry"}


@given(st.data())
def test_a_request_is_checked_only_for_the_declared_permissions(data: st.DataObject) -> None:
    drawn: Drawn = data.draw(requests(sorted(REFUSABLE)))
    stage = Stage({"t": 2}, authorizer_class_name="StandardAuthorizer")
    if drawn.version > stage.broker.apis[drawn.api_key].max_version:
        return
    allowed = data.draw(st.booleans())
    checked: set[tuple[int, int]] = set()

    class Recorder(Access):
        def allows(self, operation: int, resource: int, name: str) -> bool:
            checked.add((operation, resource))
            return allowed

    authorization = APIS[drawn.api_key].authorization
    assert authorization is not None
    client = stage.client()
    envelope = Envelope(
        RequestHeader(
            request_api_key=drawn.api_key, request_api_version=drawn.version, correlation_id=1, client_id=None
        ),
        1,
        drawn.message,
        drawn.version,
    )
    refuse = APIS[drawn.api_key].refuse or stage.broker.coordinator.error_response
    call = Call(client.conn, "host", envelope, UUID(int=1), 0, refuse)
    authorization.narrow(Recorder(stage.broker, call), drawn.message)
    declared = {(requirement.operation, requirement.resource) for requirement in authorization.requirements}
    assert checked <= declared
