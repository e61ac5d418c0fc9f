"""Dynamic broker configs: a real Kafka and the embedded broker accept and return the same values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kproto.broker.config_values import ConfigType
from kproto.broker.dynamic_config import DYNAMIC
from kproto.broker.server import running
from kproto.broker.settings import Settings
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.stage import PATIENCE, Socket, connected
from tests.conformance import judges

SET, DELETE, APPEND, SUBTRACT = range(4)
# Kafka accepts changes to these configs on a running broker, because they are dynamic in Kafka or unknown to
# it. The embedded broker reads them only at its start, so it rejects the changes.
ACCEPTED_BY_KAFKA: Final = {
    "allow.everyone.if.no.acl.found", "sasl.enabled.mechanisms", "ssl.client.auth", "super.users",
}  # fmt: skip

NOT_DESCRIBED_BY_KAFKA: Final = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}


@pytest.fixture
def pair(real_kafka: judges.RealKafka) -> Iterator[tuple[Socket, Socket]]:
    with running() as server, connected(real_kafka.bootstrap) as kafka, connected(server.bootstrap) as ours:
        yield kafka, ours


def alter(client: Socket, broker: str, name: str, value: str | None, how: int, only: bool = True) -> str:
    change = AlterableConfig(name=name, config_operation=how, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=only), 1)
    return ErrorCode(answer.responses[0].error_code).name


def types(client: Socket) -> dict[str, ConfigType]:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    answer = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    known = {*ConfigType}
    return {
        config.name: ConfigType(config.config_type)
        for config in answer.results[0].configs
        if config.config_type in known
    }


def describe(client: Socket, broker: str, name: str) -> list[Any]:
    resource = DescribeConfigsResource(resource_type=4, resource_name=broker, configuration_keys=[name])
    answer = client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    return [
        (
            config.value,
            config.read_only,
            config.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in answer.results[0].configs
    ]


@pytest.mark.kafka
def test_kafka_accepts_what_our_broker_accepts(pair: tuple[Socket, Socket]) -> None:
    for name, value in Settings.from_properties({}).properties().items():
        for broker in ("1", ""):
            codes = [alter(client, broker, name, value, SET) for client in pair]
            assert codes[1] == ("NONE" if name in DYNAMIC else "INVALID_REQUEST")
            if name not in ACCEPTED_BY_KAFKA:
                assert codes[0] == codes[1], name


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("broker", "name", "value", "how"),
    [
        ("1", "message.max.bytes", "-1", SET),
        ("1", "message.max.bytes", "abc", SET),
        ("1", "message.max.bytes", " 2000 ", SET),
        ("1", "message.max.bytes", "1", APPEND),
        ("2", "message.max.bytes", "1000", SET),
        ("x", "message.max.bytes", "1000", SET),
        ("1", "message.max.bytes", None, DELETE),
        ("1", "num.partitions", None, DELETE),
        ("", "num.partitions", None, DELETE),
        ("1", "log.message.timestamp.type", "Never", SET),
        ("1", "producer.id.expiration.ms", "0", SET),
        ("1", "log.retention.ms", "0", SET),
        ("1", "log.retention.ms", "-1", SET),
        ("", "log.retention.ms", "3000000000", SET),
        ("1", "log.cleanup.policy", "shred", SET),
        ("1", "log.cleanup.policy", "compact,delete", SET),
        ("1", "log.cleanup.policy", "compact", APPEND),
        ("", "log.cleanup.policy", "shred", APPEND),
        ("", "log.cleanup.policy", "compact,delete", SUBTRACT),
        ("1", "message.max.bytes", "1000", SUBTRACT),
        ("", "log.retention.bytes", "9223372036854775808", SET),
    ],
)
def test_both_brokers_accept_and_reject_the_same_changes(
    pair: tuple[Socket, Socket], broker: str, name: str, value: str | None, how: int
) -> None:
    kafka, ours = (alter(client, broker, name, value, how) for client in pair)
    assert kafka == ours


@pytest.mark.kafka
def test_both_brokers_report_the_same_types(pair: tuple[Socket, Socket]) -> None:
    kafka, ours = (types(client) for client in pair)
    assert kafka.items() >= {name: ours[name] for name in ours.keys() - NOT_DESCRIBED_BY_KAFKA}.items()


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("name", "moves"),
    [
        (
            "message.max.bytes",
            [("", "2000000", SET), ("1", "3000000", SET), ("1", None, DELETE), ("", None, DELETE)],
        ),
        (
            "log.cleanup.policy",
            [
                ("", "compact,delete", APPEND),
                ("1", "delete", SUBTRACT),
                ("1", "compact", APPEND),
                ("", "delete", SUBTRACT),
                ("1", None, DELETE),
                ("", None, DELETE),
            ],
        ),
    ],
)
def test_both_brokers_report_values_and_synonyms_alike(
    pair: tuple[Socket, Socket], name: str, moves: list[tuple[str, str | None, int]]
) -> None:
    for broker, value, how in moves:
        assert [alter(client, broker, name, value, how, only=False) for client in pair] == ["NONE"] * 2
        wanted = [describe(pair[1], broker_, name) for broker_ in ("1", "")]
        end = time.monotonic() + PATIENCE
        while (reported := [describe(pair[0], broker_, name) for broker_ in ("1", "")]) != wanted:
            assert time.monotonic() < end, (broker, value, reported, wanted)
            time.sleep(0.05)  # Kafka's broker gets the change from its controller after the response.


@pytest.mark.kafka
def test_both_brokers_report_configs_without_a_default_alike(pair: tuple[Socket, Socket]) -> None:
    for name in ("broker.rack", "node.id", "sasl.oauthbearer.expected.issuer"):
        kafka, ours = (describe(client, "1", name) for client in pair)
        assert kafka == ours, name


@pytest.mark.kafka
def test_both_brokers_report_the_synonyms_of_topic_configs_alike(pair: tuple[Socket, Socket]) -> None:
    name = f"synonyms-{time.time_ns()}"
    described: list[dict[str, Any]] = []
    for client in pair:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        end = time.monotonic() + PATIENCE
        while not (configs := client.ask(request, 4).results[0].configs):
            assert time.monotonic() < end
        described.append(
            {
                config.name: [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
                for config in configs
            }
        )
    kafka, ours = described
    # With eligible leader replicas (KIP-966), Kafka sets min.insync.replicas for the whole cluster. The
    # embedded broker does not.
    del kafka["min.insync.replicas"], ours["min.insync.replicas"]
    assert ours == kafka
