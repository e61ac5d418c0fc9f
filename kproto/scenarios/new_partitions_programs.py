"""The programs of lesson 001 for libraries other than sarama, and the features of each library.

See docs/lessons/001-new-partitions.md. The lesson replays a problem that an engineer described in a
document ("the document").
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any, Final

from ..error_codes import ErrorCode
from ..messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ..messages.heartbeat import HeartbeatRequest
from ..messages.index import API_NAMES
from ..messages.join_group import JoinGroupRequest
from ..models import contract, librdkafka, sasl
from ..models.index import load_model
from ..models.librdkafka import conf
from ..testing.world import Client, ModelClient, World
from ..wire.message import Message
from .new_partitions_sarama import T0, T1, USUAL
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, clients, join, offsets, produce, scenario

# -- sarama-cluster's example -----------------------------------------------------------------------------


@scenario(
    "S1-11",
    "sarama-cluster's configuration: which strategy option it reads, and which it ignores",
    says="Return.Errors, Return.Notifications, MaxWaitTime 800 ms, CommitInterval 1 s, OffsetOldest, "
    "RefreshFrequency a "
    "minute, and Consumer.Group.Rebalance.Strategy round robin.",
    given="two sarama-cluster members, and two topics with three partitions each",
    when="they are configured as in the example; then with its own Group.PartitionStrategy instead",
    then="fetches wait 800 ms, commits are 1 s apart, metadata 1 min; both protocols are offered, and "
    "range is used whatever Rebalance.Strategy says; the leader's PartitionStrategy decides",
    takes=TIMEOUTS,
)
def cluster_config(run: ScenarioRun) -> None:
    plans: dict[str, list[list[str]]] = {}
    config: dict[str, Any] = {**USUAL, "metadata_ms": 60_000, "auto_commit_ms": 1_000, "fetch_wait_ms": 800}
    for name, extra in (
        ("Rebalance.Strategy", {}),
        ("PartitionStrategy", {"PartitionStrategy": "roundrobin"}),
    ):
        world = run.world({"t": 3, "u": 3})
        strategy = {"assignors": ("roundrobin",)} if not extra else {}
        members = [
            join(world, member_name, "sarama-cluster", topics=("t", "u"), **config, **strategy, extra=extra)
            for member_name in "ab"
        ]
        for member in members:
            member.poll_timeout_ms = 1_000
        world.run(10_000)
        plans[name] = [sorted(map(str, member.owned)) for member in members]
        run.result(f"{name} round robin", [" ".join(partitions) for partitions in plans[name]])
        offered = [protocol.name for protocol in world.requests_of(members[0], JoinGroupRequest)[0].protocols]
        run.claim(f"{name}: range and roundrobin are offered", offered == ["range", "roundrobin"])
        if extra:
            continue
        started_at = world.now
        produce(world, "t", range(3), 20, 6_000)
        world.run(70_000)
        waits = {
            request.max_wait_ms for member in members for request in world.requests_of(member, FetchRequest)
        }
        run.result("a Fetch waits, ms", sorted(waits))
        run.claim("MaxWaitTime is 800 ms", waits == {800})
        commits = _request_times(world, members[0], "OffsetCommit", started_at)
        intervals = {later - earlier for earlier, later in pairwise(commits)}
        run.result("ms between commits", sorted(intervals))
        run.claim("a commit each second while there is something to commit", intervals == {1_000})
        refreshed = _request_times(world, members[0], "Metadata", started_at)
        run.result("metadata in 76 s", len(refreshed))
        run.claim("the metadata once a minute", len(refreshed) == 1)
    by_range = [["t-0", "t-1", "u-0", "u-1"], ["t-2", "u-2"]]
    run.claim("Rebalance.Strategy is ignored: range is used", sorted(plans["Rebalance.Strategy"]) == by_range)
    by_round_robin = [["t-0", "t-2", "u-0", "u-2"], ["t-1", "u-1"]]
    run.claim(
        "PartitionStrategy is used, for each topic", sorted(plans["PartitionStrategy"]) == by_round_robin
    )


def _request_times(world: World, member: Any, name: str, since: int) -> list[int]:
    """Return the times at which a client's requests of one API reached a broker."""
    times: list[int] = []
    for entry in world.entries:
        if entry.at >= since and entry.who == member.name and entry.kind == "request":
            key = int.from_bytes(entry.data.body[:2], "big")
            times += [entry.at] * (API_NAMES[key] == name)
    return times


@scenario(
    "S1-12",
    "sarama-cluster's two loops: a blocked sink blocks messages, not heartbeats, errors and notifications",
    says="One goroutine reads Messages and marks; another handles a tick of 5 s, Errors and "
    "Notifications. In a single goroutine nothing would be printed while the sink of the messages "
    "blocks.",
    given="the example, a second consumer that joins later, and a sink that blocks after 20 messages",
    when="it blocks for 20 s while the second consumer joins; then the sink continues, and the consumer "
    "is closed",
    then="no message is handled and nothing is committed while it blocks; the ticks continue; "
    "notifications come in order (start, then OK with claimed, released, current); the member stays "
    "in the group; nothing is lost",
    takes=TIMEOUTS,
)
def two_loops(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    member: ModelClient = join(world, "a", "sarama-cluster", **USUAL)
    ticks: list[int] = []

    def tick() -> None:
        if not member.closed:
            ticks.append(world.now)
            run.moment("consumer alive", "a")
            world.call_later(5_000, tick)

    world.call_later(5_000, tick)
    for partition in (0, 1):
        world.write("t", partition, *["x"] * 10)
    world.run(6_000)
    run.moment("the sink blocks", "a")
    member.pause_polling()
    world.run(100)
    for partition in (0, 1):
        world.write("t", partition, *["y"] * 10)
    blocked_at, handled = world.now, len(member.records)
    heartbeats_before = len(world.requests_of(member, HeartbeatRequest))
    world.run(5_000)
    second = join(world, "b", "sarama-cluster", **USUAL)
    world.run(15_000)
    ticks_while_blocked = [at for at in ticks if at > blocked_at]
    heartbeats = len(world.requests_of(member, HeartbeatRequest)) - heartbeats_before
    run.result(
        "while the sink blocks: messages, ticks", [len(member.records) - handled, len(ticks_while_blocked)]
    )
    run.result("heartbeats", heartbeats)
    run.claim(
        "no message is handled, and the ticks continue",
        len(member.records) == handled and len(ticks_while_blocked) == 4,
    )
    run.claim("the member stays in the group", heartbeats > 30)
    run.result("notifications", [report.text for report in member.reports])
    names = [report.name for report in member.reports if report.kind == "notification"]
    run.claim("start and OK alternate", names == ["rebalance start", "rebalance OK"] * 2)
    last = "".join([report.text for report in member.reports][-1:])
    run.claim(
        "the last one names the released and the current partitions",
        "Released:map[t:[1]] Current:map[t:[0]]" in last,
    )
    member.resume_polling()
    world.run(5_000)
    member.close()
    world.run(8_000)
    read_all = {
        tp: sorted({offset for reader in (member, second) for offset in offsets(reader, tp)})
        for tp in (T0, T1)
    }
    run.claim(
        "everything is read in the end",
        all(read_offsets == list(range(20)) for read_offsets in read_all.values()),
    )
    run.why(
        "Close closes both channels. The example checks `if ok` and loops: a receive from a closed "
        "channel never blocks, so both loops spin until the process ends. kproto's errors() ends instead."
    )


# -- confluent's example ----------------------------------------------------------------------------------

# The options that the document's function newConsumer sets, except that the password differs.
CONFLUENT: Final = {
    "bootstrap.servers": "yz-cen048.kafka.data.cn:9120,bx-mq002.kafka.data.cn:9120",
    "group.id": "g",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "adEngine",
    "sasl.password": "secret",
    "auto.offset.reset": "earliest",
}


class ReadMessage:
    """Model confluent-kafka-go's ReadMessage, which polls until a message, an error or a timeout occurs.

    Other events of a poll (the end of a partition, rebalances) are dropped.
    """

    def __init__(self, world: World, **config: Any) -> None:
        self.world = world
        self.member: ModelClient = world.join("a", librdkafka, group_id="g", **config)
        self.member.do(contract.SubscribeCalled(("t",)))
        self.thrown_away: list[str] = []
        self._handled_records = self._handled_reports = 0

    def __call__(self, timeout_ms: int = 1_000) -> str:
        """Call ReadMessage; return "message", the name of the error, or "_TIMED_OUT"."""
        end = self.world.now + timeout_ms
        while True:
            for report in self.member.reports[self._handled_reports :]:
                self._handled_reports += 1
                if report.kind == "error":
                    return report.name
                self.thrown_away.append(report.name)
            if len(self.member.records) > self._handled_records:
                self._handled_records += 1
                return "message"
            if self.world.now >= end:
                return "_TIMED_OUT"
            self.member.poll_once(end - self.world.now)
            self.world.run(timeout_ms + 1_000, until=lambda: not self.member.polling)


@scenario(
    "S1-18",
    "confluent-kafka's ReadMessage: a timeout is not fatal, errors pass, events are dropped, a fatal "
    "error stays",
    says="ReadMessage(1 s) in a loop: a message is printed, a timeout ignored, any other error printed, "
    "because the client tries to recover from all errors.",
    given="the example's loop with enable.partition.eof, so that there are events beside messages",
    when="it reads 5 messages, then none; reading the topic is denied for a while; in another run a "
    "second member with the same group.instance.id fences it",
    then="5 messages, timeouts, one error however long it lasts, then messages again; partition ends are "
    "never returned; the fenced member returns _FATAL once, then only timeouts, and each later "
    "subscribe returns _FATAL again",
    takes=(*TIMEOUTS, "assignor"),
)
def read_message(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    world.write("t", 0, *["x"] * 5)
    program = ReadMessage(world, reset="earliest", metadata_ms=5_000, extra={"enable.partition.eof": True})
    first = [program() for _ in range(10)]
    run.result("at first", _count_runs(first))
    run.claim("5 messages, then timeouts", first.count("message") == 5 and set(first[-3:]) == {"_TIMED_OUT"})
    run.claim("the end of the partition is dropped", program.thrown_away == ["_PARTITION_EOF"])
    world.tamper = _deny_reading
    run.moment("forbids reading", "operator")
    second = [program() for _ in range(5)]
    world.tamper = None
    world.write("t", 0, "x")
    third = [program() for _ in range(5)]
    world.tamper = _deny_reading
    third_refusal = [program() for _ in range(5)]
    world.tamper = None
    run.result("while reading is denied", _count_runs(second))
    run.result("afterwards", _count_runs(third))
    run.claim(
        "the error is returned once, and passes",
        second.count("TOPIC_AUTHORIZATION_FAILED") == 1 and set(second[-3:]) == {"_TIMED_OUT"},
    )
    run.claim("then messages come again", "message" in third)
    run.claim("the second time it is one error, too", third_refusal.count("TOPIC_AUTHORIZATION_FAILED") == 1)

    world = run.world({"t": 1})
    program = ReadMessage(world, instance="one", heartbeat_ms=500)
    for _ in range(5):
        program()
    world.join("b", librdkafka, topics=["t"], group_id="g", instance="one")
    fenced = [program() for _ in range(20)]
    run.result("fenced", _count_runs(fenced))
    run.claim(
        "_FATAL once, then timeouts", fenced.count("_FATAL") == 1 and set(fenced[-5:]) == {"_TIMED_OUT"}
    )
    later: list[str] = []
    for _ in range(2):
        program.member.do(contract.SubscribeCalled(("t",)))
        later.append(program())
    run.result("subscribe says", later)
    run.claim("each later call returns it again", later == ["_FATAL", "_FATAL"])


def _count_runs(results: list[str]) -> list[str]:
    """Return "N x RESULT" for each run of equal results."""
    return [f"{len(list(group))} x {result}" for result, group in groupby(results)]


def _deny_reading(client: Client, request: Message, version: int) -> Message | None:
    if not isinstance(request, FetchRequest):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = PartitionData(
        partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
    topics = [
        FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[refused])
        for topic in request.topics
    ]
    return FetchResponse(throttle_time_ms=0, responses=topics)


@scenario(
    "S1-19",
    "librdkafka's names for SASL PLAIN, and the token that they produce",
    says="security.protocol SASL_PLAINTEXT, sasl.mechanisms PLAIN, sasl.username, sasl.password, earliest.",
    given="the example's seven properties, under librdkafka's names and the alias sasl.mechanism",
    when="they are parsed, a consumer runs with them, and an unknown protocol is requested",
    then="each is accepted; the token is user and password between NUL bytes; the consumer reads from the "
    "beginning (the identity belongs to the connection, not to the group); the unknown protocol is "
    "rejected, in librdkafka's words",
    takes=GROUP,
)
def sasl_properties(run: ScenarioRun) -> None:
    properties = conf.read(CONFLUENT)
    run.result(
        "properties",
        {name: value for name, value in properties.properties.items() if name != "sasl.password"},
    )
    run.claim("all seven are accepted", len(properties.properties) == 7)
    alias = {name.replace("mechanisms", "mechanism"): value for name, value in CONFLUENT.items()}
    run.claim("sasl.mechanism is sasl.mechanisms", conf.read(alias).properties == properties.properties)
    token = sasl.plain_token(
        str(properties.properties["sasl.username"]), str(properties.properties["sasl.password"])
    )
    run.result("token", repr(token))
    run.claim("the token is RFC 4616's", token == b"\0adEngine\0secret")
    world = run.world({"t": 1})
    world.write("t", 0, *["x"] * 5)
    member: ModelClient = world.join(
        "a", librdkafka, topics=["t"], **conf.as_options(properties) | {"client_id": "a"}
    )
    world.run(5_000)
    run.claim("it reads from the beginning", offsets(member, T0) == list(range(5)))
    message = ""
    try:
        conf.read({**CONFLUENT, "security.protocol": "SASL"})
    except conf.PropertyRejected as error:
        message = error.errstr
    run.result("security.protocol=SASL", message)
    run.claim("an unknown protocol is rejected", "security.protocol" in message)


# -- the libraries ----------------------------------------------------------------------------------------

ACTS: Final[dict[str, contract.ModelEvent]] = {
    "pattern": contract.SubscribeCalled(pattern="^t.*"),
    "pause": contract.PauseCalled((T0,)),
    "assign": contract.AssignCalled({T0: 0}),
    "seek": contract.SeekCalled(T0, 0),
    "rebalance": contract.RebalanceCalled(),
}


@scenario(
    "S1-27",
    "What each library supports, tried on its model",
    says="sarama is a pure Go client with producers and consumers. sarama-cluster is built on an old "
    "sarama, unmaintained since 2020, and sarama now has its features (#1099). kafka-go manages "
    "partitions and offsets. confluent-kafka-go has librdkafka's features, including transactions.",
    given="each client of the document, Java's, and their newest requests",
    when="each joins a group with a static id, and is asked to subscribe to a pattern, pause, assign, "
    "seek, rebalance",
    then="a table: sarama-cluster sends no newer request version than sarama, and only its whitelist is "
    "extra; librdkafka, sarama and Java support static members; only librdkafka defaults to "
    "read_committed",
    takes=TIMEOUTS,
)
def libraries(run: ScenarioRun) -> None:
    abilities_of: dict[str, dict[str, bool]] = {}
    versions: dict[str, dict[int, int]] = {}
    for kind in clients():
        if kind == "kproto":
            continue
        versions[kind] = dict(load_model(kind).VERSIONS)
        abilities_of[kind] = _abilities(run, kind)
        run.result(
            kind,
            f"JoinGroup {versions[kind][11]}, Fetch {versions[kind][1]}; "
            + (
                ", ".join(name for name, able in abilities_of[kind].items() if able)
                or "none of these in a group"
            ),
        )
    run.claim(
        "sarama-cluster sends no newer version than sarama",
        all(version <= versions["sarama"][key] for key, version in versions["sarama-cluster"].items()),
    )
    additional = {
        name
        for name, able in abilities_of["sarama-cluster"].items()
        if able and not abilities_of["sarama"][name]
    }
    run.result("sarama-cluster has, and sarama has not", additional)
    run.claim("sarama lacks only sarama-cluster's whitelist", additional == {"pattern"})
    static = {kind for kind, able in abilities_of.items() if able["static member"]}
    run.claim("static members", static == {"java", "java-2.6", "sarama", "librdkafka"})
    committed_only = {kind for kind, able in abilities_of.items() if able["read_committed"]}
    run.claim("only librdkafka skips aborted transactions by default", committed_only == {"librdkafka"})
    run.why(
        "kafka-go reads single partitions with a Reader that has no group (Partition), and seeks there "
        "(SetOffset). kproto's model of kafka-go is a Reader with a group, which has neither."
    )


def _abilities(run: ScenarioRun, kind: str) -> dict[str, bool]:
    """Use each feature once, and return for each whether the client supports it.

    A feature counts as unsupported if the client reports an error, or if its requests or deliveries do not
    show the feature.
    """
    abilities: dict[str, bool] = {}
    world = run.world({"t": 1})
    member: ModelClient = join(world, "a", kind, **USUAL, instance="one")
    world.run(3_000)
    joined = world.requests_of(member, JoinGroupRequest)
    abilities["static member"] = any(join_request.group_instance_id == "one" for join_request in joined)
    abilities["read_committed"] = all(
        request.isolation_level == 1 for request in world.requests_of(member, FetchRequest)
    )
    for name, event in ACTS.items():
        world = run.world({"t": 1})
        member = join(world, "a", kind, topics=(), **USUAL)
        if name in ("pause", "seek", "rebalance"):
            member.subscribe("t")
        world.run(3_000)
        member.do(event)
        world.run(1_000)
        if name in ("pattern", "assign"):
            member.resume_polling()
        world.write("t", 0, "x")
        world.run(4_000)
        refused = any(report.kind == "error" for report in member.reports) or bool(member.errors)
        abilities[name] = not refused and (name in ("pause", "rebalance", "seek") or bool(member.records))
        if name == "pause":
            abilities[name] = abilities[name] and not member.records
    return abilities
