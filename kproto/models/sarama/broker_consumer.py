"""The fetch loop of one broker (sarama consumer.go, v1.61.1).

All consumed partitions of the broker share the loop.

* A broker consumer has two goroutines. The *subscription manager* accepts new partitions at any time. After
  a new one, it waits 100 ms for further ones (M186).

* Before every request, the *fetcher* (subscriptionConsumer) takes the collected partitions. No fetch starts
  while the manager collects.

* Each Fetch requests all partitions that are not paused, without a fetch session (M165). Without a partition
  to request, the fetcher sleeps for 100 ms.

* Each partition has a feeder, a goroutine that passes messages to the application. The next request waits
  until the feeders of all requested partitions have finished.

* The slowest partition therefore delays its broker (M187), for up to twice MaxProcessingTime. Then the
  fetcher no longer waits for the partition (M188).

* A request without a response ends the broker consumer. Each of its partitions reports the error and is
  dispatched again: the leader is looked up, and the partition is subscribed to the leader's broker consumer
  (M178).

* Errors of partitions are handled when all feeders have finished (M173, M177). OFFSET_OUT_OF_RANGE from the
  leader ends the partition consumer (M155). After any other error the partition is dispatched again.

* Errors of partitions are reported, except OFFSET_OUT_OF_RANGE from a read replica and errors that may mean
  a change of leader.

* A broker consumer ends when its last partition has been released.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar, NamedTuple

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from . import errors
from .broker import BrokerResponse, ClientNetwork, SaramaBroker
from .errors import GoError
from .routines import Routine, States, Table, row

NAP_MS = 100  # sarama's partitionConsumersBatchTimeout.

# Errors that may mean that the partition has a new leader. The partition is dispatched again, and the
# application does not receive the error.
_LEADER_CHANGE_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


class Preference(NamedTuple):
    """The read replica that the broker prefers for a partition. The preference expires at `until`."""

    broker_id: int
    until: int


class Subscriber(ABC):
    """The attributes and methods of a partition consumer that its broker consumer uses."""

    def __init__(self, client: ClientNetwork, partition: TopicPartition, offset: int) -> None:
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
        self.result: GoError | None = None

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def report_error(self, error: GoError) -> None: ...

    @abstractmethod
    def redispatch(self) -> None: ...

    @abstractmethod
    def stop_dispatcher(self) -> None: ...

    @abstractmethod
    def on_released(self) -> None: ...

    @abstractmethod
    def feed(self, subscription: BrokerSubscription, block: PartitionData) -> None: ...

    @abstractmethod
    def prefer(self, broker_id: int) -> None: ...

    @abstractmethod
    def preferred_broker(self) -> tuple[SaramaBroker, int] | GoError: ...


class BrokerSubscription:
    """A partition's subscription to a broker consumer. `release` ends the subscription."""

    __slots__ = ("child", "consumer", "released")

    def __init__(self, child: Subscriber, consumer: BrokerConsumer) -> None:
        self.child, self.consumer = child, consumer
        self.released = False

    def release(self) -> None:
        """Stop feeding the partition."""
        if not self.released:
            self.released = True
            self.child.on_released()


class BrokerConsumer:
    """The two goroutines of one broker, and the partitions that they fetch."""

    def __init__(self, consumers: BrokerConsumers, broker: SaramaBroker) -> None:
        self.consumers = consumers
        self.client = consumers.client
        self.broker = broker
        self.refs = 0  # The number of partition consumers that use this broker consumer.
        self.stopped = False
        self.subscriptions: dict[Subscriber, BrokerSubscription] = {}
        self.inputs: deque[tuple[Routine, BrokerSubscription]] = deque()
        self.manager = SubscriptionManager(self)
        self.fetcher = BrokerFetcher(self)
        self.client.wake(self.fetcher, "start")

    def queue(self, routine: Routine, subscription: BrokerSubscription) -> None:
        """Queue a subscription (queueSubscription).

        `routine` is woken with the signal "subscription_queued". The payload is True when the subscription
        manager has taken the subscription, and False if the broker consumer has stopped.
        """
        if self.stopped:
            self.client.wake(routine, "subscription_queued", False)
            return
        self.inputs.append((routine, subscription))
        self.client.wake(self.manager, "check")

    def stop(self) -> None:
        """Refuse further subscriptions (stopConsuming)."""
        if not self.stopped:
            self.stopped = True
            while self.inputs:
                self.client.wake(self.inputs.popleft()[0], "subscription_queued", False)
            self.client.wake(self.manager, "check")

    def release(self, child: Subscriber) -> None:
        subscription = self.subscriptions.pop(child, None)
        if subscription is not None:
            subscription.release()


class BrokerConsumers:
    """Maps each broker to its broker consumer.

    A broker consumer is created for its first partition, and stopped when no partition uses it.
    """

    def __init__(self, client: ClientNetwork) -> None:
        self.client = client
        self.by_broker: dict[SaramaBroker, BrokerConsumer] = {}

    def ref(self, broker: SaramaBroker) -> BrokerConsumer:
        consumer = self.by_broker.get(broker)
        if consumer is None:
            consumer = self.by_broker[broker] = BrokerConsumer(self, broker)
        consumer.refs += 1
        return consumer

    def unref(self, consumer: BrokerConsumer) -> None:
        consumer.refs -= 1
        if not consumer.refs:
            consumer.stop()
            self.abandon(consumer)

    def abandon(self, consumer: BrokerConsumer) -> None:
        if self.by_broker.get(consumer.broker) is consumer:
            del self.by_broker[consumer.broker]


# -- the subscription manager


class SubscriptionManagerState(States):
    # The manager waits for a partition, and offers the fetcher an empty batch.
    IDLE = "idle"
    # The manager collects more partitions for `gather_ms`.
    GATHERING = "gathering"
    # The manager waits until the fetcher takes the batch.
    OFFERING = "offering"
    STOPPED = "stopped"


M = SubscriptionManagerState


class SubscriptionManager(Routine):
    """The goroutine subscriptionManager."""

    __slots__ = ("batch", "consumer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        M.IDLE: {M.GATHERING, M.STOPPED},
        M.GATHERING: {M.OFFERING},
        M.OFFERING: {M.IDLE, M.STOPPED},
        M.STOPPED: set(),
    }

    def __init__(self, consumer: BrokerConsumer) -> None:
        super().__init__(M.IDLE)
        self.consumer = consumer
        self.batch: list[BrokerSubscription] = []


def _start_batch(manager: SubscriptionManager, payload: object) -> None:
    consumer = manager.consumer
    if consumer.stopped:
        manager.move(M.STOPPED)
        consumer.client.wake(consumer.fetcher, "ended")
    elif consumer.inputs:
        manager.move(M.GATHERING)
        consumer.client.sleep(manager, consumer.client.now + consumer.client.dialect.gather_ms)
        _gather_inputs(manager, None)
    elif consumer.fetcher.state is RECEIVING and not consumer.fetcher.batch_pending:
        consumer.fetcher.batch_pending = True
        consumer.client.wake(consumer.fetcher, "batch_received", ())


def _gather_inputs(manager: SubscriptionManager, payload: object) -> None:
    consumer = manager.consumer
    while consumer.inputs:
        routine, subscription = consumer.inputs.popleft()
        manager.batch.append(subscription)
        consumer.client.wake(routine, "subscription_queued", True)
    if consumer.stopped:
        _on_gathered(manager, None)


def _on_gathered(manager: SubscriptionManager, payload: object) -> None:
    manager.move(M.OFFERING)
    _hand_over_batch(manager, None)


def _hand_over_batch(manager: SubscriptionManager, payload: object) -> None:
    consumer = manager.consumer
    fetcher = consumer.fetcher
    fetcher_receives = fetcher.state is X.RECEIVING and not fetcher.batch_pending
    if not fetcher_receives and fetcher.state is not X.ABORTED:
        return
    fetcher.batch_pending = True
    batch, manager.batch = manager.batch, []
    consumer.client.wake(consumer.fetcher, "batch_received", tuple(batch))
    manager.move(M.STOPPED if consumer.stopped else M.IDLE)
    if manager.state is M.STOPPED:
        consumer.client.wake(consumer.fetcher, "ended")
    elif consumer.inputs:
        consumer.client.wake(manager, "check")


SubscriptionManager.TABLE = {
    "check": row(M, IDLE=_start_batch, GATHERING=_gather_inputs, OFFERING=_hand_over_batch),
    "timer_elapsed": row(M, GATHERING=_on_gathered),
}


# -- the fetcher


class BrokerFetcherState(States):
    STARTING = "starting"
    RECEIVING = "receiving"  # The fetcher waits for a batch from the subscription manager.
    NAPPING = "napping"
    FETCHING = "fetching"
    # The fetcher waits until every partition has taken its records, or has been released.
    FEEDING = "feeding"
    # The fetcher has stopped after an error. The partitions in the manager's remaining batches look for their
    # leader again.
    ABORTED = "aborted"
    ENDED = "ended"


X = BrokerFetcherState
# Aliases of the states that are checked with each response: Enum attribute access is slow before Python 3.12.
RECEIVING, FETCHING, FEEDING = X.RECEIVING, X.FETCHING, X.FEEDING


class BrokerFetcher(Routine):
    """The goroutine subscriptionConsumer."""

    __slots__ = ("acks", "batch_pending", "consumer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        X.STARTING: {X.RECEIVING},
        X.RECEIVING: {X.NAPPING, X.FETCHING, X.ENDED},
        X.NAPPING: {X.RECEIVING},
        X.FETCHING: {X.FEEDING, X.ABORTED},
        X.FEEDING: {X.RECEIVING},
        X.ABORTED: {X.ENDED},
        X.ENDED: set(),
    }

    def __init__(self, consumer: BrokerConsumer) -> None:
        super().__init__(X.STARTING)
        self.consumer = consumer
        self.acks = 0  # The partitions that have not finished: a sync.WaitGroup in sarama.
        self.batch_pending = False  # Whether the manager has sent a batch that the fetcher has not received.

    def ack(self) -> None:
        """Count one more partition as finished. After the last one, wake the fetcher."""
        self.acks -= 1
        if not self.acks:
            self.consumer.client.wake(self, "all_acknowledged")


def _await_batch(fetcher: BrokerFetcher, payload: object) -> None:
    fetcher.move(RECEIVING)
    fetcher.batch_pending = False
    manager = fetcher.consumer.manager
    if manager.state is M.STOPPED:
        _end(fetcher, None)
    else:
        manager.TABLE["check"][manager.state](manager, None)


def _on_batch(fetcher: BrokerFetcher, batch: tuple[BrokerSubscription, ...]) -> None:
    consumer = fetcher.consumer
    for subscription in batch:
        consumer.subscriptions[subscription.child] = subscription
    _release_dying_children(consumer)
    if not consumer.subscriptions:
        _nap(fetcher)
        return
    request = _build_request(consumer)
    if request is None:
        _nap(fetcher)
        return
    fetcher.move(FETCHING)
    consumer.broker.call(fetcher, request)


def _nap(fetcher: BrokerFetcher) -> None:
    fetcher.move(X.NAPPING)
    client = fetcher.consumer.client
    client.sleep(fetcher, client.now + NAP_MS)


def _release_dying_children(consumer: BrokerConsumer) -> None:
    for child in list(consumer.subscriptions):
        if child.dying:
            consumer.release(child)
            child.stop_dispatcher()


def _build_request(consumer: BrokerConsumer) -> FetchRequest | None:
    topics: dict[str, list[FetchPartition]] = {}
    for child in consumer.subscriptions:
        if not child.paused:
            partition = FetchPartition(
                partition=child.partition.partition,
                current_leader_epoch=child.leader_epoch,
                fetch_offset=child.offset,
                log_start_offset=0,
                partition_max_bytes=child.fetch_size,
            )
            topics.setdefault(child.partition.topic, []).append(partition)
    if not topics:
        return None
    settings = consumer.client.settings
    return FetchRequest(
        max_wait_ms=settings.consumer_max_wait_time,
        min_bytes=settings.fetch_min,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=settings.consumer_isolation,
        topics=[FetchTopic(topic=topic, partitions=partition) for topic, partition in topics.items()],
        rack_id=settings.rack_id,
    )


def _on_response(fetcher: BrokerFetcher, broker_response: BrokerResponse) -> None:
    consumer = fetcher.consumer
    if not isinstance(broker_response.response, FetchResponse):
        _abort(fetcher, broker_response.error or errors.INCOMPLETE)
        return
    fetcher.move(FEEDING)
    blocks = {
        (topic.topic, partition.partition_index): partition
        for topic in broker_response.response.responses
        for partition in topic.partitions
    }
    # The additional 1 keeps `acks` above 0 until all feeders have their blocks.
    fetcher.acks = len(consumer.subscriptions) + 1
    for child, subscription in list(consumer.subscriptions.items()):
        _feed(fetcher, child, subscription, blocks.get(child.partition))
    fetcher.ack()


def _feed(
    fetcher: BrokerFetcher, child: Subscriber, subscription: BrokerSubscription, block: PartitionData | None
) -> None:
    if child.dying:
        fetcher.consumer.release(child)
        child.stop_dispatcher()
        fetcher.ack()
    elif block is None:
        fetcher.ack()
    else:
        child.feed(subscription, block)


def _on_all_acknowledged(fetcher: BrokerFetcher, payload: object) -> None:
    """Handle the result of each partition (handleResponses)."""
    consumer = fetcher.consumer
    for child in list(consumer.subscriptions):
        if child.dying:
            consumer.release(child)
            child.stop_dispatcher()
            continue
        result, child.result = child.result, None
        if result is None:
            _follow_preferred_replica(consumer, child)
        else:
            _handle_result(consumer, child, result)
    _await_batch(fetcher, None)


def _follow_preferred_replica(consumer: BrokerConsumer, child: Subscriber) -> None:
    """Move the partition to its preferred broker without a backoff, unless it is this broker."""
    preferred = child.preferred_broker()
    if not isinstance(preferred, GoError) and preferred[0].id != consumer.broker.id:
        child.switching = True
        child.redispatch()
        consumer.release(child)


def _handle_result(consumer: BrokerConsumer, child: Subscriber, result: GoError) -> None:
    preference, child.preferred = child.preferred, None
    if result is errors.TIMED_OUT:
        # The partition's feeder subscribes the partition again when the application has taken the messages.
        del consumer.subscriptions[child]
        return
    if result.code == ErrorCode.OFFSET_OUT_OF_RANGE and preference is None:
        child.report_error(result)
        child.stop_dispatcher()
        child.close()
        consumer.release(child)
        return
    if result.code not in _LEADER_CHANGE_CODES and result.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        child.report_error(result)
    child.redispatch()
    consumer.release(child)


def _abort(fetcher: BrokerFetcher, error: GoError) -> None:
    consumer = fetcher.consumer
    fetcher.move(X.ABORTED)
    consumer.consumers.abandon(consumer)
    consumer.stop()
    consumer.broker.close()
    for child in list(consumer.subscriptions):
        _redispatch_or_end(child, error)
        consumer.release(child)


def _on_batch_after_abort(fetcher: BrokerFetcher, batch: tuple[BrokerSubscription, ...]) -> None:
    for subscription in batch:
        _redispatch_or_end(subscription.child, errors.NOT_CONNECTED)
        subscription.release()


def _redispatch_or_end(child: Subscriber, error: GoError) -> None:
    if child.dying:
        child.stop_dispatcher()
    else:
        child.report_error(error)
        child.redispatch()


def _end(fetcher: BrokerFetcher, payload: object) -> None:
    fetcher.move(X.ENDED)


BrokerFetcher.TABLE = {
    "start": row(X, STARTING=_await_batch),
    "batch_received": row(X, RECEIVING=_on_batch, ABORTED=_on_batch_after_abort),
    "timer_elapsed": row(X, NAPPING=_await_batch),
    "response": row(X, FETCHING=_on_response),
    "all_acknowledged": row(X, FEEDING=_on_all_acknowledged),
    "ended": row(X, RECEIVING=_end, ABORTED=_end),
}
