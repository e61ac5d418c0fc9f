"""Scenarios about rebalances: static members, zombies, timeouts, heartbeats and assignors.

The scenarios of this module do not belong to a document. `says` states what Kafka's documentation or a KIP
says.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ..error_codes import ErrorCode
from ..inspect.timeline import standstills
from ..models import contract
from ..testing.world import World
from . import history
from .parameters import GROUP
from .scenario import ScenarioRun, join, lost_and_doubled, offsets, produce, scenario
from .story_world import NOT_STATIC, assignors_of

SESSION_MS, HEARTBEAT_MS, FETCH_WAIT_MS = 6_000, 1_000, 100
CLIENT = "java"
# The parameters of most scenarios of this module.
USUAL: Final = ("client", "session_timeout_ms", "heartbeat_ms", "assignor", "members", "partitions")
# Client -> the name of its error for FENCED_INSTANCE_ID. All other clients raise Java's exception.
_FENCED_ERRORS: Final = {"librdkafka": "_FATAL", "sarama": "KError(82)", "kproto": "Fenced"}
# The time in ms that a join may take in addition to a timeout, for its requests and network round trips.
_SLACK_MS = 500


def _session_ms(run: ScenarioRun) -> int:
    return run.parameters.session_timeout_ms or SESSION_MS


def _heartbeat_ms(run: ScenarioRun) -> int:
    """Return the heartbeat interval: by default 1 s, but at most a third of the session timeout."""
    return run.parameters.heartbeat_ms or min(HEARTBEAT_MS, _session_ms(run) // 3)


def _assignors(run: ScenarioRun, *names: str) -> tuple[str, ...]:
    """Return the assignor that the parameters name, or else those in `names` that the client supports."""
    if run.parameters.assignor:
        return (run.parameters.assignor,)
    return tuple(name for name in names if name in assignors_of(run.parameters.client or CLIENT))


def _fencing_codes(world: World, member: str) -> list[str]:
    """Return the names of the error codes with which the coordinator fenced the member."""
    return [ErrorCode(o.detail).name for o in world.observations if (o.source, o.kind) == (member, "fenced")]


def _raised_errors(world: World, member: str) -> list[str]:
    """Return the names of the errors that polls of the member raised."""
    details = [o.detail for o in world.observations if (o.source, o.kind) == (member, "raised")]
    return [type(d).__name__ if isinstance(d, BaseException) else str(d[0]) for d in details]


def _reported_errors(client: Any) -> list[contract.Notify]:
    """Return the errors that the client reported to its application without an exception."""
    return [report for report in getattr(client, "reports", ()) if report.kind == "error"]


def _start_member(world: World, name: str, *, instance: str = "", **config: Any) -> Any:
    """Start a member of the group."""
    options: dict[str, Any] = {
        "reset": "earliest",
        "session_ms": SESSION_MS,
        "heartbeat_ms": HEARTBEAT_MS,
        "max_poll_ms": 60_000,
        "auto_commit": True,
        "auto_commit_ms": 1_000,
        "fetch_wait_ms": FETCH_WAIT_MS,
        **config,
    }
    if instance:
        options["instance"] = instance
    return join(world, name, CLIENT, **options)


def _create_world(run: ScenarioRun, partitions: int = 4) -> World:
    return run.world({"t": partitions})


def _start_group(run: ScenarioRun, world: World, members: int = 2, **config: Any) -> list[Any]:
    """Start the group's members, and run the world until each partition has an owner."""
    names = run.names(*(f"m{number}" for number in range(1, members + 1)))
    group = [_start_member(world, name, **config) for name in names]
    _settle(run, world, group)
    return group


def _settle(run: ScenarioRun, world: World, group: list[Any]) -> bool:
    """Run until each partition has an owner and as many members as possible own partitions.

    Stops waiting after the session timeout plus two minutes. Returns whether the group has reached this
    state.
    """
    partitions = world.partitions()

    def is_settled() -> bool:
        owned = [tp for member in group if member.alive for tp in member.owned]
        owners = sum(bool(member.owned) for member in group if member.alive)
        living = sum(member.alive for member in group)
        return sorted(owned) == sorted(partitions) and owners == min(living, len(partitions))

    settled = world.run(120_000 + _session_ms(run), until=is_settled)
    world.run(2 * _heartbeat_ms(run))
    return settled


def _has_read(member: Any, count: int) -> bool:
    return len(member.records) == count


def _generation_reasons(world: World, since: int = 0) -> list[str]:
    """Return the coordinator's reason for each generation that began at `since` (ms) or later."""
    return [
        f"generation {event.generation}: {event.reason}"
        for event in history.coordinator_events(world)
        if event.kind == "generation" and event.at >= since
    ]


def _longest_standstill(run: ScenarioRun, since: int) -> int:
    """Return the longest time without a reader that ended after `since`; 0 if there was none.

    The result and `since` are in ms.
    """
    act = run.acts[-1]
    later = [
        standstill for standstill in standstills(history.events(act)) if standstill.end > since - act.started
    ]
    return max((standstill.ms for standstill in later), default=0)


@scenario(
    "S4-1",
    "Static member: a restart within the session timeout causes no rebalance",
    says="KIP-345: a static member that returns with its instance id gets its partitions without a "
    "rebalance. It does not send LeaveGroup.",
    given="a group of static members",
    when="one is killed, and its next process starts a third of the session timeout later",
    then="the next process has the same partitions in the same generation; no member read them meanwhile. "
    "With --no-static it is a new member: its partitions stand still for a session timeout, and the group "
    "rebalances",
    takes=(*USUAL, "static"),
)
def static_member(run: ScenarioRun) -> None:
    world = _create_world(run)
    has_instance = run.parameters.static is not False
    is_static = has_instance and run.parameters.client not in NOT_STATIC
    group = [
        _start_member(world, name, instance=name.replace("m", "i") if has_instance else "")
        for name in run.names("m1", "m2")
    ]
    _settle(run, world, group)
    owned, before = set(group[0].owned), world.now
    world.kill("m1")
    world.run(_session_ms(run) // 3)
    restarted = _start_member(world, "m1-2", client_id="m1", instance="i1" if has_instance else "")
    _settle(run, world, [*group[1:], restarted])
    generations = _generation_reasons(world, before)
    run.result("rebalances after the kill", generations or "none")
    run.result("longest standstill", f"{_longest_standstill(run, before)} ms")
    if is_static:
        run.claim("no rebalance", not generations)
        run.claim("the next process has the same partitions", restarted.owned == owned)
    else:
        run.claim("the group rebalances", bool(generations))
    if has_instance and not is_static:
        run.why(f"{run.parameters.client} has no static members: the next process is a new member")
    elif has_instance:
        run.why("the coordinator keeps the assignment of an instance id until the session timeout")
    else:
        run.why("without an instance id the next process is a new member")


@scenario(
    "S4-2",
    "Zombie: a member that stood still for longer than its session is removed, and does not know it",
    says="A member that sends no heartbeat for session.timeout.ms is removed, and its partitions are "
    "reassigned. Its later requests are answered UNKNOWN_MEMBER_ID.",
    given="a group that reads and commits automatically",
    when="one member stands still for two session timeouts, as in a long pause of a virtual machine",
    then="another member takes over its partitions and reads from the last commit; the zombie is fenced at "
    "its next request to the coordinator, its commit is rejected, and no committed offset moves back",
    takes=(*USUAL, "static"),
)
def zombie(run: ScenarioRun) -> None:
    world = _create_world(run)
    group = _start_group(run, world)
    partitions = sorted(tp.partition for tp in world.partitions())
    produce(world, "t", partitions, 20, 3_300)
    session = _session_ms(run)
    before = world.now
    group[0].freeze(2 * session)
    produce(world, "t", partitions, 20, 3 * session)
    _settle(run, world, group)
    world.run(10 * FETCH_WAIT_MS)
    codes = _fencing_codes(world, "m1")
    expired = any((o.source, o.kind) == ("m1", "lost") for o in world.observations)
    lost, doubled = lost_and_doubled(world, group, world.partitions())
    run.result("rebalances", _generation_reasons(world, before))
    run.result("the zombie's request is answered", codes[:1] or "nothing")
    run.result("longest standstill", f"{_longest_standstill(run, before)} ms")
    run.result("records never read, read twice", [lost, doubled])
    stored = [o.detail for o in world.observations if o.kind == "stored"]
    backwards = [
        tp
        for tp in world.partitions()
        if (values := [detail[tp] for detail in stored if tp in detail]) != sorted(values)
    ]
    if codes or not expired:
        run.claim("the zombie's requests are rejected", codes[:1] == ["UNKNOWN_MEMBER_ID"])
    else:
        run.claim("the zombie knows by its own clock that its session ended", expired)
    run.claim("no committed offset moves back", not backwards)
    run.claim("every record is read", lost == 0)


@scenario(
    "S4-3",
    "Fenced: two processes with one instance id, and the older one is fenced",
    says="KIP-345: if a second process joins with an instance id that is in use, the coordinator replaces "
    "the first, whose requests are answered FENCED_INSTANCE_ID.",
    given="a static member that reads",
    when="a second process starts with the same instance id, for example from a copied configuration",
    then="the second process gets the partitions; the first one is fenced at its next request to the "
    "coordinator, and its application sees a fatal error",
    takes=("client", "session_timeout_ms", "heartbeat_ms", "assignor", "partitions"),
)
def fenced(run: ScenarioRun) -> None:
    world = _create_world(run)
    first = _start_member(world, "m1", instance="i1")
    _settle(run, world, [first])
    second = _start_member(world, "copy", instance="i1")
    world.run(
        10 * _heartbeat_ms(run), until=lambda: bool(_raised_errors(world, "m1") or _reported_errors(first))
    )
    codes, errors = _fencing_codes(world, "m1"), _raised_errors(world, "m1")
    if errors:
        world.kill("m1")
        run.moment("its process ends, because it does not catch the error", "m1")
    elif reported := _reported_errors(first):
        run.moment(f"its application is given the error {reported[0].name}: {reported[0].text}", "m1")
        errors = [reported[0].name]
    world.run(10 * _heartbeat_ms(run))
    run.result("the first process is answered", codes[:1] or "nothing")
    run.result("its application sees", errors[:1] or "no error")
    run.result("owners", {"m1": len(first.owned - first.leaving), "copy": len(second.owned)})
    run.claim("the first process is fenced", codes[:1] == ["FENCED_INSTANCE_ID"])
    run.claim(
        "its application sees the error",
        errors[:1] == [_FENCED_ERRORS.get(run.parameters.client or CLIENT, "FencedInstanceIdException")],
    )
    run.claim("the second process has all partitions", second.owned == set(world.partitions()))
    run.why(
        "the coordinator gives the instance id, and its partitions, to the last process that joins with it"
    )


@scenario(
    "S4-4",
    "Session expiry: the partitions of a killed member stand still for a session timeout",
    says="session.timeout.ms: without a heartbeat for this time, the broker removes the member and starts a "
    "rebalance.",
    given="a group that reads",
    when="a member is killed without LeaveGroup",
    then="no member reads its partitions until the session timeout has passed since its last heartbeat; the "
    "others get them after their next heartbeat",
    takes=(*USUAL, "static"),
)
def session_expiry(run: ScenarioRun) -> None:
    world = _create_world(run)
    group = _start_group(run, world, 3)
    session = _session_ms(run)
    heartbeat = _heartbeat_ms(run)
    before = world.now
    world.kill("m1")
    settled = _settle(run, world, group[1:])
    longest = _longest_standstill(run, before)
    run.result("rebalances", _generation_reasons(world, before))
    run.result("session timeout, heartbeat interval", [f"{session} ms", f"{heartbeat} ms"])
    run.result("longest standstill", f"{longest} ms")
    if len(group) > 1:
        run.claim("the others get the partitions", settled)
        run.claim(
            "after a session timeout and at most two heartbeats",
            session - heartbeat - _SLACK_MS <= longest <= session + 2 * heartbeat + _SLACK_MS,
        )


@scenario(
    "S4-5",
    "Heartbeat: how fast a group learns that it rebalances",
    says="heartbeat.interval.ms: members learn from the response to a heartbeat that a rebalance has begun, "
    "and join again.",
    given="a group whose members have nothing to do but heartbeats and fetches",
    when="one more member joins",
    then="the new member waits until the others have sent their next heartbeat, and not longer",
    takes=(*USUAL, "static"),
)
def heartbeat(run: ScenarioRun) -> None:
    world = _create_world(run)
    group = _start_group(run, world)
    interval = _heartbeat_ms(run)
    before = world.now
    late = _start_member(world, "late")
    joined = world.run(
        60_000 + 2 * interval,
        until=lambda: any(o.source == "late" and o.kind == "assigned" for o in world.observations),
    )
    waited = world.now - before
    _settle(run, world, [*group, late])
    run.result("heartbeat interval", f"{interval} ms")
    run.result("the new member waited", f"{waited} ms")
    run.result("rebalances", _generation_reasons(world, before))
    run.claim("at most two heartbeat intervals", joined and waited <= 2 * interval + _SLACK_MS)


@scenario(
    "S4-6",
    "Cooperative and eager: what stands still when a member joins",
    says="KIP-429: with cooperative rebalancing, members keep reading the partitions that do not move. With "
    "the eager protocol they revoke all partitions before they join.",
    given="a group that reads, once with range (eager) and once with cooperative-sticky",
    when="one more member joins",
    then="eager: every partition is revoked; cooperative: only those that move, in a second rebalance",
    takes=(*USUAL, "static"),
)
def cooperative(run: ScenarioRun) -> None:
    revoked: dict[str, int] = {}
    partitions = 0
    for assignor in _assignors(run, "range", "cooperative-sticky"):
        world = _create_world(run, 6)
        group = _start_group(run, world, assignors=(assignor,))
        before = len(world.observations)
        late = _start_member(world, "late", assignors=(assignor,))
        _settle(run, world, [*group, late])
        later = world.observations[before:]
        moved = {tp for o in later if o.kind in ("revoked", "lost") for tp in o.partitions}
        rebalances = sum(o.kind == "generation" for o in later)
        revoked[assignor], partitions = len(moved), len(world.partitions())
        noun = "rebalance" if rebalances == 1 else "rebalances"
        run.result(assignor, f"{len(moved)} of {partitions} revoked, {rebalances} {noun}")
    for assignor, count in revoked.items():
        if assignor == "cooperative-sticky":
            run.claim("cooperative: only those that move", count < partitions)
        else:
            run.claim("eager: all are revoked", count == partitions)


@scenario(
    "S4-7",
    "Sticky: how many partitions move when a member leaves",
    says="The sticky assignor keeps as many assignments as it can. range and roundrobin compute each "
    "assignment from the sorted members alone.",
    given="a group of three, with range, sticky and cooperative-sticky",
    when="the first member leaves",
    then="sticky: only the partitions of the member that left move; range: others move too",
    takes=(*USUAL, "static"),
)
def sticky(run: ScenarioRun) -> None:
    moved: dict[str, int] = {}
    for assignor in _assignors(run, "range", "sticky", "cooperative-sticky"):
        world = _create_world(run, 9)
        group = _start_group(run, world, 3, assignors=(assignor,))
        before = {member.name: set(member.owned) for member in group[1:]}
        group[0].close()
        _settle(run, world, group[1:])
        moved[assignor] = sum(len(before[member.name] - member.owned) for member in group[1:])
        run.result(assignor, f"{moved[assignor]} moved between the other members")
    for assignor, count in moved.items():
        if "sticky" in assignor:
            run.claim(f"{assignor}: the others keep theirs", count == 0)
        else:
            run.claim(f"{assignor}: partitions of others move", count > 0)


@scenario(
    "S4-8",
    "Commit before or after processing: what a kill loses, and what is processed twice",
    says="A commit after processing is at least once: records may be processed twice. A commit before "
    "processing is at most once: records may be lost.",
    given="a member that processes a batch of ten records, one after the other, and a second member",
    when="the member is killed after five records",
    then="committed before: five records are never processed; after: five are processed twice",
    takes=("client", "commit", *GROUP),
)
def commit_order(run: ScenarioRun) -> None:
    for order in (run.parameters.commit,) if run.parameters.commit else ("before", "after"):
        world = run.world({"t": 1})
        [partition] = world.partitions()
        first = _start_member(world, "m1", auto_commit=False)
        _settle(run, world, [first])
        world.write("t", 0, *map(str, range(10)))
        world.run(5_000, until=partial(_has_read, first, 10))
        if order == "before":
            first.commit({partition: 10})
            world.run(1_000)
        processed = offsets(first, partition)[:5]
        world.kill("m1")
        second = _start_member(world, "m2", auto_commit=False)
        _settle(run, world, [second])
        world.run(2_000)
        repeated = offsets(second, partition)
        lost = 10 - len({*processed, *repeated})
        twice = len(processed) + len(repeated) - len({*processed, *repeated})
        run.result(f"committed {order} processing", f"{lost} records lost, {twice} processed twice")
        if order == "before":
            run.claim("before: at most once", twice == 0)
        else:
            run.claim("after: at least once", lost == 0)
        run.claim(f"{order}: five records are affected", lost + twice == 5)
