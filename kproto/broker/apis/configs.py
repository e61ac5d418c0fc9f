"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44): settings of topics and brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...error_codes import ErrorCode
from ...messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ...messages.alter_configs import AlterConfigsResource as Whole
from ...messages.alter_configs import AlterConfigsResourceResponse as WholeAltered
from ...messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..dynamic_config import DYNAMIC
from ..topic_configs import ACTED_ON, TOPIC_DEFAULTS, check_topic_configs, shown
from ..topics import OF_THE_BROKER, Topic, bad_name, broker_default
from .broker_configs import altered_broker, described_broker, sources, wrong_broker
from .config_kinds import LISTS, Operation, Refusal, Source, config_type

Told = TypeVar("Told", AlterConfigsResourceResponse, WholeAltered)

TOPIC: Final = 2  # ConfigResource.Type
BROKER: Final = 4
LOGGER: Final = 8
METRICS: Final = 16
GROUP: Final = 32
TYPES: Final = frozenset({TOPIC, BROKER, LOGGER, METRICS, GROUP})


def describe_configs(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DescribeConfigsRequest)
    if any(resource.resource_type not in TYPES for resource in request.resources):
        return _refused(request)
    results = [_described(broker, resource) for resource in request.resources]
    for result in results:
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if request.include_documentation:
                config.documentation = _effect(result.resource_type, config.name)
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _effect(kind: int, name: str) -> str:
    """What a config does on this broker, for clients that ask for Kafka's words about it."""
    if kind == BROKER:
        return "It takes effect at once." if name in DYNAMIC else "It is read when the broker starts."
    return "It acts as in Kafka." if name in ACTED_ON else "It is kept and shown, and does nothing here."


def _refused(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """What Kafka answers where one of the resources is of a type that it doesn't know."""
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            DescribeConfigsResult(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="Unexpected resource type",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ],
    )


def _described(broker: Broker, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    error, message, configs = ErrorCode.NONE, "", list[DescribeConfigsResourceResult]()
    topic = broker.topics.named(name)
    if kind == TOPIC and topic is not None:
        configs = described_topic(broker, topic)
        for config in configs:
            config.value = None if config.value is None else shown(config.name, config.value)
    elif kind == TOPIC:
        why = bad_name(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        message = why or ""
    elif kind == BROKER:
        message = wrong_broker(broker, name) or ""
        error = ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE
        configs = [] if message else described_broker(broker, name)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}"
    if resource.configuration_keys:  # null and the empty list ask for all
        configs = [config for config in configs if config.name in resource.configuration_keys]
    return DescribeConfigsResult(
        error_code=error, error_message=message, resource_type=kind, resource_name=name, configs=configs
    )


def described_topic(broker: Broker, topic: Topic) -> list[DescribeConfigsResourceResult]:
    """All configs of a topic, each with where its value comes from."""
    configs: list[DescribeConfigsResourceResult] = []
    for name, default in TOPIC_DEFAULTS.items():
        inherited = broker_default(name, broker.settings)
        synonyms = [DescribeConfigsSynonym(name=name, value=inherited, source=Source.DEFAULT)]
        of_broker = [one for its in OF_THE_BROKER.get(name, ()) for one in sources(broker, its)]
        synonyms = of_broker or synonyms
        value = topic.configs.get(name)
        if value is not None:
            synonyms.insert(0, DescribeConfigsSynonym(name=name, value=value, source=Source.DYNAMIC_TOPIC))
        configs.append(
            DescribeConfigsResourceResult(
                name=name,
                value=inherited if value is None else value,
                read_only=False,
                config_source=synonyms[0].source,
                is_sensitive=False,
                synonyms=synonyms,
                config_type=config_type(name, default),
                documentation=None,
            )
        )
    return configs


def incremental_alter_configs(broker: Broker, call: Call) -> Result:
    """Change configs of topics, and what brokers take up while they run."""
    request = call.envelope.request
    assert isinstance(request, IncrementalAlterConfigsRequest)
    told = _all_altered(broker, request.resources, request.validate_only, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=told)


def alter_configs(broker: Broker, call: Call) -> Result:
    """Let these be all configs of a resource: what was set and is not named is taken back."""
    request = call.envelope.request
    assert isinstance(request, AlterConfigsRequest)
    changes = [
        AlterConfigsResource(
            resource_type=whole.resource_type,
            resource_name=whole.resource_name,
            configs=[
                *(_change(one.name, Operation.SET, one.value) for one in whole.configs),
                *(_change(name, Operation.DELETE, None) for name in _not_named(broker, whole)),
            ],
        )
        for whole in request.resources
    ]
    told = _all_altered(broker, changes, request.validate_only, WholeAltered)
    return AlterConfigsResponse(throttle_time_ms=0, responses=told)


def _change(name: str, operation: Operation, value: str | None) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


def _not_named(broker: Broker, whole: Whole) -> list[str]:
    if whole.resource_type == BROKER:
        now: Iterable[str] = broker.cluster.dynamic.given(whole.resource_name)
    else:
        topic = broker.topics.named(whole.resource_name)
        now = topic.configs if topic is not None else ()
    return sorted({*now} - {one.name for one in whole.configs})


def _all_altered(
    broker: Broker,
    resources: Sequence[AlterConfigsResource],
    validate_only: bool,
    answer: Callable[..., Told],
) -> list[Told]:
    """Does it, and says for each resource what became of it, in the words of the API."""
    refused = _refused_first(resources)
    rest = [resource for resource in resources if _key(resource) not in refused]
    if any(change.config_operation not in {*Operation} for one in rest for change in one.configs):
        # The controller fails over the whole.
        refused |= {_key(one): (ErrorCode.UNKNOWN_SERVER_ERROR, "Unknown operation") for one in rest}
    told: list[Told] = []
    for resource in resources:
        alter = altered_broker if resource.resource_type == BROKER else _altered
        error, message = refused.get(_key(resource)) or alter(broker, resource, validate_only=validate_only)
        kind, name = resource.resource_type, resource.resource_name
        told.append(answer(error_code=error, error_message=message, resource_type=kind, resource_name=name))
    return told


def refused_before(
    broker: Broker, request: AlterConfigsRequest | IncrementalAlterConfigsRequest, resource: Any
) -> bool:
    """Is that refused by the broker itself, which asks nobody whether it is allowed?"""
    legacy = isinstance(request, AlterConfigsRequest)
    if resource.resource_type == LOGGER and legacy:
        return True
    if resource.resource_type == BROKER and wrong_broker(broker, resource.resource_name) is not None:
        return True
    return sum(_key(one) == _key(resource) for one in request.resources) > 1


def _key(resource: AlterConfigsResource | Whole) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _refused_first(resources: Sequence[AlterConfigsResource]) -> dict[tuple[int, str], Refusal]:
    """What a broker refuses before it asks its controller (ConfigAdminManager.preprocess)."""
    times = Counter(map(_key, resources))
    refused: dict[tuple[int, str], Refusal] = {}
    for resource in resources:
        missing = [
            one.name
            for one in resource.configs
            if one.value is None and one.config_operation != Operation.DELETE
        ]
        why: str | None = None
        if times[_key(resource)] > 1:
            why = "Each resource must appear at most once."
        elif len({change.name for change in resource.configs}) < len(resource.configs):
            why = "Error due to duplicate config keys"
        elif missing:
            why = f"Null value not supported for : {', '.join(missing)}"
        elif resource.resource_type not in (TOPIC, BROKER):
            why = "Only configs of topics and brokers can be altered on this broker."
        if why is not None:
            refused[_key(resource)] = ErrorCode.INVALID_REQUEST, why
    return refused


def _altered(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> Refusal:
    """In the order in which Kafka looks: lists, the name, the values, and whether there is a topic."""
    topic = broker.topics.named(resource.resource_name)
    configs = dict(topic.configs) if topic is not None else {}
    for change in resource.configs:
        if change.config_operation == Operation.DELETE:
            configs.pop(change.name, None)
            continue
        value = _changed(topic, change)
        if value is None:
            return ErrorCode.INVALID_CONFIG, f"{change.name} is no list"
        configs[change.name] = value
    if not resource.resource_name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    if (why := bad_name(resource.resource_name)) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, why
    if (why := check_topic_configs(configs)) is not None:
        return ErrorCode.INVALID_CONFIG, why
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
    if not validate_only:
        topic.configs = configs
    return ErrorCode.NONE, None


def _changed(topic: Topic | None, change: AlterableConfig) -> str | None:
    """The new value; None when this can't be done to this config."""
    if change.config_operation == Operation.SET:
        return change.value
    if change.name not in LISTS or change.value is None:
        return None
    # What isn't set on the topic is Kafka's own default, whatever its broker says.
    before = topic.configs.get(change.name) if topic is not None else None
    now = [item for item in _split(TOPIC_DEFAULTS[change.name] if before is None else before) if item]
    for item in _split(change.value):
        if change.config_operation == Operation.SUBTRACT and item in now:
            now.remove(item)
        elif change.config_operation == Operation.APPEND and item not in now:
            now.append(item)
    return ",".join(now)


def _split(value: str) -> list[str]:
    """As Java's String.split: without what is empty at the end, but where there is no comma at all."""
    items = value.split(",")
    while len(items) > 1 and not items[-1]:
        items.pop()
    return [] if items == [""] and value else items
