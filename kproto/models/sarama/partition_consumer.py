"""One partition's consumer: dispatcher and response feeder (sarama consumer.go, partitionConsumer, v1.61.1).

* `messages` holds ChannelBufferSize records (256); the feeder waits where it is full. After a first tick of
  MaxProcessingTime without a delivery it waits for one more, and then gives the broker consumer up: it goes
  on alone with what it has, and subscribes again when that is taken (M188).
* The dispatcher starts the partition anew whenever it is triggered: backoff (Consumer.Retry.Backoff, 2 s),
  the topic's metadata, the leader (or the replica that the broker prefers), its broker consumer (M189). A
  second trigger while it waits is none. Retry.Max consecutive failures end it, if Retry.Max is above 0.
* A replica that the broker prefers is kept for Metadata.RefreshFrequency, and dropped by any error (M179).
* Closing is a flag that others see when they come by: the broker consumer at its next turn lets it go, then
  the dispatcher ends, then the feeder, and only then are the channels closed (M193).
* Paused partitions stay subscribed and are left out of requests; what is in `messages` is still given (M180).
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
from .routines import Routine, States, Table, Ticker, ignore, row

DEFAULT_REFRESH_MS = 600_000  # a preference's lease where RefreshFrequency is 0


class MessageReceiver(Routine):
    """Who takes a partition's messages: woken with "stocked" and "closed"."""

    __slots__ = ("child",)
    child: PartitionConsumer | None

    def take_messages(self, limit: int) -> list[ModelRecord]:
        """Messages for the application's poll."""
        raise NotImplementedError

    def report(self, error: GoError) -> None:
        """The partition consumer's Errors channel."""
        raise NotImplementedError


class PartitionConsumer(Subscriber):
    """What both goroutines share."""

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
        """AsyncClose: from now on whoever comes by lets go."""
        if not self.dying:
            self.dying = True
            self.client.wake(self.dispatcher, "check")
            self.client.wake(self.feeder, "check")

    def report_error(self, error: GoError) -> None:
        """To the Errors channel."""
        self.receiver.report(error)

    def redispatch(self) -> None:
        """triggerRedispatch: start anew, unless that is due anyway or it ends."""
        if not self.dispatcher_stopped and not self.dying:
            self.triggered = True
            self.client.wake(self.dispatcher, "check")

    def stop_dispatcher(self) -> None:
        if not self.dispatcher_stopped:
            self.dispatcher_stopped = True
            self.client.wake(self.dispatcher, "check")

    def on_released(self) -> None:
        self.client.wake(self.dispatcher, "check")

    def feed(self, subscription: BrokerSubscription, block: PartitionData) -> None:
        """One answer for the feeder; it acknowledges when it is done."""
        self.client.wake(self.feeder, "block_received", (subscription, block))

    def on_messages_taken(self) -> None:
        """The handler took messages: there is room."""
        if self.feeder.state in HOLDING:
            self.client.wake(self.feeder, "check")

    def prefer(self, broker_id: int) -> None:
        lease = self.client.settings.metadata_refresh_frequency or DEFAULT_REFRESH_MS
        self.preferred = Preference(broker_id, self.client.now + lease)

    def preferred_broker(self) -> tuple[SaramaBroker, int] | GoError:
        """The preferred replica while its lease lasts and it is known, else the leader."""
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
    QUEUEING = "queueing"  # until the subscription manager takes the partition
    HANDING_OVER = "handing_over"  # closed: until the broker consumer lets it go
    ENDED = "ended"


D = DispatcherState


class Dispatcher(Routine):
    """dispatcher: who brings the partition to a broker consumer, again and again."""

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


def _check(dispatcher: Dispatcher, payload: object) -> None:
    child = dispatcher.child
    if child.dispatcher_stopped:
        _end_dispatcher(dispatcher)
    elif child.dying:
        dispatcher.move(D.HANDING_OVER)
        _check_released(dispatcher, None)
    elif child.triggered:
        child.triggered = False
        _on_trigger(dispatcher)


def _on_trigger(dispatcher: Dispatcher) -> None:
    child = dispatcher.child
    client = child.client
    if 0 < client.settings.consumer_retry_max <= child.retries:
        child.report_error(errors.RETRIES_EXHAUSTED)
        child.close()
        dispatcher.move(D.HANDING_OVER)
        _check_released(dispatcher, None)
        return
    if dispatcher.state is D.BACKING_OFF:
        return
    wait = 0
    if child.switching:
        child.switching = False
    else:
        child.retries += 1
        wait = client.settings.consumer_retry_backoff
    dispatcher.move(D.BACKING_OFF)
    client.sleep(dispatcher, client.now + wait)


def _dispatch(dispatcher: Dispatcher, payload: object) -> None:
    child = dispatcher.child
    child.switching = False
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
        child.consumer = None
    dispatcher.move(D.REFRESHING)
    child.client.metadata.request_refresh(dispatcher, (child.partition.topic,))


def _on_refreshed(dispatcher: Dispatcher, error: GoError | None) -> None:
    child = dispatcher.child
    leader = error or child.preferred_broker()
    if not isinstance(leader, GoError):
        dispatcher.move(D.QUEUEING)
        subscribe(child, dispatcher, *leader)
        return
    if child.dispatcher_stopped or child.dying:
        _end_dispatcher(dispatcher)
        return
    child.report_error(leader)
    child.redispatch()
    dispatcher.move(D.WAITING)


def subscribe(child: PartitionConsumer, routine: Routine, broker: SaramaBroker, epoch: int) -> None:
    """Bring the partition to the broker's consumer; `routine` is woken with "queued"."""
    child.leader_epoch = epoch
    child.consumer = child.client.consumers.ref(broker)
    child.subscription = BrokerSubscription(child, child.consumer)
    child.consumer.queue(routine, child.subscription)


def subscribe_again(child: PartitionConsumer, routine: Routine) -> None:
    """The broker consumer had stopped: take the one that is there now."""
    old = child.subscription
    assert old is not None
    old.release()
    child.client.consumers.unref(old.consumer)
    subscribe(child, routine, old.consumer.broker, child.leader_epoch)


def _on_queued(dispatcher: Dispatcher, is_queued: bool) -> None:
    if not is_queued:
        subscribe_again(dispatcher.child, dispatcher)
        return
    dispatcher.move(D.WAITING)
    _check(dispatcher, None)


def _check_released(dispatcher: Dispatcher, payload: object) -> None:
    child = dispatcher.child
    is_released = child.subscription is None or child.subscription.released
    if child.consumer is None or child.dispatcher_stopped or is_released:
        _end_dispatcher(dispatcher)


def _end_dispatcher(dispatcher: Dispatcher) -> None:
    child = dispatcher.child
    dispatcher.move(D.ENDED)
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
    child.client.children.pop(child.partition, None)
    child.client.wake(child.feeder, "channels_closed")


Dispatcher.TABLE = {
    "check": row(D, WAITING=_check, BACKING_OFF=_check, HANDING_OVER=_check_released),
    "timer_elapsed": row(D, BACKING_OFF=_dispatch),
    "metadata_refreshed": row(D, REFRESHING=_on_refreshed),
    "subscription_queued": row(D, QUEUEING=_on_queued),
}


# -- the response feeder


class FeederState(States):
    IDLE = "idle"
    PUSHING = "pushing"  # into a full channel, with the broker consumer waiting
    FINISHING = "finishing"  # the same after giving the broker consumer up
    QUEUEING = "queueing"  # subscribes again
    ENDED = "ended"


E = FeederState
# What is asked for with each answer has a name: before Python 3.12 an Enum's attributes are dear.
IDLE, PUSHING = E.IDLE, E.PUSHING
HOLDING = (PUSHING, E.FINISHING)


class Feeder(Routine):
    """responseFeeder: who gives the messages to the handler."""

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
        self.tick_allowed = True  # a tick without a delivery is allowed
        self.unsent: deque[ModelRecord] = deque()
        self.pending_block: tuple[BrokerSubscription, PartitionData] | None = None
        self.closed = False
        self.subscription: BrokerSubscription | None = None  # whose answer it has

    def push(self) -> bool:
        """As many messages as there is room for; whether that was all."""
        child, unsent = self.child, self.unsent
        room = child.client.settings.channel_buffer_size - len(child.messages)
        if room > 0 and unsent:
            self.ticker.take_tick(child.client.now)
            self.tick_allowed = True
            for _ in range(min(room, len(unsent))):
                child.messages.append(unsent.popleft())
            child.client.wake(child.receiver, "messages_available")
        return not unsent


def _on_block(feeder: Feeder, payload: tuple[BrokerSubscription, PartitionData]) -> None:
    child = feeder.child
    feeder.subscription, block = payload
    messages, child.result = parse(child, block)
    if child.result is None:
        child.retries = 0
    if not messages:
        _acknowledge(feeder)
        if feeder.state is not IDLE:
            _become_idle(feeder)
        return
    feeder.unsent.extend(messages)
    feeder.move(PUSHING)
    _push(feeder, None)


def _keep_block(feeder: Feeder, payload: tuple[BrokerSubscription, PartitionData]) -> None:
    feeder.pending_block = payload


def _push(feeder: Feeder, payload: object) -> None:
    child = feeder.child
    if child.dying and feeder.unsent:
        feeder.unsent.clear()
    if feeder.push():
        _acknowledge(feeder)
        _become_idle(feeder)
    elif not feeder.timer:
        child.client.sleep(feeder, feeder.ticker.at)


def _acknowledge(feeder: Feeder) -> None:
    assert feeder.subscription is not None
    feeder.subscription.consumer.fetcher.ack()


def _on_tick(feeder: Feeder, payload: object) -> None:
    """No message was taken for a whole tick, or for two."""
    client = feeder.child.client
    feeder.ticker.take_tick(client.now)
    if feeder.tick_allowed:
        feeder.tick_allowed = False
        client.sleep(feeder, feeder.ticker.at)
        return
    feeder.child.result = errors.TIMED_OUT
    feeder.move(E.FINISHING)
    _acknowledge(feeder)


def _push_last(feeder: Feeder, payload: object) -> None:
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
    """The channels are closed: the claim hears that nothing more comes."""
    feeder.move(E.ENDED)
    feeder.child.client.wake(feeder.child.receiver, "channels_closed")


Feeder.TABLE = {
    "block_received": row(
        E, IDLE=_on_block, PUSHING=_keep_block, FINISHING=_keep_block, QUEUEING=_keep_block
    ),
    "check": row(E, PUSHING=_push, FINISHING=_push_last, IDLE=ignore),
    "timer_elapsed": row(E, PUSHING=_on_tick),
    "subscription_queued": row(E, QUEUEING=_on_queued_again),
    "channels_closed": row(
        E, IDLE=_end_feeder, PUSHING=_close_later, FINISHING=_close_later, QUEUEING=_close_later
    ),
}
