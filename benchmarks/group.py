"""A whole group in virtual time: both halves of the protocol, no sockets, no clock.

    python -m benchmarks.group [--rounds 7] [--members 100] [--partitions 1000]

Members and their coordinator hand requests and answers to each other, as objects or (`bytes`) encoded and
decoded on the way. The group is stable; then one more member joins, or one leaves. What is measured is all
CPU from that moment until everybody is stable again in the new generation: heartbeats that tell of the
rebalance, callbacks, joins, the leader's assignment, syncs, and for cooperative assignors the second round.

100 members, 1000 partitions, ms on an EPYC with two cores that others used, too, Python 3.11, medians of 5
rounds: range 20 for one that joins, 20 for one that leaves; as bytes 26, 27; cooperative-sticky, which
rebalances twice when one joins, 44 and 23, as bytes 49 and 27. Busier cores take half as long again.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import time
from collections import deque
from collections.abc import Callable

from kproto.group.classic import coordinator as broker
from kproto.group.classic.member import (
    CloseRequested,
    CoordinatorFound,
    FindCoordinator,
    Left,
    Member,
    MemberConfig,
    MemberEvent,
    MemberState,
    MetadataUpdated,
    PollEntered,
    PollLeft,
    Received,
    Released,
    Send,
    SubscriptionChanged,
    Tick,
    WantMetadata,
    next_deadline,
    step,
)
from kproto.wire.message import Message

from .report import header, machine, row

GOAL_MS = 50
STRATEGIES = ("range", "cooperative-sticky")
VERSIONS = {"JoinGroupRequest": 9, "SyncGroupRequest": 5, "HeartbeatRequest": 4, "LeaveGroupRequest": 5}
As = Callable[[Message, int], Message]


def as_object(message: Message, version: int) -> Message:
    return message


def as_bytes(message: Message, version: int) -> Message:
    return type(message).decode(message.encode(version), version)


class Group:
    """A coordinator and its members."""

    def __init__(self, strategy: str, partitions: int, sent: As) -> None:
        self.now = 1_000_000
        self.coordinator = broker.ClassicCoordinator(broker.GroupSettings(group_initial_rebalance_delay_ms=0))
        self.members: dict[int, Member] = {}
        self.topics = {f"topic-{number}": partitions // 10 for number in range(10)}
        self._strategy = strategy
        self._sent = sent
        self._events: deque[tuple[int, MemberEvent]] = deque()
        self._times: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}
        self._tokens: dict[int, tuple[int, Message, int]] = {}
        self._asked = 0

    def add(self) -> int:
        number = len(self.members)
        config = MemberConfig(group_id="g", client_id=f"c{number}", assignors=(self._strategy,))
        self.members[number] = Member(config)
        self._events.append((number, MetadataUpdated(self.topics)))
        self._events.append((number, SubscriptionChanged(frozenset(self.topics))))
        return number

    def leave(self, number: int) -> None:
        self._events.append((number, CloseRequested()))

    def _tell(self, number: int, event: MemberEvent) -> None:
        member = self.members[number]
        for action in step(member, event, self.now):
            match action:
                case Send(request, _, _):
                    self._ask(number, request)
                case FindCoordinator():
                    self._events.append((number, CoordinatorFound("node")))
                case WantMetadata(topics):
                    self._events.append((number, MetadataUpdated(self.topics, asked=topics)))
                case Left():
                    del self.members[number]
                    return
                case _:
                    pass
        if member.unreleased is not None:
            self._events.extend([(number, PollEntered()), (number, PollLeft()), (number, Released())])
        at = next_deadline(member)
        if at is not None and at != self._due.get(number):
            self._due[number] = at
            heapq.heappush(self._times, (at, number))

    def _ask(self, number: int, request: Message) -> None:
        self._asked += 1
        version = VERSIONS[type(request).__name__]
        self._tokens[self._asked] = number, request, version
        said = self._sent(request, version)
        self._step_broker(
            broker.RequestReceived(self._asked, said, version, f"c{number}", "/::1", f"{self._asked}")
        )

    def _step_broker(self, event: broker.Event) -> None:
        for action in broker.step(self.coordinator, event, self.now):
            if isinstance(action, broker.SendResponse):
                number, request, version = self._tokens.pop(int(str(action.token)))
                self._events.append((number, Received(request, self._sent(action.response, version))))

    def settle(self) -> None:
        """Until all members are stable in one generation, and all partitions are theirs."""
        while True:
            while self._events:
                number, event = self._events.popleft()
                if number in self.members:
                    self._tell(number, event)
            if self._settled():
                return
            self._pass_time()

    def _pass_time(self) -> None:
        """To the next moment at which something is due."""
        at, number = self._times[0]
        due = broker.next_deadline(self.coordinator)
        if due is not None and due < at:
            self.now = max(self.now, due)
            self._step_broker(broker.Tick())
            return
        heapq.heappop(self._times)
        if self._due.get(number) == at and number in self.members:
            del self._due[number]
            self.now = max(self.now, at)
            self._events.extend([(number, PollEntered()), (number, PollLeft()), (number, Tick())])

    def _settled(self) -> bool:
        members = self.members.values()
        return (
            all(member.state is MemberState.STABLE and not member.rejoin_needed for member in members)
            and len({member.generation for member in members}) == 1
            and sum(len(member.owned) for member in members) == sum(self.topics.values())
        )


def once(members: int, partitions: int, strategy: str, sent: As) -> tuple[float, float]:
    """Milliseconds of CPU for one that joins, and for one that leaves."""
    group = Group(strategy, partitions, sent)
    for _ in range(members - 1):
        group.add()
    group.settle()
    taken: list[float] = []
    for change in (group.add, lambda: group.leave(members // 2)):
        start = time.thread_time()
        change()
        group.settle()
        taken.append((time.thread_time() - start) * 1000)
    return taken[0], taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    arguments = parser.parse_args()
    print(machine("kproto"))
    print(f"{arguments.members} members, {arguments.partitions} partitions; ms of CPU, medians and least")
    header("assignor", "sent as", "joins", "least", "leaves", "least", f"at most {GOAL_MS}")
    for strategy in STRATEGIES:
        for name, sent in (("objects", as_object), ("bytes", as_bytes)):
            found = [
                once(arguments.members, arguments.partitions, strategy, sent) for _ in range(arguments.rounds)
            ]
            joins, leaves = zip(*found, strict=True)
            medians = statistics.median(joins), statistics.median(leaves)
            reached = "yes" if max(medians) <= GOAL_MS else "NO"
            row(strategy, name, medians[0], min(joins), medians[1], min(leaves), reached)


if __name__ == "__main__":
    main()
