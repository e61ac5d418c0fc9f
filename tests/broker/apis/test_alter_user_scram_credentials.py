"""AlterUserScramCredentials (KIP-554) sets SCRAM credentials, and rejects invalid changes."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.machine import ClientConnected
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kproto.security.scram import ScramClient, salted
from tests.broker.security.stage import LoginStage


def test_scram_credentials_are_set_from_a_salted_password() -> None:
    stage = LoginStage("PLAINTEXT")
    salted_password = salted("SCRAM-SHA-256", "carol's", b"salt", 4096)
    wanted = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted_password
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    answer: AlterUserScramCredentialsResponse = stage.ask(request, 0)
    assert [result.error_code for result in answer.results] == [0]
    stage.step(ClientConnected(1, "10.0.0.7", "SASL_SSL"))
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
def test_invalid_changes_are_refused_with_kafkas_code(deletions: Any, upsertions: Any, code: int) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name, number in deletions],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=upsertion, iterations=i, salt=b"s", salted_password=b"p"
            )
            for name, upsertion, i in upsertions
        ],
    )
    stage = LoginStage("PLAINTEXT")
    assert [result.error_code for result in stage.ask(request, 0).results] == [code]
