"""A Hypothesis state machine that runs a group of your consumers in a `World`, with random events.

    from kproto.testing.groups import Group

    class Mine(Group):
        topics = {"orders": 6}
        options = ({"partition_assignment_strategy": [my_assignor]},)

        def application(self, consumer):
            return MyListener(consumer)

    TestMine = Mine.TestCase                      # for pytest and unittest

Members join, leave, crash, freeze and commit, and they pause and lose partitions. Topics grow, brokers stop,
coordinators and leaders move, and the network fails. Time is virtual.

After each event that an application observes, the invariants `ALWAYS` are checked.

At the end, all faults are healed and all applications poll. Then all invariants of
`kproto.testing.invariants` are checked, for example that each partition has one owner and that every record
is delivered.

Hypothesis reports a failure as a short list of calls:

    state = Mine()
    state.begin(seed=0)
    ...
    state.teardown()

To debug a failure, run the reported calls in a separate test. Then use `trace()`, `rewind()` and `save()` of
`state.world`. A replayed world calls `application` again for each member.

`save()` stores the names of your assignors, for `World.load(path, assignors=[my_assignor])`. It does not
store your applications, so the members of a loaded world only read records.

An application is an object that you define. Each of these methods is optional:

* `assigned(partitions)`, `revoked(partitions)` and `lost(partitions)` are called like the methods of a
  `consumer.RebalanceListener`.

* The methods may call the consumer (`seek`, `commit`, `pause`, as in `kproto.testing.world.Consumer`). The
  consumer's methods return immediately, because a world has no thread that could wait.

* `records(records)` processes the records of each poll before the next poll.

Your own invariants are `@invariant()` methods, or functions in `final_invariants` that raise
`InvariantBroken`. The methods are checked after each step and at the end, and the functions only at the end.

Invariants can use `world` and `applications`, which maps the name of each consumer that was not killed to its
application.
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

from .invariants import ALWAYS, GRACE_MS, Invariant, check
from .schedules import QUICK, settle
from .world import Consumer, World
from .world.user_code import reject_awaitable

_WAITS_MS = st.sampled_from((1, 5, 50, 500, 3_000))
# A number that selects an element of a list. A rule takes it modulo the length of the list.
_SELECTORS = st.integers(0, 99)
# The reasons why a member loses its partitions in `Group.lose`: an administrator removes the member, its
# process is frozen beyond the session timeout, or its application does not poll within max.poll.interval.ms.
_CAUSES_OF_LOSS = st.sampled_from(("removal", "session timeout", "poll interval"))
# The limit in ms of each wait in `Group.lose`: until the member owns partitions, and until its `lost`
# callback has returned.
_MAX_LOSS_WAIT_MS = 10_000


class Group(RuleBasedStateMachine):
    """The base class of your state machine. Override the class attributes to change the defaults."""

    topics: ClassVar[Mapping[str, int]] = {"t": 4}  # Maps a topic to its number of partitions at the start.

    # Options of `consumer.Consumer`. If there are several entries, each new member uses one of them, as in a
    # rolling upgrade.
    options: ClassVar[Sequence[Mapping[str, Any]]] = ({},)

    max_members: ClassVar[int] = 4

    brokers: ClassVar[int] = 2

    # Whether members can crash, freeze and lose partitions, brokers can stop, and the network can fail.
    trouble: ClassVar[bool] = True

    # Additional invariants to check at the end of the run.
    final_invariants: ClassVar[Sequence[Invariant]] = ()

    def application(self, consumer: Consumer) -> object | None:
        """Return the application of this member, or None for a member that only reads records."""
        return None

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.topics, brokers=self.brokers, trace=False)
        self.applications: dict[str, object] = {}
        # The number of `join` calls so far. The name of each new member contains it.
        self._joined = 0

    # ---- members

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed: int) -> None:
        """Begin the run: start two members, and write some records."""
        self.world = World(self.topics, seed=seed, brokers=self.brokers, trace=False, latency=(1, 9))
        self.world.watch(*ALWAYS)
        for partition in self.world.partitions():
            self.world.write(partition.topic, partition.partition, "0", "1")
        self.join(0)
        self.join(1)

    @precondition(lambda self: len(self._members()) < self.max_members)
    @rule(options=_SELECTORS)
    def join(self, options: int) -> None:
        self._joined += 1
        options_of_member = {**QUICK, **self.options[options % len(self.options)]}
        consumer: Consumer = self.world.join(f"member{self._joined}", **options_of_member)
        consumer.configure(self._set_up_application)
        consumer.subscribe(*self.topics)

    @precondition(lambda self: len(self._members()) > 1)
    @rule(member=_SELECTORS, leave=st.booleans())
    def close(self, member: int, leave: bool) -> None:
        self._member(member).close(leave=leave)

    @precondition(lambda self: self.trouble and len(self._members()) > 1)
    @rule(member=_SELECTORS)
    def kill(self, member: int) -> None:
        victim = self._member(member)
        self.world.kill(victim)
        # Forget the application: its state is lost with the process.
        self.applications.pop(victim.name, None)

    @precondition(lambda self: self.trouble and self._members())
    @rule(member=_SELECTORS, ms=st.sampled_from((50, 1_000, 5_000)))
    def sleep(self, member: int, ms: int) -> None:
        """Freeze the process (SIGSTOP)."""
        self._member(member).freeze(ms)

    @precondition(lambda self: self.trouble and self.world.brokers and self._members())
    @rule(member=_SELECTORS, cause=_CAUSES_OF_LOSS)
    def lose(self, member: int, cause: str) -> None:
        """Let a member lose its partitions after it has read records from them.

        The step first waits until the member owns partitions. After the loss, it waits until the member's
        `lost` callback has returned. Both waits have a limit, because a network fault may prevent the
        assignment or the callback.
        """
        consumer = self._member(member)
        if not self.world.run(_MAX_LOSS_WAIT_MS, until=lambda: bool(consumer.owned)):
            return
        received, losses = len(consumer.records), _count_losses(consumer)
        for partition in sorted(consumer.owned):
            self.world.write(*partition, "before the loss")
        self.world.run(GRACE_MS, until=lambda: len(consumer.records) > received)
        if cause == "removal":
            self.world.remove_member(QUICK["group_id"], consumer.member_id)
        elif cause == "session timeout":
            consumer.freeze(consumer.options.session_timeout_ms + GRACE_MS)
        else:
            consumer.pause_polling()
            self.world.run(consumer.options.max_poll_interval_ms + GRACE_MS)
            consumer.resume_polling()
        self.world.run(
            _MAX_LOSS_WAIT_MS, until=lambda: consumer.in_callback is None and _count_losses(consumer) > losses
        )

    @precondition(lambda self: self._members())
    @rule(
        member=_SELECTORS,
        works_ms=st.sampled_from((0, 50, 1_500)),
        callback_ms=st.sampled_from((0, 50, 1_500)),
    )
    def slow_down(self, member: int, works_ms: int, callback_ms: int) -> None:
        consumer = self._member(member)
        consumer.works_ms, consumer.callback_ms = works_ms, callback_ms

    @precondition(lambda self: self._members())
    @rule(member=_SELECTORS)
    def commit(self, member: int) -> None:
        with contextlib.suppress(IllegalState):
            self._member(member).commit()

    @precondition(lambda self: self._members())
    @rule(member=_SELECTORS)
    def rejoin(self, member: int) -> None:
        with contextlib.suppress(IllegalState):
            self._member(member).rejoin()

    @precondition(lambda self: self._members())
    @rule(member=_SELECTORS, partition=_SELECTORS)
    def pause(self, member: int, partition: int) -> None:
        consumer = self._member(member)
        # The partitions that are assigned to the application, and still owned by the consumer's member.
        owned = sorted(consumer.owned & consumer.owns())
        if owned:
            # Ignore the error that is raised if the member has lost the partition in the meantime.
            with contextlib.suppress(IllegalState):
                consumer.pause(owned[partition % len(owned)])

    @precondition(lambda self: self._members())
    @rule(member=_SELECTORS)
    def resume(self, member: int) -> None:
        consumer = self._member(member)
        paused = [partition for partition in consumer.owns() if consumer.engine.partitions[partition].paused]
        if paused:
            with contextlib.suppress(IllegalState):
                consumer.resume(*sorted(paused))

    # ---- the cluster and time

    @rule(ms=_WAITS_MS)
    def wait(self, ms: int) -> None:
        self.world.run(ms)

    @precondition(lambda self: self.world.brokers)
    @rule(partition=_SELECTORS, count=st.integers(1, 4))
    def write(self, partition: int, count: int) -> None:
        topic, index = self._partition(partition)
        end_offset = self.world.log(TopicPartition(topic, index)).end_offset
        self.world.write(topic, index, *(str(end_offset + number) for number in range(count)))

    @precondition(lambda self: self.world.brokers and len(self.world.partitions()) < 12)
    @rule(topic=_SELECTORS)
    def grow(self, topic: int) -> None:
        name = sorted(self.topics)[topic % len(self.topics)]
        count = sum(partition.topic == name for partition in self.world.partitions())
        self.world.grow(name, count + 1)

    @precondition(lambda self: self.world.brokers)
    @rule(partition=_SELECTORS, node=_SELECTORS)
    def elect(self, partition: int, node: int) -> None:
        self.world.elect(*self._partition(partition), self._running_broker(node))

    @precondition(lambda self: self.trouble and self.world.brokers)
    @rule(node=_SELECTORS, loading_ms=st.sampled_from((0, 500)))
    def move_coordinator(self, node: int, loading_ms: int) -> None:
        self.world.move_coordinator(QUICK["group_id"], self._running_broker(node), loading_ms=loading_ms)

    @precondition(lambda self: self.trouble and self.world.brokers)
    @rule(node=_SELECTORS)
    def stop_broker(self, node: int) -> None:
        self.world.stop_broker(self._running_broker(node))

    @precondition(lambda self: len(self.world.brokers) < len(self.world.nodes))
    @rule()
    def start_broker(self) -> None:
        self.world.start_broker(next(node for node in self.world.nodes if node not in self.world.brokers))

    @precondition(lambda self: self.trouble and self._members())
    @rule(
        kind=st.sampled_from(("delay", "drop", "stall", "refuse", "cut", "half_close")),
        member=_SELECTORS,
        lasts=st.sampled_from((20, 500, 4_000)),
    )
    def fault(self, kind: str, member: int, lasts: int) -> None:
        self.world.fault(kind, self._member(member), ms=300, lasts=lasts)

    def teardown(self) -> None:
        """Heal all faults, let all applications poll, then check all invariants."""
        world = self.world
        if not self._members():
            self.join(0)
        settle(world)
        check(world)
        self._check_own_invariants()
        if self.final_invariants:
            check(world, *self.final_invariants)

    # ---- helpers

    def _check_own_invariants(self) -> None:
        """Check the `@invariant()` methods after `settle`: Hypothesis checks them only after steps."""
        # In older versions of Hypothesis (6.100), `invariants` is a class method.
        declared: Any = self.invariants
        invariants: Any = declared() if callable(declared) else declared
        for invariant in invariants:
            if all(holds(self) for holds in invariant.preconditions):
                invariant.function(self)

    def _set_up_application(self, consumer: Consumer) -> None:
        """Set up the application of a consumer; replayed worlds call this with their own consumer."""
        application = self.application(consumer)
        if application is None:
            return
        if consumer.world is self.world:  # not a replay
            self.applications[consumer.name] = application
        consumer.listener = _make_listener(application)
        consumer.worker = getattr(application, "records", consumer.worker)

    def _members(self) -> list[Consumer]:
        """Return the consumers that run and have not begun to close."""
        return [consumer for consumer in self.world.alive_clients(Consumer) if not consumer.is_closing]

    def _member(self, index: int) -> Consumer:
        members = self._members()
        return members[index % len(members)]

    def _partition(self, index: int) -> TopicPartition:
        partitions = self.world.partitions()
        return partitions[index % len(partitions)]

    def _running_broker(self, index: int) -> int:
        """Return the id of one of the brokers that run."""
        return sorted(self.world.brokers)[index % len(self.world.brokers)]


def _count_losses(consumer: Consumer) -> int:
    """Return how many times the consumer has called `lost`."""
    return sum(kind == "lost" for kind, _ in consumer.calls)


def _make_listener(application: object) -> Any:
    """Return the listener that calls the methods of `application`.

    Raises ConfigError if `application` has a callback named as in another library (`on_partitions_...`).
    """
    foreign_names = sorted(name for name in dir(application) if name.startswith("on_partitions_"))
    if foreign_names:
        allowed = "assigned(partitions), revoked(partitions), lost(partitions)"
        raise ConfigError(
            "application",
            application,
            f"{foreign_names[0]} is another library's name for a callback; use {allowed}",
        )

    def call(kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        method = getattr(application, kind, None)
        if method is not None:
            reject_awaitable(kind, application, method(partitions))

    return call
