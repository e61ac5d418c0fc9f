"""GetTelemetrySubscriptions assigns instance ids, and merges the subscriptions that match a client."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproto.broker.client_metrics import subscription_id
from kproto.error_codes import ErrorCode
from tests.broker.apis.stage import (
    CLIENT_INSTANCE,
    NO_INSTANCE,
    api_versions_request,
    request_metrics,
    subscribe,
)
from tests.broker.stage import Client, Stage


def test_a_client_without_an_instance_id_receives_one(stage: Stage) -> None:
    ids = {subscribe(stage.client()).client_instance_id for _ in range(3)}
    assert len(ids - {NO_INSTANCE}) == 3


def test_without_a_resource_no_metrics_are_requested_for_five_minutes(client: Client) -> None:
    response = subscribe(client)
    assert (response.requested_metrics, response.push_interval_ms) == ([], 300_000)
    assert (response.telemetry_max_bytes, response.delta_temporality) == (1_048_576, True)
    assert response.accepted_compression_types == [4, 3, 1, 2]


def test_a_subscription_id_is_that_of_kafka() -> None:
    """A real Kafka 4.4.0 without subscriptions returns this subscription id."""
    assert subscription_id((), 300_000, CLIENT_INSTANCE) == 93577865


def test_the_subscriptions_that_match_a_client_are_merged(stage: Stage, client: Client) -> None:
    request_metrics(stage, "one", {"metrics": "b,a", "interval.ms": "5000"})
    request_metrics(stage, "two", {"metrics": "a,c", "interval.ms": "7000", "match": "client_id=a c.*"})
    request_metrics(stage, "other", {"metrics": "d", "interval.ms": "100", "match": "client_id=a"})
    response = subscribe(client)
    assert (response.requested_metrics, response.push_interval_ms) == (["a", "b", "c"], 5000)


def test_an_interval_above_five_minutes_has_no_effect(stage: Stage, client: Client) -> None:
    """As in Kafka, a subscription cannot make the push interval longer than the default of five minutes."""
    request_metrics(stage, "one", {"metrics": "*", "interval.ms": "3600000"})
    assert subscribe(client).push_interval_ms == 300_000


def test_a_subscription_to_all_metrics_replaces_the_prefixes(stage: Stage, client: Client) -> None:
    request_metrics(stage, "one", {"metrics": "a"})
    request_metrics(stage, "two", {"metrics": "*"})
    assert subscribe(client).requested_metrics == ["*"]


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_software_name=a", True),
        ("client_software_name=unknown", False),
        ("client_software_version=[0-9]", True),
        ("client_source_address=10.*", True),
        # The stage's connections have no port, so no pattern for ports matches them.
        ("client_source_port=.*", False),
        ("client_id=a client,client_software_name=b", False),
        ("client_instance_id=.{22}", True),
    ],
)
def test_patterns_match_the_attributes_of_a_client(
    stage: Stage, client: Client, match: str, matches: bool
) -> None:
    client.ask(api_versions_request())
    request_metrics(stage, "one", {"metrics": "*", "match": match})
    assert (subscribe(client).requested_metrics == ["*"]) is matches


def test_a_client_that_sent_no_software_name_is_unknown(stage: Stage, client: Client) -> None:
    request_metrics(stage, "one", {"metrics": "*", "match": "client_software_name=unknown"})
    assert subscribe(client).requested_metrics == ["*"]


def test_a_request_before_the_interval_is_throttled(stage: Stage, client: Client) -> None:
    request_metrics(stage, "one", {"metrics": "*", "interval.ms": "1000"})
    assert subscribe(client, CLIENT_INSTANCE).error_code == 0
    stage.wait(999)
    throttled = subscribe(client, CLIENT_INSTANCE)
    assert throttled.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (throttled.client_instance_id, throttled.requested_metrics) == (NO_INSTANCE, [])
    stage.wait(1)
    assert subscribe(client, CLIENT_INSTANCE).error_code == 0


def test_a_changed_subscription_is_returned_immediately(stage: Stage, client: Client) -> None:
    before = subscribe(client, CLIENT_INSTANCE)
    request_metrics(stage, "one", {"metrics": "*"})
    after = subscribe(client, CLIENT_INSTANCE)
    assert (after.error_code, after.requested_metrics) == (0, ["*"])
    assert after.subscription_id != before.subscription_id


def test_an_instance_ends_with_its_connection(stage: Stage) -> None:
    first = stage.client()
    subscribe(first, CLIENT_INSTANCE)
    first.leave()
    assert subscribe(stage.client(), CLIENT_INSTANCE).error_code == 0


def test_an_instance_expires_after_three_intervals(stage: Stage, client: Client) -> None:
    """Every request of a client instance, even a throttled one, postpones the expiry of the instance."""
    subscribe(client, CLIENT_INSTANCE)
    stage.wait(299_999)
    assert subscribe(client, CLIENT_INSTANCE).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    before = stage.broker.client_metrics._instances[CLIENT_INSTANCE]
    stage.wait(899_999)
    subscribe(client, CLIENT_INSTANCE)
    assert stage.broker.client_metrics._instances[CLIENT_INSTANCE] is before
    stage.wait(900_000)
    subscribe(client, CLIENT_INSTANCE)
    assert stage.broker.client_metrics._instances[CLIENT_INSTANCE] is not before


def test_the_number_of_instances_is_bounded(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproto.broker.client_metrics.MAX_INSTANCES", 2)
    for number in (2, 3, 4):
        subscribe(client, UUID(int=number))
    assert [*stage.broker.client_metrics._instances] == [UUID(int=3), UUID(int=4)]


def test_expired_instances_are_removed(stage: Stage, client: Client) -> None:
    subscribe(client, UUID(int=2))
    stage.wait(900_000)
    subscribe(client, UUID(int=3))
    assert [*stage.broker.client_metrics._instances] == [UUID(int=3)]


def test_the_names_of_all_instances_are_bounded(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = stage.broker.client_metrics
    subscribe(client, UUID(int=2))
    size = manager._instances[UUID(int=2)].attribute_size
    assert size > len("a client")
    monkeypatch.setattr("kproto.broker.client_metrics.MAX_KEPT_BYTES", 2 * size)
    for number in (3, 3, 4, 5):
        subscribe(client, UUID(int=number))
    assert [*manager._instances] == [UUID(int=4), UUID(int=5)]
    assert manager._attribute_size == 2 * size
    manager.on_disconnect(client.conn)
    assert manager._attribute_size == size
    # The most recently used instance is kept even if its attributes alone exceed the limit.
    monkeypatch.setattr("kproto.broker.client_metrics.MAX_KEPT_BYTES", 1)
    subscribe(client, UUID(int=6))
    assert [*manager._instances] == [UUID(int=6)]
