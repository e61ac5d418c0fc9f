"""Random schedules of a world: a cluster, a group and all kinds of faults, determined by a seed.

    from kproto.testing.invariants import ALWAYS, check
    from kproto.testing.schedules import play

    world = play(4711, watch=ALWAYS)          # a virtual minute with faults, then recovery
    check(world)

A schedule is a sequence of random moves: a move starts, kills or reconfigures a client, changes the cluster,
or injects a fault. A schedule is determined by its seed: `play(4711)` is identical in every process and on
every machine.

`Schedule` runs the same schedule step by step. To test your own assignors or policies, set its `options`.
You can also watch your own invariants, and remove `moves` that your application never makes.

With `models`, models of other clients take part. `kproto.models.index` lists their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from ..errors import IllegalState
from ..group.subscription import TopicPartition
from ..models.index import load_model
from ..records import BatchBuilder
from ..validation import TEXTS, WHOLE_NUMBER, ZERO_OR_MORE, Rule, checked, has_attributes
from .invariants import AT_REST, GRACE_MS, InvariantBroken, check
from .world import Consumer, Invariant, ModelClient, World

# Short timeouts, with which a rebalance takes seconds instead of minutes.
QUICK: Final[dict[str, Any]] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1_000,
    "request_timeout_ms": 2_000,
    "default_api_timeout_ms": 6_000,
    "max_poll_interval_ms": 6_000,
    "auto_commit_interval_ms": 400,
    "socket_connection_setup_timeout_ms": 1_000,
}

# The assignors of members. A schedule uses one line, whose entries all have an assignor in common, and each
# member uses one entry. The last two lines are groups during the two rolling bounces of KIP-429, which
# upgrade a group from range to cooperative-sticky.
STRATEGIES: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("cooperative-sticky",),),
    (("range",),),
    (("sticky",), ("sticky", "range")),
    (("range",), ("cooperative-sticky", "range")),
    (("cooperative-sticky", "range"), ("cooperative-sticky",)),
)

# The assignors of kproto's members in a mixed group. Each entry has range, which all clients support.
MIXED_GROUP_STRATEGIES: Final = (("range",), ("cooperative-sticky", "range"))

PAUSES_MS: Final = (0, 1, 3, 10, 40, 150, 600, 2_500)
# How long a world may settle, in virtual ms. With models it takes longer, because librdkafka detects a silent
# connection only after one minute.
SETTLE_MS: Final = 30_000
SETTLE_WITH_MODELS_MS: Final = 150_000


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable)


# Rules of arguments.
_INVARIANTS: Final = Rule(_is_iterable, "a list of functions")
_WORLD: Final = Rule(has_attributes("heal", "alive_clients"), "a kproto.testing.world.World")


@checked(seed=WHOLE_NUMBER, steps=WHOLE_NUMBER, watch=_INVARIANTS, models=TEXTS)
def play(
    seed: int,
    *,
    steps: int = 40,
    trace: bool = False,
    watch: Iterable[Invariant] = (),
    models: Sequence[str] = (),
    **options: Any,
) -> World:
    """Run a random schedule of `steps` moves, then let the world settle. Return the world.

    `watch` contains invariants for `World.watch`. `models` names the models of other clients that take part.
    `options` contains options of the consumers.

    Raises InvariantBroken if a watched invariant does not hold.
    """
    schedule = Schedule(seed, trace=trace, models=models, **options)
    schedule.world.watch(*watch)
    schedule.run(steps)
    if not schedule.world.alive_clients(Consumer):
        schedule.join()
    settle(schedule.world, SETTLE_WITH_MODELS_MS if models else SETTLE_MS)
    return schedule.world


@checked(world=_WORLD, ms=ZERO_OR_MORE)
def settle(world: World, ms: int = SETTLE_MS) -> None:
    """Let a world settle: heal all faults, start all brokers, and let all applications poll.

    Settling takes at most `ms` of virtual time, in two halves. Between the halves, a record is written to
    every partition.

    A half ends early at the end of a quiet time, if the invariants `AT_REST` hold. In a quiet time, no
    application observes an event other than a commit.

    In the first half, the quiet time is longer than session.timeout.ms and max.poll.interval.ms. In the
    second half, it is longer than metadata.max.age.ms. After a quiet time, only heartbeats, fetches, commits
    and metadata refreshes can follow.
    """
    world.heal()
    for node in world.nodes:
        if node not in world.brokers:
            world.start_broker(node)
    for consumer in world.alive_clients(Consumer):
        consumer.works_ms = 0
        consumer.callback_ms = min(consumer.callback_ms, 20)
        _resume(consumer)
        consumer.limit = 500
        if not consumer.engine.closed and consumer.engine.topics:
            consumer.resume_polling()
    options = [consumer.options for consumer in world.alive_clients(Consumer)]
    timeouts = [max(option.max_poll_interval_ms, option.session_timeout_ms) for option in options]
    _run_until_quiet(world, ms // 2, max(timeouts, default=ms))
    for consumer in world.alive_clients(Consumer):
        _resume(consumer)
    for partition in world.partitions():
        batch = BatchBuilder()
        batch.append(world.now, b"", b"the last")  # Compacted topics require a key.
        world.append(partition.topic, partition.partition, batch.build())
    _run_until_quiet(world, ms // 2, max((option.metadata_max_age_ms for option in options), default=ms))


def _run_until_quiet(world: World, ms: int, quiet_ms: int) -> None:
    """Run the world until no application has observed an event for `quiet_ms`, or until `ms` have passed.

    If the invariants `AT_REST` do not hold at that time, run the world until `ms` have passed in total.
    """
    end, last_event_at, checked_count = world.now + ms, world.now, len(world.observations)

    def is_quiet() -> bool:
        nonlocal last_event_at, checked_count
        for observation in world.observations[checked_count:]:
            # Commits do not count as events, because Java's consumer commits periodically, even if nothing
            # has changed.
            if observation.kind != "stored":
                last_event_at = observation.at
        checked_count = len(world.observations)
        return world.now > last_event_at + quiet_ms + GRACE_MS

    world.run(ms, until=is_quiet)
    try:
        check(world, *AT_REST)
    except InvariantBroken:
        world.run(end - world.now)


def _resume(consumer: Consumer) -> None:
    """Resume partitions that a move has paused, unless the consumer's engine no longer owns them."""
    paused = [partition for partition in consumer.owns() if consumer.engine.partitions[partition].paused]
    if paused:
        with contextlib.suppress(IllegalState):
            consumer.resume(*sorted(paused))


class Schedule:
    """A random schedule, step by step."""

    def __init__(self, seed: int, *, trace: bool = False, models: Sequence[str] = (), **options: Any) -> None:
        self.random = random = Random(f"{seed}/story")
        self.options = options
        self.world = World(
            {"t": random.randint(1, 6), "u": random.randint(1, 3)},
            seed=seed,
            brokers=random.choice((1, 1, 2, 3)),
            latency=random.choice(((1, 1), (1, 4), (1, 30), (5, 5))),
            trace=trace,
        )
        for name in models:
            load_model(name)  # Raise an error for an unknown name now, not when the name is drawn.
        self.models = models
        self.strategies = MIXED_GROUP_STRATEGIES if models else random.choice(STRATEGIES)
        self.topics = random.choice((("t",), ("t", "u")))
        # In a gentle schedule no client is killed, and no fault is injected.
        self.is_gentle = random.random() < 0.25
        self.moves: list[tuple[int, Callable[[], None]]] = [
            (10, self.write),
            (6, self.join),
            (3, self.close),
            (6, self.commit),
            (4, self.commit_some),
            (4, self.seek),
            (3, self.pause),
            (3, self.resume),
            (3, self.grow),
            (2, self.subscribe),
            (1, self.unsubscribe),
            (2, self.rejoin),
            (2, self.pause_polling),
            (3, self.resume_polling),
            (2, self.elect),
            (1, self.write_marker),
            (2, self.slow_down),
        ]
        if not self.is_gentle:
            self.moves += [
                (2, self.kill),
                (2, self.freeze),
                (5, self.fault),
                (2, self.cut),
                (2, self.move_coordinator),
                (2, self.stop_broker),
                (3, self.start_broker),
                (1, self.delete_before),
                (1, self.truncate),
            ]
        if models:
            self.moves += [(6, self.join_model), (3, self.end_model)]
        self._join_count = 0
        for partition in self.world.partitions():
            self._write_records(partition)
        for _ in range(random.randint(1, 3)):
            self.join()

    @checked(steps=WHOLE_NUMBER)
    def run(self, steps: int) -> None:
        """Make `steps` random moves, with random times between them."""
        weights, moves = zip(*self.moves, strict=True)
        for move in self.random.choices(moves, weights, k=steps):
            move()
            self.world.run(self.random.choice(PAUSES_MS))

    # ---- moves: a move that is not possible in the current state does nothing

    def join(self) -> None:
        """Start one of kproto's consumers, with random options."""
        random = self.random
        if len(self.world.alive_clients(Consumer)) >= 5:
            return
        self._join_count += 1
        options: dict[str, Any] = {
            **QUICK,
            "partition_assignment_strategy": random.choice(self.strategies),
            "enable_auto_commit": random.random() < 0.7,
            "max_poll_records": random.choice((1, 3, 500)),
            "fetch_max_wait_ms": random.choice((50, 500)),
            **self.options,
        }
        if random.random() < 0.2:
            used_ids = {consumer.options.group_instance_id for consumer in self.world.alive_clients(Consumer)}
            free = [name for name in ("i1", "i2") if name not in used_ids]
            if free:
                options["group_instance_id"] = random.choice(free)
        consumer: Consumer = self.world.join(f"c{self._join_count}", topics=self.topics, **options)
        consumer.callback_ms = random.choice((0, 0, 0, 5, 200))
        consumer.works_ms = random.choice((0, 0, 5, 100))

    def join_model(self) -> None:
        """Start a model of another client."""
        random = self.random
        if len(self.world.alive_clients(ModelClient)) >= 4:
            return
        self._join_count += 1
        name = random.choice(self.models)
        model: ModelClient = self.world.join(
            f"{name}{self._join_count}",
            load_model(name),
            topics=self.topics,
            group_id="g",
            assignors=("range",),
            session_ms=3_000,
            heartbeat_ms=500,
            max_poll_ms=6_000,
            metadata_ms=1_000,
            auto_commit=random.random() < 0.7,
            auto_commit_ms=400,
            reset="earliest",
        )
        model.callback_ms = random.choice((0, 0, 0, 5, 200))
        model.works_ms = random.choice((0, 0, 5, 100))

    def end_model(self) -> None:
        models = self.world.alive_clients(ModelClient)
        if models:
            model = self.random.choice(models)
            if self.is_gentle or self.random.random() < 0.5:
                model.close()
            else:
                self.world.kill(model)

    def write(self) -> None:
        self._write_records(self.random.choice(self.world.partitions()))

    def _write_records(self, partition: TopicPartition) -> None:
        if self.world.brokers:
            count = self.random.choice((1, 2, 10))
            self.world.write(partition.topic, partition.partition, *["x"] * count)

    def write_marker(self) -> None:
        """Write a transaction marker: an offset without a record."""
        partition = self.random.choice(self.world.partitions())
        self.world.write_marker(partition.topic, partition.partition)

    def close(self) -> None:
        for consumer in self._choose_consumer():
            consumer.close(leave=self.random.random() < 0.8, timeout_ms=self.random.choice((500, 5_000)))

    def kill(self) -> None:
        for consumer in self._choose_consumer():
            self.world.kill(consumer)

    def freeze(self) -> None:
        for consumer in self._choose_consumer():
            consumer.freeze(self.random.choice((50, 1_000, 5_000)))

    def commit(self) -> None:
        for consumer in self._choose_consumer():
            consumer.commit(timeout_ms=self.random.choice((300, 5_000)))

    def commit_some(self) -> None:
        for consumer in self._choose_consumer():
            owned = sorted(partition for partition in consumer.positions if partition in consumer.owns())
            if owned:
                partition = self.random.choice(owned)
                consumer.commit({partition: consumer.positions[partition]})

    def seek(self) -> None:
        for consumer in self._choose_consumer():
            owned = sorted(consumer.owned & consumer.owns())
            if owned:
                partition = self.random.choice(owned)
                log = self.world.log(partition)
                if self.random.random() < 0.8:
                    offset = self.random.randint(log.start_offset, log.end_offset)
                    while (partition, offset) in self.world.marker_offsets:
                        offset += 1
                    self._try_move(lambda: consumer.seek(partition, offset))  # noqa: B023
                else:
                    target = self.random.choice(("earliest", "latest", "committed"))
                    self._try_move(lambda: consumer.seek_to(target, partition))  # noqa: B023

    def pause(self) -> None:
        for consumer in self._choose_consumer():
            owned = sorted(consumer.owned & consumer.owns())
            if owned:
                partition = self.random.choice(owned)
                self._try_move(lambda: consumer.pause(partition))  # noqa: B023

    def resume(self) -> None:
        for consumer in self._choose_consumer():
            _resume(consumer)

    def grow(self) -> None:
        name = self.random.choice(("t", "u"))
        count = sum(partition.topic == name for partition in self.world.partitions())
        if self.world.brokers and count < 9:
            self.world.grow(name, count + self.random.randint(1, 2))

    def subscribe(self) -> None:
        for consumer in self._choose_consumer():
            self._try_move(lambda: consumer.subscribe(*self.topics))  # noqa: B023

    def unsubscribe(self) -> None:
        for consumer in self._choose_consumer():
            self._try_move(consumer.unsubscribe)

    def rejoin(self) -> None:
        for consumer in self._choose_consumer():
            self._try_move(consumer.rejoin)

    def pause_polling(self) -> None:
        for consumer in self._choose_consumer():
            consumer.pause_polling()

    def resume_polling(self) -> None:
        for consumer in self.world.alive_clients(Consumer):
            if not consumer.engine.closed and consumer.engine.topics:
                consumer.resume_polling()

    def slow_down(self) -> None:
        for consumer in self._choose_consumer():
            consumer.callback_ms = self.random.choice((0, 50, 1_500, 7_000))
            consumer.works_ms = self.random.choice((0, 50, 1_500, 7_000))

    def elect(self) -> None:
        partition = self.random.choice(self.world.partitions())
        if self.world.brokers:
            node = self.random.choice(list(self.world.brokers))
            self.world.elect(partition.topic, partition.partition, node)

    def move_coordinator(self) -> None:
        if self.world.brokers:
            node = self.random.choice(list(self.world.brokers))
            self.world.move_coordinator("g", node, loading_ms=self.random.choice((0, 20, 700)))

    def stop_broker(self) -> None:
        if self.world.brokers:
            self.world.stop_broker(self.random.choice(list(self.world.brokers)))

    def start_broker(self) -> None:
        stopped_nodes = [node for node in self.world.nodes if node not in self.world.brokers]
        if stopped_nodes:
            self.world.start_broker(
                self.random.choice(stopped_nodes), loading_ms=self.random.choice((0, 200))
            )

    def fault(self) -> None:
        random = self.random
        consumers = self._choose_consumer()
        self.world.fault(
            random.choice(("delay", "drop", "stall", "refuse")),
            consumers[0] if consumers else None,
            random.choice((None, *self.world.nodes)),
            ms=random.choice((5, 300, 1_500)),
            chance=random.choice((0.05, 0.5, 1.0)),
            lasts=random.choice((20, 500, 2_000, 6_000)),
        )

    def cut(self) -> None:
        for consumer in self._choose_consumer():
            self.world.fault(self.random.choice(("cut", "half_close")), consumer)

    def delete_before(self) -> None:
        if self.world.brokers:
            partition = self.random.choice(self.world.partitions())
            log = self.world.log(partition)
            offset = self.random.randint(log.start_offset, log.end_offset)
            self.world.delete_before(partition.topic, partition.partition, offset)

    def truncate(self) -> None:
        if self.world.brokers:
            partition = self.random.choice(self.world.partitions())
            log = self.world.log(partition)
            self.world.truncate(
                partition.topic, partition.partition, self.random.randint(log.start_offset, log.end_offset)
            )

    def _choose_consumer(self) -> list[Consumer]:
        """Return a list with one random consumer that is alive and not closing, or an empty list."""
        candidates = [consumer for consumer in self.world.alive_clients(Consumer) if not consumer.is_closing]
        return [self.random.choice(candidates)] if candidates else []

    def _try_move(self, move: Callable[[], object]) -> None:
        """Make a move. Ignore the error if the consumer rejects the move in its current state."""
        with contextlib.suppress(IllegalState):
            move()
