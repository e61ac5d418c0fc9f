"""SCRAM credentials in the admin API: set, delete and describe, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion
from consumer.engine.admin import credentials as plans
from kproto.broker.server import Server, running
from kproto.errors import BrokerError, ConfigError, PartialFailure
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kproto.security.scram import salted
from tests.consumer.engine.admin.stage import clock, play, view_of

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ALICE = UserScramCredentialUpsertion("alice", SHA_256, "alice-secret")


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def test_new_credentials_are_described_and_deleted(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        for mechanism in (SHA_512, SHA_256):
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", mechanism, "x", 5000)])
        admin.alter_user_scram_credentials([ALICE])
        assert admin.describe_user_scram_credentials() == {
            "alice": (ScramCredentialInfo(SHA_256, 4096),),
            "bob": (ScramCredentialInfo(SHA_256, 5000), ScramCredentialInfo(SHA_512, 5000)),
        }
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", SHA_256)])
        assert admin.describe_user_scram_credentials(["bob"]) == {
            "bob": (ScramCredentialInfo(SHA_512, 5000),)
        }


def test_a_user_without_credentials_does_not_hide_the_others(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.alter_user_scram_credentials([ALICE])
        with pytest.raises(PartialFailure, match="user 'nobody'") as caught:
            admin.describe_user_scram_credentials(["alice", "nobody"])
        assert caught.value.succeeded.keys() == {"alice"}
        assert isinstance(caught.value.failed["nobody"], BrokerError)


def test_a_deletion_of_a_missing_credential_fails_for_its_user_only(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure) as caught:
            admin.alter_user_scram_credentials([ALICE, UserScramCredentialDeletion("bob", SHA_256)])
        assert caught.value.failed.keys() == {"bob"}
        assert admin.describe_user_scram_credentials().keys() == {"alice"}


def test_the_request_contains_the_salted_password_and_not_the_password() -> None:
    plan = plans.alter_user_scram_credentials(view_of(1), [ALICE], clock, lambda: b"salt")
    [ask] = next(plan)  # type: ignore[misc]
    assert ask.node == 1
    [upsertion] = ask.request.upsertions  # type: ignore[union-attr]
    assert upsertion.salted_password == salted(SHA_256, "alice-secret", b"salt", 4096)
    assert "alice-secret" not in repr(ask.request) + repr(ALICE)


def test_a_retried_request_has_the_same_salt() -> None:
    salts = iter([b"first"])
    plan = plans.alter_user_scram_credentials(view_of(1), [ALICE], clock, lambda: next(salts))
    result = AlterUserScramCredentialsResult(user="alice", error_code=0, error_message=None)
    empty = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[])
    full = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[result])
    assert play(plan, empty, full)[0] == {"alice": None}


@pytest.mark.parametrize(
    "change",
    [
        UserScramCredentialUpsertion("a", "PLAIN", "alice-secret"),
        UserScramCredentialUpsertion("a", SHA_256, ""),
        UserScramCredentialUpsertion("a", SHA_256, "alice-secret", 4095),
        UserScramCredentialUpsertion("a", SHA_256, "alice-secret", 16385),
        "alice",
    ],
)
def test_an_invalid_credential_is_rejected_without_the_password_in_the_error(change: Any) -> None:
    with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match="UserScramCredentialUpsertion") as caught:
            admin.alter_user_scram_credentials([change])
        assert "alice-secret" not in str(caught.value)
