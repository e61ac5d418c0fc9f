"""Whom the embedded broker knows, and how that is changed and told."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.machine import Connected
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kproto.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.scram import ScramClient, salted
from tests.broker.logins import Stage


def test_a_password_that_is_changed_holds_from_now_on() -> None:
    stage = Stage(connection_failed_authentication_delay_ms="0")
    stage.users.set("alice", "another")
    assert stage.alice().error_code == 58


def test_a_stranger_s_salt_is_always_the_same() -> None:
    """Else whoever asks twice knows that there is no such user."""
    for name in ("alice", "eve"):
        asked = set()
        for _ in range(2):
            stage = Stage()
            stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            data = ScramClient("SCRAM-SHA-256", name, "x", "n").begin()
            asked.add(bytes(stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2).auth_bytes))
        assert len(asked) == 1


def test_scram_credentials_are_changed_without_passwords() -> None:
    stage = Stage("PLAINTEXT")
    made = salted("SCRAM-SHA-256", "carol's", b"salt", 4096)
    wanted = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=made
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    answer: AlterUserScramCredentialsResponse = stage.ask(request, 0)
    assert [result.error_code for result in answer.results] == [0]
    stage.step(Connected(1, "10.0.0.7", "SASL_SSL"))
    assert stage.log_in(ScramClient("SCRAM-SHA-256", "carol", "carol's", "n")).error_code == 0


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([("nobody", 1)], [], 91),
        ([("alice", 7)], [], 33),
        ([], [("alice", 1, 4095)], 93),
        ([], [("alice", 1, 16_385)], 93),
        ([], [("", 1, 4096)], 93),
        ([("alice", 1)], [("alice", 1, 4096)], 92),
        ([("alice", 1)], [], 0),
    ],
)
def test_changes_of_credentials_are_refused_as_in_kafka(deletions: Any, upsertions: Any, code: int) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name, number in deletions],
        upsertions=[
            ScramCredentialUpsertion(name=name, mechanism=one, iterations=i, salt=b"s", salted_password=b"p")
            for name, one, i in upsertions
        ],
    )
    stage = Stage("PLAINTEXT")
    assert [result.error_code for result in stage.ask(request, 0).results] == [code]


def test_credentials_are_told_without_their_keys() -> None:
    answer: DescribeUserScramCredentialsResponse = Stage("PLAINTEXT").ask(
        DescribeUserScramCredentialsRequest(users=None), 0
    )
    assert [(result.user, len(result.credential_infos)) for result in answer.results] == [
        ("alice", 2),
        ("bob", 2),
    ]
