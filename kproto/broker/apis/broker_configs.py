"""DescribeConfigs and IncrementalAlterConfigs of brokers: one by its id, or all of them (no name)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from ...messages.incremental_alter_configs import AlterConfigsResource
from ..broker import Broker
from ..dynamic_config import ALL, DYNAMIC, refusal
from ..settings import Settings
from .config_kinds import Operation, Refusal, Source, config_type


def described_broker(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """What a broker acts by, or what was set for all of them."""
    if name == ALL:
        return [
            _told(broker, one, broker.cluster.dynamic.given(ALL)[one], ALL) for one in _set_for_all(broker)
        ]
    values = broker.settings.properties()
    return [_told(broker, one, value, name) for one, value in values.items()]


def _set_for_all(broker: Broker) -> list[str]:
    return sorted(broker.cluster.dynamic.given(ALL))


def _told(broker: Broker, name: str, value: str, whose: str) -> DescribeConfigsResourceResult:
    synonyms = sources(broker, name)
    if whose == ALL:
        synonyms = [one for one in synonyms if one.source == Source.DYNAMIC_DEFAULT]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=name not in DYNAMIC,
        config_source=synonyms[0].source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=config_type(name, value),
        documentation=None,
    )


def sources(broker: Broker, name: str) -> list[DescribeConfigsSynonym]:
    """Each value that a broker's setting has, the one that counts first."""
    dynamic = broker.cluster.dynamic
    found = [
        (Source.DYNAMIC_BROKER, dynamic.given(str(broker.node.id)).get(name)),
        (Source.DYNAMIC_DEFAULT, dynamic.given(ALL).get(name)),
        (Source.STATIC_BROKER, dynamic.start.properties().get(name)),
        (Source.DEFAULT, _DEFAULTS.get(name)),
    ]
    if found[2][1] == found[3][1]:
        del found[2]
    return [
        DescribeConfigsSynonym(name=name, value=value, source=source)
        for source, value in found
        if value is not None
    ]


def wrong_broker(broker: Broker, name: str) -> str | None:
    """Why this broker has nothing to say of a broker of that name; None when it has."""
    if name in (ALL, str(broker.node.id)):
        return None
    if not name.lstrip("-").isdigit():
        return f"Node id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {broker.node.id}, but received {name}"


def altered_broker(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> Refusal:
    """Set, or take back, what takes effect while brokers run."""
    name = resource.resource_name
    if (why := wrong_broker(broker, name)) is not None:
        return ErrorCode.INVALID_REQUEST, why
    dynamic = broker.cluster.dynamic
    values = dynamic.given(name)
    for change in resource.configs:
        if change.config_operation == Operation.DELETE:
            values.pop(change.name, None)
        elif change.config_operation != Operation.SET:
            word = Operation(change.config_operation).name.lower()
            why = f"Config value {word} is not allowed for config key: {change.name}"
            return ErrorCode.INVALID_CONFIG, why
        else:
            values[change.name] = change.value or ""
    if (why := refusal(values)) is not None:
        return ErrorCode.INVALID_REQUEST, why
    if not validate_only:
        dynamic.set(name, values)
        for each in broker.cluster.brokers.values():
            each.settings = dynamic.settings(each.node.id)
    return ErrorCode.NONE, None


_DEFAULTS: Final[Mapping[str, str]] = Settings.from_properties({}).properties()
