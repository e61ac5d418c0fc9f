"""Requests after a SASL login show the principal: in lines, JSON and group histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.inspect.exchange_json import to_json
from kproto.inspect.exchange_lines import line
from kproto.inspect.exchanges import Conversation, Exchange
from kproto.inspect.group_history import GroupHistory
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.security.exchange import Accepted, Challenge, SaslClient, SaslServer
from kproto.security.identity import claimed_name
from kproto.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured, unsecured_token
from kproto.security.plain import PlainClient, PlainServer
from kproto.security.scram import HASHES, ScramClient, ScramServer, credential, salted
from kproto.wire.message import Message

NAME, PASSWORD, SALT = "al,ice=", "right", b"salt of alice"
MECHANISMS = ["PLAIN", *HASHES, "OAUTHBEARER"]


def login_machines(mechanism: str, password: str = PASSWORD) -> tuple[SaslClient, SaslServer]:
    if mechanism == "PLAIN":
        return PlainClient(NAME, password), PlainServer({NAME: PASSWORD}.get)
    if mechanism == "OAUTHBEARER":
        token = unsecured_token(NAME, 0 if password == PASSWORD else 10**9, 60_000)
        return OAuthBearerClient(token), OAuthBearerServer(unsecured(lambda: 1))
    stored = credential(mechanism, salted(mechanism, PASSWORD, SALT, 4096), SALT, 4096)
    server = ScramServer(mechanism, lambda name: stored, "n", lambda name: stored)
    return ScramClient(mechanism, NAME, password, "n"), server


def record_exchange(
    conversation: Conversation, request: Message, version: int, response: Message
) -> Exchange:
    conversation.add_request(encode_request(request, version, 7, "me"), 0)
    exchange = conversation.add_response(encode_response(response, version, 7), 1)
    assert exchange is not None
    return exchange


def join_after_login(mechanism: str, password: str = PASSWORD) -> Exchange:
    """Return the exchange of a JoinGroup that follows a login."""
    conversation = Conversation("p:1", 1)
    record_exchange(
        conversation,
        SaslHandshakeRequest(mechanism=mechanism),
        1,
        SaslHandshakeResponse(error_code=0, mechanisms=[]),
    )
    client, server = login_machines(mechanism, password)
    message: bytes | None = client.begin()
    while message is not None:
        step = server.evaluate_response(message)
        assert claimed_name(mechanism, message) in (NAME, None)
        code, data = (0, step.data) if isinstance(step, Challenge | Accepted) else (58, b"")
        answer = SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=data)
        assert (
            record_exchange(conversation, SaslAuthenticateRequest(auth_bytes=message), 2, answer).principal
            == ""
        )
        message = client.answer(data) if isinstance(step, Challenge) else None
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="m",
        protocol_type="consumer",
        protocols=[],
    )
    answer = JoinGroupResponse(
        error_code=0, generation_id=4, protocol_name="range", leader="m", member_id="m", members=[]
    )
    return record_exchange(conversation, request, 5, answer)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_principal_is_shown_after_authentication(mechanism: str) -> None:
    exchange = join_after_login(mechanism)
    assert exchange.principal == f"User:{NAME}"
    assert f"me ({NAME})" in line(exchange)
    assert to_json(exchange)["principal"] == f"User:{NAME}"
    history = GroupHistory()
    history.add(exchange)
    assert f"rejoining  as User:{NAME}" in "\n".join(history.lines(0))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_rejected_login_sets_no_principal(mechanism: str) -> None:
    exchange = join_after_login(mechanism, "wrong")
    assert exchange.principal == ""
    assert "principal" not in to_json(exchange)


@given(st.sampled_from([*MECHANISMS, "GSSAPI"]), st.binary())
def test_an_invalid_first_message_raises_nothing(mechanism: str, first: bytes) -> None:
    assert claimed_name(mechanism, first) != ""
