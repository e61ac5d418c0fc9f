"""Which records are lost before the members notice that a topic grew, and how to lose none.

Scenarios of lesson 001 (docs/lessons/001-new-partitions.md).
"""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from .matrices import loss
from .new_partitions import GROWTH, NEW, QUICK, WINDOW, claim_lost, grown, growth_parameters
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, clients, join, lost_and_doubled, numbers, offsets, produce, read, scenario


@scenario(
    "S1-20",
    "The loss window: latest skips what is written before the new assignment",
    says="A client that finds new partitions later starts at their end, so what was written before is lost.",
    given="a consumer with reset latest and a group that reads 2 partitions",
    when="the topic grows, and records are written to the new partitions at once, at a steady rate",
    then="lost is rate x partitions x blind time, from the first record until the end offset was looked up",
    takes=(*WINDOW, *GROUP, "partitions"),
)
def loss_window(run: ScenarioRun) -> None:
    result = grown(run, "sarama", reset="latest")
    discovered_after_ms = result.discovered_after_ms
    if discovered_after_ms is None:
        claim_lost(run, result)
    elif result.client == "kproto" or result.reset == "earliest":
        run.claim("nothing is lost", result.lost == 0)
    else:
        factors = f"{result.rate}/s x {result.new} partitions x {discovered_after_ms / 1000:.2f} s"
        run.result("lost by the formula", f"{result.formula} = {factors}")
        is_near = (
            result.records_at(discovered_after_ms)
            <= result.lost
            <= result.records_at(discovered_after_ms + 500)
        )
        run.claim("the loss is what was written before the new assignment, within half a second", is_near)
        claim_lost(run, result)
    run.why(
        "A partition without a commit starts where the reset policy says at the time of the lookup: "
        "latest is the end of the log at that time, not at the creation of the partition. kproto knows "
        "which partitions are newer than its group, and starts them at their beginning."
    )


@scenario(
    "S1-21",
    "The same with earliest: nothing is lost",
    says="(the other policy)",
    given="as S1-20, with reset earliest",
    when="the topic grows and records come",
    then="0 records are lost with every client that sees the growth",
    takes=("client", "partitions", "refresh_ms", "grow_at_ms", *TIMEOUTS),
)
def earliest(run: ScenarioRun) -> None:
    for kind in run.clients(*(name for name in clients() if name != "sarama-cluster")):
        world = run.hidden_world({"t": 2}, trace=False)
        result = loss(kind, reset="earliest", world=world, **{**QUICK, **growth_parameters(run)})
        run.result(f"lost with {kind}", result.lost)
        run.claim(f"{kind} loses nothing", result.lost == 0)


@scenario(
    "S1-22",
    "kproto with latest: new partitions start at their beginning, old ones at the end",
    says="(our answer to the document)",
    given="a topic with old records, and a new kproto group with reset latest",
    when="the group starts, and later the topic grows while records come",
    then="the old records are not read, and of the new partitions nothing is lost",
    takes=(*GROWTH, *GROUP, "partitions"),
)
def ours(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    initial_partitions = numbers(world)
    for partition in initial_partitions:
        world.write("t", partition, *["old"] * 30)
    result = grown(run, "kproto", reset="latest", world=world)
    old_records = [tp for partition in initial_partitions for tp in read(world.clients["a"], "t", partition)]
    run.claim("records that are older than the group are not read", not old_records)
    run.claim("nothing of the new partitions is lost or read twice", result.lost == result.doubled == 0)


@scenario(
    "S1-23",
    "A crash before the first commit: latest loses records, kproto does not",
    says="(a second way to the same loss)",
    given="a member with latest that was assigned a new partition, has read from it, and has not "
    "committed yet",
    when="it dies, and another member takes its partitions over",
    then="the other member finds no commit and starts at the end: the records in between are lost, but "
    "not kproto's",
    takes=("client", "refresh_ms", "commit", *GROUP),
)
def crash_before_commit(run: ScenarioRun) -> None:
    for kind in run.clients("librdkafka", "kproto"):
        world = run.world({"t": 1}, trace=False)
        usual: dict[str, Any] = {
            "reset": "latest",
            "metadata_ms": 2_000,
            "session_ms": 6_000,
            "heartbeat_ms": 500,
            "auto_commit": False,
        }
        members = [join(world, name, kind, **usual) for name in ("a", "b")]
        world.run(10_000)
        run.grow("t", 2, f" ({kind})")
        world.run(run.longer(5_000))
        new = TopicPartition("t", 1)
        owner = next((member for member in members if new in member.owned), None)
        if owner is None:
            run.result(f"assigned by {kind}", "the new partition never is")
            run.claim(f"{kind} read of the new partition first", False)
            continue
        world.write("t", 1, *["x"] * 100)
        world.run(1_000)
        received = len(offsets(owner, new))
        run.moment(f"dies after {received} records, without a commit", owner.name)
        world.kill(owner)
        world.write("t", 1, *["y"] * 200)
        world.run(run.longer(20_000))
        lost, _ = lost_and_doubled(world, members, [new])
        run.result(f"lost with {kind}", lost)
        run.claim(f"{kind} read of the new partition first", received == 100)
        run.claim(
            f"{kind} loses {'nothing' if kind == 'kproto' else 'the 200'}",
            lost == (0 if kind == "kproto" else 200),
        )


@scenario(
    "S1-24",
    "by_duration: a window as long as the blind time loses nothing, a shorter one does",
    says="(the remedy that Java's consumer offers since 4.0)",
    given="a consumer that starts new partitions by_duration, 1 s or 20 s back, without kproto's own rule",
    when="the topic grows while records are written, and the growth is seen some seconds later",
    then="20 s lose nothing; 1 s loses the older records",
    takes=("refresh_ms", *GROUP),
)
def by_duration(run: ScenarioRun) -> None:
    lost_by: dict[str, int] = {}
    for duration in ("PT20S", "PT1S"):
        world = run.world({"t": 2}, trace=False)
        member = world.join(
            "a",
            topics=["t"],
            group_id="g",
            auto_offset_reset=f"by_duration:{duration}",
            on_new_partition=f"by_duration:{duration}",
            metadata_max_age_ms=5_000,
        )
        world.run(7_300)
        run.grow("t", 4, f" ({duration})")
        produce(world, "t", (2, 3), 100, 13_000)
        world.run(run.longer(5_000))
        lost_by[duration], _ = lost_and_doubled(world, [member], NEW)
        run.result(f"lost with {duration}", lost_by[duration])
    run.claim("20 s lose nothing", lost_by["PT20S"] == 0)
    run.claim("1 s loses records", lost_by["PT1S"] > 0)


@scenario(
    "S1-26",
    "A pattern and a new topic: the same window, the same rule",
    says="(the same for a topic that is new as a whole)",
    given="a consumer that subscribes to a pattern, with latest",
    when="a topic that matches is created, and records are written at once",
    then="librdkafka loses the records before its metadata refresh; kproto loses none",
    takes=("client", "refresh_ms", *GROUP),
)
def by_pattern(run: ScenarioRun) -> None:
    for kind in run.clients("librdkafka", "kproto"):
        world = run.world({"t": 1}, trace=False)
        member = join(world, "a", kind, topics=(), reset="latest", metadata_ms=5_000, heartbeat_ms=500)
        member.subscribe("^t.*") if kind == "librdkafka" else member.subscribe(pattern="t.*")
        world.run(7_300)
        if any(getattr(report, "kind", "") == "error" for report in getattr(member, "reports", ())):
            raise ConfigError("client", kind, "use a client that can subscribe to patterns")
        run.moment(f"{kind}: the topic t2 is made", "operator")
        world.create("t2", 1)
        produce(world, "t2", (0,), 100, 13_000)
        world.run(run.longer(5_000))
        lost, _ = lost_and_doubled(world, [member], [TopicPartition("t2", 0)])
        run.result(f"lost with {kind}", lost)
        run.claim(
            f"{kind} {'loses nothing' if kind == 'kproto' else 'loses records'}",
            (lost == 0) == (kind == "kproto"),
        )
