"""The classic member's implementation of `ClientMember`, the interface in `kproto.group.protocol`."""

from __future__ import annotations

from ....deadlines import earliest
from ....error_codes import RETRIABLE, ErrorCode
from ....messages.heartbeat import HeartbeatResponse
from ....messages.join_group import JoinGroupResponse
from ....messages.sync_group import SyncGroupResponse
from ....wire.message import Message
from ...protocol import MemberAction, MemberConfig, MemberEvent
from . import leave, table, timers
from .policy import AS_JAVA, KPROTO
from .state import Member, MemberState, sends_heartbeats

# After these errors of JoinGroup and SyncGroup the member rejoins and reports no error to the application.
# MEMBER_ID_REQUIRED is not listed, because it is part of every first join (KIP-394).
REJOINED_ERRORS = RETRIABLE | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
}
# The error codes of Heartbeat to which the member reacts. After any other code it only sends the next
# Heartbeat, as Java does.
HANDLED_HEARTBEAT_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


class ClassicMember(Member):
    """A `Member` that implements `kproto.group.protocol.ClientMember`."""

    def step(self, event: MemberEvent, now: int) -> list[MemberAction]:
        return table.step(self, event, now)

    def on_poll(self, now: int) -> None:
        if self.poll_ends_at is not None:
            self.poll_ends_at = now + self.config.rebalance_timeout_ms

    def next_deadline(self) -> int | None:
        return timers.next_deadline(self)

    @property
    def is_stable(self) -> bool:
        return self.state is MemberState.STABLE and self.assignment_error is None

    @property
    def is_joining(self) -> bool:
        return self.state is MemberState.JOINING

    @property
    def is_unsubscribing(self) -> bool:
        return self.state is MemberState.UNSUBSCRIBING

    def assignment_deadline(self) -> int | None:
        session_end = None
        if self.policy.lose_on_session_timeout:
            session_end = timers.session_end(self, sends_heartbeats(self))
        return earliest(session_end, timers.poll_end(self))

    def is_pending(self, request: Message) -> bool:
        return self.rebalance_request is request

    def in_version(self, request: Message, version: int) -> Message:
        return leave.in_version(request, version)

    def retried_error(self, response: Message) -> int | None:
        if isinstance(response, HeartbeatResponse):
            is_handled = response.error_code in HANDLED_HEARTBEAT_ERRORS
            return 0 if is_handled else response.error_code
        if isinstance(response, JoinGroupResponse | SyncGroupResponse):
            code = response.error_code
            return code if code in REJOINED_ERRORS or self.is_rejoining_repeatedly else 0
        return None


def create_classic_member(config: MemberConfig) -> ClassicMember:
    """Return a new member of the classic protocol (`group.protocol=classic`)."""
    return ClassicMember(config, AS_JAVA if config.as_java else KPROTO)
