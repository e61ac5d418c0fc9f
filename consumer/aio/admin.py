"""The admin client for asyncio, and the operations of both admin clients.

Each method checks its arguments and runs a plan of `consumer.engine.admin`. The plan decides which requests
to send, and how to handle their failures. `consumer.blocking.admin` runs the same coroutines without an event
loop. There the coroutines never suspend, because each wait of the blocking runtime blocks the thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack
from uuid import UUID

from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from .. import admin_validation as admin_check
from .. import validation as check
from ..context_managers import AsyncBlock
from ..dialers import Dialer
from ..engine.admin import acls as acl_plans
from ..engine.admin import cluster as cluster_plans
from ..engine.admin import cluster_descriptions as cluster_description_plans
from ..engine.admin import configs as config_plans
from ..engine.admin import credentials as credential_plans
from ..engine.admin import delegation_tokens as token_plans
from ..engine.admin import features as feature_plans
from ..engine.admin import group_changes as group_change_plans
from ..engine.admin import group_descriptions as group_description_plans
from ..engine.admin import group_offsets as group_offset_plans
from ..engine.admin import groups as group_plans
from ..engine.admin import offsets as offset_plans
from ..engine.admin import quorum as quorum_plans
from ..engine.admin import quotas as quota_plans
from ..engine.admin import records as record_plans
from ..engine.admin import replicas as replica_plans
from ..engine.admin import topic_descriptions as topic_description_plans
from ..engine.admin import topics as topic_plans
from ..engine.admin import transactions as transaction_plans
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
from ..engine.requests import CommittedOffset, Offset, offset_triples
from ..engine.telemetry.application import ApplicationMetric
from ..engine.telemetry.reporter import read_client_instance_id
from ..lifecycle import BoundToProcess
from ..operations.admin import AdminRunner
from ..option_docs import with_options
from ..other_clients import hide_secrets, unknown_method
from ..runtime import Driver, Runtime
from ..security.option_names import SecurityConfig

R = TypeVar("R")


@with_options()
class AsyncAdmin(BoundToProcess, AsyncBlock):
    """The asyncio version of `Admin`. Options and methods are the same; methods that wait are coroutines.

    Any number of tasks may use one client if all of them run in the same event loop.
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
        self._runner = AdminRunner(
            bootstrap_servers,
            client_id,
            request_timeout_ms,
            receive_message_max_bytes,
            timeout,
            enable_metrics_push,
            dialer,
            security,
            self._make_runtime,
        )
        self._runtime = self._runner.runtime

    def _make_runtime(self, driver: Driver) -> Runtime:
        # The blocking `Admin` imports this module, and does not need the runtime's asyncio.
        from .runtime import AsyncRuntime

        return AsyncRuntime(driver)

    # ---- any request

    async def request(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> Any:
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
        response, _ = await self._send("request", request, node, timeout)
        return response

    async def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Any, int]:
        """Send a request as `request` does, and return its response and the version that was used."""
        return await self._send("request_versioned", request, node, timeout)

    async def _send(
        self, method: str, request: Message | Prepared, node: Route, timeout: float | None
    ) -> tuple[Any, int]:
        request = check.request("request", request)
        node = check.route("node", node)
        plan = cluster_plans.request(self.view, request, node, self._runner.clock)
        return await self._runner.run(method, plan, self._runner.timeout_ms(timeout))

    @property
    def view(self) -> ClusterView:
        """The cluster metadata that this client received last. No request is sent."""
        return self._runner.view

    def metrics(self) -> Metrics:
        """Return a snapshot of the metrics of this client's connections.

        Names, groups and tags follow Java's `Admin.metrics`, in the groups "admin-client-metrics" and
        "admin-client-node-metrics". Rates, averages, maxima and minima cover the last 30 to 60 s. The
        method sends no request.
        """
        return self._runner.metrics()

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Register a metric of the application, to be pushed with this client's metrics (KIP-1076).

        The metric replaces a registered one with the same name, group and tags. It is pushed if a broker's
        subscription selects it; with enable_metrics_push=False nothing is pushed. Any thread may call the
        method. Java: registerMetricForSubscription.
        """
        self._runner.register_metric_for_subscription(metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        """Stop pushing a metric of the application. A metric that is not registered is ignored (KIP-1076).

        The method may be called from any thread. Java: unregisterMetricFromSubscription.
        """
        self._runner.unregister_metric_from_subscription(metric)

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that a broker has assigned to this client for its telemetry (KIP-714).

        The id identifies this client in the metrics that it pushes (see the option `enable_metrics_push`).
        The client connects to a broker if necessary. Raises RequestTimedOut after `timeout` seconds (by
        default the client's `timeout`), IllegalState if the client pushes no metrics, and UnsupportedVersion
        if the broker does not support client telemetry.
        """
        runner = self._runner
        plan = read_client_instance_id(runner.engine.telemetry, runner.view, runner.clock)
        return await runner.run("client_instance_id", plan, runner.timeout_ms(timeout))

    # ---- metadata

    async def metadata(
        self, topics: Iterable[str] | None = None, timeout: float | None = None
    ) -> ClusterView:
        """Request the metadata of `topics` (None: all topics), and return the updated view."""
        names = check.optional(check.topics, "topics", topics)
        plan = cluster_plans.read_metadata(self.view, names, self._runner.clock)
        return await self._runner.run("metadata", plan, self._runner.timeout_ms(timeout))

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Return the number of partitions of each topic that is not internal."""
        plan = cluster_plans.read_metadata(self.view, None, self._runner.clock)
        view = await self._runner.run("topics", plan, self._runner.timeout_ms(timeout))
        return {name: len(topic.partitions) for name, topic in view.topics.items() if not topic.internal}

    async def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return a topic's partitions, from fresh metadata. Raises UnknownTopic if the topic is missing."""
        topic = check.topic("topic", topic)
        plan = cluster_plans.partitions_of(self.view, topic, self._runner.clock)
        return await self._runner.run("partitions", plan, self._runner.timeout_ms(timeout))

    async def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the node id of a partition's leader. Raises UnknownTopic if the partition does not exist."""
        partition = check.partition("partition", partition)
        plan = cluster_plans.leader_of(self.view, partition, self._runner.clock)
        return await self._runner.run("leader", plan, self._runner.timeout_ms(timeout))

    async def coordinator(self, group: str, timeout: float | None = None) -> int:
        """Return the node id of the group's coordinator."""
        group = check.group("group", group)
        plan = cluster_plans.find_coordinator(self.view, group, self._runner.clock)
        return await self._runner.run("coordinator", plan, self._runner.timeout_ms(timeout))

    # ---- topics

    async def create_topics(
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
        counts = check.partition_counts("topics", topics)
        limit = self._runner.timeout_ms(timeout)
        plan = topic_plans.create_topics(
            self.view,
            counts,
            self._runner.clock,
            replication_factor=check.replication_factor("replication_factor", replication_factor),
            configs=check.optional(check.topic_configs, "configs", configs) or {},
            timeout_ms=limit,
            exist_ok=check.flag("exist_ok", exist_ok),
        )
        await self._runner.run("create_topics", plan, limit)

    async def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Add partitions to topics. `totals` maps a topic to its new total number of partitions.

        The method waits until every partition of these topics has a leader.
        """
        counts = check.partition_counts("totals", totals)
        limit = self._runner.timeout_ms(timeout)
        plan = topic_plans.create_partitions(self.view, counts, self._runner.clock, timeout_ms=limit)
        await self._runner.run("create_partitions", plan, limit)

    async def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete topics and all of their records. Raises UnknownTopic if a topic is missing."""
        names = check.topics("topics", topics)
        limit = self._runner.timeout_ms(timeout)
        plan = topic_plans.delete_topics(self.view, names, self._runner.clock, timeout_ms=limit)
        await self._runner.run("delete_topics", plan, limit)

    # ---- offsets and records

    async def list_offsets(
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
        offset_specs = check.places("wants", wants)
        isolation = check.isolation("isolation", isolation)
        limit = self._runner.timeout_ms(timeout)
        plan = record_plans.list_offsets(
            self.view, offset_specs, self._runner.clock, isolation=isolation, timeout_ms=limit
        )
        return await self._runner.run("list_offsets", plan, limit)

    async def fetch(
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
        offsets = check.fetch_offsets("wants", wants)
        plan = record_plans.fetch(
            self.view,
            offsets,
            self._runner.clock,
            isolation=check.isolation("isolation", isolation),
            max_wait_ms=check.whole_number("max_wait_ms", max_wait_ms, 0),
            min_bytes=check.whole_number("min_bytes", min_bytes, 0),
            max_bytes=check.whole_number("max_bytes", max_bytes, 0),
            partition_max_bytes=check.whole_number("partition_max_bytes", partition_max_bytes, 0),
            lent=check.flag("lent", lent),
        )
        return await self._runner.run("fetch", plan, self._runner.timeout_ms(timeout))

    async def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Append one encoded record batch to a partition, and return the offset of its first record.

        The request is not retried if the connection breaks. `records` must be a single batch, since a broker
        accepts only one for each partition in a request.
        """
        partition = check.partition("partition", partition)
        batch = check.record_batch("records", records)
        acks = check.acks("acks", acks)
        limit = self._runner.timeout_ms(timeout)
        plan = record_plans.produce(
            self.view, partition, batch, self._runner.clock, acks=acks, timeout_ms=limit
        )
        return await self._runner.run("produce", plan, limit)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group of which this client is not a member.

        Each offset is the *next* offset to read. A value of `offsets` is an offset, a tuple (offset,
        metadata), or a `CommittedOffset`. Raises CommitFailed while the group has members.
        """
        group = check.group("group", group)
        chosen = offset_triples(check.offsets("offsets", offsets))
        plan = offset_plans.commit_offsets(self.view, group, chosen, self._runner.clock)
        await self._runner.run("commit_offsets", plan, self._runner.timeout_ms(timeout))

    async def committed_offsets(
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
        group = check.group("group", group)
        chosen = check.optional(check.partitions, "partitions", partitions)
        plan = offset_plans.committed_offsets(
            self.view,
            group,
            chosen,
            self._runner.clock,
            require_stable=check.flag("require_stable", require_stable),
        )
        return await self._runner.run("committed_offsets", plan, self._runner.timeout_ms(timeout))

    # ---- groups

    async def list_groups(
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
        plan = group_plans.list_groups(
            self.view,
            self._runner.clock,
            states=admin_check.names("states", states),
            types=admin_check.group_types("types", types),
            protocol_types=admin_check.names("protocol_types", protocol_types),
        )
        return await self._runner.run("list_groups", plan, self._runner.timeout_ms(timeout))

    async def group(self, group: str, timeout: float | None = None, *, require_stable: bool = False) -> Group:
        """Return the group's state, committed offsets and lag, and its members with their partitions.

        If the group does not exist, its state is "Dead". With `require_stable` the call waits for open
        transactions that commit offsets of the group (KIP-447).
        """
        group = check.group("group", group)
        plan = group_plans.group(
            self.view,
            group,
            self._runner.clock,
            require_stable=check.flag("require_stable", require_stable),
        )
        return await self._runner.run("group", plan, self._runner.timeout_ms(timeout))

    async def delete_groups(self, names: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete groups of any type, with their committed offsets.

        Raises PartialFailure, for example for a group that has members or does not exist. Java:
        Admin.deleteConsumerGroups, deleteShareGroups and deleteStreamsGroups.
        """
        groups = check.groups("names", names)
        plan = group_change_plans.delete_groups(self.view, groups, self._runner.clock)
        await self._runner.run("delete_groups", plan, self._runner.timeout_ms(timeout))

    # ---- configs

    async def describe_configs(
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
        plan = config_plans.describe_configs(
            self.view,
            admin_check.config_resources("resources", resources),
            self._runner.clock,
            names=check.optional(admin_check.names, "names", names),
            include_synonyms=check.flag("include_synonyms", include_synonyms),
            include_documentation=check.flag("include_documentation", include_documentation),
        )
        return await self._runner.run("describe_configs", plan, self._runner.timeout_ms(timeout))

    async def incremental_alter_configs(
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
        plan = config_plans.incremental_alter_configs(
            self.view,
            admin_check.config_changes("changes", changes),
            self._runner.clock,
            validate_only=check.flag("validate_only", validate_only),
        )
        await self._runner.run("incremental_alter_configs", plan, self._runner.timeout_ms(timeout))

    async def list_config_resources(
        self, types: Iterable[str] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Return the config resources of these types, sorted (KIP-1142).

        By default, resources of all types are returned. Brokers before Kafka 4.1 can list only
        "client_metrics": all other values of `types`, including the default, raise UnsupportedVersion. Java:
        Admin.listConfigResources.
        """
        resource_types = admin_check.config_types("types", types)
        plan = config_plans.list_config_resources(self.view, resource_types, self._runner.clock)
        return await self._runner.run("list_config_resources", plan, self._runner.timeout_ms(timeout))

    # ---- more about topics and records

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below these offsets, and return the new start offset of each log.

        "latest" deletes all records below the high watermark. Raises PartialFailure, for example with
        OffsetOutOfRange for an offset above the high watermark. Java: Admin.deleteRecords.
        """
        before_offsets = admin_check.deletion_offsets("offsets", offsets)
        limit = self._runner.timeout_ms(timeout)
        plan = record_plans.delete_records(self.view, before_offsets, self._runner.clock, timeout_ms=limit)
        return await self._runner.run("delete_records", plan, limit)

    async def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics of the cluster with their ids, sorted by name.

        Topics that the client is not authorized to describe are omitted. Java: Admin.listTopics.
        """
        include_internal = check.flag("include_internal", include_internal)
        plan = topic_description_plans.list_topics(
            self.view, self._runner.clock, include_internal=include_internal
        )
        return await self._runner.run("list_topics", plan, self._runner.timeout_ms(timeout))

    async def describe_topics(
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
        plan = topic_description_plans.describe_topics(
            self.view,
            check.topics("topics", topics),
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
        )
        return await self._runner.run("describe_topics", plan, self._runner.timeout_ms(timeout))

    # ---- ACLs and credentials

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout: float | None = None) -> None:
        """Create these ACLs. An existing ACL counts as created, as in Kafka.

        Raises PartialFailure if an ACL cannot be created. Java: Admin.createAcls.
        """
        plan = acl_plans.create_acls(self.view, admin_check.acls("acls", acls), self._runner.clock)
        await self._runner.run("create_acls", plan, self._runner.timeout_ms(timeout))

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match the filter (by default all ACLs), sorted. Java: Admin.describeAcls."""
        acl_filter = check.optional(admin_check.acl_filter, "acl_filter", acl_filter) or AclBindingFilter()
        plan = acl_plans.describe_acls(self.view, acl_filter, self._runner.clock)
        return await self._runner.run("describe_acls", plan, self._runner.timeout_ms(timeout))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match any of the filters, and return the matching ACLs of each filter, sorted.

        Raises PartialFailure if an ACL that matches a filter cannot be deleted. Java: Admin.deleteAcls.
        """
        plan = acl_plans.delete_acls(
            self.view, admin_check.acl_filters("filters", filters), self._runner.clock
        )
        return await self._runner.run("delete_acls", plan, self._runner.timeout_ms(timeout))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return the SCRAM credentials of `users`; None means all users with credentials (KIP-554).

        Raises PartialFailure if one of `users` has no credentials. Java: Admin.describeUserScramCredentials.
        """
        names = check.optional(admin_check.names, "users", users)
        plan = credential_plans.describe_user_scram_credentials(self.view, names, self._runner.clock)
        return await self._runner.run(
            "describe_user_scram_credentials", plan, self._runner.timeout_ms(timeout)
        )

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set and delete SCRAM credentials (KIP-554). The client sends only salted passwords.

        Kafka accepts only one change per user in a call. Raises PartialFailure, keyed by user, if a change is
        rejected. Java: Admin.alterUserScramCredentials.
        """
        changes = admin_check.scram_alterations("alterations", alterations)
        plan = credential_plans.alter_user_scram_credentials(
            self.view, changes, self._runner.clock, new_salt=partial(token_bytes, 32)
        )
        await self._runner.run("alter_user_scram_credentials", plan, self._runner.timeout_ms(timeout))

    # ---- quotas and delegation tokens

    async def describe_client_quotas(
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
        plan = quota_plans.describe_client_quotas(
            self.view,
            check.optional(admin_check.quota_match, "match", match) or {},
            self._runner.clock,
            strict=check.flag("strict", strict),
        )
        return await self._runner.run("describe_client_quotas", plan, self._runner.timeout_ms(timeout))

    async def alter_client_quotas(
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
        plan = quota_plans.alter_client_quotas(
            self.view,
            admin_check.quota_changes("changes", changes),
            self._runner.clock,
            validate_only=check.flag("validate_only", validate_only),
        )
        await self._runner.run("alter_client_quotas", plan, self._runner.timeout_ms(timeout))

    async def create_delegation_token(
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
        plan = token_plans.create_delegation_token(
            self.view,
            self._runner.clock,
            renewers=admin_check.principals("renewers", renewers),
            owner=check.optional(admin_check.principal, "owner", owner),
            max_lifetime_ms=check.optional(admin_check.number, "max_lifetime_ms", max_lifetime_ms),
        )
        return await self._runner.run("create_delegation_token", plan, self._runner.timeout_ms(timeout))

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Extend the lifetime of the delegation token with this `hmac` (KIP-48).

        Returns the time in ms since 1970 at which the token expires. Without `renew_period_ms` the broker's
        `delegation.token.expiry.time.ms` applies. Java: Admin.renewDelegationToken.
        """
        plan = token_plans.renew_delegation_token(
            self.view,
            admin_check.hmac("hmac", hmac),
            self._runner.clock,
            renew_period_ms=check.optional(admin_check.number, "renew_period_ms", renew_period_ms),
        )
        return await self._runner.run("renew_delegation_token", plan, self._runner.timeout_ms(timeout))

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Make the delegation token with this `hmac` expire immediately, or after a period (KIP-48).

        Returns the time in ms since 1970 at which the token expires. Java: Admin.expireDelegationToken.
        """
        plan = token_plans.expire_delegation_token(
            self.view,
            admin_check.hmac("hmac", hmac),
            self._runner.clock,
            expiry_period_ms=check.optional(admin_check.number, "expiry_period_ms", expiry_period_ms),
        )
        return await self._runner.run("expire_delegation_token", plan, self._runner.timeout_ms(timeout))

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return those tokens of `owners` that the client may describe (KIP-48).

        If `owners` is None, the tokens of all owners are returned. Java: Admin.describeDelegationToken.
        """
        plan = token_plans.describe_delegation_token(
            self.view, check.optional(admin_check.principals, "owners", owners), self._runner.clock
        )
        return await self._runner.run("describe_delegation_token", plan, self._runner.timeout_ms(timeout))

    # ---- transactions

    async def list_transactions(
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
        plan = transaction_plans.list_transactions(
            self.view,
            self._runner.clock,
            states=admin_check.names("states", states),
            producer_ids=admin_check.numbers("producer_ids", producer_ids),
            min_duration_ms=check.optional(admin_check.number, "min_duration_ms", min_duration_ms),
        )
        return await self._runner.run("list_transactions", plan, self._runner.timeout_ms(timeout))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the state, the producer and the partitions of each transactional id (KIP-664).

        Raises PartialFailure, for example for an unknown transactional id. Java: Admin.describeTransactions.
        """
        ids = admin_check.names("transactional_ids", transactional_ids)
        plan = transaction_plans.describe_transactions(self.view, ids, self._runner.clock)
        return await self._runner.run("describe_transactions", plan, self._runner.timeout_ms(timeout))

    async def describe_producers(
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
        plan = transaction_plans.describe_producers(
            self.view,
            check.partitions("partitions", partitions),
            self._runner.clock,
            broker=check.optional(admin_check.number, "broker", broker),
        )
        return await self._runner.run("describe_producers", plan, self._runner.timeout_ms(timeout))

    async def abort_transaction(
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
        plan = transaction_plans.abort_transaction(
            self.view,
            check.partition("partition", partition),
            self._runner.clock,
            producer_id=admin_check.number("producer_id", producer_id),
            producer_epoch=admin_check.number("producer_epoch", producer_epoch),
            coordinator_epoch=admin_check.number("coordinator_epoch", coordinator_epoch),
        )
        await self._runner.run("abort_transaction", plan, self._runner.timeout_ms(timeout))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fence the producers of these transactional ids, and abort their open transactions (KIP-618).

        Returns the new (producer id, epoch) of each transactional id. Raises PartialFailure if the producer
        of an id cannot be fenced. Java: Admin.fenceProducers.
        """
        ids = admin_check.names("transactional_ids", transactional_ids)
        limit = self._runner.timeout_ms(timeout)
        plan = transaction_plans.fence_producers(self.view, ids, self._runner.clock, timeout_ms=limit)
        return await self._runner.run("fence_producers", plan, limit)

    # ---- cluster, features and quorum

    async def describe_cluster(
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
        plan = cluster_description_plans.describe_cluster(
            self.view,
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
            include_fenced_brokers=check.flag("include_fenced_brokers", include_fenced_brokers),
        )
        return await self._runner.run("describe_cluster", plan, self._runner.timeout_ms(timeout))

    async def describe_features(
        self, node: int | None = None, *, timeout: float | None = None
    ) -> FeatureMetadata:
        """Return the finalized features of the cluster, and those that the broker `node` supports (KIP-584).

        Without `node` the request goes to any broker. Java: Admin.describeFeatures.
        """
        plan = feature_plans.describe_features(
            self.view, self._runner.clock, node=check.optional(admin_check.number, "node", node)
        )
        return await self._runner.run("describe_features", plan, self._runner.timeout_ms(timeout))

    async def update_features(
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
        limit = self._runner.timeout_ms(timeout)
        plan = feature_plans.update_features(
            self.view,
            admin_check.feature_updates("updates", updates),
            self._runner.clock,
            validate_only=check.flag("validate_only", validate_only),
            timeout_ms=limit,
        )
        await self._runner.run("update_features", plan, limit)

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Return the leader, the voters and the observers of the metadata quorum (KIP-595).

        Java: Admin.describeMetadataQuorum.
        """
        plan = quorum_plans.describe_metadata_quorum(self.view, self._runner.clock)
        return await self._runner.run("describe_metadata_quorum", plan, self._runner.timeout_ms(timeout))

    async def add_raft_voter(
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
        limit = self._runner.timeout_ms(timeout)
        plan = quorum_plans.add_raft_voter(
            self.view,
            admin_check.number("voter_id", voter_id),
            admin_check.directory_id("directory_id", directory_id),
            admin_check.endpoints("endpoints", endpoints),
            self._runner.clock,
            cluster_id=check.optional(check.any_text, "cluster_id", cluster_id),
            timeout_ms=limit,
        )
        await self._runner.run("add_raft_voter", plan, limit)

    async def remove_raft_voter(
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
        plan = quorum_plans.remove_raft_voter(
            self.view,
            admin_check.number("voter_id", voter_id),
            admin_check.directory_id("directory_id", directory_id),
            self._runner.clock,
            cluster_id=check.optional(check.any_text, "cluster_id", cluster_id),
        )
        await self._runner.run("remove_raft_voter", plan, self._runner.timeout_ms(timeout))

    async def unregister_broker(self, broker: int, *, timeout: float | None = None) -> None:
        """Unregister a broker that no longer exists. `broker` is its node id (KIP-631).

        Java: Admin.unregisterBroker.
        """
        plan = quorum_plans.unregister_broker(
            self.view, admin_check.number("broker", broker), self._runner.clock
        )
        await self._runner.run("unregister_broker", plan, self._runner.timeout_ms(timeout))

    async def unregister_controller(self, controller: int, *, timeout: float | None = None) -> None:
        """Unregister a controller that no longer exists. `controller` is its node id.

        The broker must forward the request to the active controller. Brokers of Kafka 4.4 do not forward it,
        so the method then raises UnsupportedVersion. Java: Admin.unregisterController.
        """
        plan = quorum_plans.unregister_controller(
            self.view, admin_check.number("controller", controller), self._runner.clock
        )
        await self._runner.run("unregister_controller", plan, self._runner.timeout_ms(timeout))

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout: float | None = None
    ) -> None:
        """Abort the open or prepared transaction of this transactional id, and fence its producer (KIP-939).

        Java: Admin.forceTerminateTransaction.
        """
        limit = self._runner.timeout_ms(timeout)
        plan = transaction_plans.force_terminate_transaction(
            self.view,
            check.any_text("transactional_id", transactional_id),
            self._runner.clock,
            timeout_ms=limit,
        )
        await self._runner.run("force_terminate_transaction", plan, limit)

    # ---- replicas

    async def elect_leaders(
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
        election_type = admin_check.election_type("election_type", election_type)
        chosen = check.partitions("partitions", partitions)
        limit = self._runner.timeout_ms(timeout)
        plan = replica_plans.elect_leaders(
            self.view, election_type, chosen, self._runner.clock, timeout_ms=limit
        )
        return await self._runner.run("elect_leaders", plan, limit)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Start moving each partition to the brokers that `replicas` lists for it, by node id (KIP-455).

        None cancels the reassignment of a partition. The call does not wait until the replicas are in sync:
        `list_partition_reassignments` shows the progress. Raises PartialFailure, for example for an unknown
        broker. Java: Admin.alterPartitionReassignments.
        """
        nodes = admin_check.replicas("replicas", replicas)
        limit = self._runner.timeout_ms(timeout)
        plan = replica_plans.alter_partition_reassignments(
            self.view, nodes, self._runner.clock, timeout_ms=limit
        )
        await self._runner.run("alter_partition_reassignments", plan, limit)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the ongoing reassignments of these partitions, by default of all partitions (KIP-455).

        Java: Admin.listPartitionReassignments.
        """
        chosen = check.optional(check.partitions, "partitions", partitions)
        limit = self._runner.timeout_ms(timeout)
        plan = replica_plans.list_partition_reassignments(
            self.view, chosen, self._runner.clock, timeout_ms=limit
        )
        return await self._runner.run("list_partition_reassignments", plan, limit)

    async def describe_log_dirs(
        self, brokers: Iterable[int], *, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Return the log directories of each broker by path, with the sizes of their replicas (KIP-113).

        `brokers` are node ids. Raises PartialFailure, keyed by node id, if the request to a broker fails.
        Java: Admin.describeLogDirs.
        """
        nodes = admin_check.numbers("brokers", brokers)
        plan = replica_plans.describe_log_dirs(self.view, nodes, self._runner.clock)
        return await self._runner.run("describe_log_dirs", plan, self._runner.timeout_ms(timeout))

    async def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str], *, timeout: float | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers (KIP-113).

        `paths` maps each replica to the path of a log directory of its broker. The call does not wait until
        the replica is copied. Until then, `describe_log_dirs` shows the copy as a future replica. Raises
        PartialFailure, for example for an unknown directory. Java: Admin.alterReplicaLogDirs.
        """
        replica_paths = admin_check.replica_paths("paths", paths)
        plan = replica_plans.alter_replica_log_dirs(self.view, replica_paths, self._runner.clock)
        await self._runner.run("alter_replica_log_dirs", plan, self._runner.timeout_ms(timeout))

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Return the log directory of each of these replicas (KIP-113).

        If a replica is being moved, the result also has the directory to which it is being moved. Raises
        PartialFailure if the request to a broker fails. Java: Admin.describeReplicaLogDirs.
        """
        plan = replica_plans.describe_replica_log_dirs(
            self.view, admin_check.replica_list("replicas", replicas), self._runner.clock
        )
        return await self._runner.run("describe_replica_log_dirs", plan, self._runner.timeout_ms(timeout))

    # ---- descriptions of groups

    async def describe_consumer_groups(
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
        plan = group_description_plans.describe_consumer_groups(
            self.view,
            check.groups("groups", groups),
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
        )
        return await self._runner.run("describe_consumer_groups", plan, self._runner.timeout_ms(timeout))

    async def describe_classic_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of each classic group, of any protocol type (KIP-1043).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeClassicGroups.
        """
        plan = group_description_plans.describe_groups(
            self.view,
            "classic",
            check.groups("groups", groups),
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
        )
        return await self._runner.run("describe_classic_groups", plan, self._runner.timeout_ms(timeout))

    async def describe_share_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of each share group (KIP-932).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeShareGroups.
        """
        plan = group_description_plans.describe_groups(
            self.view,
            "share",
            check.groups("groups", groups),
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
        )
        return await self._runner.run("describe_share_groups", plan, self._runner.timeout_ms(timeout))

    async def describe_streams_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state, the members and the topology of each Streams group (KIP-1071).

        Raises PartialFailure, for example for a group of another type. Java: Admin.describeStreamsGroups.
        """
        plan = group_description_plans.describe_groups(
            self.view,
            "streams",
            check.groups("groups", groups),
            self._runner.clock,
            include_authorized_operations=check.flag(
                "include_authorized_operations", include_authorized_operations
            ),
        )
        return await self._runner.run("describe_streams_groups", plan, self._runner.timeout_ms(timeout))

    # ---- members and offsets of groups

    async def remove_members_from_consumer_group(
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
        plan = group_change_plans.remove_members(
            self.view,
            check.group("group", group),
            check.optional(admin_check.names, "group_instance_ids", group_instance_ids),
            check.optional(check.any_text, "reason", reason),
            self._runner.clock,
        )
        await self._runner.run("remove_members_from_consumer_group", plan, self._runner.timeout_ms(timeout))

    async def delete_consumer_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Delete the committed offsets of these partitions in a group (KIP-496).

        Raises PartialFailure, for example while a member of the group is subscribed to the topic. Java:
        Admin.deleteConsumerGroupOffsets.
        """
        plan = group_change_plans.delete_offsets(
            self.view,
            check.group("group", group),
            check.partitions("partitions", partitions),
            self._runner.clock,
        )
        await self._runner.run("delete_consumer_group_offsets", plan, self._runner.timeout_ms(timeout))

    async def list_consumer_group_offsets(
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
        plan = group_offset_plans.list_consumer_group_offsets(
            self.view,
            admin_check.group_partitions("groups", groups),
            self._runner.clock,
            require_stable=check.flag("require_stable", require_stable),
        )
        return await self._runner.run("list_consumer_group_offsets", plan, self._runner.timeout_ms(timeout))

    async def alter_consumer_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group without members. Each partition succeeds or fails independently.

        Takes the arguments of `commit_offsets`. Raises PartialFailure, for example if the group has
        members. Java: Admin.alterConsumerGroupOffsets and alterStreamsGroupOffsets.
        """
        plan = group_offset_plans.alter_consumer_group_offsets(
            self.view,
            check.group("group", group),
            offset_triples(check.offsets("offsets", offsets)),
            self._runner.clock,
        )
        await self._runner.run("alter_consumer_group_offsets", plan, self._runner.timeout_ms(timeout))

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset | None]]:
        """Return the start offset and the lag of each partition, for each share group in `groups` (KIP-932).

        `groups` maps each group to a list of partitions, or to None for all its partitions. Raises
        PartialFailure, keyed by group, if a group's offsets cannot be read. Java:
        Admin.listShareGroupOffsets.
        """
        plan = group_offset_plans.list_share_group_offsets(
            self.view, admin_check.group_partitions("groups", groups), self._runner.clock
        )
        return await self._runner.run("list_share_group_offsets", plan, self._runner.timeout_ms(timeout))

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Set the start offsets of a share group without members (KIP-932).

        Raises PartialFailure, for example if the group has members. Java: Admin.alterShareGroupOffsets.
        """
        plan = group_offset_plans.alter_share_group_offsets(
            self.view,
            check.group("group", group),
            check.fetch_offsets("offsets", offsets),
            self._runner.clock,
        )
        await self._runner.run("alter_share_group_offsets", plan, self._runner.timeout_ms(timeout))

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Delete the offsets of these topics in a share group without members (KIP-932).

        Raises PartialFailure, keyed by topic, if the offsets of a topic cannot be deleted. Java:
        Admin.deleteShareGroupOffsets.
        """
        plan = group_offset_plans.delete_share_group_offsets(
            self.view, check.group("group", group), check.topics("topics", topics), self._runner.clock
        )
        await self._runner.run("delete_share_group_offsets", plan, self._runner.timeout_ms(timeout))

    # ---- plans

    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Run a plan of requests to completion, and return its result.

        After `timeout` seconds, raise RequestTimedOut, which names the request that has no response yet.
        """
        plan = check.plan("plan", plan)
        return await self._runner.run("run", plan, self._runner.timeout_ms(timeout))

    # ---- the end

    async def close(self) -> None:
        """Close all connections. Calls that are waiting raise IllegalState. A second `close` does nothing."""
        await self._runner.close()

    def kill(self) -> None:
        """Close all connections as if the process had died, for tests and demos."""
        self._runtime.kill()

    # ---- inside

    def __str__(self) -> str:
        return str(self._runtime)

    def __repr__(self) -> str:
        return self._runner.describe(type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a method of another library, the error names kproto's equivalent."""
            raise unknown_method(self, "admin client", name)
