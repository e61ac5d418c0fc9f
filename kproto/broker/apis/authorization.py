"""The permissions that each API requires, and the reduction of requests to their permitted part.

Each API declares an `Authorization` in its entry of the table, and `Api.authorize` applies it before the
handler runs.

`Authorization.requirements` lists the permissions that the caller needs on resources. For each permission, it
names the error that a caller without the permission receives.

Rules, as in Kafka's KafkaApis and ControllerApis (R18, R85, R103, R121, R129):

* A request is reduced to its permitted part, which the handler executes. The errors for the denied part are
  added to the handler's response.

* A caller without DESCRIBE on a resource cannot find out whether the resource's name exists. Lists omit the
  resource, and a request that names it is denied in either case. By contrast, the error for a topic id shows
  whether the id exists.

* The group coordinator receives no request for a group on which the caller lacks the permission. It receives
  no offset commit if the caller lacks the permission on every topic of the commit.

* A bit field of authorized operations in a response contains only operations that the caller may perform.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from msgspec import structs

from ...error_codes import ErrorCode
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, CloseWithoutResponse
from ..security.acls import CLUSTER_NAME, Operation, Resource
from ..topics import NO_ID

# Kafka's error message for most denied requests.
AUTHORIZATION_FAILED: Final = "Authorization failed."

# The bit fields of the operations that a cluster and a topic support: bit N stands for the AclOperation with
# code N. Without an authorizer, Kafka reports all these operations as authorized.
CLUSTER_OPERATIONS: Final = (
    # The bits of CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
    8096
)
TOPIC_OPERATIONS: Final = (
    3576  # The bits of READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
)
OPERATIONS_NOT_REQUESTED: Final = -0x80000000

# The call to execute, narrowed to its permitted part if necessary. For a call that must not be executed, the
# response, or the command to close the connection.
Authorized = Call | Message | CloseWithoutResponse


class Access:
    """The permissions of the caller of one request."""

    __slots__ = ("broker", "call")

    def __init__(self, broker: Broker, call: Call) -> None:
        self.broker = broker
        self.call = call

    def allows(self, operation: int, resource: int, name: str) -> bool:
        """Return whether the caller may perform `operation` on this resource."""
        return self.broker.is_authorized(self.call, operation, resource, name)

    def allows_topic(self, operation: int, name: str) -> bool:
        """Return whether the caller may perform `operation` on this topic."""
        return self.allows(operation, Resource.TOPIC, name)

    def allows_group(self, operation: int, group_id: str) -> bool:
        """Return whether the caller may perform `operation` on this group."""
        return self.allows(operation, Resource.GROUP, group_id)

    def allows_transactional_id(self, operation: int, transactional_id: str) -> bool:
        """Return whether the caller may perform `operation` on this transactional id."""
        return self.allows(operation, Resource.TRANSACTIONAL_ID, transactional_id)

    def allows_cluster(self, operation: int) -> bool:
        """Return whether the caller may perform `operation` on the cluster."""
        return self.allows(operation, Resource.CLUSTER, CLUSTER_NAME)

    def authorized_operations(self, supported: int, resource: int, name: str) -> int:
        """Return the bit field `supported` without the operations that the caller may not perform."""
        if supported == OPERATIONS_NOT_REQUESTED:
            return supported
        # The operations from READ to TWO_PHASE_COMMIT, each with its bit.
        return sum(
            1 << operation
            for operation in range(3, 16)
            if supported >> operation & 1 and self.allows(operation, resource, name)
        )

    def topic_name(self, topic: Any) -> str | None:
        """Return the name of a topic that a request identifies by name or id; None for an unknown id."""
        if topic.topic_id == NO_ID:
            return topic.name or ""
        known_topic = self.broker.topics.with_id(topic.topic_id)
        return None if known_topic is None else known_topic.name

    def split_topics(self, operation: int, topics: list[Any]) -> tuple[list[Any], list[Any]]:
        """Split the topics of a request into permitted and denied topics.

        A topic with an unknown id counts as permitted, because the handler itself returns the error.
        """
        permitted: list[Any] = []
        denied: list[Any] = []
        for topic in topics:
            name = self.topic_name(topic) if hasattr(topic, "topic_id") else topic.name
            if name is None or self.allows_topic(operation, name):
                permitted.append(topic)
            else:
                denied.append(topic)
        return permitted, denied

    def narrow(self, amend: Callable[[Any], object], **fields: Any) -> Call:
        """Return a copy of the call, with `fields` in its request. `amend` changes its response.

        When the handler has returned the response, `amend` is called with the response, and changes it in
        place.
        """

        def amend_response(response: Message) -> Message:
            amend(response)
            return response

        narrowed = self.call.with_fields(**fields) if fields else self.call
        return structs.replace(narrowed, amend_response=amend_response)


class Requirement(NamedTuple):
    """A permission that a request needs, and the error for callers without it.

    If `error` is NONE, resources for which the caller has no permission are omitted from the response.
    """

    operation: Operation
    resource: Resource
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Authorization:
    """The permissions that an API requires, and the function that narrows a request to the permitted part."""

    requirements: tuple[Requirement, ...]
    narrow: Callable[[Access, Any], Authorized]


def _refuse_if_error_injected(access: Access, request: Any) -> Authorized:
    """Return the call unchanged or, if an error is injected into it, the response with this error."""
    error = access.call.injected_error
    return access.call if error is None else access.call.refuse(error)


# Any caller may send the request; only an error that `Server.fail` injects rejects it.
WITHOUT_PERMISSION: Final = Authorization((), _refuse_if_error_injected)

CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def cluster_requirement(operation: Operation) -> Requirement:
    """Require that the caller may perform `operation` on the cluster."""
    return Requirement(operation, Resource.CLUSTER, CLUSTER_FAILED)


def group_requirement(operation: Operation) -> Requirement:
    """Require that the caller may perform `operation` on a group."""
    return Requirement(operation, Resource.GROUP, GROUP_FAILED)


def topic_requirement(operation: Operation) -> Requirement:
    """Require that the caller may perform `operation` on a topic."""
    return Requirement(operation, Resource.TOPIC, TOPIC_FAILED)


def transactional_id_requirement(operation: Operation) -> Requirement:
    """Require that the caller may perform `operation` on a transactional id."""
    return Requirement(operation, Resource.TRANSACTIONAL_ID, TRANSACTIONAL_ID_FAILED)


def omission(operation: Operation, resource: Resource) -> Requirement:
    """Return a requirement that omits a resource from the response if the caller lacks the permission."""
    return Requirement(operation, resource, ErrorCode.NONE)


def on_cluster(operation: Operation) -> Authorization:
    """Require a permission on the cluster, or reject the whole request."""

    def narrow(access: Access, request: Any) -> Authorized:
        return access.call if access.allows_cluster(operation) else access.call.refuse(CLUSTER_FAILED)

    return Authorization((cluster_requirement(operation),), narrow)


def on_group(operation: Operation) -> Authorization:
    """Require a permission on the group of the request, or reject the whole request."""

    def narrow(access: Access, request: Any) -> Authorized:
        if access.allows_group(operation, request.group_id):
            return access.call
        return access.call.refuse(GROUP_FAILED)

    return Authorization((group_requirement(operation),), narrow)


def on_transactional_id(operation: Operation) -> Authorization:
    """Require a permission on the transactional id, or reject the whole request."""

    def narrow(access: Access, request: Any) -> Authorized:
        if access.allows_transactional_id(operation, request.transactional_id):
            return access.call
        return access.call.refuse(TRANSACTIONAL_ID_FAILED)

    return Authorization((transactional_id_requirement(operation),), narrow)


def on_each_topic(
    operation: Operation,
    refuse_topic: Callable[[Any], Any],
    topic_responses: Callable[[Any], list[Any]] = lambda response: response.topics,
    *,
    pass_duplicates: bool = False,
) -> Authorization:
    """Require a permission on each topic of the request; each denied topic is answered with an error.

    With `pass_duplicates`, a topic that the request names twice needs no permission, because the handler
    rejects such a topic for every caller.
    """

    def narrow(access: Access, request: Any) -> Authorized:
        permitted, denied = access.split_topics(operation, request.topics)
        if pass_duplicates:
            occurrences = Counter(topic.name for topic in request.topics)
            permitted += [topic for topic in denied if occurrences[topic.name] > 1]
            denied = [topic for topic in denied if occurrences[topic.name] == 1]
        return narrow_topics(access, permitted, denied, refuse_topic, topic_responses)

    return Authorization((topic_requirement(operation),), narrow)


def narrow_topics(
    access: Access,
    permitted: list[Any],
    denied: list[Any],
    refuse_topic: Callable[[Any], Any],
    topic_responses: Callable[[Any], list[Any]] = lambda response: response.topics,
) -> Call:
    """Narrow the call to the permitted topics, and add an error for each denied topic to the response."""
    if not denied:
        return access.call

    def add_refusals(response: Any) -> None:
        topic_responses(response).extend(map(refuse_topic, denied))

    return access.narrow(add_refusals, topics=permitted)


def restrict_cluster_operations(access: Access, response: Any) -> None:
    """Restrict the response's bit field for the cluster to operations that the caller may perform.

    A caller without DESCRIBE on the cluster receives a bit field without any operation.
    """
    supported = response.cluster_authorized_operations
    if supported != OPERATIONS_NOT_REQUESTED and not access.allows_cluster(Operation.DESCRIBE):
        supported = 0
    operations = access.authorized_operations(supported, Resource.CLUSTER, CLUSTER_NAME)
    response.cluster_authorized_operations = operations


def restrict_topic_operations(access: Access, topic: Any) -> None:
    """Restrict the topic's bit field to operations that the caller may perform."""
    supported = topic.topic_authorized_operations
    operations = access.authorized_operations(supported, Resource.TOPIC, topic.name or "")
    topic.topic_authorized_operations = operations


def narrow_commit(access: Access, permitted: list[Any], denied: list[Any]) -> Authorized:
    """Narrow an offset commit to its permitted topics, and add an error for each denied topic.

    If no topic is permitted, the result is the response with these errors, and no request is executed.
    """
    if not denied:
        return access.call
    refusal: Any = access.call.with_fields(topics=denied).refuse(TOPIC_FAILED)
    if not permitted:
        return cast("Message", refusal)
    return access.narrow(lambda response: response.topics.extend(refusal.topics), topics=permitted)
