"""Changes to configs of topics, brokers and client metrics, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from ...error_codes import ErrorCode
from ...messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from ..broker import Broker
from ..client_metrics_configs import check_client_metrics
from ..config_values import ConfigType
from ..dynamic_config import check_dynamic
from ..settings import SETTINGS, Setting
from ..topic_configs import TOPIC_CONFIGS, TopicConfig, check_topic_configs
from ..topics import bad_name
from .configs import ResourceType, broker_name_fault

Outcome = tuple[ErrorCode, str | None]
_ALTERABLE: Final = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS)


class ChangeType(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def alter_resources(
    broker: Broker, resources: Sequence[AlterConfigsResource], *, validate_only: bool
) -> list[Outcome]:
    """Apply the changes of each resource; with `validate_only`, only check them.

    Returns one outcome per resource.

    As in Kafka, the broker checks each resource first, and rejects the invalid ones. If a resource that
    passes has an unknown operation, the controller then rejects all resources that passed.
    """
    faults = _faults_before_controller(resources)
    passed = [resource for resource in resources if _resource_key(resource) not in faults]
    if any(map(_has_unknown_operation, passed)):
        unknown_operation: Outcome = (ErrorCode.UNKNOWN_SERVER_ERROR, "Unknown operation")
        faults |= {_resource_key(resource): unknown_operation for resource in passed}
    outcomes: list[Outcome] = []
    for resource in resources:
        fault = faults.get(_resource_key(resource))
        if fault is not None:
            outcomes.append(fault)
        elif resource.resource_type == ResourceType.BROKER:
            outcomes.append(_alter_broker(broker, resource, validate_only=validate_only))
        elif resource.resource_type == ResourceType.CLIENT_METRICS:
            outcomes.append(_alter_client_metrics(broker, resource, validate_only=validate_only))
        else:
            outcomes.append(_alter_topic(broker, resource, validate_only=validate_only))
    return outcomes


def are_refused_before_authorization(broker: Broker, resources: Sequence[Any], *, legacy: bool) -> list[bool]:
    """Return, for each resource, whether its config change is rejected before the permission check."""
    occurrences = Counter(map(_resource_key, resources))

    def is_refused(resource: Any) -> bool:
        if resource.resource_type == ResourceType.BROKER_LOGGER and legacy:
            return True
        is_broker = resource.resource_type == ResourceType.BROKER
        if is_broker and broker_name_fault(broker, resource.resource_name) is not None:
            return True
        return occurrences[_resource_key(resource)] > 1

    return list(map(is_refused, resources))


def _resource_key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _has_unknown_operation(resource: AlterConfigsResource) -> bool:
    return any(change.config_operation not in {*ChangeType} for change in resource.configs)


def _faults_before_controller(
    resources: Sequence[AlterConfigsResource],
) -> dict[tuple[int, str], Outcome]:
    """Return the errors of the resources that a broker rejects itself.

    In Kafka, the broker passes the other resources to the controller, which checks them.

    A key is the type and the name of a resource. The checks follow ConfigAdminManager.preprocess.
    """
    occurrences = Counter(map(_resource_key, resources))
    faults: dict[tuple[int, str], Outcome] = {}
    for resource in resources:
        without_value = [
            change.name
            for change in resource.configs
            if change.value is None and change.config_operation != ChangeType.DELETE
        ]
        message: str | None = None
        if occurrences[_resource_key(resource)] > 1:
            message = "Each resource must appear at most once."
        elif len({change.name for change in resource.configs}) < len(resource.configs):
            message = "Error due to duplicate config keys"
        elif without_value:
            message = f"Null value not supported for : {', '.join(without_value)}"
        elif resource.resource_type not in _ALTERABLE:
            message = "Only configs of topics, brokers and client metrics can be altered on this broker."
        if message is not None:
            faults[_resource_key(resource)] = ErrorCode.INVALID_REQUEST, message
    return faults


def _alter_topic(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> Outcome:
    """Alter the configs of a topic.

    As in Kafka, the checks run in this order: APPEND and SUBTRACT only for lists, the topic's name, the
    values, and whether the topic exists.
    """
    name = resource.resource_name
    topic = broker.topics.named(name)
    configs = dict(topic.configs) if topic is not None else {}
    for change in resource.configs:
        if change.config_operation == ChangeType.DELETE:
            configs.pop(change.name, None)
            continue
        value = _changed_value(change, configs, TOPIC_CONFIGS)
        if value is None:
            return ErrorCode.INVALID_CONFIG, f"{change.name} is no list"
        configs[change.name] = value
    if not name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    if (fault := bad_name(name)) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, fault
    if (fault := check_topic_configs(configs)) is not None:
        return ErrorCode.INVALID_CONFIG, fault
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
    if not validate_only:
        topic.configs = configs
    return ErrorCode.NONE, None


def _alter_client_metrics(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> Outcome:
    """Alter a client metrics resource.

    The first config creates the resource. Deleting the last config removes it.
    """
    name = resource.resource_name
    configs = broker.cluster.client_metrics.configs(name)
    for change in resource.configs:
        if change.config_operation == ChangeType.DELETE:
            configs.pop(change.name, None)
        elif change.config_operation == ChangeType.SET:
            configs[change.name] = change.value or ""
        else:
            # Kafka's controller rejects APPEND and SUBTRACT for all configs of client metrics, because it
            # does not know which of these configs are lists.
            verb = ChangeType(change.config_operation).name
            return (
                ErrorCode.INVALID_CONFIG,
                f"Can't {verb} to key {change.name} because its type is not LIST.",
            )
    if (fault := check_client_metrics(name, configs)) is not None:
        return fault
    if not validate_only:
        broker.cluster.client_metrics.set(name, configs)
    return ErrorCode.NONE, None


def _changed_value(
    change: AlterableConfig, configs: Mapping[str, str], definitions: Mapping[str, TopicConfig | Setting]
) -> str | None:
    """Return the new value of a config, or None if the operation does not apply to the config.

    `configs` are the values that the resource sets, and `definitions` has the types and defaults of all
    configs. Only a list accepts APPEND and SUBTRACT.
    """
    if change.config_operation == ChangeType.SET:
        return change.value
    definition = definitions.get(change.name)
    if definition is None or definition.type.config_type is not ConfigType.LIST or change.value is None:
        return None
    # If the resource does not set the config, APPEND and SUBTRACT start from Kafka's default. They ignore
    # values from other levels, such as the broker's value for a topic config.
    items = [item for item in _split_list(configs.get(change.name, definition.default)) if item]
    for item in _split_list(change.value):
        if change.config_operation == ChangeType.SUBTRACT and item in items:
            items.remove(item)
        elif change.config_operation == ChangeType.APPEND and item not in items:
            items.append(item)
    return ",".join(items)


def _split_list(value: str) -> list[str]:
    """Split a list at commas as Java's String.split does: without empty items at the end.

    An empty text has one empty item, and a text of only commas has none.
    """
    items = value.split(",")
    while len(items) > 1 and not items[-1]:
        items.pop()
    return [] if items == [""] and value else items


def _alter_broker(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> Outcome:
    """Alter the dynamic configs of one broker; an empty name means all brokers."""
    name = resource.resource_name
    if (fault := broker_name_fault(broker, name)) is not None:
        return ErrorCode.INVALID_REQUEST, fault
    dynamic = broker.cluster.dynamic
    values = dynamic.values(name)
    for change in resource.configs:
        if change.config_operation == ChangeType.DELETE:
            values.pop(change.name, None)
            continue
        value = _changed_value(change, values, SETTINGS)
        if value is None:
            verb = ChangeType(change.config_operation).name.lower()
            message = f"Config value {verb} is not allowed for config key: {change.name}"
            return ErrorCode.INVALID_CONFIG, message
        values[change.name] = value
    if (fault := check_dynamic(values)) is not None:
        return ErrorCode.INVALID_REQUEST, fault
    if not validate_only:
        dynamic.set(name, values)
        for cluster_broker in broker.cluster.brokers.values():
            cluster_broker.settings = dynamic.settings(cluster_broker.node.id)
    return ErrorCode.NONE, None
