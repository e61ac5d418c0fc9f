"""IncrementalAlterConfigs of topics sets, deletes, appends to and subtracts from values."""

from __future__ import annotations

import pytest

from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.error_codes import ErrorCode
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


def alter_config(client: Client, operation: int, name: str, value: str | None, topic: str = "t") -> int:
    change = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    [result] = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    code: int = result.error_code
    return code


SET, DELETE, APPEND, SUBTRACT = range(4)


def test_a_config_is_set_and_deleted(stage: Stage, client: Client) -> None:
    assert alter_config(client, SET, "retention.ms", "9") == 0
    assert stage.topic("t").config("retention.ms", stage.broker.settings) == "9"
    assert alter_config(client, DELETE, "retention.ms", None) == 0
    assert (
        stage.topic("t").config("retention.ms", stage.broker.settings)
        == TOPIC_CONFIGS["retention.ms"].default
    )


def test_append_and_subtract_change_lists(stage: Stage, client: Client) -> None:
    alter_config(client, APPEND, "cleanup.policy", "compact")
    assert stage.topic("t").config("cleanup.policy", stage.broker.settings) == "delete,compact"
    alter_config(client, SUBTRACT, "cleanup.policy", "delete")
    assert stage.topic("t").config("cleanup.policy", stage.broker.settings) == "compact"


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        # APPEND extends the topic's own value, here an empty one, and not the default "delete".
        ("", APPEND, "compact", "compact"),
        ("", APPEND, "", ""),
        ("", APPEND, ",", ""),
        ("", APPEND, "compact,,", "compact"),
        ("delete", APPEND, "compact,compact,delete", "delete,compact"),
        ("delete,delete", SUBTRACT, "delete", "delete"),
        ("delete,delete", SUBTRACT, "delete,delete", ""),
        ("delete", SUBTRACT, "compact", "delete"),
    ],
)
def test_list_changes_equal_kafkas(
    stage: Stage, client: Client, before: str, operation: int, value: str, after: str
) -> None:
    assert alter_config(client, SET, "cleanup.policy", before) == 0
    assert alter_config(client, operation, "cleanup.policy", value) == 0
    assert stage.topic("t").configs == {"cleanup.policy": after}


def test_the_minimum_compaction_lag_must_not_exceed_the_maximum(stage: Stage, client: Client) -> None:
    assert alter_config(client, SET, "max.compaction.lag.ms", "5") == 0
    assert alter_config(client, SET, "min.compaction.lag.ms", "6") == ErrorCode.INVALID_CONFIG
    assert alter_config(client, SET, "min.compaction.lag.ms", " 5") == 0


def test_invalid_changes_are_refused(client: Client) -> None:
    assert alter_config(client, SET, "retention.ms", "soon") == ErrorCode.INVALID_CONFIG
    assert alter_config(client, SET, "none.such", "1") == ErrorCode.INVALID_CONFIG
    assert alter_config(client, APPEND, "retention.ms", "1") == ErrorCode.INVALID_CONFIG
    assert alter_config(client, SET, "retention.ms", "1", "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter_config(client, SET, "retention.ms", "1", "a b") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter_config(client, SET, "retention.ms", None) == ErrorCode.INVALID_REQUEST


def test_a_duplicate_config_is_refused(stage: Stage, client: Client) -> None:
    changes = [AlterableConfig(name="retention.ms", config_operation=SET, value=value) for value in "12"]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)
    response = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert stage.topic("t").configs == {}


def test_a_duplicate_topic_is_refused(stage: Stage, client: Client) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource, resource], validate_only=False)
    codes = {response.error_code for response in client.ask(request).responses}
    assert codes == {ErrorCode.INVALID_REQUEST}
    assert stage.topic("t").configs == {}


def alter_client_metrics(
    client: Client, name: str, operation: int, config: str, value: str | None
) -> tuple[int, str | None]:
    change = AlterableConfig(name=config, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=16, resource_name=name, configs=[change])
    [result] = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    return result.error_code, result.error_message


def test_client_metrics_exist_while_a_config_is_set(stage: Stage, client: Client) -> None:
    resources = stage.broker.cluster.client_metrics
    assert alter_client_metrics(client, "one", SET, "metrics", "*") == (0, None)
    assert resources.configs("one") == {"metrics": "*"}
    assert alter_client_metrics(client, "one", SET, "interval.ms", "99")[0] == ErrorCode.INVALID_REQUEST
    assert alter_client_metrics(client, "one", DELETE, "metrics", None) == (0, None)
    assert resources.names() == []


def test_append_does_not_apply_to_client_metrics(client: Client) -> None:
    """A real Kafka 4.4.0 returns this error message."""
    message = "Can't APPEND to key metrics because its type is not LIST."
    assert alter_client_metrics(client, "one", APPEND, "metrics", "a") == (ErrorCode.INVALID_CONFIG, message)
