"""Where each partition is: what to find out first, what to fetch next, what was handed out.

Rules that hold here:

* `position` is the offset of the next record to hand out; `fetch_offset` runs ahead of it by what is
  buffered. `processed` is the position at the last poll: what an automatic commit may say, because the
  application came back for more.
* Every seek, reset or new assignment raises `epoch`; an answer that was asked for in an earlier epoch is
  ignored. So the last seek wins over whatever is under way (I8).
* A partition hands out records only when it is ready, not paused, not being revoked, its assigned callback
  has returned, and the offset it starts from is committed where that is asked for (`unsaved`, rule M206).
* Pausing changes nothing else: buffered records stay, positions stay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from .buffers import Chunk

# How many fetched pieces a partition may hold: one that is being handed out, and the next.
PREFETCH = 2


class Phase(Enum):
    """What a partition is waiting for."""

    finding = "finding"  # the group's committed offset
    listing = "listing"  # where the reset policy points
    ready = "ready"  # nothing: it has a position


@dataclass(frozen=True, slots=True)
class Reset:
    """A start position to be asked of the leader: ListOffsets' timestamp, and why."""

    timestamp: int
    reason: str
    # True when nobody committed anything yet: the result is committed before the first record (M206).
    save: bool = False


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition."""

    partition: TopicPartition
    phase: Phase = Phase.finding
    position: int = 0
    processed: int | None = None
    leader_epoch: int | None = None
    fetch_offset: int = 0
    committed: int | None = None
    reset: Reset | None = None
    unsaved: bool = False
    paused: bool = False
    revoking: bool = False
    announced: bool = False
    new: bool = False
    epoch: int = 0
    asking: bool = False
    fetching: bool = False
    retry_at: int = 0
    # The offset at which a fetch beside the waiting one found nothing.
    dry_at: int = -1
    error: KprotoError | None = None
    chunks: deque[Chunk] = field(default_factory=deque[Chunk])
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    replica: int | None = None
    replica_until: int = 0

    def start_at(self, offset: int, leader_epoch: int | None = None) -> None:
        """The position is known: from the group, from a leader, or from a seek."""
        self._forget()
        self.phase = Phase.ready
        self.position = self.fetch_offset = offset
        self.processed = offset
        self.leader_epoch = leader_epoch

    def find_out(self, reset: Reset) -> None:
        """The position has to be asked of the leader."""
        self._forget()
        self.phase = Phase.listing
        self.reset = reset

    def find_committed(self) -> None:
        """The position has to be asked of the group."""
        self._forget()
        self.phase = Phase.finding

    def _forget(self) -> None:
        self.epoch += 1
        self.asking = False
        self.fetching = False
        self.retry_at = 0
        self.reset = None
        self.error = None
        self.unsaved = False
        self.dry_at = -1
        self.chunks.clear()

    @property
    def known(self) -> bool:
        return self.phase is Phase.ready

    @property
    def fetchable(self) -> bool:
        return (
            self.phase is Phase.ready
            and not self.paused
            and not self.revoking
            and self.error is None
            and not self.fetching
            and len(self.chunks) < PREFETCH
        )

    @property
    def urgent(self) -> bool:
        """There is probably something to fetch: worth a request beside the one that waits at the broker."""
        if self.fetch_offset == self.dry_at:
            return False
        return self.high_watermark is None or self.fetch_offset < self.high_watermark

    @property
    def deliverable(self) -> bool:
        return (
            self.phase is Phase.ready
            and not self.paused
            and not self.revoking
            and self.announced
            and not self.unsaved
            and self.error is None
        )

    @property
    def lag(self) -> int | None:
        """Records behind the end, as the last fetch told it."""
        end = self.last_stable_offset if self.last_stable_offset is not None else self.high_watermark
        return None if end is None or not self.known else max(0, end - self.position)
