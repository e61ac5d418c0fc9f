"""A Kafka client in pure Python: consumers, producers, and the cluster below them.

    Consumer, Producer, Cluster                    for threads: their methods block
    AsyncConsumer, AsyncProducer, AsyncCluster     for asyncio: the same methods, awaited
    ConsumerGroup, AsyncConsumerGroup              a handler for each partition, as in sarama
    consumer.spark                                 the Spark source and sink

Each comes with its first use: importing this package imports none of them. What stands where:

    engine/                                        the clients without I/O
    consuming, cluster, sending                    what one may call, written once
    blocking/, aio/                                for threads, for asyncio: clients, waiting, moving bytes
    calls, arguments, shell, lifetimes             how a call is made, checked, guarded; fork and exit
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kproto.group.subscription import TopicPartition as TopicPartition

    from .aio.consumer import AsyncCluster as AsyncCluster
    from .aio.consumer import AsyncConsumer as AsyncConsumer
    from .aio.producer import AsyncProducer as AsyncProducer
    from .blocking.consumer import Cluster as Cluster
    from .blocking.consumer import Consumer as Consumer
    from .blocking.producer import Producer as Producer
    from .delivery import Delivery as Delivery
    from .delivery import RecordMetadata as RecordMetadata
    from .engine.plans import FetchedBytes as FetchedBytes
    from .engine.plans import OffsetAt as OffsetAt
    from .engine.requests import CommittedOffset as CommittedOffset
    from .handler import AsyncConsumerGroup as AsyncConsumerGroup
    from .handler_threads import ConsumerGroup as ConsumerGroup
    from .listener import RebalanceListener as RebalanceListener
    from .records import ColumnBatch as ColumnBatch
    from .records import ConsumerRecord as ConsumerRecord
    from .records import GroupChange as GroupChange
    from .records import GroupMetadata as GroupMetadata

_HOMES = {
    "AsyncCluster": ".aio.consumer",
    "AsyncConsumer": ".aio.consumer",
    "AsyncConsumerGroup": ".handler",
    "AsyncProducer": ".aio.producer",
    "Cluster": ".blocking.consumer",
    "ColumnBatch": ".records",
    "CommittedOffset": ".engine.requests",
    "Consumer": ".blocking.consumer",
    "ConsumerGroup": ".handler_threads",
    "ConsumerRecord": ".records",
    "Delivery": ".delivery",
    "FetchedBytes": ".engine.plans",
    "GroupChange": ".records",
    "GroupMetadata": ".records",
    "OffsetAt": ".engine.plans",
    "Producer": ".blocking.producer",
    "RebalanceListener": ".listener",
    "RecordMetadata": ".delivery",
    "TopicPartition": "kproto.group.subscription",
}

__all__ = [
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncProducer",
    "Cluster",
    "ColumnBatch",
    "CommittedOffset",
    "Consumer",
    "ConsumerGroup",
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


def __getattr__(name: str) -> Any:
    """A name of `__all__` is imported when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; help({__name__}) lists what there is"
        )
    from importlib import import_module

    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
