"""Reports that the application has read a partition to its end (librdkafka's PARTITION_EOF).

Rules:

* The event "end" is reported one poll after the poll that returns the partition's last record. So the
  application receives the record first.

* The end of a partition is the last stable offset with read_committed, and otherwise the high watermark, as
  of the last Fetch response.

* After the end has been reported, it is reported again only after further records or a seek.
"""

from __future__ import annotations

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import FetchState, PartitionState


class PartitionEnds:
    """The partitions that may have reached their end since the last poll.

    The methods are called only if `enabled` is true.
    """

    def __init__(self, core: ClientCore[ConsumerOptions]) -> None:
        self._core = core
        self.enabled = core.options.enable_partition_eof
        # The partitions that `visit` has found at their ends since the last poll.
        self._candidates: dict[PartitionState, None] = {}

    def visit(self, state: PartitionState) -> None:
        """If the partition is at its end, store the partition for `report`, and wake the poll.

        Call this method after a response without records, and after each change of the partition's state.

        The calls after changes are needed for a seek to the end: in a fetch session, the broker omits a
        partition whose end has not changed, so its next response may not contain this partition.
        """
        if not state.end_reported and _is_at_end(state):
            self._candidates[state] = None
            self._core.wake_poll()

    def report(self) -> None:
        """Report the ends that were reached before this poll."""
        candidates, self._candidates = self._candidates, {}
        for state in {**candidates, **dict.fromkeys(self._core.partitions.returned.values())}:
            if not state.end_reported and _is_at_end(state):
                state.end_reported = True
                self._core.report("end", [state.partition], offset=state.position)


def _is_at_end(state: PartitionState) -> bool:
    """Return whether the partition has no buffered records, and no records after its position."""
    return (
        state.state is FetchState.FETCHING
        and not state.released
        and not state.fetches
        and state.error is None
        and state.high_watermark is not None
        and not state.has_more
    )
