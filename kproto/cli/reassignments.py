"""Reassignments of partitions in `kproto cluster`: propose, start, cancel, verify and list them (KIP-455)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypeAlias, TypedDict

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, node_ids, parse_int32, topic_partitions
from .connection import add_execute, add_verb, admin_client, exit_code, say_not_executed, succeeded
from .tables import cell, print_json

if TYPE_CHECKING:
    from consumer import Admin, PartitionReassignment, TopicPartition

# The node ids of each partition's replicas; None cancels a reassignment.
Moves: TypeAlias = "dict[TopicPartition, list[int] | None]"

_PLAN_FORM = (
    'allowed: Kafka\'s JSON, {"version":1,"partitions":[{"topic":"flights","partition":0,"replicas":[1,2]}]}'
)


class _PlanPartition(TypedDict):
    """A partition in a plan of kafka-reassign-partitions."""

    topic: str
    partition: int
    replicas: list[int]
    log_dirs: NotRequired[list[str]]


class _Plan(TypedDict):
    """A plan of kafka-reassign-partitions."""

    partitions: list[_PlanPartition]
    version: NotRequired[int]


def add_reassignment_verbs(verbs: Subparsers) -> None:
    """Add the verbs `propose`, `reassign`, `verify` and `reassignments`."""
    propose = add_verb(
        verbs,
        "propose",
        _propose,
        "print a plan that spreads topics over brokers",
        description="Print the current replicas of topics, and a plan that spreads them over brokers, in the "
        "JSON of kafka-reassign-partitions. With --json only the plan is printed.",
        epilog="Example: kproto cluster propose flights --brokers 1,2,3 --json --bootstrap localhost:9092 "
        "> plan.json",
    )
    propose.add_argument("topics", nargs="+", metavar="TOPIC")
    propose.add_argument(
        "--brokers", type=node_ids, metavar="ID,ID", help="the brokers to use; default: all brokers"
    )
    propose.add_argument("--disable-rack-aware", action="store_true", help="ignore the racks of the brokers")

    reassign = add_verb(
        verbs,
        "reassign",
        _reassign,
        "move partitions to other brokers, or cancel it",
        epilog="Example: kproto cluster reassign flights:0=1,2 flights:1=2,3 --execute "
        "--bootstrap localhost:9092",
    )
    reassign.add_argument(
        "moves",
        nargs="*",
        metavar="TOPIC:P=NODES",
        help="the node ids of the replicas, such as flights:0=1,2; flights:0=cancel ends a move",
    )
    _add_file_option(reassign)
    reassign.add_argument("--cancel", action="store_true", help="end the moves of these partitions")
    add_execute(reassign, "begin the moves")

    verify = add_verb(
        verbs,
        "verify",
        _verify,
        "print whether reassignments are completed",
        description="Print whether reassignments are completed. The exit code is 1 if one of them is not.",
    )
    verify.add_argument("moves", nargs="*", metavar="TOPIC:P=NODES", help="as for `reassign`")
    _add_file_option(verify)

    moves = add_verb(verbs, "reassignments", _list_reassignments, "print the reassignments in progress")
    moves.add_argument("topics", nargs="*", metavar="TOPIC[:P,P]", help="default: all topics")


def _add_file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", metavar="FILE", help="a plan in the JSON of kafka-reassign-partitions; - is stdin"
    )


# ---- plans


def _parse_moves(options: argparse.Namespace) -> Moves:
    """Return the reassignments that the arguments and the file describe."""
    moves: Moves = {}
    for partition, nodes in [
        *map(_parse_move, options.moves),
        *(_read_plan(options.file) if options.file is not None else ()),
    ]:
        if partition in moves:
            raise ConfigError("TOPIC:P=NODES", str(partition), "allowed: each partition once")
        moves[partition] = None if getattr(options, "cancel", False) else nodes
    if not moves:
        raise ConfigError("--file", "", "allowed: TOPIC:P=NODES or --file, with at least one partition")
    return moves


def _parse_move(word: str) -> tuple[TopicPartition, list[int] | None]:
    """Parse TOPIC:P=NODES."""
    from consumer import TopicPartition

    name, _, nodes = word.rpartition("=")
    topic, _, number = name.rpartition(":")
    parsed = [parse_int32(node) for node in nodes.split(",")]
    is_valid = nodes == "cancel" or (min(parsed) >= 0 and len(set(parsed)) == len(parsed))
    if not topic or parse_int32(number) < 0 or not is_valid:
        raise ConfigError(
            "TOPIC:P=NODES",
            word,
            "allowed: a partition and its brokers, as in flights:0=1,2, or flights:0=cancel",
        )
    return TopicPartition(topic, int(number)), None if nodes == "cancel" else parsed


def _read_plan(file: str) -> list[tuple[TopicPartition, list[int]]]:
    """Read a plan of kafka-reassign-partitions. Raises ConfigError for an invalid plan."""
    import msgspec

    from consumer import TopicPartition

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--file", file, f"cannot be read: {error}; allowed: a readable file") from None
    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except msgspec.MsgspecError as error:
        raise ConfigError("--file", file, f"{_PLAN_FORM} ({error})") from None
    if plan.get("version", 1) != 1:
        raise ConfigError("--file", file, "allowed: a plan of version 1")
    for entry in plan["partitions"]:
        replicas = entry["replicas"]
        if not replicas:
            raise ConfigError("--file", file, f"{_PLAN_FORM} (a partition has no replicas)")
        if not entry["topic"] or not all(0 <= number < 2**31 for number in (entry["partition"], *replicas)):
            raise ConfigError("--file", file, f"{_PLAN_FORM} (a topic, partition or replica is invalid)")
        if len(set(replicas)) < len(replicas):
            raise ConfigError("--file", file, f"{_PLAN_FORM} (a partition has two replicas on one broker)")
        if set(entry.get("log_dirs", ())) - {"any"}:
            raise ConfigError("--file", file, 'allowed: "any" in log_dirs; brokers choose the directory')
    return [
        (TopicPartition(entry["topic"], entry["partition"]), entry["replicas"])
        for entry in plan["partitions"]
    ]


def _plan_json(replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return the replicas of partitions as JSON that kafka-reassign-partitions reads."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(nodes),
                "log_dirs": ["any"] * len(nodes),
            }
            for partition, nodes in sorted(replicas.items())
        ],
    }


def _current_replicas(admin: Admin, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of these topics."""
    from consumer import TopicPartition

    described = admin.describe_topics(sorted(set(topics)))
    return {
        TopicPartition(name, entry.partition): entry.replicas
        for name, topic in described.items()
        for entry in topic.partitions
    }


# ---- propose


def _propose(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        racks = {node.id: node.rack for node in admin.describe_cluster().nodes}
        before = _current_replicas(admin, options.topics)
    proposed = _propose_replicas(before, racks, options.brokers, is_rack_aware=not options.disable_rack_aware)
    if options.json:
        print_json([_plan_json(proposed)])
        return 0
    print("Current partition replica assignment")
    print_json([_plan_json(before)])
    print("\nProposed partition reassignment configuration")
    print_json([_plan_json(proposed)])
    return 0


def _propose_replicas(
    before: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    chosen: Sequence[int] | None,
    *,
    is_rack_aware: bool,
) -> dict[TopicPartition, list[int]]:
    """Spread the replicas over the brokers in `chosen`, or over all brokers if `chosen` is empty.

    Each partition keeps the number of replicas that it has in `before`. `racks` maps all brokers to their
    racks.

    Raises ConfigError if a broker does not exist, if a partition has more replicas than there are brokers, or
    if only some of the brokers have a rack (as Kafka's tool does).
    """
    brokers = chosen or sorted(racks)
    missing = sorted(set(brokers) - set(racks))
    if missing:
        raise ConfigError("--brokers", _nodes_text(missing), f"allowed: {_nodes_text(sorted(racks))}")
    most_replicas = max(map(len, before.values()), default=1)
    if most_replicas > len(brokers):
        allowed = (
            f"allowed: at least {most_replicas} brokers, because a partition has {most_replicas} replicas"
        )
        raise ConfigError("--brokers", _nodes_text(brokers), allowed)
    without_rack = [node for node in brokers if racks[node] is None]
    if is_rack_aware and 0 < len(without_rack) < len(brokers):
        allowed = (
            f"brokers {_nodes_text(without_rack)} have no rack; add --disable-rack-aware to ignore all racks"
        )
        raise ConfigError("--brokers", _nodes_text(brokers), allowed)
    if not is_rack_aware or without_rack:
        racks = {}
    return spread({partition: len(nodes) for partition, nodes in before.items()}, brokers, racks)


def spread(
    factors: Mapping[TopicPartition, int], brokers: Sequence[int], racks: Mapping[int, str | None]
) -> dict[TopicPartition, list[int]]:
    """Assign replicas to brokers in turn, so that replicas and preferred leaders are spread evenly.

    `factors` maps each partition to its number of replicas. If there are enough racks, the replicas of a
    partition are in different racks.

    The first broker is the preferred leader of the first partition. Kafka's AdminUtils starts at a random
    broker instead.
    """
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks.get(broker), []).append(broker)
    # The first broker of each rack, then the second broker of each rack, and so on.
    ordered = sorted(brokers, key=lambda node: (by_rack[racks.get(node)].index(node), str(racks.get(node))))
    assigned: dict[TopicPartition, list[int]] = {}
    count = len(ordered)
    for number, (partition, factor) in enumerate(sorted(factors.items())):
        # In each round, every broker becomes the preferred leader of one partition. After each round, the
        # other replicas are shifted by one more broker, so several brokers take over the load of a failed
        # one.
        round_number, leader_position = divmod(number, count)
        shift = round_number % max(count - 1, 1)
        followers = ordered[leader_position + 1 :] + ordered[:leader_position]
        candidates = [ordered[leader_position], *followers[shift:], *followers[:shift]]
        assigned[partition] = _choose_replicas(candidates, factor, racks)
    return assigned


def _choose_replicas(candidates: Sequence[int], factor: int, racks: Mapping[int, str | None]) -> list[int]:
    """Return `factor` candidates: the first one of each rack, then others if the racks are too few."""
    chosen: list[int] = []
    used_racks: set[str | None] = set()
    for node in candidates:
        if len(chosen) < factor and (not racks or racks.get(node) not in used_racks):
            chosen.append(node)
            used_racks.add(racks.get(node))
    chosen += [node for node in candidates if node not in chosen][: factor - len(chosen)]
    return chosen


# ---- reassign, verify and list


def _reassign(options: argparse.Namespace) -> int:
    moves = _parse_moves(options)
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        current = _current_replicas(admin, [partition.topic for partition in moves])
        unknown = sorted(set(moves) - set(current))
        if unknown:
            missing = [KprotoError(f"partition {partition} does not exist") for partition in unknown]
            return exit_code("cluster reassign", missing)
        if not options.execute:
            for partition, nodes in sorted(moves.items()):
                target = "cancel the move" if nodes is None else f"move to {_nodes_text(nodes)}"
                print(f"{cell(partition)} on {_nodes_text(current[partition])}: {target}")
            return say_not_executed("no partition was moved")
        moved_replicas = {
            partition: current[partition] for partition, nodes in moves.items() if nodes is not None
        }
        if moved_replicas and not options.json:
            # The plan is printed before the request, because moves may begin even if the response is lost.
            print("The replicas before the moves, for `reassign --file`:")
            print_json([_plan_json(moved_replicas)])
        succeeded_moves = succeeded(lambda: admin.alter_partition_reassignments(moves), failures)
    # `succeeded_moves` is empty if all moves succeeded, because the admin's method then returns None.
    for partition in succeeded_moves if failures else moves:
        verb = "canceled" if moves[partition] is None else "started"
        if options.json:
            print_json([{"topic": partition.topic, "partition": partition.partition, "done": verb}])
        else:
            print(f"{cell(partition)}: {verb} the move")
    return exit_code("cluster reassign", failures)


def _verify(options: argparse.Namespace) -> int:
    moves = _parse_moves(options)
    with admin_client(options) as admin:
        current = _current_replicas(admin, [partition.topic for partition in moves])
        moving = admin.list_partition_reassignments(list(moves))
    states: dict[TopicPartition, str] = {}
    for partition, nodes in sorted(moves.items()):
        if nodes is None:
            raise ConfigError("TOPIC:P=NODES", f"{partition}=cancel", "allowed: the partition's target nodes")
        states[partition] = _move_state(
            list(current.get(partition, ())), nodes, is_moving=partition in moving
        )
    completed = [partition for partition, state in states.items() if state == "is completed."]
    if options.json:
        print_json({"topic": p.topic, "partition": p.partition, "completed": p in completed} for p in states)
    else:
        print("Status of partition reassignment:")
        for partition, state in states.items():
            print(f"Reassignment of partition {cell(partition)} {state}")
    return 0 if len(completed) == len(states) else 1


def _move_state(replicas: list[int], nodes: list[int], *, is_moving: bool) -> str:
    """Return the state of a move to `nodes`, in the words of Kafka's tool."""
    if is_moving:
        return "is still in progress."
    if replicas == nodes:
        return "is completed."
    return f"is not active, and its replicas are {_nodes_text(replicas)} instead of {_nodes_text(nodes)}."


def _list_reassignments(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        partitions = None
        if options.topics:
            partitions = [
                partition
                for word in options.topics
                for partition in topic_partitions("TOPIC", word, admin.partitions)
            ]
        moves = admin.list_partition_reassignments(partitions)
    _print_moves(moves, as_json=options.json)
    return 0


def _print_moves(moves: Mapping[TopicPartition, PartitionReassignment], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(move.replicas),
                "addingReplicas": list(move.adding_replicas),
                "removingReplicas": list(move.removing_replicas),
            }
            for partition, move in sorted(moves.items())
        )
        return
    print("Current partition reassignments:" if moves else "No partition reassignments found.")
    for partition, move in sorted(moves.items()):
        adding = f" adding: {_nodes_text(move.adding_replicas)}." if move.adding_replicas else ""
        removing = f" removing: {_nodes_text(move.removing_replicas)}." if move.removing_replicas else ""
        print(f"{cell(partition)}: replicas: {_nodes_text(move.replicas)}.{adding}{removing}")


def _nodes_text(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "no broker"
