"""One call of each method of `Admin` that sends a request, with an assertion about its result.

All calls need a superuser. The calls for delegation tokens also need an authenticated client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pytest

from consumer import (
    AclBinding,
    AclBindingFilter,
    Admin,
    AlterConfigOp,
    ApplicationMetric,
    ClientQuotaEntity,
    ConfigResource,
    Consumer,
    FeatureUpdate,
    Producer,
    RaftVoterEndpoint,
    TopicPartition,
    TopicPartitionReplica,
    UserScramCredentialUpsertion,
)
from kproto.errors import BrokerError, PartialFailure, UnsupportedVersion
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.records import Record, encode_batch


@dataclass(frozen=True)
class Stage:
    """A broker with the topic "t" (two partitions), and the group "g" with a committed offset for "t"-0."""

    bootstrap: str
    admin: Admin
    user: Admin  # A client that has authenticated, as requests for delegation tokens require.
    node: int
    is_kafka: bool

    def new_topic(self, name: str, *, records: int = 0) -> TopicPartition:
        """Create a topic with one partition, and write `records` records to it."""
        self.admin.create_topics({name: 1})
        partition = TopicPartition(name, 0)
        if records:
            batch = encode_batch([Record(index, 0, None, b"x") for index in range(records)])
            self.admin.produce(partition, batch)
        return partition

    def new_group(self, name: str) -> str:
        self.admin.commit_offsets(name, {T0: 1})
        return name


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MISSING: Final = TopicPartition("missing", 0)
ALICE: Final = ClientQuotaEntity(user="alice")
DIRECTORY: Final = UUID(int=7)


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until the condition holds: a change may take time to reach the queried broker."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def fails(call: Callable[[], object], *failed: object, words: str = "") -> PartialFailure:
    """Check that the call raises PartialFailure for exactly the items `failed`, and return the error.

    If an item of the PartialFailure failed with UnsupportedVersion, raise the PartialFailure without checking
    its items.
    """
    with pytest.raises(PartialFailure) as caught:
        call()
    failure = caught.value
    if any(isinstance(error, UnsupportedVersion) for error in failure.failed.values()):
        raise failure
    assert set(failure.failed) == set(failed), failure
    assert words in str(failure)
    for error in failure.failed.values():
        assert isinstance(error, BrokerError), error
    return failure


def rejected(call: Callable[[], object], words: str) -> None:
    with pytest.raises(BrokerError, match=words):
        call()


# ---- topics, partitions and records


def topics(s: Stage) -> None:
    assert s.admin.topics()["t"] == 2


def partitions(s: Stage) -> None:
    assert s.admin.partitions("t") == [T0, T1]


def leader(s: Stage) -> None:
    assert s.admin.leader(T0) == s.node


def coordinator(s: Stage) -> None:
    assert s.admin.coordinator("g") == s.node


def metadata(s: Stage) -> None:
    assert s.node in s.admin.metadata().brokers


def request(s: Stage) -> None:
    message = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert s.admin.request(message, "controller").error_code == 0


def request_versioned(s: Stage) -> None:
    message = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert s.admin.request_versioned(message)[1] == 2


def create_topics(s: Stage) -> None:
    s.admin.create_topics({"created": 2}, configs={"retention.ms": "60000"})
    assert len(s.admin.partitions("created")) == 2


def create_partitions(s: Stage) -> None:
    s.new_topic("grows")
    s.admin.create_partitions({"grows": 3})
    assert len(s.admin.partitions("grows")) == 3


def delete_topics(s: Stage) -> None:
    s.new_topic("deleted")
    s.admin.delete_topics(["deleted"])
    until(lambda: "deleted" not in s.admin.list_topics())


def list_topics(s: Stage) -> None:
    listing = s.admin.list_topics()["t"]
    assert (listing.name, listing.is_internal) == ("t", False)
    assert listing.topic_id


def describe_topics(s: Stage) -> None:
    described = s.admin.describe_topics(["t"], include_authorized_operations=True)["t"]
    assert [(part.leader, part.replicas, part.isr) for part in described.partitions] == [
        (s.node, (s.node,), (s.node,))
    ] * 2
    assert {"read", "write", "delete"} <= (described.authorized_operations or set())
    failure = fails(lambda: s.admin.describe_topics(["missing", "t"]), "missing")
    assert list(failure.succeeded) == ["t"]


def delete_records(s: Stage) -> None:
    partition = s.new_topic("records", records=3)
    assert s.admin.delete_records({partition: 2}) == {partition: 2}
    fails(lambda: s.admin.delete_records({partition: 9}), partition, words="OFFSET_OUT_OF_RANGE")
    assert s.admin.delete_records({partition: "latest"}) == {partition: 3}


def list_offsets(s: Stage) -> None:
    partition = s.new_topic("offsets", records=2)
    assert s.admin.list_offsets({partition: "latest"})[partition].offset == 2
    assert s.admin.list_offsets({partition: "earliest"})[partition].offset == 0


def produce(s: Stage) -> None:
    partition = s.new_topic("produced", records=2)
    assert s.admin.produce(partition, encode_batch([Record(0, 0, None, b"x")])) == 2


def fetch(s: Stage) -> None:
    partition = s.new_topic("fetched", records=2)
    assert s.admin.fetch({partition: 0})[partition].high_watermark == 2


# ---- configs


def describe_configs(s: Stage) -> None:
    topic, broker = ConfigResource("topic", "t"), ConfigResource("broker", str(s.node))
    configs = s.admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)
    assert (configs[topic]["cleanup.policy"].value, configs[topic]["cleanup.policy"].type) == (
        "delete",
        "list",
    )
    assert configs[topic]["cleanup.policy"].is_default
    assert configs[broker]["auto.create.topics.enable"].type == "boolean"
    fails(
        lambda: s.admin.describe_configs([topic, ConfigResource("topic", "missing")]),
        ConfigResource("topic", "missing"),
    )


def incremental_alter_configs(s: Stage) -> None:
    partition = s.new_topic("configured")
    topic, wrong = ConfigResource("topic", partition.topic), ConfigResource("topic", "t")
    changes = {topic: [AlterConfigOp("retention.ms", "5000")], wrong: [AlterConfigOp("nonsense", "1")]}
    fails(lambda: s.admin.incremental_alter_configs(changes), wrong)
    until(lambda: s.admin.describe_configs([topic])[topic]["retention.ms"].value == "5000")
    s.admin.incremental_alter_configs({topic: [AlterConfigOp("retention.ms", operation="delete")]})
    until(lambda: s.admin.describe_configs([topic])[topic]["retention.ms"].is_default)


def list_config_resources(s: Stage) -> None:
    assert ConfigResource("topic", "t") in s.admin.list_config_resources(["topic"])
    assert ConfigResource("broker", str(s.node)) in s.admin.list_config_resources()


def client_instance_id(s: Stage) -> None:
    assert s.admin.client_instance_id() == s.admin.client_instance_id()


def register_metric_for_subscription(s: Stage) -> None:
    s.admin.register_metric_for_subscription(ApplicationMetric("orders", "shop", value=1))


def unregister_metric_from_subscription(s: Stage) -> None:
    s.admin.unregister_metric_from_subscription(ApplicationMetric("orders", "shop"))


# ---- ACLs, credentials, tokens and quotas


def create_acls(s: Stage) -> None:
    acl = AclBinding("topic", "created", "User:bob", "read")
    s.admin.create_acls([acl, acl])
    s.admin.create_acls([acl])
    until(lambda: acl in s.admin.describe_acls())


def describe_acls(s: Stage) -> None:
    acl = AclBinding("group", "described", "User:bob", "read", "deny", "10.0.0.1", "prefixed")
    s.admin.create_acls([acl])
    until(lambda: s.admin.describe_acls(AclBindingFilter("group", "described")) == [acl])
    assert s.admin.describe_acls(AclBindingFilter("group", "described-1", pattern_type="match")) == [acl]


def delete_acls(s: Stage) -> None:
    acl, other = (AclBinding("topic", name, "User:carol", "read") for name in ("deleted", "other"))
    s.admin.create_acls([acl, other])
    until(lambda: len(s.admin.describe_acls(AclBindingFilter(principal="User:carol"))) == 2)
    filters = [AclBindingFilter("topic", "deleted"), AclBindingFilter("topic", "nothing")]
    assert s.admin.delete_acls(filters) == {filters[0]: [acl], filters[1]: []}


def alter_user_scram_credentials(s: Stage) -> None:
    good = UserScramCredentialUpsertion("dora", "SCRAM-SHA-256", "secret", 5000)
    s.admin.alter_user_scram_credentials([good])
    until(lambda: "dora" in s.admin.describe_user_scram_credentials())


def describe_user_scram_credentials(s: Stage) -> None:
    s.admin.alter_user_scram_credentials([UserScramCredentialUpsertion("emil", "SCRAM-SHA-512", "secret")])
    until(lambda: "emil" in s.admin.describe_user_scram_credentials())
    failure = fails(lambda: s.admin.describe_user_scram_credentials(["emil", "nobody"]), "nobody")
    [credential] = failure.succeeded["emil"]
    assert (credential.mechanism, credential.iterations) == ("SCRAM-SHA-512", 4096)


def create_delegation_token(s: Stage) -> None:
    token = s.user.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=600_000)
    assert (token.owner, token.renewers) == ("User:alice", ("User:bob",))
    assert token.max_timestamp - token.issue_timestamp == 600_000
    rejected(lambda: s.admin.create_delegation_token(), "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")


def describe_delegation_token(s: Stage) -> None:
    token = s.user.create_delegation_token()
    until(lambda: token.token_id in {entry.token_id for entry in s.user.describe_delegation_token()})
    assert s.user.describe_delegation_token(["User:nobody"]) == []


def renew_delegation_token(s: Stage) -> None:
    token = s.user.create_delegation_token()
    until(lambda: token.token_id in {entry.token_id for entry in s.user.describe_delegation_token()})
    assert token.issue_timestamp < s.user.renew_delegation_token(token.hmac, renew_period_ms=60_000)
    rejected(lambda: s.user.renew_delegation_token(b"no"), "DELEGATION_TOKEN_NOT_FOUND")


def expire_delegation_token(s: Stage) -> None:
    token = s.user.create_delegation_token()
    until(lambda: token.token_id in {entry.token_id for entry in s.user.describe_delegation_token()})
    assert s.user.expire_delegation_token(token.hmac) < token.expiry_timestamp
    until(lambda: token.token_id not in {entry.token_id for entry in s.user.describe_delegation_token()})


def alter_client_quotas(s: Stage) -> None:
    default = ClientQuotaEntity(user="", client_id="")
    changes: dict[ClientQuotaEntity, dict[str, float | None]] = {
        default: {"producer_byte_rate": 5e6},
        ALICE: {"nonsense": 1.0},
    }
    assert fails(lambda: s.admin.alter_client_quotas(changes), ALICE).succeeded == {default: None}
    until(lambda: s.admin.describe_client_quotas().get(default) == {"producer_byte_rate": 5e6})
    s.admin.alter_client_quotas({default: {"producer_byte_rate": None}})
    until(lambda: default not in s.admin.describe_client_quotas())


def describe_client_quotas(s: Stage) -> None:
    entity = ClientQuotaEntity(user="frida", client_id="c")
    s.admin.alter_client_quotas({entity: {"request_percentage": 50}})
    until(lambda: s.admin.describe_client_quotas({"user": "frida"}))
    assert s.admin.describe_client_quotas({"user": None, "client-id": "c"}, strict=True) == {
        entity: {"request_percentage": 50.0}
    }
    assert s.admin.describe_client_quotas({"user": "frida"}, strict=True) == {}


# ---- groups


def group(s: Stage) -> None:
    assert s.admin.group("g").state == "Empty"


def list_groups(s: Stage) -> None:
    assert s.admin.list_groups(states=["Empty"], types=["classic"])["g"].state == "Empty"
    assert "g" not in s.admin.list_groups(states=["Stable"])


def delete_groups(s: Stage) -> None:
    name = s.new_group("deleted")
    assert fails(lambda: s.admin.delete_groups([name, "missing"]), "missing").succeeded == {name: None}


def _described(s: Stage, method: str) -> None:
    call: Any = getattr(s.admin, method)
    described = fails(lambda: call(["missing", "g"]), "missing").succeeded["g"]
    assert (described.type, described.state, described.coordinator) == ("classic", "Empty", s.node)
    assert "read" in call(["g"], include_authorized_operations=True)["g"].authorized_operations


def describe_consumer_groups(s: Stage) -> None:
    _described(s, "describe_consumer_groups")
    with Consumer(s.bootstrap, group_id="consumers", client_id="reader") as reader:
        reader.subscribe(["t"])
        until(lambda: reader.poll(0.1) is not None and reader.assignment())
        described = s.admin.describe_consumer_groups(["consumers"])["consumers"]
        assert [(member.client_id, set(member.partitions)) for member in described.members] == [
            ("reader", {T0, T1})
        ]


def describe_classic_groups(s: Stage) -> None:
    _described(s, "describe_classic_groups")


def describe_share_groups(s: Stage) -> None:
    fails(lambda: s.admin.describe_share_groups(["g"]), "g", words="GROUP_ID_NOT_FOUND")
    s.admin.alter_share_group_offsets("shared", {T0: 0})
    described = s.admin.describe_share_groups(["shared"])["shared"]
    assert (described.type, described.state, described.assignor) == ("share", "Empty", "simple")


def describe_streams_groups(s: Stage) -> None:
    fails(lambda: s.admin.describe_streams_groups(["g"]), "g", words="GROUP_ID_NOT_FOUND")


def commit_offsets(s: Stage) -> None:
    s.admin.commit_offsets(s.new_group("commits"), {T0: 5})
    committed = s.admin.committed_offsets("commits")[T0]
    assert committed is not None
    assert committed.offset == 5


def committed_offsets(s: Stage) -> None:
    assert s.admin.committed_offsets("g", [T1]) == {T1: None}


def list_consumer_group_offsets(s: Stage) -> None:
    listed = s.admin.list_consumer_group_offsets({"g": None, "none": [T1]}, require_stable=True)
    assert [listed["g"][T0] and listed["g"][T0].offset, listed["none"]] == [1, {T1: None}]


def alter_consumer_group_offsets(s: Stage) -> None:
    failure = fails(lambda: s.admin.alter_consumer_group_offsets("altered", {T0: 3, MISSING: 1}), MISSING)
    assert failure.succeeded == {T0: None}


def delete_consumer_group_offsets(s: Stage) -> None:
    s.admin.delete_consumer_group_offsets(s.new_group("offsets"), [T0])
    assert s.admin.committed_offsets("offsets") == {}
    fails(lambda: s.admin.delete_consumer_group_offsets("missing", [T0]), T0, words="GROUP_ID_NOT_FOUND")


def remove_members_from_consumer_group(s: Stage) -> None:
    with Consumer(s.bootstrap, group_id="static", group_instance_id="one") as member:
        member.subscribe(["t"])
        until(lambda: member.poll(0.1) is not None and member.assignment())
        call = lambda: s.admin.remove_members_from_consumer_group("static", ["one", "two"], reason="test")  # noqa: E731
        assert fails(call, "two", words="UNKNOWN_MEMBER_ID").succeeded == {"one": None}
        member.kill()


def list_share_group_offsets(s: Stage) -> None:
    s.admin.alter_share_group_offsets("share-list", {T0: 0})
    listed = s.admin.list_share_group_offsets({"share-list": None})["share-list"][T0]
    assert listed is not None
    assert listed.start_offset == 0


def alter_share_group_offsets(s: Stage) -> None:
    failure = fails(lambda: s.admin.alter_share_group_offsets("share-alter", {T0: 0, MISSING: 0}), MISSING)
    assert failure.succeeded == {T0: None}


def delete_share_group_offsets(s: Stage) -> None:
    s.admin.alter_share_group_offsets("share-delete", {T0: 0})
    failure = fails(lambda: s.admin.delete_share_group_offsets("share-delete", ["t", "missing"]), "missing")
    assert failure.succeeded == {"t": None}


# ---- transactions


def _writing(s: Stage, transactional_id: str) -> Producer:
    """Return a producer whose open transaction has written to "t"-0."""
    producer = Producer(s.bootstrap, transactional_id=transactional_id)
    producer.begin()
    producer.send("t", b"x", partition=0).result(20)
    return producer


def list_transactions(s: Stage) -> None:
    with _writing(s, "listed") as producer:
        assert "listed" in {entry.transactional_id for entry in s.admin.list_transactions()[s.node]}
        listings = s.admin.list_transactions(states=["Ongoing"], min_duration_ms=3_600_000)[s.node]
        assert listings == []
        producer.abort()


def describe_transactions(s: Stage) -> None:
    with _writing(s, "described") as producer:
        failure = fails(lambda: s.admin.describe_transactions(["described", "missing"]), "missing")
        description = failure.succeeded["described"]
        assert (description.state, description.partitions) == ("Ongoing", {T0})
        producer.abort()


def describe_producers(s: Stage) -> None:
    partition = s.new_topic("producers")
    with Producer(s.bootstrap, enable_idempotence=True) as producer:
        producer.send("producers", b"x").result(20)
        [state] = s.admin.describe_producers([partition])[partition]
        assert (state.last_sequence, state.current_transaction_start_offset) == (0, None)


def abort_transaction(s: Stage) -> None:
    with _writing(s, "hangs") as producer:
        states = s.admin.describe_producers([T0])[T0]
        [state] = [entry for entry in states if entry.current_transaction_start_offset is not None]
        s.admin.abort_transaction(
            T0, producer_id=state.producer_id, producer_epoch=state.producer_epoch, coordinator_epoch=0
        )
        states = s.admin.describe_producers([T0])[T0]
        assert not [entry for entry in states if entry.current_transaction_start_offset is not None]
        producer.abort()


def fence_producers(s: Stage) -> None:
    with _writing(s, "fenced") as producer:
        [(producer_id, epoch)] = s.admin.fence_producers(["fenced"]).values()
        assert producer_id >= 0
        assert epoch > 0
        with pytest.raises(BrokerError, match="FENCED"):
            producer.commit()


def force_terminate_transaction(s: Stage) -> None:
    with _writing(s, "terminated") as producer:
        s.admin.force_terminate_transaction("terminated")
        with pytest.raises(BrokerError, match="FENCED"):
            producer.commit()


# ---- replicas


def elect_leaders(s: Stage) -> None:
    failure = fails(lambda: s.admin.elect_leaders("preferred", [T0, MISSING]), MISSING)
    assert failure.succeeded == {T0: False}


def alter_partition_reassignments(s: Stage) -> None:
    replicas = {T0: [s.node], T1: [99]}
    assert fails(lambda: s.admin.alter_partition_reassignments(replicas), T1).succeeded == {T0: None}
    fails(lambda: s.admin.alter_partition_reassignments({T0: None}), T0, words="NO_REASSIGNMENT_IN_PROGRESS")


def list_partition_reassignments(s: Stage) -> None:
    assert s.admin.list_partition_reassignments() == {}
    assert s.admin.list_partition_reassignments([T0]) == {}


def describe_log_dirs(s: Stage) -> None:
    [directory] = s.admin.describe_log_dirs([s.node])[s.node].values()
    assert directory.replicas[T0].is_future is False
    fails(lambda: s.admin.describe_log_dirs([s.node, 99]), 99)


def describe_replica_log_dirs(s: Stage) -> None:
    replica, missing = TopicPartitionReplica("t", 0, s.node), TopicPartitionReplica("missing", 0, s.node)
    described = s.admin.describe_replica_log_dirs([replica, missing])
    assert described[replica].current_replica_log_dir in s.admin.describe_log_dirs([s.node])[s.node]
    assert described[missing].current_replica_log_dir is None


def alter_replica_log_dirs(s: Stage) -> None:
    replica = TopicPartitionReplica("t", 0, s.node)
    fails(lambda: s.admin.alter_replica_log_dirs({replica: "/missing"}), replica, words="LOG_DIR_NOT_FOUND")


# ---- the cluster


def describe_cluster(s: Stage) -> None:
    cluster = s.admin.describe_cluster(include_authorized_operations=True)
    assert [node.id for node in cluster.nodes] == [s.node]
    assert {"create", "alter", "describe"} <= (cluster.authorized_operations or set())


def describe_features(s: Stage) -> None:
    features = s.admin.describe_features(s.node)
    finalized = features.finalized_features["transaction.version"]
    supported = features.supported_features["transaction.version"]
    assert supported.min_version <= finalized.max_version <= supported.max_version


def update_features(s: Stage) -> None:
    update = {"metadata.version": FeatureUpdate(99)}
    fails(
        lambda: s.admin.update_features(update, validate_only=True),
        "metadata.version",
        words="INVALID_UPDATE_VERSION",
    )


def describe_metadata_quorum(s: Stage) -> None:
    quorum = s.admin.describe_metadata_quorum()
    assert quorum.leader_id in {voter.replica_id for voter in quorum.voters}
    # The embedded broker has no metadata log, so it reports 0 as the log's high watermark.
    assert quorum.high_watermark > 0 or not s.is_kafka


def add_raft_voter(s: Stage) -> None:
    endpoint = RaftVoterEndpoint("CONTROLLER", "localhost", 9093)
    call = lambda: s.admin.add_raft_voter(77, DIRECTORY, [endpoint], cluster_id="another")  # noqa: E731
    rejected(call, "INCONSISTENT_CLUSTER_ID")


def remove_raft_voter(s: Stage) -> None:
    rejected(lambda: s.admin.remove_raft_voter(77, DIRECTORY), "VOTER_NOT_FOUND")


def unregister_broker(s: Stage) -> None:
    rejected(lambda: s.admin.unregister_broker(77), "BROKER_ID_NOT_REGISTERED")


def unregister_controller(s: Stage) -> None:
    rejected(lambda: s.admin.unregister_controller(77), "CONTROLLER_ID_NOT_REGISTERED")


# Method of `Admin` -> the function of this module that calls it.
CALLS: Final[dict[str, Callable[[Stage], None]]] = {
    name: function
    for name, function in list(globals().items())
    if callable(function) and hasattr(Admin, name) and not name.startswith("_")
}
# Methods that send no request, and `run`, which sends the requests that a generator of the caller yields.
WITHOUT_REQUEST: Final = {"close", "kill", "metrics", "run", "view"}
