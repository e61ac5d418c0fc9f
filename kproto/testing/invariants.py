"""What must hold in every world, whatever happens in it: functions named by what they claim.

    world.watch(*ALWAYS)      # after whatever an application sees
    ... world.run(...) ...
    check(world)              # what can only be said of the whole story, when it has come to rest

Each takes a `World` and raises `Broken`, which says who, when and what. They look at kproto's consumers;
members of other kinds count where what they do touches these (two owners), and only as far as their own
rules go.

What must hold of a part by itself (an assignor, a decoder, a reader of batches) is in `properties`. The
numbers I1 to I20 are those of the bugs of other clients from which these claims were learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..group.subscription import Assignment, TopicPartition
from .world import Consumer, Member, Seen, World

Claim = Callable[[World], None]

ENDS = ("revoked", "lost", "unsubscribed", "closed", "killed")
MOVES = ("assigned", "sought", *ENDS)


class Broken(AssertionError):
    """A claim that doesn't hold."""


def check(world: World, *claims: Claim) -> None:
    """Look at these claims, or at all that can be made of a world that has come to rest (`rest`)."""
    for claim in claims or (*ALWAYS, *OF_THE_STORY, *AT_REST):
        claim(world)


def _broken(world: World, who: str, why: str, seen: Seen | None = None) -> Broken:
    when = f"turn {seen.turn}, {seen.at} ms" if seen else f"turn {world.turns}, {world.now} ms"
    return Broken(f"{who}: {why} ({when} of World(seed={world.seed}))")


# ---- at every moment


def no_partition_has_two_owners(world: World) -> None:
    """I4: of those who are members in the group's generation, one works on a partition.

    Who was put out of the group and has not heard of it yet is no owner: nobody could have told it. So
    it is with a static member that a rebalance did not wait for.
    """
    owners: dict[tuple[str, TopicPartition], str] = {}
    for client in world.clients.values():
        if not client.alive or client.group is None or not client.owned:
            continue
        group = world.cluster.coordinator.groups.get(client.group)
        if group is None or client.member_id not in group or client.generation != group.generation:
            continue
        leaving = client.leaving
        for partition in client.owned:
            if partition in leaving:
                continue
            other = owners.setdefault((client.group, partition), client.name)
            if other != client.name:
                raise _broken(world, client.name, f"{partition} is with {other}, too")


def a_fenced_member_is_silent(world: World) -> None:
    """I3: who hears that it is no member any more hands out nothing until it is assigned something anew."""
    last = world.seen[-1] if world.seen else None
    if last is None or last.what != "delivered":
        return
    for seen in reversed(world.seen):
        if seen.who != last.who:
            continue
        if seen.what in ("assigned", "subscribed"):
            return
        if seen.what == "fenced":
            raise _broken(
                world, last.who, f"was fenced ({seen.detail}) and hands out {last.partitions}", last
            )


# ---- of the whole story


def nothing_of_a_revoked_partition_is_delivered(world: World) -> None:
    """I12: from the return of the callback until the next assignment nothing comes from a partition."""
    for name, story in _stories(world):
        owned: set[TopicPartition] = set()
        for seen in story:
            if seen.what == "assigned":
                owned.update(seen.partitions)
            elif seen.what in ("revoked", "lost"):
                owned.difference_update(seen.partitions)
            elif seen.what == "delivered" and not owned.issuperset(seen.partitions):
                raise _broken(world, name, f"delivers {seen.partitions[0]}, which it doesn't have", seen)


def nothing_is_skipped_or_repeated_while_owned(world: World) -> None:
    """Records of a partition come one after the other, each once, until a seek or the partition's end here.

    I15: offsets without records (deleted, control batches) are passed over.
    """
    for name, story in _stories(world):
        expected: dict[TopicPartition, int] = {}
        for seen in story:
            if seen.what in MOVES:
                for partition in seen.partitions or tuple(expected):
                    expected.pop(partition, None)
            elif seen.what == "delivered":
                [partition] = seen.partitions
                if partition in world.disturbed:
                    continue
                for offset in seen.detail:
                    wanted = expected.get(partition)
                    if wanted is not None and offset != _readable(world, partition, wanted):
                        why = f"{partition} goes on with {offset}, where {wanted} comes next"
                        raise _broken(world, name, why, seen)
                    expected[partition] = offset + 1


def a_partition_starts_where_the_group_committed(world: World) -> None:
    """I13: the first record after an assignment is the one that the group's commit says, whoever had it
    before. With other clients in the group it may be an earlier one: sarama commits with the leader epoch of
    the commit that it began at, and who checks epochs (KIP-320) has to go back to that one's end.
    """
    mixed = any(isinstance(client, Member) for client in world.clients.values())
    for consumer in _consumers(world):
        fresh: dict[TopicPartition, int | None] = {}
        stored: dict[TopicPartition, int] = {}
        for seen in world.seen:
            if seen.what == "stored" and seen.who == consumer.group:
                stored.update(seen.detail)
            if seen.who != consumer.name:
                continue
            if seen.what == "assigned":
                fresh.update({partition: stored.get(partition) for partition in seen.partitions})
            elif seen.what == "sought" or seen.what in ENDS:
                for partition in seen.partitions or tuple(fresh):
                    fresh.pop(partition, None)
            elif seen.what == "delivered":
                [partition] = seen.partitions
                if partition in fresh:
                    start = fresh.pop(partition)
                    first = seen.detail[0]
                    if start is None and consumer.options.auto_offset_reset != "earliest":
                        continue
                    if partition in world.disturbed:
                        continue
                    wanted = _readable(world, partition, start or 0)
                    if first > wanted or (first < wanted and not mixed):
                        why = f"{partition} starts at {first}, and the group has committed {start}"
                        raise _broken(world, consumer.name, why, seen)


def the_last_seek_wins(world: World) -> None:
    """I8: after a seek the next record of the partition is the one sought, whatever was under way."""
    for name, story in _stories(world):
        sought: dict[TopicPartition, int] = {}
        for seen in story:
            if seen.what == "sought":
                for partition in seen.partitions:
                    sought.pop(partition, None)
                    if isinstance(seen.detail, int):
                        sought[partition] = seen.detail
            elif seen.what in ENDS or seen.what == "assigned":
                for partition in seen.partitions or tuple(sought):
                    sought.pop(partition, None)
            elif seen.what == "delivered" and seen.partitions[0] in sought:
                [partition] = seen.partitions
                wanted = _readable(world, partition, sought.pop(partition))
                if partition not in world.disturbed and seen.detail[0] != wanted:
                    why = f"{partition} was sought to {wanted}, and goes on with {seen.detail[0]}"
                    raise _broken(world, name, why, seen)


def nothing_paused_is_delivered(world: World) -> None:
    """I13: a paused partition hands out nothing until it is resumed, or assigned anew."""
    for name, story in _stories(world):
        paused: set[TopicPartition] = set()
        for seen in story:
            if seen.what == "paused":
                paused.update(seen.partitions)
            elif seen.what == "resumed" or seen.what in ENDS or seen.what == "assigned":
                paused.difference_update(seen.partitions or tuple(paused))
            elif seen.what == "delivered" and paused.intersection(seen.partitions):
                raise _broken(world, name, f"delivers {seen.partitions[0]}, which is paused", seen)


def what_is_committed_was_delivered(world: World) -> None:
    """I14: below a committed offset there is no record that no member of the group was given."""
    groups = {name: client.group for name, client in world.clients.items()}
    given: dict[tuple[str, TopicPartition], set[int]] = {}
    excused = _passed_over_by_others(world)
    for seen in world.seen:
        if seen.what == "stored":
            for partition, offset in seen.detail.items():
                key = (seen.who, partition)
                missing = _missing(world, partition, given.get(key, set()), offset)
                if missing is not None and key not in excused and partition not in world.disturbed:
                    raise _broken(
                        world, seen.who, f"{partition} is committed at {offset} without {missing}", seen
                    )
            continue
        group = groups.get(seen.who)
        if group is None:
            continue
        if seen.what == "delivered":
            given.setdefault((group, seen.partitions[0]), set()).update(seen.detail)
        elif seen.what == "sought":  # the application's own wish to leave something out
            excused.update((group, partition) for partition in seen.partitions or world.partitions())


def what_commit_reported_is_committed(world: World) -> None:
    """When a commit has said yes, the coordinator had these offsets, or later ones of the same group."""
    stored: dict[tuple[str, TopicPartition], list[int]] = {}
    for seen in world.seen:
        if seen.what == "stored":
            for partition, offset in seen.detail.items():
                stored.setdefault((seen.who, partition), []).append(_readable(world, partition, offset))
        elif seen.what == "committed" and seen.detail[2] is None:
            group = world.clients[seen.who].group or ""
            for partition, offset in seen.detail[1].items():
                if _readable(world, partition, offset) not in stored.get((group, partition), []):
                    why = f"a commit of {partition} at {offset} said yes, and nothing was stored"
                    raise _broken(world, seen.who, why, seen)


def a_commit_costs_no_partition(world: World) -> None:
    """I2: what a commit is answered takes nothing from who is still a member: whoever loses its partitions
    over it was put out of the group.
    """
    for name, story in _stories(world):
        fenced = False
        for seen in story:
            if seen.what == "assigned":
                fenced = False
            elif seen.what == "fenced":
                fenced = True
            elif seen.what == "losing" and "OFFSET_COMMIT" in (seen.detail or "") and not fenced:
                raise _broken(world, name, f"is a member, and loses {seen.partitions}: {seen.detail}", seen)


def no_committed_offset_is_reset(world: World) -> None:
    """I7: what the group has committed, and the log still has, is never replaced by the reset policy."""
    for consumer in _consumers(world):
        stored: dict[TopicPartition, int] = {}
        sought: set[TopicPartition] = set()
        for seen in world.seen:
            if seen.what == "stored" and seen.who == consumer.group:
                stored.update(seen.detail)
            elif seen.who == consumer.name and seen.what == "assigned":
                sought.difference_update(seen.partitions)
            elif seen.who == consumer.name and seen.what == "sought":
                sought.update(seen.partitions or world.partitions())
            elif seen.who == consumer.name and seen.what == "reset":
                for partition in seen.partitions:
                    if partition in stored and partition not in sought | world.disturbed:
                        why = f"{partition} is reset to {seen.detail}, and {stored[partition]} is committed"
                        raise _broken(world, consumer.name, why, seen)


def a_clean_handover_loses_no_commit(world: World) -> None:
    """I14: in a world where nothing broke, what was handed out before "revoked" is committed after it; unless
    close had less time than the callback took.
    """
    if not world.calm:
        return
    for consumer in _consumers(world):
        if not consumer.options.enable_auto_commit:
            continue
        positions: dict[TopicPartition, int] = {}
        waiting: dict[TopicPartition, int] = {}
        stored: dict[TopicPartition, int] = {}
        over: int | None = None
        for seen in world.seen:
            if seen.what == "stored" and seen.who == consumer.group:
                for partition, offset in seen.detail.items():
                    stored[partition] = _readable(world, partition, offset)
                    for kept in (positions, waiting):
                        if kept.get(partition) == stored[partition]:
                            del kept[partition]
            elif seen.what == "assigned" and seen.who != consumer.name:
                for partition in seen.partitions:
                    if partition in waiting and world.clients[seen.who].group == consumer.group:
                        why = f"{partition} went to {seen.who} without a commit at {waiting[partition]}"
                        raise _broken(world, consumer.name, why, seen)
            elif seen.who != consumer.name:
                continue
            elif seen.what == "closing":
                over = seen.at + consumer.close_timeout_ms
            elif seen.what == "revoked" and over is not None and seen.at >= over:
                positions.clear()
            elif seen.what == "delivered":
                [partition] = seen.partitions
                positions[partition] = _readable(world, partition, seen.detail[-1] + 1)
            elif seen.what == "revoked":
                for partition in seen.partitions:
                    if partition in positions and positions[partition] != stored.get(partition):
                        waiting[partition] = positions[partition]
                    positions.pop(partition, None)
            elif seen.what in MOVES:
                for partition in seen.partitions or tuple(positions):
                    positions.pop(partition, None)


def every_future_ends(world: World) -> None:
    """Each call that gives a promise is answered, once, at the latest when its timeout is over."""
    killed = {seen.who for seen in world.seen if seen.what == "killed"}
    for consumer in _consumers(world):
        for token, until in consumer.deadlines.items():
            late = world.now - until - consumer.slept_ms
            if token not in consumer.done and consumer.name not in killed and late > GRACE_MS:
                raise _broken(world, consumer.name, f"{token} should have ended {late} ms ago")


def close_ends_in_time(world: World) -> None:
    """I16: close is over within its timeout, from every state; callbacks take what they take on top."""
    for name, story in _stories(world):
        consumer = world.clients[name]
        began = next((seen for seen in story if seen.what == "closing"), None)
        if began is None:
            continue
        ended = next((seen.at for seen in story if seen.what in ("closed", "killed")), world.now)
        limit = consumer.close_timeout_ms + consumer.slowest_ms * 4 + consumer.slept_ms + GRACE_MS
        if ended > began.at + limit:
            raise _broken(world, name, f"close was asked for at {began.at} ms, and took until {ended} ms")


def every_error_has_an_exit(world: World) -> None:
    """What went wrong is raised, in a future, or in a report: nothing waits where nobody looks."""
    for consumer in _consumers(world):
        if consumer.alive and consumer.is_polling and not consumer.engine.closed:
            waiting = list(consumer.engine.core.errors)
            if waiting:
                raise _broken(world, consumer.name, f"polls, and is never told {waiting[0]!r}")
            for partition, state in consumer.engine.partitions.items():
                if state.error is not None and not any(
                    type(error) is type(state.error) for error in consumer.errors
                ):
                    raise _broken(world, consumer.name, f"{partition} stands still over {state.error!r}")


# ---- when the world has come to rest: all faults healed, all applications polling, some time gone


def what_is_owned_is_read(world: World) -> None:
    """I1, I15: whoever polls has read what it owns to the end; offsets without records are no lag."""
    for consumer in _consumers(world):
        if not consumer.alive or not consumer.is_polling:
            continue
        for partition in consumer.owned:
            state = consumer.engine.partitions.get(partition)
            if state is None:
                raise _broken(
                    world, consumer.name, f"was assigned {partition}, and its engine doesn't have it"
                )
            end = world.log(partition).end_offset
            if not state.paused and (not state.known or state.position != end):
                where = state.position if state.known else state.phase.value
                raise _broken(
                    world, consumer.name, f"{partition} stands at {where}, and its log ends at {end}"
                )


def every_record_was_delivered(world: World) -> None:
    """I10, I14: each record since the group began was given to one of its members, also of new partitions."""
    for group in {consumer.group for consumer in _consumers(world) if consumer.group is not None}:
        members = [one for one in _consumers(world) if one.group == group]
        if not any(one.alive and one.is_polling and not one.is_over for one in members):
            continue
        given: dict[TopicPartition, set[int]] = {}
        skipped = {partition for name, partition in _passed_over_by_others(world) if name == group}
        for seen in world.seen:
            client = world.clients.get(seen.who)
            if client is None or client.group != group:
                continue
            if seen.what == "delivered":
                given.setdefault(seen.partitions[0], set()).update(seen.detail)
            elif seen.what == "sought":
                skipped.update(seen.partitions or world.partitions())
        if any(one.options.auto_offset_reset != "earliest" for one in members):
            continue
        wanted = {topic for one in members if one.alive for topic in one.engine.topics}
        for partition in world.partitions():
            if partition.topic in wanted and partition not in skipped | world.disturbed:
                end = world.log(partition).end_offset
                missing = _missing(world, partition, given.get(partition, set()), end)
                if missing is not None:
                    raise _broken(world, group, f"record {missing} of {partition} was given to nobody")


def the_group_converges(world: World) -> None:
    """I9, I17, I19: the group is stable, and each partition that is wanted is with one of its members."""
    for group_id in {one.group for one in world.clients.values() if one.alive and one.group is not None}:
        members = [one for one in _consumers(world) if one.group == group_id and one.alive]
        able = [one for one in members if one.is_polling and one.engine.topics and not one.is_over]
        others = [one for one in world.living(Member) if one.group == group_id]
        if not able or others or len(able) < len([one for one in members if one.engine.topics]):
            continue
        group = world.cluster.coordinator.groups.get(group_id)
        if not world.is_stable(group_id) or group is None:
            state = "gone" if group is None else group.state.value
            raise _broken(world, group_id, f"is {state}, with {', '.join(one.name for one in able)}")
        outside = [one.name for one in able if one.member_id not in group]
        if outside:
            raise _broken(world, group_id, f"is without {', '.join(outside)}")
        owned = [partition for one in able for partition in one.owned]
        wanted = {
            partition
            for partition in world.partitions()
            if any(partition.topic in one.engine.topics for one in able)
        }
        if len(owned) != len(set(owned)) or set(owned) != wanted:
            raise _broken(world, group_id, f"owns {sorted(owned)}, and should own {sorted(wanted)}")


def what_was_assigned_is_owned(world: World) -> None:
    """I11: each member works on what its coordinator assigned, whether its metadata shows it or not."""
    for consumer in _consumers(world):
        group = world.cluster.coordinator.groups.get(consumer.group or "")
        if group is None or not world.is_stable(group.group_id) or not consumer.is_stable():
            continue
        member = group.members.get(consumer.member_id)
        if member is None or not consumer.is_polling:
            continue
        assigned = set(Assignment.decode(member.assignment).partitions)
        if assigned != consumer.owned:
            why = f"owns {sorted(consumer.owned)}, and is assigned {sorted(assigned)}"
            raise _broken(world, consumer.name, why)


# ---- of one rebalance, of one commit


def a_cooperative_rebalance_takes_two_rounds(world: World, group: str, since: int) -> None:
    """I5: after one change (a member, a topic) the group is settled within two generations."""
    rounds = [
        seen for seen in world.seen if seen.what == "settled" and seen.who == group and seen.turn > since
    ]
    if len(rounds) > 2:
        raise _broken(world, group, f"took {len(rounds)} generations to settle", rounds[2])


def a_cooperative_rebalance_moves_no_more_than_it_must(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> None:
    """I5: who stays keeps all but what others lack for a fair share."""
    total = len({partition for owned in after.values() for partition in owned})
    least = total // max(1, len(after))
    for name, had in before.items():
        kept = len(had & after.get(name, set()))
        if name in after and kept < min(len(had), least):
            raise Broken(f"{name} kept {kept} of {len(had)} partitions, and a fair share is {least}")


def a_commit_blocks_no_fetch(world: World, consumer: Consumer) -> None:
    """I2: while a commit is open, what is there of the partitions is handed out to who polls.

    To be looked at when a commit has been open for a while, and only the coordinator is in trouble.
    """
    waiting = [token for token in consumer.asked if token not in consumer.done]
    if not waiting:
        raise _broken(world, consumer.name, "has no commit open: there is nothing to be seen")
    for partition in consumer.owned:
        position, end = consumer.position(partition), world.log(partition).end_offset
        if position != end:
            why = f"{partition} stands at {position} of {end} while commit {waiting[0]} is open"
            raise _broken(world, consumer.name, why)


ALWAYS: Final[tuple[Claim, ...]] = (no_partition_has_two_owners, a_fenced_member_is_silent)
"""For `World.watch`: they look at this moment."""

OF_THE_STORY: Final[tuple[Claim, ...]] = (
    nothing_of_a_revoked_partition_is_delivered,
    nothing_is_skipped_or_repeated_while_owned,
    a_partition_starts_where_the_group_committed,
    the_last_seek_wins,
    nothing_paused_is_delivered,
    what_is_committed_was_delivered,
    what_commit_reported_is_committed,
    a_commit_costs_no_partition,
    no_committed_offset_is_reset,
    a_clean_handover_loses_no_commit,
    every_future_ends,
    close_ends_in_time,
    every_error_has_an_exit,
)
"""They look at all that was seen, at any time."""

AT_REST: Final[tuple[Claim, ...]] = (
    what_is_owned_is_read,
    every_record_was_delivered,
    the_group_converges,
    what_was_assigned_is_owned,
)
"""They hold when a world has come to rest: see `kproto.testing.schedules.rest`."""

GRACE_MS: Final = 1_000
"""How much later than its timeout something may end: a tick, and what is done at the same moment."""


# ---- how they look


def _consumers(world: World) -> list[Consumer]:
    return [client for client in world.clients.values() if isinstance(client, Consumer)]


def _stories(world: World) -> Iterator[tuple[str, list[Seen]]]:
    """Each subscribing consumer's own part of what was seen."""
    stories: dict[str, list[Seen]] = {one.name: [] for one in _consumers(world) if one.group is not None}
    for seen in world.seen:
        if seen.who in stories:
            stories[seen.who].append(seen)
    yield from ((name, story) for name, story in stories.items() if any(s.what == "assigned" for s in story))


def _passed_over_by_others(world: World) -> set[tuple[str, TopicPartition]]:
    """Where a member of another client committed what it had not given: librdkafka commits what stands in a
    batch that it has not returned yet.
    """
    found: set[tuple[str, TopicPartition]] = set()
    if not any(isinstance(client, Member) for client in world.clients.values()):
        return found
    owners: dict[tuple[str | None, TopicPartition], object] = {}
    given: dict[tuple[str | None, TopicPartition], set[int]] = {}
    for seen in world.seen:
        client = world.clients.get(seen.who)
        if seen.what == "stored":
            for partition, offset in seen.detail.items():
                key = (seen.who, partition)
                missing = _missing(world, partition, given.get(key, set()), offset)
                if missing is not None and isinstance(owners.get(key), Member):
                    found.add(key)
        elif client is not None and seen.what == "assigned":
            owners.update(((client.group, partition), client) for partition in seen.partitions)
        elif client is not None and seen.what == "delivered":
            given.setdefault((client.group, seen.partitions[0]), set()).update(seen.detail)
    return found


def _readable(world: World, partition: TopicPartition, offset: int) -> int:
    """The first offset from `offset` on that holds a record."""
    while (partition, offset) in world.markers:
        offset += 1
    return offset


def _missing(world: World, partition: TopicPartition, given: set[int], end: int) -> int | None:
    """The first record below `end` that is not among those that were given."""
    for offset in range(world.log(partition).start_offset, end):
        if offset not in given and (partition, offset) not in world.markers:
            return offset
    return None
