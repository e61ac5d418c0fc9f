"""Checks of the arguments of the admin clients' methods, in the form of `consumer.validation`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition
from kproto.validation import one_of

from . import validation as check
from .engine.admin.configs import OPERATIONS, RESOURCE_TYPES, AlterConfigOp, ConfigResource

_RESOURCE = 'a ConfigResource, as in ConfigResource("topic", "flights")'
_CHANGES = "{ConfigResource: [AlterConfigOp(name, value), ...]}"


def names(name: str, value: Any) -> list[str]:
    """Check a list of texts."""
    return check.list_of(name, value, check.any_text, "a list of texts")


def deletion_offsets(name: str, value: Any) -> dict[TopicPartition, int]:
    """Check the offsets below which records are deleted. The result has -1 for "latest"."""

    def end(name: str, offset: Any) -> int:
        return -1 if offset == "latest" else check.offset(name, offset)

    return check.dict_of(name, value, check.partition, end, '{TopicPartition: offset, or "latest"}')


def config_resource(name: str, value: Any) -> ConfigResource:
    if not isinstance(value, ConfigResource):
        raise ConfigError(name, value, _RESOURCE)
    one_of(name, value.type, RESOURCE_TYPES)
    check.any_text(name, value.name)
    if value.type in ("broker", "broker_logger") and value.name and not value.name.isdecimal():
        raise ConfigError(
            name, value, 'the name of a broker is its node id, as in "1", or "" for all brokers'
        )
    return value


def config_resources(name: str, value: Any) -> list[ConfigResource]:
    return check.list_of(name, value, config_resource, f"a list, each {_RESOURCE}")


def _config_change(name: str, value: Any) -> AlterConfigOp:
    if not isinstance(value, AlterConfigOp):
        raise ConfigError(name, value, _CHANGES)
    one_of(name, value.operation, OPERATIONS)
    check.any_text(name, value.name)
    if value.operation == "delete":
        if value.value is not None:
            raise ConfigError(name, value, 'the operation "delete" takes no value')
    elif not isinstance(value.value, str):
        raise ConfigError(name, value, f'the operation "{value.operation}" takes a value, as text')
    return value


def config_changes(name: str, value: Any) -> dict[ConfigResource, list[AlterConfigOp]]:
    """Check the changes of configs by resource."""
    return check.dict_of(
        name,
        value,
        config_resource,
        lambda name, changes: check.list_of(name, changes, _config_change, _CHANGES),
        f'{_CHANGES}; allowed operations: {", ".join(OPERATIONS)}; only "delete" takes no value',
    )


def config_types(name: str, value: Any) -> list[str]:
    return check.list_of(
        name, value, lambda name, kind: one_of(name, kind, RESOURCE_TYPES), _choices(RESOURCE_TYPES)
    )


def _choices(values: Collection[str]) -> str:
    return f"a list of these texts: {', '.join(map(repr, values))}"
