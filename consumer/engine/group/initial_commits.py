"""The start of a partition without a commit: it is committed before its first record is handed out.

Rules that hold here:

* So a crash before the first commit can't turn "the end then" into "the end now" (M203 c).
* Those that are found together are saved together, by one commit.
* What no coordinator answered, or what another generation was asked for, is tried again with a growing pause:
  until it is safe, nothing of it is read. A start that is refused for good is told, and read from.
* Who closes waits for no second try: whoever reads the partition next decides anew, and that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kproto.error_codes import ErrorCode
from kproto.errors import AuthenticationFailed, BrokerError, ConnectionFailed, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ...options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import PartitionState

Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]
Then = Callable[[KprotoError | None], None]

# Who ends so has no answer of the coordinator: no time, no word that can be read, or not let in just now.
UNSAID = (RequestTimedOut, ConnectionFailed, AuthenticationFailed)


class Starts:
    """The partitions whose start is to be saved; `commit(offsets, then)` does that."""

    def __init__(self, core: ClientCore[ConsumerOptions], commit: Callable[[Offsets, Then], None]) -> None:
        self._core = core
        self._commit = commit
        self._waiting: dict[TopicPartition, PartitionState] = {}
        self._not_before = 0
        self._open = False
        self._failures = 0
        self.closing = False

    def save(self, state: PartitionState) -> None:
        """Commits the start of a partition that had no commit; it delivers when that is done."""
        state.start_uncommitted = True
        self._waiting[state.partition] = state
        state.mark_dirty()

    def due(self) -> int | None:
        return self._not_before if self._waiting and not self._open else None

    def pump(self) -> None:
        if not self._waiting or self._open or self._not_before > self._core.now:
            return
        waiting, self._waiting = self._waiting, {}
        live = {p: s for p, s in waiting.items() if s.start_uncommitted and not s.released}
        if not live:
            return
        epochs = {p: s.epoch for p, s in live.items()}
        self._open = True

        def done(error: KprotoError | None) -> None:
            self._open = False
            self._ended([s for p, s in live.items() if s.epoch == epochs[p] and not s.released], error)

        self._commit({p: (s.position, s.leader_epoch, "") for p, s in live.items()}, done)

    def _ended(self, states: Iterable[PartitionState], error: KprotoError | None) -> None:
        core = self._core
        again: list[PartitionState] = []
        left: list[TopicPartition] = []
        for state in states:
            if error is None or state.committed == state.position:
                state.on_start_committed()
            elif self.closing:
                left.append(state.partition)
            elif isinstance(error, UNSAID) or _by_another_generation(error):
                again.append(state)
            else:
                state.on_start_committed()
                core.queue_error(error)
        if left:
            core.report("uncommitted", left, reason=f"where they start was not saved: {error}")
        if again:
            if error is not None and not isinstance(error, (RequestTimedOut, BrokerError)):
                core.queue_error(error)
            self._not_before = core.now + core.backoff.after(self._failures)
            self._failures += 1
            self._waiting.update({state.partition: state for state in again})
        else:
            self._failures = 0
        core.wake_poll()

    def clear(self) -> None:
        """Nothing is sent any more."""
        self._waiting.clear()


def _by_another_generation(error: KprotoError) -> bool:
    code = getattr(error, "code", None)
    return code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
