"""The options of Java's consumer (2.6.2), and the coordinators of Kafka 0.8 and of today.

Scenarios of lesson 002 (docs/lessons/002-java-reliability.md). The lesson replays an engineer's
description of Java's consumer ("the document").

In these scenarios, "Java" is kafka-clients 2.6.2, the version that the document is about (model java-2.6). A
scenario in which 4.3.1 behaves differently runs both versions.

The module `java_poll` covers poll. `java_rebalances`, `java_join_complete` and `java_assigned` cover
rebalances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumer.options import consumer_options

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..messages.join_group import JoinGroupRequest
from ..models import zookeeper as zk
from .java_stage import OLD, T0, member_of
from .parameters import GROUP
from .scenario import ScenarioRun, join, lost_and_doubled, numbers, offsets, produce, read, scenario

# -- enable.auto.commit -----------------------------------------------------------------------------------


# The exception that ConsumerConfig.maybeOverrideEnableAutoCommit throws, with its message. kafka-clients
# 2.6.2 wraps the exception, and 4.3.1 does not.
_JAVA_REFUSAL = (
    "InvalidConfigurationException: enable.auto.commit cannot be set to true when default group id (null) is "
    "used."
)


# The reason why a scenario about options takes no parameters, for error messages.
OPTIONS_ONLY = "it reads options, and runs no group"


def _resolve_auto_commit(run: ScenarioRun, **options: Any) -> object:
    """Return enable.auto.commit for these options, or "refused: ..." for an error.

    The value is recorded as a result of `run`. For an error, the errors of Java and kproto are recorded.
    """
    try:
        value: object = consumer_options(options).enable_auto_commit
    except ConfigError as error:
        value = f"refused: {error}"
        wrapped = f"KafkaException: Failed to construct kafka consumer; caused by {_JAVA_REFUSAL}"
        run.result("kafka-clients 2.6.2 throws", wrapped)
        run.result("kafka-clients 4.3.1 throws", _JAVA_REFUSAL)
        run.result("kproto raises", str(error))
        return value
    run.result("enable.auto.commit", value)
    return value


def _auto_commit_scenario(
    number: int, case: str, then: str
) -> Callable[[Callable[[ScenarioRun], None]], Callable[[ScenarioRun], None]]:
    return scenario(
        f"S2-{number}",
        f"maybeOverrideEnableAutoCommit: {case}",
        says="Without a group id enable.auto.commit is false unless it was set; set to true, it is an error.",
        given=case,
        when="a consumer is made",
        then=then,
        fixed=OPTIONS_ONLY,
    )


@_auto_commit_scenario(1, "group.id set, enable.auto.commit not", "it commits automatically")
def group_unset(run: ScenarioRun) -> None:
    run.claim("true", _resolve_auto_commit(run, group_id="g") is True)


@_auto_commit_scenario(2, "group.id set, enable.auto.commit false", "it does not")
def group_false(run: ScenarioRun) -> None:
    run.claim("false", _resolve_auto_commit(run, group_id="g", enable_auto_commit=False) is False)


@_auto_commit_scenario(3, "no group.id, enable.auto.commit not set", "it does not")
def alone_unset(run: ScenarioRun) -> None:
    run.claim("false", _resolve_auto_commit(run) is False)


@_auto_commit_scenario(
    4, "no group.id, enable.auto.commit true", "it is rejected, and the error names the option"
)
def alone_true(run: ScenarioRun) -> None:
    run.claim("refused", "needs a group_id" in str(_resolve_auto_commit(run, enable_auto_commit=True)))


@_auto_commit_scenario(5, "no group.id, enable.auto.commit false", "it does not")
def alone_false(run: ScenarioRun) -> None:
    run.claim("false", _resolve_auto_commit(run, enable_auto_commit=False) is False)


@scenario(
    "S2-6",
    "auto.commit.interval.ms: 5 s by default",
    says="AUTO_COMMIT_INTERVAL_MS is 5000 by default, at least 0.",
    given="a consumer's options",
    when="the interval is left out, 0 and -1",
    then="5000, 0, and a rejection",
    fixed=OPTIONS_ONLY,
)
def interval(run: ScenarioRun) -> None:
    default_ms = consumer_options({"group_id": "g"}).auto_commit_interval_ms
    zero_ms = consumer_options({"group_id": "g", "auto_commit_interval_ms": 0}).auto_commit_interval_ms
    refusal = ""
    try:
        consumer_options({"group_id": "g", "auto_commit_interval_ms": -1})
    except ConfigError as error:
        refusal = str(error)
    run.result("left out, 0", [default_ms, zero_ms])
    # The error text of ConfigDef in kafka-clients 4.3.1.
    java_text = "Invalid value -1 for configuration auto.commit.interval.ms: Value must be at least 0"
    run.result("-1, Java throws", f"ConfigException: {java_text}")
    run.result("-1, kproto raises", refusal)
    run.claim("5000 and 0 are accepted, -1 is not", (default_ms, zero_ms) == (5_000, 0) and bool(refusal))


# -- the coordinators of Kafka 0.8 and of today --------------------------------------------------------------


@scenario(
    "S2-20",
    "Kafka 0.8: the state of a group in ZooKeeper",
    says="The old coordinator watched /consumers/<group>/ids and /brokers/topics/<topic>; offsets were "
    "under /consumers/<group>/offsets/<topic>/<partition>.",
    given="the builders of paths",
    when="they build the paths of group g and topic t",
    then="the document's paths result",
    fixed="it builds paths, and runs no group",
)
def paths(run: ScenarioRun) -> None:
    zookeeper_paths = [zk.ids_path("g"), zk.topic_path("t"), zk.offset_path("g", "t", 0)]
    run.result("paths", zookeeper_paths)
    run.claim(
        "as the document has them",
        zookeeper_paths == ["/consumers/g/ids", "/brokers/topics/t", "/consumers/g/offsets/t/0"],
    )


@scenario(
    "S2-21",
    "Kafka 0.8: each consumer decides alone, and they conflict",
    says="Each consumer decided alone which partitions to take, and tried to be the first to register as "
    "owner; the group never agreed on an assignment.",
    given="three consumers whose watches fire at different times",
    when="they start one after the other, one is killed, and the topic grows",
    then="consumers notified early find partitions still owned and retry; in the end each partition has "
    "one owner; every change made all consumers start over",
    fixed="Kafka 0.8 has no group coordinator, so its consumers have none of these settings",
)
def zookeeper(run: ScenarioRun) -> None:
    state = zk.start("g", {"t": 6})
    now, conflicts = 0, 0
    events: list[tuple[int, zk.ZooKeeperEvent, str]] = [
        (0, zk.ConsumerStarted("a", delay_ms=900), "a starts"),
        (3_000, zk.ConsumerStarted("b", delay_ms=300), "b starts"),
        (6_000, zk.ConsumerStarted("c", delay_ms=5), "c starts"),
        (30_000, zk.SessionEnded("a"), "a's session ends"),
        (60_000, zk.TopicGrown("t", 8), "the topic grows to 8 partitions"),
    ]

    def show_actions(actions: list[zk.ZooKeeperAction]) -> int:
        """Show the actions at the time `now`; return the number of ownership conflicts among them."""
        for action in actions:
            run.moment(_describe_action(action), action.consumer, run.started + now)
        return sum(isinstance(action, zk.OwnershipConflict) for action in actions)

    for at, event, text in [*events, (90_000, zk.ZooKeeperTick(), "")]:
        while (due := zk.next_deadline(state)) is not None and due <= at:
            now = due
            conflicts += show_actions(zk.step(state, zk.ZooKeeperTick(), now))
        now = at
        if text:
            run.moment(text, "operator", run.started + now)
        conflicts += show_actions(zk.step(state, event, now))
    owners = [zk.owner_of(state, TopicPartition("t", partition)) for partition in range(8)]
    run.result("owners", owners)
    run.result("conflicts", conflicts)
    run.result("rebalances for 5 changes", state.rebalances)
    run.claim("some consumers conflicted", conflicts > 0)
    run.claim("each partition has one owner in the end", owners == ["b"] * 4 + ["c"] * 4)
    run.claim("each change made all consumers start over", state.rebalances >= 9)
    run.why(
        "There is no coordinator, so no consumer knows that all others have released their partitions. "
        "The owner nodes only reject the second consumer. It logs each partition that still has an owner, "
        "releases those that it has acquired, and retries after 2 s."
    )


def _describe_action(action: zk.ZooKeeperAction) -> str:
    match action:
        case zk.PartitionsReleased(partitions=partitions):
            return f"releases {len(partitions)} partitions"
        case zk.PartitionsOwned(partitions=partitions):
            return f"owns {', '.join(map(str, partitions)) or 'nothing'}"
        case zk.OwnershipConflict(partition=tp):
            # The log line of ZookeeperConsumerConnector in Kafka 0.8.2.
            return f"waiting for the partition ownership to be deleted: {tp.partition}"
        case zk.RebalanceFailed(consumer=name):
            return f"ConsumerRebalanceFailedException: {name} can't rebalance after {zk.MAX_RETRIES} retries"


@scenario(
    "S2-22",
    "The group coordinator: all members find the same broker, and join and commit there",
    says="Since 0.9 each group has a coordinator on a broker, for membership and for offsets.",
    given="three brokers and three members of one group",
    when="they join and commit",
    then="one broker got every JoinGroup and OffsetCommit",
    takes=("client", "members", "partitions", *GROUP),
)
def coordinator(run: ScenarioRun) -> None:
    world = run.world({"t": 3}, brokers=3)
    members = [member_of(world, name) for name in run.names("a", "b", "c")]
    produce(world, "t", numbers(world), 20, 3_000)
    world.run(10_000)
    # A request begins with its API key: 8 for OffsetCommit, and 11 for JoinGroup.
    nodes = {
        entry.data.node
        for entry in world.entries
        if entry.kind == "request" and entry.data.body[:2] in (b"\x00\x08", b"\x00\x0b")
    }
    run.result("brokers that received joins and commits", sorted(nodes))
    run.claim("one broker", len(nodes) == 1)
    run.claim("all of them are members", all(member.is_stable() for member in members))


@scenario(
    "S2-24",
    "GroupRebalanceConfig: the rebalance timeout is max.poll.interval.ms",
    says="For consumers rebalanceTimeoutMs is max.poll.interval.ms, 5 min by default; sessionTimeoutMs is "
    "session.timeout.ms.",
    given="kafka-clients 2.6.2, with both options unset and with both set",
    when="it joins",
    then="its JoinGroup has 300000 and 10000, or the set values",
    takes=GROUP,
)
def rebalance_timeout(run: ScenarioRun) -> None:
    both: dict[str, Any] = {"max_poll_ms": 7_000, "session_ms": 6_500}
    cases: tuple[tuple[str, dict[str, Any], tuple[int, int]], ...] = (
        ("unset", {}, (300_000, 10_000)),
        ("max.poll.interval.ms 7000, session.timeout.ms 6500", both, (7_000, 6_500)),
    )
    for case, config, expected in cases:
        world = run.world({"t": 1})
        member = join(world, "a", OLD, reset="earliest", **config)
        world.run(2_000)
        request = world.requests_of(member, JoinGroupRequest)[-1]
        timeouts = (request.rebalance_timeout_ms, request.session_timeout_ms)
        run.result(f"{case}: rebalance and session timeout", list(timeouts))
        run.claim(f"{case}: {expected[0]} and {expected[1]}", timeouts == expected)


# -- reliability ------------------------------------------------------------------------------------------


@scenario(
    "S2-47",
    "At least once: after a crash before the commit, records are read again, never lost",
    says="Reliability depends on consumer, producer and broker together.",
    given="a member that read 100 messages since its last commit, automatic and by hand",
    when="it is killed, and another member takes over",
    then="the 100 are read again; none is missing",
    takes=("client", "commit", *GROUP),
)
def at_least_once(run: ScenarioRun) -> None:
    auto_commit_by_way = {"auto commit True": True, "auto commit False": False}
    order = run.parameters.commit
    for way, auto in auto_commit_by_way.items() if order is None else [(f"commit {order} processing", False)]:
        world = run.world({"t": 1}, trace=False)
        first = member_of(world, "a", auto_commit=auto, auto_commit_ms=60_000)
        produce(world, "t", (0,), 100, 1_000)
        world.run(1_000)
        received = len(read(first, "t"))
        world.kill(first)
        second = member_of(world, "b", auto_commit=auto)
        world.run(run.longer(30_000))
        missing, doubled = lost_and_doubled(world, [first, second], [T0])
        run.result(f"{way}: read, lost, read again", [received, missing, doubled])
        is_read_again = (missing, doubled) == (0, received)
        run.claim(f"{way}: none is lost, the {received} are read again", is_read_again)
        received_again = offsets(second, T0)
        run.claim(f"{way}: in order", received_again == list(range(100 - len(received_again), 100)))
