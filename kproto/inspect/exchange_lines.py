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
_names: ContextVar[Mapping[UUID, str]] = ContextVar("names", default=MappingProxyType({}))

# The UUID in a member id. Only its first 8 digits are shown, which are enough to distinguish members.
_UUID = re.compile(r"(?<=-)([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The key type of a FindCoordinator request about groups (FindCoordinatorRequest.CoordinatorType).
_GROUP_KEY = 0
# How many entries of a list, and how many characters of a text, are shown at most.
_MOST = 6
_LONG = 60


def line(exchange: Exchange, began: int = 0) -> str:
    """Format the exchange as a line. Its time is in seconds since `began` (ms).

    Control characters are escaped, so that names from clients cannot break or reorder the line.
    """
    seconds = (exchange.asked_at - began) / 1000
    _names.set(exchange.names)
    client = _short(exchange.client or "-", 20)
    if exchange.principal:
        client += f" ({_short(exchange.principal.removeprefix('User:'), 20)})"
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
    return escape_unprintable(f"{seconds:9.3f}  {_short('group ' + group, 20):<20}  {cause}")


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
    if response is None or exchange.trouble or any(code for _, code in _codes(response, "")):
        return False
    if exchange.api == "Fetch":
        return not any(partition.records for topic in response.responses for partition in topic.partitions)
    return exchange.api == "Heartbeat"


def request_words(request: Message) -> str:
    """Describe a request in one line."""
    describe = _ASKED.get(type(request).__name__.removesuffix("Request"), _plain)
    return describe(request)


def response_words(response: Message, request: Message | None = None) -> str:
    """Describe a response in one line: its errors and its main fields, or "ok" if it has neither."""
    name = type(response).__name__.removesuffix("Response")
    errors = list(_errors(response))
    text = _ANSWERED[name](response) if name in _ANSWERED and not _top(response) else ""
    if errors:
        text = f"{_listed(errors)} {text}".rstrip()
    return text or "ok"


def error_name(code: int) -> str:
    """Return Kafka's name for an error code, or "error N" if the code is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


# ---- Errors, in any part of a response.


def _top(response: Any) -> int:
    return int(getattr(response, "error_code", 0) or 0)


def _errors(response: Any) -> Iterator[str]:
    """Yield each error once, with the first topic, partition or group that has it."""
    counts: dict[int, tuple[str, int]] = {}
    for place, code in _codes(response, ""):
        if code:
            first, count = counts.get(code, (place, 0))
            counts[code] = (first, count + 1)
    for code, (place, count) in counts.items():
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"{error_name(code)}{f' ({place}{more})' if place else ''}"


def _codes(part: Any, place: str) -> Iterator[tuple[str, int]]:
    code = getattr(part, "error_code", getattr(part, "partition_error_code", None))
    if isinstance(code, int):
        yield place, code
    for field in part.__fields__ if hasattr(part, "__fields__") else ():
        value: Any = getattr(part, field.name)
        if isinstance(value, list):
            for entry in value:  # pyright: ignore[reportUnknownVariableType]
                if hasattr(entry, "__fields__"):  # pyright: ignore[reportUnknownArgumentType]
                    yield from _codes(entry, _place(entry, place))


def _place(part: Any, above: str) -> str:
    for name in ("name", "topic", "topic_name", "group_id", "key"):
        value = getattr(part, name, None)
        if isinstance(value, str) and value:
            return value
    for name in ("partition_index", "partition", "index"):
        value = getattr(part, name, None)
        if isinstance(value, int):
            return f"{above}-{value}" if above else f"partition {value}"
    return above


# ---- requests


def _plain(message: Any) -> str:
    """Describe a message that has no formatter: its numbers and strings, and the lengths of its lists."""
    words: list[str] = []
    for field in message.__fields__:
        value = getattr(message, field.name)
        if isinstance(value, bool) or value is None or field.name == "throttle_time_ms":
            continue
        if isinstance(value, list):
            words.append(f"{field.name}={len(value)}")  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, int | str) and value not in ("", -1):
            words.append(f"{field.name}={_short(str(value))}")
    return " ".join(words[:_MOST])


def _member(request: Any) -> str:
    words = [f"group={request.group_id}"]
    for name in ("generation_id", "generation_id_or_member_epoch"):
        generation = getattr(request, name, -1)
        if generation >= 0:
            words.append(f"generation={generation}")
    member = getattr(request, "member_id", "")
    words.append(f"member={_short(member)}" if member else "member=new")
    if getattr(request, "group_instance_id", None):
        words.append(f"instance={request.group_instance_id}")
    return " ".join(words)


def _join(request: Any) -> str:
    offered = " ".join(
        f"{protocol.name}({_subscription(protocol.metadata)})" for protocol in request.protocols
    )
    reason = f" because {_short(request.reason)!r}" if request.reason else ""
    return f"{_member(request)} {offered}{reason}"


def _subscription(data: bytes) -> str:
    try:
        subscription = Subscription.decode(data)
    except DecodeError:
        return f"{len(data)} bytes"
    owned = f" owns {_partitions(subscription.owned)}" if subscription.owned else ""
    return f"{_listed(sorted(subscription.topics))}{owned}"


def _sync(request: Any) -> str:
    plan = [
        f"{_short(assignment.member_id)}: {_assignment(assignment.assignment)}"
        for assignment in request.assignments
    ]
    return f"{_member(request)}" + (f" plan {{{_listed(plan, '; ')}}}" if plan else "")


def _assignment(data: bytes) -> str:
    try:
        return _partitions(Assignment.decode(data).partitions) if data else "nothing"
    except DecodeError:
        return f"{len(data)} bytes"


def _leave(request: Any) -> str:
    if not request.members:
        return _member(request)
    members = [
        f"{_short(member.member_id) or member.group_instance_id}"
        + (f" ({member.reason})" if member.reason else "")
        for member in request.members
    ]
    return f"group={request.group_id} {_listed(members)}"


def _committed(request: Any) -> str:
    offsets = [
        f"{_topic(topic)}-{partition.partition_index}@{partition.committed_offset}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return f"{_member(request)} {_listed(offsets)}"


def _fetch_offsets(request: Any) -> str:
    groups = request.groups or [request]
    return " ".join(
        f"group={group.group_id} "
        + (
            "all"
            if group.topics is None
            else _listed(
                f"{_topic(topic)}-{index}" for topic in group.topics for index in topic.partition_indexes
            )
        )
        for group in groups
    )


def _fetch(request: Any) -> str:
    partitions = [
        f"{_topic(topic)}-{partition.partition}@{partition.fetch_offset}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    session = f" session={request.session_id}/{request.session_epoch}" if request.session_id else ""
    return f"{_listed(partitions) or 'nothing new'}{session} wait={request.max_wait_ms} ms"


def _produce(request: Any) -> str:
    partitions = [
        f"{_topic(topic)}-{partition.index} {len(partition.records or b'')} B"
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    acks = {-1: "all"}.get(request.acks, request.acks)
    transaction = f" transaction={request.transactional_id}" if request.transactional_id else ""
    return f"{_listed(partitions)} acks={acks}{transaction}"


def _init(request: Any) -> str:
    if request.transactional_id is None:
        return "for no transactions"
    producer = _transaction(request) if request.producer_id >= 0 else request.transactional_id
    return f"{producer} timeout={request.transaction_timeout_ms} ms"


def _transaction(request: Any) -> str:
    return f"{request.transactional_id} producer={request.producer_id}/{request.producer_epoch}"


def _end(request: Any) -> str:
    return f"{_transaction(request)} {'commit' if request.committed else 'abort'}"


def _add_partitions(request: Any) -> str:
    name = request.v3_and_below_transactional_id or _listed(o.transactional_id for o in request.transactions)
    topics = [
        *request.v3_and_below_topics,
        *(topic for transaction in request.transactions for topic in transaction.topics),
    ]
    return f"{name} {_listed(f'{topic.name}-{index}' for topic in topics for index in topic.partitions)}"


def _topics(request: Any) -> str:
    if request.topics is None:
        return "all topics"
    return _listed(_topic(topic) for topic in request.topics) or "no topics"


def _list_offsets(request: Any) -> str:
    times = {-1: "latest", -2: "earliest", -3: "max timestamp"}
    return _listed(
        f"{_topic(topic)}-{partition.partition_index} {times.get(partition.timestamp, partition.timestamp)}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _epochs(request: Any) -> str:
    return _listed(
        f"{topic.topic}-{partition.partition} epoch={partition.leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _coordinator(request: Any) -> str:
    kind = {0: "group", 1: "transaction", 2: "share"}.get(request.key_type, request.key_type)
    return f"{kind} {_listed(request.coordinator_keys or [request.key])}"


def _versions(request: Any) -> str:
    return f"{request.client_software_name} {request.client_software_version}".strip()


def _groups(request: Any) -> str:
    groups = getattr(request, "groups", None) or getattr(request, "group_ids", None) or ()
    return _listed(map(str, groups))


def _create_topics(request: Any) -> str:
    return _listed(f"{topic.name}:{topic.num_partitions}" for topic in request.topics)


# ---- responses


def _joined(response: Any) -> str:
    generation = f"generation={response.generation_id} member={_short(response.member_id)}"
    if response.leader != response.member_id:
        return f"{generation} {response.protocol_name}"
    members = [f"{_short(member.member_id)} {_subscription(member.metadata)}" for member in response.members]
    return f"{generation} {response.protocol_name} leads {len(members)}: {_listed(members, '; ')}"


def _synced(response: Any) -> str:
    return f"got {_assignment(response.assignment)}"


def _found(response: Any) -> str:
    coordinators = response.coordinators or [response]
    return _listed(
        f"node {place.node_id} at {address_text(place.host, place.port)}"
        for place in coordinators
        if place.host
    )


def _cluster(response: Any) -> str:
    topics = [f"{topic.name or topic.topic_id}:{len(topic.partitions)}" for topic in response.topics]
    brokers = f"{len(response.brokers)} broker{'s' if len(response.brokers) != 1 else ''}"
    return f"{brokers}, {_listed(topics) or 'no topics'}"


def _fetched(response: Any) -> str:
    partitions = [
        f"{_topic(topic)}-{part.partition_index} {len(part.records)} B up to {part.high_watermark}"
        for topic in response.responses
        for part in topic.partitions
        if part.records
    ]
    return _listed(partitions) or "nothing"


def _produced(response: Any) -> str:
    return _listed(
        f"{_topic(topic)}-{partition.index}@{partition.base_offset}"
        for topic in response.responses
        for partition in topic.partition_responses
        if not partition.error_code
    )


def _offsets(response: Any) -> str:
    groups = response.groups or [response]
    return _listed(
        f"{_topic(topic)}-{partition.partition_index} "
        + ("none" if partition.committed_offset < 0 else f"@{partition.committed_offset}")
        for group in groups
        for topic in group.topics
        for partition in topic.partitions
    )


def _listed_offsets(response: Any) -> str:
    return _listed(
        f"{topic.name}-{partition.partition_index}@{partition.offset}"
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    )


def _ends(response: Any) -> str:
    return _listed(
        f"{topic.topic}-{partition.partition} epoch={partition.leader_epoch} ends at {partition.end_offset}"
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    )


def _offered(response: Any) -> str:
    return f"{len(response.api_keys)} APIs"


def _described(response: Any) -> str:
    return _listed(
        f"{group.group_id} {group.group_state} with {len(group.members)}" for group in response.groups
    )


def _producer(response: Any) -> str:
    return f"producer id={response.producer_id} epoch={response.producer_epoch}"


_ASKED: dict[str, Callable[[Any], str]] = {
    "AddOffsetsToTxn": lambda request: f"{_transaction(request)} group={request.group_id}",
    "AddPartitionsToTxn": _add_partitions,
    "ApiVersions": _versions,
    "CreateTopics": _create_topics,
    "DescribeGroups": _groups,
    "EndTxn": _end,
    "Fetch": _fetch,
    "FindCoordinator": _coordinator,
    "Heartbeat": _member,
    "InitProducerId": _init,
    "JoinGroup": _join,
    "LeaveGroup": _leave,
    "ListOffsets": _list_offsets,
    "Metadata": _topics,
    "OffsetCommit": _committed,
    "OffsetFetch": _fetch_offsets,
    "OffsetForLeaderEpoch": _epochs,
    "Produce": _produce,
    "SyncGroup": _sync,
    "TxnOffsetCommit": lambda request: f"{_transaction(request)} {_committed(request)}",
}

_ANSWERED: dict[str, Callable[[Any], str]] = {
    "ApiVersions": _offered,
    "DescribeGroups": _described,
    "EndTxn": lambda response: _producer(response) if response.producer_id >= 0 else "",
    "Fetch": _fetched,
    "FindCoordinator": _found,
    "InitProducerId": _producer,
    "JoinGroup": _joined,
    "ListOffsets": _listed_offsets,
    "Metadata": _cluster,
    "OffsetFetch": _offsets,
    "OffsetForLeaderEpoch": _ends,
    "Produce": _produced,
    "SyncGroup": _synced,
}


# ---- texts


def _topic(part: Any) -> str:
    for name in ("name", "topic"):
        topic_name = getattr(part, name, None)
        if topic_name:
            return str(topic_name)
    id_: Any = getattr(part, "topic_id", None)
    return _names.get().get(id_) or _short(str(id_), 8)


def _partitions(partitions: Iterable[TopicPartition]) -> str:
    return _listed(map(str, sorted(partitions))) or "nothing"


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    shown = list(texts)
    more = f"{separator}and {len(shown) - _MOST} more" if len(shown) > _MOST else ""
    return separator.join(shown[:_MOST]) + more


def _short(text: str, most: int = _LONG) -> str:
    text = _UUID.sub(r"\1", text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
