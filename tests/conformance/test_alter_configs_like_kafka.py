"""AlterConfigs, the predecessor of IncrementalAlterConfigs: a real Kafka and the embedded broker agree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.stage import PATIENCE, Socket, connected
from tests.conformance import judges
from tests.conformance.document_programs import eventually

pytestmark = pytest.mark.kafka

TOPIC, BROKER = 2, 4
NAME = "replaced"


@pytest.fixture
def pair(real_kafka: judges.RealKafka) -> Iterator[tuple[Socket, Socket]]:
    with running() as server, connected(real_kafka.bootstrap) as kafka, connected(server.bootstrap) as ours:
        yield kafka, ours


def of(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=config, value=value) for config, value in configs],
    )


KEEPS = ("retention.ms", "1000")
STEPS = {
    "all of a topic": [
        [of(TOPIC, NAME, KEEPS, ("retention.bytes", "5"))],
        [of(TOPIC, NAME, ("retention.bytes", "7"))],
        [of(TOPIC, NAME)],
    ],
    "a topic's refused": [
        [of(TOPIC, NAME, KEEPS)],
        [of(TOPIC, NAME, ("retention.bytes", "many"))],
        [of(TOPIC, NAME, ("retention.bytes", None))],
        [of(TOPIC, NAME, ("no.such.config", "1"))],
        [of(TOPIC, NAME, ("retention.bytes", "1"), ("retention.bytes", "2"))],
        # Kafka 4.3.1 never answers a request that names a resource twice. The embedded broker rejects it.
        [of(TOPIC, NAME, ("retention.bytes", "1")), of(TOPIC, "not-there", ("retention.bytes", "2"))],
    ],
    "no topic": [
        [of(TOPIC, "not-there", KEEPS)],
        [of(TOPIC, "not-there")],
        [of(TOPIC, "not there", KEEPS)],
        [of(TOPIC, "", KEEPS)],
        [of(3, "x", KEEPS)],
    ],
    "brokers": [
        [of(BROKER, "1", ("message.max.bytes", "2000000"), ("log.retention.bytes", "500"))],
        [of(BROKER, "1", ("message.max.bytes", "3000000"))],
        [of(BROKER, "1", ("message.max.bytes", "-1"))],
        [of(BROKER, "2", ("message.max.bytes", "3000000"))],
        [of(BROKER, "x", ("message.max.bytes", "3000000"))],
        [of(BROKER, "1")],
    ],
}


def own_configs(client: Socket, kind: int, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    source = 1 if kind == TOPIC else 2
    return {
        config.name: config.value for config in answer.results[0].configs if config.config_source == source
    }


def have_same_configs(pair: tuple[Socket, Socket], kind: int, name: str) -> bool:
    kafkas, ours = (own_configs(client, kind, name) for client in pair)
    return kafkas == ours


def alter(client: Socket, resources: list[AlterConfigsResource], only: bool) -> list[Any]:
    answer = client.ask(AlterConfigsRequest(resources=resources, validate_only=only), 2)
    return sorted((response.resource_name, response.error_code) for response in answer.responses)


@pytest.mark.parametrize("only", [False, True], ids=["done", "only-validated"])
@pytest.mark.parametrize("case", STEPS)
def test_both_brokers_answer_alter_configs_alike(pair: tuple[Socket, Socket], case: str, only: bool) -> None:
    topic = CreatableTopic(name=NAME, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    for client in pair:
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=False), 7)
    try:
        for resources in STEPS[case]:
            kafkas, ours = (alter(client, resources, only) for client in pair)
            assert kafkas == ours, resources
            for kind, name in ((TOPIC, NAME), (BROKER, "1")):
                # Kafka may respond before its brokers receive the changes from the controller.
                same = partial(have_same_configs, pair, kind, name)
                assert eventually(same, PATIENCE), (
                    resources,
                    [own_configs(client, kind, name) for client in pair],
                )
    finally:
        for client in pair:
            client.ask(DeleteTopicsRequest(topics=[], topic_names=[NAME], timeout_ms=9000), 5)
