"""Measure rebalances of a whole group in virtual time, without sockets.

    python -m benchmarks.group [--rounds 7] [--members 100] [--partitions 1000]

The members and their coordinator exchange requests and responses as objects, or encoded and decoded
("bytes"). A member joins or leaves a stable group. The result is all CPU time until every member is stable
in the new generation: heartbeats that report the rebalance, callbacks, JoinGroup, the leader's assignment,
SyncGroup, and the second rebalance of cooperative assignors.

Results for 100 members and 1,000 partitions, on an EPYC with two busy cores, Python 3.11, medians of 5
rounds, in ms:

    assignor              join    leave    join, bytes    leave, bytes
    range                 20      20       26             27
    cooperative-sticky    44      23       49             27

On busier cores a rebalance takes 1.5 times as long. cooperative-sticky rebalances twice when a member joins.
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
Transfer = Callable[[Message, int], Message]


def pass_object(message: Message, version: int) -> Message:
    return message


def encode_and_decode(message: Message, version: int) -> Message:
    return type(message).decode(message.encode(version), version)


class Group:
    """A coordinator and its members, in virtual time."""

    def __init__(self, strategy: str, partitions: int, transfer: Transfer) -> None:
        self.now = 1_000_000
        self.coordinator = broker.ClassicCoordinator(broker.GroupSettings(group_initial_rebalance_delay_ms=0))
        self.members: dict[int, Member] = {}
        self.topics = {f"topic-{number}": partitions // 10 for number in range(10)}
        self._strategy = strategy
        self._transfer = transfer
        self._events: deque[tuple[int, MemberEvent]] = deque()
        # A heap of (deadline, member number); entries that differ from `_deadlines` are outdated.
        self._timers: list[tuple[int, int]] = []
        self._deadlines: dict[int, int] = {}
        # Token of a pending request -> member number, request, version.
        self._pending: dict[int, tuple[int, Message, int]] = {}
        self._requests_sent = 0

    def add(self) -> int:
        number = len(self.members)
        config = MemberConfig(group_id="g", client_id=f"c{number}", assignors=(self._strategy,))
        self.members[number] = Member(config)
        self._events.append((number, MetadataUpdated(self.topics)))
        self._events.append((number, SubscriptionChanged(frozenset(self.topics))))
        return number

    def leave(self, number: int) -> None:
        self._events.append((number, CloseRequested()))

    def _step_member(self, number: int, event: MemberEvent) -> None:
        member = self.members[number]
        for action in step(member, event, self.now):
            match action:
                case Send(request, _, _):
                    self._send(number, request)
                case FindCoordinator():
                    self._events.append((number, CoordinatorFound("node")))
                case WantMetadata(topics):
                    self._events.append((number, MetadataUpdated(self.topics, requested=topics)))
                case Left():
                    del self.members[number]
                    return
                case _:
                    pass
        if member.unreleased is not None:
            self._events.extend([(number, PollEntered()), (number, PollLeft()), (number, Released())])
        deadline = next_deadline(member)
        if deadline is not None and deadline != self._deadlines.get(number):
            self._deadlines[number] = deadline
            heapq.heappush(self._timers, (deadline, number))

    def _send(self, number: int, request: Message) -> None:
        self._requests_sent += 1
        version = VERSIONS[type(request).__name__]
        self._pending[self._requests_sent] = number, request, version
        received = self._transfer(request, version)
        self._step_broker(
            broker.RequestReceived(
                self._requests_sent, received, version, f"c{number}", "/::1", f"{self._requests_sent}"
            )
        )

    def _step_broker(self, event: broker.CoordinatorEvent) -> None:
        for action in broker.step(self.coordinator, event, self.now):
            if isinstance(action, broker.SendResponse):
                number, request, version = self._pending.pop(int(str(action.token)))
                self._events.append((number, Received(request, self._transfer(action.response, version))))

    def settle(self) -> None:
        """Run until all members are stable in one generation and own all partitions."""
        while True:
            while self._events:
                number, event = self._events.popleft()
                if number in self.members:
                    self._step_member(number, event)
            if self._is_settled():
                return
            self._advance_time()

    def _advance_time(self) -> None:
        """Advance to the next deadline, and let the coordinator or the member handle it."""
        deadline, number = self._timers[0]
        coordinator_deadline = broker.next_deadline(self.coordinator)
        if coordinator_deadline is not None and coordinator_deadline < deadline:
            self.now = max(self.now, coordinator_deadline)
            self._step_broker(broker.Tick())
            return
        heapq.heappop(self._timers)
        if self._deadlines.get(number) == deadline and number in self.members:
            del self._deadlines[number]
            self.now = max(self.now, deadline)
            self._events.extend([(number, PollEntered()), (number, PollLeft()), (number, Tick())])

    def _is_settled(self) -> bool:
        members = self.members.values()
        return (
            all(member.state is MemberState.STABLE and not member.rejoin_needed for member in members)
            and len({member.generation for member in members}) == 1
            and sum(len(member.owned) for member in members) == sum(self.topics.values())
        )


def measure_rebalances(
    members: int, partitions: int, strategy: str, transfer: Transfer
) -> tuple[float, float]:
    """Return the CPU milliseconds until the group is stable after a member joins, and after one leaves."""
    group = Group(strategy, partitions, transfer)
    for _ in range(members - 1):
        group.add()
    group.settle()
    milliseconds: list[float] = []
    for change in (group.add, lambda: group.leave(members // 2)):
        start = time.thread_time()
        change()
        group.settle()
        milliseconds.append((time.thread_time() - start) * 1000)
    return milliseconds[0], milliseconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    arguments = parser.parse_args()
    print(machine("kproto"))
    print(f"{arguments.members} members, {arguments.partitions} partitions; ms of CPU, median and minimum")
    header("assignor", "messages", "join", "minimum", "leave", "minimum", f"at most {GOAL_MS}")
    for strategy in STRATEGIES:
        for name, transfer in (("objects", pass_object), ("bytes", encode_and_decode)):
            results = [
                measure_rebalances(arguments.members, arguments.partitions, strategy, transfer)
                for _ in range(arguments.rounds)
            ]
            joins, leaves = zip(*results, strict=True)
            medians = statistics.median(joins), statistics.median(leaves)
            reached = "yes" if max(medians) <= GOAL_MS else "NO"
            row(strategy, name, medians[0], min(joins), medians[1], min(leaves), reached)


if __name__ == "__main__":
    main()
