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
from .broker import Broker
from .broker_consumer import BrokerConsumer, Preference, Subscriber, Subscription
from .client import Client
from .errors import Trouble
from .fetch_response import parse
from .routines import Routine, States, Table, Ticker, ignored, only

DEFAULT_REFRESH_MS = 600_000  # a preference's lease where RefreshFrequency is 0


class Taker(Routine):
    """Who takes a partition's messages: woken with "stocked" and "closed"."""

    __slots__ = ("child",)
    child: PartitionConsumer | None

    def take(self, limit: int) -> list[ModelRecord]:
        """Messages for the application's poll."""
        raise NotImplementedError

    def report(self, error: Trouble) -> None:
        """The partition consumer's Errors channel."""
        raise NotImplementedError


class PartitionConsumer(Subscriber):
    """What both goroutines share."""

    def __init__(self, client: Client, taker: Taker, partition: TopicPartition, offset: int) -> None:
        super().__init__(client, partition, offset)
        self.client = client
        self.taker = taker
        self.messages: deque[ModelRecord] = deque()
        self.dispatcher_stopped = False
        self.triggered = False
        self.retries = 0
        self.consumer: BrokerConsumer | None = None
        self.subscription: Subscription | None = None
        self.dispatcher = Dispatcher(self)
        self.feeder = Feeder(self)

    def close(self) -> None:
        """AsyncClose: from now on whoever comes by lets go."""
        if not self.dying:
            self.dying = True
            self.client.wake(self.dispatcher, "look")
            self.client.wake(self.feeder, "look")

    def error(self, error: Trouble) -> None:
        """To the Errors channel."""
        self.taker.report(error)

    def redispatch(self) -> None:
        """triggerRedispatch: start anew, unless that is due anyway or it ends."""
        if not self.dispatcher_stopped and not self.dying:
            self.triggered = True
            self.client.wake(self.dispatcher, "look")

    def stop_dispatcher(self) -> None:
        if not self.dispatcher_stopped:
            self.dispatcher_stopped = True
            self.client.wake(self.dispatcher, "look")

    def on_released(self) -> None:
        self.client.wake(self.dispatcher, "look")

    def feed(self, subscription: Subscription, block: PartitionData) -> None:
        """One answer for the feeder; it acknowledges when it is done."""
        self.client.wake(self.feeder, "fed", (subscription, block))

    def taken(self) -> None:
        """The handler took messages: there is room."""
        if self.feeder.state in HOLDING:
            self.client.wake(self.feeder, "look")

    def prefer(self, broker_id: int) -> None:
        lease = self.client.settings.metadata_refresh_frequency or DEFAULT_REFRESH_MS
        self.preferred = Preference(broker_id, self.client.now + lease)

    def preferred_broker(self) -> tuple[Broker, int] | Trouble:
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
    waiting = "waiting"
    backing_off = "backing_off"
    refreshing = "refreshing"
    queueing = "queueing"  # until the subscription manager takes the partition
    handing_over = "handing_over"  # closed: until the broker consumer lets it go
    ended = "ended"


D = DispatcherState


class Dispatcher(Routine):
    """dispatcher: who brings the partition to a broker consumer, again and again."""

    __slots__ = ("child",)
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        D.waiting: {D.backing_off, D.handing_over, D.ended},
        D.backing_off: {D.refreshing, D.handing_over, D.ended},
        D.refreshing: {D.queueing, D.waiting, D.ended},
        D.queueing: {D.waiting},
        D.handing_over: {D.ended},
        D.ended: set(),
    }

    def __init__(self, child: PartitionConsumer) -> None:
        super().__init__(D.waiting)
        self.child = child


def _look(dispatcher: Dispatcher, what: object) -> None:
    child = dispatcher.child
    if child.dispatcher_stopped:
        _end_dispatcher(dispatcher)
    elif child.dying:
        dispatcher.move(D.handing_over)
        _handed_over(dispatcher, None)
    elif child.triggered:
        child.triggered = False
        _triggered(dispatcher)


def _triggered(dispatcher: Dispatcher) -> None:
    child = dispatcher.child
    client = child.client
    if 0 < client.settings.consumer_retry_max <= child.retries:
        child.error(errors.RETRIES_EXHAUSTED)
        child.close()
        dispatcher.move(D.handing_over)
        _handed_over(dispatcher, None)
        return
    if dispatcher.state is D.backing_off:
        return
    wait = 0
    if child.switching:
        child.switching = False
    else:
        child.retries += 1
        wait = client.settings.consumer_retry_backoff
    dispatcher.move(D.backing_off)
    client.sleep(dispatcher, client.now + wait)


def _dispatch(dispatcher: Dispatcher, what: object) -> None:
    child = dispatcher.child
    child.switching = False
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
        child.consumer = None
    dispatcher.move(D.refreshing)
    child.client.metadata.want(dispatcher, (child.partition.topic,))


def _refreshed(dispatcher: Dispatcher, trouble: Trouble | None) -> None:
    child = dispatcher.child
    found = trouble or child.preferred_broker()
    if not isinstance(found, Trouble):
        dispatcher.move(D.queueing)
        subscribe(child, dispatcher, *found)
        return
    if child.dispatcher_stopped or child.dying:
        _end_dispatcher(dispatcher)
        return
    child.error(found)
    child.redispatch()
    dispatcher.move(D.waiting)


def subscribe(child: PartitionConsumer, routine: Routine, broker: Broker, epoch: int) -> None:
    """Bring the partition to the broker's consumer; `routine` is woken with "queued"."""
    child.leader_epoch = epoch
    child.consumer = child.client.consumers.ref(broker)
    child.subscription = Subscription(child, child.consumer)
    child.consumer.queue(routine, child.subscription)


def subscribe_again(child: PartitionConsumer, routine: Routine) -> None:
    """The broker consumer had stopped: take the one that is there now."""
    old = child.subscription
    assert old is not None
    old.release()
    child.client.consumers.unref(old.consumer)
    subscribe(child, routine, old.consumer.broker, child.leader_epoch)


def _queued(dispatcher: Dispatcher, taken: bool) -> None:
    if not taken:
        subscribe_again(dispatcher.child, dispatcher)
        return
    dispatcher.move(D.waiting)
    _look(dispatcher, None)


def _handed_over(dispatcher: Dispatcher, what: object) -> None:
    child = dispatcher.child
    let_go = child.subscription is None or child.subscription.released
    if child.consumer is None or child.dispatcher_stopped or let_go:
        _end_dispatcher(dispatcher)


def _end_dispatcher(dispatcher: Dispatcher) -> None:
    child = dispatcher.child
    dispatcher.move(D.ended)
    if child.consumer is not None:
        child.client.consumers.unref(child.consumer)
    child.client.children.pop(child.partition, None)
    child.client.wake(child.feeder, "closed")


Dispatcher.TABLE = {
    "look": only(D, waiting=_look, backing_off=_look, handing_over=_handed_over),
    "elapsed": only(D, backing_off=_dispatch),
    "refreshed": only(D, refreshing=_refreshed),
    "queued": only(D, queueing=_queued),
}


# -- the response feeder


class FeederState(States):
    idle = "idle"
    pushing = "pushing"  # into a full channel, with the broker consumer waiting
    finishing = "finishing"  # the same after giving the broker consumer up
    queueing = "queueing"  # subscribes again
    ended = "ended"


E = FeederState
IDLE, PUSHING = E.idle, E.pushing
"""What is asked for with each answer has a name: before Python 3.12 an Enum's attributes are dear."""
HOLDING = (PUSHING, E.finishing)


class Feeder(Routine):
    """responseFeeder: who gives the messages to the handler."""

    __slots__ = ("child", "closed", "fed", "first", "left", "subscription", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        E.idle: {E.pushing, E.ended},
        E.pushing: {E.idle, E.finishing, E.ended},
        E.finishing: {E.queueing},
        E.queueing: {E.idle, E.ended},
        E.ended: set(),
    }

    def __init__(self, child: PartitionConsumer) -> None:
        super().__init__(E.idle)
        self.child = child
        self.ticker = Ticker(child.client.now, child.client.settings.consumer_max_processing_time)
        self.first = True  # a tick without a delivery is allowed
        self.left: deque[ModelRecord] = deque()
        self.fed: tuple[Subscription, PartitionData] | None = None
        self.closed = False
        self.subscription: Subscription | None = None  # whose answer it has

    def push(self) -> bool:
        """As many messages as there is room for; whether that was all."""
        child, left = self.child, self.left
        room = child.client.settings.channel_buffer_size - len(child.messages)
        if room > 0 and left:
            self.ticker.take(child.client.now)
            self.first = True
            for _ in range(min(room, len(left))):
                child.messages.append(left.popleft())
            child.client.wake(child.taker, "stocked")
        return not left


def _fed(feeder: Feeder, what: tuple[Subscription, PartitionData]) -> None:
    child = feeder.child
    feeder.subscription, block = what
    messages, child.result = parse(child, block)
    if child.result is None:
        child.retries = 0
    if not messages:
        _acknowledge(feeder)
        if feeder.state is not IDLE:
            _rest(feeder)
        return
    feeder.left.extend(messages)
    feeder.move(PUSHING)
    _push(feeder, None)


def _fed_later(feeder: Feeder, what: tuple[Subscription, PartitionData]) -> None:
    feeder.fed = what


def _push(feeder: Feeder, what: object) -> None:
    child = feeder.child
    if child.dying and feeder.left:
        feeder.left.clear()
    if feeder.push():
        _acknowledge(feeder)
        _rest(feeder)
    elif not feeder.timer:
        child.client.sleep(feeder, feeder.ticker.at)


def _acknowledge(feeder: Feeder) -> None:
    assert feeder.subscription is not None
    feeder.subscription.consumer.fetcher.ack()


def _ticked(feeder: Feeder, what: object) -> None:
    """No message was taken for a whole tick, or for two."""
    client = feeder.child.client
    feeder.ticker.take(client.now)
    if feeder.first:
        feeder.first = False
        client.sleep(feeder, feeder.ticker.at)
        return
    feeder.child.result = errors.TIMED_OUT
    feeder.move(E.finishing)
    _acknowledge(feeder)


def _finish(feeder: Feeder, what: object) -> None:
    child = feeder.child
    if child.dying:
        feeder.left.clear()
    if feeder.push():
        feeder.move(E.queueing)
        assert feeder.subscription is not None
        feeder.subscription.consumer.queue(feeder, feeder.subscription)


def _queued_again(feeder: Feeder, taken: bool) -> None:
    if not taken and feeder.subscription is not None:
        feeder.subscription.release()
        feeder.child.redispatch()
    _rest(feeder)


def _rest(feeder: Feeder) -> None:
    feeder.move(IDLE)
    if feeder.fed is not None:
        fed, feeder.fed = feeder.fed, None
        _fed(feeder, fed)
    elif feeder.closed:
        _end_feeder(feeder, None)


def _close_later(feeder: Feeder, what: object) -> None:
    feeder.closed = True


def _end_feeder(feeder: Feeder, what: object) -> None:
    """The channels are closed: the claim hears that nothing more comes."""
    feeder.move(E.ended)
    feeder.child.client.wake(feeder.child.taker, "closed")


Feeder.TABLE = {
    "fed": only(E, idle=_fed, pushing=_fed_later, finishing=_fed_later, queueing=_fed_later),
    "look": only(E, pushing=_push, finishing=_finish, idle=ignored),
    "elapsed": only(E, pushing=_ticked),
    "queued": only(E, queueing=_queued_again),
    "closed": only(E, idle=_end_feeder, pushing=_close_later, finishing=_close_later, queueing=_close_later),
}
