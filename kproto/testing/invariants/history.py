"""What holds of the whole story, at any time."""

from __future__ import annotations

from ...group.subscription import TopicPartition
from ..world import Member, World
from .claim import (
    ENDS,
    GRACE_MS,
    MOVES,
    broken,
    consumers,
    not_given,
    passed_over_by_others,
    readable,
    stories,
)


def nothing_of_a_revoked_partition_is_delivered(world: World) -> None:
    """I12: from the return of the callback until the next assignment nothing comes from a partition."""
    for name, story in stories(world):
        owned: set[TopicPartition] = set()
        for seen in story:
            if seen.kind == "assigned":
                owned.update(seen.partitions)
            elif seen.kind in ("revoked", "lost"):
                owned.difference_update(seen.partitions)
            elif seen.kind == "delivered" and not owned.issuperset(seen.partitions):
                raise broken(world, name, f"delivers {seen.partitions[0]}, which it doesn't have", seen)


def nothing_is_skipped_or_repeated_while_owned(world: World) -> None:
    """Records of a partition come one after the other, each once, until a seek or the partition's end here.

    I15: offsets without records (deleted, control batches) are passed over.
    """
    for name, story in stories(world):
        expected: dict[TopicPartition, int] = {}
        for seen in story:
            if seen.kind in MOVES:
                for partition in seen.partitions or tuple(expected):
                    expected.pop(partition, None)
            elif seen.kind == "delivered":
                [partition] = seen.partitions
                if partition in world.disturbed:
                    continue
                for offset in seen.detail:
                    wanted = expected.get(partition)
                    if wanted is not None and offset != readable(world, partition, wanted):
                        why = f"{partition} goes on with {offset}, where {wanted} comes next"
                        raise broken(world, name, why, seen)
                    expected[partition] = offset + 1


def a_partition_starts_where_the_group_committed(world: World) -> None:
    """I13: the first record after an assignment is the one that the group's commit says, whoever had it
    before. With other clients in the group it may be an earlier one: sarama commits with the leader epoch of
    the commit that it began at, and who checks epochs (KIP-320) has to go back to that one's end.
    """
    mixed = any(isinstance(client, Member) for client in world.clients.values())
    for consumer in consumers(world):
        fresh: dict[TopicPartition, int | None] = {}
        stored: dict[TopicPartition, int] = {}
        for seen in world.observations:
            if seen.kind == "stored" and seen.source == consumer.group:
                stored.update(seen.detail)
            if seen.source != consumer.name:
                continue
            if seen.kind == "assigned":
                fresh.update({partition: stored.get(partition) for partition in seen.partitions})
            elif seen.kind == "sought" or seen.kind in ENDS:
                for partition in seen.partitions or tuple(fresh):
                    fresh.pop(partition, None)
            elif seen.kind == "delivered":
                [partition] = seen.partitions
                if partition in fresh:
                    start = fresh.pop(partition)
                    first = seen.detail[0]
                    if start is None and consumer.options.auto_offset_reset != "earliest":
                        continue
                    if partition in world.disturbed:
                        continue
                    wanted = readable(world, partition, start or 0)
                    if first > wanted or (first < wanted and not mixed):
                        why = f"{partition} starts at {first}, and the group has committed {start}"
                        raise broken(world, consumer.name, why, seen)


def the_last_seek_wins(world: World) -> None:
    """I8: after a seek the next record of the partition is the one sought, whatever was under way; where the
    log ended before it, the one where the reset policy put the client.
    """
    for name, story in stories(world):
        sought: dict[TopicPartition, int] = {}
        beyond: set[TopicPartition] = set()
        for seen in story:
            if seen.kind == "beyond":
                beyond.update(seen.partitions)
            elif seen.kind == "reset":
                for partition in beyond.intersection(seen.partitions, sought):
                    sought[partition] = seen.detail[0]
                beyond.difference_update(seen.partitions)
            elif seen.kind == "sought":
                beyond.difference_update(seen.partitions)
                for partition in seen.partitions:
                    sought.pop(partition, None)
                    if isinstance(seen.detail, int):
                        sought[partition] = seen.detail
            elif seen.kind in ENDS or seen.kind == "assigned":
                for partition in seen.partitions or tuple(sought):
                    sought.pop(partition, None)
            elif seen.kind == "delivered" and seen.partitions[0] in sought:
                [partition] = seen.partitions
                wanted = readable(world, partition, sought.pop(partition))
                if partition not in world.disturbed and seen.detail[0] != wanted:
                    why = f"{partition} was sought to {wanted}, and goes on with {seen.detail[0]}"
                    raise broken(world, name, why, seen)


def nothing_paused_is_delivered(world: World) -> None:
    """I13: a paused partition hands out nothing until it is resumed, or assigned anew."""
    for name, story in stories(world):
        paused: set[TopicPartition] = set()
        for seen in story:
            if seen.kind == "paused":
                paused.update(seen.partitions)
            elif seen.kind == "resumed" or seen.kind in ENDS or seen.kind == "assigned":
                paused.difference_update(seen.partitions or tuple(paused))
            elif seen.kind == "delivered" and paused.intersection(seen.partitions):
                raise broken(world, name, f"delivers {seen.partitions[0]}, which is paused", seen)


def what_is_committed_was_delivered(world: World) -> None:
    """I14: below a committed offset there is no record that no member of the group was given; but for those
    below where a policy such as "latest" began, unless the partition is new.
    """
    groups = {name: client.group for name, client in world.clients.items()}
    given: dict[tuple[str, TopicPartition], set[int]] = {}
    excused = passed_over_by_others(world)
    late = {
        consumer.name for consumer in consumers(world) if consumer.options.auto_offset_reset != "earliest"
    }
    grown: set[TopicPartition] = set()
    for seen in world.observations:
        if seen.kind == "stored":
            for partition, offset in seen.detail.items():
                key = (seen.source, partition)
                missing = not_given(world, partition, given.get(key, set()), offset)
                if missing is not None and key not in excused and partition not in world.disturbed:
                    raise broken(
                        world, seen.source, f"{partition} is committed at {offset} without {missing}", seen
                    )
            continue
        if seen.kind == "grown":
            grown.update(seen.partitions)
        group = groups.get(seen.source)
        if group is None:
            continue
        if seen.kind == "delivered":
            given.setdefault((group, seen.partitions[0]), set()).update(seen.detail)
        elif seen.kind == "reset" and seen.source in late:
            for partition in set(seen.partitions) - grown:
                given.setdefault((group, partition), set()).update(range(seen.detail[0]))
        elif seen.kind == "sought":  # the application's own wish to leave something out
            excused.update((group, partition) for partition in seen.partitions or world.partitions())


def what_commit_reported_is_committed(world: World) -> None:
    """When a commit has said yes, the coordinator had these offsets, or later ones of the same group."""
    stored: dict[tuple[str, TopicPartition], list[int]] = {}
    for seen in world.observations:
        if seen.kind == "stored":
            for partition, offset in seen.detail.items():
                stored.setdefault((seen.source, partition), []).append(readable(world, partition, offset))
        elif seen.kind == "committed" and seen.detail[2] is None:
            group = world.clients[seen.source].group or ""
            for partition, offset in seen.detail[1].items():
                if readable(world, partition, offset) not in stored.get((group, partition), []):
                    why = f"a commit of {partition} at {offset} said yes, and nothing was stored"
                    raise broken(world, seen.source, why, seen)


def a_commit_costs_no_partition(world: World) -> None:
    """I2: what a commit is answered takes nothing from who is still a member: whoever loses its partitions
    over it was put out of the group.
    """
    for name, story in stories(world):
        fenced = False
        for seen in story:
            if seen.kind == "assigned":
                fenced = False
            elif seen.kind == "fenced":
                fenced = True
            elif seen.kind == "losing" and "OFFSET_COMMIT" in (seen.detail or "") and not fenced:
                raise broken(world, name, f"is a member, and loses {seen.partitions}: {seen.detail}", seen)


def no_committed_offset_is_reset(world: World) -> None:
    """I7: what the group has committed, and the log still has, is never replaced by the reset policy."""
    for consumer in consumers(world):
        stored: dict[TopicPartition, int] = {}
        sought: set[TopicPartition] = set()
        for seen in world.observations:
            if seen.kind == "stored" and seen.source == consumer.group:
                stored.update(seen.detail)
            elif seen.source == consumer.name and seen.kind == "assigned":
                sought.difference_update(seen.partitions)
            elif seen.source == consumer.name and seen.kind == "sought":
                sought.update(seen.partitions or world.partitions())
            elif seen.source == consumer.name and seen.kind == "reset":
                for partition in seen.partitions:
                    if partition in stored and partition not in sought | world.disturbed:
                        why = f"{partition} is reset to {seen.detail}, and {stored[partition]} is committed"
                        raise broken(world, consumer.name, why, seen)


def a_clean_handover_loses_no_commit(world: World) -> None:
    """I14: in a world where nothing broke, what was handed out before "revoked" is committed after it; unless
    close had less time than the callback took, or the group: then the application hears of a loss.
    """
    if not world.is_fault_free:
        return
    for consumer in consumers(world):
        if not consumer.options.enable_auto_commit:
            continue
        positions: dict[TopicPartition, int] = {}
        waiting: dict[TopicPartition, int] = {}
        stored: dict[TopicPartition, int] = {}
        revoking: tuple[TopicPartition, ...] = ()
        over: int | None = None
        for seen in world.observations:
            if seen.kind == "stored" and seen.source == consumer.group:
                for partition, offset in seen.detail.items():
                    stored[partition] = readable(world, partition, offset)
                    for kept in (positions, waiting):
                        if kept.get(partition) == stored[partition]:
                            del kept[partition]
            elif seen.kind == "assigned" and seen.source != consumer.name:
                if world.clients[seen.source].group != consumer.group:
                    continue
                for partition in seen.partitions:
                    if partition in revoking:  # the group didn't wait so long
                        positions.pop(partition, None)
                    if partition in waiting:
                        why = f"{partition} went to {seen.source} without a commit at {waiting[partition]}"
                        raise broken(world, consumer.name, why, seen)
            elif seen.source != consumer.name:
                continue
            elif seen.kind == "closing":
                over = seen.at + consumer.close_timeout_ms
            elif seen.kind == "revoking":
                revoking = seen.partitions
            elif seen.kind == "revoked" and over is not None and seen.at >= over:
                positions.clear()
            elif seen.kind == "delivered":
                [partition] = seen.partitions
                positions[partition] = readable(world, partition, seen.detail[-1] + 1)
            elif seen.kind == "revoked":
                revoking = ()
                for partition in seen.partitions:
                    if partition in positions and positions[partition] != stored.get(partition):
                        waiting[partition] = positions[partition]
                    positions.pop(partition, None)
            elif seen.kind == "losing":
                for partition in seen.partitions:
                    waiting.pop(partition, None)
            elif seen.kind in MOVES:
                for partition in seen.partitions or tuple(positions):
                    positions.pop(partition, None)


def every_future_ends(world: World) -> None:
    """Each call that gives a promise is answered, once, at the latest when its timeout is over."""
    killed = {seen.source for seen in world.observations if seen.kind == "killed"}
    for consumer in consumers(world):
        for token, until in consumer.deadlines.items():
            late = world.now - until - consumer.slept_ms
            if token not in consumer.done and consumer.name not in killed and late > GRACE_MS:
                raise broken(world, consumer.name, f"{token} should have ended {late} ms ago")


def close_ends_in_time(world: World) -> None:
    """I16: close is over within its timeout, from every state; callbacks take what they take on top."""
    for name, story in stories(world):
        consumer = world.clients[name]
        began = next((seen for seen in story if seen.kind == "closing"), None)
        if began is None:
            continue
        ended = next((seen.at for seen in story if seen.kind in ("closed", "killed")), world.now)
        limit = consumer.close_timeout_ms + consumer.slowest_ms * 4 + consumer.slept_ms + GRACE_MS
        if ended > began.at + limit:
            raise broken(world, name, f"close was asked for at {began.at} ms, and took until {ended} ms")


def every_error_has_an_exit(world: World) -> None:
    """What went wrong is raised, in a future, or in a report: nothing waits where nobody looks."""
    for consumer in consumers(world):
        if consumer.alive and consumer.is_polling and not consumer.engine.closed:
            waiting = list(consumer.engine.core.errors.values())
            if waiting:
                raise broken(world, consumer.name, f"polls, and is never told {waiting[0]!r}")
            for partition, state in consumer.engine.partitions.items():
                if state.error is not None and not any(
                    type(error) is type(state.error) for error in consumer.errors
                ):
                    raise broken(world, consumer.name, f"{partition} stands still over {state.error!r}")
