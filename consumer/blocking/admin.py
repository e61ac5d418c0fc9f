"""The blocking admin client, `Admin`, for admin tools, Spark and tests.

`Admin` manages topics, offsets and groups, and sends individual requests.

    with Admin("localhost:9092") as admin:
        admin.create_topics({"flights": 3})
        ends = admin.list_offsets({TopicPartition("flights", 0): "latest"})
        response = admin.request(DescribeClusterRequest(...), node="controller")

Every method waits for at most `timeout` seconds, by default 30. The module does not import the consumer, so
an admin tool loads only what it needs.

`tests/consumer/blocking/update_admin.py` generates the methods of `Admin` from those of `AsyncAdmin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack
from uuid import UUID

from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ..aio.admin import AsyncAdmin
from ..context_managers import Block
from ..dialers import Dialer
from ..engine.admin.acls import AclBinding, AclBindingFilter
from ..engine.admin.cluster import Route
from ..engine.admin.cluster_descriptions import ClusterDescription
from ..engine.admin.configs import AlterConfigOp, ConfigEntry, ConfigResource
from ..engine.admin.credentials import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ..engine.admin.delegation_tokens import DelegationToken
from ..engine.admin.features import FeatureMetadata, FeatureUpdate
from ..engine.admin.group_descriptions import GroupDescription
from ..engine.admin.group_offsets import SharePartitionOffset
from ..engine.admin.groups import Group, ListedGroup
from ..engine.admin.plan import Plan
from ..engine.admin.quorum import QuorumInfo, RaftVoterEndpoint
from ..engine.admin.quotas import ClientQuotaEntity
from ..engine.admin.records import FetchedBytes, OffsetAt
from ..engine.admin.replicas import (
    LogDirDescription,
    PartitionReassignment,
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from ..engine.admin.topic_descriptions import TopicDescription, TopicListing
from ..engine.admin.transactions import ProducerState, TransactionDescription, TransactionListing
from ..engine.metadata.cluster import ClusterView
from ..engine.metrics import Metrics
from ..engine.network.call import Prepared
from ..engine.network.transport import RECEIVE_MESSAGE_MAX_BYTES
from ..engine.requests import CommittedOffset, Offset
from ..engine.telemetry.application import ApplicationMetric
from ..lifecycle import BoundToProcess
from ..option_docs import with_options
from ..other_clients import hide_secrets, unknown_method
from ..runtime import Driver, Runtime, run_to_end
from ..security.option_names import SecurityConfig
from .runtime import BlockingRuntime

R = TypeVar("R")


class _Operations(AsyncAdmin):
    """An `AsyncAdmin` whose waits block the calling thread. `run_to_end` runs its coroutines."""

    def _make_runtime(self, driver: Driver) -> Runtime:
        return BlockingRuntime(driver)

    def describe(self, kind: str) -> str:
        return self._runner.describe(kind)


@with_options()
class Admin(BoundToProcess, Block):
    """A blocking client that sends requests to any broker of a cluster. Several threads may use one client.

    The constructor raises `ConfigError` for an invalid address or option. The first request opens a
    connection.
    """

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = 30_000,
        receive_message_max_bytes: int = RECEIVE_MESSAGE_MAX_BYTES,
        timeout: float = 30.0,
        enable_metrics_push: bool = True,
        dialer: Dialer | None = None,
        **security: Unpack[SecurityConfig],
    ) -> None:
        self._operations = _Operations(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            receive_message_max_bytes=receive_message_max_bytes,
            timeout=timeout,
            enable_metrics_push=enable_metrics_push,
            dialer=dialer,
            **security,
        )

    # ---- any request

    def request(self, request: Message | Prepared, node: Route = None, timeout: float | None = None) -> Any:
        """Send a request in the highest version that both sides support, and return its response.

        The class of the response depends on the request's class: the response to a ListGroupsRequest
        is a ListGroupsResponse. Type checkers see Any, so annotate the variable to which you assign the
        response.

        `node` is a node id, "controller", ("leader", topic, partition), a coordinator, or None, which means
        any broker. A coordinator is ("group", group_id), ("transaction", transactional_id) or ("share",
        "GROUP:TOPIC_ID:PARTITION"), with TOPIC_ID in Base64 as Kafka's tools print it.

        Error codes in the response are not raised: the caller checks them. Raises ConnectionFailed,
        RequestTimedOut and UnsupportedVersion. Raises BrokerError if the coordinator or leader cannot be
        found.
        """
        return run_to_end(self._operations.request(request, node, timeout))

    def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Any, int]:
        """Send a request as `request` does, and return its response and the version that was used."""
        return run_to_end(self._operations.request_versioned(request, node, timeout))

    @property
    def view(self) -> ClusterView:
        """The cluster metadata that this client received last. No request is sent."""
        return self._operations.view

    def metrics(self) -> Metrics:
        """Return a snapshot of the metrics of this client's connections.

        Names, groups and tags follow Java's `Admin.metrics`, in the groups "admin-client-metrics" and
        "admin-client-node-metrics". Rates, averages, maxima and minima cover the last 30 to 60 s. The
        method sends no request.
        """
        return self._operations.metrics()

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Register a metric of the application, to be pushed with this client's metrics (KIP-1076).

        The metric replaces a registered one with the same name, group and tags. It is pushed if a broker's
        subscription selects it; with enable_metrics_push=False nothing is pushed. Any thread may call the
        method. Java: registerMetricForSubscription.
        """
        self._operations.register_metric_for_subscription(metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        """Stop pushing a metric of the application. A metric that is not registered is ignored (KIP-1076).

        The method may be called from any thread. Java: unregisterMetricFromSubscription.
        """
        self._operations.unregister_metric_from_subscription(metric)

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that a broker has assigned to this client for its telemetry (KIP-714).

        The id identifies this client in the metrics that it pushes (see the option `enable_metrics_push`).
        The client connects to a broker if necessary. Raises RequestTimedOut after `timeout` seconds (by
        default the client's `timeout`), IllegalState if the client pushes no metrics, and UnsupportedVersion
        if the broker does not support client telemetry.
        """
        return run_to_end(self._operations.client_instance_id(timeout))

    # ---- metadata

    def metadata(self, topics: Iterable[str] | None = None, timeout: float | None = None) -> ClusterView:
        """Request the metadata of `topics` (None: all topics), and return the updated view."""
        return run_to_end(self._operations.metadata(topics, timeout))

    def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Return the number of partitions of each topic that is not internal."""
        return run_to_end(self._operations.topics(timeout))

    def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return a topic's partitions, from fresh metadata. Raises UnknownTopic if the topic is missing."""
        return run_to_end(self._operations.partitions(topic, timeout))

    def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the node id of a partition's leader. Raises UnknownTopic if the partition does not exist."""
        return run_to_end(self._operations.leader(partition, timeout))

    def coordinator(self, group: str, timeout: float | None = None) -> int:
        """Return the node id of the group's coordinator."""
        return run_to_end(self._operations.coordinator(group, timeout))

    # ---- topics

    def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Create topics, and wait until every partition has a leader.

        `topics` maps each name to a number of partitions. A `replication_factor` of -1 means the cluster's
        default. With `exist_ok`, an existing topic counts as created if it has at least as many partitions.
        Otherwise an existing topic raises BrokerError.
        """
        run_to_end(
            self._operations.create_topics(
                topics,
                replication_factor=replication_factor,
                configs=configs,
                exist_ok=exist_ok,
                timeout=timeout,
            )
        )

    def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Add partitions to topics. `totals` maps a topic to its new total number of partitions.

        The method waits until every partition of these topics has a leader.
        """
        run_to_end(self._operations.create_partitions(totals, timeout=timeout))

    def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete topics and all of their records. Raises UnknownTopic if a topic is missing."""
        run_to_end(self._operations.delete_topics(topics, timeout=timeout))

    # ---- offsets and records

    def list_offsets(
        self,
        wants: Mapping[TopicPartition, str | int],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Return each partition's offset for the requested position, for example "earliest".

        A position is "earliest", "latest", a time in ms since 1970, "max_timestamp", "earliest_local" or
        "latest_tiered".

        "latest" means the high watermark or, with read_committed, the last stable offset. The offset of an
        `OffsetAt` is None if the requested position does not exist in the log, for example because all
        records are older than the requested time.
        """
        return run_to_end(self._operations.list_offsets(wants, isolation=isolation, timeout=timeout))

    def fetch(
        self,
        wants: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_uncommitted",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        lent: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FetchedBytes]:
        """Send one Fetch request for these offsets, and return the raw record batches.

        `kproto.records` decodes the batches. With `lent`, batches may be views of the response's memory,
        which saves a copy. The whole response stays in memory until the last view is freed. The first batch
        may begin before the requested offset, and the last batch may be truncated.

        Error codes of partitions are returned, not raised. After OFFSET_OUT_OF_RANGE (1), fetch at another
        offset. After a retriable error code, call this method again.
        """
        return run_to_end(
            self._operations.fetch(
                wants,
                isolation=isolation,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                lent=lent,
                timeout=timeout,
            )
        )

    def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Append one encoded record batch to a partition, and return the offset of its first record.

        The request is not retried if the connection breaks. `records` must be a single batch, since a broker
        accepts only one for each partition in a request.
        """
        return run_to_end(self._operations.produce(partition, records, acks=acks, timeout=timeout))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group of which this client is not a member.

        Each offset is the *next* offset to read. A value of `offsets` is an offset, a tuple (offset,
        metadata), or a `CommittedOffset`. Raises CommitFailed while the group has members.
        """
        run_to_end(self._operations.commit_offsets(group, offsets, timeout=timeout))

    def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        Without `partitions`, all committed offsets of the group are returned. With `require_stable` the call
        waits for open transactions that commit offsets of the group (KIP-447).
        """
        return run_to_end(
            self._operations.committed_offsets(
                group, partitions, require_stable=require_stable, timeout=timeout
            )
        )

    # ---- groups

    def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        protocol_types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, ListedGroup]:
        """Return the state and the type of every group of the cluster, by group name.

        The method sends one request to each broker, because a broker lists only the groups that it
        coordinates. `states`, `types` and `protocol_types` are filters; without them all groups are listed.
        Raises PartialFailure, keyed by node id, if the request to a broker fails. For example, brokers before
        Kafka 2.6 cannot filter by state, and those before 3.8 cannot filter by type. Java: Admin.listGroups.
        """
        return run_to_end(
            self._operations.list_groups(
                states=states, types=types, protocol_types=protocol_types, timeout=timeout
            )
        )

    def group(self, group: str, timeout: float | None = None, *, require_stable: bool = False) -> Group:
        """Return the group's state, committed offsets and lag, and its members with their partitions.

        If the group does not exist, its state is "Dead". With `require_stable` the call waits for open
        transactions that commit offsets of the group (KIP-447).
        """
        return run_to_end(self._operations.group(group, timeout, require_stable=require_stable))

    def delete_groups(self, names: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete groups of any type, with their committed offsets.

        Raises PartialFailure, for example for a group that has members or does not exist. Java:
        Admin.deleteConsumerGroups, deleteShareGroups and deleteStreamsGroups.
        """
        run_to_end(self._operations.delete_groups(names, timeout=timeout))

    # ---- configs

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configs of each resource by name: all configs, or only those that `names` lists.

        The configs of a broker are requested from that broker, and the configs of other resources from any
        broker. Raises PartialFailure if a resource cannot be described. Java: Admin.describeConfigs.
        """
        return run_to_end(
            self._operations.describe_configs(
                resources,
                names=names,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
                timeout=timeout,
            )
        )

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change individual configs of each resource; its other configs keep their values (KIP-339).

        Changes to one resource succeed or fail together. Raises PartialFailure if a resource cannot be
        changed. With `validate_only` the brokers check the changes and change nothing. Java:
        Admin.incrementalAlterConfigs.
        """
        run_to_end(
            self._operations.incremental_alter_configs(changes, validate_only=validate_only, timeout=timeout)
        )

    def list_config_resources(
        self, types: Iterable[str] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Return the config resources of these types, sorted (KIP-1142).

        By default, resources of all types are returned. Brokers before Kafka 4.1 can list only
        "client_metrics": all other values of `types`, including the default, raise UnsupportedVersion. Java:
        Admin.listConfigResources.
        """
        return run_to_end(self._operations.list_config_resources(types, timeout=timeout))

    # ---- more about topics and records

    def delete_records(
        self, offsets: Mapping[TopicPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below these offsets, and return the new start offset of each log.

        "latest" deletes all records below the high watermark. Raises PartialFailure, for example with
        OffsetOutOfRange for an offset above the high watermark. Java: Admin.deleteRecords.
        """
        return run_to_end(self._operations.delete_records(offsets, timeout=timeout))

    def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics of the cluster with their ids, sorted by name.

        Topics that the client is not authorized to describe are omitted. Java: Admin.listTopics.
        """
        return run_to_end(self._operations.list_topics(include_internal=include_internal, timeout=timeout))

    def describe_topics(
        self,
        topics: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Return the id, the partitions and the replicas of each topic.

        Missing topics are not created. Raises PartialFailure, for example with UnknownTopic for a missing
        topic. Java: Admin.describeTopics.
        """
        return run_to_end(
            self._operations.describe_topics(
                topics, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    # ---- ACLs and credentials

    def create_acls(self, acls: Iterable[AclBinding], *, timeout: float | None = None) -> None:
        """Create these ACLs. An existing ACL counts as created, as in Kafka.

        Raises PartialFailure if an ACL cannot be created. Java: Admin.createAcls.
        """
        run_to_end(self._operations.create_acls(acls, timeout=timeout))

    def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match the filter (by default all ACLs), sorted. Java: Admin.describeAcls."""
        return run_to_end(self._operations.describe_acls(acl_filter, timeout=timeout))

    def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match any of the filters, and return the matching ACLs of each filter, sorted.

        Raises PartialFailure if an ACL that matches a filter cannot be deleted. Java: Admin.deleteAcls.
        """
        return run_to_end(self._operations.delete_acls(filters, timeout=timeout))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return the SCRAM credentials of `users`; None means all users with credentials (KIP-554).

        Raises PartialFailure if one of `users` has no credentials. Java: Admin.describeUserScramCredentials.
        """
        return run_to_end(self._operations.describe_user_scram_credentials(users, timeout=timeout))

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set and delete SCRAM credentials (KIP-554). The client sends only salted passwords.

        Kafka accepts only one change per user in a call. Raises PartialFailure, keyed by user, if a change is
        rejected. Java: Admin.alterUserScramCredentials.
        """
        run_to_end(self._operations.alter_user_scram_credentials(alterations, timeout=timeout))

    # ---- quotas and delegation tokens

    def describe_client_quotas(
        self,
        match: Mapping[str, str | None] | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return the quotas of each user, client id or IP address: a dict from quota name to value (KIP-546).

        `match` maps "user", "client-id" or "ip" to a name, to "" for the default, or to None for any name.
        Without `match` all quotas are returned. With `strict`, an entity is omitted if one of its types is
        not in `match`. Java: Admin.describeClientQuotas.
        """
        return run_to_end(self._operations.describe_client_quotas(match, strict=strict, timeout=timeout))

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set the quotas of each entity; None removes a quota (KIP-546).

        Quotas are called "producer_byte_rate", "consumer_byte_rate" (bytes per second), "request_percentage",
        "controller_mutation_rate" and "connection_creation_rate". Raises PartialFailure, keyed by entity, if
        the broker rejects a change. With `validate_only` the changes are checked but not made. Java:
        Admin.alterClientQuotas.
        """
        run_to_end(
            self._operations.alter_client_quotas(changes, validate_only=validate_only, timeout=timeout)
        )

    def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a delegation token for `owner`, by default the client's own principal (KIP-48, KIP-373).

        `renewers` and `owner` are principals such as "User:alice". Without `max_lifetime_ms` the broker's
        `delegation.token.max.lifetime.ms` applies. The client must have authenticated, but not with a
        delegation token. Java: Admin.createDelegationToken.
        """
        return run_to_end(
            self._operations.create_delegation_token(
                renewers=renewers, owner=owner, max_lifetime_ms=max_lifetime_ms, timeout=timeout
            )
        )

    def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Extend the lifetime of the delegation token with this `hmac` (KIP-48).

        Returns the time in ms since 1970 at which the token expires. Without `renew_period_ms` the broker's
        `delegation.token.expiry.time.ms` applies. Java: Admin.renewDelegationToken.
        """
        return run_to_end(
            self._operations.renew_delegation_token(hmac, renew_period_ms=renew_period_ms, timeout=timeout)
        )

    def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Make the delegation token with this `hmac` expire immediately, or after a period (KIP-48).

        Returns the time in ms since 1970 at which the token expires. Java: Admin.expireDelegationToken.
        """
        return run_to_end(
            self._operations.expire_delegation_token(hmac, expiry_period_ms=expiry_period_ms, timeout=timeout)
        )

    def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return those tokens of `owners` that the client may describe (KIP-48).

        If `owners` is None, the tokens of all owners are returned. Java: Admin.describeDelegationToken.
        """
        return run_to_end(self._operations.describe_delegation_token(owners, timeout=timeout))

    # ---- transactions

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        timeout: float | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return the transactions that each broker coordinates, by node id (KIP-664).

        Without the filters `states` and `producer_ids` all transactions are listed. With `min_duration_ms`,
        only transactions that have been open for longer than this time are listed (KIP-994, Kafka 3.8 and
        later). Raises PartialFailure, keyed by node id, if the request to a broker fails. Java:
        Admin.listTransactions.
        """
        return run_to_end(
            self._operations.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms, timeout=timeout
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the state, the producer and the partitions of each transactional id (KIP-664).

        Raises PartialFailure, for example for an unknown transactional id. Java: Admin.describeTransactions.
        """
        return run_to_end(self._operations.describe_transactions(transactional_ids, timeout=timeout))

    def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return the active producers of each partition, and their transactions' start offsets (KIP-664).

        The request goes to the replica on `broker`, by default to the leader. Raises PartialFailure, for
        example with UnknownTopic for a missing topic. Java: Admin.describeProducers.
        """
        return run_to_end(self._operations.describe_producers(partitions, broker=broker, timeout=timeout))

    def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout: float | None = None,
    ) -> None:
        """Abort a hanging transaction in one partition: write its abort marker at the leader (KIP-664).

        Pass the producer id and the epochs that `describe_producers` returned. The marker does not pass
        through the transaction coordinator, and does not change its state. So use this method only for a
        transaction that the coordinator does not know. Java: Admin.abortTransaction.
        """
        run_to_end(
            self._operations.abort_transaction(
                partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timeout=timeout,
            )
        )

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fence the producers of these transactional ids, and abort their open transactions (KIP-618).

        Returns the new (producer id, epoch) of each transactional id. Raises PartialFailure if the producer
        of an id cannot be fenced. Java: Admin.fenceProducers.
        """
        return run_to_end(self._operations.fence_producers(transactional_ids, timeout=timeout))

    # ---- cluster, features and quorum

    def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Return the id, the controller and the brokers of the cluster (KIP-700).

        With `include_fenced_brokers` the method raises UnsupportedVersion if the broker is older than Kafka
        4.0 (KIP-1073). Java: Admin.describeCluster.
        """
        return run_to_end(
            self._operations.describe_cluster(
                include_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
                timeout=timeout,
            )
        )

    def describe_features(self, node: int | None = None, *, timeout: float | None = None) -> FeatureMetadata:
        """Return the finalized features of the cluster, and those that the broker `node` supports (KIP-584).

        Without `node` the request goes to any broker. Java: Admin.describeFeatures.
        """
        return run_to_end(self._operations.describe_features(node, timeout=timeout))

    def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change the finalized levels of features, for example of "metadata.version" (KIP-584).

        Since Kafka 4.0 all changes succeed or fail together. With `validate_only` the controller only checks
        the changes. Raises PartialFailure, keyed by feature, if a change is rejected. Java:
        Admin.updateFeatures.
        """
        run_to_end(self._operations.update_features(updates, validate_only=validate_only, timeout=timeout))

    def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Return the leader, the voters and the observers of the metadata quorum (KIP-595).

        Java: Admin.describeMetadataQuorum.
        """
        return run_to_end(self._operations.describe_metadata_quorum(timeout=timeout))

    def add_raft_voter(
        self,
        voter_id: int,
        directory_id: UUID,
        endpoints: Iterable[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Add a controller to the voters of the metadata quorum (KIP-853, Kafka 3.9 and later).

        `directory_id` is the id of the controller's metadata directory. With `cluster_id` the call fails in
        any other cluster. Java: Admin.addRaftVoter.
        """
        run_to_end(
            self._operations.add_raft_voter(
                voter_id, directory_id, endpoints, cluster_id=cluster_id, timeout=timeout
            )
        )

    def remove_raft_voter(
        self,
        voter_id: int,
        directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a voter from the metadata quorum (KIP-853, Kafka 3.9 and later).

        Takes the arguments of `add_raft_voter`, without the endpoints. Java: Admin.removeRaftVoter.
        """
        run_to_end(
            self._operations.remove_raft_voter(voter_id, directory_id, cluster_id=cluster_id, timeout=timeout)
        )

    def unregister_broker(self, broker: int, *, timeout: float | None = None) -> None:
        """Unregister a broker that no longer exists. `broker` is its node id (KIP-631).

        Java: Admin.unregisterBroker.
        """
        run_to_end(self._operations.unregister_broker(broker, timeout=timeout))

    def unregister_controller(self, controller: int, *, timeout: float | None = None) -> None:
        """Unregister a controller that no longer exists. `controller` is its node id.

        The broker must forward the request to the active controller. Brokers of Kafka 4.4 do not forward it,
        so the method then raises UnsupportedVersion. Java: Admin.unregisterController.
        """
        run_to_end(self._operations.unregister_controller(controller, timeout=timeout))

    def force_terminate_transaction(self, transactional_id: str, *, timeout: float | None = None) -> None:
        """Abort the open or prepared transaction of this transactional id, and fence its producer (KIP-939).

        Java: Admin.forceTerminateTransaction.
        """
        run_to_end(self._operations.force_terminate_transaction(transactional_id, timeout=timeout))

    # ---- replicas

    def elect_leaders(
        self,
        election_type: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect a leader for each partition, and return for each whether an election was needed (KIP-460).

        `election_type` is "preferred", which elects the first replica of a partition if it is in sync, or
        "unclean", which elects any live replica if the partition has no leader. An unclean election may lose
        records. Raises PartialFailure if an election fails, for example without a live replica. Java:
        Admin.electLeaders.
        """
        return run_to_end(self._operations.elect_leaders(election_type, partitions, timeout=timeout))

    def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Start moving each partition to the brokers that `replicas` lists for it, by node id (KIP-455).

        None cancels the reassignment of a partition. The call does not wait until the replicas are in sync:
        `list_partition_reassignments` shows the progress. Raises PartialFailure, for example for an unknown
        broker. Java: Admin.alterPartitionReassignments.
        """
        run_to_end(self._operations.alter_partition_reassignments(replicas, timeout=timeout))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the ongoing reassignments of these partitions, by default of all partitions (KIP-455).

        Java: Admin.listPartitionReassignments.
        """
        return run_to_end(self._operations.list_partition_reassignments(partitions, timeout=timeout))

    def describe_log_dirs(
        self, brokers: Iterable[int], *, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Return the log directories of each broker by path, with the sizes of their replicas (KIP-113).

        `brokers` are node ids. Raises PartialFailure, keyed by node id, if the request to a broker fails.
        Java: Admin.describeLogDirs.
        """
        return run_to_end(self._operations.describe_log_dirs(brokers, timeout=timeout))

    def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str], *, timeout: float | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers (KIP-113).

        `paths` maps each replica to the path of a log directory of its broker. The call does not wait until
        the replica is copied. Until then, `describe_log_dirs` shows the copy as a future replica. Raises
        PartialFailure, for example for an unknown directory. Java: Admin.alterReplicaLogDirs.
        """
        run_to_end(self._operations.alter_replica_log_dirs(paths, timeout=timeout))

    def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Return the log directory of each of these replicas (KIP-113).

        If a replica is being moved, the result also has the directory to which it is being moved. Raises
        PartialFailure if the request to a broker fails. Java: Admin.describeReplicaLogDirs.
        """
        return run_to_end(self._operations.describe_replica_log_dirs(replicas, timeout=timeout))

    # ---- descriptions of groups

    def describe_consumer_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of each group of type "consumer" or "classic".

        Raises PartialFailure, for example for a group that does not exist. To get the offsets and the
        lag of a group as well, call `group`. Java: Admin.describeConsumerGroups.
        """
        return run_to_end(
            self._operations.describe_consumer_groups(
                groups, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    def describe_classic_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of each classic group, of any protocol type (KIP-1043).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeClassicGroups.
        """
        return run_to_end(
            self._operations.describe_classic_groups(
                groups, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    def describe_share_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of each share group (KIP-932).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeShareGroups.
        """
        return run_to_end(
            self._operations.describe_share_groups(
                groups, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    def describe_streams_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state, the members and the topology of each Streams group (KIP-1071).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeStreamsGroups.
        """
        return run_to_end(
            self._operations.describe_streams_groups(
                groups, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    # ---- members and offsets of groups

    def remove_members_from_consumer_group(
        self,
        group: str,
        group_instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove these static members from a group; None stands for all members (KIP-345, KIP-571).

        A removed member that is still running rejoins the group. The coordinator logs `reason` (KIP-800).
        Raises PartialFailure if a member cannot be removed. Its keys are instance ids, or member ids if all
        members are to be removed. Java: Admin.removeMembersFromConsumerGroup.
        """
        run_to_end(
            self._operations.remove_members_from_consumer_group(
                group, group_instance_ids, reason=reason, timeout=timeout
            )
        )

    def delete_consumer_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Delete the committed offsets of these partitions in a group (KIP-496).

        Raises PartialFailure, for example while a member of the group is subscribed to the topic. Java:
        Admin.deleteConsumerGroupOffsets.
        """
        run_to_end(self._operations.delete_consumer_group_offsets(group, partitions, timeout=timeout))

    def list_consumer_group_offsets(
        self,
        groups: Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, CommittedOffset | None]]:
        """Return the committed offsets of each group in `groups`.

        `groups` maps each group to a list of partitions, or to None for all its partitions. Classic, consumer
        and streams groups are supported. The result maps a partition without a committed offset to None. With
        `require_stable` the call waits for open transactions that commit offsets (KIP-447). Raises
        PartialFailure, keyed by group, if a group's offsets cannot be read. Java:
        Admin.listConsumerGroupOffsets and listStreamsGroupOffsets.
        """
        return run_to_end(
            self._operations.list_consumer_group_offsets(
                groups, require_stable=require_stable, timeout=timeout
            )
        )

    def alter_consumer_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group without members. Each partition succeeds or fails independently.

        Takes the arguments of `commit_offsets`. Raises PartialFailure, for example if the group has
        members. Java: Admin.alterConsumerGroupOffsets and alterStreamsGroupOffsets.
        """
        run_to_end(self._operations.alter_consumer_group_offsets(group, offsets, timeout=timeout))

    def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset | None]]:
        """Return the start offset and the lag of each partition, for each share group in `groups` (KIP-932).

        `groups` maps each group to a list of partitions, or to None for all its partitions. Raises
        PartialFailure, keyed by group, if a group's offsets cannot be read. Java:
        Admin.listShareGroupOffsets.
        """
        return run_to_end(self._operations.list_share_group_offsets(groups, timeout=timeout))

    def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Set the start offsets of a share group without members (KIP-932).

        Raises PartialFailure, for example if the group has members. Java: Admin.alterShareGroupOffsets.
        """
        run_to_end(self._operations.alter_share_group_offsets(group, offsets, timeout=timeout))

    def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Delete the offsets of these topics in a share group without members (KIP-932).

        Raises PartialFailure, keyed by topic, if the offsets of a topic cannot be deleted. Java:
        Admin.deleteShareGroupOffsets.
        """
        run_to_end(self._operations.delete_share_group_offsets(group, topics, timeout=timeout))

    # ---- plans

    def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Run a plan of requests to completion, and return its result.

        After `timeout` seconds, raise RequestTimedOut, which names the request that has no response yet.
        """
        return run_to_end(self._operations.run(plan, timeout))

    # ---- the end

    def close(self) -> None:
        """Close all connections. Calls that are waiting raise IllegalState. A second `close` does nothing."""
        run_to_end(self._operations.close())

    def kill(self) -> None:
        """Close all connections as if the process had died, for tests and demos."""
        self._operations.kill()

    # ---- inside

    def __str__(self) -> str:
        return str(self._operations)

    def __repr__(self) -> str:
        return self._operations.describe(type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a method of another library, the error names kproto's equivalent."""
            raise unknown_method(self, "admin client", name)
