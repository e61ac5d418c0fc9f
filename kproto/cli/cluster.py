"""`kproto cluster`: brokers, log directories, leader elections and reassignments of a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, parse_digits, topic_partitions
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumer import Admin, TopicPartition


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "cluster",
        help_text="brokers, log directories, leader elections and reassignments",
        description="Show the brokers of a cluster, and change the leaders and the places of partitions.",
    )
    add_verb(verbs, "describe", _describe, "print the cluster id and the brokers")
    log_dirs = add_verb(verbs, "log-dirs", _log_dirs, "print the sizes of the replicas in each log directory")
    log_dirs.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    elect = add_verb(verbs, "elect", _elect, "elect a leader for each partition")
    _add_partitions(elect)
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect any live replica of a partition without a leader, which may lose records; default: elect "
        "the preferred replica",
    )
    add_execute(elect, "elect the leaders")
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
        nargs="+",
        metavar="TOPIC:P=NODES",
        help="the node ids of the replicas, such as flights:0=1,2; flights:0=cancel ends a move",
    )
    add_execute(reassign, "begin the moves")
    moves = add_verb(verbs, "reassignments", _reassignments, "print the reassignments in progress")
    moves.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")


def _add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:P,P]", help="a topic, or some of its partitions")


def _partitions(admin: Admin, words: Sequence[str]) -> list[TopicPartition]:
    return [partition for word in words for partition in topic_partitions("TOPIC", word, admin.partitions)]


def _describe(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        view = admin.metadata([])
    brokers = [view.brokers[node] for node in sorted(view.brokers)]
    if options.json:
        shown = [
            {"id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}
            for broker in brokers
        ]
        print_json([{"clusterId": view.cluster_id, "controller": view.controller, "brokers": shown}])
        return 0
    print(f"Cluster ID: {cell(view.cluster_id)}")
    rows = [
        (
            broker.id,
            broker.host,
            broker.port,
            broker.rack,
            "yes" if broker.id == view.controller else "",
        )
        for broker in brokers
    ]
    print_table([("ID", 10), ("HOST", 9), ("PORT", 10), ("RACK", 10), ("CONTROLLER", 10)], rows)
    return 0


def _log_dirs(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        nodes = sorted(admin.metadata([]).brokers)
        described = succeeded(lambda: admin.describe_log_dirs(nodes), failures)
    rows: list[tuple[object, ...]] = []
    for node, directories in described.items():
        for path, directory in directories.items():
            if directory.error is not None:
                failures.append(directory.error)
            rows += [
                (node, path, partition.topic, partition.partition, replica.size, replica.offset_lag)
                for partition, replica in sorted(directory.replicas.items())
                if not options.topics or partition.topic in options.topics
            ]
    if options.json:
        keys = ("broker", "logDir", "topic", "partition", "size", "offsetLag")
        print_json(dict(zip(keys, row, strict=True)) for row in rows)
    else:
        columns = [("BROKER", 7), ("LOG-DIR", 15), ("TOPIC", 15), ("PARTITION", 10)]
        print_table([*columns, ("SIZE", 12), ("OFFSET-LAG", 10)], rows)
    return exit_code("cluster log-dirs", failures)


def _elect(options: argparse.Namespace) -> int:
    kind = "unclean" if options.unclean else "preferred"
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        partitions = _partitions(admin, options.topics)
        if not options.execute:
            for partition in partitions:
                print(
                    f"{kind} election for {cell(partition)}; its leader is broker {admin.leader(partition)}"
                )
            return say_not_executed("no leader was elected")
        elected = succeeded(lambda: admin.elect_leaders(kind, partitions), failures)
    for partition, changed in sorted(elected.items()):
        if options.json:
            print_json([{"topic": partition.topic, "partition": partition.partition, "elected": changed}])
        else:
            done = "a leader was elected" if changed else "no election was needed"
            print(f"{cell(partition)}: {done}")
    return exit_code("cluster elect", failures)


def _reassign(options: argparse.Namespace) -> int:
    moves = dict(map(_move, options.moves))
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        if not options.execute:
            described = admin.describe_topics(sorted({partition.topic for partition in moves}))
            for (topic, number), nodes in sorted(moves.items()):
                now = next((p.replicas for p in described[topic].partitions if p.partition == number), ())
                target = "cancel the move" if nodes is None else f"move to {_nodes(nodes)}"
                print(f"{cell(topic)}-{number} on {_nodes(now)}: {target}")
            return say_not_executed("no partition was moved")
        succeeded(lambda: admin.alter_partition_reassignments(moves), failures)
    for partition in moves if not failures else ():
        if options.json:
            print_json([{"topic": partition.topic, "partition": partition.partition, "done": "started"}])
        else:
            done = "canceled the move" if moves[partition] is None else "started the move"
            print(f"{cell(partition)}: {done}")
    return exit_code("cluster reassign", failures)


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "no broker"


def _move(word: str) -> tuple[TopicPartition, list[int] | None]:
    """Parse TOPIC:P=NODES."""
    from consumer import TopicPartition

    name, _, nodes = word.rpartition("=")
    topic, _, number = name.rpartition(":")
    parsed = [parse_digits(node) for node in nodes.split(",")]
    if not topic or parse_digits(number) < 0 or (nodes != "cancel" and min(parsed) < 0):
        raise ConfigError(
            "TOPIC:P=NODES",
            word,
            "allowed: a partition and its brokers, as in flights:0=1,2, or flights:0=cancel",
        )
    return TopicPartition(topic, int(number)), None if nodes == "cancel" else parsed


def _reassignments(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        partitions = _partitions(admin, options.topics) if options.topics else None
        moves = admin.list_partition_reassignments(partitions)
    rows = [
        (
            partition.topic,
            partition.partition,
            _nodes(move.replicas),
            _nodes(move.adding_replicas) if move.adding_replicas else None,
            _nodes(move.removing_replicas) if move.removing_replicas else None,
        )
        for partition, move in sorted(moves.items())
    ]
    if options.json:
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
    else:
        print_table(
            [("TOPIC", 15), ("PARTITION", 10), ("REPLICAS", 10), ("ADDING", 10), ("REMOVING", 10)], rows
        )
    return 0
