"""sarama's fetch loop, offset manager and newSession, branch by branch.

Scenarios of lesson 003 (docs/lessons/003-sarama-walk.md). The lesson replays an engineer's
description of sarama's source ("the document").

The scenarios run sarama 1.61.1. The document describes an older version of sarama. If that version behaves
differently, the scenario says so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..group.subscription import TopicPartition
from ..messages.fetch import FetchRequest
from ..messages.join_group import JoinGroupRequest
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.sync_group import SyncGroupRequest
from ..testing.world import World
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, join, living_members, numbers, offsets, produce, read, scenario

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
USUAL: dict[str, Any] = {
    "reset": "earliest",
    "session_ms": 10_000,
    "heartbeat_ms": 500,
    "auto_commit": True,
    "auto_commit_ms": 1_000,
    "metadata_ms": 600_000,
}


def sarama(world: World, name: str = "a", **config: Any) -> Any:
    """Start a sarama member with short intervals."""
    return join(world, name, "sarama", **{**USUAL, **config})


# -- what consumer groups and offsets are -----------------------------------------------------------------


@scenario(
    "S3-1",
    "A partition belongs to one member of a group; a member may have several",
    says="Within a group a partition is consumed by one consumer only; one consumer may consume several.",
    given="a topic of 5 partitions and three sarama members of one group",
    when="they have settled",
    then="each partition has exactly one owner, and some member has two",
    takes=("client", "members", "partitions", *GROUP),
)
def one_owner(run: ScenarioRun) -> None:
    world = run.world({"t": 5}, trace=False)
    members = [sarama(world, name) for name in run.names("m0", "m1", "m2")]
    world.run(15_000)
    owners = {tp: [member.name for member in members if tp in member.owned] for tp in world.partitions()}
    run.result("owners", {str(tp): names for tp, names in owners.items()})
    run.claim("each partition has one owner", all(len(names) == 1 for names in owners.values()))
    counts = [len(member.owned) for member in members]
    run.claim("the partitions are spread evenly", max(counts) - min(counts) <= 1)


@scenario(
    "S3-2",
    "The clients assign, not the broker: only the leader's SyncGroup has assignments",
    says="One consumer of the group is the leader and computes the assignment; only the leader sends it.",
    given="two sarama members",
    when="they join",
    then="one SyncGroup per generation has assignments, the other one is empty",
    takes=("client", "members", "partitions", *GROUP),
)
def leader_plans(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    members = [sarama(world, name) for name in run.names("a", "b")]
    world.run(10_000)
    plans = {
        member.name: [len(each.assignments) for each in world.requests_of(member, SyncGroupRequest)]
        for member in members
    }
    run.result("assignments in each SyncGroup", plans)
    last = [plan[-1] for plan in plans.values()]
    expected = [0] * (len(members) - 1) + [len(members)]
    run.claim("of the last generation's SyncGroups one has the plan for all", sorted(last) == expected)


@scenario(
    "S3-3",
    "Offsets belong to a partition, and a partition is ordered",
    says="Offsets are unique within a partition, and messages are ordered there.",
    given="two partitions with 100 messages each",
    when="a member reads them",
    then="the offsets of each partition are 0, 1, 2, ...",
    takes=("client", "partitions", *GROUP),
)
def ordered(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    member = sarama(world)
    produce(world, "t", numbers(world), 100, 1_000)
    world.run(3_000)
    for tp in world.partitions():
        run.claim(f"{tp} was read in order, without a gap", offsets(member, tp) == list(range(100)))
    run.result("read", len(member.records))


@scenario(
    "S3-4",
    "Auto commit commits marked offsets on a timer; fetched but unmarked messages are not committed",
    says="With auto commit, a timer commits what has been marked.",
    given="a busy handler: messages are fetched into the channel, but not taken from it",
    when="several commit intervals pass, then the handler takes them",
    then="nothing is committed before, everything afterwards",
    takes=GROUP,
)
def marked_only(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = sarama(world, extra={"Consumer.MaxProcessingTime": 60_000})
    world.run(2_000)
    member.pause_polling()
    world.run(500)
    produce(world, "t", (0,), 50, 1_000)
    world.run(4_000)
    before = [observation for observation in world.observations if observation.kind == "stored"]
    fetched = bool(world.requests_of(member, FetchRequest))
    run.result("commits while nothing is marked", len(before))
    run.claim("messages were fetched", fetched)
    run.claim("nothing was committed", not before)
    member.resume_polling()
    world.run(3_000)
    after = [observation.detail for observation in world.observations if observation.kind == "stored"]
    run.claim("after marking, all 50 are committed", after[-1] == {T0: 50})


@scenario(
    "S3-5",
    "A manual commit is one request, however many messages were marked",
    says="With auto commit off, each session.Commit() sends the marked offsets, and waits for the response.",
    given="a member without auto commit that has read 50 messages of two partitions",
    when="it commits once, and once more with nothing new",
    then="one OffsetCommit with both partitions is sent; the second call sends nothing",
    takes=("partitions", *GROUP),
)
def manual(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    member = sarama(world, auto_commit=False)
    produce(world, "t", numbers(world), 50, 1_000)
    world.run(2_000)
    run.claim("nothing was committed before", not world.requests_of(member, OffsetCommitRequest))
    member.commit()
    world.run(500)
    member.commit()
    world.run(500)
    sent = world.requests_of(member, OffsetCommitRequest)
    run.result("requests", len(sent))
    run.result("partitions in it", sum(len(topic.partitions) for topic in sent[0].topics))
    run.claim("one request for both calls", len(sent) == 1)
    named = sum(len(topic.partitions) for topic in sent[0].topics)
    run.claim("with all partitions", named == len(world.partitions()))


@scenario(
    "S3-6",
    "Consumers pull: without a Fetch there is no data",
    says="Kafka's consumers pull at their own pace.",
    given="a member of a group of two, on a topic with one partition",
    when="messages come",
    then="only the member with the partition fetches, and only it gets data",
    takes=("client", "members", *GROUP),
)
def pull(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    members = [sarama(world, name) for name in run.names("a", "b")]
    world.run(8_000)
    produce(world, "t", (0,), 50, 1_000)
    world.run(2_000)
    owner, *followers = sorted(members, key=lambda member: -len(member.owned))
    world.run(1_000)
    run.result("Fetches", {member.name: len(world.requests_of(member, FetchRequest)) for member in members})
    read_by_followers = sum(len(read(follower, "t")) for follower in followers)
    run.claim("the owner read everything", len(set(offsets(owner, T0))) + read_by_followers >= 50)
    run.claim("a member without partitions reads nothing", not any(member.owned for member in followers))


@scenario(
    "S3-7",
    "A rebalance stops the group: the lag grows, and shrinks afterwards",
    says="During a rebalance no consumer of the group consumes.",
    given="a sarama member whose handlers need 1 s to return, and steady messages",
    when="a second member joins",
    then="no member reads between the old session and the new one; afterwards the lag returns to 0",
    takes=("client", "members", "partitions", "rate", *GROUP),
)
def stop_the_world(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, members=2, trace=False)
    first = sarama(world, "a")
    world.run(3_000)
    first.callback_ms = 1_000
    rate = run.parameters.rate or 100
    produce(world, "t", numbers(world), rate, 2_000)
    sarama(world, "b")
    produce(world, "t", numbers(world), rate, 8_000)
    world.run(5_000)
    times = sorted(observation.at for observation in world.observations if observation.kind == "delivered")
    gap = max(later - earlier for earlier, later in pairwise(times))
    got = {
        (at, offset)
        for member in living_members(world)
        for at in world.partitions()
        for offset in offsets(member, at)
    }
    written = sum(world.log(tp).end_offset for tp in world.partitions())
    run.result("longest time without a message", f"{gap} ms")
    run.result("written, read", [written, len(got)])
    run.claim("no member read for about the 1 s of the handlers", 900 <= gap <= 4_000)
    run.claim("everything was read in the end", len(got) == written)


# -- the fetch path ---------------------------------------------------------------------------------------


@scenario(
    "S3-9",
    "One Fetch holds all partitions of a broker",
    says="brokerConsumer.fetchNewMessages puts a block for each subscription into one request, with "
    "MinBytes and MaxWaitTime.",
    given="a member with four partitions of one broker",
    when="it has read for a while",
    then="its Fetches name all four",
    takes=("partitions", *GROUP),
)
def one_fetch(run: ScenarioRun) -> None:
    world = run.world({"t": 4})
    member = sarama(world)
    produce(world, "t", numbers(world), 50, 1_000)
    world.run(3_000)
    last = world.requests_of(member, FetchRequest)[-1]
    named = sorted(partition.partition for topic in last.topics for partition in topic.partitions)
    run.result("partitions in one Fetch", named)
    run.result("MinBytes, MaxWaitTime", [last.min_bytes, f"{last.max_wait_ms} ms"])
    run.claim("all of them are in one request", named == list(numbers(world)))
    run.claim("it waits for one byte, at most MaxWaitTime", (last.min_bytes, last.max_wait_ms) == (1, 500))


@scenario(
    "S3-14",
    "The offset manager has a ticker only with AutoCommit.Enable",
    says="newOffsetManagerFromClient makes the ticker and its loop only when AutoCommit.Enable is set.",
    given="a member with and one without auto commit, both read 50 messages",
    when="ten seconds pass",
    then="the first commits on its timer, the second never",
    takes=GROUP,
)
def ticker(run: ScenarioRun) -> None:
    for auto in (True, False):
        world = run.world({"t": 1})
        member = sarama(world, auto_commit=auto)
        produce(world, "t", (0,), 50, 1_000)
        world.run(10_000)
        sent = len(world.requests_of(member, OffsetCommitRequest))
        run.result(f"commits with AutoCommit.Enable {auto}", sent)
        run.claim(f"AutoCommit.Enable {auto}: {'some' if auto else 'none'}", (sent > 0) == auto)


@scenario(
    "S3-15",
    "flushToBroker sends nothing when nothing is dirty",
    says="constructRequest returns nil when no partition is dirty, and flushToBroker returns then.",
    given="a member that has committed everything it read",
    when="twenty commit intervals pass without a message",
    then="no OffsetCommit goes out",
    takes=GROUP,
)
def nothing_dirty(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = sarama(world)
    produce(world, "t", (0,), 50, 1_000)
    world.run(3_000)
    before = len(world.requests_of(member, OffsetCommitRequest))
    world.run(20_000)
    run.result("commits before and after", [before, len(world.requests_of(member, OffsetCommitRequest))])
    run.claim("there were some before", before > 0)
    run.claim("and none in 20 idle intervals", len(world.requests_of(member, OffsetCommitRequest)) == before)


@scenario(
    "S3-16",
    "MarkMessage means the next offset",
    says="MarkMessage calls MarkOffset with the message's offset plus one; only a larger one counts.",
    given="a member that read offset 0 to 49",
    when="it commits",
    then="50 is committed",
    takes=GROUP,
)
def mark(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = sarama(world, auto_commit=False)
    produce(world, "t", (0,), 50, 1_000)
    world.run(2_000)
    member.commit()
    world.run(500)
    stored = [observation.detail for observation in world.observations if observation.kind == "stored"]
    run.result("last message read, committed", [offsets(member, T0)[-1], stored[-1][T0]])
    run.claim("committed is one more than the last message", stored[-1] == {T0: offsets(member, T0)[-1] + 1})


@scenario(
    "S3-20",
    "The auto-commit example with a slow handler: heartbeats continue",
    says="The example's handler has a sleep of 10 s in a comment, before MarkMessage.",
    given="a handler that marks each message and then takes 10 s for it, session timeout 10 s",
    when="messages arrive for 1 min",
    then="the member stays in the group: sarama has no max.poll.interval",
    takes=GROUP,
)
def slow(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, trace=False)
    member = sarama(world)
    member.works_ms, member.limit = 10_000, 1
    produce(world, "t", (0,), 2, 60_000)
    run.result("read", len(member.records))
    run.result("callbacks", [kind for kind, _ in member.calls])
    run.claim("one session for the whole minute", [kind for kind, _ in member.calls] == ["assigned"])
    group = world.cluster.coordinator.describe("g")
    run.claim(
        "it is still a member",
        group is not None and [known.member_id for known in group.members] == [member.member_id],
    )
    run.why("The document's handler marks after its sleep, so each of its commits is 10 s later than these.")


@scenario(
    "S3-21",
    "The manual example: a commit after each message; Close commits nothing more",
    says="The second example switches auto commit off and calls Commit after each MarkMessage.",
    given="a member without auto commit that committed after its 20th message, and read 30",
    when="it closes",
    then="20 stays committed",
    takes=("commit", *GROUP),
)
def manual_close(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, trace=False)
    member = sarama(world, auto_commit=False)
    produce(world, "t", (0,), 20, 1_000)
    world.run(2_000)
    member.commit()
    world.run(500)
    produce(world, "t", (0,), 10, 1_000)
    world.run(2_000)
    member.close()
    world.run(3_000)
    stored = [observation.detail[T0] for observation in world.observations if observation.kind == "stored"]
    run.result("committed", stored)
    run.claim("20 stays", stored == [20])
    run.claim("30 were read", len(member.records) == 30)


@scenario(
    "S3-22",
    "group.Close leaves, and the others have its partitions immediately",
    says="The example defers group.Close().",
    given="two members",
    when="one closes",
    then="the other member owns everything after its next heartbeat, not after the session timeout",
    takes=("client", "members", "partitions", *GROUP),
)
def leaves(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, members=2, trace=False)
    leaver, *remaining = (sarama(world, name) for name in ("a", "b"))
    world.run(10_000)
    leaver.close()
    closed = world.now
    remaining = [member for member in living_members(world) if member is not leaver]
    session = run.parameters.session_timeout_ms or USUAL["session_ms"]
    count = len(world.partitions())
    held = world.run(session - 1_000, until=lambda: sum(len(member.owned) for member in remaining) == count)
    run.result("taken over after", f"{world.now - closed} ms")
    run.claim(f"before the session timeout of {session / 1000:g} s", held)


@scenario(
    "S3-25",
    "A member id is the client id and a UUID, assigned by the broker",
    says="kafka-consumer-groups shows sarama-c0869d1a-9a8e-....",
    given="a sarama member with the client id sarama",
    when="it joins",
    then="its id begins with sarama-",
    takes=GROUP,
)
def member_id(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = sarama(world, "sarama")
    world.run(3_000)
    member_id = world.requests_of(member, JoinGroupRequest)[-1].member_id
    run.result("id", member_id)
    run.claim(
        "client id, a hyphen, 36 characters", member_id.startswith("sarama-") and len(member_id) == 7 + 36
    )


@scenario(
    "S3-8",
    "sarama's four interfaces: group, handler, claim, session",
    says="ConsumerGroup has Consume, Errors, Close; the handler Setup, Cleanup, ConsumeClaim; the "
    "session and the claim what a handler needs.",
    given="a cooperative sarama group, whose session calls Setup and Cleanup beside the claims",
    when="it joins, reads and closes",
    then="Setup is called first, then the claims, then Cleanup",
    takes=("static", "partitions", *TIMEOUTS),
)
def faces(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    member = sarama(world, assignors=("cooperative-sticky",))
    produce(world, "t", numbers(world), 20, 1_000)
    world.run(2_000)
    member.close()
    world.run(2_000)
    calls = [call for call, _ in member.calls]
    run.result("callbacks", calls)
    run.claim("setup is the first, cleanup the last", (calls[0], calls[-1]) == ("setup", "cleanup"))
    run.claim("claims start and end in between", set(calls[1:-1]) == {"assigned", "revoked"})


@scenario(
    "S3-12",
    "A slow handler: after MaxProcessingTime only its partition is left out of fetches",
    says="(feederloop and MaxProcessingTime, behind the document's fetch loop)",
    given="a member with two partitions, MaxProcessingTime 100 ms, buffers of 16 messages, and handlers "
    "that take nothing for 5 s",
    when="one partition fills its buffer, the other gets a few messages; then the handlers continue",
    then="after twice MaxProcessingTime the Fetches name only the other partition; later both again; "
    "nothing is lost, and the order is kept",
    takes=GROUP,
)
def slow_child(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    member = sarama(world, extra={"Consumer.MaxProcessingTime": 100, "ChannelBufferSize": 16})
    world.run(2_000)
    member.pause_polling()
    # End the poll in progress first: until it ends, the handlers still receive messages.
    world.run(500)
    produce(world, "t", (0,), 100, 3_000)
    world.write("t", 1, "x", "x")
    world.run(1_500)
    alone = _partitions(world.requests_of(member, FetchRequest)[-1])
    run.result("fetched while the handlers are blocked", alone)
    run.claim("only partition 0 is left out", alone == [1])
    run.claim("the handlers have taken nothing", not member.records)
    member.resume_polling()
    world.run(5_000)
    run.result("fetched afterwards", _partitions(world.requests_of(member, FetchRequest)[-1]))
    run.claim(
        "then both are fetched again", _partitions(world.requests_of(member, FetchRequest)[-1]) == [0, 1]
    )
    run.result("read", {str(tp): len(offsets(member, tp)) for tp in (T0, T1)})
    run.claim(
        "all of both, in order", (offsets(member, T0), offsets(member, T1)) == (list(range(300)), [0, 1])
    )


def _partitions(request: FetchRequest) -> list[int]:
    return sorted(partition.partition for topic in request.topics for partition in topic.partitions)
