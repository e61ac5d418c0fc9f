"""Leaving the group: rd_kafka_cgrp_leave and rd_kafka_cgrp_leave_maybe.

* The member id is reset before LeaveGroup is sent. The LeaveGroup response changes nothing.

* A static member sends LeaveGroup when it unsubscribes, but not when it closes.
"""

from __future__ import annotations

from ...messages.leave_group import LeaveGroupRequest
from .request import send_request
from .state import CgrpState, LibrdkafkaState, Out


def leave(state: LibrdkafkaState, out: Out) -> None:
    """Reset the member id and send LeaveGroup (rd_kafka_cgrp_leave)."""
    member_id, state.member_id = state.member_id, ""
    if state.wait_leave:
        return
    if state.coord.state is CgrpState.UP and state.coordinator is not None:
        state.wait_leave = True
        request = LeaveGroupRequest(group_id=state.config.group_id, member_id=member_id)
        send_request(state, state.coordinator, request, out)


def leave_maybe(state: LibrdkafkaState, out: Out) -> None:
    """Leave the group if the partitions were unassigned in order to leave (rd_kafka_cgrp_leave_maybe)."""
    if not state.leave_on_unassign_done:
        return
    state.leave_on_unassign_done = False
    if not (state.is_static and state.terminating):
        leave(state, out)
