"""An offset of -1000 in confluent-kafka-go, and the race behind it.

Scenarios of lesson 000 (docs/lessons/000-offset-minus-1000.md). The lesson replays a problem that an
engineer described in a document ("the document").

For each HTTP request, the program assigns partition 0 at an offset, seeks to the same offset, and polls.

If the program subscribes in each HTTP request, instead of once at its start, the outcome depends on the
timing. Some HTTP responses show an assignment with the offset -1000, and their first message is the one at
the committed offset instead of the requested offset.

The document does not explain why. librdkafka's own thread joins the group, and the group's assignment is an
event that waits until the application polls. Handling the event replaces the partitions that were assigned by
hand with the group's partitions, which have no offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError, IllegalState
from ..group.subscription import TopicPartition
from ..messages.join_group import JoinGroupRequest
from ..models import contract, librdkafka
from ..models.common import OffsetToCommit, offset_commit_request
from ..models.librdkafka.constants import INVALID, STORED, offset2str
from ..testing.world import Client, ModelClient, World
from ..wire.message import Message
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, offsets, scenario

TP = TopicPartition("test", 0)
COMMITTED, END, WANTED = 5, 9, 2
COORDINATOR = 2  # The node id of the coordinator in a cluster of two brokers.
LONGEST_MS = 10 * 60_000
RACE = ("join_after_ms", "rejoin_after_ms", "polls", "poll_timeout_ms")


@dataclass(frozen=True, slots=True)
class Request:
    """The outcome of one HTTP request: the last printed assignment, the first message, and the result of the
    seek.
    """

    assigned: int | None
    first: int | None
    seek: str
    # The output of each poll: the lines of the assignment and of the event.
    prints: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def printed(self) -> str:
        """Format the assignment as confluent-kafka-go's TopicPartition.String does."""
        return "none" if self.assigned is None else _partition_text(self.assigned)

    def __str__(self) -> str:
        first = "none" if self.first is None else self.first
        return f"assignment {self.printed}, first message {first}, seek {self.seek}"


def _partition_text(offset: int) -> str:
    """Format partition 0 with an offset as confluent-kafka-go does: logical offsets have names."""
    names = {STORED: "stored", INVALID: "unset"}
    return f"{TP.topic}[{TP.partition}]@{names.get(offset, offset)}"


def _assignment_line(offset: int | None) -> str:
    """Return the line that the program prints for its assignment, or "" if nothing is assigned."""
    return "" if offset is None else f"[{_partition_text(offset)}] <nil> {offset}"


class PollingHandler:
    """The document's program: one application thread, which polls only while it handles an HTTP request.

    The group's first join takes `join_ms`. Later joins take `rejoin_after_ms` of the parameters, or no time
    if it is None.

    A broker lets the only member of a group rejoin immediately. On librdkafka's mock cluster, the member
    waits almost a whole session timeout.
    """

    def __init__(self, run: ScenarioRun, *, join_ms: int, **options: Any) -> None:
        self.run, parameters = run, run.parameters
        join_ms = parameters.join_after_ms if parameters.join_after_ms is not None else join_ms
        stalls_rejoins = parameters.rejoin_after_ms is not None
        settings = {"group.initial.rebalance.delay.ms": join_ms}
        self.world: World = run.world({"test": 1}, settings, brokers=2 if stalls_rejoins else 1)
        self.world.write("test", 0, *[f"m{number}" for number in range(END)])
        self.world.send_as_operator(
            offset_commit_request("test", -1, "", None, {TP: OffsetToCommit(COMMITTED)}), 2
        )
        if stalls_rejoins:
            self.world.elect("test", 0, 1)
            self.world.move_coordinator("test", COORDINATOR)
            self.world.tamper = self._stall_rejoin
        extra = {"binding": "go", "enable.auto.offset.store": False, "enable.partition.eof": True}
        extra |= options.pop("extra", {})
        config: dict[str, Any] = {"auto_commit": False, "reset": "earliest", "extra": extra, **options}
        self.app: ModelClient = self.world.join("handler", librdkafka, group_id="test", **config)
        self.requests: list[Request] = []
        self.world.run(50)

    def _stall_rejoin(self, client: Client, request: Message, version: int) -> None:
        """On each JoinGroup after the group's first join, stall the coordinator for `rejoin_after_ms`."""
        group = self.world.cluster.coordinator.describe("test")
        if isinstance(request, JoinGroupRequest) and group is not None and group.epoch:
            self.world.fault("stall", client, COORDINATOR, lasts=self.run.parameters.rejoin_after_ms)

    def subscribe(self) -> None:
        self.run.moment("subscribes", "handler")
        self.app.do(contract.SubscribeCalled(("test",)))

    def wait(self, ms: int) -> None:
        self.world.run(ms)

    def poll(self, timeout_ms: int) -> str:
        """Poll once and return the event as the program prints it."""
        record_count, report_count = len(self.app.records), len(self.app.reports)
        self.app.poll_once(timeout_ms)
        self.world.run(timeout_ms + 1_000, until=lambda: not self.app.polling)
        if len(self.app.records) > record_count:
            return _partition_text(self.app.records[-1].offset)
        ends = [report for report in self.app.reports[report_count:] if report.name == "_PARTITION_EOF"]
        return f"EOF at {_partition_text(END)}(Broker: No more messages)" if ends else NIL

    def assigned(self) -> int | None:
        """Return the assigned offset of partition 0, or None if the partition is not assigned."""
        return librdkafka.assigned_offsets(self.app.state).get(TP)

    def request(self, polls: int = 4, timeout_ms: int = 400) -> Request:
        """Handle an HTTP request: assign offset 2, seek to 2, then poll `polls` times.

        The run's parameters replace the number and the timeout of the polls.

        Raises ConfigError if the number of polls times their timeout is more than `LONGEST_MS`.
        """
        parameters = self.run.parameters
        polls, timeout_ms = parameters.polls or polls, parameters.poll_timeout_ms or timeout_ms
        if polls * timeout_ms > LONGEST_MS:
            limit = f"at most {LONGEST_MS // timeout_ms} polls of {timeout_ms / 1000:g} s"
            raise ConfigError("polls", polls, f"{limit}, because a request may take at most ten minutes")
        record_count, report_count = len(self.app.records), len(self.app.reports)
        self.run.moment(f"a request: assign and seek to {WANTED}", "handler")
        self.app.do(contract.AssignCalled({TP: WANTED}))
        self.app.do(contract.SeekCalled(TP, WANTED))
        refused = [report.name for report in self.app.reports[report_count:] if report.name in REFUSED]
        prints: list[tuple[str, str]] = []
        for number in range(1, polls + 1):
            event = self.poll(timeout_ms)
            prints.append((_assignment_line(self.assigned()), event))
            if [_comparison_key(lines) for lines in prints[-2:-1]] != [_comparison_key(prints[-1])]:
                printed = " and ".join(filter(None, prints[-1]))
                self.run.moment(f"poll {number} prints {printed}", "handler")
        received = self.app.records[record_count:]
        first = received[0].offset if received else None
        request = Request(self.assigned(), first, refused[0] if refused else "ok", tuple(prints))
        self.requests.append(request)
        return request


def _comparison_key(printed: tuple[str, str]) -> tuple[str, str]:
    """Return the key of a poll. A poll is recorded only if its key differs from the previous poll's.

    The key leaves out the returned message, so polls that differ only in their message have equal keys.
    """
    assigned, event = printed
    return assigned, event.partition("@")[0]


# What the program prints for a poll without an event.
NIL = "<nil>"
# The errors that librdkafka may return from a seek.
REFUSED = ("_STATE", "_INVALID_ARG", "_UNKNOWN_PARTITION")
GOOD = Request(WANTED, WANTED, "ok")
BAD = Request(STORED, COMMITTED, "ok")
EVENT = (
    "The group's join ends in librdkafka's own thread. Its ASSIGN event waits in the queue until the "
    "application polls. The answer to it, an assign without offsets, replaces what was assigned by hand. "
    "No offset means the committed one, STORED = -1000: that is what assignment() prints, and messages "
    "start at the committed offset."
)
LATER = "The group's event arrives after the request has ended."
REVOKED = (
    "Subscribing to the same topic again is a new join for an eager client: a REVOKE is queued, behind "
    "the ASSIGN if the application has not polled yet. The application polls, the queued events are "
    "answered, and nothing is assigned until the next join completes."
)


def _explanation(request: Request) -> str:
    """Return the reason for the offset that is assigned when the request ends (`request.assigned`)."""
    return {None: REVOKED, WANTED: LATER}.get(request.assigned, EVENT)


@scenario(
    "S0-1",
    "Case 1: subscribed outside the handler, the group not joined yet: it works",
    says="With the subscription outside the handler, messages come from the offset of the seek.",
    given="a topic with 9 messages, 5 committed, a join that takes 3 s, one subscribe at the start",
    when="a request assigns and seeks to 2 and polls for 1.6 s",
    then="assignment 2, messages from 2",
    takes=(*RACE, "session_timeout_ms", "assignor", "static"),
)
def outside(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=3_000)
    handler.subscribe()
    request = handler.request()
    run.result("request 1", request)
    run.claim("messages come from 2", request == GOOD)
    run.why(_explanation(request), of_run=True)


@scenario(
    "S0-2",
    "Case 2, first request: subscribed inside the handler, and it still works",
    says="With the subscription inside the handler, the first request after the start works.",
    given="as S0-1, but the handler subscribes itself",
    when="the first request subscribes, assigns, seeks and polls for 1.6 s",
    then="assignment 2, messages from 2",
    takes=(*RACE, "session_timeout_ms", "assignor", "static"),
)
def inside_first(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=3_000)
    handler.subscribe()
    request = handler.request()
    run.result("request 1", request)
    run.claim("messages come from 2", request == GOOD)


@scenario(
    "S0-3",
    "Case 2, next request: -1000, and messages from the committed offset",
    says="The second request fails: seek returns no error, but the offset is -1000.",
    given="the handler subscribes in each request; the join takes --join-after, each request polls "
    "--polls times "
    "for --poll-timeout",
    when="two requests come, four seconds apart",
    then="the second request's assignment is -1000 and its first message 5; the seek returns no error",
    takes=(*RACE, *GROUP),
)
def inside_second(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.subscribe()
    run.result("request 1", handler.request())
    handler.wait(4_000)
    handler.subscribe()
    handler.wait(10)
    request = handler.request()
    run.result("request 2", request)
    run.claim("the seek of request 2 gave no error", request.seek == "ok")
    wanted = (STORED, COMMITTED)
    run.claim("the assignment is STORED and messages start at 5", (request.assigned, request.first) == wanted)
    run.why(_explanation(request), of_run=True)


@scenario(
    "S0-4",
    "Case 3: time between subscribe and seek, in which the event is handled",
    says="A sleep of 100 ms between subscribe and seek helps.",
    given="a group whose join takes milliseconds",
    when="the application subscribes, polls for 100 ms, then assigns and seeks",
    then="messages come from 2: the event was answered before the seek",
    takes=(*RACE, "session_timeout_ms", "assignor", "static"),
)
def sleep_served(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.subscribe()
    handler.poll(100)
    request = handler.request()
    run.result("request", request)
    run.claim("messages come from 2", (request.assigned, request.first) == (WANTED, WANTED))


@scenario(
    "S0-5",
    "Sleeping does not help: events stay in the queue until a poll",
    says="(the same sleep as it really is in Go: the application does not poll meanwhile)",
    given="a group whose join takes milliseconds",
    when="the application subscribes, sleeps 100 ms, then assigns, seeks and polls",
    then="the first poll returns the event: -1000, and messages from 5",
    takes=(*RACE, "session_timeout_ms", "assignor", "static"),
)
def sleep_unserved(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.subscribe()
    handler.wait(100)
    request = handler.request()
    run.result("request", request)
    run.claim("the assignment is STORED and messages come from 5", request == BAD)
    run.why(_explanation(request), of_run=True)


@scenario(
    "S0-6",
    "Subscribing to the same topics again revokes and rejoins, if the protocol is eager",
    says="(what each request of case 2 does)",
    given="a member that has its partition, with range and with cooperative-sticky",
    when="it subscribes to the same topic again",
    then="the eager member is revoked and assigned; the cooperative one keeps its partition",
    takes=("join_after_ms", *TIMEOUTS, "static"),
)
def again(run: ScenarioRun) -> None:
    for assignor, calls in (
        ("range", ["assigned", "revoked", "assigned"]),
        ("cooperative-sticky", ["assigned"]),
    ):
        handler = PollingHandler(run, join_ms=0, assignors=(assignor,))
        handler.app.subscribe("test")
        handler.wait(2_000)
        handler.subscribe()
        handler.wait(2_000)
        callbacks = [kind for kind, _ in handler.app.calls]
        run.result(assignor, callbacks)
        run.claim(f"{assignor}: {', '.join(calls)}", callbacks == calls)


@scenario(
    "S0-7",
    "A subscribe during a rebalance waits until the rebalance ends",
    says="(the document's request while the previous one's join is in progress)",
    given="an ASSIGN event that the application has not answered yet",
    when="the application subscribes to another topic, and polls later",
    then="no JoinGroup is sent until the event is answered; then one for the new topic is sent",
    takes=("join_after_ms", *GROUP),
)
def postponed(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.world.create("other", 1)
    handler.subscribe()
    handler.wait(1_000)
    joins = _join_count(handler)
    handler.app.do(contract.SubscribeCalled(("other",)))
    handler.wait(1_000)
    known, waiting = handler.app.state.subscription, handler.app.state.next_subscription
    run.result("the library's subscription while the event waits, and the next one", [known, waiting])
    run.claim(
        "the new subscription waits until the event is answered", (known, waiting) == (("test",), ("other",))
    )
    run.claim("no JoinGroup is sent meanwhile", _join_count(handler) == joins)
    handler.app.resume_polling()
    handler.wait(3_000)
    run.result("JoinGroups before and after", [joins, _join_count(handler)])
    run.claim("then the new topic is joined", handler.app.owned == {TopicPartition("other", 0)})


def _join_count(handler: PollingHandler) -> int:
    """Return the number of JoinGroup requests that the handler has sent."""
    return sum(
        type(request).__name__ == "JoinGroupRequest"
        for who, request, _ in handler.world.requests
        if who is handler.app
    )


@scenario(
    "S0-8",
    "A seek can come too early: _UNKNOWN_PARTITION or _STATE; the offset of assign() stays",
    says="A seek after the assign returned no error (in the document's runs).",
    given="an application that has no assignment yet",
    when="it seeks; it seeks again after the partition was assigned and unassigned",
    then="_UNKNOWN_PARTITION, then _STATE; the partition is assigned at 2, and messages still come from 2",
    fixed="its partition is assigned by hand, without a group",
)
def too_early(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=3_000)
    handler.app.do(contract.SeekCalled(TP, 7))
    handler.app.do(contract.AssignCalled({TP: WANTED}))
    handler.wait(200)
    handler.app.do(contract.AssignCalled({}))
    handler.wait(200)
    handler.app.do(contract.SeekCalled(TP, 7))
    refused = [report.name for report in handler.app.reports]
    handler.app.do(contract.AssignCalled({TP: WANTED}))
    for _ in range(4):
        handler.poll(400)
    first = offsets(handler.app, TP)[0]
    run.result("seek before the assign, and after the unassign", refused)
    run.result("first message", first)
    run.claim(
        "the partition is unknown first, and not fetched later", refused == ["_UNKNOWN_PARTITION", "_STATE"]
    )
    run.claim("messages come from the offset of the assign", first == WANTED)


@scenario(
    "S0-9",
    "A seek to -1000 is rejected; seek never changes assignment(); position starts at -1001",
    says="The printed offset is that of the assignment, and -1000 is one of librdkafka's logical offsets.",
    given="a partition assigned at 2",
    when="the application seeks to -1000, then to 4, and reads one message",
    then="_INVALID_ARG; assignment stays 2; position is -1001, then 5",
    fixed="its partition is assigned by hand, without a group",
)
def sentinels(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=3_000)
    handler.app.do(contract.AssignCalled({TP: WANTED}))
    handler.wait(200)
    before = librdkafka.position(handler.app.state, TP)
    handler.app.do(contract.SeekCalled(TP, STORED))
    refused = [report.name for report in handler.app.reports]
    handler.app.do(contract.SeekCalled(TP, 4))
    handler.wait(200)
    handler.poll(400)
    after = librdkafka.position(handler.app.state, TP)
    run.result("seek to -1000", refused)
    run.result("assignment", handler.assigned())
    run.result("position before and after a message", [before, after])
    run.claim("seek to -1000 is _INVALID_ARG", refused == ["_INVALID_ARG"])
    run.claim("assignment() still returns 2", handler.assigned() == WANTED)
    run.claim("position was -1001, and is now the last offset plus one", (before, after) == (INVALID, 5))


@scenario(
    "S0-10",
    "Nothing was committed in any case: 5 stays, with a lag of 4",
    says="kafka-consumer-groups shows CURRENT 5, END 9, LAG 4 and no active members before and after.",
    given="enable.auto.commit and enable.auto.offset.store off",
    when="the requests of all cases run, and the application closes",
    then="the group's committed offset is 5 as before, 4 behind the end",
    takes=(*RACE, *GROUP),
)
def untouched(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.subscribe()
    handler.request()
    handler.wait(4_000)
    handler.subscribe()
    handler.request()
    handler.app.close()
    handler.wait(1_000)
    stored = [observation for observation in handler.world.observations if observation.kind == "stored"]
    last = stored[-1].detail[TP] if stored else COMMITTED
    end = handler.world.log(TP).end_offset
    run.result("committed, end, lag", [last, end, end - last])
    run.claim("committed stays 5 of 9", (last, end) == (COMMITTED, END))


@scenario(
    "S0-11",
    "A commit needs both: a stored offset, and enable.auto.commit",
    says="Two places commit offsets, both check enable.auto.commit; two places store offsets, both check "
    "enable.auto.offset.store.",
    given="the four combinations of both options",
    when="the 4 messages from the committed 5 on are read, some seconds pass, and the application closes",
    then="an offset is committed only with both",
    takes=("join_after_ms", *GROUP),
)
def both_flags(run: ScenarioRun) -> None:
    for commit in (True, False):
        for store in (True, False):
            extra = {"enable.auto.offset.store": store, "enable.partition.eof": False}
            handler = PollingHandler(run, join_ms=0, auto_commit=commit, auto_commit_ms=500, extra=extra)
            handler.app.subscribe("test")
            handler.wait(3_000)
            handler.app.close()
            handler.wait(1_000)
            stored = [
                observation.detail[TP]
                for observation in handler.world.observations
                if observation.kind == "stored" and observation.source == "test"
            ]
            last = max([COMMITTED, *stored])
            run.result(f"commit {'on' if commit else 'off'}, store {'on' if store else 'off'}", last)
            run.claim(
                f"commit={commit}, store={store}: {'9' if commit and store else '5'}",
                last == (END if commit and store else COMMITTED),
            )


@scenario(
    "S0-12",
    "Delivered messages are stored: offset plus one",
    says="rd_kafka_op_handle_std stores the offset of a message plus one, with force.",
    given="enable.auto.offset.store on, enable.auto.commit off",
    when="one message is read",
    then="its offset plus one is stored, and nothing is committed",
    fixed="its partition is assigned by hand, without a group",
)
def stored(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0, extra={"enable.auto.offset.store": True})
    handler.app.do(contract.AssignCalled({TP: WANTED}))
    handler.wait(200)
    handler.poll(400)
    stored_offset = handler.app.state.partitions[TP].stored_position.offset
    run.result("read", offsets(handler.app, TP))
    run.result("stored", stored_offset)
    run.claim(
        "the stored offset is one more than the message's", stored_offset == offsets(handler.app, TP)[-1] + 1
    )


@scenario(
    "S0-13",
    "The end of a partition is an event, reported once, and not a message",
    says="enable.partition.eof is on in the document's configuration.",
    given="a partition with 9 messages, read from 5",
    when="the application polls past the end for a while",
    then="_PARTITION_EOF comes once; 4 messages come",
    takes=("join_after_ms", *GROUP),
)
def end_of_partition(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0)
    handler.app.subscribe("test")
    handler.wait(5_000)
    ends = [
        error
        for error in [*handler.app.errors, *[(report.name, report.text) for report in handler.app.reports]]
        if "EOF" in error[0]
    ]
    run.result("messages", offsets(handler.app, TP))
    run.result("end of partition", len(ends))
    run.claim("messages 5 to 8 came", offsets(handler.app, TP) == [5, 6, 7, 8])
    run.claim("the end was reported once", len(ends) == 1)


@scenario(
    "S0-14",
    "kproto: assign beside subscribe is rejected, and a seek in the callback always holds",
    says="(the same program, written safely)",
    given="kproto's consumer, subscribed",
    when="it assigns by hand; then a callback seeks to 2 when the partition is assigned",
    then="the assign raises IllegalState; messages come from 2, whenever the join completes",
    takes=("join_after_ms", *GROUP),
)
def safely(run: ScenarioRun) -> None:
    delay = run.parameters.join_after_ms or 0
    world = run.world({"test": 1}, {"group.initial.rebalance.delay.ms": delay})
    world.write("test", 0, *[f"m{number}" for number in range(END)])
    world.send_as_operator(offset_commit_request("test", -1, "", None, {TP: OffsetToCommit(COMMITTED)}), 2)
    member = world.join("handler", group_id="test", auto_offset_reset="earliest")

    def listener(kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        if kind == "assigned":
            member.seek(TP, WANTED)

    member.listener = listener
    member.subscribe("test")
    refused = ""
    try:
        member.assign({TP: WANTED})
    except IllegalState as error:
        refused = str(error)
    world.run(delay + 3_000)
    run.result("assign while subscribed", refused or "taken")
    run.result("messages", offsets(member, TP))
    run.claim("assign is refused", bool(refused))
    run.claim("messages come from 2", offsets(member, TP) == list(range(WANTED, END)))


@scenario(
    "S0-16",
    "assignment() shows the offset of each assignment as a number; the numbers have names",
    says="as[0].Offset is printed as a number; -1000 appears among them.",
    given="librdkafka's logical offsets",
    when="they are named",
    then="-1000 is STORED, -1001 INVALID, -2 BEGINNING, -1 END",
    takes=("join_after_ms", *GROUP),
)
def names(run: ScenarioRun) -> None:
    named = {number: offset2str(number) for number in (-1000, -1001, -2, -1)}
    run.result("names", named)
    run.claim("each has its name", list(named.values()) == ["STORED", "INVALID", "BEGINNING", "END"])
    handler = PollingHandler(run, join_ms=0)
    handler.app.subscribe("test")
    handler.wait(2_000)
    run.result("assignment after reading to the end", handler.assigned())
    run.claim("the assignment is STORED, whatever was read", handler.assigned() == STORED)
