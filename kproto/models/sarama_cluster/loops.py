"""The loops that run concurrently with sarama-cluster's main loop (v2.1.15).

The loops are hbLoop, twLoop and cmLoop of consumer.go. When one loop ends, the others and the consume cycle
end.

* The first heartbeat is sent one interval after the join. NOT_COORDINATOR and REBALANCE_IN_PROGRESS end the
  loop without a report. Any other error is reported first (M68).

* The topic watcher checks the client's metadata every RefreshFrequency / 2. It ends if there is a *new topic*
  that matches the whitelist but not the blacklist.

* The topic watcher never checks partitions. New partitions are noticed only when the cycle ends for another
  reason (M93, M204).

* The commit loop ends when a commit and all its retries have failed.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...wire.message import Message
from ..sarama import errors
from ..sarama.errors import GoError
from ..sarama.routines import row
from .consumer_state import CycleLoop, CycleLoopState
from .coordinator_requests import CommitOffsets, CoordinatorRequest

_UNREPORTED_CODES = {ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS}


S = CycleLoopState


class HeartbeatLoop(CycleLoop):
    """The goroutine hbLoop."""

    __slots__ = ()


def _send_heartbeat(loop: HeartbeatLoop, payload: object) -> None:
    consumer = loop.consumer
    loop.ticker.take_tick(consumer.client.now)
    loop.move(S.WORKING)
    request = HeartbeatRequest(
        group_id=consumer.client.settings.group_id,
        generation_id=consumer.generation,
        member_id=consumer.member_id,
    )
    CoordinatorRequest(consumer, loop, request).start()


def _on_heartbeat_response(loop: HeartbeatLoop, result: Message | GoError) -> None:
    error = result if isinstance(result, GoError) else None
    if isinstance(result, HeartbeatResponse) and result.error_code:
        error = errors.kafka(result.error_code)
    if error is None:
        loop.wait_for_tick()
        return
    if error.code not in _UNREPORTED_CODES:
        loop.consumer.report("heartbeat", error)
    loop.end()


HeartbeatLoop.TABLE = {
    "timer_elapsed": row(S, WAITING=_send_heartbeat),
    "response": row(S, WORKING=_on_heartbeat_response),
}


class WatchLoop(CycleLoop):
    """The goroutine twLoop."""

    __slots__ = ()


def _check_topics(loop: WatchLoop, payload: object) -> None:
    loop.ticker.take_tick(loop.consumer.client.now)
    if loop.consumer.has_new_topics():
        loop.end()
    else:
        loop.wait_for_tick()


WatchLoop.TABLE = {"timer_elapsed": row(S, WAITING=_check_topics)}


class CommitLoop(CycleLoop):
    """The goroutine cmLoop."""

    __slots__ = ()


def _start_commit(loop: CommitLoop, payload: object) -> None:
    consumer = loop.consumer
    loop.ticker.take_tick(consumer.client.now)
    loop.move(S.WORKING)
    CommitOffsets(consumer, loop, consumer.client.settings.offsets_retry_max).start()


def _on_committed(loop: CommitLoop, error: GoError | None) -> None:
    if error is None:
        loop.wait_for_tick()
    else:
        loop.consumer.report("commit", error)
        loop.end()


CommitLoop.TABLE = {
    "timer_elapsed": row(S, WAITING=_start_commit),
    "committed": row(S, WORKING=_on_committed),
}
