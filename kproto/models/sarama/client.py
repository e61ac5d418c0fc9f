"""sarama's Client: brokers, metadata, the coordinator, and the way of every request (client.go, v1.61.1).

* The coordinator is remembered for the whole client. The offset manager looks it up anew all the same, once
  in each session.
* A coordinator that metadata doesn't list any more is unknown, and looked up when it is next needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...group.subscription import TopicPartition
from ...messages.find_coordinator import FindCoordinatorResponse
from ...wire.message import Message
from ..contract import (
    CloseConnection,
    FinishClose,
    Notify,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    Started,
)
from .broker import Broker, Call
from .broker_consumer import BrokerConsumers
from .config import VERSIONS, Settings
from .coordinator_lookup import Lookup
from .errors import Trouble
from .metadata import Metadata, Updater
from .routines import Routine, Scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .partition_consumer import PartitionConsumer


class Dialect(NamedTuple):
    """Where sarama's releases differ below the group."""

    pipelines: bool
    """Whether a request is sent while another is open on the connection (it was, until 2020)."""
    asks_bootstrap: bool
    """Whether metadata and coordinators are asked of the bootstrap address as long as it answers."""
    gather_ms: int
    """How long the subscription manager gathers partitions."""


PRESENT = Dialect(pipelines=False, asks_bootstrap=False, gather_ms=100)
"""IBM/sarama 1.61.1."""
OLD = Dialect(pipelines=True, asks_bootstrap=True, gather_ms=0)
"""Shopify/sarama 1.17.0, which sarama-cluster 2.1.15 was made with."""


class Client(Scheduler):
    """What all of a sarama client's goroutines share."""

    def __init__(
        self, settings: Settings, versions: Mapping[int, int] = VERSIONS, dialect: Dialect = PRESENT
    ) -> None:
        super().__init__()
        self.dialect = dialect
        self.settings = settings
        self.versions = versions
        self.offered: Mapping[int, tuple[int, int]] = {}
        self.metadata = Metadata(self)
        self.updater: Updater | None = None
        self.coordinator_id: int | None = None
        self.consumers = BrokerConsumers(self)
        self.children: dict[TopicPartition, PartitionConsumer] = {}
        self.paused: set[TopicPartition] = set()
        self.open: dict[int, tuple[Message, Broker, Call]] = {}

    def bootstrap(self, event: Started) -> None:
        """Remember the bootstrap addresses, in a random order as sarama asks them."""
        self.offered = event.offered
        addresses = list(event.bootstrap)
        while addresses:
            host, port = addresses.pop(int(self.settings.random() * len(addresses)))
            self.metadata.seeds.append(Broker(self, -1, host, port))

    def keep_fresh(self) -> None:
        """Start the background updater, unless RefreshFrequency is 0."""
        if self.settings.metadata_refresh_frequency:
            self.updater = Updater(self)

    def close(self) -> None:
        """Client.Close: the updater ends, and so does every connection that was used."""
        if self.updater is not None:
            self.wake(self.updater, "stop")
        for broker in (*self.metadata.brokers.values(), *self.metadata.seeds):
            if broker.opened and broker.used:
                self.out.append(CloseConnection(broker.address))
        self.out.append(FinishClose())

    # -- requests

    def version(self, api_key: int) -> int:
        """The version to speak: ours, or the broker's highest where that is lower."""
        mine = self.versions[api_key]
        offered = self.offered.get(api_key)
        return mine if offered is None else min(mine, offered[1])

    def send(self, broker: Broker, call: Call, request: Message, timeout_ms: int) -> None:
        self.open[id(request)] = (request, broker, call)
        key = request.__api_key__
        assert key is not None
        self.out.append(SendRequest(broker.address, request, self.version(key), timeout_ms))

    def answered(self, event: ResponseReceived) -> None:
        known = self.open.pop(id(event.request), None)
        if known is not None:
            known[1].answered(known[2], event)

    def failed(self, event: RequestFailed) -> None:
        known = self.open.pop(id(event.request), None)
        if known is not None:
            known[1].failed(known[2], event)

    # -- the coordinator

    def cached_coordinator(self) -> Broker | None:
        """The coordinator, opened, where it is known."""
        known = None if self.coordinator_id is None else self.metadata.brokers.get(self.coordinator_id)
        return None if known is None else known.open()

    def look_up(self, caller: Routine) -> None:
        """RefreshCoordinator: `caller` is woken with "found" and the trouble, or None."""
        Lookup(self, caller).start()

    def found(self, answer: FindCoordinatorResponse) -> None:
        self.metadata.register(answer.node_id, answer.host, answer.port)
        self.coordinator_id = answer.node_id

    # -- telling

    def log(self, name: str, text: str) -> None:
        """What sarama writes to its Logger where it doesn't tell the application."""
        self.out.append(Notify("log", name, text))

    def report(self, error: Trouble) -> None:
        """The Errors channel, or the log without Return.Errors."""
        kind = "error" if self.settings.consumer_return_errors else "log"
        self.out.append(Notify(kind, error.name, error.text))
