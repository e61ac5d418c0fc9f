"""Selects the broker to fetch from and the rack to send (preferred read replicas, KIP-392).

Rules:

* If a leader selects replicas by rack (`replica.selector.class`) and is in another rack than the client, it
  names a follower in the client's rack. It then returns no records itself.

* After the leader has named a follower, the client fetches from the follower for `metadata_max_age_ms`, and
  then from the leader again (M179).

* If the follower fails or does not respond, the client fetches from the leader again (M154, M179).

* After a failure of a follower, fetches to the leader omit the rack for a limited time. If they contained the
  rack, the leader would name the same follower again.

* Fetches omit the rack for `REPLICA_BACKOFF_MS` after the first failure of a follower. Each further failure
  doubles this time, up to `metadata_max_age_ms`. The count of failures is reset when a follower returns
  records.

* The rack is a field of the whole fetch. So if the follower of one partition has failed, fetches to the
  partition's leader omit the rack for every partition that they contain.
"""

from __future__ import annotations

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import PartitionState
from ..timeouts import REPLICA_BACKOFF_MS


class PreferredReplicas:
    """Selects the broker that a partition is fetched from."""

    def __init__(self, core: ClientCore[ConsumerOptions]) -> None:
        self._core = core
        # Leader -> time (ms) until which fetches to it omit the rack.
        self._no_rack_until: dict[int, int] = {}

    def select_node(self, state: PartitionState) -> int | None:
        """Return the broker to fetch from: the preferred replica, else the leader, else None.

        A preferred replica is dropped if it has expired or is missing in the metadata.
        """
        core = self._core
        if state.replica is not None:
            if state.replica_until > core.now and state.replica in core.view.brokers:
                return state.replica
            state.replica = None
        leader = core.view.leader(state.partition)
        if leader is not None and state.no_rack_until > core.now:
            self._no_rack_until[leader] = max(state.no_rack_until, self._no_rack_until.get(leader, 0))
        return leader

    def rack(self, node: int) -> str:
        """Return the client rack to send in a fetch to this broker; "" to omit the rack."""
        return "" if self._no_rack_until.get(node, 0) > self._core.now else self._core.options.client_rack

    def use_follower(self, state: PartitionState, follower: int) -> None:
        """Fetch the partition from the follower that its leader has named."""
        state.replica = follower
        state.replica_until = self._core.now + self._core.options.metadata_max_age_ms
        self._core.partitions.schedule(state, state.replica_until)
        state.mark_dirty()

    def on_records(self, state: PartitionState, node: int) -> None:
        """Reset the count of failures if a follower has returned records."""
        if state.replica == node:
            state.replica_failures = 0

    def return_to_leader(self, state: PartitionState) -> None:
        """Switch the partition from its failed follower back to its leader."""
        state.replica = None
        doublings = min(state.replica_failures, 16)
        wait_ms = min(REPLICA_BACKOFF_MS << doublings, self._core.options.metadata_max_age_ms)
        state.no_rack_until = self._core.now + wait_ms
        state.replica_failures += 1
        state.mark_dirty()
