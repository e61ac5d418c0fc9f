"""Clients with the interface and the names of sarama, for threads and for asyncio.

The clients run kproto's own engines (`consumer.engine`).

group, group_threads              ConsumerGroup: sessions, with a handler and a claim for each partition
partitions, partitions_threads    PartitionConsumers: chosen partitions, without a group
producers, producers_threads      SyncProducer waits for each message, QueueProducer reports results later
session, marks                    a session, its claims, and the offsets that handlers have marked
messages                          the messages that producers accept, and the errors of failed messages
record_queue                      a queue of the fetched records of one partition
channel                           a queue of errors or of acknowledged messages, like Go's channels
loop_thread                       the event loop in which the clients for threads run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproto.lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from .group import AsyncConsumerGroup as AsyncConsumerGroup
    from .group_threads import ConsumerGroup as ConsumerGroup
    from .group_threads import ThreadClaim as ThreadClaim
    from .group_threads import ThreadSession as ThreadSession
    from .session import Claim as Claim
    from .session import Handler as Handler
    from .session import Session as Session

_SOURCES = {
    "AsyncConsumerGroup": ".group",
    "Claim": ".session",
    "ConsumerGroup": ".group_threads",
    "Handler": ".session",
    "Session": ".session",
    "ThreadClaim": ".group_threads",
    "ThreadSession": ".group_threads",
}

# `__getattr__` is hidden from type checkers, because they would otherwise accept any attribute of the module.
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, _SOURCES)
