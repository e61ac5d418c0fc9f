"""Document 002: onJoinComplete (2.6.2), branch by branch: what a member does with its assignment."""

from __future__ import annotations

from ..messages.join_group import JoinGroupRequest
from .frame import Told, scenario
from .java_stage import COOPERATIVE, member_of


@scenario(
    "S2-36",
    "onJoinComplete: what is told as assigned is what was added",
    says="addedPartitions = assigned minus owned; invokePartitionsAssigned gets these.",
    given="two cooperative members of 2.6.2 with four partitions",
    when="one leaves",
    then="the other's callback names only the two that it got",
)
def added(told: Told) -> None:
    world = told.world({"t": 4}, trace=False)
    first = member_of(world, "a", assignors=COOPERATIVE)
    second = member_of(world, "b", assignors=COOPERATIVE)
    world.run(10_000)
    kept = set(first.owned)
    second.close()
    world.run(8_000)
    last = next(set(found) for call, found in reversed(first.calls) if call == "assigned" and found)
    told.result("had, was told", [len(kept), sorted(map(str, last))])
    told.claim("only what was added is told", last == set(world.partitions()) - kept)
    told.claim("it owns all four", first.owned == set(world.partitions()))


@scenario(
    "S2-37",
    "COOPERATIVE: only what moves is revoked, and then it joins once more",
    says="onJoinComplete, COOPERATIVE: owned minus assigned is revoked, and requestRejoin follows.",
    given="a cooperative member of 2.6.2 with four partitions",
    when="a second member comes",
    then="two partitions are revoked, the other two never; it sends two JoinGroups",
)
def cooperative(told: Told) -> None:
    world = told.world({"t": 4})
    first = member_of(world, "a", assignors=COOPERATIVE)
    world.run(4_000)
    joins = len(world.asked(first, JoinGroupRequest))
    member_of(world, "b", assignors=COOPERATIVE)
    world.run(10_000)
    revoked = [partitions for call, partitions in first.calls if call == "revoked"]
    told.result("revoked", [str(tp) for found in revoked for tp in found])
    told.result("JoinGroups", len(world.asked(first, JoinGroupRequest)) - joins)
    told.claim("two partitions were revoked, once", [len(found) for found in revoked] == [2])
    told.claim("it joined twice", len(world.asked(first, JoinGroupRequest)) - joins == 2)


@scenario(
    "S2-44",
    "onPartitionsAssigned is called, also with nothing",
    says="invokePartitionsAssigned(addedPartitions) comes at the end of every onJoinComplete.",
    given="two Java members and a topic with one partition",
    when="both have joined",
    then="the one without a partition was told of its empty assignment",
)
def assigned_nothing(told: Told) -> None:
    world = told.world({"t": 1}, trace=False)
    members = [member_of(world, name) for name in ("a", "b")]
    world.run(10_000)
    idle = next(one for one in members if not one.owned)
    told.result("callbacks of the idle one", [f"{call} {len(found)}" for call, found in idle.calls])
    told.claim("its last callback is assigned, with nothing", idle.calls[-1] == ("assigned", ()))
