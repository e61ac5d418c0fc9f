"""DeleteTopics deletes topics by name and by id."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.apis.stage import delete_topic
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_by_name_in_every_version(stage: Stage, client: Client, version: int) -> None:
    assert delete_topic(client, version, name="t") == 0
    assert [topic.name for topic in stage.broker.topics] == ["u"]


def test_a_topic_is_deleted_by_id(stage: Stage, client: Client) -> None:
    assert delete_topic(client, 6, topic_id=stage.topic("t").id) == 0
    assert [topic.name for topic in stage.broker.topics] == ["u"]


def test_a_missing_topic_is_refused(client: Client) -> None:
    assert delete_topic(client, 6, name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_topic(client, 6, topic_id=UUID(int=5)) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    "states",
    [
        [DeleteTopicState(name=None, topic_id=NO_ID)],
        [DeleteTopicState(name="t", topic_id=UUID(int=5))],
        [DeleteTopicState(name="t", topic_id=NO_ID)] * 2,
    ],
)
def test_an_ambiguous_deletion_is_refused(
    stage: Stage, client: Client, states: list[DeleteTopicState]
) -> None:
    response = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1))
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST]
    assert len(stage.broker.topics) == 2


def test_deletion_can_be_disabled() -> None:
    client = Stage({"t": 1}, delete_topic_enable="false").client()
    assert delete_topic(client, 6, name="t") == ErrorCode.TOPIC_DELETION_DISABLED
