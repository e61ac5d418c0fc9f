"""A Kafka client in pure Python: consumers, producers, and an admin client (Admin).

    Consumer, Producer, Admin                      for threads: their methods block
    AsyncConsumer, AsyncProducer, AsyncAdmin       for asyncio: the same methods, awaited
    ConsumerGroup, AsyncConsumerGroup              a handler for each partition, as in sarama
    PartitionConsumers, SyncProducer, QueueProducer    sarama's other clients
    AsyncPartitionConsumers, ...                   the same for asyncio
    consumer.spark                                 the Spark source and sink

Importing `consumer` imports none of these clients: each is imported when its name is first used. The packages
and modules:

    blocking/, aio/      the public classes, their waiting and their network I/O
    operations/          the methods of the clients, written once for threads and asyncio
    runtime              applies events to an engine: the part that threads and asyncio share
    engine/              the clients without I/O
    options, validation  the options, and the argument checks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kproto.group.subscription import TopicPartition as TopicPartition

    from .aio.admin import AsyncAdmin as AsyncAdmin
    from .aio.consumer import AsyncConsumer as AsyncConsumer
    from .aio.producer import AsyncProducer as AsyncProducer
    from .blocking.admin import Admin as Admin
    from .blocking.consumer import Consumer as Consumer
    from .blocking.producer import Producer as Producer
    from .delivery import Delivery as Delivery
    from .delivery import RecordMetadata as RecordMetadata
    from .engine.admin.acls import AclBinding as AclBinding
    from .engine.admin.acls import AclBindingFilter as AclBindingFilter
    from .engine.admin.cluster_descriptions import ClusterDescription as ClusterDescription
    from .engine.admin.cluster_descriptions import ClusterNode as ClusterNode
    from .engine.admin.configs import AlterConfigOp as AlterConfigOp
    from .engine.admin.configs import ConfigEntry as ConfigEntry
    from .engine.admin.configs import ConfigResource as ConfigResource
    from .engine.admin.configs import ConfigSynonym as ConfigSynonym
    from .engine.admin.credentials import ScramCredentialInfo as ScramCredentialInfo
    from .engine.admin.credentials import UserScramCredentialDeletion as UserScramCredentialDeletion
    from .engine.admin.credentials import UserScramCredentialUpsertion as UserScramCredentialUpsertion
    from .engine.admin.delegation_tokens import DelegationToken as DelegationToken
    from .engine.admin.features import FeatureMetadata as FeatureMetadata
    from .engine.admin.features import FeatureUpdate as FeatureUpdate
    from .engine.admin.features import FeatureVersionRange as FeatureVersionRange
    from .engine.admin.group_descriptions import GroupDescription as GroupDescription
    from .engine.admin.group_descriptions import GroupMember as GroupMember
    from .engine.admin.group_descriptions import StreamsSubtopology as StreamsSubtopology
    from .engine.admin.group_descriptions import StreamsTasks as StreamsTasks
    from .engine.admin.group_offsets import SharePartitionOffset as SharePartitionOffset
    from .engine.admin.groups import Group as Group
    from .engine.admin.groups import ListedGroup as ListedGroup
    from .engine.admin.quorum import QuorumInfo as QuorumInfo
    from .engine.admin.quorum import QuorumReplicaState as QuorumReplicaState
    from .engine.admin.quorum import RaftVoterEndpoint as RaftVoterEndpoint
    from .engine.admin.quotas import ClientQuotaEntity as ClientQuotaEntity
    from .engine.admin.records import FetchedBytes as FetchedBytes
    from .engine.admin.records import OffsetAt as OffsetAt
    from .engine.admin.replicas import LogDirDescription as LogDirDescription
    from .engine.admin.replicas import PartitionReassignment as PartitionReassignment
    from .engine.admin.replicas import ReplicaInfo as ReplicaInfo
    from .engine.admin.replicas import ReplicaLogDirInfo as ReplicaLogDirInfo
    from .engine.admin.replicas import TopicPartitionReplica as TopicPartitionReplica
    from .engine.admin.topic_descriptions import TopicDescription as TopicDescription
    from .engine.admin.topic_descriptions import TopicListing as TopicListing
    from .engine.admin.topic_descriptions import TopicPartitionInfo as TopicPartitionInfo
    from .engine.admin.transactions import ProducerState as ProducerState
    from .engine.admin.transactions import TransactionDescription as TransactionDescription
    from .engine.admin.transactions import TransactionListing as TransactionListing
    from .engine.metrics import Metric as Metric
    from .engine.metrics import Metrics as Metrics
    from .engine.requests import CommittedOffset as CommittedOffset
    from .engine.telemetry.application import ApplicationMetric as ApplicationMetric
    from .listener import RebalanceListener as RebalanceListener
    from .records import ColumnBatch as ColumnBatch
    from .records import ConsumerRecord as ConsumerRecord
    from .records import DeliveryStatus as DeliveryStatus
    from .records import GroupChange as GroupChange
    from .records import GroupMetadata as GroupMetadata
    from .sarama.group import AsyncConsumerGroup as AsyncConsumerGroup
    from .sarama.group_threads import ConsumerGroup as ConsumerGroup
    from .sarama.messages import ProducerError as ProducerError
    from .sarama.messages import ProducerErrors as ProducerErrors
    from .sarama.messages import ProducerMessage as ProducerMessage
    from .sarama.partitions import NEWEST as NEWEST
    from .sarama.partitions import OLDEST as OLDEST
    from .sarama.partitions import AsyncPartitionConsumers as AsyncPartitionConsumers
    from .sarama.partitions_threads import PartitionConsumers as PartitionConsumers
    from .sarama.producers import AsyncQueueProducer as AsyncQueueProducer
    from .sarama.producers import AsyncSyncProducer as AsyncSyncProducer
    from .sarama.producers_threads import QueueProducer as QueueProducer
    from .sarama.producers_threads import SyncProducer as SyncProducer

_SOURCES = {
    "AclBinding": ".engine.admin.acls",
    "AclBindingFilter": ".engine.admin.acls",
    "Admin": ".blocking.admin",
    "AlterConfigOp": ".engine.admin.configs",
    "AsyncAdmin": ".aio.admin",
    "AsyncConsumer": ".aio.consumer",
    "AsyncConsumerGroup": ".sarama.group",
    "AsyncPartitionConsumers": ".sarama.partitions",
    "AsyncProducer": ".aio.producer",
    "AsyncQueueProducer": ".sarama.producers",
    "AsyncSyncProducer": ".sarama.producers",
    "ClientQuotaEntity": ".engine.admin.quotas",
    "ClusterDescription": ".engine.admin.cluster_descriptions",
    "ClusterNode": ".engine.admin.cluster_descriptions",
    "ColumnBatch": ".records",
    "CommittedOffset": ".engine.requests",
    "ConfigEntry": ".engine.admin.configs",
    "ConfigResource": ".engine.admin.configs",
    "ConfigSynonym": ".engine.admin.configs",
    "Consumer": ".blocking.consumer",
    "ConsumerGroup": ".sarama.group_threads",
    "ConsumerRecord": ".records",
    "DelegationToken": ".engine.admin.delegation_tokens",
    "Delivery": ".delivery",
    "DeliveryStatus": ".records",
    "FeatureMetadata": ".engine.admin.features",
    "FeatureUpdate": ".engine.admin.features",
    "FeatureVersionRange": ".engine.admin.features",
    "FetchedBytes": ".engine.admin.records",
    "Group": ".engine.admin.groups",
    "GroupChange": ".records",
    "GroupDescription": ".engine.admin.group_descriptions",
    "GroupMember": ".engine.admin.group_descriptions",
    "GroupMetadata": ".records",
    "ListedGroup": ".engine.admin.groups",
    "LogDirDescription": ".engine.admin.replicas",
    "Metric": ".engine.metrics",
    "Metrics": ".engine.metrics",
    "ApplicationMetric": ".engine.telemetry.application",
    "NEWEST": ".sarama.partitions",
    "OLDEST": ".sarama.partitions",
    "OffsetAt": ".engine.admin.records",
    "PartitionConsumers": ".sarama.partitions_threads",
    "PartitionReassignment": ".engine.admin.replicas",
    "Producer": ".blocking.producer",
    "ProducerError": ".sarama.messages",
    "ProducerErrors": ".sarama.messages",
    "ProducerMessage": ".sarama.messages",
    "ProducerState": ".engine.admin.transactions",
    "QueueProducer": ".sarama.producers_threads",
    "QuorumInfo": ".engine.admin.quorum",
    "QuorumReplicaState": ".engine.admin.quorum",
    "RaftVoterEndpoint": ".engine.admin.quorum",
    "RebalanceListener": ".listener",
    "RecordMetadata": ".delivery",
    "ReplicaInfo": ".engine.admin.replicas",
    "ReplicaLogDirInfo": ".engine.admin.replicas",
    "ScramCredentialInfo": ".engine.admin.credentials",
    "SharePartitionOffset": ".engine.admin.group_offsets",
    "StreamsSubtopology": ".engine.admin.group_descriptions",
    "StreamsTasks": ".engine.admin.group_descriptions",
    "SyncProducer": ".sarama.producers_threads",
    "TopicDescription": ".engine.admin.topic_descriptions",
    "TopicListing": ".engine.admin.topic_descriptions",
    "TopicPartition": "kproto.group.subscription",
    "TopicPartitionInfo": ".engine.admin.topic_descriptions",
    "TopicPartitionReplica": ".engine.admin.replicas",
    "TransactionDescription": ".engine.admin.transactions",
    "TransactionListing": ".engine.admin.transactions",
    "UserScramCredentialDeletion": ".engine.admin.credentials",
    "UserScramCredentialUpsertion": ".engine.admin.credentials",
}

__all__ = [
    "NEWEST",
    "OLDEST",
    "AclBinding",
    "AclBindingFilter",
    "Admin",
    "AlterConfigOp",
    "ApplicationMetric",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncPartitionConsumers",
    "AsyncProducer",
    "AsyncQueueProducer",
    "AsyncSyncProducer",
    "ClientQuotaEntity",
    "ClusterDescription",
    "ClusterNode",
    "ColumnBatch",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "Consumer",
    "ConsumerGroup",
    "ConsumerRecord",
    "DelegationToken",
    "Delivery",
    "DeliveryStatus",
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureVersionRange",
    "FetchedBytes",
    "Group",
    "GroupChange",
    "GroupDescription",
    "GroupMember",
    "GroupMetadata",
    "ListedGroup",
    "LogDirDescription",
    "Metric",
    "Metrics",
    "OffsetAt",
    "PartitionConsumers",
    "PartitionReassignment",
    "Producer",
    "ProducerError",
    "ProducerErrors",
    "ProducerMessage",
    "ProducerState",
    "QueueProducer",
    "QuorumInfo",
    "QuorumReplicaState",
    "RaftVoterEndpoint",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ScramCredentialInfo",
    "SharePartitionOffset",
    "StreamsSubtopology",
    "StreamsTasks",
    "SyncProducer",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]


if not TYPE_CHECKING:  # Hidden from type checkers, which would otherwise accept any attribute.
    from kproto.lazy_imports import lazy_attributes

    __getattr__ = lazy_attributes(__name__, _SOURCES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
