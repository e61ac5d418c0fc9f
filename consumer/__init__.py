"""A Kafka client in pure Python: consumers, producers, and the cluster below them."""

from kproto.group.subscription import TopicPartition as TopicPartition

from .cluster import Cluster as Cluster
from .engine.plans import CommittedOffset as CommittedOffset
from .engine.plans import FetchedBytes as FetchedBytes
from .engine.plans import OffsetAt as OffsetAt

__all__ = ["Cluster", "CommittedOffset", "FetchedBytes", "OffsetAt", "TopicPartition"]
