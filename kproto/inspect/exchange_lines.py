"""Format an exchange as one readable line.

    12.345  flights-1     JoinGroup v9    group=g member=new cooperative-sticky(flights)  ->  generation=2 ...

A line has these parts: the time, the client, the API and version, the request, the response with its errors
by name, and the response time. Subscriptions and assignments are decoded.

Tables in this module list formatters for frequent APIs. For any other API, the line shows the fields that are
numbers or strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ..addresses import address_text
from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..group.subscription import Assignment, Subscription, TopicPartition
from ..messages.find_coordinator import FindCoordinatorRequest
from ..printable import escape_unprintable
from ..wire.message import Message
from .exchanges import Exchange
from .timeline import GroupEvent

# Maps topic ids to topic names, for the functions that format the parts of a line.
_topic_names: ContextVar[Mapping[UUID, str]] = ContextVar("names", default=MappingProxyType({}))

# The UUID in a member id. Only its first 8 digits are shown, which are enough to distinguish members.
_UUID = re.compile(r"(?<=-)([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The key type of a FindCoordinator request about groups (FindCoordinatorRequest.CoordinatorType).
_GROUP_KEY = 0
# How many entries of a list, and how many characters of a text, are shown at most.
_MAX_ENTRIES = 6
_MAX_TEXT_LENGTH = 60


def line(exchange: Exchange, began: int = 0) -> str:
    """Format the exchange as a line. Its time is in seconds since `began` (ms).

    Control characters are escaped, so that names from clients cannot break or reorder the line.
    """
    seconds = (exchange.asked_at - began) / 1000
    _topic_names.set(exchange.names)
    client = _shorten(exchange.client or "-", 20)
    if exchange.principal:
        client += f" ({_shorten(exchange.principal.removeprefix('User:'), 20)})"
    head = f"{seconds:9.3f}  {client:<20}  {exchange.api} v{exchange.version}"
    request_text = request_words(exchange.request) if exchange.request is not None else ""
    parts = [f"{head:<56}", request_text]
    if exchange.response is not None:
        parts += ["->", response_words(exchange.response, exchange.request)]
    if exchange.trouble:
        parts += ["!!", exchange.trouble]
    duration = f"  [{exchange.ms} ms]" if exchange.ms is not None else ""
    return escape_unprintable(" ".join(part for part in parts if part) + duration)


def generation_line(group: str, event: GroupEvent, began: int = 0) -> str:
    """Format the start of a generation, with its cause, as a line. The line's time is in seconds since
    `began` (ms).
    """
    seconds = (event.at - began) / 1000
    cause = f"generation {event.generation}: {event.reason}"
    return escape_unprintable(f"{seconds:9.3f}  {_shorten('group ' + group, 20):<20}  {cause}")


def groups_of(exchange: Exchange) -> set[str]:
    """Return the groups that a request names."""
    request: Any = exchange.request
    names = {getattr(request, "group_id", None)}
    if isinstance(request, FindCoordinatorRequest) and request.key_type == _GROUP_KEY:
        names |= {request.key, *request.coordinator_keys}
    for group in getattr(request, "groups", None) or ():
        names.add(group if isinstance(group, str) else getattr(group, "group_id", None))
    return {name for name in names if isinstance(name, str)}


def is_quiet(exchange: Exchange) -> bool:
    """Return whether the exchange is routine: a successful heartbeat, or a fetch without records."""
    response: Any = exchange.response
    if response is None or exchange.trouble or any(code for _, code in _error_codes(response, "")):
        return False
    if exchange.api == "Fetch":
        return not any(partition.records for topic in response.responses for partition in topic.partitions)
    return exchange.api == "Heartbeat"


def request_words(request: Message) -> str:
    """Describe a request in one line."""
    describe = _REQUEST_FORMATTERS.get(type(request).__name__.removesuffix("Request"), _format_fields)
    return describe(request)


def response_words(response: Message, request: Message | None = None) -> str:
    """Describe a response in one line: its errors and its main fields, or "ok" if it has neither."""
    name = type(response).__name__.removesuffix("Response")
    errors = list(_error_texts(response))
    has_fields = name in _RESPONSE_FORMATTERS and not _top_level_error(response)
    text = _RESPONSE_FORMATTERS[name](response) if has_fields else ""
    if errors:
        text = f"{_join_texts(errors)} {text}".rstrip()
    return text or "ok"


def error_name(code: int) -> str:
    """Return Kafka's name for an error code, or "error N" if the code is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


# ---- Errors, in any part of a response.


def _top_level_error(response: Any) -> int:
    """Return the error code of the whole response, or 0."""
    return int(getattr(response, "error_code", 0) or 0)


def _error_texts(response: Any) -> Iterator[str]:
    """Yield each error once, with the first topic, partition or group that has it."""
    counts: dict[int, tuple[str, int]] = {}
    for location, code in _error_codes(response, ""):
        if code:
            first, count = counts.get(code, (location, 0))
            counts[code] = (first, count + 1)
    for code, (location, count) in counts.items():
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"{error_name(code)}{f' ({location}{more})' if location else ''}"


def _error_codes(part: Any, location: str) -> Iterator[tuple[str, int]]:
    """Yield (location, error code) for `part` and for each struct inside it, including code 0.

    `location` names the topic, partition or group that `part` describes. It is empty for a whole response.
    """
    code = getattr(part, "error_code", getattr(part, "partition_error_code", None))
    if isinstance(code, int):
        yield location, code
    for field in part.__fields__ if hasattr(part, "__fields__") else ():
        value: Any = getattr(part, field.name)
        if isinstance(value, list):
            for entry in value:  # pyright: ignore[reportUnknownVariableType]
                if hasattr(entry, "__fields__"):  # pyright: ignore[reportUnknownArgumentType]
                    yield from _error_codes(entry, _locate_part(entry, location))


def _locate_part(part: Any, parent: str) -> str:
    """Return the topic, group or partition that a part of a response describes.

    If `part` has no name and no partition number, the result is `parent`, the location of the enclosing
    struct.
    """
    for name in ("name", "topic", "topic_name", "group_id", "key"):
        value = getattr(part, name, None)
        if isinstance(value, str) and value:
            return value
    for name in ("partition_index", "partition", "index"):
        value = getattr(part, name, None)
        if isinstance(value, int):
            return f"{parent}-{value}" if parent else f"partition {value}"
    return parent


# ---- requests


def _format_fields(message: Any) -> str:
    """Describe a message that has no formatter: its numbers and strings, and the lengths of its lists."""
    words: list[str] = []
    for field in message.__fields__:
        value = getattr(message, field.name)
        if isinstance(value, bool) or value is None or field.name == "throttle_time_ms":
            continue
        if isinstance(value, list):
            words.append(f"{field.name}={len(value)}")  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, int | str) and value not in ("", -1):
            words.append(f"{field.name}={_shorten(str(value))}")
    return " ".join(words[:_MAX_ENTRIES])


def _format_member(request: Any) -> str:
    words = [f"group={request.group_id}"]
    for name in ("generation_id", "generation_id_or_member_epoch"):
        generation = getattr(request, name, -1)
        if generation >= 0:
            words.append(f"generation={generation}")
    member = getattr(request, "member_id", "")
    words.append(f"member={_shorten(member)}" if member else "member=new")
    if getattr(request, "group_instance_id", None):
        words.append(f"instance={request.group_instance_id}")
    return " ".join(words)


def _format_join_request(request: Any) -> str:
    offered = " ".join(
        f"{protocol.name}({_format_subscription(protocol.metadata)})" for protocol in request.protocols
    )
    reason = f" because {_shorten(request.reason)!r}" if request.reason else ""
    return f"{_format_member(request)} {offered}{reason}"


def _format_subscription(data: bytes) -> str:
    try:
        subscription = Subscription.decode(data)
    except DecodeError:
        return f"{len(data)} bytes"
    owned = f" owns {_format_partitions(subscription.owned)}" if subscription.owned else ""
    return f"{_join_texts(sorted(subscription.topics))}{owned}"


def _format_sync_request(request: Any) -> str:
    plan = [
        f"{_shorten(assignment.member_id)}: {_format_assignment(assignment.assignment)}"
        for assignment in request.assignments
    ]
    return f"{_format_member(request)}" + (f" plan {{{_join_texts(plan, '; ')}}}" if plan else "")


def _format_assignment(data: bytes) -> str:
    try:
        return _format_partitions(Assignment.decode(data).partitions) if data else "nothing"
    except DecodeError:
        return f"{len(data)} bytes"


def _format_leave_request(request: Any) -> str:
    if not request.members:
        return _format_member(request)
    members = [
        f"{_shorten(member.member_id) or member.group_instance_id}"
        + (f" ({member.reason})" if member.reason else "")
        for member in request.members
    ]
    return f"group={request.group_id} {_join_texts(members)}"


def _format_commit_request(request: Any) -> str:
    offsets = [
        f"{_format_topic(topic)}-{partition.partition_index}@{partition.committed_offset}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return f"{_format_member(request)} {_join_texts(offsets)}"


def _format_offset_fetch_request(request: Any) -> str:
    texts: list[str] = []
    for group in request.groups or [request]:
        partitions = "all"
        if group.topics is not None:
            partitions = _join_texts(
                f"{_format_topic(topic)}-{index}"
                for topic in group.topics
                for index in topic.partition_indexes
            )
        texts.append(f"group={group.group_id} {partitions}")
    return " ".join(texts)


def _format_fetch_request(request: Any) -> str:
    partitions = [
        f"{_format_topic(topic)}-{partition.partition}@{partition.fetch_offset}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    session = f" session={request.session_id}/{request.session_epoch}" if request.session_id else ""
    return f"{_join_texts(partitions) or 'nothing new'}{session} wait={request.max_wait_ms} ms"


def _format_produce_request(request: Any) -> str:
    partitions = [
        f"{_format_topic(topic)}-{partition.index} {len(partition.records or b'')} B"
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    acks = {-1: "all"}.get(request.acks, request.acks)
    transaction = f" transaction={request.transactional_id}" if request.transactional_id else ""
    return f"{_join_texts(partitions)} acks={acks}{transaction}"


def _format_init_producer_request(request: Any) -> str:
    if request.transactional_id is None:
        return "for no transactions"
    producer = _format_transaction(request) if request.producer_id >= 0 else request.transactional_id
    return f"{producer} timeout={request.transaction_timeout_ms} ms"


def _format_transaction(request: Any) -> str:
    return f"{request.transactional_id} producer={request.producer_id}/{request.producer_epoch}"


def _format_end_txn_request(request: Any) -> str:
    return f"{_format_transaction(request)} {'commit' if request.committed else 'abort'}"


def _format_add_partitions_request(request: Any) -> str:
    name = request.v3_and_below_transactional_id or _join_texts(
        transaction.transactional_id for transaction in request.transactions
    )
    topics = [
        *request.v3_and_below_topics,
        *(topic for transaction in request.transactions for topic in transaction.topics),
    ]
    return f"{name} {_join_texts(f'{topic.name}-{index}' for topic in topics for index in topic.partitions)}"


def _format_metadata_request(request: Any) -> str:
    if request.topics is None:
        return "all topics"
    return _join_texts(_format_topic(topic) for topic in request.topics) or "no topics"


def _format_list_offsets_request(request: Any) -> str:
    times = {-1: "latest", -2: "earliest", -3: "max timestamp"}
    return _join_texts(
        f"{_format_topic(topic)}-{partition.partition_index} "
        f"{times.get(partition.timestamp, partition.timestamp)}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _format_leader_epoch_request(request: Any) -> str:
    return _join_texts(
        f"{topic.topic}-{partition.partition} epoch={partition.leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _format_coordinator_request(request: Any) -> str:
    kind = {0: "group", 1: "transaction", 2: "share"}.get(request.key_type, request.key_type)
    return f"{kind} {_join_texts(request.coordinator_keys or [request.key])}"


def _format_api_versions_request(request: Any) -> str:
    return f"{request.client_software_name} {request.client_software_version}".strip()


def _format_describe_groups_request(request: Any) -> str:
    groups = getattr(request, "groups", None) or getattr(request, "group_ids", None) or ()
    return _join_texts(map(str, groups))


def _format_create_topics_request(request: Any) -> str:
    return _join_texts(f"{topic.name}:{topic.num_partitions}" for topic in request.topics)


# ---- responses


def _format_join_response(response: Any) -> str:
    generation = f"generation={response.generation_id} member={_shorten(response.member_id)}"
    if response.leader != response.member_id:
        return f"{generation} {response.protocol_name}"
    members = [
        f"{_shorten(member.member_id)} {_format_subscription(member.metadata)}" for member in response.members
    ]
    return f"{generation} {response.protocol_name} leads {len(members)}: {_join_texts(members, '; ')}"


def _format_sync_response(response: Any) -> str:
    return f"got {_format_assignment(response.assignment)}"


def _format_coordinator_response(response: Any) -> str:
    coordinators = response.coordinators or [response]
    return _join_texts(
        f"node {coordinator.node_id} at {address_text(coordinator.host, coordinator.port)}"
        for coordinator in coordinators
        if coordinator.host
    )


def _format_metadata_response(response: Any) -> str:
    topics = [f"{topic.name or topic.topic_id}:{len(topic.partitions)}" for topic in response.topics]
    brokers = f"{len(response.brokers)} broker{'s' if len(response.brokers) != 1 else ''}"
    return f"{brokers}, {_join_texts(topics) or 'no topics'}"


def _format_fetch_response(response: Any) -> str:
    partitions = [
        f"{_format_topic(topic)}-{part.partition_index} {len(part.records)} B up to {part.high_watermark}"
        for topic in response.responses
        for part in topic.partitions
        if part.records
    ]
    return _join_texts(partitions) or "nothing"


def _format_produce_response(response: Any) -> str:
    return _join_texts(
        f"{_format_topic(topic)}-{partition.index}@{partition.base_offset}"
        for topic in response.responses
        for partition in topic.partition_responses
        if not partition.error_code
    )


def _format_offset_fetch_response(response: Any) -> str:
    groups = response.groups or [response]
    return _join_texts(
        f"{_format_topic(topic)}-{partition.partition_index} "
        + ("none" if partition.committed_offset < 0 else f"@{partition.committed_offset}")
        for group in groups
        for topic in group.topics
        for partition in topic.partitions
    )


def _format_list_offsets_response(response: Any) -> str:
    return _join_texts(
        f"{topic.name}-{partition.partition_index}@{partition.offset}"
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    )


def _format_leader_epoch_response(response: Any) -> str:
    return _join_texts(
        f"{topic.topic}-{partition.partition} epoch={partition.leader_epoch} ends at {partition.end_offset}"
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    )


def _format_api_versions_response(response: Any) -> str:
    return f"{len(response.api_keys)} APIs"


def _format_describe_groups_response(response: Any) -> str:
    return _join_texts(
        f"{group.group_id} {group.group_state} with {len(group.members)}" for group in response.groups
    )


def _format_producer(response: Any) -> str:
    return f"producer id={response.producer_id} epoch={response.producer_epoch}"


# Both tables map the name of an API to the function that describes its request or response.
_REQUEST_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "AddOffsetsToTxn": lambda request: f"{_format_transaction(request)} group={request.group_id}",
    "AddPartitionsToTxn": _format_add_partitions_request,
    "ApiVersions": _format_api_versions_request,
    "CreateTopics": _format_create_topics_request,
    "DescribeGroups": _format_describe_groups_request,
    "EndTxn": _format_end_txn_request,
    "Fetch": _format_fetch_request,
    "FindCoordinator": _format_coordinator_request,
    "Heartbeat": _format_member,
    "InitProducerId": _format_init_producer_request,
    "JoinGroup": _format_join_request,
    "LeaveGroup": _format_leave_request,
    "ListOffsets": _format_list_offsets_request,
    "Metadata": _format_metadata_request,
    "OffsetCommit": _format_commit_request,
    "OffsetFetch": _format_offset_fetch_request,
    "OffsetForLeaderEpoch": _format_leader_epoch_request,
    "Produce": _format_produce_request,
    "SyncGroup": _format_sync_request,
    "TxnOffsetCommit": lambda request: f"{_format_transaction(request)} {_format_commit_request(request)}",
}

_RESPONSE_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "ApiVersions": _format_api_versions_response,
    "DescribeGroups": _format_describe_groups_response,
    "EndTxn": lambda response: _format_producer(response) if response.producer_id >= 0 else "",
    "Fetch": _format_fetch_response,
    "FindCoordinator": _format_coordinator_response,
    "InitProducerId": _format_producer,
    "JoinGroup": _format_join_response,
    "ListOffsets": _format_list_offsets_response,
    "Metadata": _format_metadata_response,
    "OffsetFetch": _format_offset_fetch_response,
    "OffsetForLeaderEpoch": _format_leader_epoch_response,
    "Produce": _format_produce_response,
    "SyncGroup": _format_sync_response,
}


# ---- texts


def _format_topic(part: Any) -> str:
    """Return the topic name of a struct. If its topic id is unknown, return the id's first characters."""
    for name in ("name", "topic"):
        topic_name = getattr(part, name, None)
        if topic_name:
            return str(topic_name)
    id_: Any = getattr(part, "topic_id", None)
    return _topic_names.get().get(id_) or _shorten(str(id_), 8)


def _format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return _join_texts(map(str, sorted(partitions))) or "nothing"


def _join_texts(texts: Iterable[str], separator: str = ", ") -> str:
    """Join the first `_MAX_ENTRIES` texts, and append the number of the remaining texts."""
    entries = list(texts)
    more = f"{separator}and {len(entries) - _MAX_ENTRIES} more" if len(entries) > _MAX_ENTRIES else ""
    return separator.join(entries[:_MAX_ENTRIES]) + more


def _shorten(text: str, max_length: int = _MAX_TEXT_LENGTH) -> str:
    text = _UUID.sub(r"\1", text)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
