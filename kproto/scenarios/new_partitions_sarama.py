"""The sarama program of lesson 001: the function main(), the handler and the configuration.

See docs/lessons/001-new-partitions.md. The lesson replays a problem that an engineer described in a
document ("the document").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any, Final

from ..error_codes import ErrorCode
from ..group.subscription import TopicPartition
from ..messages.headers import decode_request
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.index import API_NAMES, request_class
from ..messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..messages.leave_group import LeaveGroupRequest
from ..messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..models import sasl
from ..testing.world import Client, ModelClient, World
from ..wire.message import Message
from .parameters import GROUP, TIMEOUTS
from .sarama_stage import RecordedVersions
from .scenario import ScenarioRun, join, offsets, produce, scenario

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
USUAL: Final[dict[str, Any]] = {
    "reset": "earliest",
    "auto_commit": True,
    "session_ms": 10_000,
    "heartbeat_ms": 500,
    "metadata_ms": 2_000,
    "fetch_wait_ms": 500,
}


@dataclass(slots=True)
class SaramaProgram:
    """Model the document's main(): a loop around Consume, and a handler that closes `ready` in Setup.

    Every 10 ms of virtual time, the program handles the assignments, the errors and the returns of Consume
    that the model has reported.
    """

    run: ScenarioRun
    world: World
    name: str = "main"
    remakes_ready: bool = True
    commit_ms: int = 1_000
    member: ModelClient = field(init=False)
    ready: bool = False
    setups: int = 0
    returns: int = 0
    panic: str = ""
    over: bool = False
    _handled_reports: int = 0
    _handled_calls: int = 0
    _consume_error: str = ""

    def __post_init__(self) -> None:
        config: dict[str, Any] = {**USUAL, "auto_commit_ms": self.commit_ms, "extra": {"Once": True}}
        self.member = join(self.world, self.name, "sarama", **config)
        self.member.poll_timeout_ms = 500
        self.world.call_later(10, self._handle_events)

    def say(self, text: str) -> None:
        self.run.moment(text, self.name)

    def _handle_events(self) -> None:
        for kind, _ in self.member.calls[self._handled_calls :]:
            self._handled_calls += 1
            if kind == "assigned":
                self._on_setup()
        for report in self.member.reports[self._handled_reports :]:
            self._handled_reports += 1
            if report.kind == "error":
                self._consume_error = report.text
            elif report.kind == "returned":
                self._on_consume_returned()
        if not (self.over or self.panic or self.member.closed):
            self.world.call_later(10, self._handle_events)

    def _on_setup(self) -> None:
        self.setups += 1
        if self.ready and not self.remakes_ready:
            self._panic("close of closed channel")
            return
        self.ready = True
        self.say("Setup: ready")

    def _on_consume_returned(self) -> None:
        self.returns += 1
        error, self._consume_error = self._consume_error, ""
        if error:
            self._panic(f"Error from consumer: {error}")
        elif not self.over:
            self.say("Consume has returned; ready is re-created; Consume")
            self.ready = self.ready and not self.remakes_ready
            self.member.subscribe("t")

    def _panic(self, reason: str) -> None:
        self.panic = reason
        self.say(f"panic: {reason}")
        self.world.kill(self.member)

    def signal(self) -> None:
        """Simulate SIGTERM: cancel the context, wait until Consume returns, and close the group."""
        self.say("terminating: via signal")
        self.over = True
        self.member.unsubscribe()
        self.world.run(
            5_000,
            until=lambda: any(
                report.kind == "returned" for report in self.member.reports[self._handled_reports :]
            ),
        )
        self.member.close()


@scenario(
    "S1-5",
    "sarama's main(): Consume in a loop, an error is a panic, a signal leaves the group",
    says="An error of NewConsumerGroup is logged and ends the program. The loop ends with "
    "ErrClosedConsumerGroup or a done context; any other error is a panic. ready is re-created for "
    "each session. A signal cancels, waits, closes.",
    given="the example's program, beside a second member of its group",
    when="no broker is reachable; the topic grows; Consume returns an error; in another run a signal arrives",
    then="without a broker it ends with one error; growth starts another session, ready again; the panic "
    "sends no LeaveGroup, so the other member waits for the session timeout; the signal commits and "
    "leaves immediately",
    takes=("refresh_ms", *GROUP),
)
def sarama_main(run: ScenarioRun) -> None:
    world = World({"t": 2})
    world.fault("refuse")
    alone: ModelClient = join(world, "main", "sarama", **USUAL)
    started = world.now
    world.run(60_000, until=lambda: alone.closed)
    logged = f"Error creating consumer group client: {alone.reports[0].text}"
    run.moment("starts while no broker is reachable", "main", 0)
    run.moment(f"logs {logged}", "main", world.now - started)
    run.moment("ends", "main", world.now - started)
    run.result("without a broker", [logged])
    run.claim("NewConsumerGroup fails, and the program ends", alone.closed and len(alone.reports) == 1)

    for ending in ("error", "signal"):
        world = run.world({"t": 2})
        main = SaramaProgram(run, world)
        world.run(3_000)
        run.claim(f"{ending}: ready after the first Setup", (main.ready, main.setups) == (True, 1))
        run.grow("t", 4)
        world.run(run.longer(8_000))
        counts = (main.returns, main.setups)
        run.claim(f"{ending}: growth starts another session, without an error", counts == (1, 2))
        second: ModelClient = join(world, "other", "sarama", **USUAL)
        world.run(8_000)
        produce(world, "t", range(4), 20, 1_000)
        world.run(500)
        ended_at, leaves_before = world.now, len(world.requests_of(main.member, LeaveGroupRequest))
        if ending == "signal":
            main.signal()
        else:
            world.tamper = _deny_access(main.member)
            world.run(15_000, until=lambda main=main: bool(main.panic))  # type: ignore[misc]
            world.tamper = None
            ended_at = world.now
        took_over = world.run(run.longer(30_000), until=lambda second=second: len(second.owned) == 4)  # type: ignore[misc]
        took_ms = world.now - ended_at
        leaves = len(world.requests_of(main.member, LeaveGroupRequest)) - leaves_before
        run.result(f"{ending}: panic", main.panic or "none")
        run.result(f"{ending}: the other one has everything after", f"{took_ms} ms")
        run.claim(
            f"{ending}: {'a panic' if ending == 'error' else 'no panic'}",
            bool(main.panic) == (ending == "error"),
        )
        run.claim(
            f"{ending}: {'sends no LeaveGroup' if ending == 'error' else 'leaves'}",
            leaves == (ending == "signal"),
        )
        run.claim(
            f"{ending}: the other one takes over", took_over and (took_ms > 5_000) == (ending == "error")
        )


def _deny_access(member: ModelClient) -> Callable[[Client, Message, int], Message | None]:
    """Return a function that answers a member's requests as if the member had lost access to the group.

    Heartbeats get REBALANCE_IN_PROGRESS, which ends the session. The next JoinGroup gets
    GROUP_AUTHORIZATION_FAILED.
    """

    def answer(client: Client, request: Message, version: int) -> Message | None:
        if client is member and isinstance(request, JoinGroupRequest):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return JoinGroupResponse(error_code=code, protocol_name="", leader="", member_id="", members=[])
        if client is member and isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    return answer


@scenario(
    "S1-6",
    "sarama's handler: ready once per session, each message marked, claims end before Cleanup",
    says="Setup closes ready, Cleanup does nothing, ConsumeClaim logs and marks each message, and returns "
    "when Messages "
    "is closed or the session's context is done.",
    given="the example's handler in a group of one, 400 messages in each of two partitions, commits "
    "once a minute",
    when="the topic grows while messages are read; once more with a program that does not re-create ready",
    then="each session has one Setup and one Cleanup; a mark is committed as offset plus one with empty "
    "metadata, so nothing is read twice or lost; without a new ready the second Setup panics",
    takes=("refresh_ms", *GROUP),
)
def sarama_handler(run: ScenarioRun) -> None:
    for remakes in (True, False):
        world = run.world({"t": 2})
        for partition in (0, 1):
            world.write("t", partition, *["x"] * 400)
        main = SaramaProgram(run, world, remakes_ready=remakes, commit_ms=60_000)
        main.member.works_ms, main.member.limit = 1_000, 100
        world.run(1_000)
        world.grow("t", 4)
        world.run(run.longer(15_000))
        if remakes:
            main.member.close()
            world.run(3_000)
        kinds = [kind for kind, _ in main.member.calls]
        name = "ready made anew" if remakes else "ready closed twice"
        run.result(f"{name}: Setup and Cleanup", kinds)
        if not remakes:
            run.result("panic", main.panic)
            run.claim("the second Setup panics", main.panic == "close of closed channel" and main.setups == 2)
            continue
        run.claim("Setup and Cleanup alternate", kinds == ["assigned", "revoked"] * 2)
        run.result("commits", len(world.requests_of(main.member, OffsetCommitRequest)))
        received = [offsets(main.member, tp) for tp in (T0, T1)]
        run.claim("each message comes once, in order", received == [list(range(400))] * 2)
        commits = [
            (part.partition_index, part.committed_offset, part.committed_metadata)
            for request in world.requests_of(main.member, OffsetCommitRequest)
            for topic in request.topics
            for part in topic.partitions
        ]
        last = {index: (at, metadata) for index, at, metadata in commits}
        run.result("last commit of each partition", {str(index): at for index, (at, _) in last.items()})
        run.claim("offset plus one, and no metadata", last == {0: (400, ""), 1: (400, "")})
        ends = [
            observation.kind
            for observation in world.observations
            if observation.kind in ("revoking", "revoked", "delivered", "stored")
        ]
        _, after, later, *_ = [*dropwhile(lambda kind: kind != "revoking", ends), "", "", ""]
        run.claim("nothing is delivered between the start and the end of Cleanup", after == "revoked")
        run.claim("and the marked offsets are committed after it", later == "stored")


@scenario(
    "S1-7",
    "sarama's configuration: what Version means for each request, and why a newer sarama did not connect",
    says="sarama 1.38.1 with Version V0_10_2_1, OffsetNewest, SASL PLAIN. A higher version of the package "
    "does not work with the server. Return.Errors is commented out.",
    given="a group whose member is sarama 1.38.1 with that Version, and the SASL version of a 0.10.2 broker: "
    "SaslHandshake 0",
    when="it joins, reads and commits; SASL's first frames are built as 1.38.1 and 1.41 build them by "
    "default; a commit is rejected",
    then="JoinGroup 1, Fetch 3, OffsetCommit 1, a subscription without owned partitions; current brokers "
    "start at Fetch 4 and OffsetCommit 2; handshake 1, sarama's default since 1.41, is not supported there; "
    "errors are only logged",
    takes=(*TIMEOUTS, "assignor"),
)
def sarama_config(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    world.write("t", 0, "old")
    machine = RecordedVersions()
    config: dict[str, Any] = {**USUAL, "reset": "latest"}
    extra = {"Version": "0.10.2.1", "Release": "1.38.1", "Consumer.Return.Errors": False}
    member: ModelClient = world.join("a", machine, topics=["t"], group_id="g", **config, extra=extra)
    world.run(3_000)
    world.write("t", 0, "new")
    world.run(3_000)
    versions_by_api = {
        _api_name(kind): version
        for kind, version in sorted(machine.spoken.items(), key=lambda item: _api_name(item[0]))
    }
    run.result("versions", versions_by_api)
    run.claim(
        "JoinGroup 1, Fetch 3, OffsetCommit 1",
        (versions_by_api["JoinGroup"], versions_by_api["Fetch"], versions_by_api["OffsetCommit"])
        == (1, 3, 1),
    )
    metadata = world.requests_of(member, JoinGroupRequest)[0].protocols[0].metadata
    run.claim("no owned partitions in the subscription", int.from_bytes(metadata[:2], "big") == 0)
    refused = [name for name, version in versions_by_api.items() if version < _lowest_version(name)]
    run.result(
        "rejected by a current broker",
        {name: f"{versions_by_api[name]}, from {_lowest_version(name)} on" for name in refused},
    )
    run.claim("current brokers reject its Fetch and OffsetCommit", refused == ["Fetch", "OffsetCommit"])
    run.claim("OffsetNewest: older records are not read", member.values() == ["new"])

    offered = {"SaslHandshake": 0}
    run.result("SASL that a broker of 0.10.2 offers", offered)
    for release, handshake in (("1.38.1", 0), ("1.41", 1)):
        first, second = sasl.plain_frames(handshake, "adEngine", "secret", "sarama")
        versions = {_api_name(type(item.request)): item.version for item in [decode_request(first[4:])]}
        is_bare_token = second[4:] == sasl.plain_token("adEngine", "secret")
        if not is_bare_token:
            envelope = decode_request(second[4:])
            versions[_api_name(type(envelope.request))] = envelope.version
        is_offered = all(offered.get(name, -1) >= version for name, version in versions.items())
        run.result(
            f"sarama {release} says", [versions, "and a bare token" if is_bare_token else "and no bare token"]
        )
        run.claim(
            f"sarama {release} {'works' if is_offered else 'does not work'} there",
            is_offered == (release == "1.38.1"),
        )

    world.tamper = _reject_commits
    world.write("t", 0, "x")
    world.run(3_000)
    logged = {report.kind for report in member.reports}
    run.result("a rejected commit is reported as", logged)
    run.claim("without Return.Errors it is only logged", logged == {"log"})


def _reject_commits(client: Client, request: Message, version: int) -> Message | None:
    if not isinstance(request, OffsetCommitRequest):
        return None
    parts = [
        OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)])


def _api_name(kind: type[Message]) -> str:
    return kind.__name__.removesuffix("Request")


def _lowest_version(name: str) -> int:
    return request_class(
        next(key for key, api_name in API_NAMES.items() if api_name == name)
    ).__versions__.min
