"""A changed password takes effect immediately, and a login does not reveal whether a user exists."""

from __future__ import annotations

from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.scram import ScramClient
from tests.broker.security.stage import LoginStage


def test_a_changed_password_takes_effect_immediately() -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="0")
    stage.users.set("alice", "another")
    assert stage.alice().error_code == 58


def test_the_salt_of_an_unknown_name_is_constant() -> None:
    """Each login with the same unknown user name gets the same salt.

    A different salt in a second login would reveal that the user does not exist.
    """
    for name in ("alice", "eve"):
        challenges = set()
        for _ in range(2):
            stage = LoginStage()
            stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            data = ScramClient("SCRAM-SHA-256", name, "x", "n").begin()
            challenges.add(bytes(stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2).auth_bytes))
        assert len(challenges) == 1
