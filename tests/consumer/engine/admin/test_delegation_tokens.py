"""Delegation tokens in the admin API. Neither reprs nor error messages show the HMAC."""

from __future__ import annotations

import pytest

from consumer import Admin
from consumer.engine.admin import delegation_tokens as plans
from consumer.engine.network.call import Prepared
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, UnsupportedVersion
from kproto.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kproto.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kproto.messages.expire_delegation_token import ExpireDelegationTokenResponse
from kproto.messages.renew_delegation_token import RenewDelegationTokenResponse
from tests.consumer.engine.admin.stage import asks_of, clock, known, play, request_of

CREATED = CreateDelegationTokenResponse(
    error_code=0, principal_type="User", principal_name="alice", issue_timestamp_ms=1,
    expiry_timestamp_ms=2, max_timestamp_ms=3, token_id="id", hmac=b"secret", throttle_time_ms=0,
)  # fmt: skip


def test_a_created_token_has_its_owner_times_and_password() -> None:
    plan = plans.create_delegation_token(
        known(), clock, renewers=["User:bob"], owner=None, max_lifetime_ms=None
    )
    token, _ = play(plan, CREATED)
    assert (token.token_id, token.owner, token.token_requester) == ("id", "User:alice", "User:alice")
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (1, 2, 3)
    assert (token.renewers, token.hmac, token.hmac_as_base64) == (("User:bob",), b"secret", "c2VjcmV0")
    assert "secret" not in repr(token)
    assert "c2VjcmV0" not in repr(token)


def test_an_owner_is_sent_from_version_3_on() -> None:
    plan = plans.create_delegation_token(
        known(), clock, renewers=["User:b:c"], owner="User:alice", max_lifetime_ms=5
    )
    [ask] = asks_of(plan)
    assert isinstance(ask.request, Prepared)
    message = ask.request.build(3)
    assert isinstance(message, CreateDelegationTokenRequest)
    assert (message.owner_principal_type, message.owner_principal_name) == ("User", "alice")
    assert (message.renewers[0].principal_name, message.max_lifetime_ms) == ("b:c", 5)
    with pytest.raises(UnsupportedVersion, match="to name an owner"):
        ask.request.build(2).encode(2)


def test_renewal_and_expiry_return_the_new_time() -> None:
    renewed = RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=9, throttle_time_ms=0)
    plan = plans.renew_delegation_token(known(), b"h", clock, renew_period_ms=4)
    assert play(plan, renewed)[0] == 9
    expired = ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=8, throttle_time_ms=0)
    plan = plans.expire_delegation_token(known(), b"h", clock, expiry_period_ms=None)
    assert play(plan, expired)[0] == 8
    request = request_of(plans.expire_delegation_token(known(), b"h", clock, expiry_period_ms=None))
    assert request.expiry_time_period_ms == -1, "at once"


def test_an_unknown_token_is_an_error_without_the_hmac() -> None:
    missing = RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp_ms=-1, throttle_time_ms=0
    )
    with pytest.raises(BrokerError, match="DELEGATION_TOKEN_NOT_FOUND") as caught:
        play(plans.renew_delegation_token(known(), b"secret", clock, renew_period_ms=None), missing)
    assert "secret" not in str(caught.value)


def test_tokens_are_described_in_the_order_of_their_ids() -> None:
    def token(token_id: str) -> DescribedDelegationToken:
        return DescribedDelegationToken(
            principal_type="User", principal_name="alice", token_requester_principal_type="User",
            token_requester_principal_name="root", issue_timestamp=1, expiry_timestamp=2, max_timestamp=3,
            token_id=token_id, hmac=b"h",
            renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name="bob")],
        )  # fmt: skip

    response = DescribeDelegationTokenResponse(
        error_code=0, tokens=[token("b"), token("a")], throttle_time_ms=0
    )
    tokens, _ = play(plans.describe_delegation_token(known(), ["User:alice"], clock), response)
    assert [entry.token_id for entry in tokens] == ["a", "b"]
    assert (tokens[0].token_requester, tokens[0].renewers) == ("User:root", ("User:bob",))


def test_a_wrong_argument_is_rejected_without_showing_the_hmac() -> None:
    with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match="hmac") as caught:
            admin.renew_delegation_token("c2VjcmV0")  # type: ignore[arg-type]
        assert "c2VjcmV0" not in str(caught.value)
        with pytest.raises(ConfigError, match="User:alice"):
            admin.create_delegation_token(owner="alice")
