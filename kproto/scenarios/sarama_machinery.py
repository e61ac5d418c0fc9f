"""sarama's fetch loop, partition consumers, offset manager, and producer.

Scenarios of lesson 003 (docs/lessons/003-sarama-walk.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from consumer.sarama.messages import check_returns

from ..error_codes import ErrorCode
from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..messages.fetch import FetchRequest, FetchResponse
from ..messages.list_offsets import ListOffsetsRequest
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ..models import contract, sarama
from ..models.common import OffsetToCommit, offset_commit_request
from ..testing.world import Client, ModelClient, Producer, World
from ..wire.message import Message
from .consumer_group_command import COLUMNS, describe
from .parameters import GROUP, TIMEOUTS
from .sarama_stage import RecordedVersions
from .sarama_walk import T0, T1, USUAL
from .scenario import ScenarioRun, numbers, offsets, scenario


class Watched:
    """A wrapper around sarama's model that records the time of each request and response."""

    VERSIONS = sarama.VERSIONS

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, Any]] = []

    def start(self, config: contract.ModelConfig) -> sarama.SaramaState:
        return sarama.start(config)

    def step(
        self, state: sarama.SaramaState, event: contract.ModelEvent, now: int
    ) -> list[contract.ModelAction]:
        if isinstance(event, contract.ResponseReceived | contract.RequestFailed):
            self.lines.append((now, type(event).__name__, event))
        actions = sarama.step(state, event, now)
        self.lines += [
            (now, "Send", action) for action in actions if isinstance(action, contract.SendRequest)
        ]
        return actions

    def next_deadline(self, state: sarama.SaramaState) -> int | None:
        return sarama.next_deadline(state)

    def sent_requests(self, kind: type[Any]) -> list[tuple[int, Any]]:
        return [
            (at, exchange.request)
            for at, direction, exchange in self.lines
            if direction == "Send" and isinstance(exchange.request, kind)
        ]

    def ended_exchanges(self, kind: type[Any], how: str = "ResponseReceived") -> list[tuple[int, Any]]:
        return [
            (at, exchange)
            for at, direction, exchange in self.lines
            if direction == how and isinstance(exchange.request, kind)
        ]


def _fetch_offsets(request: FetchRequest) -> dict[TopicPartition, int]:
    """Return the fetch offset of each partition that the request names."""
    return {
        TopicPartition(topic.topic or "", partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def _partitions_with_records(response: FetchResponse) -> list[int]:
    """Return the partitions of the response that have records."""
    parts = [part for topic in response.responses for part in topic.partitions]
    return sorted(part.partition_index for part in parts if part.records)


def watched(world: World, *, topics: Iterable[str] = ("t",), **config: Any) -> tuple[Watched, ModelClient]:
    """Start a sarama member; return its recording model and the member."""
    machine = Watched()
    options = {**USUAL, **config}
    return machine, world.join("a", machine, topics=list(topics), group_id="g", **options)


@scenario(
    "S3-10",
    "subscriptionConsumer: no Fetch before a partition arrives or while one is fed; a broken one restarts",
    says="subscriptionConsumer waits for its first subscription; each response is written to every "
    "partition's feeder, and acks.Wait() delays the next request; on an error it aborts and returns.",
    given="a member with two partitions of one broker, MaxProcessingTime 200 ms, buffers of 8 messages",
    when="it starts; later its handlers stop taking messages; later the connection breaks during a Fetch",
    then="the first Fetch is sent when the first partitions were collected; the next one waits for the "
    "fed partitions, at most twice MaxProcessingTime; the break is an error for each partition; "
    "after the backoff of 2 s one Fetch names both again, and nothing is lost",
    takes=GROUP,
)
def subscription_consumer(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    machine, member = watched(world, extra={"Consumer.MaxProcessingTime": 200, "ChannelBufferSize": 8})
    world.run(3_000)
    listed_at = machine.ended_exchanges(ListOffsetsRequest)[-1][0]
    first_at, first_fetch = machine.sent_requests(FetchRequest)[0]
    gathering_ms = first_at - listed_at
    run.result("first Fetch after the first partition's offset", f"{gathering_ms} ms")
    run.claim("both partitions are in the first Fetch", set(_fetch_offsets(first_fetch)) == {T0, T1})
    run.claim("it waited for them", 0 < gathering_ms <= 105)

    member.pause_polling()
    run.moment("the handlers take no more messages", "a")
    for tp in (T0, T1):
        world.write("t", tp.partition, *["x"] * 40)
    world.run(2_000)
    fed_at = next(
        at for at, fetch in machine.ended_exchanges(FetchRequest) if _partitions_with_records(fetch.response)
    )
    held_ms = next((at for at, _ in machine.sent_requests(FetchRequest) if at >= fed_at), world.now) - fed_at
    run.result("no Fetch while partitions are fed, for", f"{held_ms} ms")
    run.claim("the next Fetch waited for both feeders", 200 <= held_ms <= 400)
    member.resume_polling()
    world.run(2_000)

    run.moment("all connections break", "network")
    before = len(member.reports)
    world.fault("cut", member, lasts=1)
    broken_at = world.now
    for tp in (T0, T1):
        world.write("t", tp.partition, *["y"] * 10)
    world.run(6_000)
    errors = [report.name for report in member.reports[before:] if report.kind == "error"]
    retry_at = next(at for at, _ in machine.sent_requests(FetchRequest) if at > broken_at + 1)
    run.result("errors", errors)
    run.result("next Fetch after", f"{retry_at - broken_at} ms")
    run.claim("an error for each partition", errors.count("sarama.ConsumerError") == 2)
    run.claim("the next Fetch is sent after the backoff", 2_000 <= retry_at - broken_at <= 2_500)
    run.claim("nothing is lost or read twice", all(offsets(member, tp) == list(range(50)) for tp in (T0, T1)))


@scenario(
    "S3-11",
    "One response holds several partitions, and each goes to its own claim",
    says="One request can fetch several partitions; the response is split by partition.",
    given="a member with four partitions of one broker",
    when="records are written to all four at once",
    then="one response has them; each claim gets its own partition's, from its own offset",
    takes=("partitions", "session_timeout_ms", "assignor", "static"),
)
def split(run: ScenarioRun) -> None:
    world = run.world({"t": 4})
    machine, member = watched(world)
    for tp in world.partitions():
        world.write("t", tp.partition, *[f"{tp}" for _ in range(tp.partition + 1)])
    world.run(3_000)
    partitions_of_responses = [
        _partitions_with_records(fetch.response) for _, fetch in machine.ended_exchanges(FetchRequest)
    ]
    partition_lists = [partitions for partitions in partitions_of_responses if partitions]
    run.result(
        "partitions with records, in each response",
        [" ".join(map(str, partitions)) for partitions in partition_lists],
    )
    run.result("given", {str(tp): offsets(member, tp) for tp in world.partitions()})
    run.claim("one response had all of them", partition_lists == [list(numbers(world))])
    for tp in world.partitions():
        received = [record.value for record in member.records if record.partition == tp]
        run.claim(f"{tp} got its own records", received == [str(tp).encode()] * (tp.partition + 1))


@scenario(
    "S3-13",
    "ConsumePartition: start offset, leader, once only, then queued",
    says="ConsumePartition creates a partition consumer with buffered channels, chooses its start offset, "
    "finds the leader, registers the child, starts two goroutines, and subscribes it at the leader's "
    "broker consumer.",
    given="two brokers that lead one partition each, both with offsets 0 to 9, and sarama's Consumer "
    "without a group",
    when="partition 0 is consumed from OffsetNewest, 1 from OffsetOldest; then 0 again, and 2 from offset 99",
    then="both ends of each log are looked up first, then each partition is fetched from its leader; the "
    "second call is a ConfigurationError, 99 is out of range, and the two continue",
    fixed="its partitions are consumed without a group",
)
def consume_partition(run: ScenarioRun) -> None:
    world = run.world({"t": 3}, brokers=2)
    for partition, node in ((0, 1), (1, 2), (2, 1)):
        world.elect("t", partition, node)
    for tp in (T0, T1):
        world.write("t", tp.partition, *["x"] * 10)
    machine, member = watched(world, topics=())
    # Each call of ConsumePartition returns when the newest and oldest offsets and the leader are known.
    for tp, start in ((T0, -1), (T1, -2)):
        member.assign({tp: start})
        world.run(1_000)
    begun = [
        (TopicPartition(topic.name, part.partition_index), part.timestamp)
        for _, request in machine.sent_requests(ListOffsetsRequest)
        for topic in request.topics
        for part in topic.partitions
    ]
    run.result("ListOffsets", [f"{tp} {'newest' if at == -1 else 'oldest'}" for tp, at in begun])
    run.claim("both ends are looked up", begun == [(T0, -1), (T0, -2), (T1, -1), (T1, -2)])
    first: dict[TopicPartition, tuple[str, int]] = {}
    for _, direction, send in machine.lines:
        if direction == "Send" and isinstance(send.request, FetchRequest):
            for tp, offset in _fetch_offsets(send.request).items():
                first.setdefault(tp, (send.to.host, offset))
    run.result("first Fetch of each", {str(tp): f"{host}, offset {at}" for tp, (host, at) in first.items()})
    run.claim("each starts at its offset", {tp: at for tp, (_, at) in first.items()} == {T0: 10, T1: 0})
    run.claim("each is fetched from its leader", len({host for host, _ in first.values()}) == 2)
    for tp, start in ((T0, 3), (TopicPartition("t", 2), 99)):
        member.assign({tp: start})
        world.run(1_000)
    errors = [report.name for report in member.reports if report.kind == "error"]
    run.result("refused", errors)
    run.claim(
        "twice is an error, and 99 is out of range", errors == ["sarama.ConfigurationError", "KError(1)"]
    )
    world.write("t", 0, "y")
    world.write("t", 1, "y")
    world.run(1_000)
    run.result("read", {str(tp): len(offsets(member, tp)) for tp in (T0, T1)})
    run.claim("the first two continue", (offsets(member, T0), offsets(member, T1)) == ([10], list(range(11))))


# -- the offset manager -----------------------------------------------------------------------------------


@scenario(
    "S3-17",
    "constructRequest: only dirty partitions, and the retention if the version has it",
    says="constructRequest makes version 1 with a timestamp when Offsets.Retention is 0, else version 2 "
    "with RetentionTime in ms; it adds a block for each dirty partition, and returns nil without any.",
    given="a member with sarama 1.38.1, without Offsets.Retention and with an hour; and with sarama 1.61.1 "
    "and an hour, on a cluster whose OffsetCommit ends at version 4, and on today's",
    when="it has read both partitions, then one more message of one of them, then none for a while",
    then="1.38.1 builds version 1 with the timestamp -1 (the broker's time), and version 2 with 3,600,000 "
    "ms; 1.61.1 builds the newest version, which has no retention from version 5 on; the second commit names "
    "one partition; then there is none (Kafka 4.0 dropped version 1)",
    takes=(*TIMEOUTS, "assignor"),
)
def construct_request(run: ScenarioRun) -> None:
    hour = 3_600_000
    for name, release, highest, retention, expected in (
        ("1.38.1, Retention 0", "1.38.1", None, 0, "v1 timestamp -1"),
        ("1.38.1, Retention 1 h", "1.38.1", None, hour, f"v2 retention {hour}"),
        ("1.61.1, up to v4", "1.61.1", {"OffsetCommit": 4}, hour, f"v4 retention {hour}"),
        ("1.61.1, today's", "1.61.1", None, hour, "v8"),
    ):
        world = run.world({"t": 2}, highest=highest)
        model = RecordedVersions()
        extra = {"Offsets.Retention": retention, "Release": release}
        world.join("a", model, topics=["t"], group_id="g", **USUAL, extra=extra)
        for tp in (T0, T1):
            world.write("t", tp.partition, "x", "x")
        world.run(4_000)
        world.write("t", 0, "x")
        world.run(10_000)
        partitions = [
            [part.partition_index for topic in commit.topics for part in topic.partitions]
            for _, commit in model.commits
        ]
        forms = [_commit_form(version, commit.retention_time_ms) for version, commit in model.commits]
        run.result(
            name, [f"{form} partitions {parts}" for form, parts in zip(forms, partitions, strict=True)]
        )
        run.claim(f"{name}: {expected}", set(forms) == {expected})
        run.claim(f"{name}: only dirty partitions", partitions == [[0, 1], [0]])


def _commit_form(version: int, retention_ms: int) -> str:
    """Describe the version of an OffsetCommit, and the field that limits the lifetime of its offsets."""
    # As the timestamp of OffsetCommit version 1, sarama sends -1 (ReceiveTime).
    forms = {1: "v1 timestamp -1", 2: f"v2 retention {retention_ms}", 4: f"v4 retention {retention_ms}"}
    return forms.get(version, f"v{version}")


@scenario(
    "S3-18",
    "Marked during a commit: the partition stays dirty",
    says="constructRequest copies offset and metadata of each dirty partition under its lock, and "
    "releases it.",
    given="a member whose coordinator answers 1 s late, and 50 messages that were read",
    when="their commit is in flight, 30 more are read and marked, and no more arrive",
    then="the response for 50 does not make the partition clean: 80 is committed without another message",
    takes=GROUP,
)
def marked_meanwhile(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, brokers=2)

    coordinator = world.cluster.group_coordinator_of("g")
    world.elect("t", 0, 3 - coordinator)
    machine, member = watched(world, auto_commit_ms=2_000)
    world.run(2_500)
    slow = world.fault("delay", member, coordinator, ms=500)
    world.write("t", 0, *["x"] * 50)
    world.run(5_000, until=lambda: bool(machine.sent_requests(OffsetCommitRequest)))
    run.moment("the commit of 50 is in flight", "a")
    world.write("t", 0, *["y"] * 30)
    world.run(900)
    answered = len(machine.ended_exchanges(OffsetCommitRequest))
    run.claim("30 more were read before the response", len(member.records) == 80 and not answered)
    world.run(1_000)
    partition_offset = member.state.group.session.offsets.partition_offsets[T0]
    run.result("offset, dirty after the response", [partition_offset.offset, partition_offset.dirty])
    run.claim(
        "it is still dirty then",
        partition_offset.dirty and len(machine.ended_exchanges(OffsetCommitRequest)) == 1,
    )
    world.network.heal(slow)
    world.run(6_000)
    stored = [observation.detail[T0] for observation in world.observations if observation.kind == "stored"]
    run.result("committed", stored)
    run.claim("50, then 80 without another message", stored == [50, 80])
    partition_offset.reset(80, "a note")
    partition_offset.on_committed(80, "")
    run.claim("other metadata is a change, too", partition_offset.dirty)


# -- Kafka's command-line tools ---------------------------------------------------------------------------


@scenario(
    "S3-24",
    "The shell: lines become records, and --describe shows the lag",
    says="A topic of three partitions is created, lines are written to it, and kafka-consumer-groups "
    "--describe shows offsets, lag and owners: the larger the lag, the more is unread.",
    given="a topic test3 with 3 partitions, a sarama consumer in group g1, and a commit of g1 for a topic "
    "test that has no subscriber any more",
    when="11 lines are typed and read; later 5 more while the consumer is blocked",
    then="rows with 4, 4, 3 of 4, 4, 3 and lag 0, owned by sarama-<uuid>; a row for test without an "
    "owner; later the lag is 5",
    takes=GROUP,
)
def describe_group(run: ScenarioRun) -> None:
    world = run.world({"test3": 3, "test": 1}, trace=False)
    world.write("test", 0, *["x"] * 4)
    world.send_as_operator(
        offset_commit_request("g1", -1, "", None, {TopicPartition("test", 0): OffsetToCommit(4)}), 2
    )
    console = world.producer(client_id="console-producer")
    member: Any = world.join("sarama", sarama, topics=["test3"], group_id="g1", **USUAL)
    for number in range(11):
        console.deliver("test3", f"line {number}", partition=number % 3)
    world.run(5_000)
    rows = describe(world, "g1")
    run.result("columns", " ".join(COLUMNS))
    run.result("rows", [str(row) for row in rows])
    row_of = {row.topic + str(row.partition): row for row in rows}
    offsets_of = [(row_of[f"test3{n}"].current_offset, row_of[f"test3{n}"].log_end_offset) for n in range(3)]
    run.claim("each line was read and committed", offsets_of == [(4, 4), (4, 4), (3, 3)])
    owner = row_of["test30"]
    run.claim(
        "their owner is the member", {owner.consumer_id, row_of["test32"].consumer_id} == {member.member_id}
    )
    run.claim("client id and host are shown", owner.client_id == "sarama" and owner.host.startswith("/"))
    unread = row_of["test0"]
    run.claim("test has no owner, and no lag", (unread[3:], unread.lag) == ((4, 4, 0, "-", "-", "-"), 0))
    member.pause_polling()
    world.run(200)
    for number in range(5):
        console.deliver("test3", f"line {11 + number}", partition=number % 3)
    world.run(2_000)
    later = describe(world, "g1")
    run.result("lag later", [partition_lag.lag for partition_lag in later])
    run.claim("the lag is the number of unread lines", sum(partition_lag.lag for partition_lag in later) == 5)


# -- the producer -----------------------------------------------------------------------------------------


@scenario(
    "S3-23",
    "The sync producer: Return.Successes, RequiredAcks, and the partition of a key",
    says="Return.Successes must be true. RequiredAcks 0 gets no response, 1 one when the leader has the "
    "record, -1 one when all in-sync replicas have it. SendMessage returns partition and offset, or "
    "an error that is printed.",
    given="kproto's producer, which implements its SyncProducer with sarama's interface, on three partitions",
    when="a message with key k1 is sent twice with each RequiredAcks; then the broker rejects one",
    then="without Return.Successes there is no sync producer; -1 and 1 return the offset, 0 does not; "
    "each k1 goes to one partition (Java's, by murmur2; sarama's producer hashes by FNV-1a and would "
    "choose another); the rejection is the message's error, and the next message succeeds",
    fixed="it has producers, and no group",
)
def sync_producer(run: ScenarioRun) -> None:
    refused = ""
    try:
        check_returns(False, True)
    except ConfigError as error:
        refused = str(error)
    run.result("Return.Successes false", refused)
    run.claim("Return.Successes has to be true", "return_successes" in refused)
    world = run.world({"t": 3})
    partitions: set[int] = set()
    for acks in ("all", 1, 0):
        producer = world.producer(client_id=f"acks-{acks}", acks=acks, enable_idempotence=False, linger_ms=0)
        sent_requests = [producer.deliver("t", "v1", key="k1") for _ in range(2)]
        world.run(1_000)
        deliveries = [request.result() for request in sent_requests]
        partitions |= {delivery.partition for delivery in deliveries}
        run.result(f"acks {acks}", [f"{delivery.partition}/{delivery.offset}" for delivery in deliveries])
        known = [delivery.offset is not None and delivery.offset >= 0 for delivery in deliveries]
        run.claim(f"acks {acks}: the offset is {'known' if acks else 'not known'}", known == [bool(acks)] * 2)
    run.claim("one partition for the key, for every producer", len(partitions) == 1)
    run.result("sarama's own hash of k1", fnv1a(b"k1", 3))
    last = TopicPartition("t", partitions.pop())
    run.claim("six messages are stored, including those of acks 0", world.log(last).end_offset == 6)
    world.tamper = _reject_produce
    failed = producer_of(world).deliver("t", "v1", key="k1")
    world.run(1_000)
    world.tamper = None
    run.result("refused", str(failed.exception()))
    run.claim("the rejection is the message's error", "TOPIC_AUTHORIZATION_FAILED" in str(failed.exception()))
    after = producer_of(world).deliver("t", "v1", key="k1")
    world.run(1_000)
    run.claim("the next one succeeds", after.exception() is None)


def fnv1a(key: bytes, partitions: int) -> int:
    """Return the partition that sarama's HashPartitioner chooses: |int32 hash| modulo `partitions`."""
    hash_value = 0x811C9DC5
    for byte in key:
        hash_value = (hash_value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return (hash_value if hash_value < 1 << 31 else (1 << 32) - hash_value) % partitions


def producer_of(world: World) -> Producer:
    """Return the world's producer with acks=all."""
    client = world.clients["acks-all"]
    assert isinstance(client, Producer)
    return client


def _reject_produce(client: Client, request: Message, version: int) -> Message | None:
    """Reject each partition of a Produce request; return None for any other request."""
    if not isinstance(request, ProduceRequest):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=partition.index, error_code=code, base_offset=-1)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
