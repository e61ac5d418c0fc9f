"""Only the owner and renewers of a delegation token may change it. Configs limit its lifetime."""

from __future__ import annotations

import pytest

from kproto.broker.delegation_tokens import DelegationToken, DelegationTokens
from kproto.broker.settings import Settings
from kproto.error_codes import ErrorCode as E

ALICE, BOB, CAROL, EVE = "User:alice", "User:bob", "User:carol", "User:eve"


@pytest.fixture
def tokens() -> DelegationTokens:
    """Return a store whose tokens expire after 100 ms, and cannot be renewed beyond 300 ms.

    The store removes expired tokens every 1,000 ms.
    """
    names = ("expiry.time", "max.lifetime", "expiry.check.interval")
    times = {
        f"delegation.token.{name}.ms": str(ms) for name, ms in zip(names, (100, 300, 1_000), strict=True)
    }
    return DelegationTokens(Settings.from_properties({"delegation.token.secret.key": "key", **times}))


def create(tokens: DelegationTokens, lifetime_ms: int = -1) -> DelegationToken:
    return tokens.create("id", ALICE, CAROL, [BOB], lifetime_ms, 1_000)


def test_without_a_key_there_are_no_tokens(tokens: DelegationTokens) -> None:
    assert tokens.is_enabled
    assert not DelegationTokens(Settings.from_properties({})).is_enabled


@pytest.mark.parametrize(
    ("lifetime_ms", "expires_at", "ends_at"),
    [(-1, 1_100, 1_300), (0, 1_100, 1_300), (50, 1_050, 1_050), (900, 1_100, 1_300)],
)
def test_the_shorter_of_two_lifetimes_applies(
    tokens: DelegationTokens, lifetime_ms: int, expires_at: int, ends_at: int
) -> None:
    token = create(tokens, lifetime_ms)
    assert (token.issued_at, token.expires_at, token.ends_at) == (1_000, expires_at, ends_at)


def test_a_repr_has_no_password(tokens: DelegationTokens) -> None:
    token = create(tokens)
    assert repr(token.hmac) not in repr(token)
    assert "token_id='id'" in repr(token)


def test_a_renewal_is_limited_by_the_maximum_lifetime(tokens: DelegationTokens) -> None:
    token = create(tokens)
    assert tokens.renew(token.hmac, ALICE, 40, 1_050) == (E.NONE, 1_090)
    assert tokens.renew(token.hmac, BOB, 900, 1_090) == (E.NONE, 1_190)
    assert tokens.renew(token.hmac, ALICE, -1, 1_190) == (E.NONE, 1_290)
    assert tokens.renew(token.hmac, ALICE, -1, 1_290) == (E.NONE, 1_300)
    assert tokens.renew(token.hmac, ALICE, -1, 1_301) == (E.DELEGATION_TOKEN_EXPIRED, 0)


@pytest.mark.parametrize("principal", [CAROL, EVE])
def test_only_the_owner_and_the_renewers_change_a_token(tokens: DelegationTokens, principal: str) -> None:
    token = create(tokens)
    assert tokens.renew(token.hmac, principal, -1, 1_000) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.expire(token.hmac, principal, -1, 1_000) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


def test_a_token_is_removed_by_a_negative_period(tokens: DelegationTokens) -> None:
    token = create(tokens)
    assert tokens.expire(token.hmac, BOB, 20, 1_010) == (E.NONE, 1_030)
    assert tokens.expire(token.hmac, ALICE, 0, 1_040) == (E.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.expire(token.hmac, ALICE, -1, 1_040) == (E.NONE, 1_040)
    assert tokens.expire(token.hmac, ALICE, -1, 1_040) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert tokens.renew(b"x", ALICE, -1, 1_040) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_an_expired_token_is_described_until_the_next_check(tokens: DelegationTokens) -> None:
    token = create(tokens)
    assert [each.token_id for each in tokens.described(lambda each: True, 1_500)] == ["id"]
    assert tokens.login("SCRAM-SHA-256", "id", 1_101) is None
    assert tokens.described(lambda each: True, 2_000) == []
    assert tokens.renew(token.hmac, ALICE, -1, 2_000) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_the_owner_the_requester_and_the_renewers_may_describe_a_token(tokens: DelegationTokens) -> None:
    token = create(tokens)
    assert [token.has_right(each) for each in (ALICE, BOB, CAROL, EVE)] == [True, True, True, False]
