"""SCRAM: both halves of the exchange, compared with the examples of the RFCs and with each other."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.scram import (
    MOST_ITERATIONS,
    Credential,
    ScramClient,
    ScramServer,
    credential,
    salted,
    scram_name,
)

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


@pytest.mark.parametrize("iterations", [4096, MOST_ITERATIONS])
def test_a_client_does_as_many_iterations_as_the_broker_asks_for_within_the_limits(iterations: int) -> None:
    requested: list[tuple[bytes, int]] = []

    def salt_password(salt: bytes, count: int) -> bytes:
        requested.append((salt, count))
        return b"salted"

    client = ScramClient("SCRAM-SHA-256", "alice", "right", "c", salt_password=salt_password)
    assert client.answer(f"r=cs,s=c2FsdA==,i={iterations},x=y".encode()) is not None
    assert requested == [(b"salt", iterations)]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (b"e=other-error", "the broker says 'other-error'"),
        (b"e=other-error,x=y", "the broker says 'other-error'"),
        (b"v=c2ln", "can't prove that it knows the password"),
        (b"v=c", "can't prove that it knows the password"),
        (b"", "the broker's last SCRAM message is malformed"),
        (b"\xff", "the broker's last SCRAM message is malformed"),
    ],
)
def test_a_client_raises_the_reason_why_the_last_message_is_not_a_success(last: bytes, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "c")
    client.answer(b"r=cs,s=c2FsdA==,i=4096")
    with pytest.raises(SaslFailed, match=reason):
        client.answer(last)


def test_a_client_expects_no_message_after_the_brokers_proof() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "c")
    assert isinstance(log_in(client, server("SCRAM-SHA-256", {"alice": "right"})), Accepted)
    with pytest.raises(SaslFailed, match="after the end"):
        client.answer(b"")


FAILED = "Authentication failed during {} due to invalid credentials with SASL mechanism SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("first", "message", "reason"),
    [
        (b"p=x,,n=alice,r=c", FAILED.format("authentication"), "the first SCRAM message is malformed"),
        (
            b"n,,n=alice,r=c,tokenauth=true",
            FAILED.format("authentication"),
            "the delegation token 'alice' does not exist, or has expired",
        ),
        (
            b"n,a=bob,n=alice,r=c",
            "Authentication failed: Client requested an authorization id that is different from username",
            "'alice' requested another authorization id",
        ),
    ],
)
def test_a_first_message_is_rejected_with_a_reason(first: bytes, message: str, reason: str) -> None:
    broker = server("SCRAM-SHA-256", {"alice": "right"})
    assert broker.evaluate_response(first) == Rejected(message, reason)
    ended = Rejected(FAILED.format("authentication"), "the exchange has ended")
    assert [broker.evaluate_response(b"n,,n=alice,r=c") for _ in range(2)] == [ended, ended]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (b"c=biws,r=cserver,p=", "a wrong password for 'alice'"),
        (b"c=biws,r=other,p=", "the SCRAM nonce is not the one of this exchange"),
        (b"c=eSws,r=cserver,p=", "channel binding was requested, but is not supported"),
        (b"c=,r=cserver,p=", "channel binding was requested, but is not supported"),
        (b"c=b,r=cserver,p=", "channel binding was requested, but is not supported"),
        (b"c=biws,r=cserver", "the last SCRAM message is malformed"),
        (b"", "the last SCRAM message is malformed"),
    ],
)
def test_a_last_message_is_rejected_with_a_reason(last: bytes, reason: str) -> None:
    broker = server("SCRAM-SHA-256", {"alice": "right"})
    broker.evaluate_response(b"n,a=alice,n=alice,r=c,ext=x")
    assert broker.evaluate_response(last) == Rejected(FAILED.format("authentication"), reason)


def test_a_broker_accepts_no_message_after_its_proof() -> None:
    broker = server("SCRAM-SHA-256", {"alice": "right"})
    assert isinstance(log_in(ScramClient("SCRAM-SHA-256", "alice", "right", "c"), broker), Accepted)
    ended = Rejected(FAILED.format("authentication"), "the exchange has ended")
    assert broker.evaluate_response(b"n,,n=alice,r=c") == ended


def test_a_rejected_reauthentication_says_that_it_was_one() -> None:
    broker = ScramServer("SCRAM-SHA-256", {}.get, "s", lambda name: kept("SCRAM-SHA-256", "x"), renews=True)
    assert broker.evaluate_response(b"") == Rejected(
        FAILED.format("re-authentication"), "the first SCRAM message is malformed"
    )


def test_a_client_escapes_commas_and_equals_signs_in_names() -> None:
    client = ScramClient("SCRAM-SHA-256", "a,b=c", "right", "c")
    assert client.begin() == b"n,,n=a=2Cb=3Dc,r=c"
    assert scram_name(client.begin()) == "a,b=c"
    assert scram_name(b"n,,n=a=2c,r=c") is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_halves_name_the_mechanism(mechanism: str) -> None:
    assert ScramClient(mechanism, "a", "b", "c").mechanism == mechanism
    assert server(mechanism, {}).mechanism == mechanism


def test_the_repr_of_a_credential_has_no_secret() -> None:
    assert repr(kept("SCRAM-SHA-256", "right")) == "Credential(iterations=4096)"
