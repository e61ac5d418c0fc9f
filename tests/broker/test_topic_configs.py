"""The table of topic configs, with accepted and rejected values."""

from __future__ import annotations

import pytest

from kproto.broker.topic_configs import TOPIC_CONFIGS, check_topic_config
from tests.broker.stage import INVALID_TOPIC_CONFIGS, VALID_TOPIC_CONFIGS, Stage, batch_of


@pytest.mark.parametrize(
    ("name", "value"),
    [*VALID_TOPIC_CONFIGS, *((name, config.default) for name, config in TOPIC_CONFIGS.items())],
)
def test_values_that_kafka_accepts_are_accepted(name: str, value: str) -> None:
    assert check_topic_config(name, value) is None


@pytest.mark.parametrize(("name", "value"), INVALID_TOPIC_CONFIGS)
def test_values_that_kafka_rejects_are_rejected(name: str, value: str) -> None:
    why = check_topic_config(name, value)
    assert why is not None
    assert len(why) < 250


def test_blanks_around_a_value_are_ignored() -> None:
    stage = Stage()
    stage.broker.topics.create("t", stage.random_id(), 1, {"message.timestamp.type": " LogAppendTime "})
    assert stage.client().produce(batch_of(b"a"), "t").log_append_time_ms == stage.now
