"""How a session of a ConsumerGroup ends, what Consume returns, and Close (sarama v1.61.1: consumer_group.go,
consumer_group_session.go).

* Release: the session's context ends, all claims return, Cleanup is called, the offsets are flushed for the
  last time, and only then do the heartbeats stop (M113, M103). A session whose offsets could not be fetched
  is released without Cleanup.
* An error of Consume is told, and the next call comes 300 ms later; "Once" leaves it at one call (S1-3).
* Close waits for Consume to return, then leaves, if the member has an id and no instance id (M60).
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..contract import Notify
from . import errors
from .broker import Answer, Broker
from .config import key
from .consumer_group_session import Session
from .consumer_group_state import Group, S
from .errors import Trouble
from .offset_manager_close import LastFlush

AFTER_ERROR_MS = 300  # how long the loop around Consume waits after an error
_MEMBERS_SINCE = 3  # LeaveGroup's members
_LEFT = {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}


def release(group: Group) -> None:
    session = group.session
    assert session is not None
    session.cancel(errors.CANCELED)
    cleans_up = group.state is not S.managing
    group.move(S.releasing)
    if cleans_up:
        released(group, None)
    else:
        let_go(group)


def released(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    if not session.running and not session.ending:
        group.move(S.cleaning_up)
        kind = "cleanup" if session.cooperative else "revoked"
        group.application.tell(kind, session.claims, group)


def cleaned_up(group: Group, what: object) -> None:
    let_go(group)


def let_go(group: Group) -> None:
    assert group.session is not None
    group.move(S.letting_go)
    LastFlush(group.session.offsets, group).start()


def stop_heartbeat(group: Group, what: object) -> None:
    assert group.session is not None
    group.move(S.stopping)
    heartbeat = group.session.heartbeat
    heartbeat.stop()
    if heartbeat.state.value == "stopped":
        stopped(group, group.session)


def stopped(group: Group, session: Session) -> None:
    if session is not group.session:
        return
    group.session = None
    group.last_cause = None if session.cause == errors.CANCELED else session.cause
    error, group.error = group.error, None
    returned(group, error)


def returned(group: Group, error: Trouble | None) -> None:
    """Consume has returned to the application."""
    client = group.client
    if error is not None and error != errors.CLOSED_GROUP:
        client.report(error)
    if group.closed:
        leave(group)
        return
    if client.settings.once:
        client.out.append(Notify("returned", "Consume"))
        group.wanted = None
    if error is None:
        group.client.resume(group, "again")
        return
    group.move(S.pausing)
    client.sleep(group, client.now + AFTER_ERROR_MS)


# Close


def leave_now(group: Group, what: object) -> None:
    """Nobody is in Consume: Close has nothing to wait for."""
    if group.closed:
        leave(group)


def leave(group: Group) -> None:
    if not group.member_id:
        close(group)
        return
    broker = group.client.coordinator.cached()
    group.move(S.looking)
    if broker is None:
        group.client.coordinator.look_up(group)
    else:
        _send_leave(group, broker)


def found_to_leave(group: Group, trouble: Trouble | None) -> None:
    broker = group.client.coordinator.cached()
    if trouble is not None or broker is None:
        group.client.report(trouble or errors.COORDINATOR_NOT_AVAILABLE)
        close(group)
    else:
        _send_leave(group, broker)


def _send_leave(group: Group, broker: Broker) -> None:
    settings = group.client.settings
    if settings.instance_id is not None:
        close(group)
        return
    group.move(S.leaving)
    if group.client.version(key(LeaveGroupRequest)) < _MEMBERS_SINCE:
        request = LeaveGroupRequest(group_id=settings.group_id, member_id=group.member_id)
    else:
        member = MemberIdentity(member_id=group.member_id, reason="the consumer is being closed")
        request = LeaveGroupRequest(group_id=settings.group_id, members=[member])
    broker.call(group, request)


def left(group: Group, answer: Answer) -> None:
    response = answer.response
    if not isinstance(response, LeaveGroupResponse):
        answer.broker.close()
        group.client.report(answer.error or errors.INCOMPLETE)
    elif response.error_code not in _LEFT:
        group.client.report(errors.kafka(response.error_code))
    close(group)


def close(group: Group) -> None:
    group.member_id = ""
    group.move(S.closed)
    group.client.close()
