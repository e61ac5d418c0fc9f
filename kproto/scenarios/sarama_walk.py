"""Document 003: a walk through sarama, from its fetch loop over its offsets to newSession, branch by branch.

The version that runs here is sarama 1.61.1; where the document's older one did otherwise, its scenario says
so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ..error_codes import ErrorCode
from ..group.subscription import TopicPartition
from ..messages.fetch import FetchRequest
from ..messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..testing.world import Client, Member, World
from ..wire.message import Message
from .frame import Told, join, offsets, produce, read, scenario

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
USUAL: dict[str, Any] = {
    "reset": "earliest",
    "session_ms": 10_000,
    "heartbeat_ms": 500,
    "auto_commit": True,
    "auto_commit_ms": 1_000,
    "metadata_ms": 600_000,
}


def _asked(world: World, member: Client, kind: type[Message]) -> list[Any]:
    return world.asked(member, kind)


def _member(world: World, name: str = "a", **config: Any) -> Any:
    return join(world, name, "sarama", **{**USUAL, **config})


# -- theory -----------------------------------------------------------------------------------------------


@scenario(
    "S3-1",
    "A partition belongs to one member of a group; a member may have several",
    says="Within a group a partition is consumed by one consumer only; one consumer may consume several.",
    given="a topic of 5 partitions and three sarama members of one group",
    when="they have settled",
    then="each partition has exactly one owner, and some member has two",
    takes=("members",),
)
def one_owner(told: Told) -> None:
    world = told.world({"t": 5}, trace=False)
    members = [_member(world, f"m{number}") for number in range(told.parameters.members or 3)]
    world.run(15_000)
    owners = {tp: [one.name for one in members if tp in one.owned] for tp in world.partitions()}
    told.result("owners", {str(tp): names for tp, names in owners.items()})
    told.claim("each partition has one owner", all(len(names) == 1 for names in owners.values()))
    counts = [len(one.owned) for one in members]
    told.claim("the partitions are spread evenly", max(counts) - min(counts) <= 1)


@scenario(
    "S3-2",
    "The clients divide, not the broker: only the leader's SyncGroup carries a plan",
    says="One consumer of the group is the leader and makes the plan; only the leader sends it along.",
    given="two sarama members",
    when="they join",
    then="one SyncGroup per generation has assignments, the other's is empty",
)
def leader_plans(told: Told) -> None:
    world = told.world({"t": 2})
    members = [_member(world, name) for name in ("a", "b")]
    world.run(10_000)
    plans = {
        one.name: [len(each.assignments) for each in _asked(world, one, SyncGroupRequest)] for one in members
    }
    told.result("assignments in each SyncGroup", plans)
    last = [found[-1] for found in plans.values()]
    told.claim("of the last generation's SyncGroups one has the plan for both", sorted(last) == [0, 2])


@scenario(
    "S3-3",
    "Offsets are a partition's own, and its order is kept",
    says="Offsets are unique within a partition, and messages are ordered there.",
    given="two partitions with 100 messages each",
    when="a member reads them",
    then="each partition's offsets come as 0, 1, 2, ...",
)
def ordered(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    member = _member(world)
    produce(world, "t", (0, 1), 100, 1_000)
    world.run(3_000)
    for tp in (T0, T1):
        told.claim(f"{tp} came in order, without a gap", offsets(member, tp) == list(range(100)))
    told.result("read", len(member.records))


@scenario(
    "S3-4",
    "Auto commit commits what was marked, by a timer; what is fetched and not marked is not committed",
    says="With auto commit, a timer commits what has been marked.",
    given="a handler that is busy: messages are fetched into the channel, and nobody takes them",
    when="several commit intervals pass, then the handler takes them",
    then="nothing is committed before, everything after",
)
def marked_only(told: Told) -> None:
    world = told.world({"t": 1})
    member = _member(world, extra={"Consumer.MaxProcessingTime": 60_000})
    world.run(2_000)
    member.pause_polling()
    world.run(500)
    produce(world, "t", (0,), 50, 1_000)
    world.run(4_000)
    before = [one for one in world.seen if one.what == "stored"]
    fetched = bool(_asked(world, member, FetchRequest))
    told.result("commits while nothing is marked", len(before))
    told.claim("messages were asked for", fetched)
    told.claim("nothing was committed", not before)
    member.go_on_polling()
    world.run(3_000)
    after = [one.detail for one in world.seen if one.what == "stored"]
    told.claim("after marking, all 50 are committed", after[-1] == {T0: 50})


@scenario(
    "S3-5",
    "A manual commit is one request, however many messages were marked",
    says="With auto commit off, each session.Commit() sends the marked offsets, and waits for the answer.",
    given="a member without auto commit that has read 50 messages of two partitions",
    when="it commits once, and once more with nothing new",
    then="one OffsetCommit goes out, with both partitions; the second call sends nothing",
)
def manual(told: Told) -> None:
    world = told.world({"t": 2})
    member = _member(world, auto_commit=False)
    produce(world, "t", (0, 1), 50, 1_000)
    world.run(2_000)
    told.claim("nothing was committed before", not _asked(world, member, OffsetCommitRequest))
    member.commit()
    world.run(500)
    member.commit()
    world.run(500)
    sent = _asked(world, member, OffsetCommitRequest)
    told.result("requests", len(sent))
    told.result("partitions in it", sum(len(topic.partitions) for topic in sent[0].topics))
    told.claim("one request for both calls", len(sent) == 1)
    told.claim("with both partitions", sum(len(topic.partitions) for topic in sent[0].topics) == 2)


@scenario(
    "S3-6",
    "Consumers pull: without a Fetch there is no data",
    says="Kafka's consumers pull at their own pace.",
    given="a member of a group of two, on a topic with one partition",
    when="messages come",
    then="only the member with the partition fetches, and only it gets data",
)
def pull(told: Told) -> None:
    world = told.world({"t": 1})
    members = [_member(world, name) for name in ("a", "b")]
    world.run(8_000)
    produce(world, "t", (0,), 50, 1_000)
    world.run(2_000)
    owner, other = sorted(members, key=lambda one: -len(one.owned))
    world.run(1_000)
    told.result("Fetches", {one.name: len(_asked(world, one, FetchRequest)) for one in members})
    told.claim("the owner read everything", len(set(offsets(owner, T0))) + len(read(other, "t")) >= 50)
    told.claim("who owns nothing reads nothing now", not other.owned)


@scenario(
    "S3-7",
    "A rebalance stops the group: the lag grows, and is worked off afterwards",
    says="During a rebalance no consumer of the group consumes.",
    given="a sarama member whose handlers need a second to return, and steady messages",
    when="a second member comes",
    then="from the end of the old session to the new one nobody reads; afterwards the lag goes back "
    "to nothing",
    takes=("rate",),
)
def stop_the_world(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    first = _member(world, "a")
    world.run(3_000)
    first.callback_ms = 1_000
    rate = told.parameters.rate or 100
    produce(world, "t", (0, 1), rate, 2_000)
    second = _member(world, "b")
    produce(world, "t", (0, 1), rate, 8_000)
    world.run(5_000)
    times = sorted(one.at for one in world.seen if one.what == "delivered")
    gap = max(later - earlier for earlier, later in pairwise(times))
    got = {(at, offset) for one in (first, second) for at in (T0, T1) for offset in offsets(one, at)}
    written = sum(world.log(tp).end_offset for tp in (T0, T1))
    told.result("longest time without a message", f"{gap} ms")
    told.result("written, read", [written, len(got)])
    told.claim("nobody read for about the handlers' second", 900 <= gap <= 4_000)
    told.claim("everything was read in the end", len(got) == written)


# -- the fetch path ---------------------------------------------------------------------------------------


@scenario(
    "S3-9",
    "One Fetch holds all partitions of a broker",
    says="brokerConsumer.fetchNewMessages puts a block for each subscription into one request, with "
    "MinBytes and "
    "MaxWaitTime.",
    given="a member with four partitions of one broker",
    when="it has read for a while",
    then="its Fetches name all four",
)
def one_fetch(told: Told) -> None:
    world = told.world({"t": 4})
    member = _member(world)
    produce(world, "t", range(4), 50, 1_000)
    world.run(3_000)
    last = _asked(world, member, FetchRequest)[-1]
    named = sorted(one.partition for topic in last.topics for one in topic.partitions)
    told.result("partitions in one Fetch", named)
    told.result("MinBytes, MaxWaitTime", [last.min_bytes, f"{last.max_wait_ms} ms"])
    told.claim("all four are in one request", named == [0, 1, 2, 3])
    told.claim("it waits for one byte, at most MaxWaitTime", (last.min_bytes, last.max_wait_ms) == (1, 100))


@scenario(
    "S3-14",
    "The offset manager has a ticker only with AutoCommit.Enable",
    says="newOffsetManagerFromClient makes the ticker and its loop only when AutoCommit.Enable is set.",
    given="a member with and one without auto commit, both read 50 messages",
    when="ten seconds pass",
    then="the first commits by itself, the second never",
)
def ticker(told: Told) -> None:
    for auto in (True, False):
        world = told.world({"t": 1})
        member = _member(world, auto_commit=auto)
        produce(world, "t", (0,), 50, 1_000)
        world.run(10_000)
        sent = len(_asked(world, member, OffsetCommitRequest))
        told.result(f"commits with AutoCommit.Enable {auto}", sent)
        told.claim(f"AutoCommit.Enable {auto}: {'some' if auto else 'none'}", (sent > 0) == auto)


@scenario(
    "S3-15",
    "flushToBroker sends nothing when nothing is dirty",
    says="constructRequest returns nil when no partition is dirty, and flushToBroker returns then.",
    given="a member that has committed everything it read",
    when="twenty commit intervals pass without a message",
    then="no OffsetCommit goes out",
)
def nothing_dirty(told: Told) -> None:
    world = told.world({"t": 1})
    member = _member(world)
    produce(world, "t", (0,), 50, 1_000)
    world.run(3_000)
    before = len(_asked(world, member, OffsetCommitRequest))
    world.run(20_000)
    told.result("commits before and after", [before, len(_asked(world, member, OffsetCommitRequest))])
    told.claim("there were some before", before > 0)
    told.claim("and none in 20 quiet intervals", len(_asked(world, member, OffsetCommitRequest)) == before)


@scenario(
    "S3-16",
    "MarkMessage means the next offset",
    says="MarkMessage calls MarkOffset with the message's offset plus one; only a larger one counts.",
    given="a member that read offset 0 to 49",
    when="it commits",
    then="50 is committed",
)
def mark(told: Told) -> None:
    world = told.world({"t": 1})
    member = _member(world, auto_commit=False)
    produce(world, "t", (0,), 50, 1_000)
    world.run(2_000)
    member.commit()
    world.run(500)
    stored = [one.detail for one in world.seen if one.what == "stored"]
    told.result("last message read, committed", [offsets(member, T0)[-1], stored[-1][T0]])
    told.claim("committed is one more than the last message", stored[-1] == {T0: offsets(member, T0)[-1] + 1})


# -- newSession, branch by branch -------------------------------------------------------------------------


def _refusal(kind: type[Message], code: int, member_id: str) -> Message:
    if kind is FindCoordinatorRequest:
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)
    if kind is JoinGroupRequest:
        return JoinGroupResponse(
            error_code=code, protocol_name="", leader="", member_id=member_id, members=[]
        )
    return SyncGroupResponse(error_code=code, assignment=b"")


class Branch:
    """A group of one whose answers are refused so often; Consume is called once."""

    def __init__(
        self, told: Told, kind: type[Message], *codes: int, once: bool = True, **config: Any
    ) -> None:
        self.told = told
        self.world = told.world({"t": 2})
        self.codes = list(codes)
        self.kind = kind
        self.world.tamper = self.tamper
        self.member: Member = _member(self.world, extra={"Once": once, **config})
        self.world.run(40_000)

    def tamper(self, client: Client, request: Message, version: int) -> Message | None:
        if isinstance(request, self.kind) and client.name == "a" and self.codes:
            code = self.codes.pop(0)
            name = self.kind.__name__.removesuffix("Request")
            self.told.moment(f"answers {name} with {ErrorCode(code).name}", "broker")
            return _refusal(self.kind, code, getattr(request, "member_id", ""))
        return None

    @property
    def ids(self) -> list[str]:
        """The member ids of its JoinGroups, as none or the same letter for the same id."""
        letters: dict[str, str] = {"": "none"}
        return [
            letters.setdefault(one.member_id, f"id {len(letters)}")
            for one in _asked(self.world, self.member, JoinGroupRequest)
        ]

    @property
    def errors(self) -> list[str]:
        return [f"{one.kind} {one.name}".strip() for one in self.member.reports if one.kind != "log"]

    @property
    def joined(self) -> bool:
        return self.member.owned == {T0, T1}

    def tell(self) -> None:
        self.told.result("member ids of the JoinGroups", self.ids)
        self.told.result("the application hears", self.errors)
        self.told.result("partitions", self.member.owned)


def _branch(
    letter: str, title: str, says: str, when: str, then: str
) -> Callable[[Callable[[Told], None]], Callable[[Told], None]]:
    return scenario(
        f"S3-19{letter}",
        title,
        says=says,
        given="a sarama member alone in its group, Consume called once, Rebalance.Retry.Max 4, backoff 2 s",
        when=when,
        then=then,
    )


@_branch(
    "a",
    "newSession: no coordinator",
    "Without a coordinator: error when no retry is left, else another try with a refresh.",
    "FindCoordinator is answered with COORDINATOR_NOT_AVAILABLE three times",
    "it is asked again, and the member joins",
)
def no_coordinator(told: Told) -> None:
    branch = Branch(told, FindCoordinatorRequest, 15, 15, 15)
    branch.tell()
    told.claim("it joined in the end", branch.joined)


@_branch(
    "c",
    "newSession: joined",
    "On ErrNoError the member id is kept.",
    "JoinGroup is answered well, after MEMBER_ID_REQUIRED",
    "the second JoinGroup carries the id",
)
def joined(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest)
    branch.tell()
    told.claim("first without an id, then with it", branch.ids == ["none", "id 1"])
    told.claim("it owns both partitions", branch.joined)


@_branch(
    "d",
    "newSession: UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION reset the id and join at once",
    "On these the member id is emptied and newSession calls itself, the retries unchanged.",
    "JoinGroup is answered with UNKNOWN_MEMBER_ID, and later with ILLEGAL_GENERATION",
    "it joins again at once without an id",
)
def reset_id(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest, 25, 22)
    branch.tell()
    told.claim("the next JoinGroups have no id", branch.ids[:3] == ["none", "none", "none"])
    told.claim("it owns both partitions", branch.joined)
    told.claim("the application hears nothing", not branch.errors)


@_branch(
    "e",
    "newSession: NOT_COORDINATOR costs a retry",
    "On ErrNotCoordinatorForConsumer: error when no retry is left, else again with a refreshed coordinator.",
    "JoinGroup is answered with NOT_COORDINATOR twice; in another run a hundred times",
    "two are ridden out; a hundred are returned from Consume when the four retries are used",
)
def not_coordinator(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest, 16, 16)
    told.claim("two are ridden out", branch.joined)
    for_ever = Branch(told, JoinGroupRequest, *[16] * 100)
    for_ever.tell()
    told.result("answers used", 100 - len(for_ever.codes))
    told.claim("without a retry left Consume returns the error", any("16" in one for one in for_ever.errors))
    told.claim("it did not join", not for_ever.joined)


@_branch(
    "f",
    "newSession: REBALANCE_IN_PROGRESS waits and tries again",
    "On ErrRebalanceInProgress: error when no retry is left, else again after the backoff, without a "
    "refresh.",
    "JoinGroup is answered with REBALANCE_IN_PROGRESS once",
    "two seconds later the member joins (today's sarama looks the coordinator up before)",
)
def in_progress(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest, 27)
    branch.tell()
    told.claim("it owns both partitions", branch.joined)
    assigned = next(one.at for one in branch.world.seen if one.what == "assigned") - told.started
    told.result("assigned after", f"{assigned} ms")
    told.claim("after the backoff of 2 s", 2_000 <= assigned <= 4_500)


@_branch(
    "g",
    "newSession: any other error is returned",
    "Everything else is returned to whoever called Consume.",
    "JoinGroup is answered with GROUP_AUTHORIZATION_FAILED",
    "Consume returns it",
)
def other(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest, 30)
    branch.tell()
    told.claim("the application hears error 30", any("30" in one for one in branch.errors))
    told.claim("it did not join", not branch.joined)


@_branch(
    "h",
    "newSession: the leader plans",
    "When leader id and member id are the same, GetMembers and balance make the plan.",
    "the member joins as the leader",
    "its SyncGroup carries a plan for itself",
)
def plans(told: Told) -> None:
    branch = Branch(told, JoinGroupRequest)
    (sync,) = _asked(branch.world, branch.member, SyncGroupRequest)
    told.result("members in the plan", len(sync.assignments))
    told.claim("the plan is for one member", len(sync.assignments) == 1)
    told.claim("it owns both partitions", branch.joined)


@_branch(
    "j",
    "newSession: SyncGroup's errors are JoinGroup's",
    "The switch over SyncGroup's error has the same branches.",
    "SyncGroup is answered with UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, one "
    "after the other",
    "the first two join at once without the id, the third after the backoff with it",
)
def sync_errors(told: Told) -> None:
    branch = Branch(told, SyncGroupRequest, 25, 22, 27)
    branch.tell()
    told.claim("it owns both partitions in the end", branch.joined)
    told.claim("the id is forgotten twice", branch.ids.count("none") == 3)


@_branch(
    "k",
    "newSession: an empty assignment is a session without claims",
    "If MemberAssignment is empty there are no claims, and the session is made all the same.",
    "three members share two partitions",
    "one has a session with no claim, and no error",
)
def empty(told: Told) -> None:
    world = told.world({"t": 2})
    members = [_member(world, name) for name in ("a", "b", "c")]
    world.run(20_000)
    idle = [one for one in members if not one.owned]
    told.result("without claims", [one.name for one in idle])
    told.claim("one has none", len(idle) == 1)
    told.claim("it was told of its empty assignment", idle[0].calls[-1] == ("assigned", ()))
    told.claim("it is a member", idle[0].is_stable())


@_branch(
    "l",
    "newSession: claims are sorted",
    "The claims' partitions are sorted, and the user data is kept for the next join.",
    "a member gets five partitions",
    "they are told in order",
)
def claims(told: Told) -> None:
    world = told.world({"t": 5})
    member = _member(world)
    world.run(5_000)
    told.result("claims", list(member.calls[-1][1]))
    told.claim("in order", list(member.calls[-1][1]) == sorted(world.partitions()))


@scenario(
    "S3-20",
    "The auto-commit example with a slow handler: heartbeats go on",
    says="The example's handler has a sleep of 10 s in a comment.",
    given="a handler that takes 10 s for each piece of work, session timeout 10 s",
    when="messages come for a minute",
    then="the member is never put out of the group: sarama has no max.poll.interval",
)
def slow(told: Told) -> None:
    world = told.world({"t": 1}, trace=False)
    member = _member(world)
    member.works_ms = 10_000
    produce(world, "t", (0,), 2, 60_000)
    told.result("read", len(member.records))
    told.result("callbacks", [kind for kind, _ in member.calls])
    told.claim("one session for the whole minute", [kind for kind, _ in member.calls] == ["assigned"])


@scenario(
    "S3-21",
    "The manual example: a commit behind each message; Close commits nothing more",
    says="The second example switches auto commit off and calls Commit behind each MarkMessage.",
    given="a member without auto commit that committed behind its 20th message, and read 30",
    when="it closes",
    then="20 stays committed",
)
def manual_close(told: Told) -> None:
    world = told.world({"t": 1}, trace=False)
    member = _member(world, auto_commit=False)
    produce(world, "t", (0,), 20, 1_000)
    world.run(2_000)
    member.commit()
    world.run(500)
    produce(world, "t", (0,), 10, 1_000)
    world.run(2_000)
    member.close()
    world.run(3_000)
    stored = [one.detail[T0] for one in world.seen if one.what == "stored"]
    told.result("committed", stored)
    told.claim("20 stays", stored == [20])
    told.claim("30 were read", len(member.records) == 30)


@scenario(
    "S3-22",
    "group.Close leaves, and the others have its partitions at once",
    says="The example defers group.Close().",
    given="two members",
    when="one closes",
    then="the other owns everything within its heartbeat, not after the session timeout",
)
def leaves(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    a, b = (_member(world, name) for name in ("a", "b"))
    world.run(10_000)
    a.close()
    closed = world.now
    held = world.run(9_000, until=lambda: len(b.owned) == 2)
    told.result("taken over after", f"{world.now - closed} ms")
    told.claim("before the session of 10 s is over", held)


@scenario(
    "S3-25",
    "A member id is the client id and a UUID, given by the broker",
    says="kafka-consumer-groups shows sarama-c0869d1a-9a8e-....",
    given="a sarama member with the client id sarama",
    when="it joins",
    then="its id begins with sarama-",
)
def member_id(told: Told) -> None:
    world = told.world({"t": 1})
    member = _member(world, "sarama")
    world.run(3_000)
    given = _asked(world, member, JoinGroupRequest)[-1].member_id
    told.result("id", given)
    told.claim("client id, a hyphen, 36 characters", given.startswith("sarama-") and len(given) == 7 + 36)


@scenario(
    "S3-8",
    "sarama's four faces: group, handler, claim, session",
    says="ConsumerGroup has Consume, Errors, Close; the handler Setup, Cleanup, ConsumeClaim; the "
    "session and the "
    "claim what a handler needs.",
    given="a cooperative sarama group, whose session tells Setup and Cleanup beside claims",
    when="it joins, reads and closes",
    then="Setup comes first, then the claims, then Cleanup",
)
def faces(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    member = _member(world, assignors=("cooperative-sticky",))
    produce(world, "t", (0, 1), 20, 1_000)
    world.run(2_000)
    member.close()
    world.run(2_000)
    calls = [call for call, _ in member.calls]
    told.result("callbacks", calls)
    told.claim("setup is the first, cleanup the last", (calls[0], calls[-1]) == ("setup", "cleanup"))
    told.claim("claims come and go in between", set(calls[1:-1]) == {"assigned", "revoked"})


@scenario(
    "S3-12",
    "A handler that doesn't keep up: after MaxProcessingTime its partition alone is left out",
    says="(feederloop and MaxProcessingTime, behind the document's fetch loop)",
    given="a member with a partition full of messages, whose handlers stop taking them for five seconds",
    when="they go on",
    then="nothing is lost, and everything comes in order",
)
def slow_child(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    member = _member(world, extra={"Consumer.MaxProcessingTime": 100, "ChannelBufferSize": 16})
    world.run(2_000)
    member.pause_polling()
    produce(world, "t", (0, 1), 100, 5_000)
    member.go_on_polling()
    world.run(5_000)
    for tp in (T0, T1):
        told.claim(f"{tp}: all 500, in order", offsets(member, tp) == list(range(500)))
    told.result("read", len(member.records))


@_branch(
    "b",
    "newSession: no answer to JoinGroup",
    "When the request itself fails the coordinator's connection is closed and the error returned.",
    "the member's connections break while JoinGroup is open",
    "Consume returns an error; the loop's next call joins",
)
def broken(told: Told) -> None:
    world = told.world({"t": 2}, {"group.initial.rebalance.delay.ms": 3_000})
    member = _member(world)
    world.run(1_500)
    asked = len(_asked(world, member, JoinGroupRequest))
    told.moment("breaks all connections", "network")
    world.fault("cut", member, lasts=1)
    world.run(40_000)
    told.result("JoinGroups before and after", [asked, len(_asked(world, member, JoinGroupRequest)) - asked])
    told.result("the application hears", [f"{one.kind} {one.name}" for one in member.reports])
    told.claim("a JoinGroup was open", asked > 0)
    told.claim("it joined in the end", member.owned == {T0, T1})
