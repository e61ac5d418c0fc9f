"""Admin operations that describe and change the configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproto.errors import UnsupportedVersion
from kproto.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kproto.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

from ..error_actions import ADMIN
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from .fanout import Answer, ask_broker, fan_out, to_any_broker, to_nodes
from .plan import Plan, expect_response

# The names of Kafka's codes (ConfigResource.Type, ConfigEntry.ConfigSource, ConfigEntry.ConfigType and
# AlterConfigOp.OpType).
RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}
SOURCES: Final = {
    "dynamic_topic_config": 1,
    "dynamic_broker_config": 2,
    "dynamic_default_broker_config": 3,
    "static_broker_config": 4,
    "default_config": 5,
    "dynamic_broker_logger_config": 6,
    "dynamic_client_metrics_config": 7,
    "dynamic_group_config": 8,
}
VALUE_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
OPERATIONS: Final = {"set": 0, "delete": 1, "append": 2, "subtract": 3}


class ConfigResource(msgspec.Struct, frozen=True, order=True):
    """A resource that has configs. Java: ConfigResource.

    `type` is "topic", "broker", "broker_logger", "client_metrics" or "group".

    `name` is a node id such as "1" for the types "broker" and "broker_logger".

    A resource of type "broker" with the name "" stands for the defaults of all brokers.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name!r}"


class ConfigSynonym(msgspec.Struct, frozen=True):
    """One of the values that are set for a config, with the `source` that sets it.

    The first value in `ConfigEntry.synonyms` is in effect.

    Java: ConfigEntry.ConfigSynonym.
    """

    name: str
    value: str | None
    source: str


class ConfigEntry(msgspec.Struct, frozen=True):
    """One config of a resource, as the broker described it.

    `value` is None if the config is sensitive or has no value.

    `source` says where the value is set: "dynamic_topic_config", "dynamic_broker_config",
    "dynamic_default_broker_config", "static_broker_config", "dynamic_broker_logger_config",
    "dynamic_client_metrics_config" or "dynamic_group_config". It is "default_config" if the value is not set.

    `type` is "boolean", "string", "int", "short", "long", "double", "list", "class" or "password". It is
    "unknown" if the broker is older than 2.6, because such a broker does not return it.

    Java: ConfigEntry.
    """

    name: str
    value: str | None
    source: str
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: str = "unknown"
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source == "default_config"


class AlterConfigOp(msgspec.Struct, frozen=True):
    """One change of a config: "set" a value, "delete" it, "append" to or "subtract" from a list.

    Java: AlterConfigOp.
    """

    name: str
    value: str | None = None
    operation: str = "set"


def name_of(code: int, codes: Mapping[str, int]) -> str:
    """Return the name of `code` in `codes`, which maps names to codes.

    A positive code that `codes` lacks has the name "unknown (CODE)", because a later release may define it.
    Any other code that `codes` lacks has the name "unknown".
    """
    unknown = f"unknown ({code})" if code > 0 else "unknown"
    return next((name for name, known_code in codes.items() if known_code == code), unknown)


def _node_of(resource: ConfigResource) -> int | None:
    """Return the node id of the only broker that can handle the request, or None if any broker can."""
    names_one_broker = resource.type in ("broker", "broker_logger") and resource.name
    return int(resource.name) if names_one_broker else None


def describe_configs(
    view: ClusterView,
    resources: Collection[ConfigResource],
    clock: Callable[[], int],
    *,
    names: Collection[str] | None,
    include_synonyms: bool,
    include_documentation: bool,
) -> Plan[dict[ConfigResource, dict[str, ConfigEntry]]]:
    """Return the configs of each resource: only those listed in `names`, or all if `names` is None."""

    def request(items: Sequence[ConfigResource]) -> Prepared:
        def build(version: int) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=RESOURCE_TYPES[item.type],
                        resource_name=item.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for item in items
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation and version >= 3,
            )

        return Prepared(DescribeConfigsRequest, build)

    def read(
        call: Call, items: Sequence[ConfigResource]
    ) -> Iterator[Answer[ConfigResource, dict[str, ConfigEntry]]]:
        for result in expect_response(DescribeConfigsResponse, call).results:
            resource = ConfigResource(name_of(result.resource_type, RESOURCE_TYPES), result.resource_name)
            entries = {config.name: _config_entry(config) for config in result.configs}
            yield Answer(resource, entries, result.error_code, result.error_message)

    router = to_nodes(view, clock, _node_of)
    return (yield from fan_out(resources, router, "DescribeConfigs", ADMIN, request, read))


def _config_entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        name_of(config.config_source, SOURCES),
        config.is_sensitive,
        config.read_only,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, name_of(synonym.source, SOURCES))
            for synonym in config.synonyms
        ),
        name_of(config.config_type, VALUE_TYPES),
        config.documentation or None,
    )


def incremental_alter_configs(
    view: ClusterView,
    changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
    clock: Callable[[], int],
    *,
    validate_only: bool,
) -> Plan[dict[ConfigResource, None]]:
    """Change individual configs of each resource. The changes of one resource succeed or fail together."""

    def request(items: Sequence[ConfigResource]) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=RESOURCE_TYPES[item.type],
                    resource_name=item.name,
                    configs=[
                        AlterableConfig(
                            name=change.name,
                            config_operation=OPERATIONS[change.operation],
                            value=change.value,
                        )
                        for change in changes[item]
                    ],
                )
                for item in items
            ],
            validate_only=validate_only,
        )

    def read(call: Call, items: Sequence[ConfigResource]) -> Iterator[Answer[ConfigResource, None]]:
        for result in expect_response(IncrementalAlterConfigsResponse, call).responses:
            resource = ConfigResource(name_of(result.resource_type, RESOURCE_TYPES), result.resource_name)
            yield Answer(resource, None, result.error_code, result.error_message)

    router = to_nodes(view, clock, _node_of)
    return (yield from fan_out(changes, router, "IncrementalAlterConfigs", ADMIN, request, read))


def list_config_resources(
    view: ClusterView, types: Collection[str], clock: Callable[[], int]
) -> Plan[list[ConfigResource]]:
    """Return the config resources of `types`, or of all types if `types` is empty."""

    def build(version: int) -> ListConfigResourcesRequest:
        if version == 0 and set(types) != {"client_metrics"}:
            allowed = "1 and higher (Kafka 4.1 and later) to list anything but client metrics"
            raise UnsupportedVersion("ListConfigResources", version, allowed)
        codes = [RESOURCE_TYPES[name] for name in types] if version else []
        return ListConfigResourcesRequest(resource_types=codes)

    def read(call: Call) -> tuple[int, str | None, list[ConfigResource]]:
        response = expect_response(ListConfigResourcesResponse, call)
        resources = [
            ConfigResource(name_of(resource.resource_type, RESOURCE_TYPES), resource.resource_name)
            for resource in response.config_resources
        ]
        return response.error_code, None, sorted(resources)

    request = Prepared(ListConfigResourcesRequest, build)
    return (yield from ask_broker(to_any_broker(view, clock), "ListConfigResources", ADMIN, request, read))
