"""Followers that leaders send to (KIP-392): who is asked for a partition, and whether its leader may send on.

Rules that hold here:

* A leader sends whoever tells a rack to a follower there, and brings no records itself. That holds for
  metadata.max.age.ms; then the leader is asked again.
* A follower's word is not final (M154): an error, or no answer, leads back to the leader, which is told no
  rack for a while. Told one, it would send there again, and nobody would read the partition for as long as
  the follower is broken, or the way to it.
* That while is ALONE_MS, doubled by each failure until a follower brings records: who tries one that can't be
  reached waits for it, and for no records, in that time.
* A rack is told for all partitions of a fetch, or for none.
"""

from __future__ import annotations

from ...options import ConsumerOptions
from ..core import Core
from ..positions.partition_states import PartitionState

# How long no rack is told after the first failure.
ALONE_MS = 10_000


class Replicas:
    """Which partitions are read at a follower."""

    def __init__(self, core: Core[ConsumerOptions]) -> None:
        self._core = core
        # Leader -> until when it is told no rack.
        self._alone: dict[int, int] = {}

    def asked(self, state: PartitionState) -> int | None:
        """The broker to ask for it: the follower that it was sent to, else its leader, if there is one."""
        core = self._core
        if state.replica is not None:
            if state.replica_until > core.now and state.replica in core.view.brokers:
                return state.replica
            state.replica = None
        leader = core.view.leader(state.partition)
        if leader is not None and state.alone_until > core.now:
            self._alone[leader] = max(state.alone_until, self._alone.get(leader, 0))
        return leader

    def rack(self, node: int) -> str:
        """What to tell this broker."""
        return "" if self._alone.get(node, 0) > self._core.now else self._core.options.client_rack

    def sent(self, state: PartitionState, follower: int) -> None:
        """Its leader sends to this one."""
        state.replica = follower
        state.replica_until = self._core.now + self._core.options.metadata_max_age_ms
        self._core.partitions.sleep(state, state.replica_until)
        state.touch()

    def brought(self, state: PartitionState, node: int) -> None:
        """This broker had records of it."""
        if state.replica == node:
            state.strays = 0

    def back(self, state: PartitionState) -> None:
        """Where it was sent to there is nothing to be had: its leader is asked."""
        state.replica = None
        wait = min(ALONE_MS << min(state.strays, 16), self._core.options.metadata_max_age_ms)
        state.alone_until = self._core.now + wait
        state.strays += 1
        state.touch()
