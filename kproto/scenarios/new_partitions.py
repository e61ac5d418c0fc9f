"""Which clients detect the new partitions of a growing topic.

Scenarios of lesson 001 (docs/lessons/001-new-partitions.md). The lesson replays a problem that an
engineer described in a document ("the document").

The engineer's topic of advertising logs got new partitions under load. The Go service that read the topic
used sarama-cluster. It did not detect the partitions until it was restarted, and lost the records written
before the restart.

The document tests sarama, sarama-cluster, kafka-go and confluent-kafka-go, and says which of them can detect
new partitions.
"""

from __future__ import annotations

from typing import Any

from ..group.subscription import TopicPartition
from ..testing.world import World
from . import matrices
from .matrices import Loss, loss
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, clients, join, lost_and_doubled, offsets, produce, read, scenario

NEW = (TopicPartition("t", 2), TopicPartition("t", 3))
# Parameters of short runs. They show whether records are lost, but do not reproduce the number of lost
# records that the document reports.
QUICK: dict[str, Any] = {"refresh_ms": 2_000, "rate": 20, "grow_at_ms": 3_000, "settle_ms": 2_000}
GROWTH = ("refresh_ms", "rate", "grow_at_ms")
WINDOW = ("client", "reset", *GROWTH)


def growth_parameters(run: ScenarioRun) -> dict[str, Any]:
    """Return the parameters named in `GROWTH` that were set for the run."""
    values = {name: getattr(run.parameters, name) for name in GROWTH}
    return {name: value for name, value in values.items() if value is not None}


def grown(run: ScenarioRun, kind: str, *, reset: str, world: World | None = None) -> Loss:
    """Run one client while its topic grows, with the run's parameters, and record the results.

    The topic belongs to `world`, or to a new world if `world` is None.
    """
    parameters = run.parameters
    stage = world or run.world({"t": 2}, trace=False)
    count = len(stage.partitions())
    run.moment(
        f"the topic grows from {count} to {count + matrices.NEW}; records come at once",
        "operator",
        stage.now + (parameters.grow_at_ms or 7_300),
    )
    result = loss(
        parameters.client or kind, reset=parameters.reset or reset, world=stage, **growth_parameters(run)
    )
    run.result("client", result.client)
    run.result("policy", result.reset)
    run.result("written into new partitions", result.written)
    run.result("lost", result.lost)
    run.result("read twice", result.doubled)
    discovered_after_ms = result.discovered_after_ms
    run.result(
        "new partitions seen after",
        "never" if discovered_after_ms is None else f"{discovered_after_ms / 1000:.1f} s",
    )
    return result


def claim_lost(run: ScenarioRun, result: Loss, text: str = "records are lost") -> None:
    """Add a claim about lost records, if records were written before the new partitions were assigned."""
    discovered_after_ms = result.discovered_after_ms
    if discovered_after_ms is None:
        run.claim("no client ever sees them, and every record in them is lost", result.lost == result.written)
    elif result.records_at(discovered_after_ms):
        run.claim(text, result.lost >= result.records_at(discovered_after_ms))


@scenario(
    "S1-1",
    "A client that does not refresh its metadata never sees the new partitions",
    says="Under load, partitions were added to the topic. The client did not notice, and the records of "
    "the new partitions were not read until the service was restarted.",
    given="a group that reads 2 partitions with a client that does not check for new ones (kafka-go's "
    "default)",
    when="the topic grows to 4 partitions, records are written to the new ones, and later the service is "
    "restarted",
    then="nothing is read from the new partitions until the restart; with earliest their records are then "
    "read late",
    takes=(*TIMEOUTS, "assignor"),
)
def background(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    options: dict[str, Any] = {"reset": "earliest", "watch": False, "session_ms": 10_000, "auto_commit": True}
    first = join(world, "a", "kafka-go", **options)
    world.run(5_000)
    run.grow("t", 4)
    written = produce(world, "t", (2, 3), 50, 10_000)
    world.run(60_000)
    run.result("read of the new partitions in 70 s", len(read(first, "t", 2)) + len(read(first, "t", 3)))
    run.claim("nothing was read of them while the service ran", not read(first, "t", 2) + read(first, "t", 3))
    first.close()
    world.run(5_000)
    run.moment("the service is restarted", "operator")
    second = join(world, "b", "kafka-go", **options)
    world.run(5_000)
    late = len(read(second, "t", 2)) + len(read(second, "t", 3))
    run.result("read after the restart", late)
    run.claim("with earliest all of it was read after the restart", late == written)
    run.why(
        "The leader assigns the partitions that it knew at the last rebalance, and no member checks for "
        "new ones."
    )


_SEEN_BY = {
    "sarama": "Two tickers in a row: the client must refresh its metadata before the partition checker "
    "can see the change.",
    "sarama-cluster": "It checks for new topics, but not for new partitions of the topics that it has.",
    "kafka-go": "One ticker: the watcher asks the cluster each time, and keeps no metadata.",
    **dict.fromkeys(
        ("java", "java-2.6", "librdkafka", "kproto"),
        "One ticker: the member joins again as soon as a metadata response differs.",
    ),
}


@scenario(
    "S1-2",
    "sarama in a loop: the leader sees the growth, the session ends, the next one has the new partitions",
    says="Consume returns when the number of partitions or consumers changes. Called in a loop, it finds "
    "the new partitions.",
    given="a sarama group of one, Consume in a loop, metadata refreshed every 5 s; fetches wait 100 ms",
    when="the topic grows from 2 to 4",
    then="the leader's checker ends the session at its next tick; the next session claims all four",
    takes=(*WINDOW, *GROUP, "partitions"),
)
def sarama_in_a_loop(run: ScenarioRun) -> None:
    result = grown(run, "sarama", reset="earliest")
    sees = result.client != "sarama-cluster"
    text = "the new partitions were assigned" if sees else "the new partitions were never assigned"
    run.claim(text, (result.discovered_after_ms is not None) == sees)
    run.why(_SEEN_BY[result.client], of_run=True)


@scenario(
    "S1-3",
    "sarama without a loop: Consume returns once, and nothing is consumed afterwards",
    says="Consume blocks and returns when partitions change. It has to be called in a loop to keep "
    "consuming.",
    given="a sarama group of one that calls Consume once",
    when="the topic grows",
    then="Consume returns without an error, and nothing is consumed afterwards, not even from the old "
    "partitions",
    takes=("refresh_ms", *GROUP),
)
def sarama_once(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    member = join(
        world, "a", "sarama", reset="earliest", metadata_ms=2_000, auto_commit=True, extra={"Once": True}
    )
    produce(world, "t", (0, 1), 50, 3_000)
    before = len(member.records)
    run.grow("t", 4)
    end = world.now + run.longer(10_000)
    world.run(end - world.now, until=lambda: any(report.kind == "returned" for report in member.reports))
    run.moment("Consume has returned", "a")
    world.run(end - world.now)
    read_before = len(member.records)
    produce(world, "t", (0, 1, 2, 3), 50, 5_000)
    world.run(5_000)
    returned = [report for report in member.reports if report.kind == "returned"]
    run.result("read before the growth", before)
    run.result("Consume returned", len(returned))
    run.result("read after Consume returned", len(member.records) - read_before)
    run.claim("something was read before", before > 0)
    run.claim("Consume returned once", len(returned) == 1)
    run.claim("nothing is read afterwards", len(member.records) == read_before)


@scenario(
    "S1-4",
    "sarama's partition checker runs at the leader only, since sarama 1.41",
    says="(the code behind the document's first example; in its release 1.38.1 each member runs a checker)",
    given="two members of sarama 1.61.1, the leader's metadata refreshed every 20 s, the follower's every "
    "2 s",
    when="the topic grows",
    then="the follower's newer metadata has no effect: the group rebalances only when the leader's "
    "checker runs",
    takes=GROUP,
)
def sarama_checker(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    usual: dict[str, Any] = {"reset": "earliest", "auto_commit": True, "heartbeat_ms": 500}
    leader = join(world, "a", "sarama", metadata_ms=20_000, **usual)
    world.run(3_000)
    follower = join(world, "b", "sarama", metadata_ms=2_000, **usual)
    world.run(5_000)
    run.claim("each has one partition", {len(leader.owned), len(follower.owned)} == {1})
    run.grow("t", 4)
    world.run(8_000)
    run.claim("after 8 s no member has a new partition", not (leader.owned | follower.owned) & set(NEW))
    world.run(35_000)
    run.claim(
        "two refreshes of the leader later the new partitions are assigned",
        set(NEW) <= leader.owned | follower.owned,
    )


@scenario(
    "S1-8",
    "sarama's SIGUSR1: paused partitions are not fetched, and the session continues",
    says="The first line of the example says that SIGUSR1 switches consuming off and on.",
    given="a sarama member that reads",
    when="all its partitions are paused, records are written, and the partitions are resumed",
    then="nothing is read while paused, the group does not rebalance, and everything is read after the "
    "resume",
    takes=GROUP,
)
def sarama_pauses(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    member = join(world, "a", "sarama", reset="earliest", auto_commit=True, heartbeat_ms=500)
    written = produce(world, "t", (0, 1), 50, 3_000)
    world.run(2_000)
    calls = len(member.calls)
    member.pause(*world.partitions())
    world.run(1_000)
    read_before = len(member.records)
    written += produce(world, "t", (0, 1), 50, 5_000)
    run.result("read while paused", len(member.records) - read_before)
    run.claim("nothing is read while paused", len(member.records) == read_before)
    member.resume(*world.partitions())
    world.run(5_000)
    run.claim("everything is read in the end", len(member.records) == written)
    run.claim("the group did not rebalance", len(member.calls) == calls)


@scenario(
    "S1-9",
    "sarama-cluster: growth alone has no effect; the next rebalance assigns the new partitions, late",
    says="When partitions were added, sarama-cluster did not notice; only a rebalance for another "
    "reason helps.",
    given="a sarama-cluster consumer with Offsets.Initial oldest, as in the example",
    when="the topic grows, records are written, and a minute later a second consumer joins",
    then="nothing is read from the new partitions before that; afterwards everything is read, late",
    takes=("refresh_ms", *TIMEOUTS),
)
def sarama_cluster_is_blind(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    usual: dict[str, Any] = {
        "reset": "earliest",
        "metadata_ms": 5_000,
        "heartbeat_ms": 500,
        "session_ms": 10_000,
        "auto_commit": True,
    }
    first = join(world, "a", "sarama-cluster", **usual)
    world.run(5_000)
    run.grow("t", 4)
    written = produce(world, "t", (2, 3), 50, 5_000)
    world.run(55_000)
    before = len(read(first, "t", 2)) + len(read(first, "t", 3))
    run.moment("a second consumer is started", "operator")
    second = join(world, "b", "sarama-cluster", **usual)
    world.run(20_000)
    lost, _ = lost_and_doubled(world, [first, second], NEW)
    run.result("read of the new partitions in a minute", before)
    run.result("not read after the rebalance", lost)
    run.claim("nothing was read before", before == 0)
    run.claim("everything was read in the end", written > 0 and lost == 0)


@scenario(
    "S1-14",
    "kafka-go sees growth only with WatchPartitionChanges, and only the leader's watcher counts",
    says="kafka-go does not see new partitions by default; its option WatchPartitionChanges is off.",
    given="a kafka-go Reader, once with and once without its partition watcher (every 5 s); fetches "
    "wait 100 ms",
    when="the topic grows",
    then="without the watcher nothing happens; with it the group rebalances within one interval",
    takes=(*GROWTH, *TIMEOUTS, "assignor", "partitions"),
)
def kafka_go_watches(run: ScenarioRun) -> None:
    unwatched_world = run.hidden_world({"t": 2}, trace=False)
    unwatched_loss = loss(
        "kafka-go", reset="earliest", watch=False, world=unwatched_world, **growth_parameters(run)
    )
    run.result("without the watcher, read of new partitions", unwatched_loss.written - unwatched_loss.lost)
    result = grown(run, "kafka-go", reset="earliest")
    run.claim(
        "without the watcher the new partitions are never seen", unwatched_loss.discovered_after_ms is None
    )
    run.claim("with the watcher they are", result.discovered_after_ms is not None)
    run.claim("with earliest nothing is lost then", result.lost == 0)


@scenario(
    "S1-15",
    "kafka-go's Reader: a bounded queue, and commits by interval",
    says="The example sets QueueCapacity 2000, CommitInterval 1 s, StartOffset LastOffset, MaxBytes 10e6.",
    given="a Reader with a queue of 20 records, and an application that does not read for a while",
    when="200 records are written, and the application starts to read",
    then="at most the queue's capacity (and one response) is fetched before; afterwards everything is "
    "read in order, and committed once per interval",
    takes=(*TIMEOUTS, "assignor"),
)
def kafka_go_reader(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, trace=False)
    config: dict[str, Any] = {"auto_commit": True, "auto_commit_ms": 1_000, "extra": {"QueueCapacity": 20}}
    member = join(world, "a", "kafka-go", reset="earliest", **config)
    world.run(3_000)
    member.pause_polling()
    world.run(200)
    produce(world, "t", (0,), 200, 1_000)
    world.run(3_000)
    queued = len(member.state.message_queue)
    run.result("in the queue while the application does not read", queued)
    run.claim("the queue is full, and holds no more", queued == 20)
    member.resume_polling()
    world.run(3_000)
    run.claim("everything is read, in order", offsets(member, TopicPartition("t", 0)) == list(range(200)))
    stored = [observation for observation in world.observations if observation.kind == "stored"]
    run.claim("the last commit is the end of the log", stored[-1].detail == {TopicPartition("t", 0): 200})


@scenario(
    "S1-16",
    "kafka-go: LastOffset with the watcher loses the first records of new partitions",
    says="The example begins at LastOffset.",
    given="a kafka-go Reader with its watcher, StartOffset LastOffset, then FirstOffset; fetches wait 100 ms",
    when="the topic grows while records come",
    then="LastOffset loses what was written before the new assignment; FirstOffset loses nothing",
    takes=(*GROWTH, *TIMEOUTS, "assignor", "partitions"),
)
def kafka_go_start(run: ScenarioRun) -> None:
    world = run.hidden_world({"t": 2}, trace=False)
    from_first = loss("kafka-go", reset="earliest", world=world, **growth_parameters(run))
    result = grown(run, "kafka-go", reset="latest")
    run.result("lost with FirstOffset", from_first.lost)
    claim_lost(run, result, "with LastOffset records are lost")
    run.claim("with FirstOffset none are lost", from_first.lost == 0)


@scenario(
    "S1-17",
    "confluent-kafka: any member's metadata refresh sees the growth, and earliest loses nothing",
    says="confluent-kafka-go sees new partitions; the example reads with ReadMessage and earliest.",
    given="a librdkafka consumer with earliest, metadata refreshed every 5 s; fetches wait 100 ms",
    when="the topic grows while records come",
    then="at the next refresh it joins again and reads the new partitions from 0",
    takes=(*GROWTH, *GROUP, "partitions"),
)
def confluent(run: ScenarioRun) -> None:
    result = grown(run, "librdkafka", reset="earliest")
    run.claim("the new partitions were assigned", result.discovered_after_ms is not None)
    run.claim("nothing was lost", result.lost == 0)


@scenario(
    "S1-25",
    "Which clients see new partitions",
    says="Of the four libraries, sarama (in a loop) and confluent-kafka-go see new partitions; "
    "sarama-cluster and "
    "kafka-go do not.",
    given="each client with its defaults",
    when="the topic grows",
    then="sarama and librdkafka get the new partitions, kafka-go and sarama-cluster never do; Java and "
    "kproto do",
    takes=("client", "partitions", "refresh_ms", "grow_at_ms", *TIMEOUTS),
)
def who_sees(run: ScenarioRun) -> None:
    blind = {"kafka-go", "sarama-cluster"}
    for kind in run.clients(*clients()):
        world = run.hidden_world({"t": 2}, trace=False)
        result = loss(kind, watch=False, world=world, **{**QUICK, **growth_parameters(run)})
        sees = result.discovered_after_ms is not None
        run.result(kind, "sees them" if sees else "never sees them")
        run.claim(
            f"{kind} {'does not see' if kind in blind else 'sees'} the new partitions",
            sees != (kind in blind),
        )


@scenario(
    "S1-10",
    "sarama-cluster watches for topics: it finds a new topic, but not new partitions",
    says="sarama-cluster has a whitelist of topics.",
    given="a sarama-cluster consumer whose whitelist is t.*, metadata refreshed every 4 s",
    when="its topic grows, and later a second topic is created that matches",
    then="the growth has no effect; the new topic causes a rebalance, after which it has all partitions",
    takes=("refresh_ms", *TIMEOUTS),
)
def sarama_cluster_watches_topics(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    usual: dict[str, Any] = {
        "reset": "earliest",
        "metadata_ms": 4_000,
        "heartbeat_ms": 500,
        "session_ms": 10_000,
    }
    member = join(world, "a", "sarama-cluster", topics=(), **usual)
    member.subscribe(pattern="^t.*")
    world.run(5_000)
    run.claim("it has the topic's two partitions", len(member.owned) == 2)
    run.grow("t", 4)
    waited = run.longer(20_000)
    world.run(waited)
    run.claim(f"{waited / 1000:g} s later it still has two", len(member.owned) == 2)
    world.create("t2", 1)
    run.moment("a topic that matches is created", "operator")
    world.run(waited)
    run.result("partitions in the end", member.owned)
    run.claim("then it has all five", member.owned == set(world.partitions()))


@scenario(
    "S1-13",
    "A signal, and Close: what was read is committed, and the member leaves the group",
    says="On SIGINT or SIGTERM the examples close their consumer.",
    given="a member of each client that has read 40 messages since its last commit",
    when="it closes",
    then="40 are committed, and the group has no member",
    takes=("client", "commit", *TIMEOUTS),
)
def closes(run: ScenarioRun) -> None:
    for kind in run.clients(*clients()):
        world = run.world({"t": 1}, trace=False)
        member = join(
            world, "a", kind, reset="earliest", auto_commit=True, auto_commit_ms=30_000, heartbeat_ms=500
        )
        produce(world, "t", (0,), 40, 1_000)
        world.run(1_000)
        member.close()
        # kafka-go's Close waits until the pending Fetch returns, which takes up to MaxWait (10 s).
        world.run(12_000 if kind == "kafka-go" else 3_000)
        stored = [observation.detail for observation in world.observations if observation.kind == "stored"]
        run.result(f"{kind} committed", stored[-1] if stored else "nothing")
        run.claim(f"{kind}: 40 are committed", bool(stored) and stored[-1] == {TopicPartition("t", 0): 40})
        group = world.cluster.coordinator.describe("g")
        run.claim(f"{kind}: the group has no member", group is not None and not group.members)
