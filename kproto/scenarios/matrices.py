"""Compare many runs: records lost when a topic gets partitions, and partitions not read in a rebalance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..testing.world import World
from .parameters import Parameters
from .scenario import clients, join, lost_and_doubled, produce

# Maps a client to the ways in which it can be run: "watched" detects that a topic grew, and "unwatched" does
# not. Other clients always detect growth.
DETECTING = {"kafka-go": ("watched", "unwatched"), "sarama-cluster": ("unwatched",)}
MOST_RECORDS = 500_000
# The number of partitions by which the topic grows.
NEW = 2
# Defaults of the runs.
REFRESH_MS, GROW_AT_MS, RATE, HEARTBEAT_MS, CALLBACK_MS = 5_000, 7_300, 100, 500, 200
# How long a broker holds a fetch without records, in ms. One value for all clients makes their losses
# comparable. The defaults of the clients are 250 ms to 10 s.
FETCH_WAIT_MS = 100


@dataclass(frozen=True, slots=True)
class Loss:
    """The result of one run with a growing topic.

    From the time at which the topic grows, records are written into its new partitions.
    """

    client: str
    reset: str
    watch: bool
    refresh_ms: int
    written: int
    lost: int
    doubled: int
    # The time in ms from the growth until the new partitions were assigned; None if they were not assigned.
    discovered_after_ms: int | None
    every_ms: int = 50  # The time in ms between two batches of records.

    rate: int = 100
    new: int = 2  # The number of partitions that were added.

    @property
    def formula(self) -> int:
        """Predict the loss: rate x new partitions x the time until they were assigned.

        There are two exceptions. If the new partitions were never assigned, all records that were written to
        them are lost. If the client reads new partitions from their beginning, none are lost.
        """
        if self.discovered_after_ms is None:
            return self.written
        if self.reset == "earliest" or self.client == "kproto":
            return 0
        return self.rate * self.new * self.discovered_after_ms // 1000

    def records_at(self, after_ms: int) -> int:
        """Return the number of records in the new partitions, `after_ms` after the growth."""
        batches = after_ms // self.every_ms + 1
        return min(self.written, self.new * (batches * self.every_ms * self.rate // 1000))

    @property
    def detection(self) -> str:
        """Return in words whether the client watches for new partitions."""
        return "watches" if self.watch else "does not look"


def loss(
    kind: str,
    *,
    reset: str = "latest",
    watch: bool = True,
    refresh_ms: int = REFRESH_MS,
    rate: int = RATE,
    grow_at_ms: int = GROW_AT_MS,
    after_ms: int | None = None,
    settle_ms: int = 10_000,
    seed: int = 7,
    world: World | None = None,
) -> Loss:
    """Run one client as the only member of a group whose topic grows by two partitions.

    The topic grows `grow_at_ms` after the member's start. Then `rate` records per second are written into
    each new partition for `after_ms`: by default two refresh intervals plus 3 s, but at least 13 s. Finally
    the member reads for `settle_ms`.

    The run uses `world`, which must have only the topic t. The default is a new world in which t has two
    partitions.

    Raises ConfigError for more than `MOST_RECORDS` records, or if the topic would grow before the member has
    its partitions.
    """
    after_ms = after_ms or max(13_000, 2 * refresh_ms + 3_000)
    max_rate = MOST_RECORDS * 1000 // (2 * after_ms)
    if rate > max_rate:
        allowed = (
            f"at most {max_rate:,}/s for these {after_ms / 1000:,.0f} s: that is {MOST_RECORDS:,} records"
        )
        raise ConfigError("rate", f"{rate}/s", allowed)
    stage = world or World({"t": 2}, seed=seed, trace=False)
    options: dict[str, Any] = {"watch": watch} if kind == "kafka-go" else {}
    member = join(
        stage,
        "a",
        kind,
        reset=reset,
        metadata_ms=refresh_ms,
        session_ms=10_000,
        heartbeat_ms=HEARTBEAT_MS,
        auto_commit=True,
        auto_commit_ms=1_000,
        fetch_wait_ms=FETCH_WAIT_MS,
        **options,
    )
    started_at = stage.now
    stage.run(grow_at_ms)
    if not member.owned:
        stage.run(60_000, until=lambda: bool(member.owned))
        allowed = (
            f"{stage.now - started_at}ms or later: before, {kind} has no partitions, and none are new to it"
        )
        raise ConfigError("grow_at_ms", f"{grow_at_ms}ms", allowed)
    partition_count = len(stage.partitions())
    new_partitions = [TopicPartition("t", number) for number in range(partition_count, partition_count + NEW)]
    stage.grow("t", partition_count + NEW)
    grown_at = stage.now
    batch_interval_ms = max(50, after_ms // 400)
    written = produce(stage, "t", [tp.partition for tp in new_partitions], rate, after_ms, batch_interval_ms)
    stage.run(settle_ms)
    lost, doubled = lost_and_doubled(stage, [member], new_partitions)
    assigned_at = next(
        (
            observation.at
            for observation in stage.observations
            if observation.kind == "assigned" and new_partitions[0] in observation.partitions
        ),
        None,
    )
    discovered_after_ms = None if assigned_at is None else assigned_at - grown_at
    return Loss(
        client=kind,
        reset=reset,
        watch=watch,
        refresh_ms=refresh_ms,
        written=written,
        lost=lost,
        doubled=doubled,
        discovered_after_ms=discovered_after_ms,
        every_ms=batch_interval_ms,
        rate=rate,
        new=len(new_partitions),
    )


def losses(parameters: Parameters) -> Iterable[Loss]:
    """Run scenario S1-25 for all clients, ways to detect new partitions, and reset policies.

    If `parameters` sets the client or the reset policy, only this client or this policy is run.

    Raises ConfigError for an unknown client.
    """
    chosen = parameters
    for kind in [chosen.client] if chosen.client else clients():
        for watch in (True, False) if kind == "kafka-go" else (kind != "sarama-cluster",):
            for reset in [chosen.reset] if chosen.reset else ("latest", "earliest"):
                yield loss(
                    kind,
                    reset=reset,
                    watch=watch,
                    refresh_ms=chosen.refresh_ms or REFRESH_MS,
                    rate=chosen.rate or RATE,
                    grow_at_ms=chosen.grow_at_ms or GROW_AT_MS,
                    seed=chosen.seed,
                )


@dataclass(frozen=True, slots=True)
class StandstillRow:
    """The times in ms for which partitions were not read because one more member joined the group."""

    protocol: str
    members: int
    partitions: int
    stood_still: int
    longest_ms: int
    mean_ms: float


def stop_the_world(
    members: int, protocol: str, *, callback_ms: int = CALLBACK_MS, seed: int = 7
) -> StandstillRow:
    """Add a member to a stable group of kproto clients. Each `revoked` callback takes `callback_ms`."""
    partition_count = members * 2
    world = World({"t": partition_count}, seed=seed, trace=False, latency=(1, 5))
    assignors = ("range",) if protocol == "eager" else ("cooperative-sticky",)
    group = [
        world.join(
            f"m{number}",
            topics=["t"],
            group_id="g",
            partition_assignment_strategy=assignors,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        for number in range(members)
    ]
    for member in group:
        member.callback_ms = 0
    world.run(
        120_000,
        until=lambda: world.is_stable("g") and sum(len(member.owned) for member in group) == partition_count,
    )
    world.run(5_000)
    for member in group:
        member.callback_ms = callback_ms
    joined_at = world.now
    newcomer = world.join(
        "new",
        topics=["t"],
        group_id="g",
        partition_assignment_strategy=assignors,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    world.run(120_000, until=lambda: bool(newcomer.owned))
    world.run(10_000)
    gaps = _unassigned_times(world, joined_at)
    longest = max(gaps.values(), default=0)
    mean = sum(gaps.values()) / max(1, len(gaps))
    return StandstillRow(protocol, members, partition_count, len(gaps), longest, mean)


def _unassigned_times(world: World, start: int) -> dict[TopicPartition, int]:
    """Map each partition that was revoked since `start` to the time (ms) until it was assigned again."""
    revoked_at: dict[TopicPartition, int] = {}
    gaps: dict[TopicPartition, int] = {}
    for observation in world.observations:
        if observation.at < start:
            continue
        if observation.kind in ("revoking", "losing"):
            for tp in observation.partitions:
                revoked_at.setdefault(tp, observation.at)
        elif observation.kind == "assigned":
            for tp in observation.partitions:
                if tp in revoked_at:
                    gaps[tp] = gaps.get(tp, 0) + observation.at - revoked_at.pop(tp)
    return gaps


def standstills(members: Iterable[int] = (3, 10, 100), *, seed: int = 7) -> Iterable[StandstillRow]:
    """Run the eager and the cooperative protocol for each number of members."""
    for count in members:
        for protocol in ("eager", "cooperative"):
            yield stop_the_world(count, protocol, seed=seed)
