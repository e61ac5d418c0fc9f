"""The table of topic configs accepts and rejects the values that Kafka accepts and rejects."""

from __future__ import annotations

from kproto.broker.topic_configs import TOPIC_CONFIGS, check_topic_config
from tests.broker.stage import INVALID_TOPIC_CONFIGS, VALID_TOPIC_CONFIGS, Stage, batch_of


def test_values_that_kafka_accepts_are_accepted() -> None:
    valid = [*VALID_TOPIC_CONFIGS, *((name, config.default) for name, config in TOPIC_CONFIGS.items())]
    errors = {(name, value): check_topic_config(name, value) for name, value in valid}
    assert errors == dict.fromkeys(errors)


def test_values_that_kafka_rejects_are_rejected() -> None:
    errors = {(name, value): check_topic_config(name, value) for name, value in INVALID_TOPIC_CONFIGS}
    assert [key for key, why in errors.items() if why is None or len(why) >= 250] == []


def test_blanks_around_a_value_are_ignored() -> None:
    stage = Stage()
    stage.broker.topics.create("t", stage.random_id(), 1, {"message.timestamp.type": " LogAppendTime "})
    assert stage.client().produce(batch_of(b"a"), "t").log_append_time_ms == stage.now
