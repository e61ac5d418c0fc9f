"""The fan-out: one fetching loop for each broker, shared by all its partitions (sarama consumer.go, v1.61.1).

* A broker consumer has two goroutines. The *subscription manager* takes new partitions at any time and, after
  the first, gathers more for 100 ms (M186); the *fetcher* (subscriptionConsumer) takes what was gathered, or
  nothing, before every request. The channels between them have no buffer: while the manager gathers, no
  fetch begins.
* Each Fetch asks for all partitions that are not paused, in one request without a session: MinBytes,
  MaxWaitTime, and for each the offset and its own fetch size (M165). Without any: a nap of 100 ms.
* The answer goes to every partition's feeder, and the next request waits for all of them: the slowest
  partition delays all of its broker (M187), up to twice MaxProcessingTime; then it is left out (M188).
* A request without an answer ends the broker consumer, and every partition of it starts anew with the error
  on its channel (M178). Whatever a partition's answer said is looked at when all have been fed (M173..M177):
  OFFSET_OUT_OF_RANGE ends the partition consumer (M155), the leaders' errors start it anew silently, any
  other one is reported first.
* It ends when its last partition has gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar, NamedTuple

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from . import errors
from .broker import Answer, Broker, Network
from .errors import Trouble
from .routines import Routine, States, Table, ignored, only

NAP_MS = 100  # partitionConsumersBatchTimeout

_REDISPATCH = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


class Preference(NamedTuple):
    """The replica to fetch from, and until when."""

    broker_id: int
    until: int


class Subscriber(ABC):
    """What a broker consumer reads and changes of a partition consumer, and what it asks of it."""

    def __init__(self, client: Network, partition: TopicPartition, offset: int) -> None:
        self.settings = client.settings
        self.partition = partition
        self.offset = offset
        self.fetch_size = client.settings.fetch_default
        self.high_watermark = 0
        self.leader_epoch = -1
        self.preferred: Preference | None = None
        self.dying = False
        self.paused = False
        self.switching = False
        self.result: Trouble | None = None

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def error(self, error: Trouble) -> None: ...

    @abstractmethod
    def redispatch(self) -> None: ...

    @abstractmethod
    def stop_dispatcher(self) -> None: ...

    @abstractmethod
    def on_released(self) -> None: ...

    @abstractmethod
    def feed(self, subscription: Subscription, block: PartitionData) -> None: ...

    @abstractmethod
    def prefer(self, broker_id: int) -> None: ...

    @abstractmethod
    def preferred_broker(self) -> tuple[Broker, int] | Trouble: ...


class Subscription:
    """One stay of a partition with a broker consumer, which is over when it is released."""

    __slots__ = ("child", "consumer", "released")

    def __init__(self, child: Subscriber, consumer: BrokerConsumer) -> None:
        self.child, self.consumer = child, consumer
        self.released = False

    def release(self) -> None:
        """The broker consumer feeds the partition no more."""
        if not self.released:
            self.released = True
            self.child.on_released()


class BrokerConsumer:
    """The two goroutines of one broker, and the partitions that they fetch."""

    def __init__(self, consumers: BrokerConsumers, broker: Broker) -> None:
        self.consumers = consumers
        self.client = consumers.client
        self.broker = broker
        self.refs = 0
        self.stopped = False
        self.subscriptions: dict[Subscriber, Subscription] = {}
        self.inputs: deque[tuple[Routine, Subscription]] = deque()
        self.manager = Manager(self)
        self.fetcher = Fetcher(self)
        self.client.wake(self.fetcher, "start")

    def queue(self, routine: Routine, subscription: Subscription) -> None:
        """queueSubscription: `routine` is woken with "queued", and False where the consumer has stopped."""
        if self.stopped:
            self.client.wake(routine, "queued", False)
            return
        self.inputs.append((routine, subscription))
        self.client.wake(self.manager, "look")

    def stop(self) -> None:
        """stopConsuming: who wants to subscribe has to go elsewhere."""
        if not self.stopped:
            self.stopped = True
            while self.inputs:
                self.client.wake(self.inputs.popleft()[0], "queued", False)
            self.client.wake(self.manager, "look")

    def release(self, child: Subscriber) -> None:
        subscription = self.subscriptions.pop(child, None)
        if subscription is not None:
            subscription.release()


class BrokerConsumers:
    """Which broker has which consumer: counted, and made when first needed."""

    def __init__(self, client: Network) -> None:
        self.client = client
        self.of: dict[Broker, BrokerConsumer] = {}

    def ref(self, broker: Broker) -> BrokerConsumer:
        found = self.of.get(broker)
        if found is None:
            found = self.of[broker] = BrokerConsumer(self, broker)
        found.refs += 1
        return found

    def unref(self, consumer: BrokerConsumer) -> None:
        consumer.refs -= 1
        if not consumer.refs:
            consumer.stop()
            self.abandon(consumer)

    def abandon(self, consumer: BrokerConsumer) -> None:
        if self.of.get(consumer.broker) is consumer:
            del self.of[consumer.broker]


# -- the subscription manager


class ManagerState(States):
    idle = "idle"  # takes the first partition, or tells the fetcher that there is none
    gathering = "gathering"  # 100 ms for more
    offering = "offering"  # until the fetcher takes them
    stopped = "stopped"


M = ManagerState


class Manager(Routine):
    """subscriptionManager."""

    __slots__ = ("consumer", "gathered")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        M.idle: {M.gathering, M.stopped},
        M.gathering: {M.offering},
        M.offering: {M.idle, M.stopped},
        M.stopped: set(),
    }

    def __init__(self, consumer: BrokerConsumer) -> None:
        super().__init__(M.idle)
        self.consumer = consumer
        self.gathered: list[Subscription] = []


def _take_first(manager: Manager, what: object) -> None:
    consumer = manager.consumer
    if consumer.stopped:
        manager.move(M.stopped)
        consumer.client.wake(consumer.fetcher, "ended")
    elif consumer.inputs:
        manager.move(M.gathering)
        consumer.client.sleep(manager, consumer.client.now + consumer.client.dialect.gather_ms)
        _take_more(manager, None)
    elif consumer.fetcher.state is RECEIVING and not consumer.fetcher.served:
        consumer.fetcher.served = True
        consumer.client.wake(consumer.fetcher, "received", ())


def _take_more(manager: Manager, what: object) -> None:
    consumer = manager.consumer
    while consumer.inputs:
        routine, subscription = consumer.inputs.popleft()
        manager.gathered.append(subscription)
        consumer.client.wake(routine, "queued", True)
    if consumer.stopped:
        _offer(manager, None)


def _offer(manager: Manager, what: object) -> None:
    manager.move(M.offering)
    _hand(manager, None)


def _hand(manager: Manager, what: object) -> None:
    consumer = manager.consumer
    fetcher = consumer.fetcher
    if fetcher.state is not X.aborted and (fetcher.state is not X.receiving or fetcher.served):
        return
    fetcher.served = True
    batch, manager.gathered = manager.gathered, []
    consumer.client.wake(consumer.fetcher, "received", tuple(batch))
    manager.move(M.stopped if consumer.stopped else M.idle)
    if manager.state is M.stopped:
        consumer.client.wake(consumer.fetcher, "ended")
    elif consumer.inputs:
        consumer.client.wake(manager, "look")


Manager.TABLE = {
    "look": only(M, idle=_take_first, gathering=_take_more, offering=_hand),
    "elapsed": only(M, gathering=_offer),
}


# -- the fetcher


class FetcherState(States):
    starting = "starting"
    receiving = "receiving"  # waits for the manager
    napping = "napping"
    fetching = "fetching"
    feeding = "feeding"  # until every partition took its part, or too long for it
    aborted = "aborted"  # takes what the manager still has, to send it away
    ended = "ended"


X = FetcherState
RECEIVING, FETCHING, FEEDING = X.receiving, X.fetching, X.feeding
"""What is asked for with each answer has a name: before Python 3.12 an Enum's attributes are dear."""


class Fetcher(Routine):
    """subscriptionConsumer."""

    __slots__ = ("acks", "consumer", "served")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        X.starting: {X.receiving},
        X.receiving: {X.napping, X.fetching, X.ended},
        X.napping: {X.receiving},
        X.fetching: {X.feeding, X.aborted},
        X.feeding: {X.receiving},
        X.aborted: {X.ended},
        X.ended: set(),
    }

    def __init__(self, consumer: BrokerConsumer) -> None:
        super().__init__(X.starting)
        self.consumer = consumer
        self.acks = 0
        self.served = False  # what the manager handed over is on its way

    def ack(self) -> None:
        """One partition is done with the answer (or left out)."""
        self.acks -= 1
        if not self.acks:
            self.consumer.client.wake(self, "acked")


def _receive(fetcher: Fetcher, what: object) -> None:
    fetcher.move(RECEIVING)
    fetcher.served = False
    manager = fetcher.consumer.manager
    if manager.state is M.stopped:
        _end(fetcher, None)
    else:
        manager.TABLE["look"][manager.state](manager, None)


def _received(fetcher: Fetcher, batch: tuple[Subscription, ...]) -> None:
    consumer = fetcher.consumer
    for subscription in batch:
        consumer.subscriptions[subscription.child] = subscription
    _drop_dying(consumer)
    if not consumer.subscriptions:
        _nap(fetcher)
        return
    request = _request(consumer)
    if request is None:
        _nap(fetcher)
        return
    fetcher.move(FETCHING)
    consumer.broker.call(fetcher, request)


def _nap(fetcher: Fetcher) -> None:
    fetcher.move(X.napping)
    client = fetcher.consumer.client
    client.sleep(fetcher, client.now + NAP_MS)


def _drop_dying(consumer: BrokerConsumer) -> None:
    for child in list(consumer.subscriptions):
        if child.dying:
            consumer.release(child)
            child.stop_dispatcher()


def _request(consumer: BrokerConsumer) -> FetchRequest | None:
    topics: dict[str, list[FetchPartition]] = {}
    for child in consumer.subscriptions:
        if not child.paused:
            wanted = FetchPartition(
                partition=child.partition.partition,
                current_leader_epoch=child.leader_epoch,
                fetch_offset=child.offset,
                partition_max_bytes=child.fetch_size,
            )
            topics.setdefault(child.partition.topic, []).append(wanted)
    if not topics:
        return None
    settings = consumer.client.settings
    return FetchRequest(
        max_wait_ms=settings.consumer_max_wait_time,
        min_bytes=settings.fetch_min,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=settings.consumer_isolation,
        topics=[FetchTopic(topic=topic, partitions=wanted) for topic, wanted in topics.items()],
        rack_id=settings.rack_id,
    )


def _fetched(fetcher: Fetcher, answer: Answer) -> None:
    consumer = fetcher.consumer
    if not isinstance(answer.response, FetchResponse):
        _abort(fetcher, answer.error or errors.INCOMPLETE)
        return
    fetcher.move(FEEDING)
    blocks = {
        (topic.topic, partition.partition_index): partition
        for topic in answer.response.responses
        for partition in topic.partitions
    }
    fetcher.acks = len(consumer.subscriptions) + 1
    for child, subscription in list(consumer.subscriptions.items()):
        _feed(fetcher, child, subscription, blocks.get(child.partition))
    fetcher.ack()


def _feed(
    fetcher: Fetcher, child: Subscriber, subscription: Subscription, block: PartitionData | None
) -> None:
    if child.dying:
        fetcher.consumer.release(child)
        child.stop_dispatcher()
        fetcher.ack()
    elif block is None:
        fetcher.ack()
    else:
        child.feed(subscription, block)


def _acked(fetcher: Fetcher, what: object) -> None:
    """handleResponses: what did each partition make of it?"""
    consumer = fetcher.consumer
    for child in list(consumer.subscriptions):
        if child.dying:
            consumer.release(child)
            child.stop_dispatcher()
            continue
        result, child.result = child.result, None
        if result is None:
            _follow_preference(consumer, child)
        else:
            _judge(consumer, child, result)
    _receive(fetcher, None)


def _follow_preference(consumer: BrokerConsumer, child: Subscriber) -> None:
    """Fetching from the replica that the broker named, or back from it, is a new start without a backoff."""
    preferred = child.preferred_broker()
    if not isinstance(preferred, Trouble) and preferred[0].id != consumer.broker.id:
        child.switching = True
        child.redispatch()
        consumer.release(child)


def _judge(consumer: BrokerConsumer, child: Subscriber, result: Trouble) -> None:
    from_replica, child.preferred = child.preferred, None
    if result is errors.TIMED_OUT:
        del consumer.subscriptions[child]  # its feeder subscribes again
        return
    if result.code == ErrorCode.OFFSET_OUT_OF_RANGE and from_replica is None:
        child.error(result)
        child.stop_dispatcher()
        child.close()
        consumer.release(child)
        return
    if result.code not in _REDISPATCH and result.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        child.error(result)
    child.redispatch()
    consumer.release(child)


def _abort(fetcher: Fetcher, error: Trouble) -> None:
    consumer = fetcher.consumer
    fetcher.move(X.aborted)
    consumer.consumers.abandon(consumer)
    consumer.stop()
    consumer.broker.close()
    for child in list(consumer.subscriptions):
        _send_away(child, error)
        consumer.release(child)


def _aborted_received(fetcher: Fetcher, batch: tuple[Subscription, ...]) -> None:
    for subscription in batch:
        _send_away(subscription.child, errors.NOT_CONNECTED)
        subscription.release()


def _send_away(child: Subscriber, error: Trouble) -> None:
    if child.dying:
        child.stop_dispatcher()
    else:
        child.error(error)
        child.redispatch()


def _end(fetcher: Fetcher, what: object) -> None:
    fetcher.move(X.ended)


Fetcher.TABLE = {
    "start": only(X, starting=_receive),
    "received": only(X, receiving=_received, aborted=_aborted_received),
    "elapsed": only(X, napping=_receive),
    "answered": only(X, fetching=_fetched),
    "acked": only(X, feeding=_acked),
    "ended": only(X, receiving=_end, aborted=_end, napping=ignored),
}
