"""The consumer of one partition: its dispatcher and its response feeder (sarama consumer.go, v1.61.1).

* `messages` is a channel of ChannelBufferSize records (256). While it is full, the feeder waits.

* If two ticks of MaxProcessingTime pass without a delivery, the feeder releases the broker consumer, which
  then fetches the broker's other partitions. The feeder delivers its remaining messages, and subscribes again
  (M188).

* An error of the partition or its broker triggers the dispatcher. After a backoff (Consumer.Retry.Backoff, 2
  s) the dispatcher refreshes the topic's metadata. Triggers during the backoff have no effect.

* The dispatcher then subscribes the partition to the broker consumer of the leader, or of the preferred
  replica that the leader has named (M189).

* Retry.Max consecutive failures end the partition consumer, if Retry.Max is above 0.

* A preferred replica is kept for Metadata.RefreshFrequency, and dropped after any error (M179).

* Closing only sets a flag. The broker consumer releases the partition before its next request. Then the
  dispatcher ends, then the feeder, and finally the channels are closed (M193).

* Paused partitions stay subscribed and are left out of requests. Messages that were already fetched are still
  delivered (M180).
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ...group.subscription import TopicPartition
from ...messages.fetch import PartitionData
from ..contract import ModelRecord
from . import errors
from .broker import SaramaBroker
from .broker_consumer import BrokerConsumer, BrokerSubscription, Preference, Subscriber
from .client import SaramaClient
from .errors import GoError
from .fetch_response import parse
from .routines import Routine, States, Table, Ticker, row

DEFAULT_REFRESH_MS = 600_000  # The time in ms for which a preferred replica is kept if RefreshFrequency is 0.


class MessageReceiver(Routine):
    """The routine that receives the messages of a partition.

    The partition consumer wakes the receiver with the signals "messages_available" and "channels_closed".
    """

    __slots__ = ("child",)
    child: PartitionConsumer | None

    def take_messages(self, limit: int) -> list[ModelRecord]:
        """Take up to `limit` messages for the application's poll."""
        raise NotImplementedError

    def report(self, error: GoError) -> None:
        """Report an error on the partition consumer's Errors channel."""
        raise NotImplementedError


class PartitionConsumer(Subscriber):
    """A partition consumer: the state that its dispatcher and its feeder share."""

    def __init__(
        self, client: SaramaClient, receiver: MessageReceiver, partition: TopicPartition, offset: int
    ) -> None:
        super().__init__(client, partition, offset)
        self.client = client
        self.receiver = receiver
        self.messages: deque[ModelRecord] = deque()
        self.dispatcher_stopped = False
        self.triggered = False
        self.retries = 0
        self.consumer: BrokerConsumer | None = None
        self.subscription: BrokerSubscription | None = None
        self.dispatcher = Dispatcher(self)
        self.feeder = Feeder(self)

    def close(self) -> None:
        """Make the dispatcher and the feeder end when they next run (AsyncClose)."""
        if not self.dying:
            self.dying = True
            self.client.wake(self.dispatcher, "check")
            self.client.wake(self.feeder, "check")

    def report_error(self, error: GoError) -> None:
        """Report an error on the partition's Errors channel."""
        self.receiver.report(error)

    def redispatch(self) -> None:
        """Trigger the dispatcher, unless the partition consumer is ending (triggerRedispatch)."""
        if not self.dispatcher_stopped and not self.dying:
            self.triggered = True
            self.client.wake(self.dispatcher, "check")

    def stop_dispatcher(self) -> None:
        """Make the dispatcher end when it next runs, without a further dispatch (close of `trigger`)."""
        if not self.dispatcher_stopped:
            self.dispatcher_stopped = True
            self.client.wake(self.dispatcher, "check")

    def on_released(self) -> None:
        self.client.wake(self.dispatcher, "check")

    def feed(self, subscription: BrokerSubscription, block: PartitionData) -> None:
        """Pass a response to the feeder, which acknowledges it after the last message."""
        self.client.wake(self.feeder, "block_received", (subscription, block))

    def on_messages_taken(self) -> None:
        """Wake a feeder that waits because the channel is full."""
        if self.feeder.state in BLOCKED_STATES:
            self.client.wake(self.feeder, "check")

    def prefer(self, broker_id: int) -> None:
        """Keep `broker_id` as the preferred replica for Metadata.RefreshFrequency."""
        lease_ms = self.client.settings.metadata_refresh_frequency or DEFAULT_REFRESH_MS
        self.preferred = Preference(broker_id, self.client.now + lease_ms)

    def preferred_broker(self) -> tuple[SaramaBroker, int] | GoError:
        """Return the broker to fetch from and the leader epoch, or an error if the leader is unknown.

        The broker is the preferred replica if one is set, and the leader otherwise. A preferred replica that
        is unknown or has expired is forgotten.
        """
        metadata = self.client.metadata
        if self.preferred is not None:
            broker = metadata.brokers.get(self.preferred.broker_id)
            if self.client.now <= self.preferred.until and broker is not None:
                return broker.open(), self.leader_epoch
            self.preferred = None
        return metadata.leader(*self.partition)


# -- the dispatcher


class DispatcherState(States):
    WAITING = "waiting"
    BACKING_OFF = "backing_off"
    REFRESHING = "refreshing"
    # The dispatcher waits until the subscription manager takes the partition.
    QUEUEING = "queueing"
    # The dispatcher is closing, and waits until the broker consumer releases the partition.
    HANDING_OVER = "handing_over"
    ENDED = "ended"


D = DispatcherState


class Dispatcher(Routine):
    """The goroutine dispatcher: subscribes the partition again after each trigger."""

    __slots__ = ("child",)
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        D.WAITING: {D.BACKING_OFF, D.HANDING_OVER, D.ENDED},
        D.BACKING_OFF: {D.REFRESHING, D.HANDING_OVER, D.ENDED},
        D.REFRESHING: {D.QUEUEING, D.WAITING, D.ENDED},
        D.QUEUEING: {D.WAITING},
        D.HANDING_OVER: {D.ENDED},
        D.ENDED: set(),
    }

    def __init__(self, child: PartitionConsumer) -> None:
        super().__init__(D.WAITING)
        self.child = child


def _handle_flags(dispatcher: Dispatcher, payload: object) -> None:
    """End a stopped dispatcher, await the release of a dying partition, or back off after a trigger."""
    child = dispatcher.child
    if child.dispatcher_stopped:
        _end_dispatcher(dispatcher)
    elif child.dying:
        dispatcher.move(D.HANDING_OVER)
        _end_if_released(dispatcher, None)
    elif child.triggered:
        child.triggered = False
        _back_off(dispatcher)


def _back_off(dispatcher: Dispatcher) -> None:
    """Back off before the next dispatch; after Retry.Max failures, close the partition consumer instead."""
    child = dispatcher.child
    client = child.client
    if 0 < client.settings.consumer_retry_max <= child.retries:
        child.report_error(errors.RETRIES_EXHAUSTED)
        child.close()
        dispatcher.move(D.HANDING_OVER)
        _end_if_released(dispatcher, None)
        return
    if dispatcher.state is D.BACKING_OFF:
        return
    backoff_ms = 0
    if child.switching:
        child.switching = False
    else:
        child.retries += 1
        backoff_ms = client.settings.consumer_retry_backoff
    dispatcher.move(D.BACKING_OFF)
    client.sleep(dispatcher, client.now + backoff_ms)


def _on_backoff_elapsed(dispatcher: Dispatcher, payload: object) -> None:
    """Leave the broker consumer, and refresh the metadata to find the next one."""
    child = dispatcher.child
    child.switching = False
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
        child.consumer = None
    dispatcher.move(D.REFRESHING)
    child.client.metadata.request_refresh(dispatcher, (child.partition.topic,))


def _on_refreshed(dispatcher: Dispatcher, error: GoError | None) -> None:
    child = dispatcher.child
    broker_and_epoch = error or child.preferred_broker()
    if not isinstance(broker_and_epoch, GoError):
        dispatcher.move(D.QUEUEING)
        broker, leader_epoch = broker_and_epoch
        subscribe(child, dispatcher, broker, leader_epoch)
        return
    if child.dispatcher_stopped or child.dying:
        _end_dispatcher(dispatcher)
        return
    child.report_error(broker_and_epoch)
    child.redispatch()
    dispatcher.move(D.WAITING)


def subscribe(child: PartitionConsumer, routine: Routine, broker: SaramaBroker, epoch: int) -> None:
    """Subscribe the partition to `broker`'s consumer, which then sends "subscription_queued" to `routine`."""
    child.leader_epoch = epoch
    child.consumer = child.client.consumers.ref(broker)
    child.subscription = BrokerSubscription(child, child.consumer)
    child.consumer.queue(routine, child.subscription)


def subscribe_again(child: PartitionConsumer, routine: Routine) -> None:
    """Subscribe the partition to the broker's new broker consumer, because the previous one has stopped."""
    previous = child.subscription
    assert previous is not None
    previous.release()
    child.client.consumers.unref(previous.consumer)
    subscribe(child, routine, previous.consumer.broker, child.leader_epoch)


def _on_queued(dispatcher: Dispatcher, is_queued: bool) -> None:
    if not is_queued:
        subscribe_again(dispatcher.child, dispatcher)
        return
    dispatcher.move(D.WAITING)
    _handle_flags(dispatcher, None)


def _end_if_released(dispatcher: Dispatcher, payload: object) -> None:
    """End the dispatcher unless a broker consumer still has the partition."""
    child = dispatcher.child
    is_released = child.subscription is None or child.subscription.released
    if child.consumer is None or child.dispatcher_stopped or is_released:
        _end_dispatcher(dispatcher)


def _end_dispatcher(dispatcher: Dispatcher) -> None:
    """Leave the broker consumer, remove the partition consumer from the client, and end the feeder."""
    child = dispatcher.child
    dispatcher.move(D.ENDED)
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
    child.client.children.pop(child.partition, None)
    child.client.wake(child.feeder, "channels_closed")


Dispatcher.TABLE = {
    "check": row(D, WAITING=_handle_flags, BACKING_OFF=_handle_flags, HANDING_OVER=_end_if_released),
    "timer_elapsed": row(D, BACKING_OFF=_on_backoff_elapsed),
    "metadata_refreshed": row(D, REFRESHING=_on_refreshed),
    "subscription_queued": row(D, QUEUEING=_on_queued),
}


# -- the response feeder


class FeederState(States):
    IDLE = "idle"
    # The channel is full: the feeder waits for the application, and the broker consumer waits for the feeder.
    PUSHING = "pushing"
    # The channel is full: the feeder waits for the application, and has released the broker consumer.
    FINISHING = "finishing"
    QUEUEING = "queueing"  # The feeder subscribes the partition to the broker consumer again.
    ENDED = "ended"


E = FeederState
# Aliases of the states that are checked with each response: Enum attribute access is slow before Python 3.12.
IDLE, PUSHING = E.IDLE, E.PUSHING
# The states in which the feeder waits for free slots in the channel.
BLOCKED_STATES = (PUSHING, E.FINISHING)


class Feeder(Routine):
    """The goroutine responseFeeder, which delivers the messages to the handler."""

    __slots__ = ("child", "closed", "pending_block", "subscription", "tick_allowed", "ticker", "unsent")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        E.IDLE: {E.PUSHING, E.ENDED},
        E.PUSHING: {E.IDLE, E.FINISHING, E.ENDED},
        E.FINISHING: {E.QUEUEING},
        E.QUEUEING: {E.IDLE, E.ENDED},
        E.ENDED: set(),
    }

    def __init__(self, child: PartitionConsumer) -> None:
        super().__init__(E.IDLE)
        self.child = child
        self.ticker = Ticker(child.client.now, child.client.settings.consumer_max_processing_time)
        # True until the first tick without a delivery. At the second such tick, the feeder releases the
        # broker consumer.
        self.tick_allowed = True
        self.unsent: deque[ModelRecord] = deque()
        # A response that arrived before the feeder became idle.
        self.pending_block: tuple[BrokerSubscription, PartitionData] | None = None
        self.closed = False  # Whether the dispatcher has ended.
        # The subscription whose response the feeder holds.
        self.subscription: BrokerSubscription | None = None

    def push(self) -> bool:
        """Deliver messages until the channel is full; return whether all are delivered."""
        child, unsent = self.child, self.unsent
        free_slots = child.client.settings.channel_buffer_size - len(child.messages)
        if free_slots > 0 and unsent:
            self.ticker.take_tick(child.client.now)
            self.tick_allowed = True
            for _ in range(min(free_slots, len(unsent))):
                child.messages.append(unsent.popleft())
            child.client.wake(child.receiver, "messages_available")
        return not unsent


def _on_block(feeder: Feeder, payload: tuple[BrokerSubscription, PartitionData]) -> None:
    """Parse a response, deliver its messages, and acknowledge it as soon as all are delivered."""
    child = feeder.child
    feeder.subscription, block = payload
    messages, child.result = parse(child, block)
    if child.result is None:
        child.retries = 0
    if not messages:
        _acknowledge_response(feeder)
        if feeder.state is not IDLE:
            _become_idle(feeder)
        return
    feeder.unsent.extend(messages)
    feeder.move(PUSHING)
    _push_messages(feeder, None)


def _keep_block(feeder: Feeder, payload: tuple[BrokerSubscription, PartitionData]) -> None:
    feeder.pending_block = payload


def _push_messages(feeder: Feeder, payload: object) -> None:
    """Deliver messages, and acknowledge the response if all are delivered; else wait for the next tick.

    A closing partition consumer drops its messages.
    """
    child = feeder.child
    if child.dying and feeder.unsent:
        feeder.unsent.clear()
    if feeder.push():
        _acknowledge_response(feeder)
        _become_idle(feeder)
    elif not feeder.timer:
        child.client.sleep(feeder, feeder.ticker.at)


def _acknowledge_response(feeder: Feeder) -> None:
    assert feeder.subscription is not None
    feeder.subscription.consumer.fetcher.ack()


def _on_tick(feeder: Feeder, payload: object) -> None:
    """Release the broker consumer if two ticks have passed without a delivery."""
    client = feeder.child.client
    feeder.ticker.take_tick(client.now)
    if feeder.tick_allowed:
        feeder.tick_allowed = False
        client.sleep(feeder, feeder.ticker.at)
        return
    feeder.child.result = errors.TIMED_OUT
    feeder.move(E.FINISHING)
    _acknowledge_response(feeder)


def _push_remaining(feeder: Feeder, payload: object) -> None:
    """Deliver messages; when all are delivered, subscribe to the broker consumer again."""
    child = feeder.child
    if child.dying:
        feeder.unsent.clear()
    if feeder.push():
        feeder.move(E.QUEUEING)
        assert feeder.subscription is not None
        feeder.subscription.consumer.queue(feeder, feeder.subscription)


def _on_queued_again(feeder: Feeder, is_queued: bool) -> None:
    if not is_queued and feeder.subscription is not None:
        feeder.subscription.release()
        feeder.child.redispatch()
    _become_idle(feeder)


def _become_idle(feeder: Feeder) -> None:
    feeder.move(IDLE)
    if feeder.pending_block is not None:
        pending_block, feeder.pending_block = feeder.pending_block, None
        _on_block(feeder, pending_block)
    elif feeder.closed:
        _end_feeder(feeder, None)


def _close_later(feeder: Feeder, payload: object) -> None:
    feeder.closed = True


def _end_feeder(feeder: Feeder, payload: object) -> None:
    """Close the channels, and wake the receiver."""
    feeder.move(E.ENDED)
    feeder.child.client.wake(feeder.child.receiver, "channels_closed")


Feeder.TABLE = {
    "block_received": row(
        E, IDLE=_on_block, PUSHING=_keep_block, FINISHING=_keep_block, QUEUEING=_keep_block
    ),
    "check": row(E, PUSHING=_push_messages, FINISHING=_push_remaining),
    "timer_elapsed": row(E, PUSHING=_on_tick),
    "subscription_queued": row(E, QUEUEING=_on_queued_again),
    "channels_closed": row(
        E, IDLE=_end_feeder, PUSHING=_close_later, FINISHING=_close_later, QUEUEING=_close_later
    ),
}
