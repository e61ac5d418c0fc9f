"""sarama's newSession, branch by branch, with its reaction to each response.

Scenarios of lesson 003 (docs/lessons/003-sarama-walk.md). The lesson replays an engineer's
description of sarama's source ("the document").

The letters in the titles name the branches of the document's newSession, which sarama calls joinSync today.
The scenarios run sarama 1.61.1, and say where the document's older sarama behaves differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..error_codes import ErrorCode
from ..messages.fetch import FetchRequest
from ..messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..messages.heartbeat import HeartbeatRequest
from ..messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from ..messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..testing.world import Client, ModelClient, World
from ..wire.message import Message
from .parameters import GROUP
from .sarama_machinery import watched
from .sarama_walk import T0, T1, sarama
from .scenario import ScenarioRun, scenario


def refusal(kind: type[Message], code: int, member_id: str = "") -> Message:
    """Build a response to a request of this type, with this error code and no data."""
    if kind is FindCoordinatorRequest:
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)
    if kind is JoinGroupRequest:
        return JoinGroupResponse(
            error_code=code, protocol_name="", leader="", member_id=member_id, members=[]
        )
    if kind is OffsetFetchRequest:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)]
        )
    return SyncGroupResponse(error_code=code, assignment=b"")


def _assigned(world: World, since: int) -> int:
    """Return the time (ms) from `since` until the first assignment, or -1 if no partitions were assigned."""
    return next(
        (observation.at - since for observation in world.observations if observation.kind == "assigned"), -1
    )


def ids_of(world: World, member: ModelClient) -> list[str]:
    """Return the member id of each JoinGroup: "none", or "id 1", "id 2", ... in the order of first use."""
    letters: dict[str, str] = {"": "none"}
    return [
        letters.setdefault(request.member_id, f"id {len(letters)}")
        for request in world.requests_of(member, JoinGroupRequest)
    ]


class Branch:
    """A group of one member, which calls Consume once.

    The first requests of class `kind` are rejected with `codes`, one code for each request.
    """

    def __init__(
        self, run: ScenarioRun, kind: type[Message], *codes: int, once: bool = True, **config: Any
    ) -> None:
        self.run = run
        self.world = run.world({"t": 2})
        self.codes = list(codes)
        self.kind = kind
        self.world.tamper = self.tamper
        self.member: ModelClient = sarama(self.world, extra={"Once": once, **config})
        self.world.run(run.longer(40_000))

    def tamper(self, client: Client, request: Message, version: int) -> Message | None:
        if isinstance(request, self.kind) and client.name == "a" and self.codes:
            code = self.codes.pop(0)
            name = self.kind.__name__.removesuffix("Request")
            self.run.moment(f"answers {name} with {ErrorCode(code).name}", "broker")
            return refusal(self.kind, code, getattr(request, "member_id", ""))
        return None

    @property
    def ids(self) -> list[str]:
        return ids_of(self.world, self.member)

    @property
    def errors(self) -> list[str]:
        return [
            f"{report.kind} {report.name}".strip() for report in self.member.reports if report.kind != "log"
        ]

    @property
    def joined(self) -> bool:
        return self.member.owned == {T0, T1}

    def report_results(self) -> None:
        self.run.result("member ids of the JoinGroups", self.ids)
        self.run.result("the application hears", self.errors)
        self.run.result("partitions", self.member.owned)


def _branch(
    letter: str, title: str, says: str, when: str, then: str, takes: Iterable[str] = GROUP
) -> Callable[[Callable[[ScenarioRun], None]], Callable[[ScenarioRun], None]]:
    return scenario(
        f"S3-19{letter}",
        title,
        says=says,
        given="a sarama member alone in its group, Consume called once, Rebalance.Retry.Max 4, backoff 2 s",
        when=when,
        then=then,
        takes=takes,
    )


@_branch(
    "a",
    "newSession: no coordinator",
    "Without a coordinator: an error if no retry is left, else another try with a refresh.",
    "FindCoordinator is answered with COORDINATOR_NOT_AVAILABLE six times; in another run a hundred times",
    "six are retried: each lookup tries four times, and newSession waits 2 s and looks up once more; of a "
    "hundred Consume returns the error when the four retries are used",
)
def no_coordinator(run: ScenarioRun) -> None:
    branch = Branch(run, FindCoordinatorRequest, *[15] * 6)
    branch.report_results()
    run.claim("it joined in the end", branch.joined)
    run.claim("the application gets no error", not branch.errors)
    assigned = _assigned(branch.world, run.started)
    run.result("assigned after", f"{assigned} ms")
    run.claim("after newSession's backoff", assigned >= 2_000)
    for_ever = Branch(run, FindCoordinatorRequest, *[15] * 100)
    run.result("a hundred times: answers used", 100 - len(for_ever.codes))
    run.claim(
        "without a retry left Consume returns the error", any("15" in error for error in for_ever.errors)
    )


@_branch(
    "c",
    "newSession: joined",
    "On ErrNoError the member id is kept.",
    "JoinGroup succeeds, after MEMBER_ID_REQUIRED",
    "the second JoinGroup carries the id",
)
def joined(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest)
    branch.report_results()
    run.claim("first without an id, then with it", branch.ids == ["none", "id 1"])
    run.claim("it owns both partitions", branch.joined)


@_branch(
    "d",
    "newSession: UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION reset the id and rejoin immediately",
    "On these the member id is cleared and newSession calls itself, with the same retries.",
    "JoinGroup is answered with UNKNOWN_MEMBER_ID, and later with ILLEGAL_GENERATION",
    "it rejoins immediately without an id",
)
def reset_id(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest, 25, 22)
    branch.report_results()
    run.claim("the next JoinGroups have no id", branch.ids[:3] == ["none", "none", "none"])
    run.claim("it owns both partitions", branch.joined)
    run.claim("the application gets no error", not branch.errors)


@_branch(
    "e",
    "newSession: NOT_COORDINATOR uses a retry",
    "On ErrNotCoordinatorForConsumer: an error if no retry is left, else a retry with a refreshed "
    "coordinator.",
    "JoinGroup is answered with NOT_COORDINATOR twice; in another run a hundred times",
    "two are retried; of a hundred Consume returns the error when the four retries are used",
)
def not_coordinator(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest, 16, 16)
    run.claim("two are retried", branch.joined)
    for_ever = Branch(run, JoinGroupRequest, *[16] * 100)
    for_ever.report_results()
    run.result("answers used", 100 - len(for_ever.codes))
    run.claim(
        "without a retry left Consume returns the error", any("16" in error for error in for_ever.errors)
    )
    run.claim("it did not join", not for_ever.joined)


@_branch(
    "f",
    "newSession: REBALANCE_IN_PROGRESS waits and retries",
    "On ErrRebalanceInProgress: an error if no retry is left, else a retry after the backoff, without a "
    "refresh.",
    "JoinGroup is answered with REBALANCE_IN_PROGRESS once",
    "2 s later the member joins (sarama 1.61.1 looks up the coordinator before)",
)
def in_progress(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest, 27)
    branch.report_results()
    run.claim("it owns both partitions", branch.joined)
    assigned = _assigned(branch.world, run.started)
    run.result("assigned after", f"{assigned} ms")
    run.claim("after the backoff of 2 s", 2_000 <= assigned <= 4_500)


@_branch(
    "g",
    "newSession: any other error is returned",
    "Every other error is returned to the caller of Consume.",
    "JoinGroup is answered with GROUP_AUTHORIZATION_FAILED",
    "Consume returns it",
    ("session_timeout_ms", "assignor", "static"),
)
def other(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest, 30)
    branch.report_results()
    run.claim("the application gets error 30", any("30" in error for error in branch.errors))
    run.claim("it did not join", not branch.joined)


@_branch(
    "h",
    "newSession: the leader assigns",
    "If leader id and member id are equal, GetMembers and balance compute the assignment.",
    "the member joins as the leader",
    "its SyncGroup has an assignment for itself",
)
def plans(run: ScenarioRun) -> None:
    branch = Branch(run, JoinGroupRequest)
    (sync,) = branch.world.requests_of(branch.member, SyncGroupRequest)
    run.result("members in the assignment", len(sync.assignments))
    run.claim("the assignment is for one member", len(sync.assignments) == 1)
    run.claim("it owns both partitions", branch.joined)


@_branch(
    "j",
    "newSession: errors of SyncGroup are handled as those of JoinGroup",
    "The switch over SyncGroup's error has the same branches.",
    "SyncGroup is answered with UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, one "
    "after the other",
    "the first two rejoin immediately without the id, the third after the backoff with it",
)
def sync_errors(run: ScenarioRun) -> None:
    branch = Branch(run, SyncGroupRequest, 25, 22, 27)
    branch.report_results()
    run.claim("it owns both partitions in the end", branch.joined)
    run.claim("the id is cleared twice", branch.ids.count("none") == 3)


@_branch(
    "k",
    "newSession: an empty assignment is a session without claims",
    "If MemberAssignment is empty there are no claims, but the session is created.",
    "three members share two partitions",
    "one has a session with no claim, and no error",
    ("members", "partitions", *GROUP),
)
def empty(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    members = [sarama(world, name) for name in run.names("a", "b", "c")]
    world.run(20_000)
    idle = [member for member in members if not member.owned]
    run.result("without claims", [without.name for without in idle])
    run.claim("one has none", len(idle) == 1)
    run.claim(
        "its callback had an empty assignment",
        [without.calls[-1:] for without in idle] == [[("assigned", ())]],
    )
    run.claim("it is a member", all(without.is_stable() for without in idle))


@_branch(
    "l",
    "newSession: claims are sorted",
    "The claims' partitions are sorted, and the user data is kept for the next join.",
    "a member gets five partitions",
    "the callback has them in order",
    ("partitions", *GROUP),
)
def claims(run: ScenarioRun) -> None:
    world = run.world({"t": 5})
    member = sarama(world)
    world.run(5_000)
    run.result("claims", list(member.calls[-1][1]))
    run.claim("in order", list(member.calls[-1][1]) == sorted(world.partitions()))


@_branch(
    "b",
    "newSession: no response to JoinGroup",
    "If the request fails, the coordinator's connection is closed and the error returned.",
    "the member's connections break during JoinGroup",
    "Consume returns an error; the loop's next call joins",
)
def broken(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, {"group.initial.rebalance.delay.ms": 3_000})
    member = sarama(world)
    world.run(1_500)
    joins_before = len(world.requests_of(member, JoinGroupRequest))
    run.moment("breaks all connections", "network")
    world.fault("cut", member, lasts=1)
    world.run(40_000)
    run.result(
        "JoinGroups before and after",
        [joins_before, len(world.requests_of(member, JoinGroupRequest)) - joins_before],
    )
    run.result("member ids of the JoinGroups", ids_of(world, member))
    run.result("the application hears", [f"{report.kind} {report.name}" for report in member.reports])
    run.claim("a JoinGroup was in flight", joins_before > 0)
    run.claim("Consume returned one error", [report.kind for report in member.reports] == ["error"])
    run.claim("it joined in the end", member.owned == {T0, T1})


@_branch(
    "i",
    "newSession: no response to SyncGroup",
    "If SyncGroup fails, the coordinator's connection is closed and the error returned.",
    "the connection breaks during SyncGroup",
    "Consume returns the error; the next call joins with the same id, on a new connection",
)
def sync_broken(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, latency=(50, 50))
    machine, member = watched(world)
    world.run(10_000, until=lambda: bool(machine.sent_requests(SyncGroupRequest)))
    wires = set(member.wires)
    run.moment("breaks all connections", "network")
    world.fault("cut", member)
    broke, joins_before = world.now, len(world.requests_of(member, JoinGroupRequest))
    world.run(10_000)
    errors = [report.name for report in member.reports if report.kind == "error"]
    run.result("the application hears", errors)
    run.result("member ids of the JoinGroups", ids_of(world, member))
    ids = [request.member_id for request in world.requests_of(member, JoinGroupRequest)]
    run.claim("Consume returned one error, a network error", len(errors) == 1 and "KError" not in errors[0])
    run.claim(
        "the next JoinGroup has the same id",
        len(ids) == joins_before + 1 and ids[-1] == ids[joins_before - 1] != "",
    )
    assigned = _assigned(world, broke)
    run.result("assigned after", f"{assigned} ms")
    run.claim("without newSession's backoff of 2 s", 0 <= assigned < 2_000)
    run.claim("on a new connection", member.owned == {T0, T1} and not wires & set(member.wires))


@_branch(
    "m",
    "newConsumerGroupSession: heartbeats and offsets, then Setup, then the claims",
    "newSession ends in newConsumerGroupSession with claims, member id, generation and handler.",
    "it joins; in another run the offset of a claim cannot be fetched",
    "heartbeats with the new generation start immediately, one OffsetFetch per claim precedes Setup, and "
    "nothing is fetched before Setup has returned; without offsets neither Setup nor Cleanup is called, "
    "and Consume returns the error",
)
def new_session(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    member: ModelClient = sarama(world)
    member.callback_ms = 1_200
    world.run(1_000)
    names = [type(name).__name__.removesuffix("Request") for _, name, _ in world.requests]
    begun = names[names.index("SyncGroup") + 1 :]
    begun = [name for name in begun if name not in ("FindCoordinator", "Metadata")]
    run.result("in the first second of Setup", begun)
    run.claim("heartbeats do not wait for offsets or Setup", "Heartbeat" in begun[:2])
    run.claim("one OffsetFetch for each claim", begun.count("OffsetFetch") == 2)
    run.claim("heartbeats continue during Setup", begun.count("Heartbeat") >= 2)
    run.claim("nothing is read before Setup has returned", not {"ListOffsets", "Fetch"} & set(begun))
    world.run(5_000)
    beats = world.requests_of(member, HeartbeatRequest)
    run.claim(
        "with the id and generation of the join",
        {(beat.member_id, beat.generation_id) for beat in beats} == {(member.member_id, 1)},
    )
    run.claim("then the claims are read", bool(world.requests_of(member, FetchRequest)))

    branch = Branch(run, OffsetFetchRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    run.result("errors without offsets", branch.errors)
    run.result("and its callbacks", [kind for kind, _ in branch.member.calls])
    run.claim("Consume returns the error", any("30" in error for error in branch.errors))
    run.claim("neither Setup nor Cleanup is called", not branch.member.calls)
