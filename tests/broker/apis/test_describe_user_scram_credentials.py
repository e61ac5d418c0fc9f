"""DescribeUserScramCredentials lists the credentials of each user, without keys."""

from __future__ import annotations

from kproto.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.broker.security.stage import LoginStage


def test_credentials_are_described_without_keys() -> None:
    answer: DescribeUserScramCredentialsResponse = LoginStage("PLAINTEXT").ask(
        DescribeUserScramCredentialsRequest(users=None), 0
    )
    assert [(result.user, len(result.credential_infos)) for result in answer.results] == [
        ("alice", 2),
        ("bob", 2),
    ]
