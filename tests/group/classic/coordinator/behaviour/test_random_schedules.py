"""Random schedules of correct and faulty clients, against the invariants of a coordinator.

The clients join, restart, sync, send heartbeats and commits, leave, and let time pass. Some heartbeats and
commits are late or contain former member ids.

Each invariant is a function whose name states it. Each mutant at the end of this module is a coordinator that
breaks one rule. At least one invariant must fail for each mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kproto.error_codes import ErrorCode
from kproto.group.classic import coordinator
from kproto.group.classic.coordinator import (
    ClassicGroupState,
    GroupEventKind,
    joins,
    membership,
    offsets,
    rebalance,
)
from kproto.group.classic.coordinator.responses import send_join_error
from kproto.group.classic.coordinator.state import (
    ClassicGroup,
    ClassicGroupMember,
    GroupContext,
    member_error,
)
from kproto.machine import NEVER
from kproto.messages.heartbeat import HeartbeatResponse
from tests.group.classic.coordinator.stage import PendingResponse, Stage

DELAY = 3_000
PARTITIONS = range(6)
HAS_MEMBERS = (
    ClassicGroupState.PREPARING_REBALANCE,
    ClassicGroupState.COMPLETING_REBALANCE,
    ClassicGroupState.STABLE,
)


@dataclass
class Client:
    """The process of a member. Its fields come from the responses that it has received."""

    name: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    joining: PendingResponse | None = None
    syncing: PendingResponse | None = None
    # The members to which this client has to assign partitions. Empty unless it is the group's leader.
    members_to_assign: list[str] = field(default_factory=list[str])
    owned: frozenset[int] = frozenset()
    former_ids: list[str] = field(default_factory=list[str])

    def forget(self) -> None:
        if self.member_id:
            self.former_ids.append(self.member_id)
        self.member_id, self.generation, self.owned, self.members_to_assign = "", -1, frozenset(), []


def assign(members: list[str]) -> dict[str, bytes]:
    """Assign the partitions to the members round-robin."""
    return {member: bytes(list(PARTITIONS)[index :: len(members)]) for index, member in enumerate(members)}


class Coordination(RuleBasedStateMachine):
    """One group and five processes, of which two share an instance id."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(group_initial_rebalance_delay_ms=DELAY)
        self.clients = [
            Client("a"),
            Client("b"),
            Client("c", instance="one"),
            Client("d", instance="one"),
            Client("e", instance="two"),
        ]
        self.generation = 0
        self.state = ClassicGroupState.DEAD
        self.rebalance_began = 0
        self.from_empty = False
        # The members that became leader, by generation. Each generation may have only one leader.
        self.leaders: dict[int, set[str]] = {}
        # The owner of each partition, by generation.
        self.owners: dict[int, dict[int, str]] = {}
        self.successors: dict[str, str] = {}
        self.joins: list[PendingResponse] = []
        self.answered: dict[int, set[str]] = {}

    @property
    def group(self) -> ClassicGroup:
        return self.stage.group()

    # Steps.

    def draw_client(self, data: st.DataObject, matches: Callable[[Client], bool]) -> Client:
        clients = [client for client in self.clients if matches(client)]
        return data.draw(st.sampled_from(clients), label="client")

    @precondition(lambda self: any(c.joining is None for c in self.clients))
    @rule(
        data=st.data(),
        session=st.sampled_from([6_000, 10_000, 30_000]),
        rebalance=st.sampled_from([5_000, 20_000]),
        protocols=st.sampled_from([["range"], ["range", "sticky"], ["sticky", "range"], ["range", "range"]]),
        version=st.sampled_from([3, 5, 9]),
    )
    def join(
        self, data: st.DataObject, session: int, rebalance: int, protocols: list[str], version: int
    ) -> None:
        self.send_join(
            self.draw_client(data, lambda c: c.joining is None), session, rebalance, protocols, version
        )

    def send_join(
        self,
        client: Client,
        session: int = 10_000,
        rebalance: int = 20_000,
        protocols: Sequence[str] = ("range",),
        version: int = 9,
    ) -> None:
        led_stable_group = (
            self.state is ClassicGroupState.STABLE and self.group.leader == client.member_id != ""
        )
        client.owned = frozenset()
        client.joining = self.stage.join(
            client.member_id,
            client=client.name,
            instance=client.instance if version >= 5 else None,
            session=session,
            rebalance=rebalance,
            protocols=[(name, client.name.encode()) for name in protocols],
            version=version,
        )
        self.joins.append(client.joining)
        if led_stable_group and not client.joining.waits and client.joining.code is ErrorCode.NONE:
            assert client.joining.response.generation_id > self.generation, (
                "a leader that rejoins did not start a rebalance"
            )
        self.observe()

    @rule(count=st.integers(1, 5))
    def behave(self, count: int) -> None:
        """Let the first clients behave correctly until their group is Stable.

        Random steps alone rarely lead to a Stable group.
        """
        for _ in range(3):
            for client in self.clients[:count]:
                if client.member_id and self.group.state is ClassicGroupState.STABLE:
                    code = self.stage.heartbeat(client.member_id, client.generation, instance=client.instance)
                    if code is ErrorCode.NONE:
                        continue
                if client.joining is None and client.syncing is None:
                    self.send_join(client)
            self.wait(DELAY)
            for client in self.clients[:count]:
                if client.syncing is None and client.joining is None and client.generation > 0:
                    self.send_sync(client)

    @precondition(lambda self: any(c.instance and c.member_id for c in self.clients))
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Restart the process of a static member, without LeaveGroup and without its state."""
        client = self.draw_client(data, lambda c: bool(c.instance and c.member_id))
        client.forget()
        client.joining = client.syncing = None

    @precondition(lambda self: any(c.generation > 0 and c.syncing is None for c in self.clients))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.send_sync(self.draw_client(data, lambda c: c.generation > 0 and c.syncing is None))

    def send_sync(self, client: Client) -> None:
        client.syncing = self.stage.sync(
            client.member_id,
            client.generation,
            assign(client.members_to_assign),
            instance=client.instance,
            protocol_type=None,
            protocol_name=None,
            version=4,
        )
        self.observe()

    @precondition(lambda self: any(c.former_ids for c in self.clients))
    @rule(data=st.data(), kind=st.sampled_from(["sync", "heartbeat", "commit"]))
    def send_with_former_id(self, data: st.DataObject, kind: str) -> None:
        """Send a request with a former member id, which must be rejected."""
        client = self.draw_client(data, lambda c: bool(c.former_ids))
        former_id = data.draw(st.sampled_from(client.former_ids))
        # The former id is still valid, because the coordinator has neither removed nor replaced the member.
        if former_id in self.group.members:
            return
        generation = self.group.generation
        match kind:
            case "sync":
                answer = self.stage.sync(
                    former_id,
                    generation,
                    instance=client.instance,
                    protocol_type=None,
                    protocol_name=None,
                    version=4,
                )
                assert not answer.waits, "a former member id waits for an assignment"
                code = answer.code
            case "heartbeat":
                code = self.stage.heartbeat(former_id, generation, instance=client.instance)
            case _:
                (code,) = self.stage.commit(former_id, generation, instance=client.instance).codes
        assert code in (
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
        self.observe()

    @precondition(lambda self: any(c.generation > 0 for c in self.clients))
    @rule(data=st.data(), late_by=st.sampled_from([0, 0, 0, 1, 2]))
    def send_heartbeat(self, data: st.DataObject, late_by: int) -> None:
        client = self.draw_client(data, lambda c: c.generation > 0)
        generation = client.generation - late_by
        code = self.stage.heartbeat(client.member_id, generation, instance=client.instance)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert generation == self.group.generation, "a heartbeat of another generation was accepted"
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()
        self.observe()

    @precondition(lambda self: any(c.generation > 0 for c in self.clients))
    @rule(data=st.data(), late_by=st.sampled_from([0, 0, 1]))
    def commit(self, data: st.DataObject, late_by: int) -> None:
        client = self.draw_client(data, lambda c: c.generation > 0)
        generation = client.generation - late_by
        (code,) = self.stage.commit(client.member_id, generation, instance=client.instance).codes
        if code is ErrorCode.NONE:
            assert generation == self.group.generation, "a commit of another generation was accepted"
            assert self.group.state is not ClassicGroupState.COMPLETING_REBALANCE, (
                "a commit before the assignment was accepted"
            )
        self.observe()

    @precondition(lambda self: any(c.member_id for c in self.clients))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.draw_client(data, lambda c: bool(c.member_id))
        self.stage.leave((client.member_id, client.instance))
        client.forget()
        self.observe()

    @rule(ms=st.sampled_from([1, 500, DELAY, 5_000, 9_999, 25_000]))
    def wait(self, ms: int) -> None:
        end = self.stage.now + ms
        while self.stage.now < end:
            deadline = coordinator.next_deadline(self.stage.coordinator)
            self.stage.wait(min(end, max(deadline or end, self.stage.now)) - self.stage.now)
            self.observe()
            if deadline is None or deadline > end:
                break

    @precondition(
        lambda self: self.state in (ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE)
    )
    @rule()
    def delete(self) -> None:
        (code,) = self.stage.delete("g")
        assert (code is ErrorCode.NONE) == (self.state is ClassicGroupState.EMPTY)
        if code is ErrorCode.NONE:
            self.generation, self.leaders, self.owners, self.answered = 0, {}, {}, {}
        self.observe()

    # Responses, and the invariants.

    def observe(self) -> None:
        before = self.state
        self.state = self.group.state
        if self.state is ClassicGroupState.PREPARING_REBALANCE and before is not self.state:
            self.rebalance_began = self.stage.now
            self.from_empty = before in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD)
        elif before is ClassicGroupState.PREPARING_REBALANCE and self.state is not before and self.from_empty:
            assert self.stage.now >= self.rebalance_began + DELAY, "the initial delay ended early"
        assert self.group.generation >= self.generation, "the generation went back"
        self.generation = self.group.generation
        for answer in [answer for answer in self.joins if not answer.waits]:
            self.joins.remove(answer)
            if answer.code is ErrorCode.NONE:
                self.answered.setdefault(answer.response.generation_id, set()).add(answer.member_id)
        for client in self.clients:
            self.read_responses(client)

    def read_responses(self, client: Client) -> None:
        answer = client.joining
        if answer is not None and not answer.waits:
            client.joining = None
            if answer.code is ErrorCode.NONE:
                self.read_join_response(client, answer)
            elif answer.code is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            elif answer.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.forget()
        answer = client.syncing
        if answer is not None and not answer.waits:
            client.syncing = None
            if answer.code is ErrorCode.NONE:
                self.read_sync_response(client, answer)
            elif answer.code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.forget()

    def read_join_response(self, client: Client, answer: PendingResponse) -> None:
        response = answer.response
        if client.member_id and client.member_id != response.member_id:
            client.former_ids.append(client.member_id)
        client.member_id, client.generation = response.member_id, response.generation_id
        client.members_to_assign = [] if response.skip_assignment else [m.member_id for m in response.members]
        if response.leader == response.member_id and not response.skip_assignment:
            leaders = self.leaders.setdefault(response.generation_id, set())
            leaders.add(response.member_id)
            assert len(leaders) == 1, f"two members lead generation {response.generation_id}: {leaders}"

    def read_sync_response(self, client: Client, answer: PendingResponse) -> None:
        request: Any = answer.request
        client.owned = frozenset(answer.response.assignment)
        owners = self.owners.setdefault(request.generation_id, {})
        current = self.group.instances.get(client.instance or "", request.member_id)
        for partition in client.owned:
            owner = owners.setdefault(partition, client.instance or request.member_id)
            assert owner == (client.instance or request.member_id), f"two members own partition {partition}"
        assert current == request.member_id or self.group.generation != request.generation_id

    @invariant()
    def counters_agree_with_the_members(self) -> None:
        group = self.group
        members = group.members.values()
        assert group.awaiting_join == sum(member.join is not None for member in members)
        counted: dict[str, int] = {}
        for member in members:
            for name in member.protocol_names():
                counted[name] = counted.get(name, 0) + 1
        assert group.supported_protocols == counted
        assert group.instances == {m.group_instance_id: m.member_id for m in members if m.group_instance_id}
        assert all(key == member.member_id for key, member in group.members.items())

    @invariant()
    def the_leader_of_a_group_with_members_is_a_member(self) -> None:
        assert (self.group.leader in self.group.members) == bool(self.group.members)

    @invariant()
    def only_a_group_in_a_rebalance_or_stable_has_members(self) -> None:
        if self.group.members:
            assert self.group.state in HAS_MEMBERS
        if self.group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            assert self.group.members

    @invariant()
    def a_member_that_waits_for_nothing_has_a_deadline(self) -> None:
        for member in self.group.members.values():
            assert member.join or member.sync or member.deadline < NEVER

    @invariant()
    def there_is_a_sync_deadline_while_members_have_not_synced(self) -> None:
        assert (self.group.sync_deadline < NEVER) == bool(self.group.unsynced)
        assert self.group.unsynced.keys() <= self.group.members.keys()

    @invariant()
    def joins_wait_in_preparing_rebalance_and_syncs_in_completing_rebalance(self) -> None:
        for member in self.group.members.values():
            if member.join is not None:
                assert self.group.state is ClassicGroupState.PREPARING_REBALANCE
            if member.sync is not None:
                assert self.group.state is ClassicGroupState.COMPLETING_REBALANCE

    @invariant()
    def the_next_deadline_is_never_late(self) -> None:
        assert self.group.wake <= self.group.earliest_deadline()
        if self.group.state is not ClassicGroupState.DEAD and self.group.wake < NEVER:
            assert self.stage.coordinator.deadlines.of(self.group.group_id) == self.group.wake

    @invariant()
    def every_dynamic_member_of_a_generation_has_received_its_join_response(self) -> None:
        if self.group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            answered = self.answered.get(self.group.generation, set())
            for member in self.group.members.values():
                assert member.group_instance_id is not None or member.member_id in answered

    def teardown(self) -> None:
        """Check that without further requests every response arrives and the group becomes Empty."""
        self.stage.wait(1_000_000)
        assert not self.stage.open, "requests are never answered"
        assert not self.group.members


TestCoordination = Coordination.TestCase


# ---- mutants: coordinators with one missing rule


def _replace_handler(
    patch: pytest.MonkeyPatch, kind: GroupEventKind, state: ClassicGroupState, act: Callable[..., None]
) -> None:
    cell = coordinator.TABLE[kind, state]
    patch.setitem(coordinator.TABLE, (kind, state), cell._replace(act=act))


def _no_generation_check(patch: pytest.MonkeyPatch) -> None:
    def forgiving(group: ClassicGroup, member_id: str, instance: str | None) -> ErrorCode:
        return member_error(group, member_id, instance)

    patch.setattr(offsets, "_commit_error", lambda g, c: forgiving(g, c.member_id, c.group_instance_id))


def _no_generation_check_in_heartbeat(patch: pytest.MonkeyPatch) -> None:
    def answer(context: GroupContext, group: ClassicGroup, call: Any, code: ErrorCode) -> None:
        call.request.generation_id = group.generation
        real(context, group, call, code)

    real = membership._answer_heartbeat
    patch.setattr(membership, "_answer_heartbeat", answer)


def _leader_rejoin_ignored(patch: pytest.MonkeyPatch) -> None:
    def rejoin_as_follower(context: GroupContext, group: ClassicGroup, call: Any) -> None:
        if (member := joins._find_member(context, group, call)) is not None:
            rebalance.send_join_response(context, group, member, call, leader=group.leader, members=[])

    _replace_handler(patch, GroupEventKind.REJOIN, ClassicGroupState.STABLE, rejoin_as_follower)


def _session_not_refreshed_by_answers(patch: pytest.MonkeyPatch) -> None:
    def never(context: GroupContext, group: ClassicGroup, member: ClassicGroupMember) -> None:
        member.deadline = NEVER

    patch.setattr(GroupContext, "restart_session", never)


def _fenced_member_accepted(patch: pytest.MonkeyPatch) -> None:
    def lenient(group: ClassicGroup, member_id: str, instance: str | None) -> ErrorCode:
        known = member_id in group or (instance is not None and instance in group.instances)
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    def heartbeat(context: GroupContext, group: ClassicGroup, call: Any) -> None:
        code = lenient(group, call.request.member_id, call.request.group_instance_id)
        context.reply(call, HeartbeatResponse(error_code=code))

    for state in HAS_MEMBERS:
        _replace_handler(patch, GroupEventKind.HEARTBEAT, state, heartbeat)


def _initial_delay_skipped(patch: pytest.MonkeyPatch) -> None:
    def eager(context: GroupContext, group: ClassicGroup) -> None:
        group.initial_delay_left = None
        real(context, group)

    real = rebalance.complete_join_if_all_joined
    patch.setattr(rebalance, "complete_join_if_all_joined", eager)


def _waiting_syncs_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalance, "cancel_sync", lambda context, member, code: None)


def _absent_members_kept(patch: pytest.MonkeyPatch) -> None:
    def kept(context: GroupContext, group: ClassicGroup) -> None:
        with patch.context() as inner:
            inner.setattr(ClassicGroup, "remove", lambda group, member_id: None)
            real(context, group)

    real = rebalance._complete_join
    patch.setattr(rebalance, "_complete_join", kept)


def _commit_before_the_assignment(patch: pytest.MonkeyPatch) -> None:
    kind, state = GroupEventKind.COMMIT, ClassicGroupState.COMPLETING_REBALANCE
    _replace_handler(patch, kind, state, offsets.commit_by_member)


def _superseded_join_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Leave the delayed JoinGroup of a replaced member without a response."""
    real = send_join_error

    def silent(context: GroupContext, call: Any, code: ErrorCode, member_id: str) -> None:
        if code is not ErrorCode.FENCED_INSTANCE_ID:
            real(context, call, code, member_id)

    patch.setattr(joins, "send_join_error", silent)


def _generation_not_counted(patch: pytest.MonkeyPatch) -> None:
    def begin(context: GroupContext, group: ClassicGroup) -> None:
        group.generation -= 1
        real(context, group)

    real = rebalance._start_generation
    patch.setattr(rebalance, "_start_generation", begin)


def _sync_deadline_ignored(patch: pytest.MonkeyPatch) -> None:
    def ignore(context: GroupContext, group: ClassicGroup, _: str) -> None:
        group.sync_deadline = NEVER

    for state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        _replace_handler(patch, GroupEventKind.SYNC_DEADLINE, state, ignore)


MUTANTS = [
    _no_generation_check,
    _no_generation_check_in_heartbeat,
    _leader_rejoin_ignored,
    _session_not_refreshed_by_answers,
    _fenced_member_accepted,
    _initial_delay_skipped,
    _waiting_syncs_forgotten,
    _absent_members_kept,
    _commit_before_the_assignment,
    _superseded_join_forgotten,
    _generation_not_counted,
    _sync_deadline_ignored,
]


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_a_coordinator_with_one_rule_missing_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    budget = settings(
        max_examples=200,
        stateful_step_count=40,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Coordination, settings=budget)
