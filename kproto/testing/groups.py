"""A group of your consumers to which anything may happen: a Hypothesis state machine over `World`.

    from kproto.testing.groups import Group

    class Mine(Group):
        topics = {"orders": 6}
        options = ({"partition_assignment_strategy": [my_assignor]},)

        def application(self, consumer):
            return MyListener(consumer)

    TestMine = Mine.TestCase                      # for pytest and unittest

Members join, leave, die, sleep, commit, pause; topics grow; brokers stop, coordinators and leaders move, the
network breaks: in virtual time, so an hour costs what happens in it. After each of an application's steps
the claims of `kproto.testing.invariants` that hold at every moment are looked at, and in the end, when all
faults are healed and everybody polls, all of them: one owner for each partition, every record handed out,
nothing committed that wasn't, and so on. A failure is a short list of calls:

    state = Mine()
    state.begin(seed=0)
    ...
    state.teardown()

Run them in a test of their own, and `state.world` is the world that fails: see its `trace()`; its `back()`,
for which `application` is called again, with the members of the world that is played; and its `save()`, which
keeps an assignor of yours by its name, for `World.load(path, assignors=[my_assignor])`, and nothing of what
your application called: a world that is loaded has members that only read.

What an application does is an object of yours. Of these methods it has those that it needs:

* `assigned(partitions)`, `revoked(partitions)`, `lost(partitions)`: a `consumer.RebalanceListener`. It may
  call the consumer (`seek`, `commit`, `pause`, as in `kproto.testing.world.Consumer`); nothing in a world
  waits.
* `records(records)`: what it does with the records of each poll, before it polls again.

A claim of your own is a `@invariant()` method, or a function in `claims` that raises `Broken`; it sees the
`world`, and your applications in `applications`, by the names of their consumers; killed ones are not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..errors import ConfigError, IllegalState, MissingExtra
from ..group.subscription import TopicPartition

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
except ImportError as error:
    raise MissingExtra("kproto.testing.groups", "hypothesis", "testing") from error

from .invariants import ALWAYS, Claim, check
from .schedules import QUICK, rest
from .world import Consumer, World
from .world.user_code import reject_awaitable

_MS = st.sampled_from((1, 5, 50, 500, 3_000))
_ANY = st.integers(0, 99)


class Group(RuleBasedStateMachine):
    """Derive from it, and set what is yours; the class attributes are the defaults."""

    topics: ClassVar[Mapping[str, int]] = {"t": 4}  # Topics and how many partitions they begin with.

    # Options of `consumer.Consumer`. Of several, each member that joins has some: a rolling upgrade.
    options: ClassVar[Sequence[Mapping[str, Any]]] = ({},)

    most_members: ClassVar[int] = 4

    brokers: ClassVar[int] = 2

    trouble: ClassVar[bool] = True  # Whether members die and sleep, brokers stop, and the network breaks.

    claims: ClassVar[Sequence[Claim]] = ()  # More of them, for the end.

    def application(self, consumer: Consumer) -> object | None:
        """What this member's application does; None for one that only reads."""
        return None

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.topics, brokers=self.brokers, trace=False)
        self.applications: dict[str, object] = {}
        self._count = 0

    # ---- members

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed: int) -> None:
        """Two members and some records to begin with."""
        self.world = World(self.topics, seed=seed, brokers=self.brokers, trace=False, latency=(1, 9))
        self.world.watch(*ALWAYS)
        for partition in self.world.partitions():
            self.world.write(partition.topic, partition.partition, "0", "1")
        self.join(0)
        self.join(1)

    @precondition(lambda self: len(self._members()) < self.most_members)
    @rule(options=_ANY)
    def join(self, options: int) -> None:
        self._count += 1
        given = {**QUICK, **self.options[options % len(self.options)]}
        made: Consumer = self.world.join(f"member{self._count}", **given)
        made.configure(self._behave)
        made.subscribe(*self.topics)

    @precondition(lambda self: len(self._members()) > 1)
    @rule(member=_ANY, leave=st.booleans())
    def close(self, member: int, leave: bool) -> None:
        self._member(member).close(leave=leave)

    @precondition(lambda self: self.trouble and len(self._members()) > 1)
    @rule(member=_ANY)
    def kill(self, member: int) -> None:
        dying = self._member(member)
        self.world.kill(dying)
        self.applications.pop(dying.name, None)  # what it remembered died, too

    @precondition(lambda self: self.trouble and self._members())
    @rule(member=_ANY, ms=st.sampled_from((50, 1_000, 5_000)))
    def sleep(self, member: int, ms: int) -> None:
        """SIGSTOP."""
        self._member(member).freeze(ms)

    @precondition(lambda self: self._members())
    @rule(member=_ANY, works_ms=st.sampled_from((0, 50, 1_500)), callback_ms=st.sampled_from((0, 50, 1_500)))
    def slow_down(self, member: int, works_ms: int, callback_ms: int) -> None:
        one = self._member(member)
        one.works_ms, one.callback_ms = works_ms, callback_ms

    @precondition(lambda self: self._members())
    @rule(member=_ANY)
    def commit(self, member: int) -> None:
        with contextlib.suppress(IllegalState):
            self._member(member).commit()

    @precondition(lambda self: self._members())
    @rule(member=_ANY)
    def rejoin(self, member: int) -> None:
        with contextlib.suppress(IllegalState):
            self._member(member).rejoin()

    @precondition(lambda self: self._members())
    @rule(member=_ANY, partition=_ANY)
    def pause(self, member: int, partition: int) -> None:
        one = self._member(member)
        owned = sorted(one.owned & one.owns())
        if owned:
            with contextlib.suppress(IllegalState):  # lost at this moment
                one.pause(owned[partition % len(owned)])

    @precondition(lambda self: self._members())
    @rule(member=_ANY)
    def resume(self, member: int) -> None:
        one = self._member(member)
        paused = [partition for partition in one.owns() if one.engine.partitions[partition].paused]
        if paused:
            with contextlib.suppress(IllegalState):
                one.resume(*sorted(paused))

    # ---- the cluster, and time

    @rule(ms=_MS)
    def wait(self, ms: int) -> None:
        self.world.run(ms)

    @precondition(lambda self: self.world.brokers)
    @rule(partition=_ANY, count=st.integers(1, 4))
    def write(self, partition: int, count: int) -> None:
        topic, index = self._partition(partition)
        end = self.world.log(TopicPartition(topic, index)).end_offset
        self.world.write(topic, index, *(str(end + number) for number in range(count)))

    @precondition(lambda self: self.world.brokers and len(self.world.partitions()) < 12)
    @rule(topic=_ANY)
    def grow(self, topic: int) -> None:
        name = sorted(self.topics)[topic % len(self.topics)]
        self.world.grow(name, sum(partition.topic == name for partition in self.world.partitions()) + 1)

    @precondition(lambda self: self.world.brokers)
    @rule(partition=_ANY, node=_ANY)
    def elect(self, partition: int, node: int) -> None:
        self.world.elect(*self._partition(partition), self._up(node))

    @precondition(lambda self: self.trouble and self.world.brokers)
    @rule(node=_ANY, loading_ms=st.sampled_from((0, 500)))
    def move_coordinator(self, node: int, loading_ms: int) -> None:
        self.world.move_coordinator(QUICK["group_id"], self._up(node), loading_ms=loading_ms)

    @precondition(lambda self: self.trouble and self.world.brokers)
    @rule(node=_ANY)
    def stop_broker(self, node: int) -> None:
        self.world.stop_broker(self._up(node))

    @precondition(lambda self: len(self.world.brokers) < len(self.world.nodes))
    @rule()
    def start_broker(self) -> None:
        self.world.start_broker(next(node for node in self.world.nodes if node not in self.world.brokers))

    @precondition(lambda self: self.trouble and self._members())
    @rule(
        kind=st.sampled_from(("delay", "drop", "stall", "refuse", "cut", "half_close")),
        member=_ANY,
        lasts=st.sampled_from((20, 500, 4_000)),
    )
    def fault(self, kind: str, member: int, lasts: int) -> None:
        self.world.fault(kind, self._member(member), ms=300, lasts=lasts)

    def teardown(self) -> None:
        """Everything is healed, everybody polls; then all claims are looked at."""
        world = self.world
        if not self._members():
            self.join(0)
        rest(world)
        check(world)
        if self.claims:
            check(world, *self.claims)

    # ---- inside

    def _behave(self, consumer: Consumer) -> None:
        application = self.application(consumer)
        if application is None:
            return
        if consumer.world is self.world:  # and is not played again
            self.applications[consumer.name] = application
        consumer.listener = _listener(application)
        consumer.worker = getattr(application, "records", consumer.worker)

    def _members(self) -> list[Consumer]:
        return [one for one in self.world.alive_clients(Consumer) if not one.is_closing]

    def _member(self, index: int) -> Consumer:
        members = self._members()
        return members[index % len(members)]

    def _partition(self, index: int) -> TopicPartition:
        partitions = self.world.partitions()
        return partitions[index % len(partitions)]

    def _up(self, index: int) -> int:
        return sorted(self.world.brokers)[index % len(self.world.brokers)]


def _listener(application: object) -> Any:
    foreign = sorted(name for name in dir(application) if name.startswith("on_partitions_"))
    if foreign:
        allowed = "assigned(partitions), revoked(partitions), lost(partitions)"
        raise ConfigError("application", application, f"{foreign[0]} is another library's name; {allowed}")

    def call(kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        method = getattr(application, kind, None)
        if method is not None:
            reject_awaitable(kind, application, method(partitions))

    return call
