"""Invariants of the whole run so far, which can be checked at any time."""

from __future__ import annotations

from ...group.subscription import TopicPartition
from ..world import ModelClient, World
from .queries import (
    END_KINDS,
    GRACE_MS,
    POSITION_CHANGES,
    consumers,
    first_undelivered,
    histories,
    readable,
    skipped_by_models,
    violation,
)


def nothing_of_a_revoked_partition_is_delivered(world: World) -> None:
    """I12: after "revoked" or "lost", no record of the partition is delivered before the next assignment."""
    for name, history in histories(world):
        owned: set[TopicPartition] = set()
        for observation in history:
            if observation.kind == "assigned":
                owned.update(observation.partitions)
            elif observation.kind in ("revoked", "lost"):
                owned.difference_update(observation.partitions)
            elif observation.kind == "delivered" and not owned.issuperset(observation.partitions):
                raise violation(
                    world, name, f"delivers {observation.partitions[0]}, which it does not own", observation
                )


def nothing_is_skipped_or_repeated_while_owned(world: World) -> None:
    """Records of a partition are delivered in order, each once, until a seek or the loss of the partition.

    I15: delivery continues after offsets without records (deleted records, control batches).
    """
    for name, history in histories(world):
        next_offsets: dict[TopicPartition, int] = {}
        for observation in history:
            if observation.kind in POSITION_CHANGES:
                for partition in observation.partitions or tuple(next_offsets):
                    next_offsets.pop(partition, None)
            elif observation.kind == "delivered":
                [partition] = observation.partitions
                if partition in world.disturbed:
                    continue
                for offset in observation.detail:
                    next_offset = next_offsets.get(partition)
                    if next_offset is not None and offset != readable(world, partition, next_offset):
                        why = f"{partition} continues with {offset}, but {next_offset} comes next"
                        raise violation(world, name, why, observation)
                    next_offsets[partition] = offset + 1


def a_partition_starts_where_the_group_committed(world: World) -> None:
    """I13: the first record after an assignment is at the group's committed offset.

    In a group with models, the first record may be before the committed offset, because of sarama's commits.
    At the start of a session, sarama fetches the committed offset and its leader epoch. It then commits all
    offsets of the session with this epoch. If the epoch ended before a committed offset, a client that checks
    epochs (KIP-320) returns to the end offset of the epoch.
    """
    has_models = any(isinstance(client, ModelClient) for client in world.clients.values())
    for consumer in consumers(world):
        # Maps each assigned partition from which no record was delivered yet to its committed offset, or to
        # None if no offset was committed.
        start_offsets: dict[TopicPartition, int | None] = {}
        committed_offsets: dict[TopicPartition, int] = {}
        for observation in world.observations:
            if observation.kind == "stored" and observation.source == consumer.group:
                committed_offsets.update(observation.detail)
            if observation.source != consumer.name:
                continue
            if observation.kind == "assigned":
                start_offsets.update(
                    {partition: committed_offsets.get(partition) for partition in observation.partitions}
                )
            elif observation.kind == "sought" or observation.kind in END_KINDS:
                for partition in observation.partitions or tuple(start_offsets):
                    start_offsets.pop(partition, None)
            elif observation.kind == "delivered":
                [partition] = observation.partitions
                if partition in start_offsets:
                    committed = start_offsets.pop(partition)
                    first_offset = observation.detail[0]
                    if committed is None and consumer.options.auto_offset_reset != "earliest":
                        continue
                    if partition in world.disturbed:
                        continue
                    expected = readable(world, partition, committed or 0)
                    if first_offset > expected or (first_offset < expected and not has_models):
                        why = f"{partition} starts at {first_offset}, but the group has committed {committed}"
                        raise violation(world, consumer.name, why, observation)


def the_last_seek_wins(world: World) -> None:
    """I8: the next record after a seek is the one at the sought offset, even if fetches were in flight.

    If the log ends before the sought offset, the client's reset policy determines the next record.
    """
    for name, history in histories(world):
        sought_offsets: dict[TopicPartition, int] = {}
        # The partitions whose log ends before the sought offset.
        beyond_log_end: set[TopicPartition] = set()
        for observation in history:
            if observation.kind == "beyond":
                beyond_log_end.update(observation.partitions)
            elif observation.kind == "reset":
                for partition in beyond_log_end.intersection(observation.partitions, sought_offsets):
                    sought_offsets[partition] = observation.detail[0]
                beyond_log_end.difference_update(observation.partitions)
            elif observation.kind == "sought":
                beyond_log_end.difference_update(observation.partitions)
                for partition in observation.partitions:
                    sought_offsets.pop(partition, None)
                    if isinstance(observation.detail, int):
                        sought_offsets[partition] = observation.detail
            elif observation.kind in END_KINDS or observation.kind == "assigned":
                for partition in observation.partitions or tuple(sought_offsets):
                    sought_offsets.pop(partition, None)
            elif observation.kind == "delivered" and observation.partitions[0] in sought_offsets:
                [partition] = observation.partitions
                expected = readable(world, partition, sought_offsets.pop(partition))
                if partition not in world.disturbed and observation.detail[0] != expected:
                    why = f"{partition} was sought to {expected}, but continues with {observation.detail[0]}"
                    raise violation(world, name, why, observation)


def nothing_paused_is_delivered(world: World) -> None:
    """I13: no record of a paused partition is delivered until the partition is resumed or assigned again."""
    for name, history in histories(world):
        paused: set[TopicPartition] = set()
        for observation in history:
            if observation.kind == "paused":
                paused.update(observation.partitions)
            elif (
                observation.kind == "resumed"
                or observation.kind in END_KINDS
                or observation.kind == "assigned"
            ):
                paused.difference_update(observation.partitions or tuple(paused))
            elif observation.kind == "delivered" and paused.intersection(observation.partitions):
                raise violation(
                    world, name, f"delivers {observation.partitions[0]}, which is paused", observation
                )


def what_is_committed_was_delivered(world: World) -> None:
    """I14: every record before a committed offset was delivered to a member of the group.

    Records that a reset policy such as "latest" skipped are exempt, except in partitions that were added to
    their topic during the run.
    """
    groups = {name: client.group for name, client in world.clients.items()}
    delivered: dict[tuple[str, TopicPartition], set[int]] = {}
    exempt = skipped_by_models(world)
    without_earliest_policy = {
        consumer.name for consumer in consumers(world) if consumer.options.auto_offset_reset != "earliest"
    }
    added_partitions: set[TopicPartition] = set()
    for observation in world.observations:
        if observation.kind == "stored":
            for partition, offset in observation.detail.items():
                key = (observation.source, partition)
                missing = first_undelivered(world, partition, delivered.get(key, set()), offset)
                if missing is not None and key not in exempt and partition not in world.disturbed:
                    raise violation(
                        world,
                        observation.source,
                        f"{partition} is committed at {offset}, but record {missing} was not delivered",
                        observation,
                    )
            continue
        if observation.kind == "grown":
            added_partitions.update(observation.partitions)
        group = groups.get(observation.source)
        if group is None:
            continue
        if observation.kind == "delivered":
            delivered.setdefault((group, observation.partitions[0]), set()).update(observation.detail)
        elif observation.kind == "reset" and observation.source in without_earliest_policy:
            # Records before the new position count as delivered.
            for partition in set(observation.partitions) - added_partitions:
                delivered.setdefault((group, partition), set()).update(range(observation.detail[0]))
        elif observation.kind == "sought":
            # A seek may skip records, so the partitions that it moves are no longer checked.
            exempt.update((group, partition) for partition in observation.partitions or world.partitions())


def what_commit_reported_is_committed(world: World) -> None:
    """The coordinator has stored the offsets of every commit that succeeded.

    Two offsets count as equal if there are only transaction markers between them.
    """
    stored_offsets: dict[tuple[str, TopicPartition], list[int]] = {}
    for observation in world.observations:
        if observation.kind == "stored":
            for partition, offset in observation.detail.items():
                stored_offsets.setdefault((observation.source, partition), []).append(
                    readable(world, partition, offset)
                )
        elif observation.kind == "committed" and observation.detail[2] is None:
            group = world.clients[observation.source].group or ""
            for partition, offset in observation.detail[1].items():
                if readable(world, partition, offset) not in stored_offsets.get((group, partition), []):
                    why = f"a commit of {partition} at {offset} succeeded, but nothing was stored"
                    raise violation(world, observation.source, why, observation)


def a_commit_costs_no_partition(world: World) -> None:
    """I2: no response to a commit makes a member lose its partitions.

    A member that the coordinator has fenced is exempt, because it has lost its partitions.
    """
    for name, history in histories(world):
        fenced = False
        for observation in history:
            if observation.kind == "assigned":
                fenced = False
            elif observation.kind == "fenced":
                fenced = True
            elif (
                observation.kind == "losing" and "OFFSET_COMMIT" in (observation.detail or "") and not fenced
            ):
                raise violation(
                    world,
                    name,
                    f"is a member, but loses {observation.partitions}: {observation.detail}",
                    observation,
                )


def no_committed_offset_is_reset(world: World) -> None:
    """I7: the reset policy never replaces a committed offset that is still in the log."""
    for consumer in consumers(world):
        stored_offsets: dict[TopicPartition, int] = {}
        sought_partitions: set[TopicPartition] = set()
        for observation in world.observations:
            if observation.kind == "stored" and observation.source == consumer.group:
                stored_offsets.update(observation.detail)
            elif observation.source == consumer.name and observation.kind == "assigned":
                sought_partitions.difference_update(observation.partitions)
            elif observation.source == consumer.name and observation.kind == "sought":
                sought_partitions.update(observation.partitions or world.partitions())
            elif observation.source == consumer.name and observation.kind == "reset":
                for partition in observation.partitions:
                    if partition in stored_offsets and partition not in sought_partitions | world.disturbed:
                        committed = stored_offsets[partition]
                        why = f"{partition} is reset to {observation.detail}, but {committed} is committed"
                        raise violation(world, consumer.name, why, observation)


def a_clean_handover_loses_no_commit(world: World) -> None:
    """I14: before a revoked partition gets a new owner, its delivered records are committed.

    The invariant holds in a world without faults, for consumers with auto commit.

    Partitions are exempt from I14 if their revocation callback takes longer than the close timeout or the
    rebalance timeout, because the partitions are then reassigned before the callback ends.
    """
    if not world.is_fault_free:
        return
    for consumer in consumers(world):
        if not consumer.options.enable_auto_commit:
            continue
        # Partition -> the position after the last delivered record, if that position is not yet committed.
        # `owned_offsets` has the owned partitions, and `revoked_offsets` the revoked ones.
        owned_offsets: dict[TopicPartition, int] = {}
        revoked_offsets: dict[TopicPartition, int] = {}
        committed: dict[TopicPartition, int] = {}
        # The partitions for which the revocation callback is running.
        in_revocation: tuple[TopicPartition, ...] = ()
        close_deadline: int | None = None
        for observation in world.observations:
            if observation.kind == "stored" and observation.source == consumer.group:
                for partition, offset in observation.detail.items():
                    committed[partition] = readable(world, partition, offset)
                    for uncommitted in (owned_offsets, revoked_offsets):
                        if uncommitted.get(partition) == committed[partition]:
                            del uncommitted[partition]
            elif observation.kind == "assigned" and observation.source != consumer.name:
                if world.clients[observation.source].group != consumer.group:
                    continue
                for partition in observation.partitions:
                    # The group did not wait for the end of the revocation callback, so the partition is
                    # exempt from I14.
                    if partition in in_revocation:
                        owned_offsets.pop(partition, None)
                    if partition in revoked_offsets:
                        new_owner = observation.source
                        position = revoked_offsets[partition]
                        why = f"{partition} moved to {new_owner} without a commit at {position}"
                        raise violation(world, consumer.name, why, observation)
            elif observation.source != consumer.name:
                continue
            elif observation.kind == "closing":
                close_deadline = observation.at + consumer.close_timeout_ms
            elif observation.kind == "revoking":
                in_revocation = observation.partitions
            elif (
                observation.kind == "revoked"
                and close_deadline is not None
                and observation.at >= close_deadline
            ):
                owned_offsets.clear()
            elif observation.kind == "delivered":
                [partition] = observation.partitions
                owned_offsets[partition] = readable(world, partition, observation.detail[-1] + 1)
            elif observation.kind == "revoked":
                in_revocation = ()
                for partition in observation.partitions:
                    if partition in owned_offsets and owned_offsets[partition] != committed.get(partition):
                        revoked_offsets[partition] = owned_offsets[partition]
                    owned_offsets.pop(partition, None)
            elif observation.kind == "losing":
                for partition in observation.partitions:
                    revoked_offsets.pop(partition, None)
            elif observation.kind in POSITION_CHANGES:
                for partition in observation.partitions or tuple(owned_offsets):
                    owned_offsets.pop(partition, None)


def every_future_ends(world: World) -> None:
    """Each operation with a token (a commit, a close) completes before its timeout expires."""
    killed = {observation.source for observation in world.observations if observation.kind == "killed"}
    for consumer in consumers(world):
        for token, deadline in consumer.deadlines.items():
            overdue_ms = world.now - deadline - consumer.slept_ms
            if token not in consumer.done and consumer.name not in killed and overdue_ms > GRACE_MS:
                raise violation(world, consumer.name, f"{token!r} should have completed {overdue_ms} ms ago")


def close_ends_in_time(world: World) -> None:
    """I16: from every state, `close` ends within its timeout plus the duration of the callbacks."""
    for name, history in histories(world):
        consumer = world.clients[name]
        closing = next((observation for observation in history if observation.kind == "closing"), None)
        if closing is None:
            continue
        ended_at = next(
            (observation.at for observation in history if observation.kind in ("closed", "killed")), world.now
        )
        limit_ms = consumer.close_timeout_ms + consumer.slowest_ms * 4 + consumer.slept_ms + GRACE_MS
        if ended_at > closing.at + limit_ms:
            raise violation(
                world,
                name,
                f"close began at {closing.at} ms and exceeded its timeout: it took until {ended_at} ms",
            )


def every_error_has_an_exit(world: World) -> None:
    """Every error of an engine is raised by poll, set on a future or reported."""
    for consumer in consumers(world):
        if consumer.alive and consumer.is_polling and not consumer.engine.closed:
            unraised_errors = list(consumer.engine.core.errors.values())
            if unraised_errors:
                raise violation(world, consumer.name, f"polls, but {unraised_errors[0]!r} is never raised")
            for partition, state in consumer.engine.partitions.items():
                if state.error is not None and not any(
                    type(error) is type(state.error) for error in consumer.errors
                ):
                    raise violation(
                        world, consumer.name, f"{partition} makes no progress because of {state.error!r}"
                    )
