"""State that all parts of a client share: options, network, partitions, time, errors and outgoing actions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from kproto.errors import KprotoError, brief_list
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ..errors import broker_error
from ..records import GroupChange
from .events import Action, Report, Wake
from .failure_reports import FailureReports
from .group.status import GroupStatus
from .metadata.cluster import ClusterView
from .network.call import Call, Prepared
from .network.client import MAIN, NetworkClient
from .positions.partition_states import SubscriptionState
from .timeouts import Backoff

Then = Callable[[Call], None]


class CommonOptions(Protocol):
    """The options that the shared parts of the engine read; every kind of client has them."""

    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...
    @property
    def metadata_max_age_ms(self) -> int: ...
    @property
    def allow_auto_create_topics(self) -> bool: ...
    @property
    def metadata_recovery_rebootstrap_trigger_ms(self) -> int: ...
    @property
    def recovers(self) -> bool: ...


Options = TypeVar("Options", bound=CommonOptions)


class ClientCore(Generic[Options]):
    """The state that all parts of one client engine share."""

    def __init__(
        self,
        options: Options,
        network: NetworkClient,
        wall: Callable[[], int] | None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.network = network
        # The wall clock: it returns milliseconds since 1970.
        self.wall = wall or self.clock
        # The time (ms) of the engine's clock at its last step.
        self.now = 0
        self.random = random or Random()
        self.backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, self.random)
        # The time (ms) of the newest failure. The dict is for failures at this time: it maps a number of
        # earlier failures to the time (ms) of the retry.
        self._retry_times: tuple[int, dict[int, int]] = (0, {})
        self.partitions = SubscriptionState(self.clock)
        # Topic -> its newest id, from a broker or from `local_id`. The ids of deleted topics are kept, so
        # that a re-created topic is recognized.
        self.topic_ids: dict[str, UUID] = {}
        self.group_status = GroupStatus()
        self.actions: list[Action] = []
        self.failure_reports = FailureReports(
            lambda partitions, why: self.report("refused", partitions, reason=why),
            network.request_timeout_ms + 2 * options.retry_backoff_max_ms,
        )
        network.on_throttled = lambda why: self.report("throttled", reason=why)
        # Errors that poll has not raised yet. Each poll raises one; equal errors are queued once.
        self.errors: OrderedDict[tuple[type[KprotoError], str], KprotoError] = OrderedDict()

    @property
    def view(self) -> ClusterView:
        return self.network.view

    def clock(self) -> int:
        return self.now

    def next_retry_at(self, failures: int) -> int:
        """Return the time (ms) of the retry after a failure that follows `failures` consecutive failures.

        Partitions that fail at the same moment after equally many failures get the same retry time, so that
        one request retries them together.
        """
        failed_at, retry_times = self._retry_times
        if failed_at != self.now:
            self._retry_times = self.now, (retry_times := {})
        if failures not in retry_times:
            retry_times[failures] = self.now + self.backoff.after(failures)
        return retry_times[failures]

    def send(
        self,
        request: Message | Prepared,
        then: Then,
        *,
        node: int | None = None,
        lane: int = MAIN,
        timeout_ms: int | None = None,
        max_version: int | None = None,
    ) -> Call:
        """Send a request. `then` is called with the finished call, whatever its outcome."""
        return self.network.send(
            request,
            self.now,
            node=node,
            lane=lane,
            timeout_ms=timeout_ms,
            max_version=max_version,
            purpose=then,
        )

    def queue_error(self, error: KprotoError) -> None:
        """Queue `error` for a poll to raise, unless an equal error is queued, and wake a poll that waits."""
        self.errors.setdefault((type(error), str(error)), error)
        self.wake_poll()

    def queue_errors(self, request: str, codes: Mapping[TopicPartition, int]) -> None:
        """Queue one error for each error code. The error names all partitions with this code, as in Java."""
        for code in dict.fromkeys(codes.values()):
            names = [str(partition) for partition in sorted(codes) if codes[partition] == code]
            self.queue_error(broker_error(code, request, brief_list(names)))

    def report_failure(
        self, request: str, why: str, subject: TopicPartition | str | None = None, *, repeated: bool
    ) -> None:
        """Report a request that has failed and will be retried.

        `subject` is the partition or topic of the request, or None if the request has none or several.

        `repeated` says whether the previous attempt of this request also failed.
        """
        self.failure_reports.add_failure(request, why, self.now, subject, repeated=repeated)

    def pop_error(self) -> KprotoError | None:
        """Remove and return the oldest error that poll has not raised yet."""
        return self.errors.popitem(last=False)[1] if self.errors else None

    def wake_poll(self) -> None:
        """Wake a waiting poll, because records, an error or a callback may be ready."""
        if not any(isinstance(action, Wake) for action in self.actions):
            self.actions.append(Wake())

    def report(
        self,
        kind: str,
        partitions: Iterable[TopicPartition] = (),
        *,
        owned: Iterable[TopicPartition] = (),
        reason: str = "",
        offset: int | None = None,
        before: int | None = None,
    ) -> None:
        """Report a `GroupChange` with these attributes to event callbacks and to the log."""
        member_id, generation = self.group_status.member_and_generation
        change = GroupChange(
            self.wall(), kind, member_id, generation, tuple(partitions), tuple(owned), reason, offset, before
        )
        self.actions.append(Report(change))
