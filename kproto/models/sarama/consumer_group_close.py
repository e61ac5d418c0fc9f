"""The end of a session of a ConsumerGroup, the return of Consume, and Close (sarama v1.61.1).

The module follows consumer_group.go and consumer_group_session.go.

* At the end of a session its context is canceled, all claims return, Cleanup is called, and the marked
  offsets are committed one last time. Only then do the heartbeats stop (M113, M103).

* A session whose offsets could not be fetched ends without Cleanup.

* An error of Consume is reported, and the next call follows after 300 ms. With the option "Once" no further
  call follows.

* Close waits until Consume returns. Then the member leaves if it has a member id and no instance id (M60).
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..contract import Notify
from . import errors
from .broker import BrokerResponse, SaramaBroker
from .config import api_key
from .consumer_group_session import GroupSession
from .consumer_group_state import S, SaramaGroup
from .errors import GoError
from .offset_manager_close import LastFlush

# The pause before the next call of Consume after an error.
AFTER_ERROR_MS = 300
# The first version of LeaveGroup that has a list of members.
_MEMBERS_SINCE = 3
# The error codes of LeaveGroup after which Leave returns no error.
_LEAVE_SUCCEEDED = {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}


def release(group: SaramaGroup) -> None:
    """Cancel the session; wait for its claims, or close its offsets if Setup was not called."""
    session = group.session
    assert session is not None
    session.cancel(errors.CANCELED)
    is_set_up = group.state is not S.FETCHING_OFFSETS
    group.move(S.RELEASING)
    if is_set_up:
        finish_release(group, None)
    else:
        close_offsets(group)


def finish_release(group: SaramaGroup, payload: object) -> None:
    """Call Cleanup as soon as all claims of the session have returned."""
    session = group.session
    assert session is not None
    if not session.running_claims and not session.ending_claims:
        group.move(S.CLEANING_UP)
        kind = "cleanup" if session.cooperative else "revoked"
        group.application.run_callback(kind, session.claims, group)


def on_cleanup_returned(group: SaramaGroup, payload: object) -> None:
    close_offsets(group)


def close_offsets(group: SaramaGroup) -> None:
    """Commit the marked offsets one last time; the event "offsets_closed" follows."""
    assert group.session is not None
    group.move(S.CLOSING_OFFSETS)
    LastFlush(group.session.offsets, group).start()


def stop_heartbeat(group: SaramaGroup, payload: object) -> None:
    """Stop the session's heartbeats, and return from Consume when they have stopped."""
    assert group.session is not None
    group.move(S.STOPPING)
    heartbeat = group.session.heartbeat
    heartbeat.stop()
    if heartbeat.state.value == "stopped":
        on_heartbeat_stopped(group, group.session)


def on_heartbeat_stopped(group: SaramaGroup, session: GroupSession) -> None:
    """Drop the session, keep the cause of its end for JoinGroup, and return from Consume."""
    if session is not group.session:
        return
    group.session = None
    group.last_cause = None if session.cause == errors.CANCELED else session.cause
    error, group.error = group.error, None
    return_from_consume(group, error)


def return_from_consume(group: SaramaGroup, error: GoError | None) -> None:
    """Return from Consume to the application, which calls Consume again or closes the group."""
    client = group.client
    if error is not None and error != errors.CLOSED_GROUP:
        client.report(error)
    if group.closed:
        leave(group)
        return
    if client.settings.once:
        client.out.append(Notify("returned", "Consume"))
        group.requested_topics = None
    if error is None:
        client.resume(group, "consume")
        return
    group.move(S.PAUSING)
    client.sleep(group, client.now + AFTER_ERROR_MS)


# Close


def leave_if_closed(group: SaramaGroup, payload: object) -> None:
    """Send LeaveGroup if the group is closed. The caller has made sure that no Consume is running."""
    if group.closed:
        leave(group)


def leave(group: SaramaGroup) -> None:
    """Send LeaveGroup, if necessary after a coordinator lookup; close if there is no member id."""
    if not group.member_id:
        close(group)
        return
    broker = group.client.coordinator.cached()
    group.move(S.FINDING_COORDINATOR)
    if broker is None:
        group.client.coordinator.look_up(group)
    else:
        _send_leave(group, broker)


def leave_on_coordinator(group: SaramaGroup, error: GoError | None) -> None:
    """After the coordinator's lookup, send LeaveGroup. If the lookup failed, report the error and close."""
    broker = group.client.coordinator.cached()
    if error is not None or broker is None:
        group.client.report(error or errors.COORDINATOR_NOT_AVAILABLE)
        close(group)
    else:
        _send_leave(group, broker)


def _send_leave(group: SaramaGroup, broker: SaramaBroker) -> None:
    """Send LeaveGroup; a static member closes without it."""
    settings = group.client.settings
    if settings.instance_id is not None:
        close(group)
        return
    group.move(S.LEAVING)
    if group.client.version(api_key(LeaveGroupRequest)) < _MEMBERS_SINCE:
        request = LeaveGroupRequest(group_id=settings.group_id, member_id=group.member_id)
    else:
        member = MemberIdentity(member_id=group.member_id, reason="the consumer is being closed")
        request = LeaveGroupRequest(group_id=settings.group_id, members=[member])
    broker.call(group, request)


def on_leave_response(group: SaramaGroup, broker_response: BrokerResponse) -> None:
    response = broker_response.response
    if not isinstance(response, LeaveGroupResponse):
        broker_response.broker.close()
        group.client.report(broker_response.error or errors.INCOMPLETE)
    elif response.error_code not in _LEAVE_SUCCEEDED:
        group.client.report(errors.kafka(response.error_code))
    close(group)


def close(group: SaramaGroup) -> None:
    """Forget the member id, and close the client."""
    group.member_id = ""
    group.move(S.CLOSED)
    group.client.close()
