"""sarama's Client: brokers, metadata, and the coordinator (client.go, v1.61.1).

* The coordinator is cached for the whole client. The offset manager of each session looks it up again,
  without the cache.

* If metadata no longer lists the coordinator's broker, the cached coordinator is removed. The next use looks
  it up.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ..contract import CloseConnection, FinishClose, Started
from .broker import ClientNetwork, SaramaBroker
from .broker_consumer import BrokerConsumers, Subscriber
from .config import SARAMA_1_61, VERSIONS, Dialect, SaramaSettings
from .coordinator_lookup import CachedCoordinator
from .metadata import Metadata, Updater


class SaramaClient(ClientNetwork):
    """The state that all goroutines of a sarama client share."""

    def __init__(
        self, settings: SaramaSettings, versions: Mapping[int, int] = VERSIONS, dialect: Dialect = SARAMA_1_61
    ) -> None:
        super().__init__(settings, versions, dialect)
        self.metadata = Metadata(self)
        self.updater: Updater | None = None
        self.coordinator = CachedCoordinator(self.metadata)
        self.consumers = BrokerConsumers(self)
        self.children: dict[TopicPartition, Subscriber] = {}
        self.paused: set[TopicPartition] = set()

    def bootstrap(self, event: Started) -> None:
        """Store the offered versions, and the bootstrap addresses in a random order, as sarama does."""
        self.offered = event.offered
        addresses = list(event.bootstrap)
        while addresses:
            host, port = addresses.pop(int(self.settings.random() * len(addresses)))
            self.metadata.seeds.append(SaramaBroker(self, -1, host, port))

    def start_updater(self) -> None:
        """Start the background updater, unless RefreshFrequency is 0."""
        if self.settings.metadata_refresh_frequency:
            self.updater = Updater(self.metadata)

    def close(self) -> None:
        """Stop the updater, close every connection that was used, and finish the close (Client.Close)."""
        if self.updater is not None:
            self.wake(self.updater, "stop")
        for broker in (*self.metadata.brokers.values(), *self.metadata.seeds):
            if broker.opened and broker.used:
                self.out.append(CloseConnection(broker.address))
        self.out.append(FinishClose())
