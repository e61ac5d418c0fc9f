"""`kproto configs`: print and change the configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, key_values
from .connection import add_verb, add_verbs, admin_client, done_items, exit_code, succeeded
from .tables import cell, print_json

if TYPE_CHECKING:
    from consumer.engine.admin.configs import AlterConfigOp, ConfigResource

_RESOURCE_TYPES = {
    "topics": "topic",
    "brokers": "broker",
    "groups": "group",
    "client-metrics": "client_metrics",
}
# Entity type (of kafka-configs) -> the sources of configs that were set on the entity itself.
_OWN_SOURCES = {
    "topics": {"dynamic_topic_config"},
    "brokers": {"dynamic_broker_config", "dynamic_default_broker_config"},
    "groups": {"dynamic_group_config"},
    "client-metrics": {"dynamic_client_metrics_config"},
}


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "configs",
        help_text="print and change configs of topics, brokers and groups",
        description="Print and change the configs of topics, brokers, groups and client metrics. The entity "
        "types are those of kafka-configs.",
    )
    describe = add_verb(verbs, "describe", _describe, "print the configs that were set")
    _add_entity_arguments(describe)
    describe.add_argument("--all", action="store_true", help="also print configs that have their default")
    alter = add_verb(
        verbs,
        "alter",
        _alter,
        "change single configs; the other configs keep their values",
        epilog="Example: kproto configs alter topics flights --set retention.ms=3600000 "
        "--bootstrap localhost:9092",
    )
    _add_entity_arguments(alter)
    alter.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a config")
    alter.add_argument(
        "--append", action="append", default=[], metavar="NAME=VALUE", help="add a value to a list"
    )
    alter.add_argument(
        "--subtract", action="append", default=[], metavar="NAME=VALUE", help="remove a value from a list"
    )
    alter.add_argument(
        "--delete", action="append", default=[], metavar="NAME", help="return a config to its default"
    )


def _add_entity_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "type", choices=_RESOURCE_TYPES, metavar="TYPE", help=f"one of: {', '.join(_RESOURCE_TYPES)}"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a name, or the node id of a broker")


def _resources(options: argparse.Namespace) -> list[ConfigResource]:
    from consumer.engine.admin.configs import ConfigResource

    return [ConfigResource(_RESOURCE_TYPES[options.type], name) for name in options.names]


def alterations(options: argparse.Namespace) -> list[AlterConfigOp]:
    """Return the changes that `--set`, `--append`, `--subtract` and `--delete` describe."""
    from consumer.engine.admin.configs import AlterConfigOp

    changes = [
        AlterConfigOp(name, value, operation)
        for operation in ("set", "append", "subtract")
        for name, value in key_values(f"--{operation}", getattr(options, operation, [])).items()
    ]
    return changes + [AlterConfigOp(name, None, "delete") for name in options.delete]


def _describe(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        described = succeeded(
            lambda: admin.describe_configs(_resources(options), include_synonyms=True), failures
        )
    for resource, entries in described.items():
        own_sources = _OWN_SOURCES[options.type]
        printed_entries = [entry for entry in entries.values() if options.all or entry.source in own_sources]
        if options.json:
            print_json(
                {
                    "type": options.type,
                    "name": resource.name,
                    "config": entry.name,
                    "value": entry.value,
                    "source": entry.source,
                    "sensitive": entry.is_sensitive,
                }
                for entry in printed_entries
            )
            continue
        title = "All configs" if options.all else "Dynamic configs"
        print(f"{title} for {options.type.removesuffix('s')} {cell(resource.name)} are:")
        for entry in printed_entries:
            synonyms = ", ".join(
                f"{synonym.source.upper()}:{synonym.name}={_value_text(synonym.value)}"
                for synonym in entry.synonyms
            )
            sensitive = str(entry.is_sensitive).lower()
            print(
                f"  {cell(entry.name)}={_value_text(entry.value)} sensitive={sensitive} "
                f"synonyms={{{cell(synonyms)}}}"
            )
    return exit_code("configs describe", failures)


def _value_text(value: str | None) -> str:
    return "null" if value is None else cell(value)


def _alter(options: argparse.Namespace) -> int:
    changes = alterations(options)
    if not changes:
        raise ConfigError("--set", "", "allowed: at least one of --set, --append, --subtract and --delete")
    failures: list[KprotoError] = []
    with admin_client(options) as admin:

        def alter(resource: ConfigResource) -> None:
            admin.incremental_alter_configs({resource: changes})

        for resource in done_items(_resources(options), alter, failures):
            if options.json:
                print_json([{"type": options.type, "name": resource.name, "done": "altered"}])
            else:
                name = cell(resource.name)
                print(f"Completed updating config for {options.type.removesuffix('s')} {name}.")
    return exit_code("configs alter", failures)
