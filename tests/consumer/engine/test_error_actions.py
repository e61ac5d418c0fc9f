"""After an error code of Fetch, the consumer raises the error, retries, or refreshes metadata."""

from __future__ import annotations

import pytest

from consumer.engine.error_actions import FETCH, ErrorAction, action_for
from kproto.error_codes import ErrorCode
from tests.rules import rule


@rule("M173")
@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorAction.REFRESH_METADATA),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorAction.REFRESH_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorAction.REFRESH_METADATA),
        (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorAction.REFRESH_METADATA),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorAction.RAISE),
        (999, ErrorAction.RAISE),
    ],
)
def test_most_errors_of_fetch_refresh_metadata_and_the_others_are_raised(
    code: int, action: ErrorAction
) -> None:
    assert action_for(FETCH, code) is action


@rule("M163")
@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorAction.REFRESH_METADATA),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorAction.RETRY),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorAction.RETRY),
    ],
)
def test_of_the_session_errors_only_that_of_topic_ids_refreshes_metadata(
    code: ErrorCode, action: ErrorAction
) -> None:
    assert action_for(FETCH, code) is action
