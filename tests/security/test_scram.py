"""SCRAM: both halves of the exchange, compared with the examples of the RFCs and with each other."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.scram import MOST_ITERATIONS, Credential, ScramClient, ScramServer, credential, salted

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
ASCII = st.text(st.characters(max_codepoint=127, exclude_characters="\0"), min_size=1)


@cache
def kept(mechanism: str, password: str, salt: bytes = b"salt") -> Credential:
    return credential(mechanism, salted(mechanism, password, salt, 4096), salt, 4096)


def server(mechanism: str, users: dict[str, str]) -> ScramServer:
    credentials = {name: kept(mechanism, password) for name, password in users.items()}
    return ScramServer(mechanism, credentials.get, "server", lambda name: kept(mechanism, "nobody's"))


def log_in(client: ScramClient, broker: ScramServer) -> Accepted | Rejected:
    challenge = broker.evaluate_response(client.begin())
    if isinstance(challenge, Rejected):
        return challenge
    assert isinstance(challenge, Challenge)
    answer = client.answer(challenge.data)
    assert answer is not None
    end = broker.evaluate_response(answer)
    assert not isinstance(end, Challenge)
    if isinstance(end, Accepted):
        assert client.answer(end.data) is None
    return end


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = client.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert answer == f"c=biws,r={nonce},p={proof}".encode()
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(max_examples=10)
@given(name=ASCII, password=NAMES)
def test_the_right_password_is_accepted(mechanism: str, name: str, password: str) -> None:
    client = ScramClient(mechanism, name, password, "client")
    end = log_in(client, server(mechanism, {name: password}))
    assert isinstance(end, Accepted)
    assert end.principal == name


@pytest.mark.parametrize(
    "first", ["n,,n=älice,r=x", "n,a=,n=alice,r=x", "n,,n=alice,r=x,", "n,,n=alice,r=x,a="]
)
def test_messages_that_kafka_cannot_parse_are_rejected(first: str) -> None:
    broker = server("SCRAM-SHA-256", {"älice": "a", "alice": "a"})
    assert isinstance(broker.evaluate_response(first.encode()), Rejected)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_rejected_with_the_same_message(mechanism: str) -> None:
    broker = {"alice": "right"}
    wrong = log_in(ScramClient(mechanism, "alice", "wrong", "c"), server(mechanism, broker))
    stranger = log_in(ScramClient(mechanism, "eve", "right", "c"), server(mechanism, broker))
    assert isinstance(wrong, Rejected)
    assert isinstance(stranger, Rejected)
    assert wrong.message == stranger.message
    assert (wrong.reason, stranger.reason) == (
        "a wrong password for 'alice'",
        f"user 'eve' has no {mechanism} credential",
    )


def test_a_client_detects_a_server_without_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "c")
    client.begin()
    client.answer(b"r=cs,s=c2FsdA==,i=4096")
    with pytest.raises(SaslFailed, match="can't prove"):
        client.answer(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize("iterations", [1, 4095, MOST_ITERATIONS + 1, 2**31, 10**19])
def test_a_client_limits_the_iterations(iterations: int) -> None:
    client = ScramClient("SCRAM-SHA-512", "alice", "right", "c")
    with pytest.raises(SaslFailed, match="iterations"):
        client.answer(f"r=cs,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize(
    "challenge",
    [b"r=cs,s=,i=4096", b"r=c,s=c2FsdA==,i=4096", b"r=x,s=c2FsdA==,i=4096", b"m=x,r=cs,s=c2FsdA==,i=4096"],
)
def test_an_invalid_challenge_ends_the_exchange(challenge: bytes) -> None:
    with pytest.raises(SaslFailed):
        ScramClient("SCRAM-SHA-256", "alice", "right", "c").answer(challenge)


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_a_client_raises_only_sasl_failed_on_any_bytes(challenges: list[bytes]) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "c")
    for challenge in challenges:
        with pytest.raises(SaslFailed):
            client.answer(challenge)


@given(st.lists(st.binary(max_size=80) | st.just(b"n,,n=alice,r=c"), min_size=1, max_size=3))
def test_a_broker_accepts_no_client_without_a_proof(messages: list[bytes]) -> None:
    broker = server("SCRAM-SHA-256", {"alice": "right"})
    assert not any(isinstance(broker.evaluate_response(message), Accepted) for message in messages)


def test_another_authorization_id_is_rejected() -> None:
    broker = server("SCRAM-SHA-256", {"alice": "right", "bob": "right"})
    assert isinstance(broker.evaluate_response(b"n,a=bob,n=alice,r=c"), Rejected)


def test_the_repr_of_a_credential_has_no_secret() -> None:
    assert repr(kept("SCRAM-SHA-256", "right")) == "Credential(iterations=4096)"
