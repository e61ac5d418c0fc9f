"""A Kafka client in pure Python: consumers, producers, and the cluster below them."""

from kproto.group.subscription import TopicPartition as TopicPartition

from .aio import AsyncCluster as AsyncCluster
from .aio import AsyncConsumer as AsyncConsumer
from .aio_producer import AsyncProducer as AsyncProducer
from .blocking import Cluster as Cluster
from .blocking import Consumer as Consumer
from .delivery import Delivery as Delivery
from .delivery import RecordMetadata as RecordMetadata
from .engine.plans import FetchedBytes as FetchedBytes
from .engine.plans import OffsetAt as OffsetAt
from .engine.requests import CommittedOffset as CommittedOffset
from .listener import RebalanceListener as RebalanceListener
from .producer import Producer as Producer
from .records import ColumnBatch as ColumnBatch
from .records import ConsumerRecord as ConsumerRecord
from .records import GroupChange as GroupChange
from .records import GroupMetadata as GroupMetadata

__all__ = [
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncProducer",
    "Cluster",
    "ColumnBatch",
    "CommittedOffset",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "FetchedBytes",
    "GroupChange",
    "GroupMetadata",
    "OffsetAt",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
]
