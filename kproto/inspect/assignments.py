"""What an assignor does with a group: the assignment, and for each partition why its owner changes or stays.

`kproto assign` uses this module. A group is one JSON object:

    {"assignor": "range",
     "topics": {"flights": {"partitions": 6, "racks": [["a", "b"], ...] or null}},
     "members": [{"id": "m1", "instance": null, "rack": null, "subscribed": ["flights"],
                  "owned": {"flights": [0, 1]}, "generation": 3, "user_data_hex": null}]}

A member requires `id` and `subscribed`. `racks` lists, for each partition, the racks of its replicas.

`owned` and `generation` are the member's previous assignment. They are encoded in the subscription and the
user data, as in Java's consumer. `user_data_hex` replaces the user data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ..errors import ConfigError
from ..group.assignors import ASSIGNORS, Assignor
from ..group.subscription import (
    ReportedOwnership,
    Subscription,
    TopicPartition,
    by_topic,
)
from ..printable import escape_unprintable
from .json_lines import Answer, BadQuestion, Question, get_hex, get_typed, known_keys, short_json

# The maximum number of partitions of one group. It bounds the memory that one line of input can take.
MAX_PARTITIONS = 1_000_000

# The maximum number of rebalances to simulate. An assignment no longer changes after two or three rebalances.
_MAX_REBALANCES = 10

Assigned = Mapping[str, list[TopicPartition]]
Plan = dict[str, dict[str, list[int]]]


class AssignorInput(msgspec.Struct, frozen=True):
    """The arguments of an assignor: the topics of a cluster, and the members of a group."""

    assignor: Assignor
    # Topic -> number of partitions.
    partitions: dict[str, int]
    members: dict[str, Subscription]
    # Topic -> the racks of each partition's replicas, for topics whose racks are known.
    racks: dict[str, list[frozenset[str]]]

    def assign(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member, sorted."""
        assigned = self.assignor.assign(self.partitions, self.members, self.racks)
        return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}


class PartitionOutcome(msgspec.Struct, frozen=True):
    """The owners of one partition before and after the assignment, and the reason for the change."""

    partition: TopicPartition
    # The member that owned the partition in the newest generation, or None if no member owned it.
    previous: str | None
    # The new owner, or None if no member subscribes to the topic.
    owner: str | None
    # "kept", "moved", "assigned" (the partition had no owner), "withheld" (`previous` has to revoke it
    # first), or "unassigned" (no member subscribes to the topic).
    outcome: str
    why: str


# ---- from and to JSON


def parse_input(question: Question) -> AssignorInput:
    """Return the assignor's arguments from a JSON object. Raises BadQuestion if the object is invalid."""
    known_keys(question, ("assignor", "topics", "members"), "")
    name = get_typed(question, "assignor", str)
    if name not in ASSIGNORS:
        raise BadQuestion(f"assignor is {short_json(name)}, not one of {', '.join(ASSIGNORS)}")
    assignor = ASSIGNORS[name]
    partitions: dict[str, int] = {}
    racks: dict[str, list[frozenset[str]]] = {}
    for topic, description in get_typed(question, "topics", dict).items():
        where = f"topics.{topic}."
        fields = known_keys(_check_object(description, where), ("partitions", "racks"), where)
        count = get_typed(fields, "partitions", int, where)
        if count < 0 or count + sum(partitions.values()) > MAX_PARTITIONS:
            raise BadQuestion(
                f"{where}partitions is {short_json(count)}; it must be at least 0, and all topics "
                f"together may have at most {MAX_PARTITIONS:,} partitions"
            )
        partitions[topic] = count
        if fields.get("racks") is not None:
            racks[topic] = _parse_racks(get_typed(fields, "racks", list, where), count, where)
    members: dict[str, Subscription] = {}
    for index, description in enumerate(get_typed(question, "members", list)):
        where = f"members[{index}]."
        fields = known_keys(_check_object(description, where), _MEMBER_KEYS, where)
        member_id = get_typed(fields, "id", str, where)
        if member_id in members:
            raise BadQuestion(f"{where}id is {short_json(member_id)}, which is the id of another member")
        members[member_id] = _parse_subscription(fields, assignor, where)
    return AssignorInput(assignor, partitions, members, racks)


_MEMBER_KEYS = ("id", "instance", "rack", "subscribed", "owned", "generation", "user_data_hex")


def _check_object(value: object, where: str) -> Question:
    """Return `value` unchanged. Raises BadQuestion if it is not a JSON object."""
    if not isinstance(value, Mapping):
        raise BadQuestion(f"{where.rstrip('.')} is {short_json(value)}, not an object")
    return cast("Question", value)


def _parse_racks(value: list[Any], count: int, where: str) -> list[frozenset[str]]:
    """Return the racks of each partition's replicas, for a topic of `count` partitions."""
    if len(value) != count:
        raise BadQuestion(f"{where}racks has {len(value)} lists, but the topic has {count} partitions")
    return [frozenset(_check_strings(racks, f"{where}racks[{index}]")) for index, racks in enumerate(value)]


def _check_strings(value: object, where: str) -> list[str]:
    """Return `value` unchanged. Raises BadQuestion if it is not a list of strings."""
    items = cast("list[object]", value)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in items):
        raise BadQuestion(f"{where} is {short_json(items)}, not a list of strings")
    return cast("list[str]", value)


def _parse_subscription(fields: Question, assignor: Assignor, where: str) -> Subscription:
    """Return the subscription that Java's consumer would send for the member."""
    topics = _check_strings(get_typed(fields, "subscribed", list, where), f"{where}subscribed")
    owned: list[TopicPartition] = []
    reported: dict[str, Any] = _get_optional(fields, "owned", dict, where) or {}
    for topic, indexes in reported.items():
        if not isinstance(indexes, list) or not all(map(_is_index, cast("list[object]", indexes))):
            raise BadQuestion(
                f"{where}owned.{topic} is {short_json(reported[topic])}, not a list of partitions"
            )
        owned += [TopicPartition(topic, index) for index in cast("list[int]", indexes)]
    generation = _get_optional(fields, "generation", int, where)
    if generation is not None and not -1 <= generation < 2**31:
        raise BadQuestion(
            f"{where}generation is {short_json(generation)}; it must be an int32 of at least -1"
        )
    user_data: bytes | None
    if fields.get("user_data_hex") is not None:
        user_data = get_hex(fields, "user_data_hex", where)
    else:
        # A member without `owned` and `generation` has not had an assignment yet.
        previous = owned if owned or generation is not None else None
        user_data = assignor.user_data(previous, -1 if generation is None else generation)
    return Subscription(
        topics=tuple(topics),
        user_data=user_data,
        owned=tuple(sorted(owned)),
        generation=None if generation == -1 else generation,
        rack_id=_get_optional(fields, "rack", str, where) or None,
        instance_id=_get_optional(fields, "instance", str, where),
    )


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _get_optional(fields: Question, key: str, kind: type, where: str) -> Any:
    """Return the value of a key, or None if the key is missing or its value is null."""
    return None if fields.get(key) is None else get_typed(fields, key, kind, where)


def to_plan(assigned: Assigned) -> Plan:
    """Return an assignment as JSON: member id -> topic -> partitions in ascending order."""
    return {member_id: dict(by_topic(partitions)) for member_id, partitions in assigned.items()}


def answer_assign(clock_us: Callable[[], int]) -> Callable[[Question], Answer]:
    """Return the function that answers one line of `kproto assign --json --lines`.

    `clock_us` returns a time in microseconds. The answer contains the run time of the assignor as `micros`.
    """

    def answer(question: Question) -> Answer:
        group = parse_input(question)
        started = clock_us()
        assigned = group.assign()
        return {"assignment": to_plan(assigned), "micros": clock_us() - started}

    return answer


def to_json(group: AssignorInput) -> Answer:
    """Return the assignment as JSON, and for each partition its previous owner, its owner and the reason."""
    return {
        "assignor": group.assignor.name,
        "assignment": to_plan(group.assign()),
        "partitions": [
            {
                "topic": outcome.partition.topic,
                "partition": outcome.partition.partition,
                "from": outcome.previous,
                "to": outcome.owner,
                "outcome": outcome.outcome,
                "why": outcome.why,
            }
            for outcome in explain(group)
        ],
    }


# ---- why


def reported_owned(group: AssignorInput, member_id: str) -> ReportedOwnership:
    """Return the partitions that the assignor considers previously owned by the member, and their generation.

    If the assignor ignores previous owners, the result is `owned` and `generation` of the subscription.
    """
    subscription = group.members[member_id]
    if group.assignor.read_ownership is None:
        return ReportedOwnership(subscription.owned, subscription.generation)
    return group.assignor.read_ownership(subscription)


def assign_until_settled(group: AssignorInput) -> dict[str, list[TopicPartition]]:
    """Return the final assignment: a cooperative rebalance is repeated until nothing changes.

    A cooperative assignor withholds a partition from its new owner until the previous owner has revoked it.
    So a second rebalance assigns the partition. Members with different subscriptions may need a third one.
    """
    assigned = group.assign()
    if not group.assignor.cooperative:
        return assigned
    for generation in range(_MAX_REBALANCES):
        members = {
            member_id: msgspec.structs.replace(
                subscription,
                owned=tuple(assigned[member_id]),
                generation=generation,
                user_data=group.assignor.user_data(assigned[member_id], generation),
            )
            for member_id, subscription in group.members.items()
        }
        before, assigned = assigned, msgspec.structs.replace(group, members=members).assign()
        if assigned == before:
            break
    return assigned


def explain(group: AssignorInput) -> list[PartitionOutcome]:
    """Return the outcome of each partition, sorted by topic and partition."""
    # Partition -> (generation, member id) of each member that reports the partition as owned.
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member_id in group.members:
        owned, generation = reported_owned(group, member_id)
        for partition in owned:
            claims.setdefault(partition, []).append((-1 if generation is None else generation, member_id))
    owners = _owner_by_partition(group.assign())
    settled_owners = _owner_by_partition(assign_until_settled(group))
    owned_counts = {member_id: len(reported_owned(group, member_id).owned) for member_id in group.members}
    return [
        _explain_partition(
            group, partition, sorted(claims.get(partition, [])), owners, settled_owners, owned_counts
        )
        for topic, count in sorted(group.partitions.items())
        for partition in map(TopicPartition, [topic] * count, range(count))
    ]


def _owner_by_partition(assigned: Assigned) -> dict[TopicPartition, str]:
    return {partition: member_id for member_id, partitions in assigned.items() for partition in partitions}


def _explain_partition(
    group: AssignorInput,
    partition: TopicPartition,
    claims: list[tuple[int, str]],
    owners: Mapping[TopicPartition, str],
    settled_owners: Mapping[TopicPartition, str],
    owned_counts: Mapping[str, int],
) -> PartitionOutcome:
    """Return a partition's previous and new owner, and the reason for the assignment.

    `claims` contains a pair (generation, member id) for each member that reports the partition as owned.
    Pairs are sorted by generation, the newest last. `owners` lacks the withheld partitions;
    `settled_owners` contains them, with the owners that they will have after the revocations.
    `owned_counts` contains the number of partitions that each member owned before the assignment.
    """
    previous = claims[-1][1] if claims else None
    owner = owners.get(partition, settled_owners.get(partition))
    if owner is None:
        return PartitionOutcome(partition, previous, None, "unassigned", "no member subscribes to the topic")
    rack_reason = _rack_reason(group, partition, owner, previous)
    if previous is None:
        return PartitionOutcome(partition, None, owner, "assigned", rack_reason or "no member owned it")
    if previous == owner and partition in owners:
        return PartitionOutcome(partition, previous, owner, "kept", f"{owner} owned it before")
    is_disputed = len(claims) > 1 and claims[-2][0] == claims[-1][0]
    if is_disputed:
        why = f"{claims[-2][1]} and {previous} both report it as owned in the same generation"
    elif partition.topic not in group.members[previous].topics:
        why = f"{previous} does not subscribe to {partition.topic} any more"
    elif group.assignor.read_ownership is None:
        why = (
            rack_reason or f"{group.assignor.name} ignores previous owners; the order of the members decides"
        )
    else:
        why = rack_reason or (
            f"balance: {previous} owned {owned_counts[previous]} partitions, "
            f"{owner} owned {owned_counts[owner]}"
        )
    if partition in owners:
        return PartitionOutcome(partition, previous, owner, "moved", why)
    return PartitionOutcome(partition, previous, owner, "withheld", why)


def _rack_reason(
    group: AssignorInput, partition: TopicPartition, owner: str, previous: str | None
) -> str | None:
    """Return a reason if the new owner's rack has a replica and the previous owner's has none.

    Otherwise, and if racks are unknown, the result is None.
    """
    racks = group.racks.get(partition.topic)
    rack = group.members[owner].rack_id
    if racks is None or rack is None or rack not in racks[partition.partition]:
        return None
    if previous is not None and group.members[previous].rack_id in racks[partition.partition]:
        return None
    return f"rack: a replica is in rack {rack} of {owner}"


# ---- for people


def parse_topic(text: str) -> tuple[str, dict[str, Any]]:
    """Parse NAME:PARTITIONS or NAME:PARTITIONS@RACK,RACK into a topic of the JSON form.

    Partition i has one replica, in rack i modulo the number of racks. Raises ConfigError if `text` has
    neither form.
    """
    name, colon, size_and_racks = text.rpartition(":")
    count, at_sign, racks = size_and_racks.partition("@")
    is_count = count.isdecimal() and len(count) < 8
    if not (name and colon and is_count and (racks or not at_sign)):
        raise ConfigError("--topic", text, "NAME:PARTITIONS or NAME:PARTITIONS@RACK,RACK, such as flights:6")
    number = int(count)
    replica_racks: list[list[str]] | None = None
    if at_sign:
        rack_names = racks.split(",")
        # `parse_input` rejects a topic with more partitions than MAX_PARTITIONS.
        rack_indexes = (index % len(rack_names) for index in range(min(number, MAX_PARTITIONS)))
        replica_racks = [[rack_names[index]] for index in rack_indexes]
    return name, {"partitions": number, "racks": replica_racks}


def parse_member(text: str, topics: list[str]) -> dict[str, Any]:
    """Parse ID[@RACK][=TOPIC:PARTITIONS[;TOPIC:PARTITIONS]] into a member of the JSON form.

    PARTITIONS, such as 0-2,5, are the partitions that the member owned in generation 1. The member subscribes
    to all `topics`. Raises ConfigError for text of another form.
    """
    identity, equals, owned_text = text.partition("=")
    member_id, _, rack = identity.partition("@")
    try:
        if not member_id:
            raise ValueError
        owned = dict(map(_parse_owned, owned_text.split(";"))) if equals else {}
    except ValueError:
        allowed = "ID, ID@RACK or ID=TOPIC:PARTITIONS, such as m1=flights:0-2,5"
        raise ConfigError("--member", text, allowed) from None
    return {
        "id": member_id,
        "rack": rack or None,
        "subscribed": topics,
        "owned": owned,
        "generation": 1 if equals else None,
    }


def _parse_owned(text: str) -> tuple[str, list[int]]:
    """Parse TOPIC:PARTITIONS, such as flights:0-2,5. Raises ValueError for text of another form."""
    topic, _, ranges = text.rpartition(":")
    if not topic:
        raise ValueError(text)
    indexes: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        if not 0 <= start <= end < MAX_PARTITIONS:
            raise ValueError(text)
        indexes += range(start, end + 1)
    return topic, indexes


def format_ranges(indexes: list[int]) -> str:
    """Return ascending numbers as ranges, such as 0-2,5."""
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def summary_lines(group: AssignorInput) -> list[str]:
    """Return the lines of two tables: the members' partitions, and the partitions' outcomes with reasons."""
    assigned = group.assign()
    total = sum(group.partitions.values())
    lines = [
        f"{group.assignor.name}: {total} {'partition' if total == 1 else 'partitions'}, "
        f"{len(group.members)} {'member' if len(group.members) == 1 else 'members'}",
        "",
    ]
    rows: list[tuple[str, ...]] = [("MEMBER", "BEFORE", "AFTER", "PARTITIONS")]
    for member_id, partitions in assigned.items():
        texts = [f"{topic}:{format_ranges(indexes)}" for topic, indexes in by_topic(partitions)]
        before = len(reported_owned(group, member_id).owned)
        rows.append((member_id, str(before), str(len(partitions)), " ".join(texts) or "-"))
    lines += _table_lines(rows)
    rows = [("PARTITIONS", "FROM", "TO", "OUTCOME", "WHY")]
    outcomes = explain(group)
    for merged in _merge_outcomes(outcomes):
        first = merged[0]
        indexes = [outcome.partition.partition for outcome in merged]
        topic_ranges = f"{first.partition.topic}:{format_ranges(indexes)}"
        rows.append((topic_ranges, first.previous or "-", first.owner or "-", first.outcome, first.why))
    lines += ["", *_table_lines(rows)]
    if any(outcome.outcome == "withheld" for outcome in outcomes):
        lines += [
            "",
            "A withheld partition has no owner until its previous owner has revoked it. Then the member",
            "rejoins, and the next rebalance assigns the partition (KIP-429).",
        ]
    return lines


def _merge_outcomes(outcomes: list[PartitionOutcome]) -> list[list[PartitionOutcome]]:
    """Group the outcomes of one topic that differ only in their partition."""
    groups: dict[tuple[object, ...], list[PartitionOutcome]] = {}
    for outcome in outcomes:
        key = (outcome.partition.topic, outcome.previous, outcome.owner, outcome.outcome, outcome.why)
        groups.setdefault(key, []).append(outcome)
    return list(groups.values())


def _table_lines(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines with aligned columns. The first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [escape_unprintable("  ".join(map(str.ljust, row, widths)).rstrip()) for row in rows]
