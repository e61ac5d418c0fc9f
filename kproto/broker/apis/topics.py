"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DeleteRecords (21): what changes topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

from ...error_codes import ErrorCode
from ...messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ...messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ..broker import Broker
from ..call import Call, Result
from ..topic_configs import check_topic_configs
from ..topics import CLUSTER_METADATA, MAX_PARTITIONS, NO_ID, Topic, count_refusal, grow
from .configs import described_topic
from .lookup import find_partition, missing_topic

DEFAULT: Final = -1  # let the broker choose
HIGH_WATERMARK: Final = -1
# Partitions of a request, and records that Kafka's controller writes for it (MAX_PARTITIONS_PER_BATCH).
MOST_AT_ONCE: Final = 10_000

Refusal = tuple[ErrorCode, str]


def create_topics(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, CreateTopicsRequest)
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    # Each is judged by what there was before the request: two new names that are alike don't collide.
    refused: dict[str, Refusal | None] = {
        name: (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if times[name] > 1
        else _refusal(broker, wanted, _count(broker, wanted))
        for name, wanted in asked.items()
    }
    counted = [one for name, one in asked.items() if times[name] == 1 and name != CLUSTER_METADATA]
    made = [one for one in counted if refused[one.name] is None]
    if (why := _too_large(broker, counted, made)) is not None:  # all, each as often as it was asked for
        refusals = [_refused(one.name, ErrorCode.POLICY_VIOLATION, why) for one in request.topics]
        return CreateTopicsResponse(throttle_time_ms=0, topics=refusals)
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            _refused(name, *no)
            if (no := refused[name]) is not None
            else _created(broker, call, wanted, only_checked=request.validate_only)
            for name, wanted in asked.items()
        ],
    )


def _refused(name: str, code: ErrorCode, why: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=why, configs=[])


def _too_large(broker: Broker, asked: Sequence[CreatableTopic], made: Sequence[CreatableTopic]) -> str | None:
    """Why all of it is refused; None when it isn't (ReplicationControlManager, QuorumController)."""
    if sum(max(_count(broker, one), 0) for one in asked) > MOST_AT_ONCE:
        return "Excessively large number of partitions per request."
    # A record for the topic, one for each config, and one for each partition.
    if sum(1 + len({it.name for it in one.configs}) + _count(broker, one) for one in made) > MOST_AT_ONCE:
        return "Unable to perform excessively large batch operation."
    return None


def _created(
    broker: Broker, call: Call, wanted: CreatableTopic, *, only_checked: bool
) -> CreatableTopicResult:
    count, factor = _count(broker, wanted), _factor(wanted)
    configs = {config.name: config.value or "" for config in wanted.configs}
    if only_checked:
        topic = Topic(wanted.name, uuid5(call.random_id, wanted.name), 0, configs)
    else:
        topic = broker.create_topic(wanted.name, count, call.random_id, configs)
        _place(broker, topic, wanted, factor)
        broker.cluster.assign_leaders(topic)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=0,
        error_message=None,
        num_partitions=count,
        replication_factor=factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.config_source,
                is_sensitive=False,
            )
            for config in described_topic(broker, topic)
        ],
    )


def _count(broker: Broker, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return broker.settings.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions


def _factor(wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments[0].broker_ids)
    return 1 if wanted.replication_factor == DEFAULT else wanted.replication_factor


def _place(broker: Broker, topic: Topic, wanted: CreatableTopic, factor: int) -> None:
    """Say where its replicas are, if it has more than one or if the client chose."""
    chosen = {one.partition_index: tuple(one.broker_ids) for one in wanted.assignments}
    for index, partition in enumerate(topic.partitions):
        if chosen or factor > 1:
            partition.replicas = chosen.get(index) or broker.cluster.choose_replicas(index, factor)


def _refusal(broker: Broker, wanted: CreatableTopic, count: int) -> Refusal | None:
    """Why this topic can't be made; None when it can."""
    refused = broker.topics.name_refusal(wanted.name)
    if refused is not None:
        return refused
    if missing := [config.name for config in wanted.configs if config.value is None]:
        # Each counts, also one that is said again with a value.
        return ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}"
    why = check_topic_configs({config.name: config.value or "" for config in wanted.configs})
    if why is not None:
        return ErrorCode.INVALID_CONFIG, why
    if wanted.assignments:
        if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
            return (
                ErrorCode.INVALID_REQUEST,
                "With a manual partition assignment, number of partitions and replication factor must be -1.",
            )
        if sorted(one.partition_index for one in wanted.assignments) != list(range(count)):
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The partitions of the assignment must be 0, 1, 2 and so on.",
            )
        why = _bad_replicas(broker, [one.broker_ids for one in wanted.assignments])
        if why is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    elif wanted.replication_factor == 0 or wanted.replication_factor < DEFAULT:
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        return ErrorCode.INVALID_REPLICATION_FACTOR, why
    refused = count_refusal(count)
    there = len(broker.cluster.nodes)
    if refused is None and wanted.replication_factor > there:
        brokers = f"there {'is 1 broker' if there == 1 else f'are {there} brokers'}"
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {wanted.replication_factor} is not possible: {brokers}.",
        )
    return refused


def _bad_replicas(broker: Broker, replicas: Sequence[Sequence[int]], factor: int | None = None) -> str | None:
    """Why these can't be the replicas of partitions, all of which have as many; None when they can."""
    known = broker.cluster.nodes
    many = len(replicas[0]) if factor is None else factor
    if any(
        not ids or len(set(ids)) < len(ids) or len(ids) != many or set(ids) - set(known) for ids in replicas
    ):
        return f"Each needs the same number of brokers, each once, of {', '.join(map(str, known))}."
    return None


def delete_topics(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DeleteTopicsRequest)
    asked = request.topics or [DeleteTopicState(name=name, topic_id=NO_ID) for name in request.topic_names]
    times = Counter((wanted.name, wanted.topic_id) for wanted in asked)
    ids = {wanted.topic_id for wanted in asked if wanted.name is None}
    named = {wanted.name for wanted in asked if wanted.topic_id == NO_ID}

    def delete(wanted: DeleteTopicState) -> DeletableTopicResult | None:
        by_id = wanted.topic_id != NO_ID
        topic = broker.topics.with_id(wanted.topic_id) if by_id else broker.topics.named(wanted.name or "")
        refused: Refusal | None = None
        if by_id == (wanted.name is not None):
            refused = ErrorCode.INVALID_REQUEST, "Say either the name or the id of a topic."
        elif times[wanted.name, wanted.topic_id] > 1:
            refused = ErrorCode.INVALID_REQUEST, "The topic is in the request twice."
        elif topic is not None and by_id and topic.name in named:
            return None  # its name is refused, which is answer enough
        elif topic is not None and topic.id in ids and not by_id:
            refused = ErrorCode.INVALID_REQUEST, "The topic is in the request by its name and by its id."
            wanted = DeleteTopicState(name=topic.name, topic_id=topic.id)
        elif topic is not None and not broker.settings.delete_topic_enable:
            refused = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false."
        if topic is None or refused is not None:
            code, why = refused or (missing_topic(by_id=by_id), "There is no such topic.")
            return DeletableTopicResult(
                name=wanted.name, topic_id=wanted.topic_id, error_code=code, error_message=why
            )
        broker.delete_topic(topic, call.now)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=0)

    results = [delete(one) for one in _told_once(asked)]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=[one for one in results if one is not None])


def _told_once(asked: Sequence[DeleteTopicState]) -> list[DeleteTopicState]:
    """Who is there twice, by name or by id, is answered once; what says both or neither, each time."""
    found: dict[tuple[str | None, UUID, int], DeleteTopicState] = {}
    for number, one in enumerate(asked):
        odd = (one.name is None) == (one.topic_id == NO_ID)
        found[one.name, one.topic_id, number if odd else -1] = one
    return list(found.values())


def create_partitions(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, CreatePartitionsRequest)
    times = Counter(topic.name for topic in request.topics)

    def create(wanted: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        refused: Refusal | None = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = broker.topics.named(wanted.name)
        if times[wanted.name] == 1:
            refused = _growth_refusal(broker, topic, wanted)
        if refused is None and topic is not None and not request.validate_only:
            has = len(topic.partitions)
            grow(topic, wanted.count)
            factor = len(topic.partitions[0].replicas) or 1
            chosen = [tuple(one.broker_ids) for one in wanted.assignments or ()]
            for index in range(has, wanted.count) if chosen or factor > 1 else ():
                places = chosen[index - has] if chosen else broker.cluster.choose_replicas(index, factor)
                topic.partitions[index].replicas = places
            broker.cluster.assign_leaders(topic)
        code, message = refused or (ErrorCode.NONE, None)
        return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)

    wanted = {topic.name: topic for topic in request.topics}.values()
    return CreatePartitionsResponse(throttle_time_ms=0, results=[create(topic) for topic in wanted])


def _growth_refusal(broker: Broker, topic: Topic | None, wanted: CreatePartitionsTopic) -> Refusal | None:
    """Why this topic can't grow so; None when it can."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{wanted.name}'."
    has = len(topic.partitions)
    if wanted.count == has:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {has} partition(s)."
    if wanted.count < has:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has {has} partition(s) now; {wanted.count} would not be an increase.",
        )
    if wanted.count - has > MOST_AT_ONCE:
        # Kafka says so and has added as many as it could; here it adds none.
        return ErrorCode.UNKNOWN_SERVER_ERROR, f"No more than {MOST_AT_ONCE} partitions can be added at once."
    if wanted.count > MAX_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"No topic may have more than {MAX_PARTITIONS} partitions."
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - has:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {wanted.count - has} additional partition(s), "
                f"but only {len(wanted.assignments)} assignment(s) were specified.",
            )
        factor = len(topic.partitions[0].replicas) or 1
        why = _bad_replicas(broker, [one.broker_ids for one in wanted.assignments], factor)
        if why is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    return None


def delete_records(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DeleteRecordsRequest)

    def delete(name: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        partition = find_partition(broker.topics, name, index)
        if partition is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)
        topic = broker.topics.named(name)
        policy = "" if topic is None else topic.config("cleanup.policy", broker.settings)
        if policy and "delete" not in policy:
            error = ErrorCode.POLICY_VIOLATION
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)
        log = partition.log
        offset = log.end_offset if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= log.end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)
        partition.delete_before(offset)
        broker.wake([partition])
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=log.start_offset, error_code=0
        )

    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}  # of one that is there twice, the last
    for topic in request.topics:
        for one in topic.partitions:
            wanted.setdefault(topic.name, {})[one.partition_index] = one
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=[delete(name, one) for one in found.values()])
            for name, found in wanted.items()
        ],
    )
