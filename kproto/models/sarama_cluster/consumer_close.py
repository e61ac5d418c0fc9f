"""What goes wrong in a cycle of a sarama-cluster Consumer, and its Close (consumer.go, v2.1.15)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...wire.message import Message
from ..sarama.errors import Trouble
from .consumer_state import Consumer, ConsumerState
from .coordinator_requests import Ask

S = ConsumerState


def dropped(consumer: Consumer, trouble: Trouble | None) -> None:
    assert consumer.trouble is not None
    quit(consumer, consumer.trouble)


def quit(consumer: Consumer, trouble: Trouble) -> None:
    consumer.trouble = trouble
    consumer.move(S.quitting)
    Ask(consumer, consumer, consumer.client.leave_request(consumer.member_id)).start()


def has_quit(consumer: Consumer, found: Message | Trouble) -> None:
    assert consumer.trouble is not None
    failed(consumer, consumer.trouble)


def failed(consumer: Consumer, trouble: Trouble) -> None:
    """rebalanceError."""
    if consumer.notified:
        consumer.notify("rebalance error")
    if trouble.code != ErrorCode.REBALANCE_IN_PROGRESS:
        consumer.report("rebalance", trouble)
    consumer.move(S.backing_off)
    client = consumer.client
    client.sleep(consumer, client.now + client.settings.metadata_retry_backoff)
    look_backing_off(consumer, None)


def look_backing_off(consumer: Consumer, what: object) -> None:
    if consumer.dying:
        backed_off(consumer, None)


def backed_off(consumer: Consumer, what: object) -> None:
    consumer.move(S.winding_up)
    for loop in list(consumer.loops):
        loop.stop()
    consumer.client.resume(consumer, "look")


# -- Close


def closing_released(consumer: Consumer, trouble: Trouble | None) -> None:
    if trouble is not None:
        consumer.client.report(trouble)
    consumer.move(S.leaving)
    Ask(consumer, consumer, consumer.client.leave_request(consumer.member_id)).start()


def left(consumer: Consumer, found: Message | Trouble) -> None:
    consumer.move(S.idle)
    consumer.client.resume(consumer, "wanted")


def close(consumer: Consumer) -> None:
    consumer.move(S.closed)
    consumer.client.close()
