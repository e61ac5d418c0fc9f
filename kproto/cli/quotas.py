"""`kproto quotas`: the quotas of users, client ids and IP addresses."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError, brief
from ..java_numbers import double, double_text
from .arguments import Subparsers, key_values
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import cell, print_json

if TYPE_CHECKING:
    from consumer import ClientQuotaEntity

# Types of entities as kafka-configs names them -> the types of ClientQuotaEntity.
_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
# Types of ClientQuotaEntity -> the words with which kafka-configs describes them.
_TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "quotas",
        help_text="list, describe and change quotas of users, clients and IP addresses",
        description="Manage the quotas of users, client ids and IP addresses. The lines are those of "
        "kafka-configs.",
    )
    listing = add_verb(verbs, "list", _list, "print the quotas of all entities")
    listing.add_argument(
        "types",
        nargs="*",
        metavar="TYPE",
        help=f"only of entities that have exactly these types: {', '.join(_TYPES)}",
    )
    describe = add_verb(verbs, "describe", _describe, "print the quotas of one entity")
    _add_entity_options(describe)
    alter = add_verb(
        verbs,
        "alter",
        _alter,
        "set and delete quotas of one entity",
        description="Set and delete quotas of one entity; its other quotas keep their values. The quotas are "
        f"{', '.join(_QUOTAS[:-1])} and, for IP addresses, {_QUOTAS[-1]}. Byte rates are in bytes per second "
        "for each broker.",
        epilog="Example: kproto quotas alter --user alice --set producer_byte_rate=1048576 --execute "
        "--bootstrap localhost:9092",
    )
    _add_entity_options(alter)
    alter.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a quota")
    alter.add_argument("--delete", action="append", default=[], metavar="NAME", help="delete a quota")
    add_execute(alter, "change the quotas")


def _add_entity_options(parser: argparse.ArgumentParser) -> None:
    for option, kind in (("user", "a user"), ("client", "a client id"), ("ip", "an IP address")):
        group = parser.add_mutually_exclusive_group()
        group.add_argument(f"--{option}", metavar="NAME", help=kind)
        plural = {"user": "users", "client": "client ids", "ip": "IP addresses"}[option]
        group.add_argument(
            f"--{option}-defaults",
            dest=option,
            action="store_const",
            const="",
            help=f"all {plural} without a quota of their own",
        )


def _parse_entity(options: argparse.Namespace) -> ClientQuotaEntity:
    from consumer import ClientQuotaEntity

    entity = ClientQuotaEntity(options.user, options.client, options.ip)
    if not entity.names():
        raise ConfigError(
            "--user",
            "",
            "the quota needs an entity: add --user, --client or both, or add --ip; "
            "for default entities, add --user-defaults, --client-defaults or --ip-defaults",
        )
    if options.ip is not None and len(entity.names()) > 1:
        raise ConfigError("--ip", options.ip, "allowed only without --user and --client")
    return entity


def _list(options: argparse.Namespace) -> int:
    kinds: set[str] = set()
    for name in options.types:
        if name not in _TYPES:
            raise ConfigError("TYPE", name, f"allowed: {', '.join(_TYPES)}")
        kinds.add(_TYPES[name])
    with admin_client(options) as admin:
        described = admin.describe_client_quotas(dict.fromkeys(kinds), strict=bool(kinds))
    _print_quotas(described, as_json=options.json)
    return 0


def _describe(options: argparse.Namespace) -> int:
    entity = _parse_entity(options)
    with admin_client(options) as admin:
        described = admin.describe_client_quotas(dict(entity.names()), strict=True)
    _print_quotas(described, as_json=options.json)
    return 0


def _print_quotas(described: Mapping[ClientQuotaEntity, Mapping[str, float]], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"entity": _json_names(entity), "quotas": _json_quotas(quotas)}
            for entity, quotas in described.items()
        )
        return
    for entity, quotas in described.items():
        shown = ", ".join(f"{cell(name)}={double_text(value)}" for name, value in quotas.items())
        print(f"Quota configs for {_entity_text(entity)} are {shown}")


def _json_quotas(quotas: Mapping[str, float]) -> dict[str, float | str]:
    """Return quotas as JSON values: NaN and infinity become strings, because JSON has no such numbers."""
    return {name: value if isfinite(value) else double_text(value) for name, value in quotas.items()}


def _json_names(entity: ClientQuotaEntity) -> dict[str, str | None]:
    """Return the names of an entity by type, for `--json`. None stands for a type's default entity."""
    return {kind: name or None for kind, name in entity.names().items()}


def _entity_text(entity: ClientQuotaEntity) -> str:
    return ", ".join(
        f"{_TITLES[kind]} '{cell(name)}'" if name else f"the default {_TITLES[kind]}"
        for kind, name in entity.names().items()
    )


def _parse_changes(options: argparse.Namespace) -> dict[str, float | None]:
    """Return the new value of each quota in the options; None deletes a quota."""
    changes: dict[str, float | None] = {}
    for name, text in key_values("--set", options.set).items():
        value = double(text)
        if name not in _QUOTAS or value is None or not isfinite(value):
            raise ConfigError("--set", f"{name}={text}", f"allowed: a number for {', '.join(_QUOTAS)}")
        changes[name] = value
    for name in options.delete:
        if name in changes:
            raise ConfigError("--delete", name, "allowed: in --set or in --delete, but not in both")
        changes[name] = None
    if not changes:
        raise ConfigError("--set", "", "allowed: at least one of --set and --delete")
    return changes


def _alter(options: argparse.Namespace) -> int:
    entity, changes = _parse_entity(options), _parse_changes(options)
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        before = admin.describe_client_quotas(dict(entity.names()), strict=True).get(entity, {})
        # As in kafka-configs, deleting a quota that is not set is an error: its name may be misspelled.
        failures += [
            KprotoError(f"{_entity_text(entity)} has no quota {brief(name)}, which --delete names")
            for name in options.delete
            if name not in before
        ]
        if failures:
            return exit_code("quotas alter", failures)
        succeeded(
            lambda: admin.alter_client_quotas({entity: changes}, validate_only=not options.execute), failures
        )
    if failures:
        return exit_code("quotas alter", failures)
    if not options.execute:
        for name, value in changes.items():
            current = double_text(before[name]) if name in before else "not set"
            change = "delete" if value is None else f"set to {double_text(value)}"
            print(f"{cell(name)} of {_entity_text(entity)}, now {current}: {change}")
        return say_not_executed("no quota was changed")
    if options.json:
        print_json([{"entity": _json_names(entity), "done": "altered"}])
    else:
        print(_completion_text(entity))
    return 0


def _completion_text(entity: ClientQuotaEntity) -> str:
    """Return what kafka-configs prints for a change. The text names only the first type of the entity."""
    [(kind, name), *_] = entity.names().items()
    plural = next(key for key, value in _TYPES.items() if value == kind)
    if not name:
        return f"Completed updating default config for {plural} in the cluster."
    return f"Completed updating config for {plural.removesuffix('s')} {cell(name)}."
