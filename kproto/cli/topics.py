"""`kproto topics`: list, describe, create, grow, alter and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, key_values, positive
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
from .tables import cell, print_json

if TYPE_CHECKING:
    from consumer import Admin


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "topics",
        help_text="list, describe, create, grow, alter and delete topics",
        description="Manage the topics of a cluster. The lines are those of kafka-topics.",
    )
    listing = add_verb(verbs, "list", _list, "print the name of each topic")
    listing.add_argument("--internal", action="store_true", help="also internal topics")

    describe = add_verb(verbs, "describe", _describe, "print partitions, leaders, replicas and configs")
    describe.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    describe.add_argument("--internal", action="store_true", help="also internal topics")

    create = add_verb(
        verbs,
        "create",
        _create,
        "create topics",
        epilog="Example: kproto topics create flights --partitions 6 --config retention.ms=86400000 "
        "--bootstrap localhost:9092",
    )
    create.add_argument("topics", nargs="+", metavar="TOPIC")
    create.add_argument("--partitions", type=positive, default=1, metavar="N", help="default: 1")
    create.add_argument("--replication-factor", type=positive, default=1, metavar="N", help="default: 1")
    create.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a config of the topics"
    )
    create.add_argument("--if-not-exists", action="store_true", help="succeed if a topic exists already")

    grow = add_verb(verbs, "grow", _grow, "add partitions to a topic")
    grow.add_argument("topics", nargs="+", metavar="TOPIC")
    grow.add_argument(
        "--partitions", type=positive, required=True, metavar="N", help="the new number of partitions"
    )

    alter = add_verb(verbs, "alter", _alter, "change configs of topics; the other configs keep their values")
    alter.add_argument("topics", nargs="+", metavar="TOPIC")
    alter.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a config")
    alter.add_argument(
        "--delete", action="append", default=[], metavar="NAME", help="return a config to its default"
    )

    delete = add_verb(verbs, "delete", _delete, "delete topics with all of their records")
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    add_execute(delete, "delete the topics")


def _list(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        topics = admin.list_topics(include_internal=options.internal)
    if options.json:
        print_json(
            {"topic": topic.name, "topicId": _topic_id_text(topic.topic_id), "internal": topic.is_internal}
            for topic in topics.values()
        )
    else:
        for name in topics:
            print(cell(name))
    return 0


def _describe(options: argparse.Namespace) -> int:
    from consumer.engine.admin.topic_descriptions import TopicDescription

    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        names = options.topics or list(admin.list_topics(include_internal=options.internal))
        topics: dict[str, TopicDescription] = succeeded(lambda: admin.describe_topics(names), failures)
        configs = _non_default_configs(admin, list(topics), failures)
    for topic in topics.values():
        _print_topic(topic, configs.get(topic.name, {}), as_json=options.json)
    return exit_code("topics describe", failures)


def _non_default_configs(
    admin: Admin, topics: list[str], failures: list[KprotoError]
) -> dict[str, dict[str, str | None]]:
    """Return, for each topic, the configs that differ from the defaults."""
    from consumer.engine.admin.configs import ConfigResource

    resources = [ConfigResource("topic", name) for name in topics]
    described = succeeded(lambda: admin.describe_configs(resources), failures) if resources else {}
    return {
        resource.name: {
            name: entry.value for name, entry in entries.items() if entry.source != "default_config"
        }
        for resource, entries in described.items()
    }


def _print_topic(topic: Any, configs: Mapping[str, str | None], *, as_json: bool) -> None:
    """Print a topic and its partitions as kafka-topics does, or as one JSON object."""
    replication_factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    if as_json:
        partitions = [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "elr": None if partition.elr is None else list(partition.elr),
            }
            for partition in topic.partitions
        ]
        print_json(
            [
                {
                    "topic": topic.name,
                    "topicId": _topic_id_text(topic.topic_id),
                    "internal": topic.is_internal,
                    "replicationFactor": replication_factor,
                    "configs": dict(configs),
                    "partitions": partitions,
                }
            ]
        )
        return
    configs_text = ",".join(f"{name}={value}" for name, value in configs.items())
    fields = {
        "Topic": topic.name,
        "TopicId": _topic_id_text(topic.topic_id),
        "PartitionCount": len(topic.partitions),
        "ReplicationFactor": replication_factor,
        "Configs": configs_text,
    }
    print("\t".join(f"{title}: {cell(value)}" for title, value in fields.items()))
    for partition in topic.partitions:
        fields = {
            "Topic": topic.name,
            "Partition": partition.partition,
            "Leader": "none" if partition.leader is None else partition.leader,
            "Replicas": _node_ids_text(partition.replicas),
            "Isr": _node_ids_text(partition.isr),
            "Elr": _node_ids_text_or_unknown(partition.elr),
            "LastKnownElr": _node_ids_text_or_unknown(partition.last_known_elr),
        }
        print("".join(f"\t{title}: {cell(value)}" for title, value in fields.items()))


def _node_ids_text(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))


def _node_ids_text_or_unknown(nodes: tuple[int, ...] | None) -> str:
    return "N/A" if nodes is None else _node_ids_text(nodes)


def _topic_id_text(topic_id: object) -> str | None:
    """Return a topic id as Kafka writes it: 22 characters of URL-safe base64.

    The result is None for a topic without an id, as on brokers before 2.8.
    """
    from base64 import urlsafe_b64encode
    from uuid import UUID

    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if isinstance(topic_id, UUID) else None


def _partition_counts(options: argparse.Namespace) -> dict[str, int]:
    """Map each topic to the value of `--partitions`. Raises ConfigError for a name like TOPIC:N."""
    for name in options.topics:
        topic, colon, partitions = name.partition(":")
        if colon and partitions.isdecimal():
            raise ConfigError("TOPIC", name, f"run `kproto topics ... {topic} --partitions {partitions}`")
    return {str(name): int(options.partitions) for name in options.topics}


def _create(options: argparse.Namespace) -> int:
    configs = key_values("--config", options.config)
    counts = _partition_counts(options)

    def create(admin: Admin, name: str) -> None:
        admin.create_topics(
            {name: counts[name]},
            replication_factor=options.replication_factor,
            configs=configs,
            exist_ok=options.if_not_exists,
        )

    return _change_each(options, "topics create", create, "Created topic", "created")


def _grow(options: argparse.Namespace) -> int:
    counts = _partition_counts(options)

    def grow(admin: Admin, name: str) -> None:
        admin.create_partitions({name: counts[name]})

    message = f"Set {options.partitions} partitions for topic"
    return _change_each(options, "topics grow", grow, message, "grown")


def _alter(options: argparse.Namespace) -> int:
    from consumer.engine.admin.configs import ConfigResource

    from .configs import alterations

    changes = alterations(options)
    if not changes:
        raise ConfigError("--set", "", "allowed: at least one --set NAME=VALUE or --delete NAME")

    def alter(admin: Admin, name: str) -> None:
        admin.incremental_alter_configs({ConfigResource("topic", name): changes})

    return _change_each(options, "topics alter", alter, "Altered configs of topic", "altered")


def _delete(options: argparse.Namespace) -> int:
    if options.execute:
        return _change_each(
            options,
            "topics delete",
            lambda admin, name: admin.delete_topics([name]),
            "Deleted topic",
            "deleted",
        )
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        described = succeeded(lambda: admin.describe_topics(options.topics), failures)
    for topic in described.values():
        print(f"delete topic {cell(topic.name)} with {len(topic.partitions)} partitions")
    say_not_executed("nothing was deleted")
    return exit_code("topics delete", failures)


def _change_each(
    options: argparse.Namespace, command: str, change: Callable[[Admin, str], None], message: str, done: str
) -> int:
    """Change each topic, print `message` (or `done` in JSON) for it, and return the exit code."""
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        for name in done_items(dict.fromkeys(options.topics), partial(change, admin), failures):
            if options.json:
                print_json([{"topic": name, "done": done}])
            else:
                print(f"{message} {cell(name)}.")
    return exit_code(command, failures)
