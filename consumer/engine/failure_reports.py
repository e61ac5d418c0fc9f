"""What brokers refuse again and again: tried again without end, and told when it takes long.

    refusals.refused("OffsetCommit", "orders-0 was answered with ...", now, partition, again=False)

Rules that hold here:

* Every kind of request that is tried again without end says here each time that it was in vain, and whether
  the time before was, too (`again`). Whoever says nothing is not refused any more.
* What has been in vain for PATIENCE_MS is reported: what, why, how long, and for which partitions, together.
  Then again after growing gaps, as long as it lasts.
* Nothing here has a clock of its own: who is refused comes back by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kproto.group.subscription import TopicPartition

# A broker that restarts, or elects leaders, refuses for a moment: that is no news.
PATIENCE_MS = 5_000
# Between one report and the next: first, and at most.
FIRST_GAP_MS = 30_000
LONGEST_GAP_MS = 600_000


class Gaps(msgspec.Struct):
    """When something that lasts is told again."""

    next_at: int = 0
    gap: int = FIRST_GAP_MS

    def over(self, now: int) -> bool:
        """Whether it is time to tell; then the next time is later."""
        if now < self.next_at:
            return False
        self.next_at = now + self.gap
        self.gap = min(2 * self.gap, LONGEST_GAP_MS)
        return True


class _Refused(msgspec.Struct, eq=False):
    """One request that is in vain for one reason: since when and when last, for each partition (or None)."""

    since: dict[TopicPartition | None, tuple[int, int]]
    last: int
    gaps: Gaps


class Refusals:
    """`tell(partitions, reason)` is called when something has been refused for long. `pause_ms`: no request
    that is tried again stays away for longer."""

    def __init__(self, tell: Callable[[Iterable[TopicPartition], str], None], pause_ms: int) -> None:
        self._tell = tell
        self._pause = pause_ms
        self._known: dict[tuple[str, str], _Refused] = {}

    def refused(
        self, request: str, why: str, now: int, partition: TopicPartition | None = None, *, again: bool
    ) -> None:
        """This was in vain just now, and is tried again."""
        known = self._known.get((request, why))
        if known is None or now - known.last > self._pause:
            self._forget(now)
            known = self._known[request, why] = _Refused({}, now, Gaps())
        known.last = now
        if not again:
            for (name, _), one in self._known.items():
                if name == request:
                    one.since.pop(partition, None)  # it succeeded since
        since, last = known.since.get(partition, (now, now))
        if not again or now - last > self._pause:
            since = now
        known.since[partition] = since, now
        if now - since >= PATIENCE_MS and known.gaps.over(now):
            self._say(request, why, known, now)

    def _say(self, request: str, why: str, known: _Refused, now: int) -> None:
        """One report for all partitions that wait for the same."""
        known.since = {one: at for one, at in known.since.items() if now - at[1] <= self._pause}
        late = {one: since for one, (since, _) in known.since.items() if now - since >= PATIENCE_MS}
        seconds = (now - min(late.values())) // 1000
        partitions = sorted(one for one in late if one is not None)
        self._tell(partitions, f"{request} has been in vain for {seconds} s: {why}; trying again")

    def _forget(self, now: int) -> None:
        self._known = {key: one for key, one in self._known.items() if now - one.last <= self._pause}
