"""Random stories of a world: from a seed, a cluster, a group and everything that can befall it.

    from kproto.testing.invariants import ALWAYS, check
    from kproto.testing.schedules import play

    world = play(4711, watch=ALWAYS)          # a virtual minute of trouble, then rest
    check(world)

A story is decided by its seed: `play(4711)` is the same today and tomorrow, in every process. `Story` is
the same in pieces: change its `options` to try your own assignors or policies, `world.watch(...)` your own
claims, or drop `moves` that your application never makes. With `others` a story's group is mixed: members of
other clients, which are named as in `kproto.models.index`, come, work, and go as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, cast

from ..errors import IllegalState
from ..group.subscription import TopicPartition
from ..models.index import load_model
from ..records import BatchBuilder
from ..validation import checked
from .invariants import AT_REST, GRACE_MS, Broken, check
from .world import Consumer, Invariant, Member, World
from .world.members import Machine

# Options under which a story of seconds holds what takes others minutes.
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

# Which assignors the members of one story offer: any two of a line have one in common.
STRATEGIES: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("cooperative-sticky",),),
    (("range",),),
    (("sticky",), ("sticky", "range")),
    (("range",), ("cooperative-sticky", "range")),  # the first half of a rolling upgrade, and its way back
    (("cooperative-sticky", "range"), ("cooperative-sticky",)),  # the second half
)

# What members offer in a mixed group: all clients have range.
WITH_OTHERS: Final = (("range",), ("cooperative-sticky", "range"))

PAUSES: Final = (0, 1, 3, 10, 40, 150, 600, 2_500)
REST_MS: Final = 30_000
# A connection that lost bytes is silent until a timeout tells, which is a minute with librdkafka.
REST_WITH_OTHERS_MS: Final = 150_000


@checked
def play(
    seed: int,
    *,
    steps: int = 40,
    trace: bool = False,
    watch: Iterable[Invariant] = (),
    others: Sequence[str] = (),
    **options: Any,
) -> World:
    """A whole story: the trouble, then `rest`. `watch` as `World.watch`; `options` are the consumers' own."""
    story = Story(seed, trace=trace, others=others, **options)
    story.world.watch(*watch)
    story.run(steps)
    if not story.world.alive_clients(Consumer):
        story.join()
    rest(story.world, REST_WITH_OTHERS_MS if others else REST_MS)
    return story.world


@checked
def rest(world: World, ms: int = REST_MS) -> None:
    """Let a world come to rest: all faults healed, brokers up, applications polling without pauses.

    It takes at most `ms`, and less when what holds at rest holds, and for longer than any timeout of a
    membership no application saw anything: what comes after that is heartbeats and fetches.
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
    _settle(world, ms // 2, max(timeouts, default=ms))
    for consumer in world.alive_clients(Consumer):
        _resume(consumer)
    for partition in world.partitions():
        batch = BatchBuilder()
        batch.append(world.now, b"", b"the last")  # compacted topics want a key
        world.append(partition.topic, partition.partition, batch.build())
    _settle(world, ms // 2, max((option.metadata_max_age_ms for option in options), default=ms))


def _settle(world: World, ms: int, quiet_ms: int) -> None:
    """Let time pass until no application saw anything for longer than `quiet_ms`, and what holds at rest
    holds.
    """
    end, since, looked = world.now + ms, world.now, len(world.observations)

    def is_quiet() -> bool:
        nonlocal since, looked
        for seen in world.observations[looked:]:
            if seen.kind != "stored":  # Java's consumer commits on and on
                since = seen.at
        looked = len(world.observations)
        return world.now > since + quiet_ms + GRACE_MS

    world.run(ms, until=is_quiet)
    try:
        check(world, *AT_REST)
    except Broken:
        world.run(end - world.now)


def _resume(consumer: Consumer) -> None:
    """Resume what is paused; what the engine finds lost at that moment is no matter."""
    paused = [own for own in consumer.owns() if consumer.engine.partitions[own].paused]
    if paused:
        with contextlib.suppress(IllegalState):
            consumer.resume(*sorted(paused))


class Story:
    """A random story, step by step."""

    def __init__(self, seed: int, *, trace: bool = False, others: Sequence[str] = (), **options: Any) -> None:
        self.random = random = Random(f"{seed}/story")
        self.options = options
        self.world = World(
            {"t": random.randint(1, 6), "u": random.randint(1, 3)},
            seed=seed,
            brokers=random.choice((1, 1, 2, 3)),
            latency=random.choice(((1, 1), (1, 4), (1, 30), (5, 5))),
            trace=trace,
        )
        for name in others:
            load_model(name)  # a name that is none is told now, and not when it is drawn, if ever
        self.others = others
        self.strategies = WITH_OTHERS if others else random.choice(STRATEGIES)
        self.topics = random.choice((("t",), ("t", "u")))
        self.gentle = random.random() < 0.25
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
            (2, self.stay_away),
            (3, self.come_back),
            (2, self.elect),
            (1, self.mark),
            (2, self.slow_down),
        ]
        if not self.gentle:
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
        if others:
            self.moves += [(6, self.join_another), (3, self.end_another)]
        self._members = 0
        for partition in self.world.partitions():
            self._write(partition)
        for _ in range(random.randint(1, 3)):
            self.join()

    @checked
    def run(self, steps: int) -> None:
        """Make random moves, with random time between them."""
        weights, moves = zip(*self.moves, strict=True)
        for move in self.random.choices(moves, weights, k=steps):
            move()
            self.world.run(self.random.choice(PAUSES))

    # ---- moves: each does nothing when there is nothing to do it to

    def join(self) -> None:
        random = self.random
        if len(self.world.alive_clients(Consumer)) >= 5:
            return
        self._members += 1
        given: dict[str, Any] = {
            **QUICK,
            "partition_assignment_strategy": random.choice(self.strategies),
            "enable_auto_commit": random.random() < 0.7,
            "max_poll_records": random.choice((1, 3, 500)),
            "fetch_max_wait_ms": random.choice((50, 500)),
            **self.options,
        }
        if random.random() < 0.2:
            taken = {one.options.group_instance_id for one in self.world.alive_clients(Consumer)}
            free = [name for name in ("i1", "i2") if name not in taken]
            if free:
                given["group_instance_id"] = random.choice(free)
        made: Consumer = self.world.join(f"c{self._members}", topics=self.topics, **given)
        made.callback_ms = random.choice((0, 0, 0, 5, 200))
        made.works_ms = random.choice((0, 0, 5, 100))

    def join_another(self) -> None:
        """A member of another client."""
        random = self.random
        if len(self.world.alive_clients(Member)) >= 4:
            return
        self._members += 1
        name = random.choice(self.others)
        machine = cast("Machine", load_model(name))
        made: Member = self.world.join(
            f"{name}{self._members}",
            machine,
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
        made.callback_ms = random.choice((0, 0, 0, 5, 200))
        made.works_ms = random.choice((0, 0, 5, 100))

    def end_another(self) -> None:
        living = self.world.alive_clients(Member)
        if living:
            one = self.random.choice(living)
            if self.gentle or self.random.random() < 0.5:
                one.close()
            else:
                self.world.kill(one)

    def write(self) -> None:
        self._write(self.random.choice(self.world.partitions()))

    def _write(self, partition: TopicPartition) -> None:
        if self.world.brokers:
            count = self.random.choice((1, 2, 10))
            self.world.write(partition.topic, partition.partition, *["x"] * count)

    def mark(self) -> None:
        partition = self.random.choice(self.world.partitions())
        self.world.write_marker(partition.topic, partition.partition)

    def close(self) -> None:
        for one in self._some():
            one.close(leave=self.random.random() < 0.8, timeout_ms=self.random.choice((500, 5_000)))

    def kill(self) -> None:
        for one in self._some():
            self.world.kill(one)

    def freeze(self) -> None:
        for one in self._some():
            one.freeze(self.random.choice((50, 1_000, 5_000)))

    def commit(self) -> None:
        for one in self._some():
            one.commit(timeout_ms=self.random.choice((300, 5_000)))

    def commit_some(self) -> None:
        for one in self._some():
            given = sorted(partition for partition in one.positions if partition in one.owns())
            if given:
                partition = self.random.choice(given)
                one.commit({partition: one.positions[partition]})

    def seek(self) -> None:
        for one in self._some():
            owned = sorted(one.owned & one.owns())
            if owned:
                partition = self.random.choice(owned)
                log = self.world.log(partition)
                if self.random.random() < 0.8:
                    offset = self.random.randint(log.start_offset, log.end_offset)
                    while (partition, offset) in self.world.marker_offsets:
                        offset += 1
                    self._allowed(lambda: one.seek(partition, offset))  # noqa: B023
                else:
                    where = self.random.choice(("earliest", "latest", "committed"))
                    self._allowed(lambda: one.seek_to(where, partition))  # noqa: B023

    def pause(self) -> None:
        for one in self._some():
            owned = sorted(one.owned & one.owns())
            if owned:
                partition = self.random.choice(owned)
                self._allowed(lambda: one.pause(partition))  # noqa: B023

    def resume(self) -> None:
        for one in self._some():
            _resume(one)

    def grow(self) -> None:
        name = self.random.choice(("t", "u"))
        count = sum(partition.topic == name for partition in self.world.partitions())
        if self.world.brokers and count < 9:
            self.world.grow(name, count + self.random.randint(1, 2))

    def subscribe(self) -> None:
        for one in self._some():
            self._allowed(lambda: one.subscribe(*self.topics))  # noqa: B023

    def unsubscribe(self) -> None:
        for one in self._some():
            self._allowed(one.unsubscribe)

    def rejoin(self) -> None:
        for one in self._some():
            self._allowed(one.rejoin)

    def stay_away(self) -> None:
        for one in self._some():
            one.pause_polling()

    def come_back(self) -> None:
        for one in self.world.alive_clients(Consumer):
            if not one.engine.closed and one.engine.topics:
                one.resume_polling()

    def slow_down(self) -> None:
        for one in self._some():
            one.callback_ms = self.random.choice((0, 50, 1_500, 7_000))
            one.works_ms = self.random.choice((0, 50, 1_500, 7_000))

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
        down = [node for node in self.world.nodes if node not in self.world.brokers]
        if down:
            self.world.start_broker(self.random.choice(down), loading_ms=self.random.choice((0, 200)))

    def fault(self) -> None:
        random = self.random
        one: Sequence[Consumer | None] = [None, *self._some()]
        self.world.fault(
            random.choice(("delay", "drop", "stall", "refuse")),
            one[-1],
            random.choice((None, *self.world.nodes)),
            ms=random.choice((5, 300, 1_500)),
            chance=random.choice((0.05, 0.5, 1.0)),
            lasts=random.choice((20, 500, 2_000, 6_000)),
        )

    def cut(self) -> None:
        for one in self._some():
            self.world.fault(self.random.choice(("cut", "half_close")), one)

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

    def _some(self) -> list[Consumer]:
        """One of those that are alive and not about to end; none if there is none."""
        able = [one for one in self.world.alive_clients(Consumer) if not one.is_closing]
        return [self.random.choice(able)] if able else []

    def _allowed(self, move: Callable[[], object]) -> None:
        """Something that a consumer may refuse as it is now: that it does so is all that matters."""
        with contextlib.suppress(IllegalState):
            move()
