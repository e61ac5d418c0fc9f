"""What the caller may do, and a request that is cut down to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final, cast

from ...error_codes import ErrorCode
from ...messages.headers import Envelope
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, CloseConnection
from ..security.acls import CLUSTER_NAME, Operation, Resource
from ..topics import NO_ID, Topic
from .lookup import NOT_ASKED

TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SAID: Final = "Authorization failed."
Op: Final = Operation

Gated = Call | Message | CloseConnection
Amend = Callable[[Any], Message]
Rule = Callable[["May", Any], Gated]


class May:
    """What the caller may do."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self.broker = broker
        self.call = call

    def __call__(self, operation: int, resource: int, name: str) -> bool:
        return self.broker.is_authorized(self.call, operation, resource, name)

    def topic(self, operation: int, name: str) -> bool:
        return self(operation, Resource.TOPIC, name)

    def group(self, operation: int, name: str) -> bool:
        return self(operation, Resource.GROUP, name)

    def cluster(self, operation: int) -> bool:
        return self(operation, Resource.CLUSTER, CLUSTER_NAME)

    def bits(self, known: int, resource: int, name: str) -> int:
        """Of a resource's operations, those that the caller may use."""
        if known == NOT_ASKED:
            return known
        return sum(1 << bit for bit in range(3, 16) if known >> bit & 1 and self(bit, resource, name))

    def with_id(self, topic: Any) -> Topic | None:
        return self.broker.topics.with_id(topic.topic_id)

    def named(self, topic: Any) -> str | None:
        """The name of what a request names by name or id; None for an id that nobody has."""
        if topic.topic_id == NO_ID:
            return topic.name or ""
        found = self.with_id(topic)
        return None if found is None else found.name

    def parted(self, operation: int, topics: list[Any]) -> tuple[list[Any], list[Any]]:
        """The topics of a request that are allowed, and the others; an unknown id is nobody's secret."""
        allowed: list[Any] = []
        denied: list[Any] = []
        for topic in topics:
            name = self.named(topic) if hasattr(topic, "topic_id") else topic.name
            (allowed if name is None or self.topic(operation, name) else denied).append(topic)
        return allowed, denied


def cut_down(may: May, amend: Amend | None = None, **fields: Any) -> Call:
    """The call with other fields in its request, and with an answer that is amended."""
    request = copy(may.call.envelope.request)
    for name, value in fields.items():
        setattr(request, name, value)
    envelope = may.call.envelope
    cut = Envelope(envelope.header, envelope.header_version, request, envelope.version)
    return replace(may.call, envelope=cut, amend_response=amend)


def each_topic(
    operation: int, refuse: Callable[[Any], Any], answers: str = "topics", *, once: bool = False
) -> Rule:
    """A request about topics, each of which is allowed or refused for itself. `once`: whoever asks, its
    handler refuses what is named twice."""

    def rule(may: May, request: Any) -> Gated:
        allowed, denied = may.parted(operation, request.topics)
        if once:
            times = Counter(topic.name for topic in request.topics)
            allowed += [topic for topic in denied if times[topic.name] > 1]
            denied = [topic for topic in denied if times[topic.name] == 1]
        if not denied:
            return may.call

        def amend(response: Any) -> Message:
            getattr(response, answers).extend(refuse(topic) for topic in denied)
            return cast("Message", response)

        return cut_down(may, amend, topics=allowed)

    return rule
