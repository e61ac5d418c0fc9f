"""ListPartitionReassignments."""

from __future__ import annotations

from kproto.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.stage import Stage


def test_no_replica_is_on_its_way() -> None:
    answer = Stage({"t": 1}).client().ask(ListPartitionReassignmentsRequest(topics=None))
    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
