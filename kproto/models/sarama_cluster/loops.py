"""The loops beside sarama-cluster's main loop (consumer.go: hbLoop, twLoop, cmLoop; v2.1.15).

Any of them that ends, ends the consume cycle, and all others with it.

* Heartbeats: the first one interval after the join. NOT_COORDINATOR and REBALANCE_IN_PROGRESS end the loop
  silently, any other error is reported first (M68).
* The topic watcher looks at the client's metadata every RefreshFrequency / 2, and ends when there is a *new
  topic* that the whitelist wants and the blacklist doesn't forbid. It never looks at partitions: growth is
  not seen until something else ends the cycle (M93, M204).
* The commit loop ends when a commit fails with all its retries.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...wire.message import Message
from ..sarama import errors
from ..sarama.errors import Trouble
from ..sarama.routines import only
from .consumer_state import Loop, LoopState
from .coordinator_requests import Ask, CommitOffsets

_SILENT = {ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS}


S = LoopState


class HeartbeatLoop(Loop):
    """hbLoop."""

    __slots__ = ()


def _beat(loop: HeartbeatLoop, what: object) -> None:
    consumer = loop.consumer
    loop.ticker.take(consumer.client.now)
    loop.move(S.working)
    request = HeartbeatRequest(
        group_id=consumer.client.settings.group_id,
        generation_id=consumer.generation,
        member_id=consumer.member_id,
    )
    Ask(consumer, loop, request).start()


def _beat_asked(loop: HeartbeatLoop, found: Message | Trouble) -> None:
    trouble = found if isinstance(found, Trouble) else None
    if isinstance(found, HeartbeatResponse) and found.error_code:
        trouble = errors.kafka(found.error_code)
    if trouble is None:
        loop.again()
        return
    if trouble.code not in _SILENT:
        loop.consumer.report("heartbeat", trouble)
    loop.end()


HeartbeatLoop.TABLE = {"elapsed": only(S, waiting=_beat), "asked": only(S, working=_beat_asked)}


class WatchLoop(Loop):
    """twLoop."""

    __slots__ = ()


def _watch(loop: WatchLoop, what: object) -> None:
    loop.ticker.take(loop.consumer.client.now)
    if loop.consumer.new_topics():
        loop.end()
    else:
        loop.again()


WatchLoop.TABLE = {"elapsed": only(S, waiting=_watch)}


class CommitLoop(Loop):
    """cmLoop."""

    __slots__ = ()


def _commit(loop: CommitLoop, what: object) -> None:
    consumer = loop.consumer
    loop.ticker.take(consumer.client.now)
    loop.move(S.working)
    CommitOffsets(consumer, loop, consumer.client.settings.offsets_retry_max).start()


def _committed(loop: CommitLoop, trouble: Trouble | None) -> None:
    if trouble is None:
        loop.again()
    else:
        loop.consumer.report("commit", trouble)
        loop.end()


CommitLoop.TABLE = {"elapsed": only(S, waiting=_commit), "committed": only(S, working=_committed)}
