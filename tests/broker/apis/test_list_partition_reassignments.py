"""ListPartitionReassignments lists nothing, because the broker completes reassignments immediately."""

from __future__ import annotations

from kproto.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.stage import Stage


def test_no_reassignment_is_ever_in_progress() -> None:
    response = Stage({"t": 1}).client().ask(ListPartitionReassignmentsRequest(topics=None))
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])
