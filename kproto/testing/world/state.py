"""The state of a world: its time, queue of turns, cluster and network, and the history of its run."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID

from ...broker.apis.table import served_versions
from ...broker.broker import Broker
from ...broker.call import Node
from ...broker.cluster import BrokerCluster
from ...broker.settings import Settings
from ...broker.topics import Partition
from ...errors import IllegalState
from ...group.subscription import TopicPartition
from ...wire.message import Message
from ...wire.runtime import uuid_of
from . import journal as journals
from . import trace as traces
from .clients import Client
from .journal import knob
from .network import Network
from .observation import Observation

START: Final = 1_000_000
DEFAULTS: Final[Mapping[str, str | int]] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
}


# Called with (client, request, version) before the broker receives the request. If it returns a message, the
# client receives the message as the response, and the broker receives nothing.
Tamper = Callable[[Client, Message, int], Message | None]


class WorldState:
    """The base class of `World`. The docstring of `World` describes the arguments."""

    tamper: Tamper | None = knob(None)

    def __init__(
        self,
        topics: Mapping[str, int] | None,
        settings: Mapping[str, str | int] | None,
        *,
        seed: int,
        brokers: int,
        latency: tuple[int, int],
        trace: bool,
        highest: Mapping[str, int] | None,
    ) -> None:
        self.arguments: Final[dict[str, Any]] = {
            "topics": dict(topics or {}),
            "settings": dict(settings or {}),
            "seed": seed,
            "brokers": brokers,
            "latency": latency,
            "trace": trace,
            "highest": highest,
        }
        self.seed: Final = seed
        # Whether another world is replaying this one. During the replay no call on this world is allowed.
        self.is_being_replayed = False
        self.now: int = START
        self.turns: int = 0
        self.journal: list[journals.Command] = []
        self.entries: list[traces.Entry] = []
        self.observations: list[Observation] = []
        self.requests: list[tuple[Client, Message, int]] = []
        self.clients: dict[str, Client] = {}
        # Maps each member id to the name of its client.
        self.member_names: dict[str, str] = {}
        # The partitions that lost records through retention, truncation, corruption, or deletion of the
        # topic.
        self.disturbed: set[TopicPartition] = set()
        # The offsets of transaction markers, at which the log has no record (see `write_marker`).
        self.marker_offsets: set[tuple[TopicPartition, int]] = set()
        # Whether a fault occurred: a network fault, a killed or frozen client, a removed member, a moved
        # coordinator or a stopped broker.
        self.had_fault = False
        self.tracing = trace
        # How many runs and journaled calls are in progress (see `is_outside_run`).
        self._depth = 0
        self.ids = count(1)
        self._tokens = count(1)
        self._push_numbers = count()
        # The scheduled turns, as a heap: time, number of the `push`, function and arguments.
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        # The current time, and the number of the first turn at this time.
        self._ms_and_first_turn = (START, 0)
        self.network = Network(Random(f"{seed}/network"), latency, lambda: self.now, self.push)
        self.settings: Final = Settings.from_properties({**DEFAULTS, **(settings or {})})
        self.apis: Final = served_versions(highest)
        rack = self.settings.broker_rack or None
        nodes = [
            Node(1 + n, "broker" if n == 0 else f"broker{1 + n}", 9092, rack=rack) for n in range(brokers)
        ]
        self.nodes: Final = {node.id: node for node in nodes}
        self.addresses: Final = [(node.host, node.port) for node in nodes]
        self.cluster: Final = BrokerCluster(self.settings, nodes)
        self.brokers: Final = {node.id: self.create_broker(node) for node in nodes}
        # Maps each broker to the time of its next scheduled tick.
        self.planned_ticks: dict[int, int | None] = dict.fromkeys(self.nodes)
        # Maps each connection id to the API key and version of its last request.
        self.pending_requests: dict[int, tuple[int, int]] = {}
        # Maps a connection id of the operator to the response on it, or to None until the response arrives.
        self.operator_responses: dict[int, bytes | None] = {}

    # ---- time

    def push(self, at: int, function: Callable[..., object], *args: Any) -> None:
        """Schedule the call `function(*args)` at the time `at`, in virtual ms."""
        heapq.heappush(self._queue, (at, next(self._push_numbers), function, args))

    @property
    def is_outside_run(self) -> bool:
        """Whether no run and no journaled call is in progress, so that a new call is journaled."""
        return self._depth == 0

    @contextlib.contextmanager
    def _outside_run(self) -> Generator[None]:
        """Treat the block as code between two turns of a run, so that its calls are journaled."""
        depth, self._depth = self._depth, 0
        try:
            yield
        finally:
            self._depth = depth

    @contextlib.contextmanager
    def inside_call(self) -> Generator[None]:
        """Treat the block as part of a run or of a journaled call: calls in the block are not journaled."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # ---- the trace and the observations of the run

    def add_entry(self, who: str, kind: str, data: Any = None) -> None:
        """Add one entry to the trace."""
        if self.tracing:
            self.entries.append(traces.Entry(self.turns, self.now, who, kind, data))

    def observe(
        self, source: Client | str, kind: str, partitions: Iterable[TopicPartition] = (), detail: Any = None
    ) -> None:
        """Record an observation of a client, a group or the operator."""
        name = source if isinstance(source, str) else source.name
        self.observations.append(Observation(self.turns, self.now, name, kind, tuple(partitions), detail))
        self.add_entry(name, kind, (tuple(partitions), detail))

    @property
    def is_fault_free(self) -> bool:
        """Whether this world has had no fault, and has no `tamper` that answers requests."""
        return not self.had_fault and self.tamper is None

    def next_token(self) -> int:
        """Return a new token, a number that identifies a commit, close or similar call."""
        return next(self._tokens)

    def random_id(self) -> UUID:
        return uuid_of(next(self.ids))

    # ---- the cluster

    def create_broker(self, node: Node) -> Broker:
        return Broker(self.settings, node, self.apis, cluster=self.cluster)

    @property
    def broker(self) -> Broker:
        """The first broker that is up. Raises IllegalState if all brokers are down."""
        for broker in self.brokers.values():
            return broker
        raise IllegalState("all brokers are down: call start_broker() first")

    def partition(self, partition: TopicPartition) -> Partition | None:
        """Return the state of a partition on its brokers, or None if the partition does not exist."""
        topic = self.cluster.topics.named(partition.topic)
        return topic.partition(partition.partition) if topic else None

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions of all topics."""
        return [
            TopicPartition(topic.name, index)
            for topic in self.cluster.topics
            for index in range(len(topic.partitions))
        ]
