"""Cluster metadata and its refreshes (sarama client.go and metadata.go, v1.61.1).

* The first Metadata request goes to a bootstrap address and requests all topics (Metadata.Full).

* Once brokers are known, a request goes to the broker with the fewest requests in flight. To find this
  broker, the client waits for the lock of each broker. So while a JoinGroup is in flight to any broker, no
  metadata is requested.

* One refresh runs at a time (metadata.go, SingleFlight). A routine whose topics the refresh does not cover
  waits for the next one, which requests the topics of all waiting routines.

* A refresh is repeated, up to Metadata.Retry.Max times, if a topic is unknown or has no leader.

* The background updater requests all topics every RefreshFrequency. The partition checker, which runs at the
  same interval, only reads the cached metadata. So it notices new partitions after at most two intervals
  (M204).

* After a failed request, the broker is removed from the known brokers, or its address from the bootstrap
  addresses. When no bootstrap address is left, the removed addresses are used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ...error_codes import ErrorCode
from ...messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from . import errors
from .broker import BrokerResponse, ClientNetwork, SaramaBroker
from .config import api_key
from .errors import GoError
from .routines import Routine, States, Table, Ticker, row

Topics = tuple[str, ...]  # The topics of a refresh. Empty means all topics.

_AUTO_CREATION_SINCE = 4  # Metadata's allow_auto_topic_creation
_LEADERLESS = ErrorCode.LEADER_NOT_AVAILABLE


class Metadata:
    """The cached brokers and topics, and the requests to refresh them."""

    def __init__(self, client: ClientNetwork) -> None:
        self.client = client
        self.seeds: list[SaramaBroker] = []
        self.failed_seeds: list[SaramaBroker] = []
        self.brokers: dict[int, SaramaBroker] = {}
        self.topics: dict[str, dict[int, MetadataResponsePartition]] = {}
        self.topic_ids: dict[str, Any] = {}
        self.tracked: set[str] = set()
        self.updated_at: int | None = None
        self.refresh: Refresh | None = None
        # The topics of the "queued" routines in `waiting`. None means all topics.
        self.queued_topics: dict[str, None] | None = {}
        # The routines that wait, with their topics. A "final" routine waits for the running refresh, and a
        # "queued" routine for the next one.
        self.waiting: list[tuple[Routine, Topics, str]] = []

    # -- cached topics

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic in order, or an empty list for an unknown topic."""
        return sorted(self.topics.get(topic, ()))

    def leader(self, topic: str, partition: int) -> tuple[SaramaBroker, int] | GoError:
        """Return the leader of a partition and its leader epoch."""
        partition_metadata = self.topics.get(topic, {}).get(partition)
        if partition_metadata is None:
            return errors.UNKNOWN_TOPIC
        if partition_metadata.error_code == _LEADERLESS or partition_metadata.leader_id not in self.brokers:
            return errors.LEADER_NOT_AVAILABLE
        return self.brokers[partition_metadata.leader_id].open(), partition_metadata.leader_epoch

    def is_readable(self, topic: str, partition: int) -> bool:
        """Return whether the partition is known and has a leader."""
        partition_metadata = self.topics.get(topic, {}).get(partition)
        return partition_metadata is not None and partition_metadata.leader_id != -1

    # -- brokers

    def register(self, node_id: int, host: str, port: int) -> SaramaBroker:
        """Return the broker with this id.

        If the broker's address has changed, the old connection is closed, and a new SaramaBroker is returned.
        """
        broker = self.brokers.get(node_id)
        if broker is None or (broker.address.host, broker.address.port) != (host, port):
            if broker is not None:
                broker.close()
            broker = self.brokers[node_id] = SaramaBroker(self.client, node_id, host, port)
        return broker

    def deregister(self, broker: SaramaBroker) -> None:
        """Remove and close a broker after a failed request."""
        if self.brokers.get(broker.id) is broker:
            del self.brokers[broker.id]
        elif self.seeds and self.seeds[0] is broker:
            self.failed_seeds.append(self.seeds.pop(0))
        broker.close()

    def resurrect(self) -> None:
        """Use the failed bootstrap addresses again (resurrectDeadSeeds)."""
        self.seeds += self.failed_seeds
        self.failed_seeds = []

    def candidates(self) -> list[SaramaBroker]:
        """Return the brokers whose locks LeastLoadedBroker takes, in the order in which it takes them.

        The request goes to the last broker of the returned list.

        LeastLoadedBroker takes the locks of all registered brokers to count their requests, in the order of a
        Go map, which begins at a random broker. The first broker's lock is taken twice, and so is the lock of
        each broker that is less loaded than those before it. A request to a bootstrap address takes no locks
        of registered brokers.
        """
        brokers = list(self.brokers.values())
        if not brokers or (self.client.dialect.asks_bootstrap and self.seeds):
            return [seed.open() for seed in self.seeds[:1]]
        first = int(self.client.settings.random() * len(brokers)) if len(brokers) > 1 else 0
        chosen = brokers.pop(first)
        return [chosen, chosen, *brokers, chosen.open()]

    # -- refreshing

    def request_refresh(self, routine: Routine, topics: Iterable[str]) -> None:
        """Refresh the metadata of `topics` (RefreshMetadata).

        `routine` is then woken with "metadata_refreshed" and either the error of these topics or None.
        """
        self._request_refresh(routine, tuple(topics))

    def _request_refresh(self, routine: Routine, topics: Topics) -> None:
        """Start a refresh if none is running, and let the routine wait for a refresh of `topics`.

        If a refresh is running but does not cover `topics`, the routine waits for the next refresh,
        which will cover them.
        """
        if self.refresh is None:
            refreshed_topics = _add_topics(self.queued_topics, topics)
            self.queued_topics = {}
            self.refresh = Refresh(self, None if refreshed_topics is None else tuple(refreshed_topics))
            self.waiting.append((routine, topics, "final"))
            self.client.wake(self.refresh, "new")
        elif self.refresh.covers(topics):
            self.waiting.append((routine, topics, "final"))
        else:
            self.waiting.append((routine, topics, "queued"))
            self.queued_topics = _add_topics(self.queued_topics, topics)

    def on_refreshed(self, topic_errors: dict[str, GoError] | GoError | None) -> None:
        """Wake all routines that waited for the refresh that has ended. If further routines wait, start
        the next refresh.
        """
        waiting, self.waiting, self.refresh = self.waiting, [], None
        for routine, topics, kind in waiting:
            if kind == "queued":
                self._request_refresh(routine, topics)
            else:
                self.client.wake(routine, "metadata_refreshed", _error_of_topics(topics, topic_errors))

    def update(self, response: MetadataResponse, everything: bool) -> tuple[bool, dict[str, GoError]]:
        """Apply a Metadata response; return whether to retry, and the errors of topics (updateMetadata)."""
        for broker in response.brokers:
            self.register(broker.node_id, broker.host, broker.port)
        node_ids = {broker.node_id for broker in response.brokers}
        for node_id in [node_id for node_id in self.brokers if node_id not in node_ids]:
            self.brokers.pop(node_id).close()
        previous_topics = self.topics
        if everything:
            self.topics, self.tracked = {}, set()
        topic_errors: dict[str, GoError] = {}
        retry = False
        for topic in response.topics:
            retry = self._update_topic(topic, previous_topics, topic_errors) or retry
        return retry, topic_errors

    def _update_topic(
        self,
        topic: MetadataResponseTopic,
        previous_topics: dict[str, dict[int, MetadataResponsePartition]],
        topic_errors: dict[str, GoError],
    ) -> bool:
        """Replace a topic in the cache, or remove it after an error. Return whether to retry.

        If the response has an older leader epoch for a partition than the cache, the cached partition stays,
        unless the topic was re-created.
        """
        name, code = topic.name or "", topic.error_code
        self.tracked.add(name)
        cached = previous_topics.get(name, {})
        self.topics.pop(name, None)
        if code:
            topic_errors[name] = errors.kafka(code)
            if code != _LEADERLESS:
                return code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_same_topic = topic.topic_id.int != 0 and topic.topic_id == self.topic_ids.get(name)
        self.topic_ids[name] = topic.topic_id
        partitions = self.topics[name] = {}
        retry = bool(code)
        for partition in topic.partitions:
            cached_partition = cached.get(partition.partition_index)
            if (
                cached_partition is not None
                and is_same_topic
                and 0 <= partition.leader_epoch < cached_partition.leader_epoch
            ):
                current_partition = cached_partition
            else:
                current_partition = partition
            partitions[partition.partition_index] = current_partition
            if current_partition.error_code == _LEADERLESS:
                topic_errors[name] = errors.kafka(_LEADERLESS)
                retry = True
        return retry


def _add_topics(queued_topics: dict[str, None] | None, topics: Topics) -> dict[str, None] | None:
    """Return `queued_topics` with `topics` added.

    If `queued_topics` is None or `topics` is empty, all topics are meant, and the result is None.
    """
    return None if queued_topics is None or not topics else queued_topics | dict.fromkeys(topics)


def _error_of_topics(topics: Topics, topic_errors: dict[str, GoError] | GoError | None) -> GoError | None:
    """Return a shared refresh's first error for one of `topics`, or None if none of them failed."""
    if topic_errors is None or isinstance(topic_errors, GoError):
        return topic_errors
    for topic in sorted(topic_errors):
        if not topics or topic in topics:
            return topic_errors[topic]
    return None


# -- one refresh


class RefreshState(States):
    # To find the least loaded broker, the refresh takes the lock of one broker after another and counts its
    # requests.
    CHOOSING_BROKER = "choosing_broker"
    REQUESTING = "requesting"
    WAITING = "waiting"  # The refresh waits for the backoff between two attempts.
    DONE = "done"


R = RefreshState


class Refresh(Routine):
    """One refresh: requests until one succeeds or no retry is left (tryRefreshMetadata)."""

    __slots__ = ("brokers", "error", "failures", "metadata", "retries", "topics")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        R.CHOOSING_BROKER: {R.REQUESTING, R.WAITING, R.DONE},
        R.REQUESTING: {R.CHOOSING_BROKER, R.WAITING, R.DONE},
        R.WAITING: {R.CHOOSING_BROKER, R.DONE},
        R.DONE: set(),
    }

    def __init__(self, metadata: Metadata, topics: Topics | None) -> None:
        super().__init__(R.CHOOSING_BROKER)
        self.metadata = metadata
        self.topics = topics
        self.retries = metadata.client.settings.metadata_retry_max
        self.brokers: list[SaramaBroker] = []
        self.error: dict[str, GoError] | GoError | None = None
        # The errors of the brokers that this attempt has tried.
        self.failures: list[GoError] = []

    def covers(self, topics: Topics) -> bool:
        """Return whether the refresh includes `topics`."""
        return self.topics is None or (bool(topics) and set(topics) <= set(self.topics))


def _begin(refresh: Refresh, payload: object) -> None:
    """Start the refresh's new goroutine, which runs after the routines that are already woken."""
    refresh.metadata.client.wake(refresh, "start")


def _choose_broker(refresh: Refresh, payload: object) -> None:
    refresh.brokers = refresh.metadata.candidates()
    if not refresh.brokers:
        refresh.metadata.resurrect()
        failures, refresh.failures = refresh.failures, []
        _retry_or_finish(refresh, errors.out_of_brokers(failures))
    else:
        _touch_next_lock(refresh, None)


def _touch_next_lock(refresh: Refresh, payload: object) -> None:
    if len(refresh.brokers) == 1:
        _send_request(refresh)
    else:
        refresh.brokers.pop(0).touch_lock(refresh)


def _send_request(refresh: Refresh) -> None:
    refresh.move(R.REQUESTING)
    topics, client = refresh.topics, refresh.metadata.client
    has_creation_field = client.version(api_key(MetadataRequest)) >= _AUTO_CREATION_SINCE
    request = MetadataRequest(
        topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=topics is not None or not has_creation_field,
    )
    refresh.brokers[0].call(refresh, request)


def _on_response(refresh: Refresh, broker_response: BrokerResponse) -> None:
    metadata = refresh.metadata
    response = broker_response.response
    if not isinstance(response, MetadataResponse) or not response.brokers:
        refresh.failures += [broker_response.error] if broker_response.error is not None else []
        metadata.deregister(broker_response.broker)
        refresh.move(R.CHOOSING_BROKER)
        _choose_broker(refresh, None)
        return
    retry, topic_errors = metadata.update(response, refresh.topics is None)
    if retry:
        _retry_or_finish(refresh, topic_errors)
    else:
        metadata.updated_at = metadata.client.now
        _finish(refresh, topic_errors)


def _retry_or_finish(refresh: Refresh, error: dict[str, GoError] | GoError) -> None:
    refresh.error = error
    if refresh.retries <= 0:
        _finish(refresh, error)
        return
    refresh.move(R.WAITING)
    client = refresh.metadata.client
    client.sleep(refresh, client.now + client.settings.metadata_retry_backoff)


def _on_backoff_elapsed(refresh: Refresh, payload: object) -> None:
    metadata = refresh.metadata
    updated_at, backoff = metadata.updated_at, metadata.client.settings.metadata_retry_backoff
    if updated_at is not None and metadata.client.now - updated_at < backoff:
        _finish(refresh, refresh.error)  # No attempt is needed: another routine's refresh has succeeded.
        return
    refresh.retries -= 1
    refresh.move(R.CHOOSING_BROKER)
    _choose_broker(refresh, None)


def _finish(refresh: Refresh, error: dict[str, GoError] | GoError | None) -> None:
    refresh.move(R.DONE)
    refresh.metadata.on_refreshed(error)


Refresh.TABLE = {
    "new": row(R, CHOOSING_BROKER=_begin),
    "start": row(R, CHOOSING_BROKER=_choose_broker),
    "lock_touched": row(R, CHOOSING_BROKER=_touch_next_lock),
    "response": row(R, REQUESTING=_on_response),
    "timer_elapsed": row(R, WAITING=_on_backoff_elapsed),
}


# -- the background updater


class UpdaterState(States):
    WAITING = "waiting"
    REFRESHING = "refreshing"
    STOPPED = "stopped"


U = UpdaterState


class Updater(Routine):
    """The goroutine that refreshes the metadata every RefreshFrequency (backgroundMetadataUpdater)."""

    __slots__ = ("metadata", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        U.WAITING: {U.REFRESHING, U.STOPPED},
        U.REFRESHING: {U.WAITING, U.STOPPED},
        U.STOPPED: set(),
    }

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(U.WAITING)
        self.metadata = metadata
        client = metadata.client
        self.ticker = Ticker(client.now, client.settings.metadata_refresh_frequency)
        client.sleep(self, self.ticker.at)


def _on_tick(updater: Updater, payload: object) -> None:
    metadata, client = updater.metadata, updater.metadata.client
    updater.ticker.take_tick(client.now)
    topics = () if client.settings.metadata_full else tuple(sorted(metadata.tracked))
    if not topics and not client.settings.metadata_full:
        client.sleep(updater, updater.ticker.at)
        return
    updater.move(U.REFRESHING)
    metadata.request_refresh(updater, topics)


def _on_refreshed(updater: Updater, error: GoError | None) -> None:
    client = updater.metadata.client
    if error is not None:
        client.log("Metadata", f"background update: {error.text}")
    updater.move(U.WAITING)
    client.sleep(updater, max(updater.ticker.at, client.now))


def _stop(updater: Updater, payload: object) -> None:
    updater.move(U.STOPPED)


Updater.TABLE = {
    "timer_elapsed": row(U, WAITING=_on_tick),
    "metadata_refreshed": row(U, REFRESHING=_on_refreshed),
    "stop": row(U, WAITING=_stop, REFRESHING=_stop),
}
