"""A real Kafka and the embedded broker accept and reject the same values of topic configs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto import Admin
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.broker.stage import INVALID_TOPIC_CONFIGS, VALID_TOPIC_CONFIGS
from tests.conformance import judges

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(real_kafka: judges.RealKafka) -> Iterator[Admin]:
    with Admin(real_kafka.bootstrap) as cluster:
        yield cluster


def create_with_config(kafka: Admin, name: str, value: str) -> ErrorCode:
    configs = [CreatableTopicConfig(name=name, value=value)]
    topic = CreatableTopic(name="n", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    answer = kafka.request(CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=True))
    return ErrorCode(answer.topics[0].error_code)


@pytest.mark.parametrize(("name", "value"), VALID_TOPIC_CONFIGS)
def test_kafka_accepts_the_value(kafka: Admin, name: str, value: str) -> None:
    assert create_with_config(kafka, name, value) is ErrorCode.NONE


@pytest.mark.parametrize(("name", "value"), INVALID_TOPIC_CONFIGS)
def test_kafka_rejects_the_value(kafka: Admin, name: str, value: str) -> None:
    assert create_with_config(kafka, name, value) is ErrorCode.INVALID_CONFIG
