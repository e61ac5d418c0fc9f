"""Requests that the tests of several APIs send."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproto.broker.topics import NO_ID
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kproto.messages.sync_group import SyncGroupRequest
from tests.broker.stage import Client, Stage, join_request


def api_versions_request(**fields: str) -> ApiVersionsRequest:
    return ApiVersionsRequest(**{"client_software_name": "a", "client_software_version": "1", **fields})


def request_bytes(key: int, version: int, correlation: int, tail: bytes = b"\xff\xff") -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation.to_bytes(4, "big") + tail


def topic_to_create(
    name: str = "new",
    count: int = 3,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: list[list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignments or [])
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create_topic(
    client: Client, version: int = 7, validate: bool = False, **topic: Any
) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=[topic_to_create(**topic)], validate_only=validate)
    [result] = client.ask(request, version).topics
    assert isinstance(result, CreatableTopicResult)
    return result


def delete_topic(client: Client, version: int, **state: Any) -> int:
    request = DeleteTopicsRequest(timeout_ms=1)
    if version >= 6:
        request.topics = [DeleteTopicState(name=state.get("name"), topic_id=state.get("topic_id", NO_ID))]
    else:
        request.topic_names = [state["name"]]
    [result] = client.ask(request, version).responses
    code: int = result.error_code
    return code


def join_alone(client: Client) -> str:
    """Join the group as its only member in generation 1, and return the member id."""
    member: str = client.ask(join_request()).member_id
    client.ask(join_request(member))
    client.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
    )
    return member


NO_INSTANCE = UUID(int=0)
CLIENT_INSTANCE = UUID("f1b43bd0-1e96-4a82-a302-60699d74a86c")


def subscribe(client: Client, instance_id: UUID = NO_INSTANCE) -> GetTelemetrySubscriptionsResponse:
    """Request the telemetry subscription of a client instance."""
    response = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))
    assert isinstance(response, GetTelemetrySubscriptionsResponse)
    return response


def request_metrics(stage: Stage, name: str, configs: dict[str, str]) -> None:
    """Configure a client metrics resource: the broker requests metrics from the clients that match it."""
    stage.broker.cluster.client_metrics.set(name, configs)
