"""`RebalanceCauses` infers the cause of a generation from requests and responses."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.subscription import Subscription
from kproto.inspect.rebalance_causes import RebalanceCauses, SeenMember, named
from kproto.inspect.timeline import UNEXPLAINED
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


class Group:
    """A group with the leader "a", whose requests and responses are passed to a `RebalanceCauses`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.causes = RebalanceCauses(lambda member_id: member_id.upper(), self.counts)

    def member(self, member_id: str, *, at: int = 0, instance: str | None = None) -> SeenMember:
        member = self.causes.members.setdefault(member_id, SeenMember(member_id, member_id.upper()))
        member.last_exchange_at, member.session_timeout_ms, member.instance_id = at, 1_000, instance
        return member

    def join(
        self,
        member_id: str,
        generation: int,
        at: int,
        members: dict[str, tuple[str, ...]] | None = None,
        *,
        instances: dict[str, str] | None = None,
        is_new: bool = False,
        reason: str | None = None,
    ) -> None:
        """Add a successful JoinGroup. The response to a leader lists the members with their topics."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=1_000,
            member_id="" if is_new else member_id,
            protocol_type="consumer",
            protocols=[],
            reason=reason,
        )
        response = JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_name="range",
            leader="a",
            member_id=member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=listed,
                    group_instance_id=(instances or {}).get(listed),
                    metadata=Subscription(topics=topics).encode(),
                )
                for listed, topics in (members or {}).items()
            ],
        )
        member = self.member(member_id, at=at, instance=(instances or {}).get(member_id))
        self.causes.add_join(member, at, request, response)

    def cause(self, generation: int) -> str:
        return self.causes.explain(self.causes.generations[generation])[0]

    def removed(self, generation: int) -> list[Any]:
        return self.causes.explain(self.causes.generations[generation])[1]


@pytest.fixture
def group() -> Group:
    """Return a group in which a and b are in generation 1. All members have sent their SyncGroup."""
    group = Group()
    group.join("a", 1, 100, {"a": ("t",), "b": ("t",)}, is_new=True)
    group.join("b", 1, 110, is_new=True)
    assert group.cause(1) == "A joined; B joined"
    group.causes.generations[1].synced = {"a", "b"}
    return group


def test_a_join_is_a_cause_with_its_reason(group: Group) -> None:
    group.join("b", 2, 200, reason="metadata changed")
    group.join("a", 2, 210, {"a": ("t",), "b": ("t",)})
    assert group.cause(2) == "B rejoined: metadata changed; A rejoined"


def test_a_rejoin_that_the_coordinator_asked_for_is_no_cause(group: Group) -> None:
    group.causes.members["b"].is_asked_to_rejoin = True
    group.join("b", 2, 200)
    assert not group.causes.members["b"].is_asked_to_rejoin
    assert group.cause(2) == UNEXPLAINED
    group.join("b", 3, 300)
    assert group.cause(3) == "B rejoined"


@pytest.mark.parametrize("issued", [True, False])
def test_a_member_with_an_id_that_was_just_issued_is_new(group: Group, issued: bool) -> None:
    """KIP-394: a new member first receives its id with MEMBER_ID_REQUIRED, then joins with the id."""
    if issued:
        group.causes.add_issued_id("c")
    group.join("c", 2, 200)
    assert group.cause(2) == ("C joined" if issued else "C rejoined")
    group.join("c", 3, 300)
    assert group.cause(3) == "C rejoined"


def test_a_new_member_with_the_instance_id_of_an_earlier_generation_has_restarted() -> None:
    group = Group()
    group.join("a", 1, 100, {"a": ("t",), "b": ("t",)}, instances={"b": "i"}, is_new=True)
    assert group.cause(1) == "A joined"
    group.join("c", 2, 200, instances={"c": "i"}, is_new=True)
    group.join("d", 2, 201, instances={"d": "other"}, is_new=True)
    assert group.cause(2) == "static member C restarted; D joined"
    # The instance id of e occurs for the first time, so e is a new member, not a restarted one.
    group.join("a", 3, 300, {"a": ("t",), "e": ("t",)}, instances={"e": "new"})
    group.join("e", 3, 310, instances={"e": "new"}, is_new=True)
    assert group.cause(3).endswith("E joined")


def test_a_member_that_left_is_a_cause_once(group: Group) -> None:
    group.causes.add_departure(150, "B", "the consumer is closed")
    group.causes.add_departure(160, "C", None)
    group.causes.add_departure(900, "D", None)
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 2, 200, {"a": ("t",), "b": ("t",)})
    assert group.cause(2) == "B left: the consumer is closed; C left"
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 3, 950, {"a": ("t",), "b": ("t",)})
    assert group.cause(3) == "D left"


def test_a_member_that_left_is_a_cause_once_if_a_later_leave_was_answered_first(group: Group) -> None:
    group.causes.add_departure(900, "D", None)
    group.causes.add_departure(150, "B", None)
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 2, 200, {"a": ("t",), "b": ("t",)})
    assert group.cause(2) == "B left"
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 3, 950, {"a": ("t",), "b": ("t",)})
    assert group.cause(3) == "D left"


@pytest.mark.parametrize(
    ("last_at", "has_synced", "is_disconnected", "reason", "at"),
    [
        (120, True, False, "B sent nothing for 1000 ms", 1_120),
        (1_000, True, False, "B sent nothing for 1000 ms", 2_000),
        (120, True, True, "B sent nothing for 1000 ms, its connection had ended", 1_120),
        (1_001, True, False, "B did not rejoin in time", 2_000),
        (1_001, False, False, "B sent no SyncGroup in generation 1", 2_000),
    ],
)
def test_a_member_that_the_leader_does_not_list_was_removed(
    group: Group, last_at: int, has_synced: bool, is_disconnected: bool, reason: str, at: int
) -> None:
    b = group.causes.members["b"]
    b.last_exchange_at, b.disconnected_at = last_at, 500 if is_disconnected else None
    group.causes.generations[1].synced = {"a", "b"} if has_synced else {"a"}
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 2, 2_000, {"a": ("t",)})
    cause, (removed,) = group.causes.explain(group.causes.generations[2])
    assert cause == reason
    assert (removed.name, removed.at, removed.reason, removed.is_disconnected) == (
        "B",
        at,
        reason,
        is_disconnected,
    )
    assert removed.silent_since == (None if last_at == 1_001 else last_at)
    assert b.is_gone


def test_a_member_that_left_or_was_replaced_was_not_removed(group: Group) -> None:
    group.causes.members["b"].is_gone = True
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 2, 2_000, {"a": ("t",)}, instances={"a": "i"})
    assert group.removed(2) == []
    replaced = Group()
    replaced.join("a", 1, 100, {"a": ("t",), "b": ("t",)}, instances={"b": "i"}, is_new=True)
    replaced.member("b", instance="i")
    assert replaced.cause(1).startswith("A joined")
    replaced.join("a", 2, 5_000, {"a": ("t",), "c": ("t",)}, instances={"c": "i"})
    assert replaced.causes.explain(replaced.causes.generations[2]) == ("A rejoined; C restarted", [])


def test_a_member_is_only_compared_with_the_generation_before(group: Group) -> None:
    """The proxy has missed generation 2, so the changes since generation 1 do not explain generation 3."""
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 3, 5_000, {"a": ("u",)})
    assert group.causes.explain(group.causes.generations[3]) == (UNEXPLAINED, [])


def test_changed_subscriptions_and_unseen_members_are_causes(group: Group) -> None:
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 2, 200, {"a": ("u", "t"), "b": (), "z": ("t",)})
    assert group.cause(2) == "A subscribed to t, u; B subscribed to nothing; Z joined"
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 3, 300, {"a": ("u", "t"), "b": (), "z": ("t",)})
    assert group.cause(3) == UNEXPLAINED
    group.join("c", 4, 400, is_new=True, reason="it was started")
    group.causes.members["a"].is_asked_to_rejoin = True
    group.join("a", 4, 410, {"a": ("u", "t"), "b": (), "z": ("t",), "c": ("t",)})
    assert group.cause(4) == "C joined: it was started"


def test_a_topic_that_has_grown_is_a_cause_for_its_subscribers(group: Group) -> None:
    members = {"a": ("t",), "b": ("t",)}
    for generation, counts in ((2, {"t": 2, "x": 1}), (3, {"t": 4, "x": 5}), (4, {"t": 4, "x": 5})):
        group.counts.update(counts)
        group.causes.members["a"].is_asked_to_rejoin = True
        group.join("a", generation, 100 * generation, members)
        expected = "topic t has 4 partitions, it had 2" if generation == 3 else UNEXPLAINED
        assert group.cause(generation) == expected


def test_the_reasons_of_the_coordinator_replace_the_evidence(group: Group) -> None:
    group.join("a", 2, 200, {"a": ("t",), "b": ("t",)})
    group.causes.generations[2].reported = ("first", "second", "first")
    assert group.cause(2) == "first; second"


def test_a_generation_begins_with_its_first_evidence(group: Group) -> None:
    assert group.causes.generation(5, 700).at == 700
    assert group.causes.generation(5, 600).at == 600
    assert group.causes.generation(5, 650).at == 600


def test_member_ids_in_reasons_become_names() -> None:
    assert named(("member m-1 left", "m-2 joined"), {"m-1": "a", "m-2": "b"}) == ("member a left", "b joined")
