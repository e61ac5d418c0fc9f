"""sarama's way of programming, on our engines: the names of its package, for threads and for asyncio.

group, group_threads              ConsumerGroup: a handler, sessions, a claim for each partition
partitions, partitions_threads    PartitionConsumers: partitions that one names, without a group
producers                         SyncProducer waits for each message, QueueProducer has queues at both ends
session, inbox, outlet            a session and its claims; what waits for who reads
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .group import AsyncConsumerGroup as AsyncConsumerGroup
    from .group_threads import ConsumerGroup as ConsumerGroup
    from .group_threads import ThreadClaim as ThreadClaim
    from .group_threads import ThreadSession as ThreadSession
    from .session import Claim as Claim
    from .session import Handler as Handler
    from .session import Session as Session

_HOMES = {
    "AsyncConsumerGroup": ".group",
    "Claim": ".session",
    "ConsumerGroup": ".group_threads",
    "Handler": ".session",
    "Session": ".session",
    "ThreadClaim": ".group_threads",
    "ThreadSession": ".group_threads",
}


if not TYPE_CHECKING:  # for type checkers a name that there isn't would be one, of any type

    def __getattr__(name: str) -> Any:
        """What a handler's types are called; each comes with its first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name], __name__), name)
