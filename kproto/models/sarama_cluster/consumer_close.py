"""How sarama-cluster ends a failed cycle, and closes the Consumer (consumer.go, v2.1.15)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...wire.message import Message
from ..sarama.errors import GoError
from .consumer_state import ClusterConsumer, ClusterConsumerState
from .coordinator_requests import CoordinatorRequest

S = ClusterConsumerState


def on_dropped(consumer: ClusterConsumer, error: GoError | None) -> None:
    """Leave the group, because a partition could not be opened. All partitions have been released.

    The cycle fails with the error of this partition (`consumer.error`). The error of the commit during the
    release (`error`) is ignored.
    """
    assert consumer.error is not None
    leave_with_error(consumer, consumer.error)


def leave_with_error(consumer: ClusterConsumer, error: GoError) -> None:
    """Send LeaveGroup. After its response, fail the cycle with `error`."""
    consumer.error = error
    consumer.move(S.LEAVING_AFTER_ERROR)
    CoordinatorRequest(consumer, consumer, consumer.client.leave_request(consumer.member_id)).start()


def on_left_after_error(consumer: ClusterConsumer, result: Message | GoError) -> None:
    assert consumer.error is not None
    fail_cycle(consumer, consumer.error)


def fail_cycle(consumer: ClusterConsumer, error: GoError) -> None:
    """Report the error and back off before the next cycle (rebalanceError)."""
    if consumer.notified:
        consumer.notify("rebalance error")
    if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
        consumer.report("rebalance", error)
    consumer.move(S.BACKING_OFF)
    client = consumer.client
    client.sleep(consumer, client.now + client.settings.metadata_retry_backoff)
    check_dying(consumer, None)


def check_dying(consumer: ClusterConsumer, payload: object) -> None:
    """End the backoff immediately if the Consumer is being closed."""
    if consumer.dying:
        on_backoff_elapsed(consumer, None)


def on_backoff_elapsed(consumer: ClusterConsumer, payload: object) -> None:
    """Stop the loops of the cycle. The next cycle starts when all of them have ended."""
    consumer.move(S.WINDING_UP)
    for loop in list(consumer.loops):
        loop.stop()
    consumer.client.resume(consumer, "check")


# -- Close


def on_released_for_close(consumer: ClusterConsumer, error: GoError | None) -> None:
    if error is not None:
        consumer.client.report(error)
    consumer.move(S.LEAVING)
    CoordinatorRequest(consumer, consumer, consumer.client.leave_request(consumer.member_id)).start()


def on_left(consumer: ClusterConsumer, result: Message | GoError) -> None:
    """Finish Close. An error of LeaveGroup is dropped."""
    consumer.move(S.IDLE)
    consumer.client.resume(consumer, "topics_requested")


def close(consumer: ClusterConsumer) -> None:
    consumer.move(S.CLOSED)
    consumer.client.close()
