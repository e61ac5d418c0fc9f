"""The state of the embedded broker, and what the handlers of its APIs may do with it.

`machine` moves it: that is where requests come in. The actions that it answers with are here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from .. import transactions
from ..deadlines import Deadlines
from ..error_codes import ErrorCode
from ..errors import EncodeError
from ..group.protocol import CoordinatorAction, CoordinatorEvent, TopicsDeleted, TransactionEnded
from ..machine import SendResponse
from ..messages.api_versions import ApiVersion
from ..messages.headers import encode_response
from ..transactions.state import OFFSETS_TOPIC
from ..wire.message import Message
from .call import Call, DelayedRequest, Node
from .cluster import Cluster
from .faults import fail
from .fetch_sessions import FetchSessions
from .purgatory import Purgatory
from .security.acls import Acls
from .security.authenticator import ANONYMOUS, SaslAuthenticator, SaslState
from .security.users import Users
from .settings import Settings
from .throttling import throttle
from .topics import Partition, Topic


class Reply(NamedTuple):
    """Send this response, without the size in front; then step with `Sent`."""

    conn: int
    frame: bytes


class Close(NamedTuple):
    """Close the connection; `reason` is for the log. `Disconnected` need not follow."""

    conn: int
    reason: str


class GroupCoordinatorStep(NamedTuple):
    """To tell: the group coordinator was given `event` and answered with `actions`."""

    event: CoordinatorEvent
    actions: tuple[CoordinatorAction, ...]


class TransactionCoordinatorStep(NamedTuple):
    """To tell: the transaction coordinator was given `event` and answered with `actions`."""

    event: transactions.TransactionEvent
    actions: tuple[transactions.TransactionAction, ...]


class LogsCleaned(NamedTuple):
    """To tell: retention or compaction took records from these."""

    partitions: tuple[Partition, ...]


Action: TypeAlias = Reply | Close | GroupCoordinatorStep | TransactionCoordinatorStep | LogsCleaned


@dataclass(slots=True)
class Connection:
    conn: int
    host: str
    request_queue: deque[tuple[bytes, UUID]] = field(default_factory=deque[tuple[bytes, UUID]])
    queued_bytes: int = 0
    current_call: Call | None = None
    response_in_flight: bool = False  # the response was sent, `Sent` has not arrived yet
    unsent_bytes: int = 0  # the size of that response
    oversized_call: Call | None = None  # its response is too long to be encoded
    listener: str = "PLAINTEXT"
    certificate_principal: str = ANONYMOUS
    authenticator: SaslAuthenticator | None = None  # where the listener wants SASL

    @property
    def principal(self) -> str:
        return self.certificate_principal if self.authenticator is None else self.authenticator.principal


def acls_of(settings: Settings) -> Acls | None:
    """The rules that a broker begins with; None where nothing authorizes."""
    if not settings.authorizer_class_name:
        return None
    super_users = [name.strip() for name in settings.super_users.split(";") if name.strip()]
    return Acls(super_users, allow_everyone=settings.allow_everyone_if_no_acl_found)


class Broker:
    """The state of the machine: topics, connections, and the group coordinator."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        apis: Mapping[int, ApiVersion],
        *,
        cluster_id: str = "kproto-embedded-broker",
        cluster: Cluster | None = None,
        users: Users | None = None,
        acls: Acls | None = None,
    ) -> None:
        """`apis`: what is served, as `handlers.index.served` tells it. Alone unless in a `cluster`."""
        self.node: Final = node
        self.apis: Final = apis
        self.cluster_id: Final = cluster_id
        self.cluster: Final = cluster or Cluster(settings, [node])
        self.cluster.brokers[node.id] = self
        self.settings = self.cluster.dynamic.settings(node.id)
        self.topics: Final = self.cluster.topics
        self.coordinator: Final = self.cluster.coordinator
        self.transactions: Final = self.cluster.transactions
        self.fetch_sessions: Final = FetchSessions(settings.max_incremental_fetch_session_cache_slots)
        # The machine's own.
        self.connections: Final = self.cluster.connections
        self.users: Final = users or Users()
        self.acls: Final = acls_of(settings) if acls is None else acls
        self.purgatory: Final = Purgatory()
        # Connections that are closed at a time: with this answer, and for this reason.
        self.pending_closes: Final[dict[int, tuple[Message | None, str]]] = {}
        self.close_deadlines: Final[Deadlines[int]] = Deadlines()
        self.ready: Final[deque[Connection]] = deque()
        # API key -> what its next requests hear instead of an answer, and how many of them.
        self.injected_errors: Final[dict[int, tuple[ErrorCode, int]]] = {}
        # API key -> how long its clients are asked for quiet, in ms.
        self.throttle_times: Final[dict[int, int]] = {}
        # Connections from which nothing is taken before a time: their clients are above a quota.
        self.muted: Final[Deadlines[int]] = Deadlines()
        # The moment of this step.
        self.now = 0
        self.actions: list[Action] = []

    @property
    def wall_clock(self) -> int:
        """The time of day, of which records and tokens speak."""
        return self.now + self.cluster.wall_clock_offset

    def backlog(self, conn: int) -> int:
        """Bytes of requests that wait on this connection; the shell stops reading when there are many."""
        connection = self.connections.get(conn)
        return connection.queued_bytes if connection else 0

    def has_request_in_progress(self, conn: int) -> bool:
        """Is a request of this connection not answered yet?"""
        connection = self.connections.get(conn)
        return connection is not None and connection.current_call is not None

    def is_authenticated(self, conn: int) -> bool:
        """Is it known who is on this connection, which wants that?"""
        connection = self.connections.get(conn)
        return (
            connection is not None
            and connection.authenticator is not None
            and connection.authenticator.state is SaslState.COMPLETE
        )

    def answer(self, conn: int, response: Message) -> None:
        """Answer the request that this connection waits for; nothing when the connection is gone."""
        connection = self.connections.get(conn)
        if connection is None or connection.current_call is None:
            return
        call = connection.current_call
        connection.current_call = None
        connection.response_in_flight = True
        if call.amend_response is not None:
            response = call.amend_response(response)
        if call.injected_error is not None:
            fail(response, call.injected_error, call.version)
        header = call.envelope.header
        wait = self.throttle_times.get(header.request_api_key)
        if wait:
            throttle(response, call.version, wait)
            self.muted.set(conn, self.now + wait)
        try:
            frame = encode_response(response, call.version, header.correlation_id)
        except EncodeError:  # a message or a member id about long names is itself too long
            if call.injected_error is not None:
                raise
            connection.oversized_call = replace(call, injected_error=ErrorCode.UNKNOWN_SERVER_ERROR)
            self.ready.append(connection)
            return
        connection.unsent_bytes = len(frame)
        self.cluster.unsent += len(frame)
        self.actions.append(Reply(conn, frame))

    def replace_call(self, call: Call, amend: Callable[[Any], object]) -> Call:
        """Let `amend` change the response of a call in place, before any amendment that the call has already.

        Returns the new call, which its connection now waits for.
        """
        earlier = call.amend_response

        def amend_response(response: Message) -> Message:
            amend(response)
            return response if earlier is None else earlier(response)

        call = replace(call, amend_response=amend_response)
        connection = self.connections.get(call.conn)
        if connection is not None:
            connection.current_call = call
        return call

    def is_authorized(self, call: Call, operation: int, resource: int, name: str) -> bool:
        """May whoever called do this? Everybody may everything where nothing authorizes."""
        acls = self.acls
        if call.injected_error is not None:
            return False
        return acls is None or acls.allows(call.principal, call.host, operation, resource, name)

    def is_authorized_for_any(self, call: Call, operation: int, resource: int) -> bool:
        """May whoever called do this with any resource of this type?"""
        if call.injected_error is not None:
            return False
        return self.acls is None or self.acls.allows_any(call.principal, call.host, operation, resource)

    def is_leader(self, partition: Partition, index: int) -> bool:
        """Is this broker the one to ask about a partition?"""
        return self.cluster.leader(partition, index) == self.node.id

    def step_group_coordinator(self, event: CoordinatorEvent, now: int) -> None:
        """Tell the group coordinator, and answer whom it answers."""
        actions = tuple(self.coordinator.step(event, now))
        self.actions.append(GroupCoordinatorStep(event, actions))
        for action in actions:
            if isinstance(action, SendResponse) and isinstance(action.token, int):
                self.answer(action.token, action.response)

    def step_transaction_coordinator(
        self, event: transactions.TransactionEvent, now: int
    ) -> tuple[transactions.TransactionAction, ...]:
        """Tell the transaction coordinator, answer whom it answers, and write the markers that it wants."""
        actions = tuple(transactions.step(self.transactions, event, now))
        self.actions.append(TransactionCoordinatorStep(event, actions))
        for action in actions:
            if isinstance(action, transactions.WriteMarkers):
                self._mark(action, now)
                self.step_transaction_coordinator(transactions.MarkersWritten(action.transactional_id), now)
            elif isinstance(action.token, int):
                self.answer(action.token, action.response)
        return actions

    def _mark(self, wanted: transactions.WriteMarkers, now: int) -> None:
        """End a transaction in every partition that takes part, and for the groups whose offsets do."""
        changed: list[Partition] = []
        for name, index in wanted.partitions:
            if name == OFFSETS_TOPIC:
                self.cluster.clear_pending_offsets(wanted.producer_id, (name, index))
            topic = self.topics.named(name)
            partition = None if topic is None else topic.partition(index)
            if topic is not None and partition is not None:
                partition.mark(
                    wanted.producer_id,
                    wanted.producer_epoch,
                    self.wall_clock,
                    committed=wanted.committed,
                    limits=topic.limits(self.settings),
                )
                changed.append(partition)
        if any(name == OFFSETS_TOPIC for name, _ in wanted.partitions):
            self.step_group_coordinator(TransactionEnded(wanted.producer_id, wanted.committed), now)
        self.wake(changed)

    def create_topic(
        self, name: str, count: int, random_id: UUID, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic that passed `topics.refusal`; call `Cluster.assign_leaders` next."""
        return self.topics.create(name, uuid5(random_id, name), count, configs)

    def delete_topic(self, topic: Topic, now: int) -> None:
        """Delete a topic: waiting fetches hear of it, and the coordinator forgets its offsets."""
        self.topics.delete(topic)
        for partition in topic.partitions:
            self.cluster.leaders.pop(partition, None)
        self.step_group_coordinator(TopicsDeleted(frozenset({topic.name})), now)
        self.wake(topic.partitions)

    def park(self, fetch: DelayedRequest) -> None:
        """Keep a fetch until there is enough to read or its time is up."""
        self.purgatory.add(fetch)

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Something changed in these partitions: look again at the fetches that wait for it, also at other
        brokers: a marker is written by who coordinates the transaction.
        """
        changed = list(partitions)
        for broker in self.cluster.brokers.values():
            for fetch in broker.purgatory.waiting_for([*changed, *broker.fetch_sessions.activate(changed)]):
                response = fetch.try_complete()
                if response is None:
                    broker.purgatory.update(fetch)
                else:
                    broker.purgatory.remove(fetch.call.conn)
                    self.answer(fetch.call.conn, response)
