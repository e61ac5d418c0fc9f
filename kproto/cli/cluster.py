"""`kproto cluster`: brokers, log directories, elections, reassignments, features and quorum of a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import KprotoError
from .arguments import Subparsers, node_id, node_ids, topic_partitions
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    done_items,
    exit_code,
    say_not_executed,
    succeeded,
)
from .features import add_feature_verbs
from .quorum import add_quorum_verbs
from .reassignments import add_reassignment_verbs
from .tables import cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumer import Admin, TopicPartition


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "cluster",
        help_text="brokers, log directories, elections, reassignments, features and quorum",
        description="Show the brokers, the features and the quorum of a cluster, and change them. Elect "
        "leaders of partitions, and move partitions to other brokers.",
    )
    add_verb(verbs, "describe", _describe, "print the cluster id and the brokers")
    log_dirs = add_verb(
        verbs, "log-dirs", _describe_log_dirs, "print the sizes of the replicas in each log directory"
    )
    log_dirs.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    log_dirs.add_argument("--brokers", type=node_ids, metavar="ID,ID", help="default: all brokers")
    elect = add_verb(verbs, "elect", _elect, "elect a leader for each partition")
    _add_partitions_argument(elect)
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect any live replica of a partition without a leader, which may lose records; default: elect "
        "the preferred replica",
    )
    add_execute(elect, "elect the leaders")
    add_reassignment_verbs(verbs)
    add_feature_verbs(verbs)
    add_quorum_verbs(verbs)
    unregister = add_verb(
        verbs, "unregister", _unregister, "remove the registration of a broker that no longer exists"
    )
    unregister.add_argument("broker", type=node_id, metavar="ID", help="the node.id of the broker")
    add_execute(unregister, "remove the registration")


def _add_partitions_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics",
        nargs="*",
        metavar="TOPIC[:P,P]",
        help="a topic, or some of its partitions; default: all topics",
    )


def _named_partitions(
    admin: Admin, words: Sequence[str], failures: list[KprotoError]
) -> list[TopicPartition]:
    """Return the partitions that `words` name; add the errors of missing topics to `failures`."""
    partitions: list[TopicPartition] = []

    def collect(word: str) -> None:
        partitions.extend(topic_partitions("TOPIC", word, admin.partitions))

    for _ in done_items(words, collect, failures):
        pass
    return partitions


def _describe(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        metadata = admin.metadata([])
    brokers = [metadata.brokers[node] for node in sorted(metadata.brokers)]
    if options.json:
        broker_objects = [
            {"id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}
            for broker in brokers
        ]
        cluster = {"clusterId": metadata.cluster_id, "controller": metadata.controller}
        print_json([{**cluster, "brokers": broker_objects}])
        return 0
    print(f"Cluster ID: {cell(metadata.cluster_id)}")
    rows = [
        (
            broker.id,
            broker.host,
            broker.port,
            broker.rack,
            "yes" if broker.id == metadata.controller else "",
        )
        for broker in brokers
    ]
    print_table([("ID", 10), ("HOST", 9), ("PORT", 10), ("RACK", 10), ("CONTROLLER", 10)], rows)
    return 0


def _describe_log_dirs(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        nodes = options.brokers or sorted(admin.metadata([]).brokers)
        described = succeeded(lambda: admin.describe_log_dirs(nodes), failures)
        stored_topics = {
            partition.topic
            for directories in described.values()
            for directory in directories.values()
            for partition in directory.replicas
        }
        absent_topics = [topic for topic in options.topics if topic not in stored_topics]
        if absent_topics:  # Either the topic is missing, or the selected brokers have no replica of it.
            succeeded(lambda: admin.describe_topics(absent_topics), failures)
    rows: list[tuple[object, ...]] = []
    for node, directories in described.items():
        for path, directory in directories.items():
            if directory.error is not None:
                failures.append(directory.error)
            rows += [
                (
                    node,
                    path,
                    partition.topic,
                    partition.partition,
                    replica.size,
                    replica.offset_lag,
                    replica.is_future,
                )
                for partition, replica in sorted(directory.replicas.items())
                if not options.topics or partition.topic in options.topics
            ]
    if options.json:
        keys = ("broker", "logDir", "topic", "partition", "size", "offsetLag", "isFuture")
        print_json(dict(zip(keys, row, strict=True)) for row in rows)
    else:
        columns = [("BROKER", 7), ("LOG-DIR", 15), ("TOPIC", 15), ("PARTITION", 10)]
        columns += [("SIZE", 12), ("OFFSET-LAG", 10), ("FUTURE", 6)]
        print_table(columns, [(*row[:-1], "yes" if row[-1] else "") for row in rows])
    return exit_code("cluster log-dirs", failures)


def _elect(options: argparse.Namespace) -> int:
    kind = "unclean" if options.unclean else "preferred"
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        partitions = _named_partitions(admin, options.topics or sorted(admin.topics()), failures)
        if not options.execute:

            def print_plan(partition: TopicPartition) -> None:
                leader = admin.leader(partition)
                print(f"{kind} election for {cell(partition)}; its leader is broker {leader}")

            for _ in done_items(partitions, print_plan, failures):
                pass
            say_not_executed("no leader was elected")
            return exit_code("cluster elect", failures)
        elected = succeeded(lambda: admin.elect_leaders(kind, partitions), failures) if partitions else {}
    if options.json:
        print_json(
            {"topic": partition.topic, "partition": partition.partition, "elected": is_elected}
            for partition, is_elected in sorted(elected.items())
        )
        return exit_code("cluster elect", failures)
    for is_elected, text in (
        (True, f"Successfully completed leader election ({kind.upper()}) for partitions"),
        (False, "Valid replica already elected for partitions"),
    ):
        names = [cell(partition) for partition in sorted(elected) if elected[partition] == is_elected]
        if names:
            print(f"{text} {', '.join(names)}")
    return exit_code("cluster elect", failures)


def _unregister(options: argparse.Namespace) -> int:
    if not options.execute:
        print(f"unregister broker {options.broker}")
        return say_not_executed("no broker was unregistered")
    with admin_client(options) as admin:
        admin.unregister_broker(options.broker)
    if options.json:
        print_json([{"broker": options.broker, "done": "unregistered"}])
    else:
        print(f"Broker {options.broker} is no longer registered.")
    return 0
