"""Mutants: members with one broken rule, each of which must fail a test of the members.

A mutant that passes all tests shows that a rule is not tested.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kproto.group.assignors import ASSIGNORS, Assignor, sticky
from kproto.group.classic.member import (
    EDGES,
    CloseRequested,
    Fatal,
    Member,
    MemberState,
    Unsubscribed,
    assignment,
    coordinator_lookup,
    heartbeat,
    join,
    leadership,
    leave,
    membership,
    revocation,
    state,
    subscription,
    table,
    timers,
)
from kproto.group.subscription import ReportedOwnership
from tests.group.classic.behaviour import test_groups
from tests.group.classic.member import (
    test_heartbeat,
    test_join,
    test_leadership,
    test_leave,
)

CODE = [
    assignment,
    coordinator_lookup,
    heartbeat,
    join,
    leadership,
    leave,
    membership,
    revocation,
    state,
    subscription,
    table,
    timers,
]
CLAIMS = [
    test_groups,
    test_heartbeat,
    test_leadership,
    test_join,
    test_leave,
]

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(change: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[change.__name__] = change
    return change


def replace(patch: Patch, name: str, new: Any) -> None:
    """Replace `name` in all modules of the member, and in the table."""
    modules = [module for module in CODE if hasattr(module, name)]
    assert modules, f"no module of the member defines {name!r}"
    for module in modules:
        original = getattr(module, name)
        patch.setattr(module, name, new)
        for position, cell in table.TABLE.items():
            if inspect.unwrap(cell.act) is original:
                patch.setitem(table.TABLE, position, cell._replace(act=new))


def claims(*modules: ModuleType) -> Iterator[Callable[[], None]]:
    """Yield all tests of the modules with all their parameters, except tests that need a fixture."""
    for module in modules:
        for name, test in vars(module).items():
            if name.startswith("test_"):
                for values in _parameters(test):
                    if values.keys() == inspect.signature(test).parameters.keys():
                        yield partial(test, **values)


def _parameters(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    parameter_sets: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, cases = mark.args
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        rows = [dict(zip(split, case if len(split) > 1 else [case], strict=True)) for case in cases]
        parameter_sets = [{**parameters, **row} for parameters in parameter_sets for row in rows]
    yield from parameter_sets


def fails(claim: Callable[[], None]) -> bool:
    try:
        claim()
    except AssertionError:
        return True
    return False


# Revocation


@mutant
def an_eager_member_joins_without_a_revocation(patch: Patch) -> None:
    def prepare(who: Member, out: Any) -> None:
        who.is_prepared = who.is_prepared or not who.cooperative
        original(who, out)

    original = join.prepare_join
    replace(patch, "prepare_join", prepare)


@mutant
def a_cooperative_member_adopts_before_the_release(patch: Patch) -> None:
    def synced(who: Member, request: Any, answer: Any, out: Any) -> None:
        keep, who.owned = who.owned, ()
        original(who, request, answer, out)
        if who.state is not MemberState.STABLE:
            who.owned = keep

    original = assignment._apply_assignment
    replace(patch, "_apply_assignment", synced)


@mutant
def no_second_join_follows_a_revocation(patch: Patch) -> None:
    def released(who: Member, event: Any, now: int, out: Any) -> None:
        original(who, event, now, out)
        who.rejoin_needed = False

    original = assignment.on_released_adopting
    replace(patch, "on_released_adopting", released)


@mutant
def partitions_of_unsubscribed_topics_are_kept(patch: Patch) -> None:
    replace(patch, "is_subscribed", lambda who, topic: True)


@mutant
def released_partitions_stay_in_the_subscription(patch: Patch) -> None:
    def forget(who: Member) -> None:
        who.unreleased = None

    replace(patch, "finish_release", forget)


# Errors


@mutant
def repeated_joins_have_no_backoff(patch: Patch) -> None:
    replace(patch, "back_off_from_repeated_joins", lambda who, now: None)


@mutant
def every_assignment_is_final(patch: Patch) -> None:
    """A mutant: every assignment resets the number of repeated joins.

    With this mutant, a cooperative member that rejoins right after each assignment never backs off.
    """

    def adopt(who: Member, *more: Any) -> None:
        original(who, *more)
        who.joins = 0

    original = assignment.adopt
    replace(patch, "adopt", adopt)


@mutant
def every_response_counts_for_the_current_generation(patch: Patch) -> None:
    replace(patch, "is_current", lambda who, generation, member_id: who.generation is not None)


@mutant
def no_response_counts_for_the_current_generation(patch: Patch) -> None:
    replace(patch, "is_current", lambda who, generation, member_id: False)


@mutant
def a_reset_member_keeps_its_partitions(patch: Patch) -> None:
    def reset(who: Member, reason: str, out: Any, *, keep_id: bool) -> None:
        keep, who.owned = who.owned, ()
        original(who, reason, out, keep_id=keep_id)
        who.owned = keep

    original = membership.reset
    replace(patch, "reset", reset)


@mutant
def an_unknown_member_keeps_its_id(patch: Patch) -> None:
    original = membership.forget_membership
    replace(patch, "forget_membership", lambda who, reason, keep_id: original(who, reason, keep_id=True))


@mutant
def a_fenced_member_rejoins(patch: Patch) -> None:
    replace(patch, "fence", lambda who, request, out: membership.reset(who, "fenced", out, keep_id=False))


@mutant
def a_fatal_error_keeps_the_partitions(patch: Patch) -> None:
    def fail(who: Member, error: Any, reason: str, out: Any) -> None:
        state.move(who, MemberState.FAILED)
        out.append(Fatal(error))

    replace(patch, "fail", fail)


@mutant
def heartbeats_do_not_cause_a_rejoin(patch: Patch) -> None:
    def want(who: Member, reason: str) -> None:
        if reason != "group is already rebalancing":
            original(who, reason)

    original = state.request_rejoin
    replace(patch, "request_rejoin", want)


# Timers


@mutant
def no_heartbeat_is_sent_while_partitions_are_released(patch: Patch) -> None:
    fewer = state.HEARTBEATING - {MemberState.RELEASING, MemberState.ADOPTING}
    replace(patch, "HEARTBEATING", fewer)


@mutant
def the_poll_interval_does_not_run(patch: Patch) -> None:
    replace(patch, "POLL_TIMED", set[MemberState]())


@mutant
def the_session_timeout_does_nothing(patch: Patch) -> None:
    replace(patch, "on_session_timeout", lambda who, now, out: None)


@mutant
def a_join_request_prolongs_the_session(patch: Patch) -> None:
    """A mutant: every JoinGroup prolongs the session.

    With this mutant, a member whose joins all fail never loses its partitions.
    """

    def send_join(who: Member, out: Any) -> None:
        if who.session_ends_at is not None:
            who.session_ends_at += who.config.session_timeout_ms
        original(who, out)

    original = join.send_join
    replace(patch, "send_join", send_join)


@mutant
def partitions_are_kept_until_the_join_fails(patch: Patch) -> None:
    replace(patch, "keeps_partitions", lambda who: False)


@mutant
def a_heartbeat_uses_the_connection_of_the_join(patch: Patch) -> None:
    def send_heartbeat(who: Member, now: int, out: Any) -> None:
        original(who, now, out)
        out[-1] = msgspec.structs.replace(out[-1], urgent=False)

    original = heartbeat.send_heartbeat
    replace(patch, "send_heartbeat", send_heartbeat)


@mutant
def joins_have_no_backoff(patch: Patch) -> None:
    original = join.join_if_due

    def join_now(who: Member, event: Any, now: int, out: Any) -> None:
        who.join_at = None
        original(who, event, now, out)

    replace(patch, "join_if_due", join_now)


@mutant
def close_has_no_timeout(patch: Patch) -> None:
    def close(who: Member, event: Any, now: int, out: Any) -> None:
        original(who, event, now, out)
        who.close_ends_at = None

    original = leave.on_close
    replace(patch, "on_close", close)


# Leadership


@mutant
def no_member_watches_the_metadata(patch: Patch) -> None:
    patch.setattr(leadership, "take_snapshot", lambda topics, metadata, with_racks: {})


@mutant
def the_leader_watches_only_its_own_topics(patch: Patch) -> None:
    original = leadership.take_snapshot

    def snapshot(topics: Any, metadata: Any, with_racks: bool) -> Any:
        return original([topic for topic in topics if topic == "t"], metadata, with_racks)

    patch.setattr(leadership, "take_snapshot", snapshot)


@mutant
def the_leader_does_not_wait_for_metadata(patch: Patch) -> None:
    original = leadership.topics_of
    replace(patch, "topics_of", lambda group: original(group) & {"t"})


@mutant
def the_initial_counts_are_forgotten(patch: Patch) -> None:
    patch.setattr(leadership, "update_initial_counts", lambda *_, **__: {})


@mutant
def no_partition_is_ever_new(patch: Patch) -> None:
    patch.setattr(leadership, "find_new_partitions", lambda added, existed: frozenset())


@mutant
def static_members_leave(patch: Patch) -> None:
    def send_leave(who: Member, reason: str, out: Any) -> Any:
        config, who.config = who.config, _dynamic(who.config)
        try:
            return original(who, reason, out)
        finally:
            who.config = config

    original = leave.send_leave
    replace(patch, "send_leave", send_leave)


def _dynamic(config: Any) -> Any:
    return msgspec.structs.replace(config, group_instance_id=None)


# Assignors


@mutant
def partitions_move_within_one_round(patch: Patch) -> None:
    plain = Assignor("cooperative-sticky", ASSIGNORS["cooperative-sticky"].assign, cooperative=True)
    moved = Assignor(plain.name, _at_once, ASSIGNORS[plain.name].user_data, True)
    patch.setitem(ASSIGNORS, plain.name, moved)


def _at_once(partitions: Any, members: Any, racks: Any) -> Any:
    return sticky.assign_sticky(
        partitions, members, racks, lambda member: ReportedOwnership(member.owned, member.generation)
    ).assigned


@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_a_claim_fails_for_each_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(fails(claim) for claim in claims(*CLAIMS)), f"nothing tests against: {name}"


def test_no_claim_fails_for_the_original_member() -> None:
    assert [str(claim) for claim in claims(*CLAIMS) if fails(claim)] == []


def test_the_claims_take_every_edge() -> None:
    walked: set[tuple[MemberState, MemberState]] = set()

    def move(who: Member, to: MemberState) -> None:
        if to is not who.state:
            walked.add((who.state, to))
        original(who, to)

    original = state.move
    with pytest.MonkeyPatch.context() as patch:
        replace(patch, "move", move)
        for claim in claims(*CLAIMS):
            claim()
        for member_state, way in test_leave.WAYS.items():
            way().apply(CloseRequested())
            if member_state not in test_leave.OVER:
                way().apply(Unsubscribed())
    missing = {f"{a.value} -> {b.value}" for a, to in EDGES.items() for b in to if (a, b) not in walked}
    assert sorted(missing) == [], "\n".join(sorted(missing))
