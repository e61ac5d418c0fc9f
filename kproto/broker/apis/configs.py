"""Helpers for the config APIs: resource types, and configs with their synonyms."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from ...error_codes import ErrorCode
from ...messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from ..broker import Broker
from ..client_metrics_configs import CLIENT_METRICS_CONFIGS, shown
from ..config_values import ConfigType
from ..dynamic_config import ALL, DYNAMIC
from ..security.acls import CLUSTER_NAME, Operation, Resource
from ..settings import Settings, broker_config_type
from ..topic_configs import TOPIC_CONFIGS
from ..topics import INHERITED, Topic, broker_default
from .authorization import CLUSTER_FAILED, GROUP_FAILED, TOPIC_FAILED, Access, Requirement


class ResourceType(IntEnum):
    """ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The place where a config value is set (Kafka's DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7


def describe_topic_configs(broker: Broker, topic: Topic) -> list[DescribeConfigsResourceResult]:
    """Describe all configs of a topic, each with its value from every source (synonyms)."""
    configs: list[DescribeConfigsResourceResult] = []
    for name, config in TOPIC_CONFIGS.items():
        inherited_value = broker_default(name, broker.settings)
        synonyms: list[DescribeConfigsSynonym] = []
        if config.broker_config:
            synonyms.append(
                DescribeConfigsSynonym(
                    name=config.broker_config, value=inherited_value, source=ConfigSource.DEFAULT
                )
            )
        else:
            for broker_config in INHERITED[name]:
                synonyms += broker_synonyms(broker, broker_config)
        value = topic.configs.get(name)
        if value is not None:
            synonyms.insert(
                0, DescribeConfigsSynonym(name=name, value=value, source=ConfigSource.DYNAMIC_TOPIC)
            )
        configs.append(
            DescribeConfigsResourceResult(
                name=name,
                value=inherited_value if value is None else value,
                read_only=False,
                config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                is_sensitive=False,
                synonyms=synonyms,
                config_type=config.type.config_type,
                documentation=None,
            )
        )
    return configs


def describe_broker_configs(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """Describe the configs of a broker; an empty name means the dynamic defaults of all brokers."""
    if name == ALL:
        defaults = broker.cluster.dynamic.values(ALL)
        return [_describe_broker_config(broker, config, defaults[config], ALL) for config in sorted(defaults)]
    values = broker.settings.properties()
    return [
        _describe_broker_config(broker, config, value, name)
        for config, value in values.items()
        if broker_synonyms(broker, config) or broker_config_type(config) is not ConfigType.UNKNOWN
    ]


def _describe_broker_config(
    broker: Broker, config: str, value: str, broker_name: str
) -> DescribeConfigsResourceResult:
    """Describe one config of a broker, or its dynamic default if `broker_name` is empty.

    Sensitive values are omitted.
    """
    synonyms = broker_synonyms(broker, config)
    if broker_name == ALL:
        synonyms = [synonym for synonym in synonyms if synonym.source == ConfigSource.DYNAMIC_DEFAULT_BROKER]
    config_type = broker_config_type(config)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if is_sensitive := config_type in (ConfigType.PASSWORD, ConfigType.UNKNOWN):
        synonyms = [
            DescribeConfigsSynonym(name=config, value=None, source=synonym.source)
            for synonym in synonyms
            if synonym.value
        ]
    return DescribeConfigsResourceResult(
        name=config,
        value=None if is_sensitive or not synonyms else value,
        read_only=config not in DYNAMIC,
        config_source=source,
        is_sensitive=is_sensitive,
        synonyms=synonyms,
        config_type=config_type,
        documentation=None,
    )


def broker_synonyms(broker: Broker, name: str) -> list[DescribeConfigsSynonym]:
    """Return the values of a broker config from all its sources, in order of precedence.

    As in Kafka, configs without a type, node.id and the configs in `_NULL_UNLESS_SET` have no default.
    """
    dynamic = broker.cluster.dynamic
    static, default = dynamic.start.properties().get(name), _DEFAULTS.get(name)
    is_set = static != default or name == "node.id"
    is_unknown_type = broker_config_type(name) is ConfigType.UNKNOWN
    has_default = not (is_unknown_type or name in _NULL_UNLESS_SET or name == "node.id")
    values_by_source = [
        (ConfigSource.DYNAMIC_BROKER, dynamic.values(str(broker.node.id)).get(name)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, dynamic.values(ALL).get(name)),
        (ConfigSource.STATIC_BROKER, static if is_set else None),
        (ConfigSource.DEFAULT, default if has_default else None),
    ]
    return [
        DescribeConfigsSynonym(name=name, value=value, source=source)
        for source, value in values_by_source
        if value is not None
    ]


def describe_client_metrics(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """Describe the configs of a client metrics resource. A missing resource has the defaults."""
    values = broker.cluster.client_metrics.configs(name)
    results: list[DescribeConfigsResourceResult] = []
    for config, (default, config_type, _) in CLIENT_METRICS_CONFIGS.items():
        value = shown(config, values.get(config, default))
        source = ConfigSource.CLIENT_METRICS if config in values else ConfigSource.DEFAULT
        # As in Kafka, the synonyms of client metrics configs do not contain the default value.
        synonym = DescribeConfigsSynonym(name=config, value=value, source=source)
        results.append(
            DescribeConfigsResourceResult(
                name=config,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=[synonym] if config in values else [],
                config_type=config_type,
                documentation=None,
            )
        )
    return results


def broker_name_fault(broker: Broker, name: str) -> str | None:
    """Return None if `name` is empty or this broker's id, else Kafka's message."""
    if name in (ALL, str(broker.node.id)):
        return None
    if not name.lstrip("-").isdigit():
        return f"Node id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {broker.node.id}, but received {name}"


# Config resource type -> the ACL resource type to authorize, and the error if the caller is not authorized.
_PERMISSIONS: Final[Mapping[int, tuple[Resource, ErrorCode]]] = {
    ResourceType.TOPIC: (Resource.TOPIC, TOPIC_FAILED),
    ResourceType.BROKER: (Resource.CLUSTER, CLUSTER_FAILED),
    ResourceType.BROKER_LOGGER: (Resource.CLUSTER, CLUSTER_FAILED),
    ResourceType.CLIENT_METRICS: (Resource.CLUSTER, CLUSTER_FAILED),
    ResourceType.GROUP: (Resource.GROUP, GROUP_FAILED),
}


def config_requirements(operation: Operation) -> tuple[Requirement, ...]:
    """Return the permissions that an operation on configs requires, one for each type of resource."""
    return tuple(
        Requirement(operation, resource, error) for resource, error in dict.fromkeys(_PERMISSIONS.values())
    )


def config_error(access: Access, operation: Operation, resource: Any) -> ErrorCode | None:
    """Return the error if the caller may not access the configs of a resource; otherwise None."""
    if resource.resource_type not in _PERMISSIONS:
        return None
    acl_resource, error = _PERMISSIONS[resource.resource_type]
    name = CLUSTER_NAME if acl_resource is Resource.CLUSTER else resource.resource_name
    return None if access.allows(operation, acl_resource, name) else error


# Broker configs that are null in Kafka unless they are set.
_NULL_UNLESS_SET: Final = frozenset(
    {"broker.rack", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.url"}
)

# Each broker config -> its default.
_DEFAULTS: Final[Mapping[str, str]] = Settings.from_properties({}).properties()
