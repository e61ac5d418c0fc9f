"""The user name is in a client's first message, and each mechanism has its own final success message."""

from __future__ import annotations

import pytest

from kproto.security.identity import claimed_name, is_final_success
from kproto.security.oauthbearer import OAuthBearerClient, unsecured_token


@pytest.mark.parametrize(
    ("mechanism", "message", "name"),
    [
        ("PLAIN", b"\0alice\0right", "alice"),
        ("PLAIN", b"bob\0alice\0right", "alice"),
        ("PLAIN", b"\0\0right", None),
        ("PLAIN", b"alice\0right", None),
        ("PLAIN", b"\0alice\0right\0", None),
        ("PLAIN", b"\0al\xff\0right", "al\ufffd"),
        ("SCRAM-SHA-256", b"n,,n=al=2Cice=3D,r=nonce", "al,ice="),
        ("SCRAM-SHA-512", b"n,a=alice,n=alice,r=nonce", "alice"),
        ("SCRAM-SHA-512", b"c=biws,r=nonce,p=cHJvb2Y=", None),
        ("OAUTHBEARER", OAuthBearerClient(unsecured_token("alice", 0, 1), {"a": "b"}).begin(), "alice"),
        ("OAUTHBEARER", OAuthBearerClient(unsecured_token("", 0, 1)).begin(), None),
        ("OAUTHBEARER", OAuthBearerClient(unsecured_token("alice", 0, 1, {"sub": 5})).begin(), None),
        ("OAUTHBEARER", b"\x01", None),
        ("GSSAPI", b"\0alice\0right", None),
    ],
)
def test_the_name_is_read_from_the_first_message(mechanism: str, message: bytes, name: str | None) -> None:
    assert claimed_name(mechanism, message) == name


@pytest.mark.parametrize(
    ("mechanism", "response", "final"),
    [
        ("PLAIN", b"", True),
        ("PLAIN", b"v=", False),
        ("OAUTHBEARER", b"", True),
        ("OAUTHBEARER", b"{}", False),
        ("SCRAM-SHA-256", b"v=c2ln", True),
        ("SCRAM-SHA-256", b"r=nonce,s=c2FsdA==,i=4096", False),
        ("SCRAM-SHA-512", b"", False),
    ],
)
def test_a_scram_authentication_ends_with_the_brokers_proof_and_the_others_with_an_empty_response(
    mechanism: str, response: bytes, final: bool
) -> None:
    assert is_final_success(mechanism, response) is final
