"""Mutants (patched mistakes) for scenarios about rebalances: the coordinator, assignors, Java's model."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.group.classic.coordinator import joins, membership
from kproto.group.classic.coordinator.rebalance import prepare_rebalance
from kproto.group.classic.coordinator.state import GroupContext
from kproto.models.java import offset_commits
from tests.scenarios.mutants.document_2 import ALL_REVOKED
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_replace_incarnation = joins._replace_incarnation
_answer_heartbeat = membership._answer_heartbeat


def _replace_and_rebalance(context: Any, group: Any, call: Any) -> Any:
    member = _replace_incarnation(context, group, call)
    prepare_rebalance(context, group, "a static member returned")
    return member


def _hide_rebalance(context: Any, group: Any, call: Any, code: ErrorCode) -> None:
    _answer_heartbeat(context, group, call, ErrorCode.NONE)


def _restart_twice_the_session(context: GroupContext, group: Any, member: Any) -> None:
    member.deadline = context.wake_at(group, context.now + 2 * member.session_timeout_ms)


MUTANTS: Table = {
    "S4-1": Mutant(
        "a static member that returns causes a rebalance",
        joins,
        "_replace_incarnation",
        _replace_and_rebalance,
    ),
    "S4-2": Mutant("sessions last for an hour", GroupContext, "restart_session", nothing),
    "S4-3": Mutant("all processes have one member id", joins, "_new_member_id", lambda call: "member"),
    "S4-4": Mutant(
        "sessions last twice as long", GroupContext, "restart_session", _restart_twice_the_session
    ),
    "S4-5": Mutant("heartbeats hide the rebalance", membership, "_answer_heartbeat", _hide_rebalance),
    "S4-6": ALL_REVOKED,
    "S4-7": Mutant(
        "sticky assigns as range does", ASSIGNORS, "sticky", Assignor("sticky", ASSIGNORS["range"].assign)
    ),
    "S4-8": Mutant("no commit is sent", offset_commits, "send_offset_commit", nothing),
}
